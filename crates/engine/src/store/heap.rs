//! What types keep on the heap beside the arena: tables by which they find parts
//! of objects. It counts in the shard's memory.
//!
//! What it keeps true: arena and heap together stay within the shard's memory, but
//! for what one change adds. The shard sets free pages of the arena aside, as many
//! bytes as the heap takes, and nobody gets them before the heap is smaller. Keys
//! make room where keys may go. A change that needs more of the heap is refused
//! where there are no pages; what takes away goes on.

use super::{Now, Store};
use remora_arena::Journal;
use remora_layout::limits::{COVER_TURN_RUNS, SPAN_BYTES};

/// Pages that are set aside.
#[derive(Default)]
pub(crate) struct Cover {
    /// Offsets of runs of `SPAN_BYTES`.
    runs: Vec<usize>,
    heap_bytes: u64,
}

impl Cover {
    /// Bytes that are set aside.
    pub fn bytes(&self) -> u64 {
        (self.runs.len() * SPAN_BYTES) as u64
    }

    /// What the heap was when it was looked at last.
    pub fn heap_bytes(&self) -> u64 {
        self.heap_bytes
    }
}

impl<J: Journal> Store<J> {
    /// Sets pages aside for so many bytes on the heap, or gives some back: some in
    /// each call. Less than a span is not worth it. False where there are no more.
    pub(crate) fn cover_heap(&mut self, heap_bytes: u64, now: Now) -> bool {
        self.cover.heap_bytes = heap_bytes;
        for _ in 0..COVER_TURN_RUNS {
            if heap_bytes < self.cover.bytes() {
                if let Some(run) = self.cover.runs.pop() {
                    self.slots.give_run(run, SPAN_BYTES);
                }
                continue;
            }
            if heap_bytes - self.cover.bytes() < SPAN_BYTES as u64 {
                return true;
            }
            let may_be = self.policy.is_some() || self.free_bytes() >= SPAN_BYTES as u64;
            let run = may_be.then(|| self.make_run(SPAN_BYTES, now)).flatten();
            self.shed_thinned(now);
            let Some(run) = run else { return false };
            self.cover.runs.push(run);
        }
        true
    }
}
