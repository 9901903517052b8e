//! Hashes: fields with values. A small one lies whole in its record, packed
//! ([`remora_layout::packed`]); a larger one has a root record and a part for each
//! field, found through a table of its own (`crate::store`, `parts`).
//!
//! Invariant: a hash has fields. A hash that has become large stays large until it is removed, as
//! in Redis. A change is logged by its result: fields set, fields removed, or the key removed.

mod change;
mod held;
mod read;
mod transfer;

pub(crate) use held::Hashes;

use super::content::Content;
use super::object::{DumpedPart, LongRead, On, Turn, Type, resume};
use crate::store::{DumpAt, Found, Now, Store};
use held::{Held, find, length, packed_of, value_of};
use read::Reading;
use remora_arena::{Journal, Slot, kind_of, slot_of};
use remora_index::hash::{record_key, record_value};
use remora_layout::hash::mix;
use remora_layout::kind::Kind;
use remora_layout::limits::{PARTS_TURN_BYTES, RELEASE_RECORDS};
use remora_layout::packed;
use remora_layout::part::root_word;
use remora_protocol::hash::HashCommand;
use remora_protocol::message::Status;
use remora_protocol::{Reply, Request};

/// Buckets of a table of fields that one step of a digest adds up.
const DIGEST_BUCKETS: u64 = 64;

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
        let reading = match HashCommand::of(request) {
            HashCommand::GetMany { names } => Reading::many(store, held, names)?,
            HashCommand::All { told } => Reading::all(store, held, told),
            HashCommand::Random { count, told } => {
                Reading::random(store, held, (count, told), self.draw(store))
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
        let reading: &mut Reading = read.state.downcast_mut().expect("it began here");
        let ended = reading.turn(store, found, found.len() + PARTS_TURN_BYTES)?;
        let (number, is_counted) = (reading.items(), reading.is_counted());
        Ok(Turn { ended, number, is_counted, gives_value: true, has_doubles: false })
    }

    fn release(&mut self, store: &mut Store<J>, root: u32, now: Now) -> bool {
        store.release_parts(root, RELEASE_RECORDS, now)
    }

    fn bytes_of(&self, store: &Store<J>, root: u32) -> u64 {
        store.parts.of(root).bytes()
    }

    fn digest(&self, store: &Store<J>, slot: u32, content: &mut Content) -> bool {
        if kind_of(&store.owner, slot) != Kind::HASH {
            let fields = packed::pairs(record_value(&store.owner, slot));
            fields.for_each(|(name, value)| content.add(&[name, value]));
            return true;
        }
        let parts = store.parts.of(slot);
        let from = *resume::<u64>(&mut content.at);
        let to = parts.buckets().min(from + DIGEST_BUCKETS);
        for slot in (from..to).flat_map(|bucket| parts.in_bucket(&store.owner, bucket)) {
            content.add(&[record_key(&store.owner, slot), record_value(&store.owner, slot)]);
        }
        content.at = Some(Box::new(to));
        to == parts.buckets()
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
        _ => Some(record_value(&store.owner, record.slot.slot)),
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
        let mut read = match Type::begin_read(self, store, on, request) {
            Ok(read) => read,
            Err(status) => return Reply::status(status),
        };
        let mut found = std::mem::take(&mut self.scratch);
        found.clear();
        // Bounded by the number of buckets, and by the number that is asked for.
        let number = loop {
            match Type::read_turn(self, store, &mut read, &mut found, on.now) {
                Ok(turn) if turn.ended => break turn.number,
                Ok(_) => {}
                Err(status) => return Reply::status(status),
            }
        };
        self.scratch = found;
        Reply { value: Some(&self.scratch), ..Reply::number(number) }
    }
}
