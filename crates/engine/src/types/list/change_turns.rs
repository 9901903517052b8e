//! LREM and LINSERT: they look for elements in turns, and end with one change of the list.

use super::entries::entry_bytes;
use super::held::{Held, Lists, find, packed_of};
use super::matches::{Matches, lock};
use crate::keys;
use crate::store::Store;
use crate::types::object::{ChangeStep, LongRead, On};
use remora_arena::{Journal, Slot, slot_of};
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_VALUE_BYTES, WALK_RESTARTS};
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::message::Status;
use remora_protocol::{Command, Items, Reply, Request};
use std::sync::{Arc, Mutex};

/// An operation that looks for elements.
struct Looking {
    what: What,
    /// The encoded entry that elements have to equal, and how many of them are wanted as LREM counts
    /// them.
    wanted: Vec<u8>,
    count: i64,
    /// The search in the list of chunks with this root record.
    search: Option<(Slot, Arc<Mutex<Matches>>)>,
    /// How often the key held another list than before.
    restarts: u32,
}

/// What is done with the elements.
enum What {
    Remove,
    /// This one is added beside the first one.
    Insert {
        after: bool,
        value: Vec<u8>,
    },
}

impl Looking {
    fn matches(&self, length: u64) -> Matches {
        Matches::new(self.wanted.clone(), self.count, length)
    }

    /// The change that ends it, of a list of this length, given the elements that were found.
    fn change(&self, on: On<'_>, found: &Matches, length: u64) -> Result<ChangeStep, Status> {
        let mut indexes = found.indexes();
        let mut list = Vec::new();
        let (request, number) = match &self.what {
            What::Remove if indexes.len() == 0 => return Ok(ChangeStep::Ended(0)),
            What::Remove if indexes.len() as u64 == length => {
                return Ok(encoded(on, Command::Del { key: on.key }, length as i64));
            }
            What::Remove if indexes.len() > MAX_VALUE_BYTES / size_of::<u32>() => {
                return Err(Status::TooLarge);
            }
            What::Remove => {
                let number = indexes.len() as i64;
                list.extend(indexes.flat_map(u32::to_le_bytes));
                (ListCommand::RemoveAt { indexes: &list }, number)
            }
            What::Insert { after, value } => {
                let Some(pivot) = indexes.next() else { return Ok(ChangeStep::Ended(-1)) };
                let index = u64::from(pivot) + u64::from(*after);
                let command = if index == length {
                    Items::push(&mut list, value);
                    let items = Items::parse(&list).expect("one item");
                    ListCommand::Push { side: Side::Right, if_there: false, items }
                } else {
                    ListCommand::InsertAt { index, value }
                };
                (command, length as i64 + 1)
            }
        };
        Ok(encoded(on, Command::Of { key: on.key, request: request.request() }, number))
    }
}

fn encoded(on: On<'_>, command: Command<'_>, number: i64) -> ChangeStep {
    let mut bytes = Vec::new();
    command.encode_within(on.hash.database(), 0, &mut bytes);
    ChangeStep::Change { command: bytes, number }
}

impl Lists {
    /// Begins LREM or LINSERT.
    pub(super) fn begin_change(request: Request<'_>) -> Result<LongRead, Status> {
        let (what, wanted, count) = match ListCommand::of(request) {
            ListCommand::Remove { count, value } => (What::Remove, value, count),
            ListCommand::Insert { after, pivot_and_value } => {
                let mut items = pivot_and_value.iter().flatten();
                let (Some(pivot), Some(value)) = (items.next(), items.next()) else {
                    return Err(Status::Malformed);
                };
                (What::Insert { after, value: value.to_vec() }, pivot, 1)
            }
            _ => return Err(Status::Malformed),
        };
        let wanted = entry_bytes(wanted);
        let looking = Looking { what, wanted, count, search: None, restarts: 0 };
        Ok(LongRead::new(Kind::LIST, Box::new(looking)))
    }

    /// Looks on for one turn.
    pub(super) fn look_on<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        read: &mut LongRead,
    ) -> Result<ChangeStep, Status> {
        let looking: &mut Looking = read.state.downcast_mut().ok_or(Status::Malformed)?;
        let Some(held) = find(store, on)? else { return Ok(ChangeStep::Ended(0)) };
        let length = self.length(store, held);
        let found = match held {
            Held::Whole(found) => {
                let mut matches = looking.matches(length);
                matches.look_at_all(&packed_of(store, found));
                return looking.change(on, &matches, length);
            }
            Held::Chain(found) => slot_of(&store.owner, found.slot.slot),
        };
        if looking.search.as_ref().is_none_or(|(root, _)| *root != found) {
            // The key holds another list than in the last turn.
            looking.restarts += u32::from(looking.search.is_some());
            if looking.restarts > WALK_RESTARTS {
                return Err(Status::Outrun);
            }
            let matches = Arc::new(Mutex::new(looking.matches(length)));
            self.listed(found.slot).searches.add(&matches);
            looking.search = Some((found, matches));
        }
        let (_, search) = looking.search.as_ref().expect("it was just begun");
        let mut matches = lock(search);
        let (has_ended, chunks) = matches.turn(&store.owner, &self.listed(found.slot).chain);
        self.searched_chunks += chunks;
        match has_ended {
            true => looking.change(on, &matches, length),
            false => Ok(ChangeStep::More),
        }
    }

    /// Executes LREM or LINSERT to its end.
    pub(super) fn change_at_once<'s, J: Journal>(
        &'s mut self,
        store: &'s mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s> {
        let mut read = match Self::begin_change(request) {
            Ok(read) => read,
            Err(status) => return Reply::status(status),
        };
        // Bounded by the list, which no command changes meanwhile.
        loop {
            match self.look_on(store, on, &mut read) {
                Ok(ChangeStep::More) => {}
                Ok(ChangeStep::Ended(number)) => return Reply::number(number),
                Ok(ChangeStep::Take(_) | ChangeStep::Read { .. }) => {
                    return Reply::status(Status::Malformed);
                }
                Ok(ChangeStep::Change { command, number }) => {
                    let status = self.carry_out(store, on, &command);
                    let done = Reply::number(number);
                    return if status == Status::Ok { done } else { Reply::status(status) };
                }
                Err(status) => return Reply::status(status),
            }
        }
    }

    fn carry_out<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        command: &[u8],
    ) -> Status {
        let held = match find(store, on) {
            Ok(held) => held,
            Err(status) => return status,
        };
        let Ok((_, Command::Of { request, .. }, _)) = Command::decode_within(command) else {
            return keys::del(store, on).status;
        };
        let at = (on, held);
        match ListCommand::of(request) {
            ListCommand::RemoveAt { indexes } => self.remove_at(store, at, indexes).status,
            ListCommand::InsertAt { index, value } => {
                self.insert_at(store, at, index, value).status
            }
            ListCommand::Push { side, items, .. } => self.push(store, at, side, items).status,
            _ => Status::Malformed,
        }
    }
}
