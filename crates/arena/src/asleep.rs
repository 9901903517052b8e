//! The word by which a receiver says that it sleeps.

use crate::words::Words;
use std::sync::atomic::AtomicU64;

/// One word of a region, which its sleeper sets and clears: the only word of an
/// arena that is stored to past its [`Owner`](crate::Owner), by
/// [`Region::asleep_word`](crate::Region::asleep_word).
pub struct AsleepWord {
    words: Words,
    index: usize,
}

impl AsleepWord {
    /// A word of a mailbox of one's own.
    ///
    /// # Panics
    /// The mailbox has no such word.
    pub fn new(words: Words, index: usize) -> Self {
        let _ = words.word(index);
        Self { words, index }
    }

    /// The word.
    #[inline(always)]
    pub fn word(&self) -> &AtomicU64 {
        self.words.word(self.index)
    }
}
