//! Where a chain's chunks lie, in order: the owner's, on the heap, so that it finds any entry of a
//! long chain at once.
//!
//! Invariant: blocks of places, none of them empty; each block knows how many entries and bytes its
//! chunks have. So a chain of millions of entries is found in by some hundreds of steps, and its
//! chunks are dropped a block at a time.

use std::collections::VecDeque;

/// Places in a block, at most.
const BLOCK_PLACES: usize = 256;

/// One chunk of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its slot.
    pub slot: u32,
    /// Its entries.
    pub entries: u16,
    /// Its size class.
    pub class: u8,
}

/// Neighbouring chunks.
#[derive(Clone, Default, Debug)]
struct Block {
    places: VecDeque<Place>,
    entries: u64,
}

/// The position of a chunk in a directory. Any change of the directory voids it, but
/// [`Directory::set`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    block: usize,
    place: usize,
}

/// The chunks of a chain, in order.
#[derive(Clone, Default, Debug)]
pub struct Directory {
    blocks: VecDeque<Block>,
    chunks: usize,
    entries: u64,
}

impl Block {
    fn of(place: Place) -> Self {
        Self { entries: place.entries.into(), places: VecDeque::from([place]) }
    }
}

impl Directory {
    /// Bytes that directories take on the heap for so many chunks, about: beside a constant for each
    /// of them. The lists have twice the length that they need, at most.
    pub const fn heap_bytes(chunks: u64) -> u64 {
        let places = 2 * chunks * size_of::<Place>() as u64;
        places + chunks / (BLOCK_PLACES as u64 / 2) * size_of::<Block>() as u64
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.chunks
    }

    /// Number of entries.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The first chunk.
    pub fn first(&self) -> Option<At> {
        (!self.blocks.is_empty()).then_some(At { block: 0, place: 0 })
    }

    /// The last chunk.
    pub fn last(&self) -> Option<At> {
        let block = self.blocks.len().checked_sub(1)?;
        Some(At { block, place: self.blocks[block].places.len() - 1 })
    }

    /// The chunk at a position.
    pub fn get(&self, at: At) -> Place {
        self.blocks[at.block].places[at.place]
    }

    /// The position behind another.
    pub fn next(&self, at: At) -> Option<At> {
        if at.place + 1 < self.blocks[at.block].places.len() {
            return Some(At { place: at.place + 1, ..at });
        }
        (at.block + 1 < self.blocks.len()).then_some(At { block: at.block + 1, place: 0 })
    }

    /// The position before another.
    pub fn previous(&self, at: At) -> Option<At> {
        if at.place > 0 {
            return Some(At { place: at.place - 1, ..at });
        }
        let block = at.block.checked_sub(1)?;
        Some(At { block, place: self.blocks[block].places.len() - 1 })
    }

    /// The chunk that has the entry of this index, and the entry's number in it.
    pub fn find(&self, index: u64) -> Option<(At, usize)> {
        if index >= self.entries {
            return None;
        }
        let from_end = self.entries - 1 - index;
        if index <= from_end {
            let (block, index) = seek(self.blocks.iter().map(|block| block.entries), index)?;
            let places = self.blocks[block].places.iter().map(|place| place.entries.into());
            let (place, index) = seek(places, index)?;
            return Some((At { block, place }, index as usize));
        }
        let blocks = self.blocks.iter().rev().map(|block| block.entries);
        let (behind, from_end) = seek(blocks, from_end)?;
        let block = self.blocks.len() - 1 - behind;
        let places = &self.blocks[block].places;
        let (behind, from_end) = seek(places.iter().rev().map(|of| of.entries.into()), from_end)?;
        let place = places.len() - 1 - behind;
        Some((At { block, place }, places[place].entries as usize - 1 - from_end as usize))
    }

    /// The slots of the chunk at a position and those behind it that have so many entries.
    pub fn slots(&self, from: At, entries: u64) -> VecDeque<u32> {
        let (mut slots, mut left, mut at) = (VecDeque::new(), entries, Some(from));
        while let Some(here) = at.filter(|_| left > 0) {
            let place = self.get(here);
            slots.push_back(place.slot);
            left = left.saturating_sub(place.entries.into());
            at = self.next(here);
        }
        slots
    }

