//! The operations of every type of objects, and how an operation finds its object.

use super::content::Content;
use super::sought::{Seek, Sought};
use crate::elements::combine::MemberReader;
use crate::store::{DumpAt, Flush, Found, Now, ShardStats, Store};
use remora_arena::{Journal, Slot};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_protocol::message::Status;
use remora_protocol::{Reply, Request};
use std::any::Any;

/// The key that an operation is about, and when.
#[derive(Clone, Copy)]
pub(crate) struct On<'a> {
    pub key: &'a [u8],
    pub hash: KeyHash,
    pub now: Now,
}

/// Where a dump or a digest continues, or its beginning.
pub(crate) fn resume<T: Default + 'static>(at: &mut DumpAt) -> Box<T> {
    at.take().and_then(|at| at.downcast().ok()).unwrap_or_default()
}

/// The record of a key of this type; none if there is no such key. Eviction counts
/// that as a use.
///
/// # Errors
/// The key is of another type.
pub(crate) fn find<J: Journal>(
    store: &mut Store<J>,
    on: On<'_>,
    of: Kind,
) -> Result<Option<Found>, Status> {
    let Some(found) = store.lookup(on.key, on.hash, on.now) else { return Ok(None) };
    if store.kind(found).of_type() != of {
        return Err(Status::WrongType);
    }
    store.evictor.note_touched(found);
    Ok(Some(found))
}

/// The slot of the root record of a key of this type, whose objects never lie whole in their
/// records; none if there is no such key.
///
/// # Errors
/// The key is of another type.
pub(crate) fn find_root<J: Journal>(
    store: &mut Store<J>,
    on: On<'_>,
    kind: Kind,
) -> Result<Option<u32>, Status> {
    Ok(find(store, on, kind)?.map(|found| found.slot.slot))
}

/// A read that is answered in turns of the shard.
pub struct LongRead {
    pub(crate) type_id: Kind,
    /// The type's own.
    pub(crate) state: Box<dyn Any + Send>,
    /// The hash of the object's key.
    pub(crate) hash: KeyHash,
    /// Those of the other keys that it looks at.
    pub(crate) others: Vec<KeyHash>,
    /// The key, if it is no read, but changes it.
    pub(crate) key: Option<Box<[u8]>>,
    /// What it has taken from the key.
    pub(crate) taken: Taken,
    /// It is no read, but waits for this flush.
    pub(crate) flush: Option<Flush>,
    /// It lists elements for [`remora_protocol::Command::Elements`]: whether they have an order.
    pub(crate) lists_ordered: Option<bool>,
}

/// How a type lists the elements of its objects.
pub(crate) enum Listing {
    /// They have an order of their own: the long read of those of a range.
    Ordered(fn(i64, i64) -> Request<'static>),
    /// The long read of all of them.
    Unordered(Request<'static>),
}

/// What an operation in turns has taken from its key: elements, and their bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Taken {
    pub elements: u64,
    pub bytes: usize,
}

/// What a turn of an operation that changes its key has come to.
pub(crate) enum ChangeStep {
    /// It goes on in the next turn.
    More,
    /// It has ended; the reply has this number, and what was taken.
    Ended(i64),
    /// This encoded command takes something. It is carried out in the same turn, and what it gives is
    /// told; the operation goes on.
    Take(Vec<u8>),
    /// This encoded command is the change. If it succeeds, the operation is a read from now on, with
    /// this state.
    Read { command: Vec<u8>, state: Box<dyn Any + Send> },
    /// This encoded command is the change: it is carried out in the same turn. If that succeeds, the
    /// reply has this number.
    Change { command: Vec<u8>, number: i64 },
}

impl LongRead {
    /// A read of this type, of a key that the shard knows.
    pub(crate) fn new(type_id: Kind, state: Box<dyn Any + Send>) -> Self {
        Self {
            type_id,
            state,
            hash: KeyHash(0),
            others: Vec::new(),
            key: None,
            taken: Taken::default(),
            flush: None,
            lists_ordered: None,
        }
    }

    /// The state that waits for a flush, for all types.
    pub(crate) fn of_flush(flush: Flush) -> Self {
        Self { flush: Some(flush), ..Self::new(Kind(0), Box::new(())) }
    }
}

impl std::fmt::Debug for LongRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LongRead").field("type_id", &self.type_id).finish_non_exhaustive()
    }
}

/// The outcome of one turn of a long read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    /// There is nothing more.
    pub ended: bool,
    /// The reply's number, as far as it is known.
    pub number: i64,
    /// The number counts the whole reply from the first turn on, and found results are never
    /// withdrawn.
    pub is_counted: bool,
    /// The results are the reply's value; otherwise it has none.
    pub gives_value: bool,
    /// Something may have been found twice: [`crate::Shard::tidy`] takes it away.
    pub has_doubles: bool,
}

