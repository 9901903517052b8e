//! Walks of one key over B+trees that change at the same time: every store of a history is recorded,
//! and a reader's READs are torn and late, as in `rtree_walks`.
//!
//! Two rules hold for each key. A walk shows a state that was true at some time during the walk, and
//! none that is older than one that an earlier walk has shown. So a key that was there all the time
//! is found, and none is found that never was.

use crate::btree_fixture::{OrderedFixture, options};
use crate::feeder::{Source, feed};
use crate::fixture::HOME;
use crate::replay::{Recorder, Replay};
use remora_index::btree::{AskReason, Get, Want};
use remora_layout::btree::{
    KeyForm, ORDERED_ROOT_BYTES, OrderedHeader, ValueKind, verify_ordered_header,
};
use remora_layout::node::{NodeRef, Proof};
use remora_testing::Random;
use remora_walk::{Walk, What};
use std::collections::HashMap;

/// Keys of a history.
const KEYS: u64 = 120;

/// One change: its stores, its key, and the number that is the key's value from then on.
struct Change {
    from: usize,
    to: usize,
    key: u64,
    value: Option<u64>,
}

struct History {
    start: Vec<u64>,
    stores: Vec<(usize, u64)>,
    changes: Vec<Change>,
    header_at: NodeRef,
}

fn bytes_of(keys: KeyForm, key: u64) -> Vec<u8> {
    match keys {
        KeyForm::Integers => key.to_be_bytes().to_vec(),
        KeyForm::Bytes => format!("https://example.org/{}/page/{key}", key % 3).into_bytes(),
    }
}

fn record(keys: KeyForm, fan_out: usize, changes: u64, random: &mut Random) -> History {
    let recorder = Recorder::default();
    let mut fixture = OrderedFixture::new(options(keys, fan_out), 2 << 20, recorder.clone());
    let words = fixture.owner.region_bytes() / 8;
    let start: Vec<u64> = (0..words).map(|word| fixture.owner.word(word)).collect();
    recorder.0.borrow_mut().clear();
    let mut done = Vec::new();
    for number in 0..changes {
        let from = recorder.0.borrow().len();
        let grows = (number * 8 / changes).is_multiple_of(2);
        let key = random.below(KEYS);
        let sets = if grows { 8 } else { 2u64 };
        let value = (random.below(10u64) < sets).then_some(number);
        let bytes = bytes_of(keys, key);
        match value {
            Some(number) => fixture.set(&bytes, ValueKind::Bytes, &number.to_le_bytes()),
            None => fixture.delete(&bytes),
        }
        let to = recorder.0.borrow().len();
        done.push(Change { from, to, key, value });
    }
    fixture.check();
    let stores = recorder.0.borrow().clone();
    History { start, stores, changes: done, header_at: fixture.tree.at() }
}

impl Replay<'_> {
    fn ordered_header(&mut self, at: NodeRef, random: &mut Random) -> OrderedHeader {
        loop {
            let bytes = self.read(at, ORDERED_ROOT_BYTES, random);
            if let Ok(header) = verify_ordered_header(&bytes, HOME, at, Proof::Checksum) {
                return header;
            }
            self.go_on(1);
        }
    }
}

/// Nodes that arrive late and torn.
struct Late<'l, 'r> {
    replay: &'l mut Replay<'r>,
    random: &'l mut Random,
    header: NodeRef,
    /// The node that was read last: a leaf, at the end.
    last: Option<NodeRef>,
}

impl Source<Get<'_>> for Late<'_, '_> {
    fn bytes(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        let What::Node { at, .. } = want.what else { panic!("a walk wants nodes") };
        self.last = Some(at);
        (self.replay.read(at, want.bytes, self.random), Proof::Checksum)
    }

    fn head(&mut self) -> OrderedHeader {
        self.replay.ordered_header(self.header, self.random)
    }
}

/// The states of each key, and the latest that a walk has shown.
struct Checker<'h> {
    states: HashMap<u64, Vec<(usize, Option<u64>)>>,
    shown: HashMap<u64, usize>,
    changes: &'h [Change],
}

