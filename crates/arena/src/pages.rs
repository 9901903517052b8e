//! Runs of pages: spans and large records come from them.
//!
//! Invariants:
//! * no two free runs touch: the allocator joins neighbours when a run comes back;
//! * the allocator takes a run from the smallest free run that holds it, and of those from the one
//!   at the lowest address, so that equal histories give equal places;
//! * it cuts plain runs from the end of a free run and spans from its start, so that the two stay
//!   apart while there is room. Spans of overflow buckets come from the end too: like the table's
//!   runs they never move, and the less they are scattered, the longer a record can find room.

use remora_layout::limits::{PAGE_BYTES, SPAN_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Pages of a span. A span starts at a multiple of this many pages.
pub(crate) const SPAN_PAGES: u32 = (SPAN_BYTES / PAGE_BYTES) as u32;

/// The free pages of an arena, by number from the region's start.
pub(crate) struct Pages {
    /// Pages of each free run, by its first page.
    runs: BTreeMap<u32, u32>,
    /// (pages, first) of each free run.
    by_size: BTreeSet<(u32, u32)>,
    /// (whole spans inside, first) of each free run that holds a span.
    by_spans: BTreeSet<(u32, u32)>,
    free_pages: u32,
}

/// The first span that lies wholly in a run, and how many do.
fn spans_in(first: u32, pages: u32) -> (u32, u32) {
    let from = first.next_multiple_of(SPAN_PAGES);
    let to = (first + pages) / SPAN_PAGES * SPAN_PAGES;
    (from, to.saturating_sub(from) / SPAN_PAGES)
}

impl Pages {
    /// All of `range` is free.
    pub fn new(range: Range<u32>) -> Self {
        let mut pages = Self {
            runs: BTreeMap::new(),
            by_size: BTreeSet::new(),
            by_spans: BTreeSet::new(),
            free_pages: 0,
        };
        if !range.is_empty() {
            pages.insert(range.start, range.end - range.start);
        }
        pages
    }

    /// Pages in all free runs.
    pub fn free_pages(&self) -> u32 {
        self.free_pages
    }

    /// Pages of the largest free run.
    pub fn largest_run(&self) -> u32 {
        self.by_size.last().map_or(0, |&(pages, _)| pages)
    }

    /// Whether a span could be taken.
    pub fn holds_a_span(&self) -> bool {
        !self.by_spans.is_empty()
    }

    /// Takes a run of so many pages; gives its first.
    pub fn take(&mut self, pages: u32) -> Option<u32> {
        assert!(pages > 0, "a run has pages");
        let &(have, first) = self.by_size.range((pages, 0)..).next()?;
        let taken = first + have - pages;
        self.take_at(taken, pages);
        Some(taken)
    }

    /// Takes the pages of a span; gives the first, a multiple of [`SPAN_PAGES`].
    pub fn take_span(&mut self) -> Option<u32> {
        let &(_, first) = self.by_spans.first()?;
        let (taken, _) = spans_in(first, self.runs[&first]);
        self.take_at(taken, SPAN_PAGES);
        Some(taken)
    }

    /// Takes the pages of a span that will never be emptied: from the end of a free run, like plain
    /// runs.
    pub fn take_fixed_span(&mut self) -> Option<u32> {
        let &(spans, first) = self.by_spans.first()?;
        let (from, _) = spans_in(first, self.runs[&first]);
        let taken = from + (spans - 1) * SPAN_PAGES;
        self.take_at(taken, SPAN_PAGES);
        Some(taken)
    }

    /// Takes pages that all lie in one free run.
    pub fn take_at(&mut self, first: u32, pages: u32) {
        let (&run, &have) = self.runs.range(..=first).next_back().expect("in a free run");
        assert!(first + pages <= run + have, "in one free run");
        self.remove(run);
        if run < first {
            self.insert(run, first - run);
        }
        let (end, run_end) = (first + pages, run + have);
        if end < run_end {
            self.insert(end, run_end - end);
        }
    }

    /// Gives pages back.
    pub fn give(&mut self, first: u32, pages: u32) {
        assert!(pages > 0, "a run has pages");
        let (mut from, mut to) = (first, first + pages);
        if let Some((&run, &have)) = self.runs.range(..to).next_back() {
            assert!(run + have <= first || run >= to, "pages are given back once");
            if run + have == first {
                self.remove(run);
                from = run;
            }
        }
        if let Some(&have) = self.runs.get(&to) {
            self.remove(to);
            to += have;
        }
        self.insert(from, to - from);
    }

    /// The parts of free runs that lie in `range`, in order.
    pub fn free_in(&self, range: Range<u32>) -> impl Iterator<Item = (u32, u32)> + '_ {
        let before = self.runs.range(..range.start).next_back();
        let inside = self.runs.range(range.clone());
        before.into_iter().chain(inside).filter_map(move |(&first, &pages)| {
            let (from, to) = (first.max(range.start), (first + pages).min(range.end));
            (from < to).then(|| (from, to - from))
        })
    }

    fn insert(&mut self, first: u32, pages: u32) {
        self.runs.insert(first, pages);
        self.by_size.insert((pages, first));
        let (_, spans) = spans_in(first, pages);
        if spans > 0 {
            self.by_spans.insert((spans, first));
        }
        self.free_pages += pages;
    }

    fn remove(&mut self, first: u32) {
        let pages = self.runs.remove(&first).expect("a free run starts here");
        self.by_size.remove(&(pages, first));
        self.by_spans.remove(&(spans_in(first, pages).1, first));
        self.free_pages -= pages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const END: u32 = 400;
    const FIRST: u32 = 3;

    /// One flag for each page: the simple model of the same set.
    struct Bitmap {
        free: Vec<bool>,
    }

    impl Bitmap {
        fn runs(&self) -> Vec<(u32, u32)> {
            let mut runs: Vec<(u32, u32)> = Vec::new();
            for page in (0..END).filter(|&page| self.free[page as usize]) {
                match runs.last_mut() {
                    Some((first, pages)) if *first + *pages == page => *pages += 1,
                    _ => runs.push((page, 1)),
                }
            }
            runs
        }

        fn best_fit(&self, pages: u32) -> Option<u32> {
            let fitting = self.runs().into_iter().filter(|&(_, have)| have >= pages);
            fitting
                .min_by_key(|&(first, have)| (have, first))
                .map(|(first, have)| first + have - pages)
        }

        fn holds_a_span(&self) -> bool {
            (0..END / SPAN_PAGES).any(|span| {
                (span * SPAN_PAGES..(span + 1) * SPAN_PAGES).all(|page| self.free[page as usize])
            })
        }

        fn set(&mut self, first: u32, pages: u32, free: bool) {
            for page in first..first + pages {
                assert_ne!(self.free[page as usize], free, "page {page}");
                self.free[page as usize] = free;
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(steps in proptest::collection::vec((0u8..5, 1u32..60, 0usize..64), 1..300)) {
            let mut pages = Pages::new(FIRST..END);
            let free = (0..END).map(|page| page >= FIRST).collect();
            let mut oracle = Bitmap { free };
            let mut held: Vec<(u32, u32)> = Vec::new();
            for (what, want, which) in steps {
                match what {
                    0 => {
                        let expected = oracle.best_fit(want);
                        prop_assert_eq!(pages.take(want), expected);
                        if let Some(first) = expected {
                            oracle.set(first, want, false);
                            held.push((first, want));
                        }
                    }
                    1 | 4 => match if what == 1 { pages.take_span() } else { pages.take_fixed_span() } {
                        Some(first) => {
                            prop_assert!(first.is_multiple_of(SPAN_PAGES));
                            oracle.set(first, SPAN_PAGES, false);
                            held.push((first, SPAN_PAGES));
                        }
                        None => prop_assert!(!oracle.holds_a_span()),
                    },
                    _ if !held.is_empty() => {
                        let (first, count) = held.swap_remove(which % held.len());
                        oracle.set(first, count, true);
                        pages.give(first, count);
                    }
                    _ => {}
                }
                let runs: Vec<_> = pages.free_in(0..END).collect();
                prop_assert_eq!(&runs, &oracle.runs());
                let kept: Vec<_> = pages.runs.iter().map(|(&first, &count)| (first, count)).collect();
                prop_assert_eq!(&kept, &runs, "none is empty");
                prop_assert_eq!(pages.holds_a_span(), oracle.holds_a_span());
                prop_assert_eq!(pages.free_pages(), runs.iter().map(|&(_, count)| count).sum::<u32>());
                prop_assert_eq!(pages.largest_run(), runs.iter().map(|&(_, count)| count).max().unwrap_or(0));
                let part: Vec<_> = pages.free_in(50..90).collect();
                prop_assert!(part.iter().all(|&(first, count)| first >= 50 && count > 0 && first + count <= 90));
                let count = (50..90).filter(|&page| oracle.free[page]).count() as u32;
                prop_assert_eq!(part.iter().map(|&(_, count)| count).sum::<u32>(), count);
            }
        }
    }

    #[test]
    fn spans_that_stay_and_spans_that_move_keep_apart() {
        let mut pages = Pages::new(3..16 * SPAN_PAGES + 5);
        assert_eq!(pages.take_span(), Some(SPAN_PAGES));
        assert_eq!(pages.take_fixed_span(), Some(15 * SPAN_PAGES));
        assert_eq!(pages.take_fixed_span(), Some(14 * SPAN_PAGES));
        assert_eq!(pages.take_span(), Some(2 * SPAN_PAGES));
    }

    #[test]
    #[should_panic(expected = "given back once")]
    fn giving_back_twice_is_noticed() {
        let mut pages = Pages::new(0..64);
        let first = pages.take(4).unwrap();
        pages.give(first, 4);
        pages.give(first + 1, 2);
    }
}
