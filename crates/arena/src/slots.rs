//! The allocator of an arena: small slots in spans, large ones in pages of
//! their own, generations, quarantine.
//!
//! What it keeps true:
//! * the generation at a place only grows, also when its page comes to hold
//!   slots of another class: each page has a floor, and what is carved from it
//!   starts above (decision 0011); a place whose generation would wrap is
//!   retired;
//! * a freed slot under a lease waits until the lease has ended, unless the
//!   quarantine is full or memory is: then the oldest are reused early, which
//!   generation and checksum make safe (design, "What a late reader may do");
//! * pages in which nothing is used serve any size again.

use crate::huge::HugeTable;
use crate::journal::Journal;
use crate::owner::Owner;
use crate::pages::{Pages, SPAN_PAGES};
use crate::quarantine::Quarantine;
use crate::size_class::{BUCKET_CLASS, SMALL_CLASSES, class_bytes, class_for, is_small};
use crate::spans::{Freed, Spans, capacity, span_of, tail_bytes};
use remora_layout::limits::{PAGE_BYTES, QUARANTINE_SHARE, SLOT_UNIT_BYTES};
use remora_layout::record::{Guardian, RECORD_HEADER_BYTES, State};
use std::collections::BTreeMap;
use std::ops::Range;

/// Slot units of a page.
pub(crate) const PAGE_UNITS: u32 = (PAGE_BYTES / SLOT_UNIT_BYTES) as u32;

/// A slot in somebody's hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Its number, in units of 16 bytes from the region's start.
    pub slot: u32,
    /// Its present generation.
    pub generation: u32,
    /// Its size class.
    pub class: u8,
}

/// Neither a free slot nor free pages are left that hold so many bytes.
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

/// Where the bytes of an arena are. All but `reused_early` add up to the pages
/// that the allocator was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotStats {
    /// Bytes of slots in use; large ones in whole pages.
    pub used_bytes: u64,
    /// Bytes of free slots in spans.
    pub free_bytes: u64,
    /// Bytes of slots that wait for a lease to end.
    pub quarantine_bytes: u64,
    /// Bytes of slots and pages whose generation is used up.
    pub retired_bytes: u64,
    /// Bytes of free pages.
    pub uncarved_bytes: u64,
    /// Bytes of runs that hold no records: the table's.
    pub run_bytes: u64,
    /// Bytes at the ends of spans, each too few for a slot.
    pub tail_bytes: u64,
    /// Slots reused before their lease had ended; a count.
    pub reused_early: u64,
}

impl SlotStats {
    /// Bytes of all the pages that the allocator was given.
    pub fn total_bytes(&self) -> u64 {
        self.used_bytes
            + self.free_bytes
            + self.quarantine_bytes
            + self.retired_bytes
            + self.uncarved_bytes
            + self.run_bytes
            + self.tail_bytes
    }
}

/// The allocator. It keeps numbers, and links in free slots; the memory is the
/// owner's.
pub struct Slots {
    pub(crate) pages: Pages,
    pub(crate) spans: Spans,
    /// Pages of each large slot, by its first page.
    pub(crate) large: BTreeMap<u32, u32>,
    /// The highest generation that ever stood in each page, when it was freed.
    floors: HugeTable<u32>,
    quarantine: Quarantine,
    quarantine_limit_bytes: u64,
    last_generation: u32,
    pub(crate) range: Range<u32>,
    /// Pages being emptied; what comes free there is held until the end.
    pub(crate) emptying: Option<Range<u32>>,
    pub(crate) held: Vec<(u32, u32)>,
    /// Bytes ever freed: whether trying again makes sense.
    pub(crate) freed_bytes: u64,
    stats: SlotStats,
}

