//! Windows against a map of pages: the content of each page, and whether it can leave.

use super::*;
use crate::records::flip_dead;
use crate::size_class::{BUCKET_CLASS, SMALL_CLASSES, class_bytes, is_small};
use crate::slot::Slot;
use crate::spans::{capacity, span_of};
use remora_layout::limits::{SPAN_BYTES, SPARSE_LOOKS};
use remora_testing::Random;
use std::collections::BTreeMap;

const BYTES: usize = 3 << 20;
const SPANS: u32 = (BYTES / SPAN_BYTES) as u32;
/// The first pages, which do not belong to the allocator.
const FROM: usize = 5000;

/// The content of a page.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Free,
    /// A part of a large slot of so many pages.
    Large(u32),
    /// The page's span holds small slots.
    Span,
    /// A page of the table, or outside the allocator.
    Fixed,
}

/// An arena and what was taken from it.
struct Arena {
    owner: Owner,
    slots: Slots,
    /// Slots in use, with the bytes that were asked for.
    held: BTreeMap<u32, (Slot, usize)>,
    /// Pages of the table's runs.
    runs: Vec<Range<u32>>,
}

impl Arena {
    fn new() -> Self {
        let owner = Owner::heap(BYTES, crate::NoJournal);
        let slots = Slots::new(FROM, BYTES);
        Self { owner, slots, held: BTreeMap::new(), runs: Vec::new() }
    }

    fn allocate(&mut self, bytes: usize) -> Option<Slot> {
        let slot = self.slots.allocate(&mut self.owner, bytes, 0).ok()?;
        self.held.insert(slot.slot, (slot, bytes));
        Some(slot)
    }

    fn free(&mut self, number: u32) {
        self.held.remove(&number).expect("it is held");
        let dead = flip_dead(&mut self.owner, number);
        self.slots.release(&mut self.owner, dead, None, 0);
    }

    /// Fills the arena with a mix, then frees a part; the remaining records are scattered.
    fn fill(&mut self, random: &mut Random) {
        const SIZES: [usize; 9] = [64, 80, 96, 700, 3000, 8192, 9000, 40_000, 150_000];
        let first = random.bits() as usize % 9;
        let spread = 1 + random.bits() as usize % [1, 3, 9][random.bits() as usize % 3];
        for step in 0..20_000 {
            let bytes = SIZES[(first + random.bits() as usize % spread) % 9];
            if self.allocate(bytes).is_none() {
                break;
            }
            if step % 512 == 100
                && let Ok(offset) = self.slots.take_run(10_000)
            {
                let page = (offset / PAGE_BYTES) as u32;
                self.runs.push(page..page + 3);
            }
            if step % 512 == 200
                && let Ok(slot) = self.slots.allocate_bucket(&mut self.owner, 0)
            {
                self.held.insert(slot.slot, (slot, class_bytes(BUCKET_CLASS)));
            }
        }
        let (some, stay) = (30 + random.bits() % 90, random.bits() % 100);
        let few = some / (1 + random.bits() % 50);
        for number in self.held.keys().copied().collect::<Vec<_>>() {
            let is_bucket = self.held[&number].0.class == BUCKET_CLASS;
            // Some spans are thinned out more than others, some all empty.
            let share = if span_of(number) as u64 * 37 % 100 < stay { some } else { few };
            if !is_bucket && random.bits() % 100 >= share {
                self.free(number);
            }
        }
    }

    /// What lies on each page now.
    fn map(&self) -> Map {
        let mut spans = BTreeMap::new();
        for (slot, _) in self.held.values().filter(|(slot, _)| is_small(slot.class)) {
            spans.entry(span_of(slot.slot)).or_insert((slot.class, 0)).1 += 1;
        }
        let mut pages = vec![On::Fixed; self.slots.range.end as usize];
        pages[self.slots.range.start as usize..].fill(On::Free);
        for run in &self.runs {
            pages[run.start as usize..run.end as usize].fill(On::Fixed);
        }
        for &span in spans.keys() {
            pages[(span * SPAN_PAGES) as usize..][..SPAN_PAGES as usize].fill(On::Span);
        }
        for (slot, bytes) in self.held.values().filter(|(slot, _)| !is_small(slot.class)) {
            let (first, count) = (slot.slot / PAGE_UNITS, bytes.div_ceil(PAGE_BYTES) as u32);
            pages[first as usize..(first + count) as usize].fill(On::Large(count));
        }
        let free_runs = pages.split(|&on| on != On::Free).map(<[On]>::len);
        let longest_free = free_runs.max().expect("split gives one at least") as u32;
        let mut aligned = pages.chunks_exact(SPAN_PAGES as usize);
        let has_free_span = aligned.any(|span| span.iter().all(|&on| on == On::Free));
        Map { pages, spans, longest_free, has_free_span }
    }
}

/// The content of all pages.
struct Map {
    pages: Vec<On>,
    /// Class and slots in use of each span in which some are.
    spans: BTreeMap<u32, (u8, u32)>,
    longest_free: u32,
    has_free_span: bool,
}