    /// Entries before the chunk at a position.
    pub fn entries_before(&self, at: At) -> u64 {
        let blocks = self.blocks.iter().take(at.block).map(|block| block.entries);
        let places = self.blocks[at.block].places.iter().take(at.place);
        blocks.sum::<u64>() + places.map(|place| u64::from(place.entries)).sum::<u64>()
    }

    /// All chunks, in order.
    pub fn iter(&self) -> impl Iterator<Item = Place> + '_ {
        self.blocks.iter().flat_map(|block| block.places.iter().copied())
    }

    /// Replaces a place.
    pub fn set(&mut self, at: At, place: Place) {
        let block = &mut self.blocks[at.block];
        let before = std::mem::replace(&mut block.places[at.place], place);
        let (before, after) = (u64::from(before.entries), u64::from(place.entries));
        block.entries = block.entries + after - before;
        self.entries = self.entries + after - before;
    }

    /// Adds a chunk before all others.
    pub fn push_front(&mut self, place: Place) {
        self.count(place);
        match self.blocks.front_mut() {
            Some(block) if block.places.len() < BLOCK_PLACES => {
                block.entries += u64::from(place.entries);
                block.places.push_front(place);
            }
            _ => self.blocks.push_front(Block::of(place)),
        }
    }

    /// Adds a chunk behind all others.
    pub fn push_back(&mut self, place: Place) {
        self.count(place);
        match self.blocks.back_mut() {
            Some(block) if block.places.len() < BLOCK_PLACES => {
                block.entries += u64::from(place.entries);
                block.places.push_back(place);
            }
            _ => self.blocks.push_back(Block::of(place)),
        }
    }

    fn count(&mut self, place: Place) {
        self.chunks += 1;
        self.entries += u64::from(place.entries);
    }

    /// Adds a chunk before the one at a position.
    pub fn insert(&mut self, at: At, place: Place) {
        self.count(place);
        let block = &mut self.blocks[at.block];
        block.entries += u64::from(place.entries);
        block.places.insert(at.place, place);
        if block.places.len() > BLOCK_PLACES {
            let places = block.places.split_off(BLOCK_PLACES / 2);
            let entries = places.iter().map(|place| u64::from(place.entries)).sum();
            block.entries -= entries;
            self.blocks.insert(at.block + 1, Block { places, entries });
        }
    }

    /// Takes the chunk at a position out.
    pub fn remove(&mut self, at: At) -> Place {
        let block = &mut self.blocks[at.block];
        let place = block.places.remove(at.place).expect("a position of this directory");
        block.entries -= u64::from(place.entries);
        if block.places.is_empty() {
            self.blocks.remove(at.block);
        }
        self.chunks -= 1;
        self.entries -= u64::from(place.entries);
        place
    }

    /// Takes chunks with up to `most` entries from the front, whole blocks as far as possible, into
    /// another directory, behind what that has. Returns how many entries they have.
    pub fn take_front(&mut self, most: u64, into: &mut Self) -> u64 {
        let mut taken = 0;
        while let Some(block) = self.blocks.front_mut() {
            if taken + block.entries <= most {
                let block = self.blocks.pop_front().expect("looked at above");
                taken += self.move_block(block, into);
                continue;
            }
            let first = block.places[0];
            if taken + u64::from(first.entries) > most {
                break;
            }
            taken += u64::from(first.entries);
            into.push_back(self.remove(At { block: 0, place: 0 }));
        }
        taken
    }

    /// As [`Directory::take_front`], from the end.
    pub fn take_back(&mut self, most: u64, into: &mut Self) -> u64 {
        let mut taken = 0;
        while let Some(block) = self.blocks.back_mut() {
            if taken + block.entries <= most {
                let block = self.blocks.pop_back().expect("looked at above");
                taken += self.move_block(block, into);
                continue;
            }
            let last = block.places[block.places.len() - 1];
            if taken + u64::from(last.entries) > most {
                break;
            }
            taken += u64::from(last.entries);
            let at = self.last().expect("it has a block");
            into.push_back(self.remove(at));
        }
        taken
    }

    /// Adds the chunks of another directory behind its own.
    pub fn append(&mut self, mut other: Self) {
        self.chunks += other.chunks;
        self.entries += other.entries;
        self.blocks.append(&mut other.blocks);
    }

    fn move_block(&mut self, block: Block, into: &mut Self) -> u64 {
        let (chunks, entries) = (block.places.len(), block.entries);
        self.chunks -= chunks;
        self.entries -= entries;
        into.chunks += chunks;
        into.entries += entries;
        into.blocks.push_back(block);
        entries
    }
}

