//! Ask-only records: long values that APPEND, SETRANGE and SETBIT change in
//! place (design, "Memory").
//!
//! ```text
//!            first long edit               not changed for a while, checksummed
//!   live, g ----------------> ask-only, g ---------------------> live, g + 1
//!                               |    ^
//!                               '----'  further edits, in place
//! ```
//! Invariants:
//! * The guardian says ask-only before the first byte changes, and live, under a new generation,
//!   only after the last checksum is in place. A reader that fetched while the guardian said live
//!   at g, and got some later bytes, fails the checksum under g, which covers lengths, key and
//!   value; without later bytes it has the value that was current when it began. A reader with a
//!   pointer of g after republication meets another generation, and asks. Leases need nothing more:
//!   the slot is not reused, and its later release still honours the lease in its mutable word.
//! * The shard's own commands always see the current value.
//! * A slot that a download has pinned is never changed: the record then continues in another slot.
//! * Only slots with pages of their own are changed in place. A record that outgrows its slot moves
//!   to another one, with slack if it grew, so that n bytes appended in small parts cost O(n)
//!   copied bytes.
//! * The log gets each edit as it is, as for records that are written anew.
//!
//! A record in a shard's table is ask-only exactly if it is in this list.

use super::clock::Now;
use remora_arena::{Journal, Owner, PieceSum, Slots, slot_of};
use remora_layout::hash::KeyHash;
use remora_layout::limits::REPUBLISH_AFTER_S;
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
        // A whole number of seconds has passed once the next second but one has begun.
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

    /// The record in this slot is gone, or no longer ask-only.
    pub fn forget(&mut self, slot: u32) {
        if self.by_slot.is_empty() {
            return;
        }
        if let Some(record) = self.by_slot.remove(&slot) {
            self.due.remove(&(record.due_s, slot));
        }
    }

    /// The record that waits longest, if it is due.
    pub fn next_due(&self, now: Now) -> Option<u32> {
        let &(due_s, slot) = self.due.first()?;
        (due_s <= now.since_start_s).then_some(slot)
    }

    /// Takes the checksum of a record that is due further, by `most` bytes. Gives the
    /// bytes taken, and at its end the checksum, with the hash of the record's key.
    /// `writer` is the arena's secret and its region.
    pub fn advance<J: Journal>(
        &mut self,
        (owner, slots): (&Owner<J>, &Slots),
        writer: (u64, u32),
        slot: u32,
        most: usize,
    ) -> (usize, Option<(PieceSum, KeyHash)>) {
        let record = self.by_slot.get_mut(&slot).expect("what is due is there");
        let sum = match &mut record.sum {
            Some(sum) => sum,
            none => {
                let Some(renewed) = slots.renewed(slot_of(owner, slot)) else {
                    // It stays ask-only, which is correct, if slow to read.
                    self.due.remove(&(record.due_s, slot));
                    return (0, None);
                };
                none.insert(PieceSum::begin(writer.0, writer.1, renewed))
            }
        };
        let taken = sum.advance(owner, most);
        if taken == most {
            return (taken, None);
        }
        let sum = record.sum.take().expect("it was just taken further");
        (taken, Some((sum, record.hash)))
    }
}
