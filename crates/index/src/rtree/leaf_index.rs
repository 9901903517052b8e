//! Maps an object's id to the leaf that holds its entry.
//!
//! ```text
//!  a word for each object   | 32 bits of the id's hash | slot of the leaf 32 |
//! ```
//! The id itself is in the leaf, and the index compares it there. Two ids of equal hash in one leaf
//! have equal words, and either word serves both ([`SlotTable`]).

use super::owned_node::entries_in;
use crate::slot_table::{HashSweep, SlotTable};
use remora_arena::{Journal, Owner};
use remora_layout::hash::mix;
use remora_layout::node::{Entry, NodeRef};

/// See the module's text.
pub(super) struct LeafIndex {
    /// Only this index knows which ids share a bucket.
    seed: u64,
    leaves: SlotTable,
    /// Ids that a change takes out of leaves, and puts into leaves.
    gone: Vec<(u64, u32)>,
    come: Vec<(u64, u32)>,
}

impl LeafIndex {
    /// No ids yet; room for so many.
    pub fn new(seed: u64, objects: usize) -> Self {
        let leaves = SlotTable::with_room(objects);
        Self { seed, leaves, gone: Vec::new(), come: Vec::new() }
    }

    /// Number of objects.
    pub fn objects(&self) -> u64 {
        self.leaves.len()
    }

    /// Bytes that the table takes.
    pub fn bytes(&self) -> u64 {
        self.leaves.heap_bytes()
    }

    fn hash(&self, id: u64) -> u32 {
        (mix(id, self.seed) >> 32) as u32
    }

    /// The slot of the leaf with an object, and the object's index there.
    pub fn leaf_of<J: Journal>(&self, owner: &Owner<J>, id: u64) -> Option<(u32, usize)> {
        let hash = self.hash(id);
        let mut index = None;
        let leaf = self.leaves.find(hash, |slot| {
            let leaf = NodeRef { slot, generation: 0 };
            index = entries_in(owner, leaf).iter().position(|entry| entry.word == id);
            index.is_some()
        });
        Some((leaf?, index?))
    }

    /// Gives some more objects of a sweep to `found`; false if there are no more. Twins may be
    /// given twice.
    pub fn sweep_some<J: Journal>(
        &self,
        owner: &Owner<J>,
        sweep: &mut HashSweep,
        mut found: impl FnMut(&Entry),
    ) -> bool {
        let Some(hash) = sweep.next(&self.leaves) else { return false };
        for slot in self.leaves.slots_of(hash) {
            let entries = entries_in(owner, NodeRef { slot, generation: 0 }).iter();
            entries.filter(|entry| self.hash(entry.word) == hash).for_each(&mut found);
        }
        true
    }

    /// Notes entries that leave a leaf, and that come into it; those that do
    /// both stay.
    pub fn note(&mut self, slot: u32, gone: &[Entry], come: &[Entry]) {
        // Most keep their positions.
        let both = gone.iter().zip(come).filter(|(old, new)| old.word != new.word);
        for (old, new) in both {
            self.gone.push((old.word, slot));
            self.come.push((new.word, slot));
        }
        let more = gone.len().min(come.len());
        self.gone.extend(gone[more..].iter().map(|entry| (entry.word, slot)));
        self.come.extend(come[more..].iter().map(|entry| (entry.word, slot)));
    }

    /// Takes over what was noted since the last time: all of one change, or
    /// some words would be missing.
    pub fn settle(&mut self) {
        let (mut gone, mut come) = (std::mem::take(&mut self.gone), std::mem::take(&mut self.come));
        // Looked for all at once: the processor waits for the memory of several at a time.
        let is_known = |&&(id, slot): &&(u64, u32)| {
            self.leaves.find(self.hash(id), |known| known == slot).is_some()
        };
        let known = gone.iter().filter(is_known).count();
        assert!(known == gone.len(), "an object's leaf is known");
        // An id is in each of them once.
        gone.sort_unstable_by_key(|&(id, _)| id);
        come.sort_unstable_by_key(|&(id, _)| id);
        let (mut olds, mut news) = (gone.drain(..).peekable(), come.drain(..).peekable());
        loop {
            match (olds.peek().copied(), news.peek().copied()) {
                (Some((old, from)), Some((new, to))) if old == new => {
                    self.replace(old, from, to);
                    olds.next();
                    news.next();
                }
                (Some((old, from)), new) if new.is_none_or(|(new, _)| old < new) => {
                    self.take(old, from);
                    olds.next();
                }
                (_, Some((new, to))) => {
                    self.add(new, to);
                    news.next();
                }
                _ => break,
            }
        }
        drop((olds, news));
        (self.gone, self.come) = (gone, come);
    }

