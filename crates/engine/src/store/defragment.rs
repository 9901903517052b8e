//! Chooses the pages to empty when memory is free, but in pieces (decision 0011). The shard moves
//! the records (`room.rs`).
//!
//! Invariant: the cost of a call is bounded (limits `DEFRAGMENT_*`). After a failed call there is
//! no new one before about as many bytes were freed as it needed.

use remora_arena::{BUCKET_CLASS, Leave, Slots, Window, class_bytes};
use remora_layout::limits::{DEFRAGMENT_SCANS, SPAN_BYTES};

/// The purpose of the room.
#[derive(Clone, Copy)]
pub(crate) enum Room {
    /// A record of this many bytes, header included.
    Record { bytes: usize },
    /// An overflow bucket.
    Bucket,
}

impl Room {
    pub fn bytes(self) -> usize {
        match self {
            Room::Record { bytes } => bytes,
            Room::Bucket => class_bytes(BUCKET_CLASS),
        }
    }
}

/// Bytes that are free, in whatever pieces.
pub(crate) fn free_bytes(slots: &Slots) -> u64 {
    let stats = slots.stats();
    stats.free_bytes + stats.uncarved_bytes
}

/// The state of defragmentation.
#[derive(Default)]
pub(crate) struct Defragmenter {
    /// Where the next search for a window continues.
    cursor: u32,
    /// After a failure: bytes that must have been freed before the next try.
    not_before_freed_bytes: u64,
}

impl Defragmenter {
    /// Whether enough is free, if only it lay together, and anything has
    /// changed since it was tried without a result.
    pub fn may_try(&self, slots: &Slots, bytes: usize) -> bool {
        free_bytes(slots) >= bytes as u64 && slots.freed_bytes() >= self.not_before_freed_bytes
    }

    /// Notes that this much room could not be made.
    pub fn note_failure(&mut self, slots: &Slots, bytes: usize) {
        let wanted = bytes.max(SPAN_BYTES) as u64;
        self.not_before_freed_bytes = slots.freed_bytes() + wanted;
    }

    /// The window to empty next: the sparsest one for up to one span, otherwise the one with the
    /// fewest bytes. If records may be evicted, a window that moving alone cannot empty is allowed
    /// too.
    pub fn next_window(
        &mut self,
        slots: &Slots,
        bytes: usize,
        tried: &[Window],
        may_evict: bool,
    ) -> Option<Window> {
        let sparsest = slots.sparsest_span();
        let sparsest = sparsest.filter(|span| bytes <= SPAN_BYTES && !tried.contains(span));
        sparsest.or_else(|| self.cheapest(slots, bytes, tried, Leave::ByMove)).or_else(|| {
            may_evict.then(|| self.cheapest(slots, bytes, tried, Leave::Anyhow)).flatten()
        })
    }

    /// Whether evicting and moving could empty so many neighbouring pages.
    ///
    /// A record of more than a span needs one run of pages. The table and pinned records stay where
    /// they are. If they leave no run that is long enough, evictions free memory only between them,
    /// and the record does not fit however many keys go: the caller asks here before it evicts the
    /// first key. One call looks at 8 GiB at most ([`DEFRAGMENT_SCANS`]), and the next one continues
    /// behind them.
    pub fn has_window(&mut self, slots: &Slots, bytes: usize) -> bool {
        self.cheapest(slots, bytes, &[], Leave::Anyhow).is_some()
    }

    fn cheapest(
        &mut self,
        slots: &Slots,
        bytes: usize,
        tried: &[Window],
        leave: Leave,
    ) -> Option<Window> {
        let cursor = &mut self.cursor;
        (0..DEFRAGMENT_SCANS).find_map(|_| slots.cheapest_window(bytes, tried, leave, cursor))
    }
}
