//! Hashes: the client asks for changes, and reads fields by either route.
//!
//! Invariants: a field counts only with its hash. A small hash is one record, which its checksum
//! validates. A field of a large hash counts only if the same batch of READs finds the root record
//! live, not expired, and of the generation under which the client looked for the field. Only the
//! owner can say that a field is absent.
//! owner's word.

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
use remora_layout::limits::MAX_KEPT_RECORDS;
use remora_layout::pointer::RemotePointer;
use remora_protocol::hash::{HashCommand, Told};
use remora_protocol::message::Status;
use remora_protocol::{Command, Items};
use std::collections::BTreeMap;

/// Events of the READs of a hash's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct HashEvents {
    /// A field of a hash with parts was read by READs.
    pub part_read: u64,
    /// A field was no longer at its known location.
    pub part_gone: u64,
    /// The hash was no longer at its known location.
    pub root_gone: u64,
    /// The hash may have expired.
    pub expired: u64,
    /// A hash that lay whole in its record now has parts.
    pub grown: u64,
}

/// A session's view of one hash: where it lies, and its fields, as far as the server told or READs
/// found. All of it is a hint.
#[derive(Debug)]
pub struct OpenHash {
    key: Box<[u8]>,
    hash: KeyHash,
    shard: usize,
    held: Held,
    /// Whether it lay whole in its record when its location was last known.
    was_whole: bool,
    events: HashEvents,
}

/// The known location of a hash.
#[derive(Debug)]
enum Held {
    /// Nothing.
    Unknown,
    /// Whole in this record.
    Whole(RemotePointer),
    /// It has parts; where some of them lie, by the hashes of their names.
    Parts { object: Box<ObjectRef>, fields: BTreeMap<u64, RemotePointer> },
}

impl OpenHash {
    /// The hash's key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// What has happened to the reads of its fields.
    pub fn events(&self) -> HashEvents {
        self.events
    }

    /// Learns where it lies.
    fn hold(&mut self, held: Held) {
        let is_whole = matches!(held, Held::Whole(_));
        self.events.grown += u64::from(self.was_whole && !is_whole);
        (self.held, self.was_whole) = (held, is_whole);
    }

    /// Whether one READ is enough for this field, as far as the view knows.
    fn knows(&self, name: &[u8]) -> bool {
        match &self.held {
            Held::Unknown => false,
            Held::Whole(_) => true,
            Held::Parts { object, fields } => fields.contains_key(&object.hash(name).0),
        }
    }

    /// Keeps where a field of the present hash with parts lies. If there are too many, it discards
    /// all and starts again, as with the records of trees.
    fn keep(&mut self, name: &[u8], pointer: RemotePointer) {
        if let Held::Parts { object, fields } = &mut self.held {
            if fields.len() == MAX_KEPT_RECORDS {
                fields.clear();
            }
            fields.insert(object.hash(name).0, pointer);
        }
    }

    /// A view of the hash that a key holds, or will hold. Nothing is asked.
    pub(crate) fn new(directory: &Directory, key: &[u8]) -> Result<Self, Error> {
        let (hash, shard) = directory.locate(key)?;
        let (held, events) = (Held::Unknown, HashEvents::default());
        Ok(Self { key: key.into(), hash, shard, held, was_whole: false, events })
    }

