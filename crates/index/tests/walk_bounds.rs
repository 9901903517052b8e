//! What a walk does with each thing that it can meet, fed by hand: what it
//! takes for a candidate, how often it tries again, and where it stops.

use remora_arena::{
    CLASSES, NewRecord, NoJournal, Owner, Slot, Slots, class_bytes, flip_dead, publish_live,
    write_pending,
};
use remora_index::hash::{AskReason, Step, Table, TableRef, Walk};
use remora_layout::arena_header::{ARENA_HEADER_BYTES, word};
use remora_layout::bucket::{BUCKET_BYTES, BUCKET_SLOTS, BucketHeader, BucketSlot};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{CHAIN_BUCKETS, READ_RETRIES};

const BYTES: usize = 1 << 20;
const SECRET: u64 = 77;
const KEY: &[u8] = b"key";
const NONE: BucketSlot = BucketSlot { slot: 0, class: 0, generation_low: 0, signature: 0 };

fn hash() -> KeyHash {
    KeyHash::of(KEY, 1)
}

/// A table of one bucket, and a record of the key that nothing names yet.
fn record_alone() -> (Owner<NoJournal>, TableRef, BucketSlot) {
    let mut owner = Owner::heap(BYTES, NoJournal);
    owner.store(word::RECORD_SECRET, SECRET);
    Table::new(&mut owner, ARENA_HEADER_BYTES, 1);
    let mut slots = Slots::new(ARENA_HEADER_BYTES + BUCKET_BYTES, BYTES);
    let record = NewRecord { key: KEY, value: b"value", kind: 0, expires_at_ms: 0 };
    let slot = slots.allocate(&mut owner, record.record_bytes(), 0).unwrap();
    let pointer = write_pending(&mut owner, SECRET, 3, slot, &record);
    let view = TableRef::read(3, owner.words()).unwrap();
    let generation_low = pointer.generation as u8;
    let signature = hash().signature();
    (owner, view, BucketSlot { slot: slot.slot, class: slot.class, generation_low, signature })
}

/// A bucket with one slot word; whether it is in use; a link.
fn bucket(slot: BucketSlot, is_used: bool, link: u32) -> Vec<u8> {
    let header = BucketHeader(0).with_used(2, is_used).with_overflow(link);
    let mut words = [header.0; 1 + BUCKET_SLOTS];
    words[1..].fill(0);
    words[3] = slot.to_word();
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Walks where the bucket names `slot`, and each fetch of a record gives what
/// the owner has there, its last `broken` bytes overwritten. Gives the end, and the
/// fetches of the bucket and of the record.
fn drive(
    owner: &Owner<NoJournal>,
    view: &TableRef,
    slot: BucketSlot,
    broken: usize,
) -> (Result<Vec<u8>, AskReason>, u32, u32) {
    let (mut walk, first) = Walk::begin(KEY, hash(), view);
    let (mut want, mut buckets, mut records) = (first, 0, 0);
    loop {
        let mut bytes = owner.slice(want.offset as usize, want.bytes).to_vec();
        if want == first {
            buckets += 1;
            bytes = bucket(slot, true, 0);
        } else {
            records += 1;
            assert!(records < 100, "it comes to an end");
            let end = bytes.len();
            bytes[end - broken..].fill(0xee);
        }
        let step = walk.feed(&bytes);
        assert_eq!(walk.nodes(), (buckets + records) as usize);
        match step {
            Step::Fetch(next) => want = next,
            Step::Found(found) => return (Ok(found.value.to_vec()), buckets, records),
            Step::Ask(reason) => return (Err(reason), buckets, records),
            Step::Moved => panic!("there is one bucket"),
        }
    }
}

/// The slot of a slot word, first of its place.
fn record(slot: BucketSlot) -> Slot {
    Slot { slot: slot.slot, generation: 1, class: slot.class }
}

const TRIES: u32 = 1 + READ_RETRIES;

#[test]
fn a_record_is_found_live_and_asked_for_while_it_is_pending() {
    let (mut owner, view, slot) = record_alone();
    assert_eq!(drive(&owner, &view, slot, 0), (Err(AskReason::Pending), 1, 1));
    publish_live(&mut owner, record(slot));
    assert_eq!(drive(&owner, &view, slot, 0), (Ok(b"value".to_vec()), 1, 1));
}

#[test]
fn a_torn_record_is_fetched_again_a_few_times() {
    let (mut owner, view, slot) = record_alone();
    publish_live(&mut owner, record(slot));
    let torn = drive(&owner, &view, slot, class_bytes(slot.class) - 36);
    assert_eq!(torn, (Err(AskReason::TooManyTries), 1, TRIES));
}

#[test]
fn a_dead_record_and_one_of_another_generation_send_back_to_the_bucket_a_few_times() {
    let (mut owner, view, slot) = record_alone();
    publish_live(&mut owner, record(slot));
    let other = BucketSlot { generation_low: slot.generation_low.wrapping_add(1), ..slot };
    assert_eq!(drive(&owner, &view, other, 0), (Err(AskReason::TooManyTries), TRIES, TRIES));
    flip_dead(&mut owner, slot.slot);
    assert_eq!(drive(&owner, &view, slot, 0), (Err(AskReason::TooManyTries), TRIES, TRIES));
}

#[test]
fn only_words_in_use_of_a_class_that_exists_are_candidates() {
    let (_, view, slot) = record_alone();
    let not_found = Step::Ask(AskReason::NotFound);
    let feed = |bucket: &[u8]| {
        let (mut walk, _) = Walk::begin(KEY, hash(), &view);
        let step = walk.feed(bucket);
        matches!(step, Step::Fetch(_)) || {
            assert_eq!(step, not_found);
            false
        }
    };
    assert!(feed(&bucket(slot, true, 0)));
    assert!(!feed(&bucket(slot, false, 0)), "its bit is not set");
    assert!(!feed(&bucket(BucketSlot { signature: !slot.signature, ..slot }, true, 0)));
    let class = CLASSES as u8;
    assert!(!feed(&bucket(BucketSlot { class, ..slot }, true, 0)), "there is no such class");
    let end = (BYTES / 16) as u32;
    assert!(feed(&bucket(BucketSlot { slot: end - 2, ..slot }, true, 0)), "a header fits");
    assert!(!feed(&bucket(BucketSlot { slot: end - 1, ..slot }, true, 0)), "no header fits");
}

#[test]
fn a_chain_is_followed_inside_the_region_and_so_far() {
    let (_, view, _) = record_alone();
    let last = (BYTES - BUCKET_BYTES) as u32 / 16;
    let (mut walk, _) = Walk::begin(KEY, hash(), &view);
    for _ in 1..CHAIN_BUCKETS {
        let Step::Fetch(want) = walk.feed(&bucket(NONE, false, last)) else { panic!("it fits") };
        assert_eq!((want.offset, want.bytes), (last as u64 * 16, BUCKET_BYTES));
    }
    assert_eq!(walk.clone().feed(&bucket(NONE, false, 0)), Step::Ask(AskReason::NotFound));
    assert_eq!(walk.feed(&bucket(NONE, false, last)), Step::Ask(AskReason::TooManyTries));
    let (mut walk, _) = Walk::begin(KEY, hash(), &view);
    assert_eq!(walk.feed(&bucket(NONE, false, last + 1)), Step::Ask(AskReason::TooManyTries));
}
