//! Readers of every age at every store of a split and of a merge: the walk finds the key, or says
//! that the reader must look again or ask; no walk ever returns another record.

use crate::feeder::{Source, feed};
use crate::store::{REGION, Store, plain_hash};
use remora_arena::{Journal, Mapping, ReadView, Words};
use remora_index::hash::{AskReason, Lookup, TableRef, Want, walk_locally};
use remora_layout::arena_header::ARENA_HEADER_BYTES;
use remora_layout::bucket::BucketHeader;
use remora_layout::kind::Kind;
use remora_walk::{Proof, Step, Walk, What};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const BYTES: usize = 512 << 10;

/// Every store, in order.
#[derive(Clone, Default)]
struct Recorder(Rc<RefCell<Vec<(usize, u64)>>>);

impl Journal for Recorder {
    const ACTIVE: bool = true;
    fn stored(&mut self, index: usize, word: u64) {
        self.0.borrow_mut().push((index, word));
    }
    fn fenced(&mut self) {}
}

/// The arena's bytes before an operation and after each of its stores.
struct Film(Vec<Vec<u8>>);

impl Film {
    fn of(
        store: &mut Store<Recorder>,
        recorder: &Recorder,
        act: impl FnOnce(&mut Store<Recorder>),
    ) -> Self {
        let mut frame = store.owner.slice(0, BYTES).to_vec();
        recorder.0.borrow_mut().clear();
        act(store);
        let mut frames = vec![frame.clone()];
        for &(index, word) in recorder.0.borrow().iter() {
            frame[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
            frames.push(frame.clone());
        }
        assert!(frame == store.owner.slice(0, BYTES), "the film ends with the present");
        Self(frames)
    }

    fn view(&self, frame: usize) -> TableRef {
        TableRef::parse(REGION, BYTES as u64, &self.0[frame][..ARENA_HEADER_BYTES]).unwrap()
    }
}

#[derive(Default, Debug)]
struct Seen {
    found: u64,
    moved: u64,
    asked: u64,
}

/// Memory whose `n`-th fetch, header pages included, takes each word from the
/// frame that `frame_of(n, word)` names.
struct Frames<'f, F> {
    film: &'f Film,
    frame_of: F,
    fetches: usize,
    /// The view of the table that was read last.
    view: TableRef,
    moved: u64,
}

impl<F: Fn(usize, usize) -> usize> Frames<'_, F> {
    fn fetch(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        let mut into = vec![0; bytes];
        for (word, into) in into.chunks_mut(8).enumerate() {
            let at = offset as usize + word * 8;
            let frame = (self.frame_of)(self.fetches, word);
            into.copy_from_slice(&self.film.0[frame][at..at + into.len()]);
        }
        self.fetches += 1;
        into
    }
}

impl<'k, F: Fn(usize, usize) -> usize> Source<Lookup<'k>> for Frames<'_, F> {
    fn bytes(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        (self.fetch(want.offset, want.bytes), Proof::Checksum)
    }

    fn head(&mut self) -> TableRef {
        self.moved += 1;
        let page = self.fetch(0, ARENA_HEADER_BYTES);
        if let Some(newer) = TableRef::parse(REGION, BYTES as u64, &page) {
            self.view = newer;
        }
        self.view.clone()
    }
}

fn drive(
    film: &Film,
    view: &TableRef,
    key: &[u8],
    frame_of: impl Fn(usize, usize) -> usize,
    seen: &mut Seen,
) -> Result<Vec<u8>, AskReason> {
    let mut lookup = Lookup::begin(key, plain_hash(key), Kind::STRING, view);
    let mut frames = Frames { film, frame_of, fetches: 0, view: view.clone(), moved: 0 };
    let ended = feed(&mut lookup, 1, &mut frames);
    seen.moved += frames.moved;
    match ended {
        Ok((found, bytes)) => {
            seen.found += 1;
            Ok(found.record(&bytes).value.to_vec())
        }
        Err(reason) => {
            seen.asked += 1;
            Err(reason)
        }
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; 1 + number as usize % 12]
}

/// A store of this many keys in one chain, and its recorder.
fn one_chain(keys: u32) -> (Store<Recorder>, Recorder) {
    let recorder = Recorder::default();
    let mut store = Store::new(BYTES, 1, plain_hash, recorder.clone());
    for number in 0..keys {
        store.put(&key(number), &value(number));
    }
    (store, recorder)
}

/// The memory does not change after some store: every view finds every key.
fn all_found_at(film: &Film, frame: usize, views: &[TableRef], keys: &[u32], seen: &mut Seen) {
    for view in views {
        for &number in keys {
            let found = drive(film, view, &key(number), |_, _| frame, seen);
            assert_eq!(found.as_deref(), Ok(&value(number)[..]), "key {number}, store {frame}");
        }
    }
}

