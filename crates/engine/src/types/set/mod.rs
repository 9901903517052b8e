//! Sets: members without values. A small one lies whole in its record, packed
//! ([`remora_layout::packed_set`]); a larger one has a root record and parts, most of which hold
//! several members each ([`crate::elements::bins`]).
//!
//! A change is logged by its result: members added, members removed, or the key removed.

mod change;
mod held;
mod members;
mod pop;
mod read;
mod transfer;

pub(crate) use held::Sets;

use super::content::Content;
use super::object::{ChangeStep, DumpedPart, Listing, LongRead, On, Turn, Type, whole_read};
use crate::elements::combine::{self, Asked, Combining, MemberReader, Names, WithScores};
use crate::elements::{self, Reading, bins};
use crate::store::{DumpAt, Now, Store};
use members::Members;
use remora_arena::{Journal, Slot};
use remora_layout::kind::Kind;
use remora_layout::limits::RELEASE_RECORDS;
use remora_layout::packed_set;
use remora_protocol::elements::Told;
use remora_protocol::message::Status;
use remora_protocol::set::{Combination, Others, SetCommand};
use remora_protocol::{Reply, Request};

impl<J: Journal> Type<J> for Sets {
    fn id(&self) -> Kind {
        Kind::SET
    }

    fn execute<'s>(
        &'s mut self,
        store: &'s mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s> {
        let command = SetCommand::of(request);
        if let SetCommand::Store { members } = command {
            return self.store(store, on, members);
        }
        let held = match Self::find(store, on) {
            Ok(held) => held,
            Err(status) => return Reply::status(status),
        };
        match command {
            SetCommand::Add { members } => self.add(store, (on, held), members),
            SetCommand::Remove { members } => self.remove(store, (on, held), members),
            SetCommand::Pop { count } => self.pop(store, (on, held), count),
            SetCommand::Move { to_and_member } => self.move_to(store, (on, held), to_and_member),
            SetCommand::Length => {
                Reply::number(held.map_or(0, |held| Self::length(store, held) as i64))
            }
            SetCommand::Contains { member } => Self::contains(store, (on, held), member),
            SetCommand::ContainsMany { members } => self.contains_many(store, held, members),
            SetCommand::Scan { cursor, options } => self.scan(store, held, cursor, options),
            SetCommand::All
            | SetCommand::Random { .. }
            | SetCommand::Combine { .. }
            | SetCommand::Store { .. } => {
                let mut found = std::mem::take(&mut self.scratch);
                let reply = whole_read(self, store, (on, request), &mut found);
                self.scratch = found;
                let value = Some(&self.scratch[..]).filter(|_| reply.status == Status::Ok);
                Reply { value, ..reply }
            }
        }
    }

    fn begin_read(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Result<LongRead, Status> {
        let command = SetCommand::of(request);
        if let SetCommand::Pop { count } = command {
            return Ok(pop::begin(count));
        }
        if let SetCommand::Combine { how, others, count_to } = command {
            return begin_combining(store, on, (how, others, count_to));
        }
        let held = Self::find(store, on)?;
        let members = held.map_or(0, |held| Self::length(store, held));
        let reading = match command {
            SetCommand::All => Reading::all::<Members, J>(store, (held, members), Told::Names),
            SetCommand::Random { count } => {
                let seed = self.draw(store);
                Reading::random::<Members, J>(store, (held, members), (count, Told::Names), seed)
            }
            _ => return Err(Status::Malformed),
        };
        Ok(LongRead::new(Kind::SET, Box::new(reading)))
    }

    fn read_turn(
        &self,
        store: &Store<J>,
        read: &mut LongRead,
        found: &mut Vec<u8>,
        _now: Now,
    ) -> Result<Turn, Status> {
        match read.state.downcast_mut::<Combining<Names>>() {
            Some(combining) => combining.turn(store, &[names()], found),
            None => elements::read_turn::<Members, J>(store, read, found),
        }
    }

    fn change_turn(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        read: &mut LongRead,
    ) -> Result<ChangeStep, Status> {
        Self::pop_on(store, on, read)
    }

    fn scored(&self) -> Option<MemberReader<J, f64>> {
        Some(combine::reader::<Members, WithScores, J>())
    }

    fn listing(&self) -> Option<Listing> {
        Some(Listing::Unordered(SetCommand::All.request()))
    }

    fn release(&mut self, store: &mut Store<J>, root: u32, now: Now) -> bool {
        store.release_parts(root, RELEASE_RECORDS, now)
    }

    fn bytes_of(&self, store: &Store<J>, root: u32) -> u64 {
        store.parts.of(root).weight()
    }

    fn digest(&self, store: &Store<J>, slot: u32, content: &mut Content) -> bool {
        elements::digest::<Members, J>(store, slot, content)
    }

    /// Redis 7.0 has no third encoding: what is no set of integers is a hash table.
    fn whole_encoding(&self, value: &[u8]) -> &'static str {
        if packed_set::has_integers(value) { "intset" } else { "hashtable" }
    }

    fn dump(&self, store: &Store<J>, root: u32, at: &mut DumpAt, piece: &mut Vec<u8>) -> bool {
        bins::dump::<Members, J>(store, root, at, piece)
    }

    fn begin_load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        _head: &[u8],
    ) -> Result<Slot, Status> {
        Self::make_empty(store, on)
    }

    fn load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        root: u32,
        piece: &[u8],
    ) -> Result<(), Status> {
        Self::add_piece(store, on, root, piece)
    }

    fn requests(&self, part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) -> bool {
        transfer::requests(part, each);
        true
    }

    fn has_whole(&self) -> bool {
        true
    }

    fn audit(&self, store: &Store<J>) -> Result<u64, String> {
        bins::audit::<Members, J>(store)
    }
}

/// How sets are read for a combination of sets.
fn names<J: Journal>() -> MemberReader<J, ()> {
    combine::reader::<Members, Names, J>()
}

fn begin_combining<J: Journal>(
    store: &mut Store<J>,
    on: On<'_>,
    (how, others, count_to): (Combination, Others<'_>, Option<u64>),
) -> Result<LongRead, Status> {
    let join = |so_far, _| so_far;
    let asked = Asked { how, before: others.before(), own_weight: 1.0, join, count_to };
    let keys = others.keys().map(|key| (key, 1.0));
    let (combining, hashes) = Combining::<Names>::begin(store, on, &asked, keys, &[names()])?;
    let read = LongRead::new(Kind::SET, Box::new(combining));
    Ok(LongRead { others: hashes, ..read })
}
