//! Walks that begin at hints: good ones cost one READ, and whatever 64 bits a hint has, a walk finds
//! what its key holds.

use crate::feeder::{Source, feed};
use crate::store::{Hash, REGION, SECRET, Store, plain_hash, poor_hash};
use remora_arena::{CLASSES, NewRecord, NoJournal, publish_live, write_pending};
use remora_index::hash::{AskReason, Lookup, LookupTarget, TableRef, Want};
use remora_layout::bucket::BucketSlot;
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_testing::Random;
use remora_walk::{Proof, Walk};
use std::collections::BTreeMap;

const BYTES: usize = 4 << 20;

fn key(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

/// The memory of a store; the first so many READs of records are torn.
struct Memory<'s> {
    store: &'s Store<NoJournal>,
    torn: u32,
    fetched: u32,
}

impl<'k> Source<Lookup<'k>> for Memory<'_> {
    fn bytes(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        assert!(want.offset as usize + want.bytes <= BYTES, "{want:?} lies in the region");
        self.fetched += 1;
        let mut bytes = self.store.owner.slice(want.offset as usize, want.bytes).to_vec();
        if self.torn > 0 && matches!(want.tag, LookupTarget::Record(_)) {
            self.torn -= 1;
            bytes[24..].fill(0xee);
        }
        (bytes, Proof::Checksum)
    }

    fn head(&mut self) -> TableRef {
        self.store.view()
    }
}

/// What a walk found, whether its hint was stale, and how many READs it took.
type Walked = (Result<Vec<u8>, AskReason>, bool, u32);

fn walk(store: &Store<NoJournal>, (key, kind): (&[u8], Kind), hint: u64, torn: u32) -> Walked {
    let mut walk = Lookup::begin_at(key, (store.hash)(key), kind, &store.view(), hint);
    let mut memory = Memory { store, torn, fetched: 0 };
    let ended = feed(&mut walk, 1, &mut memory);
    assert!(walk.retries() > 0 || walk.nodes() == memory.fetched as usize);
    let value = ended.map(|(found, bytes)| found.record(&bytes).value.to_vec());
    (value, walk.is_hint_stale(), memory.fetched)
}

fn word(store: &Store<NoJournal>, key: &[u8]) -> u64 {
    store.table.find(&store.owner, key, (store.hash)(key)).unwrap().1.to_word()
}

/// Bits that somebody may have written into a hint.
fn forged(store: &Store<NoJournal>, key: &[u8], random: &mut Random) -> u64 {
    let any = BucketSlot::from_word(random.bits());
    let signature = (store.hash)(key).signature();
    match random.below(3) {
        0 => any.to_word(),
        1 => BucketSlot { signature, ..any }.to_word(),
        _ => {
            let slot = any.slot % (BYTES / 16) as u32;
            BucketSlot { slot, class: any.class % 40, signature, ..any }.to_word()
        }
    }
}

#[test]
fn a_walk_finds_what_its_key_holds_whatever_its_hint_says() {
    for (seed, hash) in [(1, plain_hash as Hash), (2, poor_hash)] {
        let mut random = Random::new(seed);
        let mut store = Store::new(BYTES, 4, hash, NoJournal);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut words: Vec<u64> = Vec::new();
        let (mut stale, mut good) = (0, 0);
        for round in 0..6_000 {
            let name = key(random.below(150));
            if random.one_in(4) {
                assert_eq!(store.remove(&name), model.remove(&name).is_some());
            } else {
                let value = vec![round as u8; random.below(300)];
                store.set(&name, &value);
                words.push(word(&store, &name));
                model.insert(name, value);
            }
            let name = key(random.below(150));
            // Its own word, that of another key or of an earlier time, anything.
            let hint = match (random.below(4), model.contains_key(&name)) {
                (0, true) => word(&store, &name),
                (0 | 1, _) => words[random.below(words.len())],
                (2, _) => {
                    let old = BucketSlot::from_word(words[random.below(words.len())]);
                    BucketSlot { signature: hash(&name).signature(), ..old }.to_word()
                }
                _ => forged(&store, &name, &mut random),
            };
            let (found, is_stale, fetched) = walk(&store, (&name, Kind::STRING), hint, 0);
            assert_eq!(found.ok(), model.get(&name).cloned(), "{name:?} at {hint:#x}");
            if model.contains_key(&name) {
                let is_good = word(&store, &name) == hint;
                assert!(is_stale || fetched == 1, "{fetched} READs at a good hint");
                assert!(!is_good || !is_stale);
                good += u32::from(!is_stale);
            }
            stale += u32::from(is_stale);
        }
        assert!(stale > 2_000 && good > 500, "{stale} {good}");
    }
}