/// The memory changes between fetches, and during one. The walk finds the key or asks the owner.
/// `asked_for` may be removed before the end.
fn never_wrong(film: &Film, views: &[TableRef], keys: &[u32], seen: &mut Seen) {
    let last = film.0.len() - 1;
    for view in views {
        for &number in keys {
            let mut check = |frame_of: &dyn Fn(usize, usize) -> usize| match drive(
                film,
                view,
                &key(number),
                frame_of,
                seen,
            ) {
                Ok(found) => assert_eq!(found, value(number), "key {number}"),
                Err(AskReason::NotFound | AskReason::TooManyTries) => {}
                Err(reason @ (AskReason::Pending | AskReason::OtherKind)) => {
                    panic!("{reason:?}: key {number}")
                }
            };
            for from in 0..=last {
                for to in [from + 1, from + 3, from + 8, last] {
                    let to = to.min(last);
                    for at in 1..5 {
                        check(&|fetch, _| if fetch < at { from } else { to });
                        // A torn READ: its words are of both times, and either half may be the
                        // older one.
                        check(&|fetch, word| match fetch + 1 {
                            n if n < at => from,
                            n if n > at => to,
                            _ => {
                                if word % 8 < from % 8 {
                                    from
                                } else {
                                    to
                                }
                            }
                        });
                        check(&|fetch, word| match fetch + 1 {
                            n if n < at => from,
                            n if n > at => to,
                            _ => {
                                if word % 8 < to % 8 {
                                    to
                                } else {
                                    from
                                }
                            }
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn at_every_store_of_a_split_every_view_leads_to_every_key() {
    let (mut store, recorder) = one_chain(48); // seven buckets long
    let keys: Vec<u32> = (0..48).collect();
    let mut views = vec![store.view()];
    let (mut seen, mut stores) = (Seen::default(), 0);
    for _ in 0..8 {
        let film = Film::of(&mut store, &recorder, |store| assert!(store.grow()));
        stores += film.0.len() - 1;
        for frame in 0..film.0.len() {
            let mut views = views.clone();
            views.push(film.view(frame));
            all_found_at(&film, frame, &views, &keys, &mut seen);
        }
        views.push(store.view());
        store.check();
    }
    // 48 keys: nine buckets, so that the first views are three rounds late.
    assert_eq!(store.table.buckets(), 9);
    assert_eq!(seen.asked, 0, "{seen:?}");
    assert!(seen.moved > 10_000 && stores > 150, "{seen:?}, {stores} stores");
}

#[test]
fn no_split_between_fetches_makes_a_walk_wrong() {
    let (mut store, recorder) = one_chain(30);
    let mut views = vec![store.view()];
    let mut seen = Seen::default();
    for split in 0..4 {
        let film = Film::of(&mut store, &recorder, |store| assert!(store.grow()));
        let keys: Vec<u32> = (0..30).step_by(2 + split % 3).collect();
        never_wrong(&film, &views, &keys, &mut seen);
        views.push(store.view());
        views.drain(..views.len().saturating_sub(3));
    }
    assert!(seen.found > 100_000 && seen.moved > 10_000, "{seen:?}");
    // Few walks miss their key between two fetches.
    assert!(seen.asked > 0 && seen.asked * 20 < seen.found, "{seen:?}");
}

#[test]
fn no_merge_between_fetches_makes_a_walk_wrong() {
    let mut seen = Seen::default();
    let mut merges = 0;
    let (mut store, recorder) = one_chain(23);
    let mut keys: Vec<u32> = (0..23).collect();
    let views = [store.view()];
    // From the chain's middle, its start and its end.
    for number in [9, 0, 22, 1, 15, 3, 20, 5, 2, 16] {
        let before = store.table.overflow_buckets();
        let film = Film::of(&mut store, &recorder, |store| assert!(store.remove(&key(number))));
        keys.retain(|&left| left != number);
        for frame in 0..film.0.len() {
            all_found_at(&film, frame, &views, &keys, &mut seen);
        }
        assert_eq!(seen.asked, 0, "{seen:?}");
        if store.table.overflow_buckets() < before {
            merges += 1;
            let mut between = Seen::default();
            never_wrong(&film, &views, &keys, &mut between);
            assert!(between.asked * 20 < between.found, "{between:?}");
        }
        store.check();
    }
    assert_eq!((merges, store.table.overflow_buckets()), (2, 1));
}

#[test]
fn freed_overflow_buckets_are_used_again_and_harm_nobody() {
    let (mut store, recorder) = one_chain(8);
    let views = [store.view()];
    let keys: Vec<u32> = (1..8).collect();
    let overflow_slot =
        BucketHeader(store.owner.word(ARENA_HEADER_BYTES / 8)).overflow().unwrap() - 1;
    // The bucket is freed; then a later overflow bucket takes its place.
    let film = Film::of(&mut store, &recorder, |store| {
        assert!(store.remove(&key(0)));
        let large = [0xff; 40];
        store.put(&key(100), &large);
    });
    let mut seen = Seen::default();
    never_wrong(&film, &views, &keys, &mut seen);
    let again = BucketHeader(store.owner.word(ARENA_HEADER_BYTES / 8)).overflow().unwrap() - 1;
    assert_eq!(again, overflow_slot, "the slot was taken again");
    assert!(seen.found > 1_000, "{seen:?}");
}

/// Records of 16 + 32 bytes: the size of the table and the length of lookups, at any time between
/// two doublings.
#[test]
fn a_record_costs_less_than_16_bytes_of_table() {
    let mut store = Store::new(16 << 20, 64, plain_hash, remora_arena::NoJournal);
    let (mut most, mut least, mut sum, mut samples) = (0f64, f64::MAX, 0f64, 0);
    let (mut most_visited, mut visited_sum) = (0f64, 0f64);
    let mut scratch = Vec::new();
    for number in 0..90_000u64 {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&number.to_le_bytes());
        store.set(&key, &[7; 32]);
        let records = number + 1;
        // Two rounds: 4096 to 16384 buckets.
        if records < 21_504 || !records.is_multiple_of(2_048) {
            continue;
        }
        let cost = store.table.bytes() as f64 / records as f64;
        (most, least) = (most.max(cost), least.min(cost));
        let (visited, view) = (buckets_visited(&store, records, &mut scratch), store.view());
        assert_eq!(view.buckets(), store.table.buckets());
        let load = records as f64 / view.buckets() as f64;
        assert!((5.24..5.26).contains(&load), "{load} records a bucket");
        most_visited = most_visited.max(visited);
        (sum, visited_sum, samples) = (sum + cost, visited_sum + visited, samples + 1);
    }
    let (mean, visited) = (sum / samples as f64, visited_sum / samples as f64);
    println!("bytes of table for a record: {least:.2} to {most:.2}, mean {mean:.2}");
    println!("buckets visited by a lookup: {visited:.3} in the mean, {most_visited:.3} at most");
    assert!(samples > 20 && most <= 15.9 && visited < 1.12 && most_visited < 1.15);
}

/// The mean number of buckets that a walk visits, over every eighth key.
fn buckets_visited(
    store: &Store<remora_arena::NoJournal>,
    records: u64,
    scratch: &mut Vec<u8>,
) -> f64 {
    let view = store.view();
    let (mut buckets, mut walks) = (0, 0);
    for number in (0..records).step_by(8) {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&number.to_le_bytes());
        let mut lookup = Lookup::begin(&key, plain_hash(&key), Kind::STRING, &view);
        loop {
            let want = lookup.next_want().expect("it has not ended");
            buckets += (want.what == What::Words) as u64;
            scratch.resize(want.bytes, 0);
            store.owner.view().copy_out(want.offset as usize, scratch);
            match lookup.feed(want, scratch, Proof::Checksum) {
                Step::More => {}
                Step::Found(_) => break,
                other => panic!("{other:?}"),
            }
        }
        walks += 1;
    }
    buckets as f64 / walks as f64
}

/// The owner splits and merges while another real thread reads.
#[test]
fn a_reader_beside_the_owner_finds_what_stays() {
    const STAYING: u32 = 200;
    let mut store = Store::new(4 << 20, 2, plain_hash, remora_arena::NoJournal);
    for number in 0..STAYING {
        store.set(&key(number), &value(number));
    }
    let words: ReadView = store.owner.view().clone();
    let mut view = store.view();
    let (done, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    let order = Ordering::Relaxed;
    let (found, asked) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut found, mut asked) = (0u64, 0u64);
            let mut scratch = Vec::new();
            while !done.load(order) || found < 1_000 {
                let number = (found + asked) as u32 % STAYING;
                let key = key(number);
                match walk_locally(
                    &words,
                    &mut view,
                    &key,
                    plain_hash(&key),
                    Kind::STRING,
                    &mut scratch,
                ) {
                    Ok(record) => {
                        assert_eq!(record.value, value(number));
                        found += 1;
                    }
                    Err(_) => {
                        // Once for each change, however long the owner is held up in it.
                        asked += 1;
                        let change = changes.load(order);
                        while changes.load(order) == change && !done.load(order) {
                            std::thread::yield_now();
                        }
                    }
                }
            }
            (found, asked)
        });
        for round in 0..3 {
            for number in STAYING..STAYING + 6_000 * (round + 1) {
                store.set(&key(number), &value(number));
                changes.fetch_add(1, order);
            }
            for number in STAYING..STAYING + 6_000 * (round + 1) {
                store.remove(&key(number));
                changes.fetch_add(1, order);
            }
        }
        done.store(true, order);
        reader.join().expect("no wrong record")
    });
    store.check();
    assert!(asked * 20 < found, "{found} found, {asked} asked");
}

#[test]
fn a_region_of_nothing_has_no_table() {
    assert_eq!(TableRef::read(REGION, &Words::new(Mapping::heap(4096)).view()), None);
    assert_eq!(TableRef::read(REGION, &Words::new(Mapping::heap(64)).view()), None);
}
