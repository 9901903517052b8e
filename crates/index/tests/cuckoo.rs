//! The bucket index beside the table that Key-Value-Links has, a cuckoo table (KELI 5.2; K12), on the
//! same keys: READs and bytes of a lookup, and entries that an insertion moves.
//! `cargo test -p remora-index cuckoo -- --nocapture` prints them.

use crate::feeder::{Source, feed};
use crate::store::{Store, plain_hash};
use remora_arena::{NoJournal, Owner, class_bytes};
use remora_index::hash::{Lookup, SlotIndex, TableRef, Want};
use remora_layout::bucket::{BUCKET_BYTES, BUCKET_SLOTS};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_testing::Random;
use remora_walk::Proof;
use std::collections::VecDeque;
use std::ops::Range;

const BUCKETS: u64 = 1 << 13;
const ARENA_BYTES: usize = 32 << 20;
const VALUE: [u8; 32] = [7; 32];
/// Percent of the slots of the main buckets that hold a key.
const LOADS: [u64; 5] = [50, 65, 75, 85, 95];
/// Buckets that an insertion of the cuckoo table looks at for a free slot.
const MAX_SEARCHED: usize = 2_000;

fn key(number: u64) -> Vec<u8> {
    format!("key:{number:012}").into_bytes()
}

/// Means for each operation.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// READs of a lookup that finds its key, the record's among them, one after the other.
    reads: f64,
    /// Bytes of these.
    bytes: f64,
    /// READs of buckets before a key that is not there is known not to be.
    absent_reads: f64,
    /// Entries that an insertion moves, while the last hundredth of the keys came.
    moved: f64,
    /// Of these, entries that go from their second bucket to their first: a reader that has read the
    /// first before the move, and reads the second after it, does not find them.
    missed: f64,
    /// Bytes of the table for each key.
    table_bytes: f64,
}

/// Counts READs of a store's memory.
struct Counted<'o> {
    owner: &'o Owner<NoJournal>,
    reads: u64,
    bytes: u64,
}

impl<'k> Source<Lookup<'k>> for Counted<'_> {
    fn bytes(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        self.reads += 1;
        self.bytes += want.bytes as u64;
        (self.owner.slice(want.offset as usize, want.bytes).to_vec(), Proof::Checksum)
    }

    fn head(&mut self) -> TableRef {
        unreachable!("the table does not grow")
    }
}

/// READs and bytes of lookups of all these keys in the bucket index.
fn look(store: &Store<NoJournal>, numbers: Range<u64>, are_there: bool) -> (u64, u64) {
    let view = store.view();
    let mut counted = Counted { owner: &store.owner, reads: 0, bytes: 0 };
    for number in numbers {
        let key = key(number);
        let mut lookup = Lookup::begin(&key, plain_hash(&key), Kind::STRING, &view);
        let is_found = feed(&mut lookup, 1, &mut counted).is_ok();
        assert_eq!(is_found, are_there, "a walk finds exactly what is there: {number}");
    }
    (counted.reads, counted.bytes)
}

/// The bucket index with so many main buckets and keys, without growth.
fn ours(keys: u64) -> Costs {
    let mut store = Store::new(ARENA_BYTES, BUCKETS, plain_hash, NoJournal);
    let last = keys / 100;
    (0..keys - last).for_each(|number| store.put(&key(number), &VALUE));
    let places = |store: &Store<NoJournal>| -> Vec<SlotIndex> {
        let place = |number| {
            let key = key(number);
            store.table.find(&store.owner, &key, plain_hash(&key)).expect("it was put").0
        };
        (0..keys - last).map(place).collect()
    };
    let before = places(&store);
    (keys - last..keys).for_each(|number| store.put(&key(number), &VALUE));
    let moved = places(&store).iter().zip(&before).filter(|(now, then)| now != then).count();
    let (reads, bytes) = look(&store, 0..keys, true);
    let (absent, _) = look(&store, keys..2 * keys, false);
    let mean = |sum: u64| sum as f64 / keys as f64;
    Costs {
        reads: mean(reads),
        bytes: mean(bytes),
        absent_reads: mean(absent),
        moved: moved as f64 / last as f64,
        // A key has one chain.
        missed: 0.0,
        table_bytes: mean(store.table.bytes()),
    }
}