impl<'h> Checker<'h> {
    fn new(changes: &'h [Change]) -> Self {
        let mut states: HashMap<_, _> = (0..KEYS).map(|key| (key, vec![(0, None)])).collect();
        for (index, change) in changes.iter().enumerate() {
            states.get_mut(&change.key).unwrap().push((index + 1, change.value));
        }
        Self { states, shown: HashMap::new(), changes }
    }

    /// One walk, from one time to another.
    fn check(&mut self, key: u64, (from, to): (usize, usize), value: Option<u64>) {
        // Changes that were over when the walk began, or had begun at its end.
        let over = self.changes.partition_point(|change| change.to <= from);
        let begun = self.changes.partition_point(|change| change.from < to);
        let states = &self.states[&key];
        let at = |changes| states.partition_point(|&(made, _)| made <= changes) - 1;
        let first = at(over).max(self.shown.get(&key).copied().unwrap_or(0));
        let mut possible = first..=at(begun).max(first);
        let state = possible.clone().find(|&state| states[state].1 == value);
        let states: Vec<_> = possible.by_ref().map(|state| states[state].1).collect();
        let state = state.unwrap_or_else(|| panic!("key {key} is {value:?}, of {states:?}"));
        self.shown.insert(key, state);
    }
}

/// Counts of walks.
#[derive(Default, Debug)]
struct Counts {
    walks: u64,
    found: u64,
    restarted: u64,
    went_right: u64,
    asked: u64,
}

fn run(keys: KeyForm, fan_out: usize, calm: u64, seed: u64, counts: &mut Counts) {
    let mut random = Random::new(seed);
    let history = record(keys, fan_out, 3_000, &mut random);
    let mut checker = Checker::new(&history.changes);
    let mut replay =
        Replay { words: history.start.clone(), stores: &history.stores, time: 0, calm };
    // A leaf that the reader keeps from an earlier walk, as a cache of nodes does.
    let (mut kept, mut key) = (None, 0);
    while replay.time < history.stores.len() {
        // Often the same key again, after few stores: from the root, and from the leaf.
        let between = random.pick(&[3, 60]);
        replay.go_on(random.below(between));
        if random.one_in(8) {
            key = random.below(KEYS);
        }
        let bytes = bytes_of(keys, key);
        let from = replay.time;
        let mut header = replay.ordered_header(history.header_at, &mut random);
        if let Some(leaf) = kept.filter(|_| random.one_in(2)) {
            header = OrderedHeader { root: leaf, height: 1, ..header };
        }
        let region = replay.words.len() as u64 * 8;
        let mut walk = Get::begin(&bytes, HOME, history.header_at, header, region);
        let header = history.header_at;
        let mut late = Late { replay: &mut replay, random: &mut random, header, last: None };
        let end = feed(&mut walk, 1, &mut late);
        let last = late.last;
        if kept.is_none() || random.one_in(6) {
            kept = last.filter(|_| end.is_ok());
        }
        counts.walks += 1;
        counts.restarted += u64::from(walk.retries() > 0);
        counts.went_right += u64::from(walk.right_links() > 0);
        match end {
            Ok((found, _)) => {
                let value = walk.value().bytes;
                let value = found.then(|| u64::from_le_bytes(value.try_into().unwrap()));
                counts.found += u64::from(value.is_some());
                checker.check(key, (from, replay.time), value);
            }
            Err(AskReason::Broken) => panic!("the owner's memory is no tree"),
            Err(_) => counts.asked += 1,
        }
    }
}

#[test]
fn torn_and_late_reads_miss_no_key_and_invent_none() {
    let mut counts = Counts::default();
    for keys in [KeyForm::Integers, KeyForm::Bytes] {
        for (seed, fan_out) in [4, 5, 16].into_iter().enumerate() {
            for calm in [10, 60, 300, 2_000] {
                run(keys, fan_out, calm, seed as u64 * 31 + calm, &mut counts);
            }
        }
    }
    let Counts { walks, found, restarted, went_right, asked } = counts;
    let is_telling = walks > 10_000 && found > walks / 10 && restarted > 500 && went_right > 20;
    assert!(is_telling && asked < walks / 2, "{counts:?}");
}
