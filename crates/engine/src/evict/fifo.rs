//! A queue of records: blocks of eight-byte entries.
//!
//! Invariant: entries leave in the order in which they came, whether or not a sweep removed some
//! between them.

use super::id::Id;
use std::collections::VecDeque;

/// Entries of a block: the work of one sweep, some microseconds.
const BLOCK_ENTRIES: usize = 128;

#[derive(Default)]
pub struct Fifo {
    blocks: VecDeque<Vec<Id>>,
    /// Entries of the first block that have left already.
    taken: usize,
    len: usize,
    /// Number of the first block since the beginning, and of the block that
    /// is swept next.
    first: u64,
    sweep: u64,
}

impl Fifo {
    /// Entries in it.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn push(&mut self, id: Id) {
        self.len += 1;
        match self.blocks.back_mut() {
            Some(block) if block.len() < BLOCK_ENTRIES => block.push(id),
            _ => {
                let mut block = Vec::with_capacity(BLOCK_ENTRIES);
                block.push(id);
                self.blocks.push_back(block);
            }
        }
    }

    pub fn pop(&mut self) -> Option<Id> {
        while let Some(block) = self.blocks.front() {
            if let Some(&id) = block.get(self.taken) {
                self.taken += 1;
                self.len -= 1;
                return Some(id);
            }
            self.blocks.pop_front();
            self.taken = 0;
            self.first += 1;
        }
        None
    }

    /// Drops entries that are not current from one block, the next block at each call.
    pub fn sweep_block(&mut self, is_current: impl Fn(Id) -> bool) {
        let mut at = self.sweep.saturating_sub(self.first) as usize;
        if at >= self.blocks.len() {
            at = 0;
        }
        let Some(block) = self.blocks.get_mut(at) else { return };
        if at == 0 {
            block.drain(..self.taken);
            self.taken = 0;
        }
        let before = block.len();
        block.retain(|&id| is_current(id));
        self.len -= before - block.len();
        let left = block.len();
        // The remaining entries move to the block before if it has room, so that no row of nearly
        // empty blocks remains.
        let has_room =
            at > 0 && self.blocks.get(at - 1).is_some_and(|b| b.len() + left <= BLOCK_ENTRIES);
        if has_room {
            let rest = self.blocks.remove(at).expect("it was just swept");
            self.blocks[at - 1].extend(rest);
            self.sweep = self.first + at as u64;
        } else {
            self.blocks[at].shrink_to_fit();
            self.sweep = self.first + at as u64 + 1;
        }
    }

    pub fn heap_bytes(&self) -> usize {
        let entries: usize = self.blocks.iter().map(Vec::capacity).sum();
        entries * size_of::<Id>() + self.blocks.capacity() * size_of::<Vec<Id>>()
    }
}

const _: () = assert!(size_of::<Id>() == 8);

#[cfg(test)]
mod tests {
    use super::*;
    use remora_testing::Random;

    fn id(slot: u32) -> Id {
        Id { slot, generation: slot ^ 7 }
    }

    #[test]
    fn order_is_kept_whatever_is_swept() {
        let mut fifo = Fifo::default();
        let mut oracle: VecDeque<u32> = VecDeque::new();
        let mut random = Random::new(1);
        let (mut next, mut swept) = (0, 0);
        for _ in 0..200_000 {
            match random.below(100) {
                0..=54 => {
                    fifo.push(id(next));
                    oracle.push_back(next);
                    next += 1;
                }
                55..=98 => assert_eq!(fifo.pop(), oracle.pop_front().map(id)),
                _ => {
                    // Dropped entries must be searched for, because sweeping chooses the block.
                    let drop = |slot: u32| slot.is_multiple_of(3) && slot.is_multiple_of(2);
                    let seen = std::cell::RefCell::new(Vec::new());
                    fifo.sweep_block(|id| {
                        seen.borrow_mut().push(id.slot);
                        !drop(id.slot)
                    });
                    let gone: Vec<u32> =
                        seen.into_inner().into_iter().filter(|&s| drop(s)).collect();
                    swept += gone.len();
                    oracle.retain(|slot| !gone.contains(slot));
                }
            }
            assert_eq!(fifo.len(), oracle.len());
        }
        assert!(swept > 1000, "{swept}");
    }

    #[test]
    fn sweeping_all_blocks_leaves_current_entries_only() {
        let mut fifo = Fifo::default();
        (0..10_000).for_each(|slot| fifo.push(id(slot)));
        let before = fifo.heap_bytes();
        for _ in 0..10_000usize.div_ceil(BLOCK_ENTRIES) {
            fifo.sweep_block(|id| id.slot.is_multiple_of(100));
        }
        assert_eq!(fifo.len(), 100);
        assert!(fifo.heap_bytes() < before / 10, "memory is given back");
    }
}
