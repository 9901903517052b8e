//! Maps hashes to slots of the arena, with memory outside the arena: slots of records, or of leaves
//! by the objects in them.
//!
//! ```text
//!  a word for each record   | 32 bits of the hash | slot 32 |
//! ```
//! The hashed bytes are in the slot, and the table compares them there. A record takes 9 bytes for
//! each bucket, of which 7/16 to 7/8 are full: 10 to 21 bytes. A growing table is copied. So a
//! table with many records has parts: no command waits for the copy of a large one.

use hashbrown::HashTable;
use remora_layout::hash::mix;

/// Parts of a table with many records.
const PARTS: usize = 256;
/// Number of records from which a table has parts: below it a copy takes some 10 us, and the parts
/// themselves would take more memory than the records.
const WHOLE_RECORDS: u64 = 1024;

/// See the module's text.
pub struct SlotTable {
    parts: Box<[HashTable<u64>]>,
    records: u64,
    /// Bytes of the parts' tables.
    bytes: u64,
}

/// Goes through the hashes of a table's records in steps, between which the table may change.
///
/// Invariant: a sweep returns the hash of each record that is in the table from the sweep's
/// beginning to its end. Each step that begins a part of the table copies that part's hashes; so a
/// sweep ends, whatever is added meanwhile.
#[derive(Default)]
pub struct HashSweep {
    /// How many parts the table has, as far as it is known.
    parts: usize,
    /// The part that comes next.
    part: usize,
    /// The hashes of the part before it that are still to be returned.
    hashes: Vec<u32>,
}

impl HashSweep {
    /// The next hash; `None` at the end.
    pub fn next(&mut self, table: &SlotTable) -> Option<u32> {
        if self.parts != table.parts.len() {
            // The records have moved to other parts: that happens once, while they are few.
            *self = Self { parts: table.parts.len(), ..Self::default() };
        }
        while self.hashes.is_empty() && self.part < self.parts {
            let words = table.parts[self.part].iter();
            self.hashes.extend(words.map(|&word| (word >> 32) as u32));
            self.hashes.sort_unstable();
            self.hashes.dedup();
            self.part += 1;
        }
        self.hashes.pop()
    }
}

fn spread(word: u64) -> u64 {
    mix(word >> 32, 0)
}

fn word_of(hash: u32, slot: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(slot)
}

impl Default for SlotTable {
    fn default() -> Self {
        Self { parts: Box::new([HashTable::new()]), records: 0, bytes: 0 }
    }
}

impl SlotTable {
    /// An empty one with room for so many records.
    pub fn with_room(records: usize) -> Self {
        let parts = if records as u64 > WHOLE_RECORDS { PARTS } else { 1 };
        let room = records.div_ceil(parts);
        let parts: Box<[_]> = (0..parts).map(|_| HashTable::with_capacity(room)).collect();
        let bytes = parts.iter().map(|part| part.allocation_size() as u64).sum();
        Self { parts, records: 0, bytes }
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.records
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Bytes that it takes on the heap.
    pub fn heap_bytes(&self) -> u64 {
        self.bytes + size_of_val(&*self.parts) as u64
    }

    fn part(&self, hash: u32) -> usize {
        hash as usize % self.parts.len()
    }

    /// The slots of all records.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().flatten().map(|&word| word as u32)
    }

    /// In how many parts the table is.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The slots of the records in one part.
    pub fn slots_in(&self, part: usize) -> impl Iterator<Item = u32> {
        self.parts[part].iter().map(|&word| word as u32)
    }

