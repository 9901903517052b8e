//! The word with which a receiver announces that it sleeps.

use crate::words::Words;
use std::sync::atomic::AtomicU64;

/// One word of a region, which the sleeping thread sets and clears. It is the only word of an arena
/// that a thread may store to without its [`Owner`](crate::Owner), by
/// [`Region::asleep_word`](crate::Region::asleep_word).
pub struct AsleepWord {
    words: Words,
    index: usize,
}

impl AsleepWord {
    /// A word of this process's own mailbox.
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
