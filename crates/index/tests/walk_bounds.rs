//! A walk's reaction to each kind of bytes, fed by hand: which it takes for a candidate, how often
//! it tries again, and where it stops.

use crate::feeder::{Source, feed};
use remora_arena::{
    CLASSES, NewRecord, NoJournal, Owner, Slot, Slots, class_bytes, flip_dead, publish_live,
    write_pending,
};
use remora_index::hash::{AskReason, Lookup, LookupTarget, Table, TableRef, Want};
use remora_layout::arena_header::{ARENA_HEADER_BYTES, word};
use remora_layout::bucket::{BUCKET_BYTES, BUCKET_SLOTS, BucketHeader, BucketSlot};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{CHAIN_BUCKETS, READ_RETRIES};
use remora_walk::{Proof, Step, Walk};

const BYTES: usize = 1 << 20;
const SECRET: u64 = 77;
const KEY: &[u8] = b"key";
const NONE: BucketSlot = BucketSlot { slot: 0, class: 0, generation_low: 0, signature: 0 };

fn hash() -> KeyHash {
    KeyHash::of(KEY, 1)
}

/// A table of one bucket, and a record of the key that no slot word names yet.
fn record_alone() -> (Owner<NoJournal>, TableRef, BucketSlot) {
    record_of(Kind::STRING)
}

fn record_of(kind: Kind) -> (Owner<NoJournal>, TableRef, BucketSlot) {
    let mut owner = Owner::heap(BYTES, NoJournal);
    owner.store(word::RECORD_SECRET, SECRET);
    Table::new(&mut owner, ARENA_HEADER_BYTES, 1);
    let mut slots = Slots::new(ARENA_HEADER_BYTES + BUCKET_BYTES, BYTES);
    let record =
        NewRecord { database: Database::ZERO, key: KEY, value: b"value", kind, expires_at_ms: 0 };
    let slot = slots.allocate(&mut owner, record.record_bytes(), 0).unwrap();
    let pointer = write_pending(&mut owner, SECRET, 3, slot, &record);
    let view = TableRef::read(3, owner.view()).unwrap();
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

/// Memory where the bucket names `slot`. Each fetch of a record returns the owner's bytes, of which
/// the last `broken` are overwritten.
struct Broken<'o> {
    owner: &'o Owner<NoJournal>,
    slot: BucketSlot,
    broken: usize,
    buckets: u32,
    records: u32,
}

impl<'k> Source<Lookup<'k>> for Broken<'_> {
    fn bytes(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        let bytes = match want.tag {
            LookupTarget::Bucket => {
                self.buckets += 1;
                bucket(self.slot, true, 0)
            }
            LookupTarget::Record(_) => {
                self.records += 1;
                let mut bytes = self.owner.slice(want.offset as usize, want.bytes).to_vec();
                let end = bytes.len();
                bytes[end - self.broken..].fill(0xee);
                bytes
            }
        };
        (bytes, Proof::Checksum)
    }

    fn head(&mut self) -> TableRef {
        panic!("there is one bucket");
    }
}

/// Walks over such memory. Returns the end, and the number of fetches of the bucket and of the
/// record.
fn drive(
    owner: &Owner<NoJournal>,
    view: &TableRef,
    slot: BucketSlot,
    broken: usize,
) -> (Result<Vec<u8>, AskReason>, u32, u32) {
    let mut walk = Lookup::begin(KEY, hash(), Kind::STRING, view);
    let mut memory = Broken { owner, slot, broken, buckets: 0, records: 0 };
    let ended = feed(&mut walk, 1, &mut memory);
    let Broken { buckets, records, .. } = memory;
    assert_eq!(walk.nodes(), (buckets + records) as usize);
    (ended.map(|(found, bytes)| found.record(&bytes).value.to_vec()), buckets, records)
}

/// Feeds the next want.
fn feed_next(walk: &mut Lookup<'_>, bytes: &[u8]) -> Step<remora_index::hash::Found, AskReason> {
    let want = walk.next_want().expect("it has not ended");
    walk.feed(want, bytes, Proof::Checksum)
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
fn a_record_of_another_kind_is_asked_for_at_once() {
    for kind in [Kind::HASH.whole(), Kind::SORTED_PLACE, Kind::OBJECT] {
        let (mut owner, view, slot) = record_of(kind);
        publish_live(&mut owner, record(slot));
        assert_eq!(drive(&owner, &view, slot, 0), (Err(AskReason::OtherKind), 1, 1), "{kind:?}");
    }
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
        let mut walk = Lookup::begin(KEY, hash(), Kind::STRING, &view);
        let step = feed_next(&mut walk, bucket);
        step == Step::More || {
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
    let mut walk = Lookup::begin(KEY, hash(), Kind::STRING, &view);
    for _ in 1..CHAIN_BUCKETS {
        assert_eq!(feed_next(&mut walk, &bucket(NONE, false, last)), Step::More, "it fits");
        let want = walk.clone().next_want().unwrap();
        assert_eq!((want.offset, want.bytes), (last as u64 * 16, BUCKET_BYTES));
    }
    let end = feed_next(&mut walk.clone(), &bucket(NONE, false, 0));
    assert_eq!(end, Step::Ask(AskReason::NotFound));
    let beyond = Step::Ask(AskReason::TooManyTries);
    assert_eq!(feed_next(&mut walk, &bucket(NONE, false, last)), beyond);
    let mut walk = Lookup::begin(KEY, hash(), Kind::STRING, &view);
    assert_eq!(feed_next(&mut walk, &bucket(NONE, false, last + 1)), beyond);
}