    fn replace(&mut self, id: u64, from: u32, to: u32) {
        if from == to {
            return;
        }
        let is_known = self.leaves.replace(self.hash(id), from, to);
        assert!(is_known, "an object's leaf is known");
    }

    fn take(&mut self, id: u64, from: u32) {
        let is_known = self.leaves.remove(self.hash(id), from);
        assert!(is_known, "an object's leaf is known");
    }

    fn add(&mut self, id: u64, to: u32) {
        self.leaves.insert(self.hash(id), to);
    }

    /// Adds all objects of a new leaf; an id that is there already is refused,
    /// and told.
    pub fn add_leaf<J: Journal>(
        &mut self,
        owner: &Owner<J>,
        slot: u32,
        entries: &[Entry],
    ) -> Result<(), u64> {
        for (index, &Entry { word: id, .. }) in entries.iter().enumerate() {
            let hash = self.hash(id);
            let is_there = |leaf: u32| {
                let leaf = NodeRef { slot: leaf, generation: 0 };
                let known =
                    if leaf.slot == slot { &entries[..index] } else { entries_in(owner, leaf) };
                known.iter().any(|entry| entry.word == id)
            };
            if self.leaves.find(hash, is_there).is_some() {
                return Err(id);
            }
            self.add(id, slot);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_arena::NoJournal;
    use remora_layout::rect::Rect;
    use std::collections::BTreeMap;

    /// A leaf as the table looks into it.
    fn write(owner: &mut Owner<NoJournal>, slot: u32, ids: &[u64]) -> Vec<Entry> {
        let entries: Vec<Entry> =
            ids.iter().map(|&word| Entry { rect: Rect::default(), word }).collect();
        let at = NodeRef { slot, generation: 0 };
        let first = at.offset() / 8;
        owner.store(first + 3, entries.len() as u64);
        for (index, &id) in ids.iter().enumerate() {
            owner.store(first + 8 + index * 5 + 4, id);
        }
        entries
    }

    #[test]
    fn ids_of_equal_hash_are_told_apart_wherever_they_go() {
        // Ids whose 32 bits of hash are equal: among many at random some are.
        let ids = LeafIndex::new(7, 0);
        let mut by_hash: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for number in 0..400_000 {
            let id = mix(mix(number, 1), 2);
            by_hash.entry(ids.hash(id)).or_default().push(id);
        }
        let twins: Vec<Vec<u64>> = by_hash.into_values().filter(|ids| ids.len() > 1).collect();
        assert!(twins.len() > 5, "{}", twins.len());
        for twin in twins {
            let (a, b) = (twin[0], twin[1]);
            let mut owner = Owner::heap(1 << 16, NoJournal);
            let (left, right) = (64, 512);
            let mut ids = LeafIndex::new(7, 0);
            // Leaves before and after each change.
            let mut before = [vec![], vec![]];
            let changes: [[Vec<u64>; 2]; 7] = [
                [vec![a], vec![]],
                [vec![a, b], vec![]],
                [vec![b], vec![a]],
                [vec![a], vec![b]],
                [vec![9, a], vec![]],
                [vec![9], vec![a, b]],
                [vec![], vec![b]],
            ];
            for after in changes {
                for (slot, (old, new)) in [left, right].into_iter().zip(before.iter().zip(&after)) {
                    let gone = write(&mut owner, slot, old);
                    let come = write(&mut owner, slot, new);
                    ids.note(slot, &gone, &come);
                }
                ids.settle();
                for id in [a, b, 9] {
                    let place = [left, right].into_iter().zip(&after).find_map(|(slot, known)| {
                        known.iter().position(|&known| known == id).map(|index| (slot, index))
                    });
                    assert_eq!(ids.leaf_of(&owner, id), place, "{id} in {after:?}");
                }
                assert_eq!(ids.objects() as usize, after[0].len() + after[1].len());
                before = after;
            }
            // Loaded: twins are two objects, and neither is given twice.
            let mut ids = LeafIndex::new(7, 4);
            let pair = write(&mut owner, left, &[a, b]);
            assert_eq!(ids.add_leaf(&owner, left, &pair), Ok(()));
            let again = write(&mut owner, right, &[9, b]);
            assert_eq!(ids.add_leaf(&owner, right, &again), Err(b));
            let within = write(&mut owner, right, &[8, 10, 8]);
            assert_eq!(ids.add_leaf(&owner, right, &within), Err(8));
        }
    }

    #[test]
    fn an_object_takes_few_bytes() {
        let mut ids = LeafIndex::new(1, 0);
        for id in 0..300_000 {
            ids.add(id, 5);
        }
        assert!(ids.bytes() < 300_000 * 21, "{}", ids.bytes());
    }
}
