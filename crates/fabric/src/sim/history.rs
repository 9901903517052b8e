//! The earlier values of the words of a readable region: a READ is composed from them.
//!
//! The log holds for each store the value that it replaced. The values of a word in an interval are
//! its value at the end, and every value replaced since the beginning. The log keeps only stores
//! since the beginning of the oldest in-flight READ.

use super::random::Random;
use super::world::{SimWorld, lock};
use remora_arena::{Journal, ReadView};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

/// A store, as it may be undone.
struct Replaced {
    index: usize,
    old: u64,
}

#[derive(Default)]
pub(super) struct History {
    /// The present values of the words; a missing word holds 0.
    shadow: Vec<u64>,
    log: VecDeque<Replaced>,
    /// Stores since the region was made, less those still in the log.
    dropped: u64,
    /// READs under way: their number and the stores before their beginning.
    readers: BTreeMap<u64, u64>,
    next_reader: u64,
}

impl History {
    fn stored(&mut self, index: usize, value: u64) {
        if self.shadow.len() <= index {
            self.shadow.resize(index + 1, 0);
        }
        let old = std::mem::replace(&mut self.shadow[index], value);
        if self.readers.is_empty() {
            self.dropped += 1;
        } else {
            self.log.push_back(Replaced { index, old });
        }
    }

    /// A READ's effect begins.
    pub fn begin(&mut self) -> u64 {
        let reader = self.next_reader;
        self.next_reader += 1;
        self.readers.insert(reader, self.dropped + self.log.len() as u64);
        reader
    }

    /// A READ's effect is over, whatever it saw.
    pub fn end(&mut self, reader: u64) {
        self.readers.remove(&reader);
        let now = self.dropped + self.log.len() as u64;
        let oldest = self.readers.values().copied().min().unwrap_or(now);
        let unused = oldest - self.dropped;
        self.log.drain(..unused as usize);
        self.dropped = oldest;
    }

    /// Composes the result of a READ that ends now. `torn`: each word by itself; otherwise all
    /// words at one instant of the interval.
    pub fn compose(
        &self,
        reader: u64,
        words: &ReadView,
        offset: usize,
        bytes: usize,
        torn: bool,
        random: &mut Random,
    ) -> Vec<u8> {
        let mut shown = vec![0; bytes];
        words.copy_out(offset, &mut shown);
        let begun = (self.readers[&reader] - self.dropped) as usize;
        let range = offset / 8..(offset + bytes).div_ceil(8);
        // For each changed word its value before the store at each place.
        let mut changed: BTreeMap<usize, Vec<(usize, u64)>> = BTreeMap::new();
        for (place, store) in self.log.iter().enumerate().skip(begun) {
            if range.contains(&store.index) {
                changed.entry(store.index).or_default().push((place, store.old));
            }
        }
        let instants = (self.log.len() - begun) as u64 + 1;
        let instant = begun + random.below(instants) as usize;
        for (index, held) in changed {
            let value = if torn {
                held.get(random.below(held.len() as u64 + 1) as usize)
            } else {
                held.iter().find(|(place, _)| *place >= instant)
            };
            if let Some((_, old)) = value {
                let at = (index - range.start) * 8;
                let end = bytes.min(at + 8);
                shown[at..end].copy_from_slice(&old.to_le_bytes()[..end - at]);
            }
        }
        shown
    }
}

/// Told of every store in a readable region, by its owner.
#[derive(Clone, Default)]
pub struct SimJournal(pub(super) Arc<Mutex<History>>);

impl SimJournal {
    /// The journal of a fresh region.
    pub fn new() -> Self {
        Self::default()
    }

    /// A read by a thread that shares the owner's memory and uses no link. It begins now and ends
    /// when `last` returns. Until then a task may be suspended and the owner may continue. Its
    /// result is composed as that of a READ.
    pub fn read_beside(
        &self,
        world: &SimWorld,
        words: &ReadView,
        offset: usize,
        into: &mut [u8],
        last: impl FnOnce(),
    ) {
        let reader = lock(&self.0).begin();
        last();
        let torn = world.draw(|random| random.happens(world.options().tear_ppm));
        let mut history = lock(&self.0);
        let shown =
            world.draw(|random| history.compose(reader, words, offset, into.len(), torn, random));
        history.end(reader);
        into.copy_from_slice(&shown);
    }

    /// Stores that it keeps for READs under way.
    pub fn kept(&self) -> usize {
        lock(&self.0).log.len()
    }
}

impl Journal for SimJournal {
    const ACTIVE: bool = true;

    fn stored(&mut self, index: usize, value: u64) {
        lock(&self.0).stored(index, value);
    }

    /// No READ is bound by the order of stores inside it: the weakest fabric.
    fn fenced(&mut self) {}
}
