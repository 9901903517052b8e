//! The parts of an object whose names are numbers, by number: the owner's, on the heap. So it
//! finds such a part without its table, which readers use.
//!
//! Invariant: a part stands here exactly while the object's table leads to it.

/// Numbers in a block: no turn copies more of them when there are more numbers.
const BLOCK: usize = 1_024;

/// Slots by number.
#[derive(Default)]
pub(super) struct Numbered {
    /// All of [`BLOCK`] numbers, but for the last one. 0: there is no such part.
    blocks: Vec<Vec<u32>>,
    bytes: u64,
}

impl Numbered {
    /// The slot of the part with this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<u32> {
        let number = number as usize;
        let block = self.blocks.get(number / BLOCK)?;
        block.get(number % BLOCK).copied().filter(|slot| *slot != 0)
    }

    /// The part with this number is in this slot now; 0: it is gone. The numbers of an object are
    /// dense. Returns by how many bytes the heap has grown.
    pub fn set(&mut self, number: u32, slot: u32) -> u64 {
        let number = number as usize;
        let block = self.blocks.get_mut(number / BLOCK);
        match block.and_then(|block| block.get_mut(number % BLOCK)) {
            Some(place) => {
                *place = slot;
                0
            }
            None => self.add(number, slot),
        }
    }

    fn add(&mut self, number: usize, slot: u32) -> u64 {
        let (block, place) = (number / BLOCK, number % BLOCK);
        let lists = self.blocks.capacity();
        self.blocks.resize_with(self.blocks.len().max(block + 1), Vec::new);
        let mut grown = (self.blocks.capacity() - lists) * size_of::<Vec<u32>>();
        for (at, slots) in self.blocks.iter_mut().enumerate().rev() {
            let wanted = if at == block { place + 1 } else { BLOCK };
            if slots.len() >= wanted {
                break;
            }
            let before = slots.capacity();
            slots.reserve_exact(wanted.next_power_of_two() - slots.len());
            slots.resize(wanted, 0);
            grown += (slots.capacity() - before) * size_of::<u32>();
        }
        self.blocks[block][place] = slot;
        self.bytes += grown as u64;
        grown as u64
    }

    /// How many parts stand here.
    pub fn count(&self) -> u64 {
        self.blocks.iter().flatten().filter(|slot| **slot != 0).count() as u64
    }

    /// Bytes on the heap.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Numbered};
    use std::collections::BTreeMap;

    #[test]
    fn what_was_set_last_is_found_and_its_bytes_are_counted() {
        let (mut numbered, mut oracle, mut bytes) = (Numbered::default(), BTreeMap::new(), 0);
        assert_eq!((numbered.get(0), numbered.bytes()), (None, 0));
        for step in 0..3 * BLOCK as u32 {
            for (number, slot) in [(step, step + 1), (step / 2, if step % 3 == 0 { 0 } else { 7 })]
            {
                bytes += numbered.set(number, slot);
                oracle.insert(number, slot);
            }
        }
        for number in 0..4 * BLOCK as u32 {
            let expected = oracle.get(&number).copied().filter(|slot| *slot != 0);
            assert_eq!(numbered.get(number), expected, "{number}");
        }
        let count = oracle.values().filter(|slot| **slot != 0).count() as u64;
        assert_eq!((numbered.bytes(), numbered.count()), (bytes, count));
        assert!(bytes < 16 * BLOCK as u64, "{bytes} bytes for {} numbers", 3 * BLOCK);
    }
}