#[test]
fn no_hint_begins_at_the_bucket_and_is_not_stale() {
    let mut store = Store::new(BYTES, 4, plain_hash, NoJournal);
    store.set(b"key", b"value");
    let at = (&b"key"[..], Kind::STRING);
    assert_eq!(walk(&store, at, 0, 0), (Ok(b"value".to_vec()), false, 2));
    assert_eq!(walk(&store, at, word(&store, b"key"), 0), (Ok(b"value".to_vec()), false, 1));
}

#[test]
fn a_torn_record_behind_a_hint_is_read_once_more_then_the_bucket() {
    let mut store = Store::new(BYTES, 4, plain_hash, NoJournal);
    store.set(b"key", b"value");
    let (at, hint) = ((&b"key"[..], Kind::STRING), word(&store, b"key"));
    assert_eq!(walk(&store, at, hint, 1), (Ok(b"value".to_vec()), false, 2));
    assert_eq!(walk(&store, at, hint, 2), (Ok(b"value".to_vec()), true, 4));
}

#[test]
fn another_live_record_of_the_right_generation_is_not_the_keys() {
    let mut store = Store::new(BYTES, 4, plain_hash, NoJournal);
    store.set(b"key", b"mine");
    store.set(b"other", b"theirs");
    let signature = plain_hash(b"key").signature();
    let other = BucketSlot::from_word(word(&store, b"other"));
    let hint = BucketSlot { signature, ..other }.to_word();
    for kind in [Kind::STRING, Kind::ANY] {
        assert_eq!(walk(&store, (b"key", kind), hint, 0), (Ok(b"mine".to_vec()), true, 3));
    }
    assert!(store.remove(b"key"));
    let gone = (Err(AskReason::NotFound), true, 2);
    assert_eq!(walk(&store, (b"key", Kind::ANY), hint, 0), gone);
}

#[test]
fn a_part_whose_name_is_the_key_is_not_the_keys_record() {
    let mut store = Store::new(BYTES, 4, plain_hash, NoJournal);
    store.set(b"key", b"mine");
    for kind in [Kind::SORTED_PLACE, Kind::OBJECT, Kind::HASH_FIELD, Kind::HASH_FIELD.linked()] {
        let part = NewRecord {
            database: Database::ZERO,
            key: b"key",
            value: &[0; 24],
            kind,
            expires_at_ms: 0,
        };
        let slot = store.slots.allocate(&mut store.owner, part.record_bytes(), 0).unwrap();
        let pointer = write_pending(&mut store.owner, SECRET, REGION, slot, &part);
        let hint = BucketSlot {
            slot: pointer.slot,
            class: slot.class,
            generation_low: pointer.generation as u8,
            signature: plain_hash(b"key").signature(),
        };
        // Pending or live, it tells nothing of the key.
        for _ in 0..2 {
            let walked = walk(&store, (b"key", Kind::ANY), hint.to_word(), 0);
            assert_eq!(walked, (Ok(b"mine".to_vec()), true, 3), "{kind:?}");
            publish_live(&mut store.owner, slot);
        }
    }
}

#[test]
fn a_reader_of_any_type_takes_what_the_key_holds() {
    let mut store = Store::new(BYTES, 4, plain_hash, NoJournal);
    store.set(b"key", b"value");
    let hint = word(&store, b"key");
    assert_eq!(walk(&store, (b"key", Kind::ANY), hint, 0).0, Ok(b"value".to_vec()));
    // One that demands a type asks if the key has another.
    let other = (Err(AskReason::OtherKind), true, 3);
    assert_eq!(walk(&store, (b"key", Kind::HASH), hint, 0), other);
}

#[test]
fn a_hint_reads_no_more_than_a_record_inside_the_region() {
    let store = Store::new(BYTES, 4, plain_hash, NoJournal);
    let signature = plain_hash(b"key").signature();
    let end = (BYTES / 16) as u32;
    for class in 0..=u8::MAX {
        for slot in [0, 1, end - 2, end - 1, end, end + 1, u32::MAX] {
            let hint = BucketSlot { slot, class, generation_low: 0, signature }.to_word();
            let mut lookup =
                Lookup::begin_at(b"key", plain_hash(b"key"), Kind::ANY, &store.view(), hint);
            let want = lookup.next_want().unwrap();
            // Class 0 has no room for a header.
            let is_record = (1..CLASSES).contains(&(class as usize)) && slot <= end - 2;
            assert_eq!(matches!(want.tag, LookupTarget::Record(_)), is_record, "{class} {slot}");
            assert_eq!(lookup.is_hint_stale(), !is_record);
            assert!(want.offset + want.bytes as u64 <= BYTES as u64);
        }
    }
}
