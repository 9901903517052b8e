//! Allocates slots: from the wanted class, otherwise from pages, otherwise from slots that wait for
//! a lease.

use super::{ArenaFull, PAGE_UNITS, Slot, Slots};
use crate::journal::Journal;
use crate::owner::Owner;
use crate::pages::Pages;
use crate::pages::SPAN_PAGES;
use crate::size_class::{BUCKET_CLASS, SMALL_CLASSES, class_bytes, class_for, is_small};
use crate::spans::{capacity, tail_bytes};
use remora_layout::limits::{PAGE_BYTES, SLOT_UNIT_BYTES};
use remora_layout::record::{Guardian, RECORD_HEADER_BYTES, State};

impl Slots {
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

    /// Takes a free slot of a larger class, up to `at_most_bytes`, if there is none of the right
    /// class and no pages for one.
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

    /// Takes pages for `bytes` that hold no record: the table's. Returns the byte offset. The
    /// memory may hold anything.
    pub fn take_run(&mut self, bytes: usize) -> Result<usize, ArenaFull> {
        let pages = u32::try_from(bytes.div_ceil(PAGE_BYTES)).map_err(|_| self.full(bytes))?;
        let first = self.take_pages(pages).ok_or_else(|| self.full(bytes))?;
        self.stats.run_bytes += pages as u64 * PAGE_BYTES as u64;
        Ok(first as usize * PAGE_BYTES)
    }

    /// The highest generation that ever stood in the pages of a run: a caller that carves places
    /// with generations from the run begins above it.
    pub fn run_floor(&self, offset: usize, bytes: usize) -> u32 {
        let first = (offset / PAGE_BYTES) as u32;
        self.floor(first, first + bytes.div_ceil(PAGE_BYTES) as u32)
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
        let first = self.take_from(SPAN_PAGES, take).or_else(|| {
            self.give_spares();
            self.take_from(SPAN_PAGES, take)
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

    fn take_pages(&mut self, pages: u32) -> Option<u32> {
        let take = |free: &mut Pages| free.take(pages);
        self.take_from(pages, take).or_else(|| {
            self.give_spares();
            self.take_from(pages, take)
        })
    }

    /// The highest floor among pages. Below the last generation, as pages that
    /// reach it are never given back.
    fn floor(&self, first: u32, end: u32) -> u32 {
        self.floors[first as usize..end as usize].iter().copied().max().unwrap_or(0)
    }

    fn full(&self, bytes: usize) -> ArenaFull {
        ArenaFull { bytes, limit_bytes: self.limit_bytes() }
    }
}