/// A part of what a key holds, as dumps have it.
#[derive(Clone, Copy)]
pub(crate) enum DumpedPart<'a> {
    /// The value of a record that holds the whole object.
    Whole(&'a [u8]),
    /// [`Type::head`].
    Head(&'a [u8]),
    /// [`Type::dump`].
    Piece(&'a [u8]),
}

/// One type of objects.
pub(crate) trait Type<J: Journal>: Send {
    /// Its number: the kind of its root records.
    fn id(&self) -> Kind;

    /// Executes one operation, a long read to its end.
    fn execute<'s>(
        &'s mut self,
        store: &'s mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s>;

    /// Begins an operation that is answered in turns: a read ([`Type::read_turn`]), or one that
    /// changes its key ([`Type::change_turn`]).
    ///
    /// # Errors
    /// The status to reply with.
    fn begin_read(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Result<LongRead, Status>;

    /// Continues for one turn; appends its results.
    ///
    /// # Errors
    /// The status of the reply: the object was removed meanwhile.
    fn read_turn(
        &self,
        store: &Store<J>,
        read: &mut LongRead,
        found: &mut Vec<u8>,
        now: Now,
    ) -> Result<Turn, Status>;

    /// Continues, for one turn, an operation that changes its key.
    ///
    /// # Errors
    /// The status to reply with; nothing is changed.
    fn change_turn(
        &mut self,
        _store: &mut Store<J>,
        _on: On<'_>,
        _read: &mut LongRead,
    ) -> Result<ChangeStep, Status> {
        Err(Status::Malformed)
    }

    /// How the elements of an object are listed; none if this type's objects have none that can be
    /// sorted. The long read's number is that of the elements, its results are [`remora_protocol::Items`].
    fn listing(&self) -> Option<Listing> {
        None
    }

    /// How operations of other types read the members of an object, with their scores; none if this
    /// type's objects have no members.
    fn scored(&self) -> Option<MemberReader<J, f64>> {
        None
    }

    /// How a plan finds something in an object; none if it cannot.
    fn seek(&self, _sought: &Sought<'_>) -> Option<Box<dyn Seek>> {
        None
    }

    /// Removes duplicates from all results of a long read.
    fn tidy(&self, _found: &mut Vec<u8>) {}

    /// Leaves the first `most` of all the parts that a long read has found; false
    /// if there were fewer, or if no caller limits such a read.
    fn cut(&self, _found: &mut Vec<u8>, _most: usize) -> bool {
        false
    }

    /// Releases some memory of an object whose root record, in this slot, is dead. Returns true
    /// once none is left.
    fn release(&mut self, store: &mut Store<J>, root: u32, now: Now) -> bool;

    /// Bytes of the object with this root record besides the record, of the arena and of the heap:
    /// its weight for eviction. Its cost does not grow with the object.
    fn bytes_of(&self, store: &Store<J>, root: u32) -> u64;

    /// Gives up operations that were not continued for too long. Not called while the shard
    /// applies a log.
    fn tick(&mut self, _store: &mut Store<J>) {}

    /// Removes a bounded number of parts that have expired. Returns true if the next turn is to
    /// continue. Not called while the shard applies a log.
    fn sweep(&mut self, _store: &mut Store<J>, _now: Now) -> bool {
        false
    }

    /// A request for half as much, if this one was refused as too much for one step and may take less.
    fn half_of<'c>(&self, _request: Request<'c>) -> Option<Request<'c>> {
        None
    }

    /// Continues with what the shard builds of its own, which no log has: an index of an object. It is
    /// called on copies too, in turns while `wants_tending` of the store. Returns true if there is
    /// more to do.
    fn tend(&mut self, _store: &mut Store<J>, _now: Now) -> bool {
        false
    }

    /// Adds some more of an object's visible content; its place and its order do not count. `slot`
    /// is that of the record that the key names. Returns true once nothing is left.
    fn digest(&self, store: &Store<J>, slot: u32, content: &mut Content) -> bool;

    /// How an object is kept, whole in its record or with parts, in the words of Redis's
    /// OBJECT ENCODING as far as it has one.
    fn encoding(&self, is_whole: bool) -> &'static str {
        if is_whole { "listpack" } else { "hashtable" }
    }

    /// As [`Type::encoding`], of an object that lies whole in its record, whose value is this.
    fn whole_encoding(&self, _value: &[u8]) -> &'static str {
        self.encoding(true)
    }

    /// Appends the content from which [`Type::begin_load`] makes an empty object like this one, if
    /// the type's objects have parts.
    fn head(&self, _store: &Store<J>, _root: u32, _head: &mut Vec<u8>) {}

    /// Appends the next piece of all that an object of parts holds: about
    /// `DUMP_PIECE_PARTS` parts, `DUMP_PIECE_BYTES` bytes, which may be none. True once there is no
    /// more. The object may change between two pieces: a part that is there from the first to the
    /// last is in at least one of them, as it is then. The number of pieces is bounded by the
    /// object at the first one.
    fn dump(&self, _store: &Store<J>, _root: u32, _at: &mut DumpAt, _piece: &mut Vec<u8>) -> bool {
        true
    }

    /// Whether something is under way in this object that entries of the log end, and that a dump
    /// does not have.
    fn is_unfinished(&self, _root: u32) -> bool {
        false
    }

    /// Makes an empty object of parts that no key leads to, to be filled; its root record is
    /// pending. [`Type::release`] frees it.
    ///
    /// # Errors
    /// The status to reply with; nothing is left of it.
    fn begin_load(
        &mut self,
        _store: &mut Store<J>,
        _on: On<'_>,
        _head: &[u8],
    ) -> Result<Slot, Status> {
        Err(Status::Malformed)
    }

    /// Fills a piece into such an object. It is logged afterwards. In a snapshot the piece is what
    /// the object held at this point of the stream: a part that is there already gets what the
    /// piece has of it.
    ///
    /// # Errors
    /// Returns the status of the reply; a part of the piece may be filled in. The same piece may
    /// come again: a part that is there already stays one part.
    fn load(
        &mut self,
        _store: &mut Store<J>,
        _on: On<'_>,
        _root: u32,
        _piece: &[u8],
    ) -> Result<(), Status> {
        Err(Status::Malformed)
    }

    /// Hands over requests as clients make them, which give this part of an object to a key that
    /// had the parts before it. False if the type has no requests for it: its objects cannot be
    /// restored into a server that runs.
    fn requests(&self, _part: DumpedPart<'_>, _each: &mut dyn FnMut(Request<'_>)) -> bool {
        false
    }

    /// Whether a small object may be one record. What it holds is checked when it is read.
    fn has_whole(&self) -> bool {
        false
    }

    /// The kind and value of the record for a small object that came from elsewhere, with room for the hints
    /// of its links, and hints of what is there already; `None` if it has no links.
    fn with_hints(&self, _store: &Store<J>, _on: On<'_>, _value: &[u8]) -> Option<(Kind, Vec<u8>)> {
        None
    }

    /// Compares an object's parts. Returns the bytes of its slots, without its root record's.
    ///
    /// # Errors
    /// A description of the first mismatch.
    fn audit(&self, store: &Store<J>) -> Result<u64, String>;

    /// Bytes on the heap for objects, without those reserved for stages. Only what changes through
    /// `&mut self` counts here: it is asked again only after that. Called often: its cost does not
    /// grow with the number of objects.
    fn heap_bytes(&mut self) -> u64 {
        0
    }

    /// Bytes on the heap for reads in turns, which may end without a call of the type: they are asked
    /// at each count.
    fn kept_bytes(&self) -> u64 {
        0
    }

    /// Adds its counts.
    fn count(&self, _stats: &mut ShardStats) {}
}

