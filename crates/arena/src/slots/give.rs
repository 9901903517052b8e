//! Frees slots: into quarantine while a lease runs, then to the span or the pages that a slot came
//! from.

use super::{PAGE_UNITS, Slot, Slots};
use crate::journal::Journal;
use crate::owner::Owner;
use crate::pages::SPAN_PAGES;
use crate::size_class::{class_bytes, is_small};
use crate::spans::{Freed, capacity, span_of, tail_bytes};
use remora_layout::limits::PAGE_BYTES;

impl Slots {
    /// Frees a slot whose guardian is dead. The slot is free at once, or when the lease ends that
    /// was granted until `lease_end_s`.
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

    /// Frees the slots whose leases have ended.
    pub fn end_leases<J: Journal>(&mut self, owner: &mut Owner<J>, now_s: u64) {
        while let Some(slot) = self.quarantine.pop_ended(now_s) {
            self.stats.quarantine_bytes -= self.bytes_of(slot);
            self.put_free(owner, slot, true);
        }
    }

    /// As [`Slots::give_run`], for a run in which places had generations up to `top_generation`. A
    /// run whose generations are used up stays unused for good.
    pub fn give_places(&mut self, offset: usize, bytes: usize, top_generation: u32) {
        if top_generation >= self.last_generation {
            let kept = bytes.next_multiple_of(PAGE_BYTES) as u64;
            self.stats.run_bytes -= kept;
            self.stats.retired_bytes += kept;
            return;
        }
        let pages = bytes.div_ceil(PAGE_BYTES) as u32;
        self.raise_floors((offset / PAGE_BYTES) as u32, pages, top_generation);
        self.give_run(offset, bytes);
    }

    /// The last generation of a place: after it the allocator does not use the place again.
    pub fn last_generation(&self) -> u32 {
        self.last_generation
    }

    /// Gives back a run of [`Slots::take_run`].
    pub fn give_run(&mut self, offset: usize, bytes: usize) {
        assert!(offset.is_multiple_of(PAGE_BYTES), "runs start at pages");
        let pages = bytes.div_ceil(PAGE_BYTES) as u32;
        self.stats.run_bytes -= pages as u64 * PAGE_BYTES as u64;
        self.give_pages((offset / PAGE_BYTES) as u32, pages);
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

    /// Reuses early the slot whose lease ends first. Returns false if no slot waits.
    pub(super) fn reuse_oldest<J: Journal>(&mut self, owner: &mut Owner<J>) -> bool {
        let Some(slot) = self.quarantine.pop_oldest() else { return false };
        self.stats.quarantine_bytes -= self.bytes_of(slot);
        self.stats.reused_early += 1;
        self.put_free(owner, slot, true);
        true
    }

    /// Frees pages for any use, except those of the window that is being emptied.
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

    /// Frees the pages of the spares of all classes.
    pub(crate) fn give_spares(&mut self) {
        for index in self.spans.take_spares() {
            self.give_span(index);
        }
    }

    /// Ends an empty span; its pages keep their highest generation.
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
}
