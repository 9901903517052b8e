//! The visited states of a search.

use super::calls::Calls;
use super::keys::{Moment, Value};
use std::collections::BTreeMap;

/// A set of calls, by their numbers.
pub(super) struct Done {
    /// Calls that returned, then from a word of their own on the others.
    words: Vec<u64>,
    known_words: usize,
    known: usize,
}

impl Done {
    pub(super) fn none_of(calls: &Calls) -> Self {
        let known_words = calls.known.div_ceil(64);
        let words = known_words + (calls.count_all() - calls.known).div_ceil(64);
        Self { words: vec![0; words], known_words, known: calls.known }
    }

    fn place(&self, number: usize) -> (usize, u64) {
        let bit =
            if number < self.known { number } else { number - self.known + self.known_words * 64 };
        (bit / 64, 1 << (bit % 64))
    }

    pub(super) fn has(&self, number: usize) -> bool {
        let (word, bit) = self.place(number);
        self.words[word] & bit != 0
    }

    pub(super) fn insert(&mut self, number: usize) {
        let (word, bit) = self.place(number);
        self.words[word] |= bit;
    }

    pub(super) fn remove(&mut self, number: usize) {
        let (word, bit) = self.place(number);
        self.words[word] &= !bit;
    }

    /// The returned calls that are in it, in short.
    fn known(&self) -> (usize, Box<[u64]>) {
        let words = &self.words[..self.known_words];
        let full = words.iter().take_while(|&&word| word == u64::MAX).count();
        let used = words.iter().rposition(|&word| word != 0).map_or(full, |last| last + 1);
        (full, words[full..used.max(full)].into())
    }

    fn unknown(&self) -> &[u64] {
        &self.words[self.known_words..]
    }
}

/// The returned calls that had taken effect, and the resulting state.
type SearchState = (usize, Box<[u64]>, Option<Value>);
/// The calls of unknown outcome that had taken effect, and the time.
type Spent = (Box<[u64]>, u64);

/// Places from which no explanation was found.
pub(super) struct Visited {
    places: BTreeMap<SearchState, Vec<Spent>>,
    /// Calls of unknown outcome that others may need to have taken effect.
    free: Vec<u64>,
}

impl Visited {
    pub(super) fn nowhere(calls: &Calls) -> Self {
        let mut free = Done::none_of(calls);
        (0..calls.count_all()).filter(|&at| calls[at].is_free).for_each(|at| free.insert(at));
        Self { places: BTreeMap::new(), free: free.unknown().to_vec() }
    }

    /// Whether the search has been here, or where all could be done that can be
    /// done here: at the same place, earlier, with less spent. Second: how
    /// many comparisons that took.
    pub(super) fn visit(&mut self, done: &Done, now: Moment) -> (bool, usize) {
        let (full, known) = done.known();
        let before = self.places.entry((full, known, now.state)).or_default();
        let spent = done.unknown();
        let covers = |(less, at_ns): &Spent| {
            let is_less = |((&less, &spent), &free): ((&u64, &u64), &u64)| {
                less & !spent == 0 && spent & !less & free == 0
            };
            *at_ns <= now.at_ns && less.iter().zip(spent).zip(&self.free).all(is_less)
        };
        let covered = before.iter().position(covers);
        let compared = covered.map_or(before.len(), |at| at + 1);
        if covered.is_none() {
            before.push((spent.into(), now.at_ns));
        }
        (covered.is_some(), compared)
    }
}
