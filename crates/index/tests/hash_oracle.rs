//! The hash index against a plain map: long random runs in which everything
//! overflows, and walks that are fed stale and hostile bytes.

use remora_arena::{NewRecord, NoJournal, Owner, Slots, flip_dead, publish_live, write_pending};
use remora_index::hash::{AskReason, Step, Table, TableRef, Walk, record_value, walk_locally};
use remora_layout::bucket::BucketSlot;
use remora_layout::hash::KeyHash;
use std::collections::HashMap;

const BYTES: usize = 4 << 20;
const OFFSET: usize = 4096;
const SECRET: u64 = 0x5ec2_e7ed;

struct Store {
    owner: Owner,
    slots: Slots,
    table: Table,
    table_ref: TableRef,
}

impl Store {
    fn new(buckets: u64) -> Self {
        let owner = Owner::heap(BYTES, NoJournal);
        let slots = Slots::new(OFFSET + buckets as usize * 64, BYTES);
        let table = Table::new(OFFSET, buckets);
        let table_ref = TableRef::checked(7, BYTES as u64, OFFSET as u64, buckets, SECRET).unwrap();
        Self { owner, slots, table, table_ref }
    }

    fn hash(key: &[u8]) -> KeyHash {
        // Few signatures, so that equal ones meet in one bucket.
        let hash = KeyHash::of(key, 1).0;
        KeyHash(hash & !(0xfff8 << 32))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        let hash = Self::hash(key);
        let record = NewRecord { key, value, kind: 0, expires_at_ms: 0 };
        let slot = self.slots.allocate(&mut self.owner, record.record_bytes(), 0).unwrap();
        let pointer = write_pending(&mut self.owner, SECRET, 7, slot, &record);
        publish_live(&mut self.owner, slot);
        let word = BucketSlot {
            slot: pointer.slot,
            class: slot.class,
            generation_low: pointer.generation as u8,
            signature: hash.signature(),
        };
        match self.table.find(&self.owner, key, hash) {
            Some((place, old)) => {
                let dead = flip_dead(&mut self.owner, old.slot);
                self.table.replace(&mut self.owner, place, word);
                self.slots.release(&mut self.owner, dead, None, 0);
            }
            None => {
                let overflow = self
                    .table
                    .needs_overflow(&self.owner, hash)
                    .then(|| self.slots.allocate_bucket(&mut self.owner, 0).unwrap().slot);
                self.table.insert(&mut self.owner, hash, word, overflow);
            }
        }
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let Some((place, old)) = self.table.find(&self.owner, key, Self::hash(key)) else {
            return false;
        };
        let dead = flip_dead(&mut self.owner, old.slot);
        self.table.remove(&mut self.owner, place);
        self.slots.release(&mut self.owner, dead, None, 0);
        true
    }

    fn walk(&self, key: &[u8], scratch: &mut Vec<u8>) -> Result<Vec<u8>, AskReason> {
        let words = self.owner.words();
        walk_locally(words, self.table_ref, key, Self::hash(key), scratch)
            .map(|found| found.value.to_vec())
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn a_long_random_run_agrees_with_a_map() {
    let mut store = Store::new(16); // 400 keys in 16 buckets: long chains
    let mut oracle: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut scratch = Vec::new();
    let (mut walked, mut asked) = (0u64, 0u64);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for step in 0..60_000u64 {
        let r = random(&mut state);
        let key = format!("key{}", r % 400).into_bytes();
        match r >> 32 & 3 {
            0 => {
                let value = vec![(step % 251) as u8; (r >> 40) as usize % 90];
                store.set(&key, &value);
                oracle.insert(key, value);
            }
            1 => assert_eq!(store.remove(&key), oracle.remove(&key).is_some()),
            _ => {
                let expected = oracle.get(&key);
                let found = store.table.find(&store.owner, &key, Store::hash(&key));
                let value = found.map(|(_, slot)| record_value(&store.owner, slot.slot));
                assert_eq!(value, expected.map(Vec::as_slice));
                match store.walk(&key, &mut scratch) {
                    Ok(value) => {
                        walked += 1;
                        assert_eq!(Some(&value), expected);
                    }
                    Err(_) => asked += 1,
                }
            }
        }
    }
    assert!(store.table.overflow_buckets() > 16);
    assert!(walked > 5_000 && asked > 1_000, "walked {walked}, asked {asked}");
}

#[test]
fn a_walk_survives_changes_between_its_fetches() {
    let mut store = Store::new(1);
    store.set(b"moving", b"one");
    let (mut walk, want) = Walk::begin(b"moving", Store::hash(b"moving"), store.table_ref);
    let bucket = store.owner.slice(want.offset as usize, want.bytes).to_vec();
    let Step::Fetch(record) = walk.feed(&bucket) else { panic!("a candidate") };
    // Between the two READs the key is rewritten: the old record is dead.
    store.set(b"moving", b"two");
    let bytes = store.owner.slice(record.offset as usize, record.bytes).to_vec();
    let Step::Fetch(again) = walk.feed(&bytes) else { panic!("the bucket again") };
    assert_eq!(again, want);
    let bucket = store.owner.slice(again.offset as usize, again.bytes).to_vec();
    let Step::Fetch(record) = walk.feed(&bucket) else { panic!("the new candidate") };
    let bytes = store.owner.slice(record.offset as usize, record.bytes).to_vec();
    let Step::Found(found) = walk.feed(&bytes) else { panic!("the new record") };
    assert_eq!((found.value, walk.retries()), (&b"two"[..], 1));
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_a_walk_panic_or_run_on(
        feeds in proptest::collection::vec(proptest::collection::vec(proptest::num::u8::ANY, 0..200), 1..64),
    ) {
        let table = TableRef::checked(7, BYTES as u64, OFFSET as u64, 16, SECRET).unwrap();
        let (mut walk, first) = Walk::begin(b"key", Store::hash(b"key"), table);
        let mut want = Some(first);
        let mut turns = 0;
        while let Some(bytes) = want {
            assert!(bytes.offset + bytes.bytes as u64 <= BYTES as u64, "never out of bounds");
            turns += 1;
            assert!(turns < 64, "bounded");
            let mut fed = feeds[turns % feeds.len()].clone();
            fed.resize(bytes.bytes, 0);
            want = match walk.feed(&fed) {
                Step::Fetch(next) => Some(next),
                Step::Ask(_) => None,
                Step::Found(_) => panic!("random bytes are no record"),
            };
        }
    }
}
