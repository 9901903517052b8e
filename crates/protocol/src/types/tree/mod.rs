//! Commands on trees of places, and their encoding. A tree has a name, which
//! is routed as a key is: a whole tree lies in one shard.
//!
//! ```text
//! command   flags         argument   value
//! create    kind          capacity   bounds 32
//! put       parts         id         rectangle 32 | length 4 | WKB | length 4 |
//!                                    fields | expiry 8 | data: those that it has
//! remove    0             id         -
//! get       0             id         -
//! set of    0             id         fields
//! get of    0             id         names, as items
//! resolve   0             header     words, 8 each
//! search    predicate     0          window 32
//! search    predicate |   header     window 32; of a tree of another shard
//!           shard << 2
//! refine    0             0          the predicate's length 4 | predicate
//! refine    1: of objects header     the same | their words, 8 each
//! count     predicate     0          window 32
//! nearest   0             how many   x 8 | y 8
//! stage     1: the first  load       objects: rectangle 32 | id 8, each
//! build     0             load       -
//! others    0             0          -
//! ```
//! If the id is not an integer, flag 32 is set, the argument is 0, and the value begins with the
//! id: its length 4 | id. Decoded commands contain checked rectangles and geometries only, except
//! that a refined search's geometry is parsed where the search begins.

mod fields;
mod object;
mod refined;

pub use fields::Fields;
pub use object::{
    FoundObjects, HAS_DATA, HAS_EXPIRY, HAS_FIELDS, HAS_GEOMETRY, ObjectId, PutObject,
};
pub use refined::{Refined, window_predicate};

use crate::items::Items;
use crate::message::Status;
use crate::sized::{push_sized, take_sized};
use crate::types::operation::{Encoded, Operation};
use object::{HAS_NAME, push_id, take_id, take_rect};
use remora_geometry::Wkb;
use remora_layout::kind::Kind;
use remora_layout::limits::{
    MAX_FIELDS, MAX_NODE_ENTRIES, MAX_REFINE_IDS, MAX_RESOLVE_WORDS, MAX_SHARDS, MIN_NODE_ENTRIES,
    NODE_ENTRIES,
};
use remora_layout::node::{ENTRY_BYTES, Entry, NodeRef};
use remora_layout::object::is_surrogate;
use remora_layout::rect::{Predicate, Rect};
use remora_layout::tree::{RootPlace, TreeKind};
use zerocopy::{FromBytes, IntoBytes};

/// The settings of a tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TreeSettings {
    /// How it is written (C4).
    pub kind: TreeKind,
    /// Entries that a node has room for (C7).
    pub capacity: usize,
    /// The area of most objects, which a Hilbert R-tree's curve fills. Other objects may lie
    /// outside.
    pub bounds: Rect,
}

impl Default for TreeSettings {
    /// An R*-tree with the capacity of the paper's trees; the unit square.
    fn default() -> Self {
        let bounds = Rect { min_x: 0.0, max_x: 1.0, min_y: 0.0, max_y: 1.0 };
        Self { kind: TreeKind::default(), capacity: NODE_ENTRIES, bounds }
    }
}

impl TreeSettings {
    /// Whether there can be such a tree.
    pub(super) fn check(&self) -> Result<(), Status> {
        self.bounds.checked().map_err(|_| Status::BadRectangle)?;
        if (MIN_NODE_ENTRIES..=MAX_NODE_ENTRIES).contains(&self.capacity) {
            Ok(())
        } else {
            Err(Status::BadCapacity)
        }
    }

    /// Appends them, as a dump of a tree begins: kind 8 | capacity 8 | bounds 32.
    pub fn write(&self, out: &mut Vec<u8>) {
        for word in [self.kind as u64, self.capacity as u64] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(self.bounds.as_bytes());
    }

