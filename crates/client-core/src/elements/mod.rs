//! Objects with named elements, as fields of a hash or members of a set: the client asks for changes,
//! and reads elements by either route.
//!
//! Invariants: an element counts only with its object. A small object is one record, which its checksum
//! validates. A part of a large object counts only if the same batch of READs finds the root record
//! live, not expired, and of the generation under which the client looked for the part. That an element
//! of a large object is absent is the owner's word.

mod read;

use crate::asker::Answer;
use crate::choose::{Route, key_class};
use crate::core::Core;
use crate::counts::Counts;
use crate::directory::Directory;
use crate::error::Error;
use crate::found::{Found, FoundAt, Got, Reading};
use crate::path::{Path, ServedBy};
use remora_index::hash::ObjectRef;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_KEPT_RECORDS, MAX_KEY_BYTES};
use remora_layout::packed::Field;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{Reject, Verified};
use remora_protocol::message::Status;
use remora_protocol::{Command, Items, Request};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;

/// What a record that holds a whole object says of an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InWhole<'v> {
    /// This is its value.
    Value(&'v [u8]),
    /// It is not there.
    Absent,
    /// Only the owner knows.
    Unknown,
}

/// How the records of a type hold its elements.
pub trait Readable: Debug + 'static {
    /// The kind of its root records.
    const KIND: Kind;
    /// The kind of its parts.
    const PART: Kind;
    /// Whether a part has the name of its element, so that a walk finds it. Otherwise parts are read by
    /// pointers that came with answers.
    const WALKS: bool;
    /// Where the table of the parts begins in the state of a root record.
    const PARTS_AT: usize = 0;

    /// Looks an element up in the value of a record that holds a whole object.
    fn in_whole<'v>(value: &'v [u8], name: &[u8]) -> InWhole<'v>;

    /// Checks the bytes of a part that a pointer to an element led to, and gives the element's value.
    ///
    /// # Errors
    /// Why they do not hold the element.
    fn in_part<'b>(
        object: &ObjectRef,
        bytes: &'b [u8],
        pointer: RemotePointer,
        name: &[u8],
    ) -> Result<Verified<'b>, Reject> {
        object.verify_part(bytes, pointer, Self::PART, name)
    }
}

/// How the owner is asked for an element by its name.
pub trait Askable: Readable {
    /// Asks for an element.
    fn request(name: &[u8]) -> Request<'_>;

    /// Where the value of an element is in a reply to that; none if it is not there.
    fn in_reply(status: Status, value: Option<(usize, usize)>) -> Option<(usize, usize)>;

    /// Asks for a list of one element, in several replies; none if its value always fits one.
    fn in_parts(_names: Items<'_>) -> Option<Request<'_>> {
        None
    }
}

/// Events of the READs of an object's elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ObjectEvents {
    /// An element of an object with parts was read by READs.
    pub part_read: u64,
    /// A part was no longer at its known location.
    pub part_gone: u64,
    /// The object was no longer at its known location.
    pub root_gone: u64,
    /// The object may have expired.
    pub expired: u64,
    /// An object that lay whole in its record now has parts.
    pub grown: u64,
}

/// A session's view of one object: where it lies, and its elements, as far as the server told or READs
/// found. All of it is a hint.
#[derive(Debug)]
pub struct OpenObject<E: Readable> {
    key: Box<[u8]>,
    hash: KeyHash,
    shard: usize,
    held: Held,
    /// Whether it lay whole in its record when its location was last known.
    was_whole: bool,
    events: ObjectEvents,
    of: PhantomData<fn() -> E>,
}

/// The known location of an object.
#[derive(Debug)]
pub(crate) enum Held {
    /// Nothing.
    Unknown,
    /// Whole in this record.
    Whole(RemotePointer),
    /// It has parts; where some of its elements lie, by the hashes of their names.
    Parts { object: Box<ObjectRef>, elements: BTreeMap<u64, RemotePointer> },
}

impl<E: Readable> OpenObject<E> {
    /// The object's key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// What has happened to the reads of its elements.
    pub fn events(&self) -> ObjectEvents {
        self.events
    }

    /// Learns where it lies.
    fn hold(&mut self, held: Held) {
        let is_whole = matches!(held, Held::Whole(_));
        self.events.grown += u64::from(self.was_whole && !is_whole);
        (self.held, self.was_whole) = (held, is_whole);
    }