impl Map {
    fn used_bytes(&self, span: u32) -> u64 {
        let (class, used) = self.spans[&span];
        used as u64 * class_bytes(class) as u64
    }

    /// Whether other spans of a span's class, or of one up to twice as large,
    /// have free slots for all that is in it.
    fn fits_elsewhere(&self, span: u32) -> bool {
        let (class, used) = self.spans[&span];
        let others = self.spans.iter().filter(|&(&other, &(of, _))| {
            let fits = (class..SMALL_CLASSES as u8).contains(&of);
            other != span && fits && class_bytes(of) <= 2 * class_bytes(class)
        });
        let room: u32 = others.map(|(_, &(of, used))| capacity(of) as u32 - used).sum();
        class != BUCKET_CLASS && room >= used
    }

    /// Bytes that have to leave a window; `None` if something there cannot.
    fn cost(&self, window: Window, leave: Leave) -> Option<u64> {
        let wanted = window.spans * SPAN_PAGES;
        let mut cost = 0;
        for at in window.pages() {
            let (span, by_move) = (at / SPAN_PAGES, leave == Leave::ByMove);
            match self.pages[at as usize] {
                On::Free => {}
                On::Fixed => return None,
                On::Large(count) if by_move && (count > self.longest_free || count >= wanted) => {
                    return None;
                }
                On::Large(_) => cost += PAGE_BYTES as u64,
                On::Span if at % SPAN_PAGES > 0 => {}
                On::Span => {
                    let may_open = wanted > SPAN_PAGES && self.has_free_span;
                    let has_place = may_open || self.fits_elsewhere(span);
                    if self.spans[&span].0 == BUCKET_CLASS || (by_move && !has_place) {
                        return None;
                    }
                    cost += self.used_bytes(span);
                }
            }
        }
        Some(cost)
    }
}

fn windows(spans: u32) -> impl Iterator<Item = Window> {
    (1..=SPANS.saturating_sub(spans)).map(move |first_span| Window { first_span, spans })
}

#[test]
fn the_cheapest_window_is_the_one_with_least_in_it() {
    let mut random = Random::new(0x1234_5678);
    let (mut found, mut none, mut by_move) = (0, 0, 0);
    for _ in 0..60 {
        let mut arena = Arena::new();
        arena.fill(&mut random);
        let map = arena.map();
        for bytes in [1, SPAN_BYTES, SPAN_BYTES + 1, 200_000, 500_000, 2 * BYTES] {
            for leave in [Leave::ByMove, Leave::Anyhow] {
                let wanted = bytes.div_ceil(SPAN_BYTES) as u32;
                let mut tried: Vec<Window> = Vec::new();
                for _ in 0..3 {
                    let overlap = |one: &Window, other: &Window| {
                        one.pages().any(|page| other.pages().contains(&page))
                    };
                    let best = windows(wanted)
                        .filter(|window| !tried.iter().any(|old| overlap(old, window)))
                        .filter_map(|window| Some((map.cost(window, leave)?, window.first_span)))
                        .min();
                    let got = arena.slots.cheapest_window(bytes, &tried, leave, &mut 0);
                    let expected = best.map(|(_, first_span)| Window { first_span, spans: wanted });
                    assert_eq!(got, expected, "{leave:?} {bytes}: {best:?}");
                    let Some(window) = got else {
                        none += 1;
                        break;
                    };
                    found += 1;
                    by_move += (leave == Leave::ByMove && best.unwrap().0 > 0) as u32;
                    tried.push(window);
                }
            }
        }
    }
    assert!(found > 500 && none > 100 && by_move > 50, "{found} {none} {by_move}");
}

/// Whether there is a sparsest span, and whether the rule alone decides which.
fn check_sparsest(arena: &Arena) -> (bool, bool) {
    let map = arena.map();
    let fits = |span: u32| {
        let (class, used) = map.spans[&span];
        used < capacity(class) as u32 && map.fits_elsewhere(span)
    };
    let candidates = map.spans.keys().filter(|&&span| fits(span));
    let expected = candidates.map(|&span| (map.used_bytes(span), span)).min();
    let got = arena.slots.sparsest_span();
    let got = got.map(|window| (map.used_bytes(window.first_span), window.first_span));
    assert_eq!(got.is_some(), expected.is_some());
    assert!(got.is_none_or(|(_, span)| fits(span)));
    // It looks at a few of each class.
    let mut of_class = [0; 256];
    map.spans.values().for_each(|&(class, _)| of_class[class as usize] += 1);
    let is_exact = of_class.iter().all(|&spans| spans <= SPARSE_LOOKS);
    assert!(!is_exact || got == expected, "{got:?} {expected:?}");
    (got.is_some(), is_exact)
}

#[test]
fn the_sparsest_span_has_the_fewest_bytes_of_those_that_fit_elsewhere() {
    let mut random = Random::new(99);
    let (mut exact, mut none) = (0, 0);
    for _ in 0..200 {
        let mut arena = Arena::new();
        arena.fill(&mut random);
        let (is_some, is_exact) = check_sparsest(&arena);
        exact += (is_some && is_exact) as u32;
        none += !is_some as u32;
    }
    assert!(exact > 20 && none > 5, "{exact} {none}");
}