    /// The value of a field.
    #[inline(always)]
    pub(crate) fn get<'c>(
        &mut self,
        core: &'c mut Core,
        name: &[u8],
        path: Path,
    ) -> Result<Got<'c>, Error> {
        core.asker.ready()?;
        let cost = Counts { operations: 1, ..Counts::default() };
        if path == Path::Ask {
            let timing = core.router.begin_given(&mut core.asker.endpoint, Route::Ask)?;
            let found = self.field_asked(core, name, cost)?;
            core.router.end_given(&mut core.asker.endpoint, timing, found.served_by)?;
            return Ok(core.got(found));
        }
        if !core.asker.may_read(self.shard) {
            let found = self.field_asked(core, name, Counts { behind_writes: 1, ..cost })?;
            return Ok(core.got(found));
        }
        let class = if self.knows(name) { key_class::CACHED } else { key_class::COLD };
        let timing = core.router.begin_key(&mut core.asker.endpoint, path, class)?;
        let found = match timing.route {
            Route::Ask => self.field_asked(core, name, cost)?,
            Route::Read => self.field_read(core, name, cost)?,
        };
        let Core { router, asker, .. } = &mut *core;
        router.end_key(&mut asker.endpoint, timing, class, found.served_by, &found.counts)?;
        Ok(core.got(found))
    }

    /// A field, by READs as far as possible.
    fn field_read(
        &mut self,
        core: &mut Core,
        name: &[u8],
        mut cost: Counts,
    ) -> Result<Found, Error> {
        let Core { asker, directory, .. } = &mut *core;
        let reading = self.read_field((&mut asker.endpoint, directory), name, &mut cost)?;
        let Reading::Value { from, bytes, retries } = reading else {
            return self.field_asked(core, name, cost);
        };
        asker.endpoint.staleness.conclude_reads();
        cost.read = 1;
        core.meter.add(&cost);
        let served_by = ServedBy::read_after(retries + cost.stale as u32);
        Ok(Found { at: FoundAt::Landed { from, bytes }, served_by, counts: cost })
    }

    /// Asks for a field, after reading has cost `cost`, and learns where it lies.
    fn field_asked(&mut self, core: &mut Core, name: &[u8], cost: Counts) -> Result<Found, Error> {
        let wasted = Counts { operations: 0, ..cost };
        core.meter.add(&wasted);
        let served_by =
            if cost.round_trips == 0 { ServedBy::Asked } else { ServedBy::AskedAfterRead };
        let request = HashCommand::Get { name }.request();
        let (value, mut counts) = match core.ask(&Command::Of { key: &self.key, request }) {
            Ok(answer) => {
                self.learn(&core.directory, name, &answer);
                (answer.value, answer.counts)
            }
            // It does not fit a frame: the server sends it in parts, as a list of one.
            Err(Error::Refused(Status::NeedsBuffer)) => {
                let names = encoded([name]);
                let names = Items::parse(&names).expect("one name");
                let (list, counts) = self.ask_list(core, &HashCommand::GetMany { names })?;
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

    /// Learns from the answer to a [`HashCommand::Get`] where a hash lies.
    fn learn(&mut self, directory: &Directory, name: &[u8], answer: &Answer) {
        let (pointer, root) = (answer.pointer, answer.number as u64);
        if answer.status != Status::Ok || !directory.is_readable(pointer, self.shard) {
            return;
        }
        if root == 0 {
            return self.hold(Held::Whole(pointer));
        }
        let is_known = matches!(&self.held, Held::Parts { object, .. } if object.is_root(root));
        if !is_known {
            let table = &directory.shards[self.shard].table;
            let object = Box::new(ObjectRef::of_root(table, directory.hash_seed, root));
            self.hold(Held::Parts { object, fields: BTreeMap::new() });
        }
        self.keep(name, pointer);
    }

    /// Asks for a list, in as many replies as it takes.
    fn ask_list(
        &self,
        core: &mut Core,
        command: &HashCommand<'_>,
    ) -> Result<(Vec<u8>, Counts), Error> {
        let mut list = Vec::new();
        let take = |part: &[u8]| {
            list.extend_from_slice(part);
            Ok(())
        };
        let answer = core.ask_in_parts(self.shard, &self.key, command.request(), take)?;
        match Items::parse(&list) {
            Some(_) => Ok((list, answer.counts)),
            None => Err(core.asker.endpoint.end(Error::Protocol("a list that is none"))),
        }
    }

    fn ask(&self, core: &mut Core, command: &HashCommand<'_>) -> Result<Answer, Error> {
        core.ask(&Command::Of { key: &self.key, request: command.request() })
    }

    /// Sets fields, as one change; gives how many of them are new.
    pub(crate) fn set(&self, core: &mut Core, fields: &[(&[u8], &[u8])]) -> Result<u64, Error> {
        let list = encoded(fields.iter().flat_map(|(name, value)| [*name, *value]));
        let pairs = Items::parse(&list).expect("it was just made");
        Ok(self.ask(core, &HashCommand::Set { pairs })?.number as u64)
    }

    /// Removes fields; gives how many of them were there.
    pub(crate) fn remove(&self, core: &mut Core, names: &[&[u8]]) -> Result<u64, Error> {
        let list = encoded(names.iter().copied());
        let names = Items::parse(&list).expect("it was just made");
        Ok(self.ask(core, &HashCommand::Remove { names })?.number as u64)
    }

    /// Adds to the integer in a field; gives the sum.
    pub(crate) fn increment(&self, core: &mut Core, name: &[u8], by: i64) -> Result<i64, Error> {
        Ok(self.ask(core, &HashCommand::Increment { name, by })?.number)
    }

    /// Number of fields.
    pub(crate) fn len(&self, core: &mut Core) -> Result<u64, Error> {
        Ok(self.ask(core, &HashCommand::Length)?.number as u64)
    }

    /// The values of fields, in the order of the names.
    pub(crate) fn get_many(
        &self,
        core: &mut Core,
        names: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let names = encoded(names.iter().copied());
        let names = Items::parse(&names).expect("it was just made");
        let (list, _) = self.ask_list(core, &HashCommand::GetMany { names })?;
        let items = Items::parse(&list).expect("checked when it came");
        Ok(items.iter().map(|item| item.map(<[u8]>::to_vec)).collect())
    }

    /// All fields and their values.
    pub(crate) fn all(&self, core: &mut Core) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Error> {
        let (list, _) = self.ask_list(core, &HashCommand::All { told: Told::Both })?;
        let items = Items::parse(&list).expect("checked when it came");
        let mut items = items.iter().flatten().map(<[u8]>::to_vec);
        Ok(std::iter::from_fn(|| Some((items.next()?, items.next()?))).collect())
    }
}

/// Names and values, in turn, as requests have them.
fn encoded<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut list = Vec::new();
    items.into_iter().for_each(|item| Items::push(&mut list, item));
    list
}