    /// Whether one READ is enough for this element, as far as the view knows.
    fn knows(&self, name: &[u8]) -> bool {
        match &self.held {
            Held::Unknown => false,
            Held::Whole(_) => true,
            Held::Parts { object, elements } => elements.contains_key(&object.hash(name).0),
        }
    }

    /// What the session expects of a READ of this element.
    pub(crate) fn key_class(&self, name: &[u8]) -> usize {
        if self.knows(name) { key_class::CACHED } else { key_class::COLD }
    }

    /// The shard of its key.
    pub(crate) const fn shard(&self) -> usize {
        self.shard
    }

    /// Whether it is known to have parts.
    pub(crate) const fn has_parts(&self) -> bool {
        matches!(self.held, Held::Parts { .. })
    }

    /// Whether the object lies whole in a record whose location is known.
    pub(crate) const fn is_whole(&self) -> bool {
        matches!(self.held, Held::Whole(_))
    }

    /// The known object with parts, and the number of its region.
    pub(crate) fn parts(&self) -> Option<(&ObjectRef, u32)> {
        match &self.held {
            Held::Parts { object, .. } => Some((object, self.shard as u32)),
            _ => None,
        }
    }

    /// Where an element of the known object with parts lies.
    pub(crate) fn part(&self, name: &[u8]) -> Option<RemotePointer> {
        match &self.held {
            Held::Parts { object, elements } => elements.get(&object.hash(name).0).copied(),
            _ => None,
        }
    }

    /// Forgets where it lies.
    pub(crate) fn forget(&mut self) {
        self.held = Held::Unknown;
    }

    /// Keeps where an element of the present object with parts lies. If there are too many, it discards
    /// all and starts again, as with the records of trees.
    pub(crate) fn keep(&mut self, name: &[u8], pointer: RemotePointer) {
        if let Held::Parts { object, elements } = &mut self.held {
            if elements.len() == MAX_KEPT_RECORDS {
                elements.clear();
            }
            elements.insert(object.hash(name).0, pointer);
        }
    }

    /// A view of the object that a key holds, or will hold. Nothing is asked.
    pub(crate) fn new(directory: &Directory, key: &[u8]) -> Result<Self, Error> {
        let (hash, shard) = directory.locate(key)?;
        let (held, events) = (Held::Unknown, ObjectEvents::default());
        Ok(Self { key: key.into(), hash, shard, held, was_whole: false, events, of: PhantomData })
    }

    /// The value of an element: by READs, or as `ask` asks for it after reading has cost something.
    #[inline(always)]
    pub(crate) fn get_by<'c>(
        &mut self,
        core: &'c mut Core,
        (name, path): (&[u8], Path),
        ask: impl FnOnce(&mut Self, &mut Core, Counts) -> Result<Found, Error>,
    ) -> Result<Got<'c>, Error> {
        core.asker.ready()?;
        let cost = Counts { operations: 1, ..Counts::default() };
        if path == Path::Ask {
            let timing = core.router.begin_given(&mut core.asker.endpoint, Route::Ask)?;
            let found = ask(self, core, cost)?;
            core.router.end_given(&mut core.asker.endpoint, timing, found.served_by)?;
            return Ok(core.got(found));
        }
        if !core.asker.may_read(self.shard) {
            let found = ask(self, core, Counts { behind_writes: 1, ..cost })?;
            return Ok(core.got(found));
        }
        let class = self.key_class(name);
        let timing = core.router.begin_key(&mut core.asker.endpoint, path, class)?;
        let found = match timing.route {
            Route::Ask => ask(self, core, cost)?,
            Route::Read => {
                let mut cost = cost;
                match self.element_read(core, name, &mut cost)? {
                    Some(found) => found,
                    None => ask(self, core, cost)?,
                }
            }
        };
        let Core { router, asker, .. } = &mut *core;
        router.end_key(&mut asker.endpoint, timing, class, found.served_by, &found.counts)?;
        Ok(core.got(found))
    }

    /// An element by READs; none if only the owner knows.
    fn element_read(
        &mut self,
        core: &mut Core,
        name: &[u8],
        cost: &mut Counts,
    ) -> Result<Option<Found>, Error> {
        let Core { asker, directory, .. } = &mut *core;
        let reading = self.read((&mut asker.endpoint, directory), Some(name), cost)?;
        let (at, retries) = match reading {
            Reading::Value { from, bytes, retries } => (FoundAt::Landed { from, bytes }, retries),
            Reading::Absent { retries } => (FoundAt::Reply(None), retries),
            Reading::NoPointer | Reading::Ask => return Ok(None),
        };
        asker.endpoint.staleness.conclude_reads();
        cost.read = 1;
        core.meter.add(cost);
        let served_by = ServedBy::read_after(retries + cost.stale as u32);
        Ok(Some(Found { at, served_by, counts: *cost }))
    }

    /// Asks for a list, in as many replies as it takes.
    pub(crate) fn ask_list(
        &self,
        core: &mut Core,
        request: Request<'_>,
    ) -> Result<(Vec<u8>, Counts), Error> {
        core.ask_list(self.shard, &self.key, request)
    }

    pub(crate) fn ask(&self, core: &mut Core, request: Request<'_>) -> Result<Answer, Error> {
        core.ask(&Command::Of { key: &self.key, request })
    }
}