    /// The settings from their encoding.
    pub fn parse(bytes: &[u8]) -> Result<Self, Status> {
        let (words, rest) = bytes.split_first_chunk::<16>().ok_or(Status::Malformed)?;
        let word = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().expect("eight"));
        let flags = u8::try_from(word(0)).map_err(|_| Status::Malformed)?;
        let capacity = i64::try_from(word(8)).map_err(|_| Status::Malformed)?;
        let create = Encoded { op: op::CREATE, flags, argument: capacity, value: rest };
        match TreeCommand::decode(create)? {
            TreeCommand::Create(settings) => Ok(settings),
            _ => Err(Status::Malformed),
        }
    }
}

/// Objects in a message: rectangle and id, 40 bytes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Objects<'a>(&'a [u8]);

impl<'a> Objects<'a> {
    /// The objects that the bytes encode; `None` if their length is wrong.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        bytes.len().is_multiple_of(ENTRY_BYTES).then_some(Self(bytes))
    }

    /// Appends one object to an encoded list.
    pub fn push(list: &mut Vec<u8>, id: u64, rect: &Rect) {
        list.extend_from_slice(Entry { rect: *rect, word: id }.as_bytes());
    }

    /// Their number.
    #[allow(clippy::len_without_is_empty, reason = "an empty one is as good as any")]
    pub fn len(self) -> usize {
        self.0.len() / ENTRY_BYTES
    }

    /// Whether each can be staged.
    pub(super) fn check(self) -> Result<(), Status> {
        if self.iter().any(|(_, rect)| rect.checked().is_err()) {
            return Err(Status::BadRectangle);
        }
        if self.iter().any(|(id, _)| is_surrogate(id)) { Err(Status::Malformed) } else { Ok(()) }
    }

    /// Ids and rectangles, in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = (u64, Rect)> + use<'a> {
        let (chunks, _) = self.0.as_chunks::<ENTRY_BYTES>();
        chunks.iter().map(|bytes| {
            let entry = Entry::from_bytes(bytes);
            (entry.word, entry.rect)
        })
    }
}

/// Objects that a reader found in a tree. The server's answer about them holds for that tree: an
/// object of another tree may have the same integer as its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadObjects<'a> {
    /// The place of the header of the tree that was read.
    pub tree: NodeRef,
    /// The words of the objects, 8 bytes each.
    pub words: &'a [u8],
}

impl<'a> ReadObjects<'a> {
    fn of(argument: i64, words: &'a [u8]) -> Self {
        Self { tree: NodeRef::from_word(argument as u64), words }
    }

    /// Whether these are words, and no more than `most` of them.
    fn check(&self, most: usize) -> Result<(), Status> {
        match self.words.len() {
            bytes if bytes > 8 * most => Err(Status::TooLarge),
            bytes if bytes.is_multiple_of(8) => Ok(()),
            _ => Err(Status::Malformed),
        }
    }
}

