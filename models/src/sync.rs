//! What production's `crate::sync` modules give, made of loom's.

use remora_layout::limits::CACHE_LINE_BYTES;
use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

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

/// As `crossbeam_queue::ArrayQueue` with one sender and one receiver, and with no more
/// order between threads than it promises: a thread that takes an item sees the stores before it
/// was put. Crossbeam's own has full fences, which the protocols around it must not need.
pub struct ArrayQueue<T> {
    /// Items put and taken so far.
    put: AtomicU64,
    taken: AtomicU64,
    room: u64,
    /// No step of a model: what the counts say is there.
    items: Mutex<VecDeque<T>>,
}

impl<T> ArrayQueue<T> {
    /// Without items, with room for so many.
    pub fn new(room: usize) -> Self {
        let (put, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { put, taken, room: room as u64, items: Mutex::default() }
    }

    /// Puts an item, or gives it back if there is no room.
    pub fn push(&self, item: T) -> Result<(), T> {
        let put = self.put.load(Ordering::Relaxed);
        if put - self.taken.load(Ordering::Acquire) == self.room {
            return Err(item);
        }
        self.items.lock().unwrap_or_else(PoisonError::into_inner).push_back(item);
        self.put.store(put + 1, Ordering::Release);
        Ok(())
    }

    /// Takes the oldest item.
    pub fn pop(&self) -> Option<T> {
        let taken = self.taken.load(Ordering::Relaxed);
        if self.put.load(Ordering::Acquire) == taken {
            return None;
        }
        let item = self.items.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        self.taken.store(taken + 1, Ordering::Release);
        item
    }

    /// Whether there is no room, for the sender.
    pub fn is_full(&self) -> bool {
        self.put.load(Ordering::Relaxed) - self.taken.load(Ordering::Relaxed) == self.room
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
