//! Single rules of the allocator, each tested with a history made for it.

use remora_arena::{Leave, NoJournal, Owner, Slot, Slots, class_bytes, class_for, flip_dead};
use remora_layout::limits::{PAGE_BYTES, QUARANTINE_SHARE, SMALL_SLOT_BYTES, SPAN_BYTES};

const BYTES: usize = 1 << 20;

fn arena() -> (Owner, Slots) {
    (Owner::heap(BYTES, NoJournal), Slots::new(0, BYTES))
}

fn release(owner: &mut Owner, slots: &mut Slots, number: u32) {
    let dead = flip_dead(owner, number);
    slots.release(owner, dead, None, 0);
}

#[test]
fn a_share_of_all_pages_may_wait_for_leases() {
    let (_, slots) = arena();
    let all = (BYTES - PAGE_BYTES) as u64;
    assert_eq!(slots.quarantine_limit_bytes(), all / QUARANTINE_SHARE);
    let slots = slots.with_quarantine_bytes(0);
    assert_eq!(slots.quarantine_limit_bytes(), all / QUARANTINE_SHARE, "0 says nothing");
    assert_eq!(slots.with_quarantine_bytes(5).quarantine_limit_bytes(), 5);
}

#[test]
fn a_slot_waits_only_for_a_lease_that_runs_and_within_the_limit() {
    let (mut owner, slots) = arena();
    let mut slots = slots.with_quarantine_bytes(160);
    let held = [(); 4].map(|()| slots.allocate(&mut owner, 80, 7).unwrap());
    for (slot, lease_end_s, waiting) in [(0, 7, 0), (1, 8, 80), (2, 9, 160), (3, 9, 160)] {
        let dead = flip_dead(&mut owner, held[slot].slot);
        slots.release(&mut owner, dead, Some(lease_end_s), 7);
        assert_eq!(slots.stats().quarantine_bytes, waiting);
        assert_eq!(slots.has_quarantine(), waiting > 0);
    }
    assert_eq!(slots.stats().reused_early, 1);
}

#[test]
fn what_does_not_fit_is_refused_with_the_limit() {
    let (mut owner, mut slots) = arena();
    let error = slots.allocate(&mut owner, BYTES, 0).unwrap_err();
    assert_eq!((error.bytes, error.limit_bytes), (BYTES, (BYTES - PAGE_BYTES) as u64));
    assert_eq!(slots.take_run(BYTES), Err(error));
}

#[test]
fn a_slot_has_room_for_its_class_or_as_far_as_its_pages_go() {
    let (mut owner, mut slots) = arena();
    for bytes in [1, 80, 81, 5000, SMALL_SLOT_BYTES, SMALL_SLOT_BYTES + 1, 70_000, 300_001] {
        let slot = slots.allocate(&mut owner, bytes, 0).unwrap();
        let class = class_bytes(slot.class);
        let is_small = bytes <= SMALL_SLOT_BYTES;
        let pages = bytes.next_multiple_of(PAGE_BYTES);
        assert_eq!(slots.room(slot), if is_small { class } else { class.min(pages) }, "{bytes}");
        assert!(slots.room(slot) >= bytes);
    }
}

#[test]
fn only_a_large_slot_is_renewed_until_its_generations_end() {
    let mut owner = Owner::heap(BYTES, NoJournal);
    let mut slots = Slots::with_last_generation(0, BYTES, 3);
    let small = slots.allocate(&mut owner, 80, 0).unwrap();
    assert_eq!(slots.renewed(small), None);
    let large = slots.allocate(&mut owner, 50_000, 0).unwrap();
    let second = slots.renewed(large);
    assert_eq!(second, Some(Slot { generation: 2, ..large }));
    let third = slots.renewed(second.unwrap());
    assert_eq!(third, Some(Slot { generation: 3, ..large }));
    assert_eq!(slots.renewed(third.unwrap()), None);
}

#[test]
fn what_was_freed_is_counted() {
    let (mut owner, mut slots) = arena();
    let small = slots.allocate(&mut owner, 80, 0).unwrap();
    let large = slots.allocate(&mut owner, 50_000, 0).unwrap();
    assert_eq!(slots.freed_bytes(), 0);
    release(&mut owner, &mut slots, small.slot);
    assert_eq!(slots.freed_bytes(), 80);
    release(&mut owner, &mut slots, large.slot);
    assert_eq!(slots.freed_bytes(), 80 + 50_000u64.next_multiple_of(PAGE_BYTES as u64));
}