/// A table that grows as in production: entries that splits move for each insertion, READs of a
/// lookup, and the table's bytes for each key.
fn grown(keys: u64) -> [f64; 3] {
    let mut store = Store::new(ARENA_BYTES, 1 << 6, plain_hash, NoJournal);
    let mut moved = 0;
    for number in 0..keys {
        store.put(&key(number), &VALUE);
        let before = store.table.buckets();
        if store.grow() {
            // What is in the new buckets came from others.
            let new = before..store.table.buckets();
            moved += new.map(|at| store.table.places(&store.owner, at).len()).sum::<usize>();
        }
    }
    let (reads, _) = look(&store, 0..keys, true);
    [moved as u64, reads, store.table.bytes()].map(|sum| sum as f64 / keys as f64)
}

/// A key in the cuckoo table: its number in place of a slot, and its hash.
type Entry = (u32, KeyHash);

/// A cuckoo table of buckets as long as ours, with as many slots; a key has two buckets, and the
/// second follows from the first and the signature (MemC3 3.1), so that a key moves without its record.
struct Cuckoo {
    buckets: Vec<Vec<Entry>>,
    moved: u64,
    missed: u64,
}

impl Cuckoo {
    fn empty() -> Self {
        Self { buckets: vec![Vec::new(); BUCKETS as usize], moved: 0, missed: 0 }
    }

