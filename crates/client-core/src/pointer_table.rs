//! The pointers that all sessions of one user share on a machine (HydraDB 4.2.4, H28): a table in
//! memory that each of them writes.
//!
//! Invariant: `find` returns only a hint that some `put` stored for that very hash, whatever other
//! processes read, write, or die meanwhile (layout's `pointer_table` explains why). An operation
//! reads first and then makes its stores; no store waits for another process, and no earlier store
//! has to be undone. So a writer may be killed between any two stores: its line is the old hint,
//! the new one, or empty, and any later `put` may take it.
//!
//! A writer does not empty a line before it overwrites it: any mix of old and new already fails the
//! checksum. For the same reason the stores need no order among themselves. Two concurrent `put`s
//! of one hash may leave it in two lines, or lose both; the next client that asks the server
//! corrects it.

use crate::pointer_cache::{Entry, POPULAR_USES};
use crate::sync::Words;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{CACHE_LINE_BYTES, LEASE_CONFIG_MAX_S, POINTER_WINDOW_LINES};
use remora_layout::pointer::RemotePointer;
use remora_layout::pointer_table::{
    CHECKSUM_WORD, HASH_WORD, Hint, LINE_WORDS, USES_WORD, home_line,
};

/// Most stores of one operation: a hint with its uses, and emptying the other
/// lines of its window.
const MOST_STORES: usize = CHECKSUM_WORD + 2 + POINTER_WINDOW_LINES;
/// A lease that ends later than this from now is invalid.
const LONGEST_LEASE_NS: u64 = LEASE_CONFIG_MAX_S * 1_000_000_000;

/// One session's view of the table.
pub struct SharedPointers {
    pub(crate) words: Words,
    seed: u64,
    /// A power of two.
    pub(crate) lines: usize,
}

/// The stores of one operation, in their order: word and new content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stores {
    stores: [(usize, u64); MOST_STORES],
    length: usize,
}

impl Stores {
    const NONE: Self = Self { stores: [(0, 0); MOST_STORES], length: 0 };

    fn push(&mut self, word: usize, content: u64) {
        self.stores[self.length] = (word, content);
        self.length += 1;
    }

    pub(crate) fn as_slice(&self) -> &[(usize, u64)] {
        &self.stores[..self.length]
    }
}

impl SharedPointers {
    /// A view of the table in these words, whose checksums have this seed.
    ///
    /// # Panics
    /// The memory is not a power of two of lines, or less than a window.
    pub fn new(words: Words, seed: u64) -> Self {
        let lines = words.bytes() / CACHE_LINE_BYTES;
        assert!(lines.is_power_of_two() && lines >= POINTER_WINDOW_LINES);
        Self { words, seed, lines }
    }

    /// The lines that a hash may stand in.
    #[inline(always)]
    pub(crate) fn window(&self, hash: KeyHash) -> impl Iterator<Item = usize> + use<> {
        let (home, mask) = (home_line(hash, self.lines), self.lines - 1);
        (home..home + POINTER_WINDOW_LINES).map(move |line| line & mask)
    }

    #[inline(always)]
    fn hint_at(&self, line: usize) -> Option<Hint> {
        let mut bytes = [0u8; CACHE_LINE_BYTES];
        self.words.copy_out(line * CACHE_LINE_BYTES, &mut bytes);
        Hint::from_line(&bytes, self.seed)
    }

    /// The hint of this hash in this line.
    #[inline(always)]
    pub(crate) fn hint_of(&self, line: usize, hash: KeyHash) -> Option<Hint> {
        // One word excludes almost every other hash.
        if self.words.load(line * LINE_WORDS + HASH_WORD) != hash.0 {
            return None;
        }
        self.hint_at(line).filter(|hint| hint.hash == hash)
    }