impl Slots {
    /// An allocator over `from..to` of a region, in bytes; the pages that lie
    /// wholly inside, but for the region's first, as no slot has number 0.
    /// Those bytes are zero.
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
            quarantine_limit_bytes: range.len() as u64 * PAGE_BYTES as u64 / QUARANTINE_SHARE,
            last_generation,
            range,
            emptying: None,
            held: Vec::new(),
            freed_bytes: 0,
            stats: SlotStats::default(),
        }
    }

    /// At most so many bytes wait for leases; 0 leaves a sixteenth of all.
    pub fn with_quarantine_bytes(mut self, bytes: u64) -> Self {
        if bytes > 0 {
            self.quarantine_limit_bytes = bytes;
        }
        self
    }

    /// Where the bytes are.
    pub fn stats(&self) -> SlotStats {
        let held: u32 = self.held.iter().map(|&(_, pages)| pages).sum();
        let free_pages = (self.pages.free_pages() + held) as u64;
        SlotStats { uncarved_bytes: free_pages * PAGE_BYTES as u64, ..self.stats }
    }

    /// Bytes of the largest run of free pages.
    pub fn largest_run_bytes(&self) -> u64 {
        self.pages.largest_run() as u64 * PAGE_BYTES as u64
    }

    /// Takes a slot of at least so many bytes: its guardian is pending, under
    /// a new generation. `now_s` is the server's clock, in seconds.
    pub fn allocate<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        bytes: usize,
        now_s: u64,
    ) -> Result<Slot, ArenaFull> {
        let bytes = bytes.max(RECORD_HEADER_BYTES);
        match class_for(bytes) {
            Some(class) => self.allocate_class(owner, class, bytes, now_s),
            None => Err(self.full(bytes)),
        }
    }

    /// Takes a slot of [`BUCKET_CLASS`], for an overflow bucket.
    pub fn allocate_bucket<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        now_s: u64,
    ) -> Result<Slot, ArenaFull> {
        self.allocate_class(owner, BUCKET_CLASS, class_bytes(BUCKET_CLASS), now_s)
    }

    /// Takes a free slot of a larger class, up to `at_most_bytes`: when there
    /// is none of the right class, nor pages for one.
    pub fn allocate_larger<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        bytes: usize,
        at_most_bytes: usize,
    ) -> Result<Slot, ArenaFull> {
        let smallest = class_for(bytes.max(RECORD_HEADER_BYTES)).map_or(SMALL_CLASSES, usize::from);
        for class in smallest..SMALL_CLASSES {
            if class_bytes(class as u8) > at_most_bytes {
                break;
            }
            if let Some(slot) = self.take_small(owner, class as u8) {
                return Ok(slot);
            }
        }
        Err(self.full(bytes))
    }

    /// Takes pages for `bytes` that hold no record: the table's. Gives the
    /// byte offset. The memory may hold anything.
    pub fn take_run(&mut self, bytes: usize) -> Result<usize, ArenaFull> {
        let pages = u32::try_from(bytes.div_ceil(PAGE_BYTES)).map_err(|_| self.full(bytes))?;
        let first = self.take_pages(pages).ok_or_else(|| self.full(bytes))?;
        self.stats.run_bytes += pages as u64 * PAGE_BYTES as u64;
        Ok(first as usize * PAGE_BYTES)
    }

    /// Gives back a run of [`Slots::take_run`].
    pub fn give_run(&mut self, offset: usize, bytes: usize) {
        assert!(offset.is_multiple_of(PAGE_BYTES), "runs start at pages");
        let pages = bytes.div_ceil(PAGE_BYTES) as u32;
        self.stats.run_bytes -= pages as u64 * PAGE_BYTES as u64;
        self.give_pages((offset / PAGE_BYTES) as u32, pages);
    }

    /// Gives a slot back, its guardian dead. It is free at once, or when the
    /// lease ends that was given out until `lease_end_s`.
    pub fn release<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        slot: Slot,
        lease_end_s: Option<u64>,
        now_s: u64,
    ) {
        let bytes = self.bytes_of(slot);
        self.stats.used_bytes -= bytes;
        if slot.generation >= self.last_generation {
            self.stats.retired_bytes += bytes;
            if is_small(slot.class) {
                self.spans.retire(slot.slot);
            } else {
                self.large.remove(&(slot.slot / PAGE_UNITS));
            }
            return;
        }
        match lease_end_s {
            Some(end_s) if end_s > now_s => {
                if is_small(slot.class) {
                    self.spans.wait(slot.slot);
                }
                self.quarantine.push(slot, end_s);
                self.stats.quarantine_bytes += bytes;
                // Bounded: each turn takes a slot out.
                while self.stats.quarantine_bytes > self.quarantine_limit_bytes {
                    self.reuse_oldest(owner);
                }
            }
            _ => self.put_free(owner, slot, false),
        }
    }

    /// Bytes of record that a slot has room for: a reader that knows its class
    /// alone fetches no more.
    pub fn room(&self, slot: Slot) -> usize {
        class_bytes(slot.class).min(self.bytes_of(slot) as usize)
    }

    /// A slot in use under its next generation, for a record that begins anew
    /// in its place; `None` if the slot is not large, or its generations are
    /// used up. It is the owner's to write the guardian.
    pub fn renewed(&self, slot: Slot) -> Option<Slot> {
        let may = !is_small(slot.class) && slot.generation < self.last_generation;
        may.then(|| Slot { generation: slot.generation + 1, ..slot })
    }

    /// Frees the slots whose leases have ended.
    pub fn end_leases<J: Journal>(&mut self, owner: &mut Owner<J>, now_s: u64) {
        while let Some(slot) = self.quarantine.pop_ended(now_s) {
            self.stats.quarantine_bytes -= self.bytes_of(slot);
            self.put_free(owner, slot, true);
        }
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

    fn full(&self, bytes: usize) -> ArenaFull {
        ArenaFull { bytes, limit_bytes: self.range.len() as u64 * PAGE_BYTES as u64 }
    }

    fn allocate_class<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        class: u8,
        bytes: usize,
        now_s: u64,
    ) -> Result<Slot, ArenaFull> {
        if let Some(slot) = self.try_take(owner, class, bytes) {
            return Ok(slot);
        }
        self.end_leases(owner, now_s);
        // Bounded: each turn takes a slot out of the quarantine.
        loop {
            if let Some(slot) = self.try_take(owner, class, bytes) {
                return Ok(slot);
            }
            if !self.reuse_oldest(owner) {
                return Err(self.full(bytes));
            }
        }
    }

    fn try_take<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        class: u8,
        bytes: usize,
    ) -> Option<Slot> {
        if !is_small(class) {
            return self.take_large(owner, class, bytes.div_ceil(PAGE_BYTES) as u32);
        }
        if let Some(slot) = self.take_small(owner, class) {
            return Some(slot);
        }
        let take = |pages: &mut Pages| match class {
            BUCKET_CLASS => pages.take_fixed_span(),
            _ => pages.take_span(),
        };
        let first = take(&mut self.pages).or_else(|| {
            self.give_spares();
            take(&mut self.pages)
        })?;
        self.spans.open(first, class);
        self.stats.free_bytes += capacity(class) as u64 * class_bytes(class) as u64;
        self.stats.tail_bytes += tail_bytes(class);
        self.take_small(owner, class)
    }

    /// A free slot of this class, if there is one.
    fn take_small<J: Journal>(&mut self, owner: &mut Owner<J>, class: u8) -> Option<Slot> {
        let (number, carved) = self.spans.take(owner, class)?;
        let bytes = class_bytes(class);
        self.stats.free_bytes -= bytes as u64;
        let before = if carved {
            let units = (bytes / SLOT_UNIT_BYTES) as u32;
            self.floor(number / PAGE_UNITS, (number + units).div_ceil(PAGE_UNITS))
        } else {
            let word = owner.word(number as usize * (SLOT_UNIT_BYTES / 8));
            Guardian::from_word(word).expect("a freed slot has its guardian").generation
        };
        self.spans.given_out(number, before + 1);
        Some(self.begin(owner, number, before + 1, class, bytes as u64))
    }

    fn take_large<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        class: u8,
        pages: u32,
    ) -> Option<Slot> {
        let first = self.take_pages(pages)?;
        self.large.insert(first, pages);
        let before = self.floor(first, first + pages);
        let bytes = pages as u64 * PAGE_BYTES as u64;
        Some(self.begin(owner, first * PAGE_UNITS, before + 1, class, bytes))
    }

    fn begin<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        slot: u32,
        generation: u32,
        class: u8,
        bytes: u64,
    ) -> Slot {
        let guardian = Guardian { generation, state: State::Pending, class };
        owner.store(slot as usize * (SLOT_UNIT_BYTES / 8), guardian.to_word());
        // Nothing of the new record is visible before the new generation is.
        owner.release();
        self.stats.used_bytes += bytes;
        Slot { slot, generation, class }
    }

    fn put_free<J: Journal>(&mut self, owner: &mut Owner<J>, slot: Slot, waited: bool) {
        let bytes = self.bytes_of(slot);
        self.freed_bytes += bytes;
        if is_small(slot.class) {
            self.stats.free_bytes += bytes;
            if self.spans.free(owner, slot.slot, waited) == Freed::Empty {
                self.give_span(span_of(slot.slot));
            }
            return;
        }
        let first = slot.slot / PAGE_UNITS;
        let pages = self.large.remove(&first).expect("a large slot has pages");
        self.raise_floors(first, pages, slot.generation);
        self.give_pages(first, pages);
    }

    /// Ends the lease that ends first early. False if none is left.
    fn reuse_oldest<J: Journal>(&mut self, owner: &mut Owner<J>) -> bool {
        let Some(slot) = self.quarantine.pop_oldest() else { return false };
        self.stats.quarantine_bytes -= self.bytes_of(slot);
        self.stats.reused_early += 1;
        self.put_free(owner, slot, true);
        true
    }

    /// Bytes that a slot takes: its class's, or its pages'.
    fn bytes_of(&self, slot: Slot) -> u64 {
        if is_small(slot.class) {
            return class_bytes(slot.class) as u64;
        }
        let pages = self.large.get(&(slot.slot / PAGE_UNITS)).expect("a large slot has pages");
        *pages as u64 * PAGE_BYTES as u64
    }

    fn take_pages(&mut self, pages: u32) -> Option<u32> {
        if let Some(first) = self.pages.take(pages) {
            return Some(first);
        }
        self.give_spares();
        self.pages.take(pages)
    }

    /// Gives pages to whoever needs some, but for those that are being emptied.
    pub(crate) fn give_pages(&mut self, first: u32, pages: u32) {
        let end = first + pages;
        let window = self.emptying.clone().unwrap_or(end..end);
        let (from, to) = (window.start.clamp(first, end), window.end.clamp(first, end));
        if from < to {
            self.held.push((from, to - from));
            if first < from {
                self.pages.give(first, from - first);
            }
            if to < end {
                self.pages.give(to, end - to);
            }
        } else {
            self.pages.give(first, pages);
        }
    }

    /// Gives the pages of the spares of all classes.
    pub(crate) fn give_spares(&mut self) {
        for index in self.spans.take_spares() {
            self.give_span(index);
        }
    }

    /// Ends an empty span; its pages remember its generations.
    pub(crate) fn give_span(&mut self, index: u32) {
        let span = self.spans.close_for_good(index);
        let class = span.class().expect("a span has a class");
        self.stats.free_bytes -= capacity(class) as u64 * class_bytes(class) as u64;
        self.stats.tail_bytes -= tail_bytes(class);
        self.raise_floors(index * SPAN_PAGES, SPAN_PAGES, span.top_generation);
        self.give_pages(index * SPAN_PAGES, SPAN_PAGES);
    }

    fn raise_floors(&mut self, first: u32, pages: u32, generation: u32) {
        for floor in &mut self.floors[first as usize..(first + pages) as usize] {
            *floor = generation.max(*floor);
        }
    }

    /// The highest floor among pages. Below the last generation, as pages that
    /// reach it are never given back.
    fn floor(&self, first: u32, end: u32) -> u32 {
        self.floors[first as usize..end as usize].iter().copied().max().unwrap_or(0)
    }
}
