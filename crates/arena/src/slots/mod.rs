//! The allocator of an arena: small slots in spans, large ones in pages of
//! their own, generations, quarantine.
//!
//! Invariants:
//! * the generation at a place only grows, even when its page is reused for slots of another class:
//!   each page has a floor, and slots carved from it start above the floor (decision 0011); the
//!   allocator retires a place whose generation would wrap;
//! * a freed slot under a lease waits until the lease has ended, unless the quarantine or memory is
//!   full: then the allocator reuses the oldest slots early, which generation and checksum make
//!   safe (design, "What a late reader may do");
//! * pages without a used slot serve any size again.

mod give;
mod lending;
mod reserve;
mod stats;
mod take;

pub use stats::SlotStats;

use crate::huge::HugeTable;
use crate::pages::Pages;
use crate::quarantine::Quarantine;
use crate::size_class::{class_bytes, is_small};
use crate::slot::Slot;
use crate::spans::Spans;
use remora_layout::limits::{PAGE_BYTES, QUARANTINE_SHARE, SLOT_UNIT_BYTES};
use reserve::Reserve;
use std::collections::BTreeMap;
use std::ops::Range;

/// Slot units of a page.
pub(crate) const PAGE_UNITS: u32 = (PAGE_BYTES / SLOT_UNIT_BYTES) as u32;

/// No free slot and no free pages hold so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "max_memory is reached: no {bytes} bytes are free among the {limit_bytes} of this shard; \
     raise max_memory or remove keys"
)]
pub struct ArenaFull {
    /// Bytes that were wanted.
    pub bytes: usize,
    /// Bytes of the arena that records may use.
    pub limit_bytes: u64,
}

/// The allocator. It keeps numbers, and links in free slots; the memory belongs to the owner.
pub struct Slots {
    pub(crate) pages: Pages,
    pub(crate) spans: Spans,
    /// Pages of each large slot, by its first page.
    pub(crate) large: BTreeMap<u32, u32>,
    /// The highest generation that each page had when it was freed.
    floors: HugeTable<u32>,
    quarantine: Quarantine,
    quarantine_limit_bytes: u64,
    last_generation: u32,
    pub(crate) range: Range<u32>,
    reserve: Reserve,
    /// Pages that are being emptied; slots freed there are held until the end.
    pub(crate) emptying: Option<Range<u32>>,
    pub(crate) held: Vec<(u32, u32)>,
    /// Bytes ever freed: a caller compares it to decide whether to try again.
    pub(crate) freed_bytes: u64,
    stats: SlotStats,
}

impl Slots {
    /// An allocator over `from..to` of a region, in bytes: the pages that lie wholly inside, except
    /// the region's first, as no slot has number 0. Those bytes are zero.
    pub fn new(from: usize, to: usize) -> Self {
        Self::with_last_generation(from, to, u32::MAX)
    }

    /// As [`Slots::new`], with a smaller last generation (tests, worlds), so
    /// that retirement happens often.
    pub fn with_last_generation(from: usize, to: usize, last_generation: u32) -> Self {
        let end = (to / PAGE_BYTES) as u32;
        let first = from.div_ceil(PAGE_BYTES).max(1) as u32;
        let range = first.min(end)..end;
        Self {
            pages: Pages::new(range.clone()),
            spans: Spans::new(end),
            large: BTreeMap::new(),
            floors: HugeTable::zeroed(end as usize),
            quarantine: Quarantine::default(),
            quarantine_limit_bytes: 0,
            last_generation,
            range,
            reserve: Reserve::default(),
            emptying: None,
            held: Vec::new(),
            freed_bytes: 0,
            stats: SlotStats::default(),
        }
        .with_quarantine_share()
    }

    /// Freed slots that wait for leases take a share of the memory.
    fn with_quarantine_share(self) -> Self {
        let quarantine_limit_bytes = self.limit_bytes() / QUARANTINE_SHARE;
        Self { quarantine_limit_bytes, ..self }
    }

    /// At most so many bytes wait for leases; 0 leaves a sixteenth of all.
    pub fn with_quarantine_bytes(mut self, bytes: u64) -> Self {
        if bytes > 0 {
            self.quarantine_limit_bytes = bytes;
        }
        self
    }

    /// How the bytes are used.
    pub fn stats(&self) -> SlotStats {
        let bytes = |pages: u32| u64::from(pages) * PAGE_BYTES as u64;
        let (reserve, free) = (&self.reserve, self.free_pages());
        let kept = free.min(reserve.keep_free);
        SlotStats {
            uncarved_bytes: bytes(free - kept),
            reserve_bytes: bytes(reserve.len() - reserve.lent + kept),
            lent_bytes: bytes(reserve.lent),
            ..self.stats
        }
    }

    /// Bytes of all the pages that it was given, the reserve's too.
    pub fn range_bytes(&self) -> u64 {
        self.range.len() as u64 * PAGE_BYTES as u64
    }

    /// Bytes of the largest run of free pages.
    pub fn largest_run_bytes(&self) -> u64 {
        self.pages.largest_run() as u64 * PAGE_BYTES as u64
    }

    /// Bytes of record that a slot has room for: a reader that knows only its class fetches no
    /// more.
    pub fn room(&self, slot: Slot) -> usize {
        class_bytes(slot.class).min(self.bytes_of(slot) as usize)
    }

    /// A slot in use under its next generation, for a new record in its place; `None` if the slot
    /// is not large, or its generations are used up. The owner has to write the guardian.
    pub fn renewed(&self, slot: Slot) -> Option<Slot> {
        let may = !is_small(slot.class) && slot.generation < self.last_generation;
        may.then(|| Slot { generation: slot.generation + 1, ..slot })
    }

    /// Whether some slots wait for their leases.
    pub fn has_quarantine(&self) -> bool {
        !self.quarantine.is_empty()
    }

    /// Bytes that may wait for leases.
    pub fn quarantine_limit_bytes(&self) -> u64 {
        self.quarantine_limit_bytes
    }

    /// Bytes freed since the start; only grows.
    pub fn freed_bytes(&self) -> u64 {
        self.freed_bytes
    }

    /// Bytes that a slot in use takes: its class's, or its pages'.
    pub fn bytes_of(&self, slot: Slot) -> u64 {
        if is_small(slot.class) {
            return class_bytes(slot.class) as u64;
        }
        let pages = self.large.get(&(slot.slot / PAGE_UNITS)).expect("a large slot has pages");
        *pages as u64 * PAGE_BYTES as u64
    }
}