    /// Asks for the home's line ahead of use.
    #[inline(always)]
    pub fn prefetch(&self, hash: KeyHash) {
        self.words.prefetch((home_line(hash, self.lines) * CACHE_LINE_BYTES) as u64);
    }

    /// The pointer of this hash. Any process may have written it: check that it can be followed,
    /// and validate the record.
    #[inline(always)]
    pub fn find(&self, hash: KeyHash) -> Option<Entry> {
        for line in self.window(hash) {
            let Some(hint) = self.hint_of(line, hash) else { continue };
            let entry = Entry::new(hash, hint.pointer, hint.term_ms, hint.lease_end_ns)?;
            return Some(entry.used(self.count_use(line)));
        }
        None
    }

    /// Counts a use, up to the number that makes a key popular: from then on clients only read its
    /// line, which stays in the caches of all cores.
    #[inline(always)]
    fn count_use(&self, line: usize) -> u8 {
        let word = line * LINE_WORDS + USES_WORD;
        let uses = self.words.load(word);
        if uses >= POPULAR_USES as u64 {
            return POPULAR_USES;
        }
        self.words.store(word, uses + 1);
        uses as u8 + 1
    }

    /// Puts a hint in place of the hash's former one, otherwise of an empty line or of one whose
    /// lease has ended by `now_ns`, otherwise of the one whose lease ends first.
    pub fn put(&self, hint: &Hint, now_ns: u64) {
        if hint.pointer.is_some() {
            self.store(&self.stores_of_put(hint, now_ns));
        }
    }

    /// Empties every line of this hash.
    pub fn remove(&self, hash: KeyHash) {
        self.store(&self.stores_of_emptying(hash, |_| true));
    }

    /// Empties the lines that still hold this pointer for this hash, unless its lease ends after
    /// `until_ns`.
    pub fn forget(&self, hash: KeyHash, pointer: RemotePointer, until_ns: u64) {
        let is_it = |hint: &Hint| hint.pointer == pointer && hint.lease_end_ns <= until_ns;
        self.store(&self.stores_of_emptying(hash, is_it));
    }

    fn store(&self, stores: &Stores) {
        for &(word, content) in stores.as_slice() {
            self.words.store(word, content);
        }
    }

    pub(crate) fn stores_of_put(&self, hint: &Hint, now_ns: u64) -> Stores {
        let leased = now_ns + 1..=now_ns.saturating_add(LONGEST_LEASE_NS);
        let rank = |line: usize| match self.hint_at(line) {
            Some(old) if old.hash == hint.hash => 0,
            Some(old) if leased.contains(&old.lease_end_ns) => old.lease_end_ns.max(2),
            _ => 1,
        };
        let chosen = self.window(hint.hash).min_by_key(|&line| rank(line));
        let chosen = chosen.expect("a window is not empty");
        let words = hint.to_words(self.seed);
        let mut stores = Stores::NONE;
        for (at, &content) in words[..CHECKSUM_WORD].iter().enumerate() {
            stores.push(chosen * LINE_WORDS + at, content);
        }
        stores.push(chosen * LINE_WORDS + USES_WORD, 0);
        stores.push(chosen * LINE_WORDS + CHECKSUM_WORD, words[CHECKSUM_WORD]);
        // Two concurrent writers may have stored the hash twice.
        for line in self.window(hint.hash).filter(|&line| line != chosen) {
            if self.hint_of(line, hint.hash).is_some() {
                stores.push(line * LINE_WORDS + CHECKSUM_WORD, 0);
            }
        }
        stores
    }

    pub(crate) fn stores_of_emptying(
        &self,
        hash: KeyHash,
        is_it: impl Fn(&Hint) -> bool,
    ) -> Stores {
        let mut stores = Stores::NONE;
        for line in self.window(hash) {
            if self.hint_of(line, hash).is_some_and(|hint| is_it(&hint)) {
                stores.push(line * LINE_WORDS + CHECKSUM_WORD, 0);
            }
        }
        stores
    }
}
