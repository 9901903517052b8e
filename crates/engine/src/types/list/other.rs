//! An element moves to the list of another key of the same shard (LMOVE).
//!
//! Invariant: the log has two changes, one of each key, as the keys may be of different shards where
//! it is replayed. The element is added to the other list first: that may fail, and nothing has
//! changed then. What the first list needs without the element is written before.

use super::change::entry_of;
use super::held::{Held, Lists, find, packed_of, whole_value};
use crate::keys;
use crate::store::{Found, Prepared, Readable, Store};
use crate::types::object::On;
use remora_arena::{ArenaFull, Journal, Slot};
use remora_layout::chain::encoded;
use remora_layout::limits::MAX_KEY_BYTES;
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::message::Status;
use remora_protocol::{Command, Items, Reply};

/// Bytes before the only item of a list.
const ITEM_HEAD_BYTES: usize = Items::bytes_of(0);

/// Encoded entries without the one at an end.
fn without(all: &[u8], side: Side) -> Vec<u8> {
    let count = encoded(all).count();
    let kept = match side {
        Side::Left => 1..count,
        Side::Right => 0..count - 1,
    };
    let bytes = encoded(all).skip(kept.start).take(kept.len());
    bytes.flatten().copied().collect()
}

/// The range that stays if an element leaves a list at an end.
fn kept(length: u64, side: Side) -> (u64, u64) {
    (u64::from(side == Side::Left), length - 1)
}

impl Lists {
    pub(super) fn move_element<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        (from, to): (Side, Side),
        other: &[u8],
    ) -> Reply<'_> {
        match self.try_move(store, on, (from, to), other) {
            Ok(()) => {
                let value = self.reply.get(ITEM_HEAD_BYTES..);
                Reply { value, ..Reply::status(Status::Ok) }
            }
            Err(status) => Reply::status(status),
        }
    }

    /// Leaves the element in the buffer for a reply, as an item.
    fn try_move<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        (from, to): (Side, Side),
        other: &[u8],
    ) -> Result<(), Status> {
        if find(store, on)?.is_none() {
            return Err(Status::NotFound);
        }
        if other.len() > MAX_KEY_BYTES {
            return Err(Status::TooLarge);
        }
        let other_on = On { key: other, hash: store.hash(on.hash.database(), other), ..on };
        if store.moves.has_dump(other_on.hash) {
            return Err(Status::TryAgain);
        }
        find(store, other_on)?;
        // The look at the other key may have changed its bucket.
        let held = find(store, on)?.ok_or(Status::NotFound)?;
        let length = self.length(store, held);
        if length == 0 {
            // A record that somebody else wrote, and that encodes nothing.
            return Err(Status::NotFound);
        }
        let mut element = std::mem::take(&mut self.reply);
        element.clear();
        self.gather(store, held, (from, 1, usize::MAX), &mut element);
        let items = Items::parse(&element).expect("one item");
        let moved = match other == on.key {
            true if length == 1 || from == to => Ok(()),
            true => self.rotate(store, (on, held), (from, to), items),
            false => self.give(store, (on, held), (other_on, from, to), items),
        };
        self.reply = element;
        moved
    }

    /// Moves an element from one end of a list to the other one.
    fn rotate<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Held),
        (from, to): (Side, Side),
        items: Items<'_>,
    ) -> Result<(), Status> {
        let (first, keep) = kept(self.length(store, held) + 1, from);
        if let Held::Whole(found) = held {
            let all = packed_of(store, found);
            let rest = without(&all, from);
            let gone = match from {
                Side::Left => &all[..all.len() - rest.len()],
                Side::Right => &all[rest.len()..],
            };
            let made = match to {
                Side::Left => [gone, &rest].concat(),
                Side::Right => [&rest[..], gone].concat(),
            };
            let slot = write_whole(store, (on, found), &made)?;
            let push = entry_of(on, ListCommand::Push { side: to, if_there: false, items });
            store.commit(on.hash.database(), &push, |_| {});
            let entry = entry_of(on, ListCommand::Keep { from: first, keep });
            return enter_whole(store, on, slot, &entry);
        }
        let pushed = self.push(store, (on, Some(held)), to, items).status;
        if pushed != Status::Ok {
            return Err(pushed);
        }
        self.keep_range(store, (on, held), first, keep)
    }

    /// Adds an element to another list, and takes it off this one.
    fn give<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Held),
        (other, from, to): (On<'_>, Side, Side),
        items: Items<'_>,
    ) -> Result<(), Status> {
        let (first, keep) = kept(self.length(store, held), from);
        let rest = match held {
            Held::Whole(found) if keep > 0 => {
                let made = without(&packed_of(store, found), from);
                Some(write_whole(store, (on, found), &made)?)
            }
            _ => None,
        };
        let target = find(store, other)?;
        // Neither is evicted meanwhile, but both may move.
        store.keep_both(other, on);
        let pushed = self.push(store, (other, target), to, items).status;
        store.keep_both(on, other);
        match (pushed, rest) {
            (Status::Ok, Some(slot)) => {
                let entry = entry_of(on, ListCommand::Keep { from: first, keep });
                enter_whole(store, on, slot, &entry)
            }
            (Status::Ok, None) if keep == 0 => {
                keys::del(store, on);
                Ok(())
            }
            (Status::Ok, None) => match find(store, on)? {
                Some(held) => self.keep_range(store, (on, held), first, keep),
                None => Ok(()),
            },
            (status, rest) => {
                rest.into_iter().for_each(|slot| store.give_back(slot, on.now));
                Err(status)
            }
        }
    }
}

/// Writes a list that is to lie whole in its record; nothing leads to it yet.
fn write_whole<J: Journal>(
    store: &mut Store<J>,
    (on, found): (On<'_>, Found),
    packed: &[u8],
) -> Result<Slot, Status> {
    let (kind, value) = whole_value(on, packed);
    let named = (kind, on.key, on.hash);
    let slot = store.write(named, &value, found.mutable.expires_at_ms, on.now);
    store.shed_thinned(on.now);
    slot.map_err(|ArenaFull { .. }| Status::OutOfMemory)
}

/// Lets a key hold such a record, in the place of its old one. It needs no memory.
fn enter_whole<J: Journal>(
    store: &mut Store<J>,
    on: On<'_>,
    slot: Slot,
    entry: &Command<'_>,
) -> Result<(), Status> {
    let Some(found) = store.found(on.key, on.hash) else {
        store.give_back(slot, on.now);
        return Ok(());
    };
    let new = Prepared { hash: on.hash, slot, expires_at_ms: found.mutable.expires_at_ms };
    let entered = store.enter(on.key, &new, Some(found), (entry.into(), Readable::Yes), on.now);
    entered.map(drop).map_err(|ArenaFull { .. }| Status::OutOfMemory)
}
