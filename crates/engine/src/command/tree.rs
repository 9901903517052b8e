//! Commands on trees of places, and their encoding. A tree has a name, which
//! is routed as a key is: a whole tree lies in one shard.
//!
//! ```text
//! command   flags         argument   value
//! create    kind          capacity   bounds 32
//! put       1: data       id         rectangle 32 | data
//! put       2: geometry   id         rectangle 32 | its length 4 | WKB | data
//!           3: both
//! remove    0             id         -
//! get       0             id         -
//! search    predicate     0          window 32
//! search    predicate |   header     window 32; of a tree of another shard
//!           shard << 2
//! refine    0             0          the predicate's length 4 | predicate
//! refine    1: of objects 0          the same | their ids, 8 each
//! count     predicate     0          window 32
//! nearest   0             how many   x 8 | y 8
//! stage     1: the first  load       objects: rectangle 32 | id 8, each
//! build     0             load       -
//! others    0             0          -
//! ```
//! What is decoded holds checked rectangles only.

use super::refined::{COUNTS, HAS_IDS, decode_refine, push_sized, take_sized};
use remora_geometry::{Shape, ShapeError};
use remora_index::rtree::Predicate;
use remora_layout::limits::{
    MAX_NODE_ENTRIES, MAX_OBJECT_BYTES, MAX_SHARDS, MIN_NODE_ENTRIES, NODE_ENTRIES,
};
use remora_layout::message::{Op, Status};
use remora_layout::node::{ENTRY_BYTES, Entry, NodeRef};
use remora_layout::rect::Rect;
use remora_layout::tree::TreeKind;
use zerocopy::{FromBytes, IntoBytes};

/// What a tree is to be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TreeSettings {
    /// How it is written (C4).
    pub kind: TreeKind,
    /// Entries that a node has room for (C7).
    pub capacity: usize,
    /// Where most objects lie: what a Hilbert R-tree's curve fills. Others may
    /// lie outside.
    pub bounds: Rect,
}

impl Default for TreeSettings {
    /// An R*-tree with the capacity of the paper's trees; the unit square.
    fn default() -> Self {
        let bounds = Rect { min_x: 0.0, max_x: 1.0, min_y: 0.0, max_y: 1.0 };
        Self { kind: TreeKind::default(), capacity: NODE_ENTRIES, bounds }
    }
}

/// Objects as they stand in a message: rectangle and id, 40 bytes each.
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

    /// Ids and rectangles, in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = (u64, Rect)> + use<'a> {
        let (chunks, _) = self.0.as_chunks::<ENTRY_BYTES>();
        chunks.iter().map(|bytes| {
            let entry = Entry::from_bytes(bytes);
            (entry.word, entry.rect)
        })
    }
}

/// One request about a tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TreeCommand<'a> {
    /// Makes an empty tree; `NotDone` if there is one of that name.
    Create(TreeSettings),
    /// Removes the tree; `number` is 1 if it was there.
    Drop,
    /// Adds an object, or moves it; a tree that is not there is made. `number`
    /// is 1 if the object is new.
    Put {
        /// Its id.
        id: u64,
        /// Where it is.
        rect: Rect,
        /// Its bytes; `None` leaves those that it has.
        data: Option<&'a [u8]>,
        /// Its geometry in WKB, whose bounds are `rect`; without one it is its
        /// rectangle, whatever it was before.
        geometry: Option<&'a [u8]>,
    },
    /// Removes an object; `number` is 1 if it was there.
    Remove {
        /// Its id.
        id: u64,
    },
    /// The value is the object's rectangle, and, as a put has them, its
    /// geometry and its bytes behind it; `number` is as a put's flags.
    Get {
        /// Its id.
        id: u64,
    },
    /// The objects in a window, in no order, 40 bytes each. Several replies;
    /// `number` of the last is the number of nodes visited.
    Search {
        /// The window.
        window: Rect,
        /// What an object has to do with it.
        predicate: Predicate,
    },
    /// As [`TreeCommand::Search`], of a tree of another shard of the server:
    /// any of its threads can read it. `AskOwner` if reading does not conclude.
    SearchAt {
        /// The window.
        window: Rect,
        /// What an object has to do with it.
        predicate: Predicate,
        /// The shard whose tree it is.
        shard: u8,
        /// Where its header lies.
        at: NodeRef,
    },
    /// The objects whose geometries fit, as [`TreeCommand::Search`] gives them;
    /// `number` of the last reply holds [`Refined`]. With ids: of these objects
    /// those that are there, a [`remora_layout::object::Verdict`] each.
    Refine {
        /// A [`remora_geometry::Refine`]'s bytes.
        refine: &'a [u8],
        /// Which objects; 8 bytes each, at most `MAX_REFINE_IDS` of them.
        ids: Option<&'a [u8]>,
    },
    /// `number` is the number of objects whose geometries fit.
    CountRefined {
        /// A [`remora_geometry::Refine`]'s bytes.
        refine: &'a [u8],
    },
    /// `number` is the number of objects in a window.
    Count {
        /// The window.
        window: Rect,
        /// What an object has to do with it.
        predicate: Predicate,
    },
    /// The objects nearest to a point, 40 bytes each, the nearest first.
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
    /// Keeps objects for a tree that is to be built; `number` is how many are
    /// kept. `OtherLoad` if another load has begun meanwhile.
    Stage {
        /// Which load: a number that no other client uses.
        load: u64,
        /// Whether this one begins; what another one has left is dropped then.
        first: bool,
        /// The objects.
        objects: Objects<'a>,
    },
    /// Builds an empty tree of what is kept; `number` is its objects.
    Build {
        /// The load whose objects are kept.
        load: u64,
    },
}

