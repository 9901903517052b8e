//! Whether every byte of the arena is where the books say.

use super::Store;
use remora_arena::{BUCKET_CLASS, Journal, class_bytes, kind_of, slot_of, state_in};
use remora_layout::limits::SLOT_UNIT_BYTES;
use remora_layout::record::State;
use std::collections::BTreeMap;

impl<J: Journal> Store<J> {
    /// Compares what the table leads to, and the bytes that types say their
    /// objects' `parts` take, with what the allocator has given out: no slot is in
    /// two hands, none is lost, none holds another key's record, or a part.
    ///
    /// # Errors
    /// What does not fit.
    pub(crate) fn audit(&self, parts: u64) -> Result<(), String> {
        let mut hands: BTreeMap<u64, u64> = BTreeMap::new();
        let mut found = Vec::new();
        for bucket in 0..self.table.buckets() {
            for (_, word) in self.table.places(&self.owner, bucket) {
                let slot = slot_of(&self.owner, word.slot);
                if self.table.bucket(self.hash_in(word.slot)) != bucket {
                    return Err(format!("bucket {bucket} leads to another bucket's key: {slot:?}"));
                }
                if kind_of(&self.owner, word.slot).is_part() {
                    return Err(format!("bucket {bucket} leads to a part: {slot:?}"));
                }
                let is_withheld = self.lag.as_ref().is_some_and(|lag| lag.withholds(word.slot));
                let expected = match self.ask_only.holds(word.slot) {
                    true => State::AskOnly,
                    false if is_withheld => State::Pending,
                    false => State::Live,
                };
                if state_in(&self.owner, word.slot) != expected {
                    return Err(format!("a reachable record is not {expected:?}: {slot:?}"));
                }
                let from = word.slot as u64 * SLOT_UNIT_BYTES as u64;
                if hands.insert(from, from + self.slots.bytes_of(slot)).is_some() {
                    return Err(format!("two keys have one slot: {slot:?}"));
                }
                found.push(slot);
            }
        }
        if let Some((one, two)) = hands.iter().zip(hands.iter().skip(1)).find(|(a, b)| a.1 > b.0) {
            return Err(format!("slots overlap: {one:?} and {two:?}"));
        }
        let records: u64 = hands.iter().map(|(from, to)| to - from).sum();
        let buckets = self.table.overflow_buckets() * class_bytes(BUCKET_CLASS) as u64;
        let pinned: u64 = self.pins.waiting().map(|slot| self.slots.bytes_of(slot)).sum();
        let graves: u64 = self.graves.iter().map(|grave| self.slots.bytes_of(grave.root)).sum();
        let expected = records + buckets + pinned + graves + parts + self.loads_bytes();
        let stats = self.slots.stats();
        let keys = found.len() as u64;
        if stats.used_bytes != expected || keys != self.stats.keys {
            return Err(format!(
                "{keys} records of {records} bytes and {buckets} bytes of overflow buckets can be \
                 reached, objects have {parts} bytes beside; the books say: {} keys, {stats:?}",
                self.stats.keys
            ));
        }
        if stats.total_bytes() != self.slots.range_bytes() {
            return Err(format!("of {} bytes: {stats:?}", self.slots.range_bytes()));
        }
        self.audit_weights(&found)
    }
}
