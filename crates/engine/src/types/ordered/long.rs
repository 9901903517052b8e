//! Values that are too long for a leaf: each lies in a record of its own, which the leaf's entry
//! names and no key leads to.
//!
//! A change is published in this order:
//!
//! 1. The new value's record is whole, and live once its change is durable. No leaf names it yet.
//! 2. The old value's record is dead: readers that hold the leaf as it was read the leaf again.
//! 3. The leaf, under the sequence of the change.
//! 4. The old record's memory is given back.
//!
//! Invariants:
//! * a leaf never names a record that is not its key's value: before step 3 it names the old one,
//!   afterwards the new one;
//! * a reader that takes a value out of a live record read it before any reader saw the next value.
//!   So no reader sees the new value of a key, then the old one;
//! * a record's memory gets another generation before it is used again. So a reader with an old leaf
//!   finds a dead record, never another value;
//! * a removed tree's records are found through its leaves, and released before its nodes.

use super::entry::LongValues;
use super::table::Named;
use super::trees::OrderedTrees;
use crate::store::{Now, Room, Store};
use crate::types::object::On;
use crate::types::tree_range::range_some;
use remora_arena::{
    Journal, NewRecord, Slot, flip_dead, kind_of, lengths_of, slot_of, write_pending,
};
use remora_index::btree::Direction;
use remora_index::hash::record_key;
use remora_layout::btree::{LongValue, ValueKind, long_key};
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::limits::{RANGE_TURN_BYTES, RANGE_TURN_KEYS, RELEASE_RECORDS};
use remora_layout::node::NodeRef;
use remora_layout::packed::Field;
use remora_layout::pointer::RemotePointer;
use remora_protocol::message::Status;
use std::ops::Bound;

fn slot_bytes<J: Journal>(store: &Store<J>, slot: u32) -> u64 {
    store.slots.bytes_of(slot_of(&store.owner, slot))
}

/// Where a reader finds the record in this slot.
fn pointer_to<J: Journal>(store: &Store<J>, slot: Slot) -> RemotePointer {
    RemotePointer {
        region: store.options.region,
        slot: slot.slot,
        length: lengths_of(&store.owner, slot.slot).record_bytes() as u32,
        generation: slot.generation,
    }
}

impl Named {
    /// The record of a key's value, if it lies in one.
    pub fn record_of<J: Journal>(&self, store: &Store<J>, key: &[u8]) -> Option<u32> {
        if self.long.values == 0 {
            return None;
        }
        let long = LongValue::of(self.tree.get(&store.owner, key)?)?;
        Some(long.at.slot)
    }

    /// Whether a value lies in a record.
    pub fn is_long(&self, value: Field<'_>) -> bool {
        value.value.len() > self.tree.options().value_bytes
    }

    /// Compares the records with the leaves that name them.
    ///
    /// # Errors
    /// A description of the first mismatch.
    pub fn audit_long<J: Journal>(&self, store: &Store<J>) -> Result<(), String> {
        let (mut found, mut wrong) = (LongValues::default(), None);
        let key = long_key(self.tree.at());
        self.tree.range(&store.owner, remora_index::btree::Range::ALL, |of, value| {
            if value.kind != ValueKind::Record {
                return;
            }
            let at = LongValue::of(value).map(|long| long.at);
            let is_it = at.is_some_and(|at| {
                let slot = slot_of(&store.owner, at.slot);
                at == pointer_to(store, slot)
                    && kind_of(&store.owner, at.slot) == Kind::ORDERED_VALUE
                    && record_key(&store.owner, at.slot) == key
            });
            if !is_it {
                wrong.get_or_insert_with(|| format!("{}: no record at {at:?}", of.escape_ascii()));
            }
            found.values += 1;
            found.bytes += at.map_or(0, |at| slot_bytes(store, at.slot));
        });
        match wrong {
            Some(wrong) => Err(wrong),
            None if found == self.long => Ok(()),
            None => Err(format!("leaves name {found:?}, the books say {:?}", self.long)),
        }
    }
}

impl OrderedTrees {
    /// Writes a value into a record that is not yet live.
    pub(super) fn write_long<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, tree): (On<'_>, NodeRef),
        value: &[u8],
    ) -> Result<(Slot, RemotePointer), Status> {
        let record = NewRecord {
            database: Database::ZERO,
            key: &long_key(tree),
            value,
            kind: Kind::ORDERED_VALUE,
            expires_at_ms: 0,
        };
        let slot = store.allocate(Room::Record { bytes: record.record_bytes() }, on.now);
        store.shed_thinned(on.now);
        let slot = slot.map_err(|_| Status::OutOfMemory)?;
        let (secret, region) = (store.options.record_secret, store.options.region);
        let pointer = write_pending(&mut store.owner, secret, region, slot, &record);
        self.long_bytes += store.slots.bytes_of(slot);
        Ok((slot, pointer))
    }

    /// Frees the slot of a record that no leaf names any more, or that none has named.
    pub(super) fn free_long<J: Journal>(&mut self, store: &mut Store<J>, slot: u32, now: Now) {
        let slot = slot_of(&store.owner, slot);
        self.long_bytes -= store.slots.bytes_of(slot);
        store.give_back(slot, now);
    }

    /// Steps 1 and 2 of the module's order.
    pub(super) fn show_long<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        (old, new): (Option<u32>, Option<Slot>),
    ) {
        let mut long = self.named(root).long;
        if let Some(new) = new {
            store.show(new);
            long.values += 1;
            long.bytes += store.slots.bytes_of(new);
        }
        if let Some(old) = old {
            flip_dead(&mut store.owner, old);
            long.values -= 1;
            long.bytes -= slot_bytes(store, old);
        }
        self.trees.on(root, |named| named.long = long);
    }

    /// Releases some records of a tree that no key leads to any more. True once it has none.
    pub(super) fn release_long<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        now: Now,
    ) -> bool {
        if self.trees.get(root).is_none_or(|named| named.long.values == 0) {
            return true;
        }
        let take = |named: &mut Named| std::mem::replace(&mut named.released_to, Bound::Unbounded);
        let mut from = self.trees.on(root, take);
        let bounds = (&mut from, &mut Bound::Unbounded, Direction::Ascending);
        let mut slots = Vec::new();
        range_some(store, &self.named(root).tree, bounds, RANGE_TURN_KEYS, |_, value| {
            let slot = LongValue::of(value).map(|long| long.at.slot);
            slots.extend(slot);
            // So many records are as much as a turn does.
            slot.map_or(0, |_| RANGE_TURN_BYTES / RELEASE_RECORDS)
        });
        let bytes: u64 = slots.iter().map(|&slot| slot_bytes(store, slot)).sum();
        self.trees.on(root, |named| {
            named.released_to = from;
            named.long.values -= slots.len() as u64;
            named.long.bytes -= bytes;
        });
        for slot in slots {
            self.free_long(store, slot, now);
        }
        false
    }
}
