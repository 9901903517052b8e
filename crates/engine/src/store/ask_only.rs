//! Ask-only records: long values that APPEND, SETRANGE and SETBIT change in
//! place (design, "Memory").
//!
//! ```text
//!            first long edit               not changed for a while, checksummed
//!   live, g ----------------> ask-only, g ---------------------> live, g + 1
//!                               |    ^
//!                               '----'  further edits, in place
//! ```
//! What it keeps true:
//! * The guardian says ask-only before the first byte changes, and live, under
//!   a new generation, only after the last checksum is in place. A reader that
//!   fetched while the guardian said live at g, and got some bytes of later,
//!   fails the checksum under g, which covers lengths, key and value; with
//!   none of later it has the value that was current when it began. One that
//!   comes with a pointer of g after republication meets another generation,
//!   and asks. Leases need nothing more: the slot is not reused, and what
//!   releases it later still honours the lease in its mutable word.
//! * The shard's own commands always see the current value.
//! * A slot that a download has pinned is never changed: the record then goes
//!   on in another slot.
//! * Only slots with pages of their own are changed in place. A record that
//!   outgrows its slot goes to another one, with slack if it grew, so that n
//!   bytes appended in small parts cost the copying of O(n).
//! * The log gets each edit as it is, as for records that are written anew.
//!
//! A record in a shard's table says ask-only exactly if it stands here.

use super::defragment::Room;
use super::write::{Prepared, Readable};
use super::{Found, Now, Store};
use crate::types::string::Change;
use remora_arena::{
    ArenaFull, Journal, PieceSum, Slot, begin_pending, lengths_of, set_value_bytes, slot_of,
    state_in, withhold,
};
use remora_index::hash::{record_key, record_value};
use remora_layout::bucket::BucketSlot;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    ASK_ONLY_SLACK_SHARE, MAX_VALUE_BYTES, REPUBLISH_AFTER_S, REPUBLISH_TICK_BYTES, SLOT_UNIT_BYTES,
};
use remora_layout::record::{RECORD_HEADER_BYTES, State};
use remora_protocol::Reply;
use remora_protocol::message::Status;
use std::collections::{BTreeMap, BTreeSet};

/// One ask-only record.
struct Record {
    hash: KeyHash,
    /// Second from which on it may be republished.
    due_s: u64,
    /// The checksum under way; it begins again with each change.
    sum: Option<PieceSum>,
}

/// The ask-only records of a shard.
#[derive(Default)]
pub(crate) struct AskOnly {
    by_slot: BTreeMap<u32, Record>,
    /// Those that may be republished once, by due second.
    due: BTreeSet<(u64, u32)>,
}

impl AskOnly {
    /// Whether the record in this slot is one.
    #[inline]
    pub fn holds(&self, slot: u32) -> bool {
        self.by_slot.contains_key(&slot)
    }

    /// How many there are.
    pub fn records(&self) -> u64 {
        self.by_slot.len() as u64
    }

    /// Whether some wait to be republished.
    pub fn wants_ticks(&self) -> bool {
        !self.due.is_empty()
    }

    /// A record is changed now; it is ask-only from here on.
    pub fn touch(&mut self, slot: u32, hash: KeyHash, now: Now) {
        // Whole seconds have gone by once the next but one has begun.
        let due_s = now.since_start_s + REPUBLISH_AFTER_S + 1;
        let record = Record { hash, due_s, sum: None };
        let before = self.by_slot.insert(slot, record);
        if before.as_ref().is_none_or(|before| before.due_s != due_s) {
            if let Some(before) = before {
                self.due.remove(&(before.due_s, slot));
            }
            self.due.insert((due_s, slot));
        }
    }

    /// The record in this slot is no longer there, or not ask-only any more.
    pub fn forget(&mut self, slot: u32) {
        if self.by_slot.is_empty() {
            return;
        }
        if let Some(record) = self.by_slot.remove(&slot) {
            self.due.remove(&(record.due_s, slot));
        }
    }

    /// The record that waits longest, if it is due.
    fn next_due(&self, now: Now) -> Option<u32> {
        let &(due_s, slot) = self.due.first()?;
        (due_s <= now.since_start_s).then_some(slot)
    }
}