/// Flag of a put, and of what an object is: it has data.
pub const HAS_DATA: u8 = 1;
/// Flag of a put, and of what an object is: it has a geometry.
pub const HAS_GEOMETRY: u8 = 2;
/// Flag of a part of a load: it is the first.
const FIRST: u8 = 1;

/// A command about a tree as it stands in a message, checked. Made by
/// [`TreeCommand::request`], or decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeRequest<'a> {
    pub(super) op: Op,
    pub(super) flags: u8,
    pub(super) argument: i64,
    pub(super) value: &'a [u8],
}

impl<'a> TreeRequest<'a> {
    /// Checks the parts of a message. The error is the status to reply with.
    pub(super) fn check(op: Op, flags: u8, argument: i64, value: &'a [u8]) -> Result<Self, Status> {
        TreeCommand::decode(op, flags, argument, value)?;
        Ok(Self { op, flags, argument, value })
    }

    /// What is asked.
    pub fn command(self) -> TreeCommand<'a> {
        let Self { op, flags, argument, value } = self;
        TreeCommand::decode(op, flags, argument, value).expect("checked when it was made")
    }

    /// Whether it may change anything.
    pub fn is_write(&self) -> bool {
        matches!(
            self.op,
            Op::TreeCreate
                | Op::TreeDrop
                | Op::TreePut
                | Op::TreeRemove
                | Op::TreeStage
                | Op::TreeBuild
        )
    }

    /// Whether it is answered in slices.
    pub fn is_search(&self) -> bool {
        matches!(self.op, Op::TreeSearch | Op::TreeSearchAt | Op::TreeRefine | Op::TreeCount)
    }
}