/// One request about a tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TreeCommand<'a> {
    /// Makes an empty tree; `NotDone` if there is one of that name.
    Create(TreeSettings),
    /// Removes the key, which must hold a tree; `number` is 1 if it existed.
    Drop,
    /// Adds an object, or moves it; a tree that is not there is made. `number`
    /// is 1 if the object is new.
    Put(PutObject<'a>),
    /// Removes an object; `number` is 1 if it was there.
    Remove {
        /// Its id.
        id: ObjectId<'a>,
    },
    /// The value is the object's rectangle, when it expires (Unix ms, 0 for
    /// never), and a [`remora_layout::object::Payload`]; `number` has the flags
    /// `HAS_DATA`, `HAS_GEOMETRY`, `HAS_FIELDS` and `HAS_EXPIRY`.
    Get {
        /// Its id.
        id: ObjectId<'a>,
    },
    /// Sets fields of an object and leaves the others; `number` is how many are
    /// new. `NotFound` without the object; `TooLarge` if it would have too many.
    SetFields {
        /// Its id.
        id: ObjectId<'a>,
        /// The fields.
        fields: Fields<'a>,
    },
    /// The value is the values of an object's fields, as [`Items`]; `number` is
    /// how many. `NotFound` without the object.
    GetFields {
        /// Its id.
        id: ObjectId<'a>,
        /// The fields' names; none for all, names and values.
        names: Items<'a>,
    },
    /// The ids of objects with these surrogates, at most `MAX_RESOLVE_WORDS`, as [`Items`], in
    /// order; none for an object that was removed. Several replies. `NoTree` if the key has another
    /// tree than the one that was read.
    Resolve(ReadObjects<'a>),
    /// The objects in a window, in no order, as [`FoundObjects`]. Several
    /// replies; `number` of the last is the number of nodes visited.
    Search {
        /// The window.
        window: Rect,
        /// The relation of an object to it.
        predicate: Predicate,
    },
    /// As [`TreeCommand::Search`], for a tree of another shard of the server: any of its threads
    /// can read it, except for ids that are not integers. `AskOwner` if reading does not conclude.
    SearchAt {
        /// The window.
        window: Rect,
        /// The relation of an object to it.
        predicate: Predicate,
        /// The shard that owns the tree.
        shard: u8,
        /// The tree's place.
        root: RootPlace,
    },
    /// The objects whose geometries fit, as [`TreeCommand::Search`] gives them; `number` of the
    /// last reply holds [`Refined`]. With objects that the client has read: those of them, at most
    /// `MAX_REFINE_IDS`, that exist, a [`remora_layout::object::Verdict`] each; `NoTree` as for
    /// [`TreeCommand::Resolve`].
    Refine {
        /// A [`remora_geometry::Refine`]'s bytes, not parsed yet.
        refine: &'a [u8],
        /// The objects.
        of: Option<ReadObjects<'a>>,
    },
    /// `number` is the number of objects whose geometries fit.
    CountRefined {
        /// A [`remora_geometry::Refine`]'s bytes, not parsed yet.
        refine: &'a [u8],
    },
    /// `number` is the number of objects in a window.
    Count {
        /// The window.
        window: Rect,
        /// The relation of an object to it.
        predicate: Predicate,
    },
    /// The objects nearest to a point, as [`FoundObjects`], the nearest
    /// first. Several replies; `number` is how many.
    Nearest {
        /// The point's x.
        x: f64,
        /// The point's y.
        y: f64,
        /// How many, at most `MAX_NEAREST`.
        wanted: u32,
    },
    /// The value is a [`remora_layout::tree::TreeInfo`].
    Info,
    /// Stages objects for a tree that is to be built; `number` is how many are staged. `OtherLoad`
    /// if another load has begun meanwhile, or this one was idle for too long.
    Stage {
        /// The load's number: one that no other client uses.
        load: u64,
        /// Whether this piece begins a load; the rest of an earlier load is dropped then.
        first: bool,
        /// The objects.
        objects: Objects<'a>,
    },
    /// Does the next step of building an empty tree from the staged objects. `InPieces` if the
    /// client must ask for another step; after the last one `number` is the tree's objects. The
    /// objects are not visible before.
    Build {
        /// The load with the staged objects.
        load: u64,
    },
}

/// Flag of a part of a load: it is the first.
const FIRST: u8 = 1;
/// Flag of a refined search: it is of some objects.
const HAS_WORDS: u8 = 1;
/// Flag of a refined search: its objects are counted, not given.
const COUNTS: u8 = 2;

/// Numbers of the operations.
mod op {
    pub const CREATE: u8 = 0;
    pub const PUT: u8 = 1;
    pub const REMOVE: u8 = 2;
    pub const GET: u8 = 3;
    pub const SEARCH: u8 = 4;
    pub const COUNT: u8 = 5;
    pub const NEAREST: u8 = 6;
    pub const INFO: u8 = 7;
    pub const STAGE: u8 = 8;
    pub const BUILD: u8 = 9;
    pub const SEARCH_AT: u8 = 10;
    pub const REFINE: u8 = 11;
    pub const DROP: u8 = 12;
    pub const SET_FIELDS: u8 = 13;
    pub const GET_FIELDS: u8 = 14;
    pub const RESOLVE: u8 = 15;
}

impl<'a> Operation<'a> for TreeCommand<'a> {
    const KIND: Kind = Kind::RTREE;
    const COUNT: u8 = op::RESOLVE + 1;

    fn decode(from: Encoded<'a>) -> Result<Self, Status> {
        let command = Self::decode_parts(from)?;
        command.check().map(|()| command)
    }

    fn encode<'s>(&'s self, scratch: &'s mut Vec<u8>) -> Encoded<'s> {
        scratch.clear();
        let (op, flags, argument) = match *self {
            Self::Create(TreeSettings { kind, capacity, bounds }) => {
                scratch.extend_from_slice(bounds.as_bytes());
                (op::CREATE, kind as u8, capacity as i64)
            }
            Self::Drop => (op::DROP, 0, 0),
            Self::Put(put) => {
                let (flags, argument) = put.encode(scratch);
                (op::PUT, flags, argument)
            }
            Self::Refine { refine, of: None } => {
                push_sized(scratch, refine);
                (op::REFINE, 0, 0)
            }
            Self::Refine { refine, of: Some(ReadObjects { tree, words }) } => {
                push_sized(scratch, refine);
                scratch.extend_from_slice(words);
                (op::REFINE, HAS_WORDS, tree.to_word() as i64)
            }
            Self::CountRefined { refine } => {
                push_sized(scratch, refine);
                (op::REFINE, COUNTS, 0)
            }
            Self::Remove { id } => with_op(op::REMOVE, push_id(scratch, id)),
            Self::Get { id } => with_op(op::GET, push_id(scratch, id)),
            Self::SetFields { id, fields } => {
                let id = push_id(scratch, id);
                scratch.extend_from_slice(fields.as_bytes());
                with_op(op::SET_FIELDS, id)
            }
            Self::GetFields { id, names } => {
                let id = push_id(scratch, id);
                scratch.extend_from_slice(names.bytes());
                with_op(op::GET_FIELDS, id)
            }
            Self::Resolve(ReadObjects { tree, words }) => {
                scratch.extend_from_slice(words);
                (op::RESOLVE, 0, tree.to_word() as i64)
            }
            Self::Search { window, predicate } => {
                scratch.extend_from_slice(window.as_bytes());
                (op::SEARCH, predicate as u8, 0)
            }
            Self::SearchAt { window, predicate, shard, root } => {
                scratch.extend_from_slice(window.as_bytes());
                scratch.extend_from_slice(&root.record.to_le_bytes());
                (op::SEARCH_AT, predicate as u8 | shard << 2, root.at.to_word() as i64)
            }
            Self::Count { window, predicate } => {
                scratch.extend_from_slice(window.as_bytes());
                (op::COUNT, predicate as u8, 0)
            }
            Self::Nearest { x, y, wanted } => {
                scratch.extend_from_slice([x, y].as_bytes());
                (op::NEAREST, 0, wanted.into())
            }
            Self::Info => (op::INFO, 0, 0),
            Self::Stage { load, first, objects } => {
                scratch.extend_from_slice(objects.0);
                (op::STAGE, if first { FIRST } else { 0 }, load as i64)
            }
            Self::Build { load } => (op::BUILD, 0, load as i64),
        };
        Encoded { op, flags, argument, value: scratch }
    }

    fn command_name(&self) -> &'static str {
        match *self {
            Self::Create(_) => "rtree.create",
            Self::Drop => "rtree.drop",
            Self::Put(_) | Self::Stage { .. } | Self::Build { .. } => "rtree.add",
            Self::Remove { .. } => "rtree.rem",
            Self::Get { .. } => "rtree.get",
            Self::SetFields { .. } => "rtree.fset",
            Self::GetFields { .. } => "rtree.fget",
            Self::Resolve(_)
            | Self::Search { .. }
            | Self::SearchAt { .. }
            | Self::Refine { .. } => "rtree.search",
            Self::Count { .. } | Self::CountRefined { .. } => "rtree.count",
            Self::Nearest { .. } => "rtree.nearest",
            Self::Info => "rtree.info",
        }
    }

    fn is_write(&self) -> bool {
        self.grows()
            || matches!(
                self,
                Self::Remove { .. } | Self::Drop | Self::Stage { .. } | Self::Build { .. }
            )
    }

    fn grows(&self) -> bool {
        matches!(self, Self::Create(_) | Self::Put(_) | Self::SetFields { .. })
    }

    fn is_long(&self) -> bool {
        matches!(
            self,
            Self::Search { .. }
                | Self::SearchAt { .. }
                | Self::Refine { .. }
                | Self::CountRefined { .. }
                | Self::Count { .. }
                | Self::Nearest { .. }
                | Self::Resolve(_)
        )
    }
}