    /// The slot of the record with this hash that `is_it` accepts.
    #[inline]
    pub fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let word = self.parts[self.part(hash)].find(spread(word_of(hash, 0)), |&word| {
            (word >> 32) as u32 == hash && is_it(word as u32)
        });
        word.map(|&word| word as u32)
    }

    /// Adds a record in this slot that is not in the table.
    pub fn insert(&mut self, hash: u32, slot: u32) {
        if self.records == WHOLE_RECORDS && self.parts.len() == 1 {
            self.part_up();
        }
        let (part, word) = (self.part(hash), word_of(hash, slot));
        let table = &mut self.parts[part];
        let before = table.allocation_size();
        table.insert_unique(spread(word), word, |&word| spread(word));
        self.bytes += (table.allocation_size() - before) as u64;
        self.records += 1;
    }

    /// Moves the record in the slot `from` to another one. Returns whether it was there.
    pub fn replace(&mut self, hash: u32, from: u32, to: u32) -> bool {
        let (part, word) = (self.part(hash), word_of(hash, from));
        let found = self.parts[part].find_mut(spread(word), |&known| known == word);
        found.map(|found| *found = word_of(hash, to)).is_some()
    }

    /// Removes the record in this slot. Returns whether it was there.
    pub fn remove(&mut self, hash: u32, slot: u32) -> bool {
        let (part, word) = (self.part(hash), word_of(hash, slot));
        let entry = self.parts[part].find_entry(spread(word), |&known| known == word);
        let is_there = entry.map(|entry| entry.remove()).is_ok();
        self.records -= u64::from(is_there);
        is_there
    }

    /// Takes out some records, for release.
    pub fn take_some(&mut self, most: usize) -> Vec<u32> {
        let mut taken = Vec::with_capacity(most.min(self.records as usize));
        for part in &mut self.parts {
            let more = most - taken.len();
            if more == 0 {
                break;
            }
            taken.extend(part.extract_if(|_| true).take(more).map(|word| word as u32));
            if part.is_empty() {
                // Looked through no more.
                self.bytes -= part.allocation_size() as u64;
                *part = HashTable::new();
            }
        }
        self.records -= taken.len() as u64;
        taken
    }

    /// The slots of all records with this hash.
    pub fn slots_of(&self, hash: u32) -> impl Iterator<Item = u32> {
        let part = &self.parts[self.part(hash)];
        let equal = part.iter_hash(spread(word_of(hash, 0)));
        equal.filter(move |&&word| (word >> 32) as u32 == hash).map(|&word| word as u32)
    }

    /// Distributes the records over parts.
    fn part_up(&mut self) {
        let mut parts: Box<[HashTable<u64>]> = (0..PARTS).map(|_| HashTable::new()).collect();
        for &word in self.parts.iter().flatten() {
            let part = (word >> 32) as usize % PARTS;
            parts[part].insert_unique(spread(word), word, |&word| spread(word));
        }
        self.bytes = parts.iter().map(|part| part.allocation_size() as u64).sum();
        self.parts = parts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn records_come_and_go_and_the_bytes_are_those_of_the_tables() {
        let (mut table, mut model, mut random) = (SlotTable::default(), BTreeSet::new(), 1);
        for _ in 0..40_000 {
            random = mix(random, 3);
            // Equal hashes are common.
            let (slot, hash) = ((random % 5_000) as u32, (random % 5_000 / 3) as u32);
            if !model.contains(&slot) {
                table.insert(hash, slot);
                model.insert(slot);
            } else if random >> 32 & 1 == 0 {
                assert!(table.remove(hash, slot) && !table.remove(hash, slot));
                model.remove(&slot);
            }
            if random >> 40 & 7 == 0 {
                assert_eq!(table.replace(hash, slot, slot + 5_000), model.contains(&slot));
                assert_eq!(table.replace(hash, slot + 5_000, slot), model.contains(&slot));
            }
            assert_eq!(table.find(hash, |known| known == slot).is_some(), model.contains(&slot));
            assert_eq!(table.find(hash, |_| false), None);
        }
        assert_eq!((table.len(), table.parts.len()), (model.len() as u64, PARTS));
        assert!(table.slots().collect::<BTreeSet<_>>() == model);
        let real = |table: &SlotTable| -> usize {
            let parts = table.parts.iter().map(HashTable::allocation_size).sum::<usize>();
            parts + size_of_val(&*table.parts)
        };
        assert_eq!(table.heap_bytes(), real(&table) as u64);
        while !table.is_empty() {
            let before = table.len();
            let taken = table.take_some(100);
            assert_eq!(taken.len() as u64, before.min(100));
            assert!(taken.iter().all(|slot| model.remove(slot)));
            assert_eq!(table.heap_bytes(), real(&table) as u64);
        }
        assert!(model.is_empty() && table.take_some(1).is_empty());
        let roomy = SlotTable::with_room(300_000);
        assert_eq!(roomy.heap_bytes(), real(&roomy) as u64);
    }

    /// A sweep returns every record that is there all the time, and ends, whatever comes and goes
    /// meanwhile; a table gets its parts under it.
    #[test]
    fn a_sweep_meets_every_record_that_stays() {
        for (kept, often) in [(1, 3), (900, 3), (30_000, 1), (30_000, 400)] {
            let mut table = SlotTable::default();
            let hash_of = |slot: u32| (mix(slot.into(), 5) >> 40) as u32;
            (0..kept).for_each(|slot| table.insert(hash_of(slot), slot));
            let (mut sweep, mut met, mut more) = (HashSweep::default(), BTreeSet::new(), 0);
            while let Some(hash) = sweep.next(&table) {
                met.extend(table.slots_of(hash));
                assert!(table.slots_of(hash).all(|slot| hash_of(slot % 1_000_000) == hash));
                // One that stays gets another slot, one comes, and one of those goes.
                let (moved, new) = (more * 7 % kept, 5_000_000 + more);
                table.replace(hash_of(moved), moved, moved + 1_000_000);
                table.insert(hash_of(new % 1_000_000), new);
                if more % often == 0 {
                    table.remove(hash_of(new % 1_000_000), new);
                }
                more += 1;
            }
            let stayed = met.iter().filter(|&&slot| slot < 2_000_000);
            let stayed: BTreeSet<u32> = stayed.map(|slot| slot % 1_000_000).collect();
            assert!((0..kept).all(|slot| stayed.contains(&slot)), "{kept} records");
            assert!(more <= 2 * kept + 50_000, "{more} steps");
        }
    }
}
