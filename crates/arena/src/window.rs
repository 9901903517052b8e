//! Windows: ranges of pages that the owner empties by moving their records elsewhere.
//!
//! Free memory in many small pieces does not serve a large record, and free slots of one class do
//! not serve another class. The owner moves records (it writes a copy elsewhere, flips the old
//! guardian to dead, and points the bucket's word to the copy). The allocator chooses the window:
//! the pages that cost the fewest bytes to empty.

use crate::journal::Journal;
use crate::owner::Owner;
use crate::pages::SPAN_PAGES;
use crate::slots::{PAGE_UNITS, Slots};
use crate::spans::Freed;
use remora_layout::limits::{DEFRAGMENT_SCAN_SPANS, PAGE_BYTES, SLOT_UNIT_BYTES};
use remora_layout::record::{Guardian, State};
use std::ops::Range;

/// Whole spans' worth of neighbouring pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    first_span: u32,
    spans: u32,
}

impl Window {
    /// Its parts of 64 KiB.
    pub fn spans(&self) -> impl Iterator<Item = Window> + use<> {
        (self.first_span..self.first_span + self.spans)
            .map(|first_span| Window { first_span, spans: 1 })
    }

    fn overlaps(&self, other: &Window) -> bool {
        self.first_span < other.first_span + other.spans
            && other.first_span < self.first_span + self.spans
    }

    fn pages(&self) -> Range<u32> {
        self.first_span * SPAN_PAGES..(self.first_span + self.spans) * SPAN_PAGES
    }
}

/// How the records of a window can leave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// Each needs a slot elsewhere.
    ByMove,
    /// The owner removes those that find no slot elsewhere.
    Anyhow,
}

/// The cost of emptying a span's worth of pages.
#[derive(Clone, Copy, Default)]
struct Cost {
    bytes: u64,
    /// Pages that are known to be free or movable.
    movable_pages: u32,
}

impl Slots {
    /// The span with the lowest share of slots in use that other spans, of its
    /// class or of one up to twice as large, have room for.
    pub fn sparsest_span(&self) -> Option<Window> {
        self.spans.sparsest().map(|first_span| Window { first_span, spans: 1 })
    }

    /// The window of at least so many bytes that costs the fewest bytes to empty, if any can be
    /// emptied and does not overlap `tried`. It looks at 1 GiB at most, from `cursor` on, and moves
    /// the cursor.
    pub fn cheapest_window(
        &self,
        bytes: usize,
        tried: &[Window],
        leave: Leave,
        cursor: &mut u32,
    ) -> Option<Window> {
        let wanted = bytes.div_ceil(PAGE_BYTES).div_ceil(SPAN_PAGES as usize);
        let (from, to) = (self.range.start.div_ceil(SPAN_PAGES), self.range.end / SPAN_PAGES);
        let looks = DEFRAGMENT_SCAN_SPANS.max(2 * wanted) as u32;
        let from = if to.saturating_sub(from) <= looks || !(from..to).contains(cursor) {
            from
        } else {
            *cursor
        };
        let end = from.saturating_add(looks).min(to);
        *cursor = end;
        if (end.saturating_sub(from) as usize) < wanted {
            return None;
        }
        let costs = self.costs(from..end, wanted as u32 * SPAN_PAGES, leave);
        let mut best: Option<(u64, Window)> = None;
        let (mut sum, mut fixed) = (0, 0);
        let is_fixed = |cost: &Cost| (cost.movable_pages < SPAN_PAGES) as usize;
        for (at, cost) in costs.iter().enumerate() {
            sum += cost.bytes;
            fixed += is_fixed(cost);
            if let Some(left) = at.checked_sub(wanted) {
                sum -= costs[left].bytes;
                fixed -= is_fixed(&costs[left]);
            }
            if at + 1 < wanted || fixed > 0 {
                continue;
            }
            let first_span = from + (at + 1 - wanted) as u32;
            let window = Window { first_span, spans: wanted as u32 };
            if best.is_none_or(|(cheapest, _)| sum < cheapest)
                && !tried.iter().any(|old| old.overlaps(&window))
            {
                best = Some((sum, window));
            }
        }
        best.map(|(_, window)| window)
    }