impl<'a> TreeCommand<'a> {
    /// This command, if it keeps all limits.
    ///
    /// # Errors
    /// Its numbers make no rectangle, no point, or no tree; an id is none; or a part is
    /// too long: the status that the server would reply with.
    pub fn checked(self) -> Result<Self, Status> {
        self.check().map(|()| self)
    }

    /// Whether each part keeps its limits.
    fn check(&self) -> Result<(), Status> {
        match self {
            Self::Create(settings) => settings.check(),
            Self::Put(put) => put.check(),
            Self::Remove { id } | Self::Get { id } | Self::SetFields { id, .. } => id.check(),
            Self::GetFields { id, names } => {
                id.check()?;
                if names.iter().count() > MAX_FIELDS {
                    return Err(Status::TooLarge);
                }
                if names.iter().all(|name| name.is_some()) {
                    Ok(())
                } else {
                    Err(Status::Malformed)
                }
            }
            Self::Resolve(objects) => objects.check(MAX_RESOLVE_WORDS),
            Self::Search { window, .. }
            | Self::SearchAt { window, .. }
            | Self::Count { window, .. } => {
                window.checked().map(drop).map_err(|_| Status::BadRectangle)
            }
            Self::Nearest { x, y, .. } => {
                Rect::point(*x, *y).map(drop).map_err(|_| Status::BadRectangle)
            }
            Self::Refine { of: Some(objects), .. } => objects.check(MAX_REFINE_IDS),
            Self::Stage { objects, .. } => objects.check(),
            Self::Refine { of: None, .. }
            | Self::CountRefined { .. }
            | Self::Drop
            | Self::Info
            | Self::Build { .. } => Ok(()),
        }
    }