#[test]
fn a_class_keeps_one_empty_span_and_gives_the_others() {
    let (mut owner, mut slots) = arena();
    let all = slots.stats().uncarved_bytes;
    let of_a_span = SPAN_BYTES / 1024;
    let held: Vec<Slot> =
        (0..3 * of_a_span).map(|_| slots.allocate(&mut owner, 1024, 0).unwrap()).collect();
    assert_eq!(slots.stats().uncarved_bytes, all - 3 * SPAN_BYTES as u64);
    for (freed, slot) in held.into_iter().enumerate() {
        release(&mut owner, &mut slots, slot.slot);
        // The allocator keeps the first span that becomes empty, and gives back each later one.
        let given = ((freed + 1) / of_a_span).saturating_sub(1);
        assert_eq!(slots.stats().uncarved_bytes, all - ((3 - given) * SPAN_BYTES) as u64);
    }
    let free = slots.stats().free_bytes;
    assert_eq!(free, SPAN_BYTES as u64);
    slots.allocate(&mut owner, 1024, 0).unwrap();
    assert_eq!(slots.stats().free_bytes, free - 1024, "the kept one serves first");
}

#[test]
fn a_retired_slot_stays_where_it_is() {
    let mut owner = Owner::heap(BYTES, NoJournal);
    let mut slots = Slots::with_last_generation(0, BYTES, 1);
    let all_whole_spans = BYTES - SPAN_BYTES;
    let [one, other] = [(); 2].map(|()| slots.allocate(&mut owner, 80, 0).unwrap().slot);
    let can_empty = |slots: &Slots| {
        slots.cheapest_window(all_whole_spans, &[], Leave::Anyhow, &mut 0).is_some()
    };
    assert!(can_empty(&slots));
    release(&mut owner, &mut slots, one);
    assert!(!can_empty(&slots));
    release(&mut owner, &mut slots, other);
    assert_eq!(slots.stats().retired_bytes, 160);
    assert!(!can_empty(&slots));
}

#[test]
fn a_retired_large_slot_stays_where_it_is() {
    let mut owner = Owner::heap(BYTES, NoJournal);
    let mut slots = Slots::with_last_generation(0, BYTES, 1);
    let total = slots.stats().total_bytes();
    let large = slots.allocate(&mut owner, 500_000, 0).unwrap();
    let whole = slots.stats().used_bytes;
    assert!(slots.cheapest_window(600_000, &[], Leave::Anyhow, &mut 0).is_some());
    release(&mut owner, &mut slots, large.slot);
    assert_eq!((slots.stats().retired_bytes, slots.stats().total_bytes()), (whole, total));
    assert_eq!(slots.cheapest_window(600_000, &[], Leave::Anyhow, &mut 0), None);
}

#[test]
fn bytes_of_the_tables_runs_are_counted_and_come_back() {
    let (_, mut slots) = arena();
    let before = slots.stats();
    let offset = slots.take_run(3 * PAGE_BYTES + 1).unwrap();
    let stats = slots.stats();
    assert_eq!(stats.run_bytes, 4 * PAGE_BYTES as u64);
    assert_eq!(stats.total_bytes(), before.total_bytes());
    slots.give_run(offset, 3 * PAGE_BYTES + 1);
    assert_eq!(slots.stats(), before);
    assert_eq!(slots.largest_run_bytes(), before.uncarved_bytes, "the same pages");
}

#[test]
fn a_larger_slot_is_the_smallest_free_one_up_to_the_limit() {
    let (mut owner, mut slots) = arena();
    let [one, two] = [1024, 2048].map(|bytes| {
        let slot = slots.allocate(&mut owner, bytes, 0).unwrap();
        release(&mut owner, &mut slots, slot.slot);
        slot.slot
    });
    assert!(slots.allocate_larger(&mut owner, 600, 1023).is_err());
    let slot = slots.allocate_larger(&mut owner, 600, 1024).unwrap();
    assert_eq!((slot.slot, Some(slot.class)), (one, class_for(1024)));
    assert!(slots.allocate_larger(&mut owner, 1025, 2047).is_err());
    assert_eq!(slots.allocate_larger(&mut owner, 1025, SPAN_BYTES).unwrap().slot, two);
    assert!(slots.allocate_larger(&mut owner, SMALL_SLOT_BYTES + 1, usize::MAX).is_err());
}

/// Spans of slots of 1024 bytes, each with so many slots in use.
fn spans_with(used: &[usize]) -> (Owner, Slots) {
    let (mut owner, mut slots) = arena();
    const OF_A_SPAN: usize = SPAN_BYTES / 1024;
    let held: Vec<Slot> =
        (0..used.len() * OF_A_SPAN).map(|_| slots.allocate(&mut owner, 1024, 0).unwrap()).collect();
    for (span, slots_of_span) in held.chunks(OF_A_SPAN).enumerate() {
        for slot in &slots_of_span[used[span]..] {
            release(&mut owner, &mut slots, slot.slot);
        }
    }
    (owner, slots)
}