impl<'a> TreeCommand<'a> {
    /// This command as it stands in a message; `scratch` is overwritten.
    ///
    /// # Errors
    /// Its numbers make no rectangle, no point, or no tree; or the data is too
    /// long: the status that the server would reply with.
    pub fn request<'s>(&self, scratch: &'s mut Vec<u8>) -> Result<TreeRequest<'s>, Status> {
        scratch.clear();
        let (op, flags, argument) = match *self {
            Self::Create(TreeSettings { kind, capacity, bounds }) => {
                scratch.extend_from_slice(bounds.as_bytes());
                (Op::TreeCreate, kind as u8, capacity as i64)
            }
            Self::Drop => (Op::TreeDrop, 0, 0),
            Self::Put { id, rect, data, geometry } => {
                scratch.extend_from_slice(rect.as_bytes());
                let mut flags = 0;
                if let Some(geometry) = geometry {
                    push_sized(scratch, geometry);
                    flags |= HAS_GEOMETRY;
                }
                if let Some(data) = data {
                    scratch.extend_from_slice(data);
                    flags |= HAS_DATA;
                }
                (Op::TreePut, flags, id as i64)
            }
            Self::Refine { refine, ids } => {
                push_sized(scratch, refine);
                scratch.extend_from_slice(ids.unwrap_or_default());
                (Op::TreeRefine, if ids.is_some() { HAS_IDS } else { 0 }, 0)
            }
            Self::CountRefined { refine } => {
                push_sized(scratch, refine);
                (Op::TreeRefine, COUNTS, 0)
            }
            Self::Remove { id } => (Op::TreeRemove, 0, id as i64),
            Self::Get { id } => (Op::TreeGet, 0, id as i64),
            Self::Search { window, predicate } => {
                scratch.extend_from_slice(window.as_bytes());
                (Op::TreeSearch, predicate as u8, 0)
            }
            Self::SearchAt { window, predicate, shard, at } => {
                scratch.extend_from_slice(window.as_bytes());
                (Op::TreeSearchAt, predicate as u8 | shard << 2, at.to_word() as i64)
            }
            Self::Count { window, predicate } => {
                scratch.extend_from_slice(window.as_bytes());
                (Op::TreeCount, predicate as u8, 0)
            }
            Self::Nearest { x, y, wanted } => {
                scratch.extend_from_slice([x, y].as_bytes());
                (Op::TreeNearest, 0, wanted.into())
            }
            Self::Info => (Op::TreeInfo, 0, 0),
            Self::Stage { load, first, objects } => {
                scratch.extend_from_slice(objects.0);
                (Op::TreeStage, if first { FIRST } else { 0 }, load as i64)
            }
            Self::Build { load } => (Op::TreeBuild, 0, load as i64),
        };
        TreeRequest::check(op, flags, argument, scratch)
    }

    /// The command that flags, argument and value encode. The error is the
    /// status to reply with.
    fn decode(op: Op, flags: u8, argument: i64, value: &'a [u8]) -> Result<Self, Status> {
        let plain = |command| match (flags, argument, value) {
            (0, 0, []) => Ok(command),
            _ => Err(Status::Malformed),
        };
        match op {
            Op::TreeCreate => {
                let (bounds, rest) = take_rect(value)?;
                let kind = TreeKind::from_byte(flags).ok_or(Status::Malformed)?;
                let limits = MIN_NODE_ENTRIES..=MAX_NODE_ENTRIES;
                let capacity = usize::try_from(argument).ok().filter(|c| limits.contains(c));
                let capacity = capacity.ok_or(Status::BadCapacity)?;
                nothing(rest)?;
                Ok(Self::Create(TreeSettings { kind, capacity, bounds }))
            }
            Op::TreeDrop => plain(Self::Drop),
            Op::TreePut if flags <= HAS_DATA | HAS_GEOMETRY => {
                let (rect, mut rest) = take_rect(value)?;
                let mut geometry = None;
                if flags & HAS_GEOMETRY != 0 {
                    let (wkb, after) = take_sized(rest)?;
                    match Shape::bounds_of_wkb(wkb) {
                        Ok(bounds) if bounds == rect => {}
                        Err(ShapeError::TooLong) => return Err(Status::TooLarge),
                        Ok(_) | Err(_) => return Err(Status::BadGeometry),
                    }
                    (geometry, rest) = (Some(wkb), after);
                }
                let data = match flags & HAS_DATA {
                    HAS_DATA if rest.len() > MAX_OBJECT_BYTES => return Err(Status::TooLarge),
                    HAS_DATA => Some(rest),
                    _ if rest.is_empty() => None,
                    _ => return Err(Status::Malformed),
                };
                Ok(Self::Put { id: argument as u64, rect, data, geometry })
            }
            Op::TreeRefine if argument == 0 => decode_refine(flags, value),
            Op::TreeRemove | Op::TreeGet if flags == 0 && value.is_empty() => {
                let id = argument as u64;
                Ok(if op == Op::TreeGet { Self::Get { id } } else { Self::Remove { id } })
            }
            Op::TreeSearch | Op::TreeCount if argument == 0 => {
                let (window, rest) = take_rect(value)?;
                let predicate = Predicate::from_byte(flags).ok_or(Status::Malformed)?;
                nothing(rest)?;
                Ok(match op {
                    Op::TreeSearch => Self::Search { window, predicate },
                    _ => Self::Count { window, predicate },
                })
            }
            Op::TreeSearchAt => {
                let (window, rest) = take_rect(value)?;
                let predicate = Predicate::from_byte(flags & 3).ok_or(Status::Malformed)?;
                nothing(rest)?;
                let at = NodeRef::from_word(argument as u64);
                Ok(Self::SearchAt { window, predicate, shard: flags >> 2, at })
            }
            Op::TreeNearest if flags == 0 => {
                let (x, rest) = f64::read_from_prefix(value).map_err(|_| Status::Malformed)?;
                let y = f64::read_from_bytes(rest).map_err(|_| Status::Malformed)?;
                let wanted = u32::try_from(argument).map_err(|_| Status::Malformed)?;
                Rect::point(x, y).map_err(|_| Status::BadRectangle)?;
                Ok(Self::Nearest { x, y, wanted })
            }
            Op::TreeInfo => plain(Self::Info),
            Op::TreeStage if flags <= FIRST => {
                let objects = Objects::parse(value).ok_or(Status::Malformed)?;
                if objects.iter().any(|(_, rect)| rect.checked().is_err()) {
                    return Err(Status::BadRectangle);
                }
                Ok(Self::Stage { load: argument as u64, first: flags == FIRST, objects })
            }
            Op::TreeBuild if flags == 0 && value.is_empty() => {
                Ok(Self::Build { load: argument as u64 })
            }
            _ => Err(Status::Malformed),
        }
    }
}

fn take_rect(value: &[u8]) -> Result<(Rect, &[u8]), Status> {
    let (rect, rest) = Rect::read_from_prefix(value).map_err(|_| Status::Malformed)?;
    Ok((rect.checked().map_err(|_| Status::BadRectangle)?, rest))
}

fn nothing(rest: &[u8]) -> Result<(), Status> {
    if rest.is_empty() { Ok(()) } else { Err(Status::Malformed) }
}

// A shard's number has six bits beside the predicate's two.
const _: () = assert!(MAX_SHARDS <= 64);
