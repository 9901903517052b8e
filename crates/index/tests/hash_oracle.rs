//! The hash index against a plain map: long random runs in which every structure overflows, grows
//! and shrinks, and walks that are fed stale and hostile bytes.

use crate::store::{REGION, Store, plain_hash, poor_hash};
use remora_arena::{NoJournal, Slots};
use remora_index::hash::{AskReason, Lookup, TableRef, record_value, walk_locally};
use remora_layout::arena_header::{ARENA_HEADER_BYTES, word};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::GROW_PAUSE_INSERTS;
use remora_testing::Random;
use remora_walk::{Proof, Step, Walk};
use std::collections::HashMap;

const BYTES: usize = 4 << 20;

fn new_store(base: u64) -> Store<NoJournal> {
    Store::new(BYTES, base, poor_hash, NoJournal)
}

fn walk(
    store: &Store<NoJournal>,
    view: &mut TableRef,
    key: &[u8],
    scratch: &mut Vec<u8>,
) -> Result<Vec<u8>, AskReason> {
    walk_locally(store.owner.view(), view, key, (store.hash)(key), Kind::STRING, scratch)
        .map(|found| found.value.to_vec())
}

/// The counts of a random run.
#[derive(Default, Debug)]
struct Did {
    walked: u64,
    asked: u64,
    most_overflow: u64,
}

/// A random run over this many keys. The reader's view is refreshed only by the answers to its
/// walks.
fn run(store: &mut Store<NoJournal>, keys: u64, steps: u64, grows: bool) -> Did {
    let mut oracle: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let (mut scratch, mut view) = (Vec::new(), store.view());
    let mut did = Did::default();
    let mut random = Random::new(1);
    for step in 0..steps {
        let r = random.bits();
        let key = format!("key{}", r % keys).into_bytes();
        // Phases of filling and of emptying, in turns.
        let fills = (step / (steps / 6)).is_multiple_of(2);
        match r >> 32 & 7 {
            0 | 1 if fills => {
                let value = vec![(step % 251) as u8; (r >> 40) as usize % 90];
                if grows {
                    store.set(&key, &value)
                } else {
                    store.put(&key, &value)
                }
                oracle.insert(key, value);
            }
            2 | 3 if !fills => assert_eq!(store.remove(&key), oracle.remove(&key).is_some()),
            4 => assert_eq!(store.remove(&key), oracle.remove(&key).is_some()),
            _ => {
                let expected = oracle.get(&key);
                let found = store.table.find(&store.owner, &key, (store.hash)(&key));
                let value = found.map(|(_, slot)| record_value(&store.owner, slot.slot));
                assert_eq!(value, expected.map(Vec::as_slice));
                match walk(store, &mut view, &key, &mut scratch) {
                    Ok(value) => {
                        did.walked += 1;
                        assert_eq!(Some(&value), expected);
                    }
                    Err(_) => did.asked += 1,
                }
            }
        }
        did.most_overflow = did.most_overflow.max(store.table.overflow_buckets());
        if step % 512 == 0 {
            assert_eq!(store.table.records() as usize, oracle.len());
            store.check();
        }
    }
    for key in oracle.keys() {
        store.remove(key);
    }
    store.check();
    assert_eq!(store.table.overflow_buckets(), 0, "all were merged");
    did
}

#[test]
fn a_long_random_run_agrees_with_a_map() {
    let mut store = new_store(16); // 400 keys in 16 buckets: long chains
    let did = run(&mut store, 400, 60_000, false);
    assert!(did.most_overflow > 16 && did.walked > 5_000 && did.asked > 1_000, "{did:?}");
}

#[test]
fn a_table_that_grows_agrees_with_a_map() {
    for base in [1, 2, 8] {
        let mut store = new_store(base);
        let did = run(&mut store, 3_000, 40_000, true);
        assert!(store.table.buckets() > 256 && did.most_overflow > 16, "{did:?}");
        assert!(did.walked > 5_000, "{did:?}");
    }
}