/// Every type but strings, as a shard has them.
pub(crate) struct Types<J: Journal>(Vec<Registered<J>>);

struct Registered<J: Journal> {
    id: Kind,
    of: Box<dyn Type<J>>,
    /// Its bytes on the heap at the last count, if it has not been changed since.
    heap_bytes: Option<u64>,
}

impl<J: Journal> Types<J> {
    /// These.
    pub fn new(all: Vec<Box<dyn Type<J>>>) -> Self {
        let registered = |of: Box<dyn Type<J>>| Registered { id: of.id(), of, heap_bytes: None };
        Self(all.into_iter().map(registered).collect())
    }

    /// That of this number.
    pub fn get(&self, id: Kind) -> Option<&dyn Type<J>> {
        self.0.iter().find(|of| of.id == id).map(|of| &*of.of)
    }

    /// The same, for a change.
    pub fn get_mut(&mut self, id: Kind) -> Option<&mut (dyn Type<J> + 'static)> {
        let found = self.0.iter_mut().find(|of| of.id == id)?;
        found.heap_bytes = None;
        Some(&mut *found.of)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Type<J>> {
        self.0.iter().map(|of| &*of.of)
    }

    /// The same, for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut (dyn Type<J> + 'static)> {
        self.0.iter_mut().map(|of| {
            of.heap_bytes = None;
            &mut *of.of
        })
    }

    /// Bytes that they keep on the heap. For objects only those are asked that were changed.
    pub fn heap_bytes(&mut self) -> u64 {
        let count = |of: &mut Registered<J>| {
            let of_objects = *of.heap_bytes.get_or_insert_with(|| of.of.heap_bytes());
            of_objects + of.of.kept_bytes()
        };
        self.0.iter_mut().map(count).sum()
    }
}

/// Executes a read in turns to its end; its results go into `found`, in the place of what is there.
pub(crate) fn whole_read<J: Journal>(
    of: &mut impl Type<J>,
    store: &mut Store<J>,
    (on, request): (On<'_>, Request<'_>),
    found: &mut Vec<u8>,
) -> Reply<'static> {
    found.clear();
    let mut read = match of.begin_read(store, on, request) {
        Ok(read) => read,
        Err(status) => return Reply::status(status),
    };
    // Bounded by the size of the object, and by the number that is asked for.
    loop {
        match of.read_turn(store, &mut read, found, on.now) {
            Ok(turn) if turn.ended => return Reply::number(turn.number),
            Ok(_) => {}
            Err(status) => return Reply::status(status),
        }
    }
}