impl<E: Askable> OpenObject<E> {
    /// The value of an element.
    #[inline(always)]
    pub(crate) fn get<'c>(
        &mut self,
        core: &'c mut Core,
        name: &[u8],
        path: Path,
    ) -> Result<Got<'c>, Error> {
        self.get_by(core, (name, path), |open, core, cost| open.element_asked(core, name, cost))
    }

    /// Asks for an element, after reading has cost `cost`, and learns where it lies.
    fn element_asked(
        &mut self,
        core: &mut Core,
        name: &[u8],
        cost: Counts,
    ) -> Result<Found, Error> {
        let wasted = Counts { operations: 0, ..cost };
        core.meter.add(&wasted);
        let served_by = ServedBy::asked_after(cost.round_trips);
        let request = E::request(name);
        let (value, mut counts) = match core.ask(&Command::Of { key: &self.key, request }) {
            Ok(answer) => {
                self.learn(&core.directory, name, &answer);
                (E::in_reply(answer.status, answer.value), answer.counts)
            }
            // It does not fit a frame: the server sends it in parts, as a list of one.
            Err(error @ Error::Refused(Status::NeedsBuffer)) => {
                let names = encoded([name]);
                let names = Items::parse(&names).expect("one name");
                let Some(request) = E::in_parts(names) else { return Err(error) };
                let (list, counts) = self.ask_list(core, request)?;
                let item = Items::split(&list).and_then(|(item, _)| item);
                let range = item.map(|item| (0, item.len()));
                core.asker.endpoint.reply = item.unwrap_or_default().to_vec();
                (range, counts)
            }
            Err(error) => return Err(error),
        };
        counts.add(&wasted);
        Ok(Found { at: FoundAt::Reply(value), served_by, counts })
    }

    /// Takes from the answer about an element where the object lies.
    fn learn(&mut self, directory: &Directory, name: &[u8], answer: &Answer) {
        let (pointer, root) = (answer.pointer, answer.number as u64);
        let has_pointer = matches!(answer.status, Status::Ok | Status::NotFound);
        if !has_pointer || !directory.is_readable(pointer, self.shard) {
            return;
        }
        if root == 0 {
            return self.hold(Held::Whole(pointer));
        }
        let is_known = matches!(&self.held, Held::Parts { object, .. } if object.is_root(root));
        if !is_known {
            let table = &directory.shards[self.shard].table;
            let object = Box::new(ObjectRef::of_root(table, directory.hash_seed, root));
            self.hold(Held::Parts { object, elements: BTreeMap::new() });
        }
        self.keep(name, pointer);
    }
}

/// Items as requests have them: names, names and values in turn, or elements.
pub(crate) fn encoded<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut list = Vec::new();
    items.into_iter().for_each(|item| Items::push(&mut list, item));
    list
}

/// A link as requests have it, which names this key.
pub(crate) fn push_link(list: &mut Vec<u8>, target: &[u8]) -> Result<(), Error> {
    if target.len() > MAX_KEY_BYTES {
        return Err(Error::KeyTooLong);
    }
    Items::push_field(list, Field { value: target, is_link: true });
    Ok(())
}