    fn homes(hash: KeyHash) -> [usize; 2] {
        let first = hash.bucket(BUCKETS) as usize;
        let other = (hash.signature() as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        [first, first ^ (other % BUCKETS) as usize]
    }

    fn other(hash: KeyHash, bucket: usize) -> usize {
        let [first, second] = Self::homes(hash);
        if bucket == first { second } else { first }
    }

    /// Inserts by the shortest path of moves; false if there is none that is short enough.
    fn insert(&mut self, entry: Entry) -> bool {
        let homes = Self::homes(entry.1);
        let mut searched: Vec<(usize, Option<usize>, usize)> = Vec::new();
        let mut queue: VecDeque<usize> = VecDeque::new();
        for home in homes {
            queue.push_back(searched.len());
            searched.push((home, None, 0));
        }
        while let Some(at) = queue.pop_front() {
            let bucket = searched[at].0;
            if self.buckets[bucket].len() < BUCKET_SLOTS {
                self.move_along(&searched, at, entry);
                return true;
            }
            if searched.len() > MAX_SEARCHED {
                return false;
            }
            for (index, (_, hash)) in self.buckets[bucket].iter().enumerate() {
                let to = Self::other(*hash, bucket);
                // A bucket that is searched already has no shorter path through here.
                if searched.iter().all(|(seen, ..)| *seen != to) {
                    queue.push_back(searched.len());
                    searched.push((to, Some(at), index));
                }
            }
        }
        false
    }

    /// Moves the entries of a path of buckets, the last one first.
    fn move_along(&mut self, searched: &[(usize, Option<usize>, usize)], at: usize, entry: Entry) {
        let (mut at, mut to) = (at, searched[at].0);
        while let (_, Some(from), index) = searched[at] {
            let moving = self.buckets[searched[from].0].swap_remove(index);
            self.buckets[to].push(moving);
            self.moved += 1;
            self.missed += u64::from(Self::homes(moving.1)[0] == to);
            (at, to) = (from, searched[from].0);
        }
        self.buckets[to].push(entry);
    }

    /// Buckets that a lookup reads, one after the other, and records behind an equal signature.
    fn look(&self, hash: KeyHash, number: Option<u32>) -> (u64, u64) {
        let (mut buckets, mut records) = (0, 0);
        let [first, second] = Self::homes(hash);
        let homes = if first == second { &[first][..] } else { &[first, second][..] };
        for home in homes {
            buckets += 1;
            for (other, _) in
                self.buckets[*home].iter().filter(|(_, one)| one.signature() == hash.signature())
            {
                records += 1;
                if Some(*other) == number {
                    return (buckets, records);
                }
            }
        }
        assert_eq!(number, None, "what was inserted is found");
        (buckets, records)
    }
}

/// The cuckoo table with so many keys; `None` if one had no place.
fn cuckoo(keys: u64, record_bytes: u64) -> Option<Costs> {
    let mut table = Cuckoo::empty();
    let last = keys / 100;
    for number in 0..keys {
        if number == keys - last {
            (table.moved, table.missed) = (0, 0);
        }
        if !table.insert((number as u32, plain_hash(&key(number)))) {
            return None;
        }
    }
    let (mut reads, mut bytes, mut absent) = (0, 0, 0);
    for number in 0..keys {
        let (buckets, records) = table.look(plain_hash(&key(number)), Some(number as u32));
        reads += buckets + records;
        bytes += buckets * BUCKET_BYTES as u64 + records * record_bytes;
        let (buckets, records) = table.look(plain_hash(&key(keys + number)), None);
        absent += buckets + records;
    }
    let mean = |sum: u64| sum as f64 / keys as f64;
    Some(Costs {
        reads: mean(reads),
        bytes: mean(bytes),
        absent_reads: mean(absent),
        moved: table.moved as f64 / last as f64,
        missed: table.missed as f64 / last as f64,
        table_bytes: mean(BUCKETS * BUCKET_BYTES as u64),
    })
}

/// Bytes of the slot of a record of these keys.
fn record_bytes() -> u64 {
    let mut store = Store::new(1 << 20, 1, plain_hash, NoJournal);
    store.put(&key(0), &VALUE);
    let hash = plain_hash(&key(0));
    let (_, slot) = store.table.find(&store.owner, &key(0), hash).unwrap();
    class_bytes(slot.class) as u64
}

#[test]
fn a_lookup_reads_less_than_in_a_cuckoo_table_and_an_insertion_moves_nothing() {
    let record_bytes = record_bytes();
    let columns = "READs | bytes | absent | moved | missed | table";
    println!("| load | {columns} | cuckoo: {columns} |");
    println!("|{}", " --- |".repeat(13));
    for load in LOADS {
        let keys = BUCKETS * BUCKET_SLOTS as u64 * load / 100;
        let ours = ours(keys);
        let other = cuckoo(keys, record_bytes).expect("two buckets of seven take so many");
        let row = |costs: &Costs| {
            let Costs { reads, bytes, absent_reads, moved, missed, table_bytes } = costs;
            format!(
                "{reads:.3} | {bytes:.0} | {absent_reads:.3} | {moved:.3} | {missed:.3} | {table_bytes:.1}"
            )
        };
        println!("| 0.{load} | {} | {} |", row(&ours), row(&other));
        assert!(ours.reads < other.reads && ours.bytes < other.bytes, "{load}: {ours:?} {other:?}");
        assert!(ours.absent_reads < other.absent_reads, "{load}");
        assert_eq!(ours.moved, 0.0, "{load}");
        // Below that most keys find a place in one of their two buckets.
        assert!(load < 85 || other.moved > 0.0, "{load}: {other:?}");
        assert!(other.missed <= other.moved, "{load}: {other:?}");
        // Paths of several moves lead entries back to their first buckets.
        assert!(load < 95 || other.missed > 0.0, "{load}: {other:?}");
        // A bucket and a record are the least: what is above is the table's doing.
        assert!((2.0..2.2).contains(&ours.reads), "{load}: {ours:?}");
    }
    // Growth moves entries too, a split at a time, and tells readers by the bucket's depth.
    for keys in [45_000, 60_000, 75_000] {
        let [moved, reads, bytes] = grown(keys);
        println!("{keys} keys: splits move {moved:.3}, READs {reads:.3}, table {bytes:.1}");
        assert!((0.3..0.8).contains(&moved) && reads < 2.3, "{keys}: {moved} {reads}");
    }
}

#[test]
fn the_cuckoo_table_keeps_every_key_in_one_of_its_two_buckets() {
    let mut table = Cuckoo::empty();
    let mut random = Random::new(3);
    let keys = BUCKETS * BUCKET_SLOTS as u64 * 96 / 100;
    let numbers: Vec<u64> = (0..keys).map(|_| random.bits()).collect();
    for (at, number) in numbers.iter().enumerate() {
        assert!(table.insert((at as u32, plain_hash(&key(*number)))));
    }
    for (at, number) in numbers.iter().enumerate() {
        table.look(plain_hash(&key(*number)), Some(at as u32));
    }
    assert!(table.moved > 0 && table.buckets.iter().all(|bucket| bucket.len() <= BUCKET_SLOTS));
}