#[test]
fn what_reaches_into_a_window_leaves_it_and_the_window_is_one_run() {
    let mut random = Random::new(4711);
    let (mut emptied, mut partly) = (0, 0);
    for round in 0..150u32 {
        let mut arena = Arena::new();
        arena.fill(&mut random);
        let total = arena.slots.stats().total_bytes();
        let spans = 1 + round % 5;
        let first_span = 1 + random.bits() as u32 % (SPANS - spans);
        let window = Window { first_span, spans };
        let can_empty = arena.map().cost(window, Leave::Anyhow).is_some();
        let parts: Vec<u32> = window.spans().flat_map(|part| part.pages()).collect();
        assert_eq!(parts, window.pages().collect::<Vec<_>>());
        let reach = |&(slot, bytes): &(Slot, usize)| {
            let end = slot.slot as usize * SLOT_UNIT_BYTES + bytes;
            let pages = slot.slot / PAGE_UNITS..end.div_ceil(PAGE_BYTES) as u32;
            pages.start < window.pages().end && window.pages().start < pages.end
        };
        let reaching = |arena: &Arena| -> Vec<u32> {
            let held = arena.held.values().filter(|held| reach(held));
            held.map(|(slot, _)| slot.slot).collect()
        };
        let slots_in = |arena: &Arena| {
            let mut inside = arena.slots.slots_in(&arena.owner, window);
            inside.sort_unstable();
            inside
        };
        assert_eq!(slots_in(&arena), reaching(&arena));
        arena.slots.begin_emptying(window);
        let stays = if round % 3 == 0 { 2 } else { u64::MAX };
        for number in slots_in(&arena) {
            let (slot, bytes) = arena.held[&number];
            if slot.class == BUCKET_CLASS || random.bits().is_multiple_of(stays) {
                continue;
            }
            // The owner removes a record that finds no slot elsewhere.
            if let Some(copy) = arena.allocate(bytes) {
                assert!(!reach(&(copy, bytes)), "nothing is taken from the window");
            }
            arena.free(number);
            assert_eq!(arena.slots.stats().total_bytes(), total);
        }
        assert_eq!(slots_in(&arena), reaching(&arena), "what stayed");
        // Meanwhile the allocator takes nothing from the window, even if it is empty, and records
        // elsewhere come and go.
        for _ in 0..random.bits() % 30_000 {
            let Some(slot) = arena.allocate(64) else { break };
            assert!(!reach(&(slot, 64)));
        }
        for number in arena.held.keys().copied().collect::<Vec<_>>() {
            let is_bucket = arena.held[&number].0.class == BUCKET_CLASS;
            if !is_bucket && !reach(&arena.held[&number]) && random.bits() % 100 < 3 {
                arena.free(number);
            }
        }
        arena.slots.end_emptying();
        assert_eq!(arena.slots.stats().total_bytes(), total);
        check_sparsest(&arena);
        arena.slots.take_run(2 * BYTES).unwrap_err(); // gives the pages of spares
        let free: Vec<_> = arena.slots.pages.free_in(window.pages()).collect();
        let is_empty = free == [(window.pages().start, spans * SPAN_PAGES)];
        assert_eq!(is_empty, can_empty && reaching(&arena).is_empty(), "all of it, in one run");
        (emptied, partly) = (emptied + is_empty as u32, partly + !is_empty as u32);
    }
    assert!(emptied > 40 && partly > 20, "{emptied} {partly}");
}

#[test]
fn a_large_arena_is_looked_at_a_part_at_a_time() {
    const SCAN: u32 = DEFRAGMENT_SCAN_SPANS as u32;
    let small = Slots::new(0, 10 * SPAN_BYTES);
    let whole = small.cheapest_window(9 * SPAN_BYTES, &[], Leave::ByMove, &mut 0);
    assert_eq!(whole, Some(Window { first_span: 1, spans: 9 }));
    assert_eq!(small.cheapest_window(10 * SPAN_BYTES, &[], Leave::ByMove, &mut 0), None);
    // Numbers only: nothing is written. Page 0 is not the allocator's.
    let slots = Slots::new(0, (2 * SCAN + 100) as usize * SPAN_BYTES);
    let mut cursor = 0;
    let mut look = |bytes| {
        let window = slots.cheapest_window(bytes, &[], Leave::ByMove, &mut cursor);
        (window.map(|window| window.first_span), cursor)
    };
    assert_eq!(look(1), (Some(1), 1 + SCAN));
    assert_eq!(look(1), (Some(1 + SCAN), 1 + 2 * SCAN));
    assert_eq!(look(100 * SPAN_BYTES), (None, 2 * SCAN + 100), "the rest is too short");
    assert_eq!(look(1), (Some(1), 1 + SCAN), "from the start again");
    // The search covers at least twice the wanted size.
    assert_eq!(look((SCAN as usize - 10) * SPAN_BYTES), (Some(1 + SCAN), 2 * SCAN + 100));
    assert_eq!(look((SCAN as usize + 10) * SPAN_BYTES), (Some(1), 2 * SCAN + 21));
}
