//! The table's hints beside a key's place: the classes of record that a hash may have, the run that
//! the next growth takes, and how much of a region a view needs.

use crate::store::{Hash, REGION, Store, plain_hash, poor_hash};
use remora_arena::{NoJournal, Slots, class_for};
use remora_index::hash::TableRef;
use remora_layout::arena_header::{ARENA_HEADER_BYTES, word};
use remora_layout::bucket::{BUCKET_BYTES, BUCKET_SLOTS};
use remora_layout::limits::{BUCKET_LOAD_QUARTERS, CHAIN_BUCKETS, GROW_PAUSE_INSERTS, PAGE_BYTES};
use remora_layout::pointer::RemotePointer;
use remora_layout::table::{CHUNK_UNIT_BYTES, TableShape};

const BYTES: usize = 4 << 20;

fn key(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

/// The hint of the table and that of a fresh view, for present and absent keys.
fn check_hints(store: &Store<NoJournal>, keys: u32) -> (u32, u32) {
    let view = store.view();
    let (mut yes, mut no) = (0, 0);
    for number in 0..2 * keys {
        let hash = (store.hash)(&key(number));
        let places = store.table.places(&store.owner, store.table.bucket(hash));
        let is_long = places.len() > CHAIN_BUCKETS * BUCKET_SLOTS;
        for bytes in [1, 100, 200, 300, 400, 500] {
            let class = class_for(bytes).unwrap();
            let mut same = places.iter().filter(|(_, slot)| slot.signature == hash.signature());
            let expected = same.any(|(_, slot)| slot.class >= class);
            assert_eq!(store.table.may_hold_class(&store.owner, hash, class), expected);
            // A reader does not walk to the end of a long chain, and answers yes.
            let hint = view.may_hold_class(store.owner.view(), hash, class);
            assert!(hint == expected || (is_long && hint), "key {number}, class {class}");
            (yes, no) = (yes + expected as u32, no + !hint as u32);
        }
    }
    (yes, no)
}

#[test]
fn the_hint_of_a_class_is_what_the_buckets_hold() {
    for hash in [plain_hash as Hash, poor_hash] {
        for (base, keys) in [(1, 5), (16, 400), (1, 56), (1, 57), (1, 90)] {
            let mut store = Store::new(BYTES, base, hash, NoJournal);
            for number in 0..keys {
                store.put(&key(number), &vec![1; number as usize * 37 % 450]);
            }
            let (yes, no) = check_hints(&store, keys);
            assert!(yes > 3 && (no > 3 || keys > 56), "{base} {keys}: {yes} {no}");
            store.check();
            for number in (0..keys).step_by(3) {
                assert!(store.remove(&key(number)));
            }
            check_hints(&store, keys);
        }
    }
}

#[test]
fn the_hint_of_an_old_view_never_denies_what_is_there() {
    let mut store = Store::new(BYTES, 2, plain_hash, NoJournal);
    let mut views = Vec::new();
    for number in 0..1_000 {
        if number % 100 == 0 {
            views.push(store.view());
        }
        store.set(&key(number), &vec![1; number as usize % 90]);
    }
    for number in 0..1_000 {
        let hash = plain_hash(&key(number));
        let (_, slot) = store.table.find(&store.owner, &key(number), hash).unwrap();
        for view in &views {
            assert!(view.may_hold_class(store.owner.view(), hash, slot.class), "key {number}");
        }
    }
}

#[test]
fn growth_takes_the_run_that_it_names_when_the_table_is_too_full() {
    let mut store = Store::new(BYTES, 2, plain_hash, NoJournal);
    let (mut runs, mut number) = (0, 0);
    while runs < 6 {
        store.put(&key(number), b"");
        number += 1;
        let (records, buckets) = (store.table.records(), store.table.buckets());
        let wants = store.table.wants_run();
        if runs == 5 && wants.is_some() {
            // Without memory it names none until it tries again.
            let mut none = Slots::new(BYTES, BYTES);
            assert!(!store.table.grow(&mut store.owner, &mut none, 0, |_, key| plain_hash(key)));
            for _ in 0..GROW_PAUSE_INSERTS {
                assert_eq!(store.table.wants_run(), None);
                assert!(!store.grow());
            }
            assert_eq!(store.table.wants_run(), wants);
        }
        let before = store.slots.stats().run_bytes;
        assert_eq!(store.grow(), records * 4 > buckets * BUCKET_LOAD_QUARTERS);
        let taken = (store.slots.stats().run_bytes - before) as usize;
        assert_eq!(taken, wants.unwrap_or(0).next_multiple_of(PAGE_BYTES));
        runs += wants.is_some() as u32;
    }
}

#[test]
fn a_view_needs_the_region_up_to_the_end_of_its_table() {
    for (base, keys) in [(1, 0), (64, 0), (2, 1_500)] {
        let mut store = Store::new(BYTES, base, plain_hash, NoJournal);
        (0..keys).for_each(|number| store.set(&key(number), b""));
        let shape = TableShape::checked(base, store.table.buckets()).unwrap();
        let chunks = shape.entries().map(|entry| {
            let pair = store.owner.word(word::DIRECTORY + entry / 2);
            let chunk = (pair >> (entry % 2 * 32)) as u32 as u64;
            chunk * CHUNK_UNIT_BYTES + shape.chunk_bytes(entry)
        });
        let end = chunks
            .max()
            .unwrap_or(0)
            .max((ARENA_HEADER_BYTES + base as usize * BUCKET_BYTES) as u64);
        let page = store.owner.slice(0, ARENA_HEADER_BYTES);
        let view = TableRef::parse(REGION, end, page).expect("it lies inside");
        assert_eq!(TableRef::parse(REGION, end - 1, page), None);
        // The named bytes are read only if all of them are in the region.
        let slot = (end / 16 - 5) as u32;
        for (length, holds) in [(1, true), (80, true), (81, false), (u32::MAX, false)] {
            let pointer = RemotePointer { region: REGION, slot, length, generation: 1 };
            assert_eq!(view.holds(pointer), holds, "{length} bytes");
        }
    }
}
