//! Whether every byte of the arena is where the books say.

use super::Shard;
use remora_arena::{BUCKET_CLASS, Journal, class_bytes, is_live, slot_of};
use remora_index::hash::record_key;
use remora_layout::limits::SLOT_UNIT_BYTES;
use std::collections::BTreeMap;

impl<J: Journal> Shard<J> {
    /// Compares what the table leads to with what the allocator has given out:
    /// no slot is in two hands, none is lost, none holds another key's record.
    /// To be called while nothing is uploaded; walks the whole table.
    ///
    /// # Errors
    /// What does not fit.
    pub fn audit(&self) -> Result<(), String> {
        let mut hands: BTreeMap<u64, u64> = BTreeMap::new();
        let mut keys = 0;
        for bucket in 0..self.table.buckets() {
            for (_, word) in self.table.places(&self.owner, bucket) {
                let slot = slot_of(&self.owner, word.slot);
                if self.table.bucket(self.hash(record_key(&self.owner, word.slot))) != bucket {
                    return Err(format!("bucket {bucket} leads to another bucket's key: {slot:?}"));
                }
                if is_live(&self.owner, word.slot) == self.ask_only.holds(word.slot) {
                    return Err(format!(
                        "a reachable record is neither live nor ask-only: {slot:?}"
                    ));
                }
                let from = word.slot as u64 * SLOT_UNIT_BYTES as u64;
                if hands.insert(from, from + self.slots.bytes_of(slot)).is_some() {
                    return Err(format!("two keys have one slot: {slot:?}"));
                }
                keys += 1;
            }
        }
        if let Some((one, two)) = hands.iter().zip(hands.iter().skip(1)).find(|(a, b)| a.1 > b.0) {
            return Err(format!("slots overlap: {one:?} and {two:?}"));
        }
        let records: u64 = hands.iter().map(|(from, to)| to - from).sum();
        let buckets = self.table.overflow_buckets() * class_bytes(BUCKET_CLASS) as u64;
        let pinned: u64 = self.pins.waiting().map(|slot| self.slots.bytes_of(slot)).sum();
        let trees = self.trees.totals().data_bytes;
        let members = self.geo.totals().data_bytes;
        let expected = records + buckets + pinned + trees + members;
        self.geo.audit(&self.owner, &self.slots)?;
        let stats = self.slots.stats();
        if stats.used_bytes != expected || keys != self.stats.keys {
            return Err(format!(
                "{keys} records of {records} bytes and {buckets} bytes of overflow buckets can be \
                 reached, trees have {trees} bytes of data, GEO keys {members}; the books say: {} keys, {stats:?}",
                self.stats.keys
            ));
        }
        if stats.total_bytes() != self.slots.range_bytes() {
            return Err(format!("of {} bytes: {stats:?}", self.slots.range_bytes()));
        }
        Ok(())
    }
}