impl<J: Journal> Store<J> {
    /// Carries out an edit whose outcome is long, without writing anew what
    /// it leaves alone. No pointer comes with the reply: readers ask.
    pub(crate) fn change_in_place(&mut self, change: &Change<'_>, now: Now) -> Reply<'_> {
        let bytes = RECORD_HEADER_BYTES + change.key.len() + change.edit.new_bytes;
        let fits = |found: &Found| {
            let slot = slot_of(&self.owner, found.slot.slot);
            self.slots.room(slot) >= bytes && !self.pins.holds(slot.slot)
        };
        let done = match change.found.filter(fits) {
            Some(found) => {
                self.edit_slot(change, found.slot.slot, now);
                Ok(())
            }
            None => {
                self.making_room.keep = change.found.map(|found| found.slot.slot);
                let put = self.edit_elsewhere(change, bytes, now);
                self.settle(&put, now);
                put.map(|_| ())
            }
        };
        match done {
            Ok(()) => Reply::number(change.number),
            Err(ArenaFull { .. }) => Reply::status(Status::OutOfMemory),
        }
    }

    /// In the record's own slot.
    fn edit_slot(&mut self, change: &Change<'_>, slot: u32, now: Now) {
        self.commit(change.hash.database(), &change.entry, |store| {
            if state_in(&store.owner, slot) != State::AskOnly {
                let slot = slot_of(&store.owner, slot);
                withhold(&mut store.owner, slot, State::AskOnly);
            }
            store.ask_only.touch(slot, change.hash, now);
            set_value_bytes(&mut store.owner, slot, change.edit.new_bytes);
            let value_at = value_offset(slot, change.key);
            store.write_edit(change, value_at);
        });
    }

    /// In a new slot, which the key names from then on.
    fn edit_elsewhere(
        &mut self,
        change: &Change<'_>,
        bytes: usize,
        now: Now,
    ) -> Result<Option<Found>, ArenaFull> {
        let &Change { key, hash, mut found, edit, ref entry, .. } = change;
        let moved = self.stats.moved;
        let old_bytes = found.map(|found| record_value(&self.owner, found.slot.slot).len());
        let grows = old_bytes.is_some_and(|old| edit.new_bytes > old);
        let slot = self.allocate_to_grow(bytes, edit.new_bytes, grows, now)?;
        if self.stats.moved != moved && found.is_some() {
            found = self.found(key, hash);
        }
        let expires_at_ms = found.map_or(0, |found| found.mutable.expires_at_ms);
        let named = (hash.database(), key);
        let value_at = begin_pending(&mut self.owner, slot, named, edit.new_bytes, expires_at_ms);
        if let Some(found) = found {
            let body = |slot: u32| slot as usize * SLOT_UNIT_BYTES + RECORD_HEADER_BYTES;
            let old = lengths_of(&self.owner, found.slot.slot).record_bytes() - RECORD_HEADER_BYTES;
            self.owner.copy_within(body(found.slot.slot), body(slot.slot), old);
        }
        self.write_edit(change, value_at);
        let new = Prepared { hash, slot, expires_at_ms };
        self.enter(key, &new, found, (entry.into(), Readable::AskOnly), now)
    }

    /// A slot for a record of so many bytes; with slack if it grows and that
    /// much is free without further ado.
    fn allocate_to_grow(
        &mut self,
        bytes: usize,
        value_bytes: usize,
        grows: bool,
        now: Now,
    ) -> Result<Slot, ArenaFull> {
        if grows {
            let slack = (value_bytes / ASK_ONLY_SLACK_SHARE).min(MAX_VALUE_BYTES - value_bytes);
            if let Ok(slot) = self.take_slot(Room::Record { bytes: bytes + slack }, now) {
                return Ok(slot);
            }
        }
        self.allocate(Room::Record { bytes }, now)
    }

    /// Stores what an edit changes of a value.
    fn write_edit(&mut self, change: &Change<'_>, value_at: usize) {
        let edit = change.edit;
        let zeros_at = value_at + edit.write_at - edit.zero_bytes;
        self.owner.store_zeros(zeros_at, edit.zero_bytes);
        self.owner.store_within(value_at + edit.write_at, change.written);
    }

    /// Makes ask-only records readable again that have not been changed
    /// lately: at most so many bytes of checksum in one call.
    pub(crate) fn republish(&mut self, now: Now) {
        let mut budget = REPUBLISH_TICK_BYTES;
        // Bounded: each turn takes bytes off the budget, or a record away.
        while budget > 0 {
            let Some(slot) = self.ask_only.next_due(now) else { break };
            budget -= self.republish_some(slot, budget);
        }
    }

    /// Takes the checksum of one record further; publishes it at its end.
    /// Gives the bytes taken.
    fn republish_some(&mut self, slot: u32, most: usize) -> usize {
        let record = self.ask_only.by_slot.get_mut(&slot).expect("what is due is there");
        let sum = match &mut record.sum {
            Some(sum) => sum,
            none => {
                let Some(renewed) = self.slots.renewed(slot_of(&self.owner, slot)) else {
                    // It stays ask-only, which is correct, if slow to read.
                    self.ask_only.due.remove(&(record.due_s, slot));
                    return 0;
                };
                let (secret, region) = (self.options.record_secret, self.options.region);
                none.insert(PieceSum::begin(secret, region, renewed))
            }
        };
        let taken = sum.advance(&self.owner, most);
        if taken < most {
            let hash = record.hash;
            let sum = record.sum.take().expect("it was just taken further");
            self.publish_again(slot, sum, hash);
        }
        taken
    }

    fn publish_again(&mut self, slot: u32, sum: PieceSum, hash: KeyHash) {
        self.ask_only.forget(slot);
        let found = self.found(record_key(&self.owner, slot), hash).expect("its key names it");
        debug_assert_eq!(found.slot.slot, slot);
        let old = slot_of(&self.owner, slot);
        let renewed = sum.store(&mut self.owner);
        self.show_again(renewed, hash);
        self.note_moved(old, renewed);
        self.note_dump_moved(hash, old, renewed);
        let word = BucketSlot { generation_low: renewed.generation as u8, ..found.slot };
        self.table.replace(&mut self.owner, found.place, word);
    }
}

/// Byte offset of a value in the region.
fn value_offset(slot: u32, key: &[u8]) -> usize {
    slot as usize * SLOT_UNIT_BYTES + RECORD_HEADER_BYTES + key.len()
}