#[test]
fn a_view_of_any_age_leads_to_every_key() {
    let mut store = Store::new(BYTES, 2, plain_hash, NoJournal);
    let mut views = vec![store.view()];
    for number in 0..2_000u32 {
        store.set(&number.to_le_bytes(), &number.to_be_bytes());
        if number % 100 == 0 {
            views.push(store.view());
        }
    }
    let mut scratch = Vec::new();
    for view in &views {
        let mut refreshed = 0;
        for number in 0..2_000u32 {
            let mut view = view.clone();
            let before = view.buckets();
            let value = walk(&store, &mut view, &number.to_le_bytes(), &mut scratch);
            assert_eq!(value.as_deref(), Ok(&number.to_be_bytes()[..]), "{before} buckets");
            refreshed += (view.buckets() > before) as u32;
        }
        // Only keys that have moved cost a read of the header page.
        let (before, now) = (view.buckets(), store.table.buckets());
        let moved = (0..2_000u32).filter(|number| {
            let hash = plain_hash(&number.to_le_bytes());
            hash.bucket(before) != hash.bucket(now)
        });
        assert_eq!(refreshed as usize, moved.count(), "{before} buckets");
    }
}

#[test]
fn without_memory_nothing_changes_and_growth_comes_later() {
    // 40 keys in one chain; half of them need an overflow bucket elsewhere.
    let mut store = Store::new(BYTES, 1, plain_hash, NoJournal);
    for number in 0..40u32 {
        store.put(&number.to_le_bytes(), &number.to_be_bytes());
    }
    // No free memory at all, and memory for a chunk but not for overflow buckets.
    for bytes in [0, 64] {
        let before = store.owner.slice(0, BYTES / 2).to_vec();
        let mut full = Slots::new(BYTES - bytes, BYTES);
        assert!(!store.table.grow(&mut store.owner, &mut full, 0, |_, key| plain_hash(key)));
        let mut after = store.owner.slice(0, BYTES / 2).to_vec();
        let directory = word::DIRECTORY * 8..word::DIRECTORY * 8 + 8;
        after[directory.clone()].copy_from_slice(&before[directory]);
        assert!(before == after, "only the directory may have changed");
        for _ in 0..GROW_PAUSE_INSERTS {
            assert!(!store.grow(), "it does not try at each insertion");
        }
    }
    for buckets in 2..8 {
        assert!(store.grow(), "40 keys need 8 buckets");
        assert_eq!(store.table.buckets(), buckets);
        assert_eq!(store.table.records(), 40);
    }
    let (mut scratch, mut view) = (Vec::new(), store.view());
    for number in 0..40u32 {
        let value = walk(&store, &mut view, &number.to_le_bytes(), &mut scratch);
        assert_eq!(value.as_deref(), Ok(&number.to_be_bytes()[..]));
    }
}

#[test]
fn a_walk_survives_changes_between_its_fetches() {
    let mut store = new_store(1);
    store.set(b"moving", b"one");
    let mut walk = Lookup::begin(b"moving", poor_hash(b"moving"), Kind::STRING, &store.view());
    assert_eq!((walk.nodes(), walk.retries()), (0, 0));
    let fetch = |store: &Store<NoJournal>, walk: &mut Lookup<'_>| {
        let want = walk.next_want().expect("it has not ended");
        (want, store.owner.slice(want.offset as usize, want.bytes).to_vec())
    };
    let (first, bucket) = fetch(&store, &mut walk);
    assert_eq!(walk.feed(first, &bucket, Proof::Checksum), Step::More, "a candidate");
    // Between the two READs the key is rewritten, so the old record is dead.
    store.set(b"moving", b"two");
    let (record, bytes) = fetch(&store, &mut walk);
    assert_eq!(walk.feed(record, &bytes, Proof::Checksum), Step::More, "the bucket again");
    let (again, bucket) = fetch(&store, &mut walk);
    assert_eq!(again, first);
    assert_eq!(walk.feed(again, &bucket, Proof::Checksum), Step::More, "the new candidate");
    let (record, bytes) = fetch(&store, &mut walk);
    let step = walk.feed(record, &bytes, Proof::Checksum);
    let Step::Found(found) = step else { panic!("the new record") };
    let value = found.record(&bytes).value;
    assert_eq!((value, walk.retries(), walk.nodes()), (&b"two"[..], 1, 4));
}

