//! Memory that the shard keeps on the heap beside the arena: tables by which types find parts of
//! objects, and data that has arrived and is to go into the arena. It counts in the shard's memory.
//!
//! Invariant: arena and heap together stay within the shard's memory, except for what one change
//! adds. The shard sets free pages of the arena aside, as many bytes as the heap takes, and gives
//! them out only after the heap has become smaller. If keys may be evicted, they make room. A
//! change that needs more of the heap is refused if there are no pages; a change that removes data
//! continues.

use remora_arena::Slots;
use remora_layout::limits::SPAN_BYTES;

/// Reserved pages, for the heap and for clients' unfinished operations.
#[derive(Default)]
pub(crate) struct Cover {
    /// Offsets of runs of `SPAN_BYTES`.
    runs: Vec<usize>,
    heap_bytes: u64,
    /// Reserved bytes for clients' unfinished operations ([`SetAside`]).
    aside_bytes: u64,
    /// Those of them for requests that come in pieces.
    pub requests_bytes: u64,
}

impl Cover {
    /// Bytes that are set aside.
    pub fn bytes(&self) -> u64 {
        (self.runs.len() * SPAN_BYTES) as u64
    }

    /// The heap's bytes at the last count.
    pub fn heap_bytes(&self) -> u64 {
        self.heap_bytes
    }

    /// Sets the heap's present bytes.
    pub fn set_heap_bytes(&mut self, bytes: u64) {
        self.heap_bytes = bytes;
    }

    /// Reserved bytes for clients' unfinished operations.
    pub fn aside_bytes(&self) -> u64 {
        self.aside_bytes
    }

    /// A run of `SPAN_BYTES` is set aside.
    pub fn add(&mut self, run: usize) {
        self.runs.push(run);
    }

    /// Gives a run back, if there is one.
    pub fn give_one(&mut self, slots: &mut Slots) {
        if let Some(run) = self.runs.pop() {
            slots.give_run(run, SPAN_BYTES);
        }
    }

    /// A run is set aside for one thing.
    pub fn add_aside(&mut self, aside: &mut SetAside, run: usize, bytes: usize) {
        aside.runs.push((run, bytes));
        self.aside_bytes += bytes as u64;
    }

    /// Frees the reservation of one thing.
    pub fn give_aside(&mut self, slots: &mut Slots, aside: &mut SetAside) {
        self.aside_bytes -= aside.bytes();
        for (run, bytes) in aside.runs.drain(..) {
            slots.give_run(run, bytes);
        }
    }
}

/// Pages of the arena that one thing on the heap has reserved, as many bytes as it takes. The owner
/// returns them to their shard, which counts them.
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
