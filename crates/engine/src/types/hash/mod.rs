//! Hashes: fields with values. A small one lies whole in its record, packed
//! ([`remora_layout::packed`]); a larger one has a root record and a part for each
//! field, found through a table of its own (`crate::store`, `parts`).
//!
//! Invariant: a hash has fields. A hash that has become large stays large until it is removed, as
//! in Redis. A change is logged by its result: fields set, fields removed, or the key removed.

mod change;
mod held;
mod links;
mod read;
mod transfer;

pub(crate) use held::Hashes;

use super::content::Content;
use super::object::{DumpedPart, LongRead, On, Turn, Type, whole_read};
use crate::elements::{self, Reading, packed_of};
use crate::store::{DumpAt, Found, Now, Store};
use held::{Fields, Held, find, length, value_of};
use remora_arena::{Journal, Slot, slot_of};
use remora_index::hash::record_field;
use remora_layout::hash::mix;
use remora_layout::kind::Kind;
use remora_layout::limits::RELEASE_RECORDS;
use remora_layout::packed;
use remora_layout::part::root_word;
use remora_protocol::hash::HashCommand;
use remora_protocol::message::Status;
use remora_protocol::{Reply, Request};

impl<J: Journal> Type<J> for Hashes {
    fn id(&self) -> Kind {
        Kind::HASH
    }

    fn execute<'s>(
        &'s mut self,
        store: &'s mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s> {
        let held = match find(store, on) {
            Ok(held) => held,
            Err(status) => return Reply::status(status),
        };
        let number = |number: Option<i64>| Reply::number(number.unwrap_or(0));
        match HashCommand::of(request) {
            HashCommand::Set { pairs } => self.set(store, (on, held), pairs),
            HashCommand::SetAbsent { pair } => self.set_absent(store, (on, held), pair),
            HashCommand::Remove { names } => self.remove(store, (on, held), names),
            HashCommand::RemoveLinks { names } => self.remove_links(store, (on, held), names),
            HashCommand::Mend { name } => links::mend(store, (on, held), name),
            HashCommand::Increment { name, by } => self.increment(store, (on, held), name, by),
            HashCommand::IncrementFloat { name_and_by } => {
                self.increment_float(store, (on, held), name_and_by)
            }
            HashCommand::Get { name } => get(store, (on, held), name),
            HashCommand::Length => number(held.map(|held| length(store, held) as i64)),
            HashCommand::Exists { name } => {
                number(held.map(|held| value_of(store, held, name).is_some() as i64))
            }
            HashCommand::ValueLength { name } => {
                let value = held.and_then(|held| value_of(store, held, name));
                number(value.map(|value| value.len() as i64))
            }
            HashCommand::Scan { cursor, options } => self.scan(store, held, cursor, options),
            HashCommand::GetMany { .. } | HashCommand::All { .. } | HashCommand::Random { .. } => {
                self.whole_read(store, on, request)
            }
        }
    }

    fn begin_read(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Result<LongRead, Status> {
        let held = find(store, on)?;
        let elements = held.map_or(0, |held| length(store, held));
        let reading = match HashCommand::of(request) {
            HashCommand::GetMany { names } => read::many(store, held, names)?,
            HashCommand::All { told } => Reading::all::<Fields, J>(store, (held, elements), told),
            HashCommand::Random { count, told } => {
                let seed = self.draw(store);
                Reading::random::<Fields, J>(store, (held, elements), (count, told), seed)
            }
            _ => return Err(Status::Malformed),
        };
        Ok(LongRead::new(Kind::HASH, Box::new(reading)))
    }

    fn read_turn(
        &self,
        store: &Store<J>,
        read: &mut LongRead,
        found: &mut Vec<u8>,
        _now: Now,
    ) -> Result<Turn, Status> {
        elements::read_turn::<Fields, J>(store, read, found)
    }

    fn release(&mut self, store: &mut Store<J>, root: u32, now: Now) -> bool {
        store.release_parts(root, RELEASE_RECORDS, now)
    }

    fn bytes_of(&self, store: &Store<J>, root: u32) -> u64 {
        store.parts.of(root).bytes()
    }

    fn digest(&self, store: &Store<J>, slot: u32, content: &mut Content) -> bool {
        elements::digest::<Fields, J>(store, slot, content)
    }

    fn dump(&self, store: &Store<J>, root: u32, at: &mut DumpAt, piece: &mut Vec<u8>) -> bool {
        transfer::dump(store, root, at, piece)
    }

    fn begin_load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        _head: &[u8],
    ) -> Result<Slot, Status> {
        transfer::begin_load(store, on)
    }

    fn load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        root: u32,
        piece: &[u8],
    ) -> Result<(), Status> {
        transfer::load(store, on, root, piece)
    }

    fn requests(&self, part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) -> bool {
        transfer::requests(part, each);
        true
    }

    fn has_whole(&self) -> bool {
        true
    }

    fn with_hints(&self, store: &Store<J>, on: On<'_>, value: &[u8]) -> Option<(Kind, Vec<u8>)> {
        links::with_hints(store, on, value)
    }

    fn audit(&self, store: &Store<J>) -> Result<u64, String> {
        store.parts.audit(&store.owner, &store.slots, Kind::HASH_FIELD)
    }
}

/// The value of a field, with a pointer to the record that holds it, and a lease.
fn get<'s, J: Journal>(
    store: &'s mut Store<J>,
    (on, held): (On<'_>, Option<Held>),
    name: &[u8],
) -> Reply<'s> {
    let (record, root) = match held {
        None => return Reply::status(Status::NotFound),
        Some(Held::Whole(found)) => (Some(found), 0),
        Some(Held::Parts(root)) => {
            let at = slot_of(&store.owner, root.slot.slot);
            let part = store.parts.of(at.slot).find(&store.owner, name);
            (part, root_word(at.slot, at.generation) as i64)
        }
    };
    let holds = |found: &Found| root != 0 || packed::find(packed_of(store, *found), name).is_some();
    let Some(record) = record.filter(holds) else { return Reply::status(Status::NotFound) };
    let lease_ms = store.extend_lease(record, on.now);
    let value = match root {
        0 => packed::find(packed_of(store, record), name),
        _ => Some(record_field(&store.owner, record.slot.slot).value),
    };
    let pointer = store.pointer(record.slot.slot);
    Reply { value, pointer, lease_ms, ..Reply::number(root) }
}

impl Hashes {
    /// A random number: which ones come depends on the arena's secret.
    fn draw<J: Journal>(&mut self, store: &Store<J>) -> u64 {
        self.drawn += 1;
        mix(store.options.record_secret, self.drawn)
    }

    /// Executes a read in turns to its end.
    fn whole_read<'s, J: Journal>(
        &'s mut self,
        store: &mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s> {
        let mut found = std::mem::take(&mut self.scratch);
        let reply = whole_read(self, store, (on, request), &mut found);
        self.scratch = found;
        Reply { value: Some(&self.scratch[..]).filter(|_| reply.status == Status::Ok), ..reply }
    }
}