#[test]
fn slots_are_taken_from_the_fullest_span() {
    for used in [[6, 20, 40, 60], [60, 40, 20, 6], [40, 6, 60, 20]] {
        let (mut owner, mut slots) = spans_with(&used);
        let mut taken_from = Vec::new();
        for _ in 0..used.iter().map(|used| 64 - used).sum() {
            let slot = slots.allocate(&mut owner, 1024, 0).unwrap();
            // Pages for spans come from the first whole one on.
            let span = slot.slot as usize * 16 / SPAN_BYTES - 1;
            if taken_from.last() != Some(&used[span]) {
                taken_from.push(used[span]);
            }
        }
        assert_eq!(taken_from, [60, 40, 20, 6]);
    }
}

#[test]
fn a_full_span_does_not_leave_for_the_only_free_one() {
    // 15 whole spans, one of them free.
    let (_, slots) = spans_with(&[64; 14]);
    let look = |bytes, tried: &[_]| slots.cheapest_window(bytes, tried, Leave::ByMove, &mut 0);
    let free = look(SPAN_BYTES, &[]).expect("the free one");
    assert_eq!(look(SPAN_BYTES, &[free]), None, "it would only change places");
    assert!(look(2 * SPAN_BYTES, &[]).is_some());
}

#[test]
fn what_stays_in_a_window_counts_as_before() {
    let (_, mut slots) = spans_with(&[40, 40]);
    assert_eq!(slots.sparsest_span(), None, "24 free places each are too few for 40");
    // Free windows cost less: the search skips them.
    let mut tried = Vec::new();
    let mut look = || {
        let window = slots.cheapest_window(SPAN_BYTES, &tried, Leave::Anyhow, &mut 0).unwrap();
        tried.push(window);
        window
    };
    let used: Vec<_> = (0..15).map(|_| look()).skip(13).collect();
    for window in used {
        slots.begin_emptying(window);
        slots.end_emptying();
        assert_eq!(slots.sparsest_span(), None);
    }
}

#[test]
fn the_reserve_is_lent_on_request_and_afterwards_as_many_pages_stay_free() {
    const RESERVE: usize = 2 * SPAN_BYTES;
    let owner = &mut Owner::heap(BYTES, NoJournal);
    let mut slots = Slots::new(0, BYTES).with_reserve_bytes(RESERVE as u64);
    let limit = BYTES - RESERVE - PAGE_BYTES;
    assert_eq!(slots.limit_bytes(), limit as u64);
    assert_eq!(slots.quarantine_limit_bytes(), limit as u64 / QUARANTINE_SHARE);
    let all = slots.allocate(owner, limit, 0).unwrap();
    assert_eq!(slots.allocate(owner, 32, 0).unwrap_err().limit_bytes, limit as u64);
    assert_eq!(slots.stats().reserve_bytes, RESERVE as u64);
    // One page less than there is: the last request gets what is left, and the next one nothing.
    assert!(slots.lend((RESERVE - PAGE_BYTES) as u64));
    let lent = slots.allocate(owner, RESERVE - PAGE_BYTES, 0).unwrap();
    assert!(slots.lend(RESERVE as u64) && !slots.lend(1));
    assert_eq!(slots.stats().lent_bytes, RESERVE as u64);
    assert_eq!(slots.stats().total_bytes(), slots.range_bytes());
    // The page that is not in use goes back. As many bytes as are lent have to come free elsewhere.
    slots.end_lending();
    assert_eq!(slots.stats().lent_bytes, (RESERVE - PAGE_BYTES) as u64);
    assert_eq!(slots.over_bytes(), (RESERVE - PAGE_BYTES) as u64);
    assert!(slots.allocate(owner, PAGE_BYTES, 0).is_err());
    release(owner, &mut slots, all.slot);
    assert_eq!(slots.over_bytes(), 0);
    assert_eq!(slots.stats().total_bytes(), slots.range_bytes());
    let room = limit - (RESERVE - PAGE_BYTES);
    assert_eq!(slots.stats().uncarved_bytes, room as u64);
    assert!(slots.allocate(owner, room + PAGE_BYTES, 0).is_err());
    let rest = slots.allocate(owner, room, 0).unwrap();
    assert!(slots.take_run(PAGE_BYTES).is_err(), "the memory is full, and pages are free");
    // Nothing has to stay free while lending goes on.
    slots.begin_lending();
    let run = slots.take_run(PAGE_BYTES).unwrap();
    slots.give_run(run, PAGE_BYTES);
    for slot in [lent, rest] {
        release(owner, &mut slots, slot.slot);
    }
    slots.end_lending();
    let stats = slots.stats();
    assert_eq!((stats.lent_bytes, stats.uncarved_bytes), (0, limit as u64));
}