    /// The command of a message, before its parts are checked.
    fn decode_parts(from: Encoded<'a>) -> Result<Self, Status> {
        let Encoded { op, flags, argument, value } = from;
        let plain = |command| match (flags, argument, value) {
            (0, 0, []) => Ok(command),
            _ => Err(Status::Malformed),
        };
        match op {
            op::CREATE => {
                let (bounds, rest) = take_rect(value)?;
                let kind = TreeKind::from_byte(flags).ok_or(Status::Malformed)?;
                let capacity = usize::try_from(argument).map_err(|_| Status::BadCapacity)?;
                nothing(rest)?;
                Ok(Self::Create(TreeSettings { kind, capacity, bounds }))
            }
            op::DROP => plain(Self::Drop),
            op::PUT => PutObject::decode(flags, argument, value).map(Self::Put),
            op::REFINE => Self::decode_refine(flags, argument, value),
            op::REMOVE | op::GET | op::SET_FIELDS | op::GET_FIELDS if flags & !HAS_NAME == 0 => {
                let (id, rest) = take_id(flags, argument, value)?;
                Self::decode_of(op, id, rest)
            }
            op::RESOLVE if flags == 0 => Ok(Self::Resolve(ReadObjects::of(argument, value))),
            op::SEARCH | op::COUNT if argument == 0 => {
                let (window, rest) = take_rect(value)?;
                let predicate = Predicate::from_byte(flags).ok_or(Status::Malformed)?;
                nothing(rest)?;
                Ok(match op {
                    op::SEARCH => Self::Search { window, predicate },
                    _ => Self::Count { window, predicate },
                })
            }
            op::SEARCH_AT => {
                let (window, rest) = take_rect(value)?;
                let predicate = Predicate::from_byte(flags & 3).ok_or(Status::Malformed)?;
                let record = rest.try_into().map_err(|_| Status::Malformed)?;
                let record = u32::from_le_bytes(record);
                let root = RootPlace { record, at: NodeRef::from_word(argument as u64) };
                Ok(Self::SearchAt { window, predicate, shard: flags >> 2, root })
            }
            op::NEAREST if flags == 0 => {
                let (x, rest) = f64::read_from_prefix(value).map_err(|_| Status::Malformed)?;
                let y = f64::read_from_bytes(rest).map_err(|_| Status::Malformed)?;
                let wanted = u32::try_from(argument).map_err(|_| Status::Malformed)?;
                Ok(Self::Nearest { x, y, wanted })
            }
            op::INFO => plain(Self::Info),
            op::STAGE if flags <= FIRST => {
                let objects = Objects::parse(value).ok_or(Status::Malformed)?;
                Ok(Self::Stage { load: argument as u64, first: flags == FIRST, objects })
            }
            op::BUILD if flags == 0 && value.is_empty() => {
                Ok(Self::Build { load: argument as u64 })
            }
            _ => Err(Status::Malformed),
        }
    }