/// The number of the part that has the element of this index, and its index there.
fn seek(counts: impl Iterator<Item = u64>, mut index: u64) -> Option<(usize, u64)> {
    for (part, count) in counts.enumerate() {
        if index < count {
            return Some((part, index));
        }
        index -= count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_testing::Random;

    fn check(directory: &Directory, model: &[Place]) {
        assert!(directory.iter().eq(model.iter().copied()));
        assert_eq!(directory.chunks(), model.len());
        let total: u64 = model.iter().map(|place| u64::from(place.entries)).sum();
        assert_eq!(directory.entries(), total);
        let mut index = 0;
        for (number, place) in model.iter().enumerate() {
            for within in [0, place.entries as usize - 1] {
                let (at, found) = directory.find(index + within as u64).unwrap();
                assert_eq!((directory.get(at), found), (*place, within), "chunk {number}");
            }
            index += u64::from(place.entries);
        }
        assert_eq!(directory.find(total), None);
        let mut at = directory.first();
        for place in model {
            assert_eq!(directory.get(at.unwrap()), *place);
            at = directory.next(at.unwrap());
        }
        assert_eq!(at, None);
    }

    #[test]
    fn a_directory_is_as_a_plain_list() {
        let mut random = Random::new(7);
        let (mut directory, mut model) = (Directory::default(), Vec::new());
        for slot in 0..6_000u32 {
            let entries = 1 + random.below(100) as u16;
            let place = Place { slot, entries, class: 3 };
            match random.below(10) {
                0..=2 => {
                    directory.push_back(place);
                    model.push(place);
                }
                3..=5 => {
                    directory.push_front(place);
                    model.insert(0, place);
                }
                6 | 7 if !model.is_empty() => {
                    let number = random.below(model.len() as u64) as usize;
                    let index =
                        model[..number].iter().map(|of: &Place| u64::from(of.entries)).sum();
                    directory.insert(directory.find(index).unwrap().0, place);
                    model.insert(number, place);
                }
                8 if !model.is_empty() => {
                    let number = random.below(model.len() as u64) as usize;
                    let index =
                        model[..number].iter().map(|of: &Place| u64::from(of.entries)).sum();
                    let (at, _) = directory.find(index).unwrap();
                    assert_eq!(directory.remove(at), model.remove(number));
                }
                _ if random.below(40) == 0 => {
                    let most = random.below(directory.entries() / 2 + 1);
                    let (mut out, mut taken, mut expected) = (Directory::default(), 0, Vec::new());
                    let front = random.below(2) == 0;
                    while let Some(place) = if front { model.first() } else { model.last() }
                        && taken + u64::from(place.entries) <= most
                    {
                        taken += u64::from(place.entries);
                        let number = if front { 0 } else { model.len() - 1 };
                        expected.push(model.remove(number));
                    }
                    let found = match front {
                        true => directory.take_front(most, &mut out),
                        false => directory.take_back(most, &mut out),
                    };
                    assert_eq!(
                        (found, out.entries(), out.chunks()),
                        (taken, taken, expected.len())
                    );
                    let mut slots: Vec<u32> = out.iter().map(|place| place.slot).collect();
                    let mut wanted: Vec<u32> = expected.iter().map(|place| place.slot).collect();
                    slots.sort_unstable();
                    wanted.sort_unstable();
                    assert_eq!(slots, wanted);
                }
                _ => {}
            }
            if slot % 300 == 0 {
                check(&directory, &model);
            }
        }
        check(&directory, &model);
    }
}