/// H10: where the signature differs, neither the owner nor a walk compares the full key, and the
/// walk fetches no record. A key is not found under another signature, although its slot word
/// exists there.
#[test]
fn the_full_key_is_compared_only_where_the_signature_matches() {
    let mut store = Store::new(BYTES, 1, plain_hash, NoJournal);
    let keys: Vec<Vec<u8>> = (0..7).map(|number| format!("key{number}").into_bytes()).collect();
    keys.iter().for_each(|key| store.put(key, b"value"));
    assert_eq!((store.table.buckets(), store.table.overflow_buckets()), (1, 0), "one bucket");
    for key in &keys {
        let hash = plain_hash(key);
        for (flipped, fetched) in [(0u64, 2), (1, 1), (1 << 15, 1)] {
            let hash = KeyHash(hash.0 ^ flipped << 32);
            assert_eq!(store.table.find(&store.owner, key, hash).is_some(), flipped == 0);
            let mut walk = Lookup::begin(key, hash, Kind::STRING, &store.view());
            let mut step = Step::More;
            while let Some(want) = walk.next_want() {
                let bytes = store.owner.slice(want.offset as usize, want.bytes).to_vec();
                step = walk.feed(want, &bytes, Proof::Checksum);
            }
            match flipped {
                0 => assert!(matches!(step, Step::Found(_))),
                _ => assert_eq!(step, Step::Ask(AskReason::NotFound)),
            }
            assert_eq!(walk.nodes(), fetched, "the bucket, and its one candidate");
        }
    }
}

/// A header page that describes a real table with several chunks.
fn true_page() -> Vec<u8> {
    let mut store = new_store(2);
    for number in 0..1_500u32 {
        store.set(&number.to_le_bytes(), b"");
    }
    store.owner.slice(0, ARENA_HEADER_BYTES).to_vec()
}

/// Words of the page that a view is made from.
fn told_words() -> Vec<usize> {
    let numbers = [word::TABLE_OFFSET, word::BUCKETS, word::BASE_BUCKETS];
    numbers.into_iter().chain(word::DIRECTORY..word::DIRECTORY + 160).collect()
}

#[test]
fn a_page_without_an_entry_that_it_needs_is_no_table() {
    let page = true_page();
    assert!(TableRef::parse(REGION, BYTES as u64, &page).is_some());
    assert_eq!(TableRef::parse(REGION, BYTES as u64, &page[1..]), None);
    assert_eq!(TableRef::parse(REGION, 8 << 10, &page), None, "it lies outside");
    let mut needed = 0;
    for at in told_words() {
        let mut torn = page.clone();
        let word = &mut torn[at * 8..at * 8 + 8];
        let was = word.iter().any(|&byte| byte != 0);
        word.fill(0);
        let is_table = TableRef::parse(REGION, BYTES as u64, &torn).is_some();
        // Only the offset may have any value that fits.
        assert_eq!(is_table, !was || at == word::TABLE_OFFSET, "word {at}");
        needed += was as u32;
    }
    assert!(needed > 10, "{needed}");
}

proptest::proptest! {
    #[test]
    fn no_page_leads_out_of_the_region(
        changes in proptest::collection::vec((0usize..163, proptest::num::u64::ANY, 0u32..64), 0..6),
        hashes in proptest::collection::vec(proptest::num::u64::ANY, 1..40),
    ) {
        let mut page = true_page();
        let words = told_words();
        for (at, value, shift) in changes {
            let at = words[at] * 8;
            page[at..at + 8].copy_from_slice(&(value >> shift).to_le_bytes());
        }
        if let Some(view) = TableRef::parse(REGION, BYTES as u64, &page) {
            for hash in hashes {
                let hash = remora_layout::hash::KeyHash(hash);
                let want = Lookup::begin(b"key", hash, Kind::STRING, &view).next_want().unwrap();
                assert!(want.offset.is_multiple_of(64));
                assert!(want.offset + want.bytes as u64 <= BYTES as u64);
            }
        }
    }

    #[test]
    fn no_bytes_make_a_walk_panic_or_run_on(
        feeds in proptest::collection::vec(proptest::collection::vec(proptest::num::u8::ANY, 0..200), 1..64),
    ) {
        let view = new_store(16).view();
        let mut walk = Lookup::begin(b"key", poor_hash(b"key"), Kind::STRING, &view);
        let mut turns = 0;
        while let Some(want) = walk.next_want() {
            assert!(want.offset + want.bytes as u64 <= BYTES as u64, "never out of bounds");
            turns += 1;
            assert!(turns < 64, "bounded");
            let mut fed = feeds[turns % feeds.len()].clone();
            fed.resize(want.bytes, 0);
            let goes_on = match walk.feed(want, &fed, Proof::Checksum) {
                Step::More => true,
                Step::Restart => walk.restart(&view).is_ok(),
                Step::Ask(_) => false,
                Step::Found(_) => panic!("random bytes are no record"),
            };
            if !goes_on {
                break;
            }
        }
    }
}