    /// The command on one object that a value encodes, behind its id.
    fn decode_of(op: u8, id: ObjectId<'a>, value: &'a [u8]) -> Result<Self, Status> {
        match op {
            op::SET_FIELDS => {
                let fields = Fields::parse(value).ok_or(Status::Malformed)?;
                Ok(Self::SetFields { id, fields })
            }
            op::GET_FIELDS => {
                let names = Items::parse(value).ok_or(Status::Malformed)?;
                Ok(Self::GetFields { id, names })
            }
            _ => nothing(value).map(|()| match op {
                op::GET => Self::Get { id },
                _ => Self::Remove { id },
            }),
        }
    }

    /// The refined search that flags, argument and value encode. Its geometry is parsed
    /// where the search begins, once.
    fn decode_refine(flags: u8, argument: i64, value: &'a [u8]) -> Result<Self, Status> {
        let (refine, words) = take_sized(value)?;
        match (flags, argument, words) {
            (HAS_WORDS, ..) => {
                Ok(Self::Refine { refine, of: Some(ReadObjects::of(argument, words)) })
            }
            (0, 0, []) => Ok(Self::Refine { refine, of: None }),
            (COUNTS, 0, []) => Ok(Self::CountRefined { refine }),
            _ => Err(Status::Malformed),
        }
    }

    /// Puts an object at a place, with data and a geometry or without.
    pub fn put(
        id: impl Into<ObjectId<'a>>,
        rect: Rect,
        data: Option<&'a [u8]>,
        geometry: Option<Wkb<'a>>,
    ) -> Self {
        Self::Put(PutObject { data, geometry, ..PutObject::new(id, rect) })
    }
}

const fn with_op(op: u8, (flags, argument): (u8, i64)) -> (u8, u8, i64) {
    (op, flags, argument)
}

fn nothing(rest: &[u8]) -> Result<(), Status> {
    if rest.is_empty() { Ok(()) } else { Err(Status::Malformed) }
}

// A shard's number has six bits beside the predicate's two.
const _: () = assert!(MAX_SHARDS <= 64);