    /// The cost of emptying each of these spans' worth of pages, for a window of so many pages.
    fn costs(&self, spans: Range<u32>, window_pages: u32, leave: Leave) -> Vec<Cost> {
        let mut costs = vec![Cost::default(); spans.len()];
        let pages = spans.start * SPAN_PAGES..spans.end * SPAN_PAGES;
        let mut spread = |first: u32, count: u32, byte: u64| {
            let (mut page, end) = (first.max(pages.start), (first + count).min(pages.end));
            while page < end {
                let next = ((page / SPAN_PAGES + 1) * SPAN_PAGES).min(end);
                let cost = &mut costs[(page / SPAN_PAGES - spans.start) as usize];
                cost.movable_pages += next - page;
                cost.bytes += (next - page) as u64 * byte;
                page = next;
            }
        };
        for (first, count) in self.pages.free_in(pages.clone()) {
            spread(first, count, 0);
        }
        // A record as large as the wanted window would only change places with it, and a record
        // that fits no free run cannot leave.
        let room = self.pages.largest_run().min(self.available_pages());
        let largest = window_pages.saturating_sub(1).min(room);
        let before = self.large.range(..pages.start).next_back();
        for (&first, &count) in before.into_iter().chain(self.large.range(pages.clone())) {
            if count <= largest || leave == Leave::Anyhow {
                spread(first, count, PAGE_BYTES as u64);
            }
        }
        for (cost, index) in costs.iter_mut().zip(spans) {
            let span = self.spans.get(index);
            // If one span is wanted, there are no pages for another one.
            let has_span = self.pages.holds_a_span() && self.available_pages() >= SPAN_PAGES;
            let may_open = window_pages > SPAN_PAGES && has_span;
            let may_leave = may_open || leave == Leave::Anyhow;
            if span.is_movable() && (may_leave || self.spans.fits_elsewhere(index)) {
                *cost = Cost { bytes: span.used_bytes(), movable_pages: SPAN_PAGES };
            }
        }
        costs
    }

    /// From now until [`Slots::end_emptying`] the allocator takes nothing from the window.
    pub fn begin_emptying(&mut self, window: Window) {
        assert!(self.emptying.is_none(), "one window at a time");
        self.give_spares();
        let pages = window.pages();
        let free: Vec<(u32, u32)> = self.pages.free_in(pages.clone()).collect();
        for &(first, count) in &free {
            self.pages.take_at(first, count);
        }
        self.held = free;
        self.emptying = Some(pages);
        for index in window.first_span..window.first_span + window.spans {
            self.spans.close(index);
        }
    }

    /// The allocator uses the window's pages again; spans without used slots become free pages.
    pub fn end_emptying(&mut self) {
        let pages = self.emptying.take().expect("begun before");
        for (first, count) in std::mem::take(&mut self.held) {
            self.pages.give(first, count);
        }
        for index in pages.start / SPAN_PAGES..pages.end / SPAN_PAGES {
            if self.spans.reopen(index) == Freed::Empty {
                self.give_span(index);
            }
        }
    }

    /// The slots in use that reach into a window: pending or live.
    pub fn slots_in<J: Journal>(&self, owner: &Owner<J>, window: Window) -> Vec<u32> {
        let pages = window.pages();
        let before = self.large.range(..pages.start).next_back();
        let before = before.filter(|&(&first, &count)| first + count > pages.start);
        let large = before.into_iter().chain(self.large.range(pages));
        let small = window.first_span..window.first_span + window.spans;
        small
            .flat_map(|index| self.spans.carved(index))
            .chain(large.map(|(&first, _)| first * PAGE_UNITS))
            .filter(|&slot| {
                let word = owner.word(slot as usize * (SLOT_UNIT_BYTES / 8));
                Guardian::from_word(word).is_some_and(|found| found.state != State::Dead)
            })
            .collect()
    }
}

// Miri would take long: nothing here touches raw memory.
#[cfg(all(test, not(miri)))]
mod tests;
