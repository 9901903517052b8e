//! What production's `crate::sync` modules give, made of loom's.

use remora_layout::limits::CACHE_LINE_BYTES;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

pub use loom::sync::atomic::{AtomicU64, Ordering};

/// As the client's, and few: a combiner is to reach the bound.
pub const COMBINE_ROUNDS: usize = 2;

thread_local! {
    /// A control arm: fences of models that this thread runs do nothing.
    pub static WITHOUT_FENCES: Cell<bool> = const { Cell::new(false) };
}

/// A fence.
pub fn fence(order: Ordering) {
    if !WITHOUT_FENCES.get() {
        loom::sync::atomic::fence(order);
    }
}

/// As `remora_arena::Words`: memory that anybody changes at any time.
///
/// Loom follows the last access of each atomic only, and so would miss that a
/// store races with another thread's load if the storing thread has loaded the
/// word as well, which writers of hints do. So each access comes after a step
/// that conflicts with every other one. It orders nothing: it is relaxed.
#[derive(Clone)]
pub struct Words(Arc<Memory>);

struct Memory {
    /// The words that somebody writes; the rest is 0 for ever.
    written: Vec<AtomicU64>,
    first: usize,
    words: usize,
    step: AtomicU64,
}

impl Words {
    /// So many lines of zeros, of which only those of `written` may be written.
    /// To be called inside of a model.
    pub fn zeroed(lines: usize, written: Range<usize>) -> Self {
        const LINE_WORDS: usize = CACHE_LINE_BYTES / 8;
        Self(Arc::new(Memory {
            written: (0..written.len() * LINE_WORDS).map(|_| AtomicU64::new(0)).collect(),
            first: written.start * LINE_WORDS,
            words: lines * LINE_WORDS,
            step: AtomicU64::new(0),
        }))
    }

    fn written(&self, index: usize) -> Option<&AtomicU64> {
        assert!(index < self.0.words);
        let word = self.0.written.get(index.checked_sub(self.0.first)?)?;
        self.0.step.fetch_add(1, Ordering::Relaxed);
        Some(word)
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.words * 8
    }

    /// One word, relaxed.
    pub fn load(&self, index: usize) -> u64 {
        self.written(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// One word, relaxed.
    pub fn store(&self, index: usize, content: u64) {
        let word = self.written(index).expect("nobody was to write there");
        word.store(content, Ordering::Relaxed);
    }

    /// Words, each by itself, into bytes.
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) {
        for (at, chunk) in into.chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&self.load(offset / 8 + at).to_le_bytes());
        }
    }

    /// Nothing: a hint.
    pub fn prefetch(&self, _offset: u64) {}
}
