//! What is kept on the heap beside the arena: tables by which types find parts of
//! objects, and what has come and is to go into the arena. It counts in the shard's
//! memory.
//!
//! What it keeps true: arena and heap together stay within the shard's memory, but
//! for what one change adds. The shard sets free pages of the arena aside, as many
//! bytes as the heap takes, and nobody gets them before the heap is smaller. Keys
//! make room where keys may go. A change that needs more of the heap is refused
//! where there are no pages; what takes away goes on.

use super::{Now, Store};
use remora_arena::Journal;
use remora_layout::limits::{COVER_TURN_RUNS, PAGE_BYTES, SPAN_BYTES};

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

/// Pages of the arena that one thing on the heap has set aside, as many bytes as it
/// takes. They are to be given back to their shard, which counts them.
#[must_use]
#[derive(Default, Debug)]
pub struct SetAside {
    /// Offset and bytes of each run.
    runs: Vec<(usize, usize)>,
}

impl SetAside {
    /// Bytes that are set aside.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|&(_, bytes)| bytes as u64).sum()
    }
}

impl<J: Journal> Store<J> {
    /// Sets pages aside until they are so many bytes. False if there are not so many:
    /// those that there were stay with it.
    pub(crate) fn set_aside(&mut self, aside: &mut SetAside, bytes: u64, now: Now) -> bool {
        let mut missing = bytes.saturating_sub(aside.bytes()) as usize;
        // Bounded: each turn sets pages aside.
        while missing > 0 {
            let run_bytes = missing.min(SPAN_BYTES).next_multiple_of(PAGE_BYTES);
            let may_be = self.policy.is_some() || self.free_bytes() >= run_bytes as u64;
            let run = may_be.then(|| self.make_run(run_bytes, now)).flatten();
            self.shed_thinned(now);
            let Some(run) = run else { return false };
            aside.runs.push((run, run_bytes));
            self.set_aside_bytes += run_bytes as u64;
            missing = missing.saturating_sub(run_bytes);
        }
        true
    }

    /// Gives back what was set aside.
    pub(crate) fn give_aside(&mut self, aside: &mut SetAside) {
        self.set_aside_bytes -= aside.bytes();
        for (run, bytes) in aside.runs.drain(..) {
            self.slots.give_run(run, bytes);
        }
    }

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
