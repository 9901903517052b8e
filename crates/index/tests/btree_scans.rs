//! Walks of ranges over B+trees: against a map, over trees that change at the same time, their
//! rounds, and forged nodes.

use crate::btree_fixture::{FAN_OUTS, OrderedFixture, key, options};
use crate::btree_history::{Checker, KEYS, bytes_of, record};
use crate::feeder::{Source, feed};
use crate::fixture::HOME;
use crate::replay::Replay;
use remora_arena::{Journal, NoJournal, Owner};
use remora_index::btree::{AskReason, Direction, Range, Scan, Want};
use remora_layout::arena_header::durable_word;
use remora_layout::btree::{
    Content, Item, KeyForm, OrderedHeader, Ownership, Payload, Value, ValueKind, encode, word,
};
use remora_layout::limits::{MAX_ORDERED_KEY_BYTES, WALK_RESTARTS, WALK_RETRIES};
use remora_layout::node::{NodeRef, Proof};
use remora_layout::record::{Guardian, State};
use remora_testing::Random;
use remora_walk::{Step, Walk, What};
use std::collections::HashMap;
use std::ops::Bound;

const FORMS: [KeyForm; 2] = [KeyForm::Integers, KeyForm::Bytes];
const DIRECTIONS: [Direction; 2] = [Direction::Ascending, Direction::Descending];
const PARALLEL: [usize; 3] = [1, 4, 16];
const MANY: u64 = 3_000;

/// The nodes of an owner whose tree does not change; wants are answered in any order.
struct Still<'o, J: Journal> {
    owner: &'o Owner<J>,
    random: Random,
}

impl<J: Journal> Source<Scan> for Still<'_, J> {
    fn bytes(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        (self.owner.slice(want.offset as usize, want.bytes).to_vec(), Proof::Checksum)
    }

    fn head(&mut self) -> OrderedHeader {
        panic!("the tree does not change")
    }

    fn next(&mut self, under_way: usize) -> usize {
        self.random.below(under_way)
    }
}

fn begin<J: Journal>(fixture: &OrderedFixture<J>, range: Range<'_>, parallel: usize) -> Scan {
    let region = fixture.owner.region_bytes() as u64;
    Scan::begin(range, parallel, HOME, fixture.tree.at(), fixture.tree.header(), region)
}

fn filled(keys: KeyForm, fan_out: usize, many: usize) -> OrderedFixture<NoJournal> {
    let mut random = Random::new(fan_out as u64);
    let mut fixture = OrderedFixture::new(options(keys, fan_out), 16 << 20, NoJournal);
    for _ in 0..many {
        let (kind, bytes) = fixture.value(&mut random);
        fixture.set(&key(&mut random, keys, MANY), kind, &bytes);
        if random.one_in(4)
            && let Some(known) = fixture.some(&mut random)
        {
            fixture.delete(&known);
        }
    }
    fixture
}

fn bound<'k>(random: &mut Random, key: &'k [u8]) -> Bound<&'k [u8]> {
    random.pick(&[Bound::Included(key), Bound::Excluded(key), Bound::Unbounded])
}

/// Scans one range, with up to `parallel` leaves and an inner node in flight, or with fewer.
pub fn compare<J: Journal>(
    fixture: &OrderedFixture<J>,
    range: Range<'_>,
    parallel: usize,
    seed: u64,
) {
    let mut expected = Vec::new();
    fixture.tree.range(&fixture.owner, range, |key, value| {
        expected.push((key.to_vec(), value.kind, value.bytes.to_vec()));
    });
    let mut random = Random::new(seed);
    let width = random.pick(&[1, parallel, parallel + 2]);
    let mut walk = begin(fixture, range, parallel);
    let mut still = Still { owner: &fixture.owner, random };
    feed(&mut walk, width, &mut still).unwrap();
    let entries = walk.entries();
    let entries: Vec<_> =
        entries.map(|(key, value)| (key.to_vec(), value.kind, value.bytes.to_vec())).collect();
    assert_eq!(entries, expected, "{range:?}, {parallel} at a time");
    assert_eq!((walk.results(), walk.retries()), (expected.len(), 0));
}

#[test]
fn a_scan_gives_what_the_owner_gives() {
    for keys in FORMS {
        for fan_out in FAN_OUTS {
            for many in [0, 1, 15, 2_500] {
                let fixture = filled(keys, fan_out, many);
                let mut random = Random::new(7 + many as u64);
                for seed in 0..150 {
                    let (one, other) = (key(&mut random, keys, MANY), key(&mut random, keys, MANY));
                    let (from, to) = (bound(&mut random, &one), bound(&mut random, &other));
                    let direction = random.pick(&DIRECTIONS);
                    let limit = random.pick(&[0, 1, 5, 70, usize::MAX]);
                    let range = Range { from, to, direction, limit };
                    compare(&fixture, range, random.pick(&PARALLEL), seed);
                }
                for direction in DIRECTIONS {
                    compare(&fixture, Range { direction, ..Range::ALL }, 4, 1);
                }
            }
        }
    }
}

/// Feeds all wants of a round, then those that have come; gives the rounds.
fn rounds(fixture: &OrderedFixture<NoJournal>, range: Range<'_>, parallel: usize) -> (usize, u64) {
    let mut walk = begin(fixture, range, parallel);
    for round in 1.. {
        let wants: Vec<Want> = std::iter::from_fn(|| walk.next_want()).collect();
        assert!(!wants.is_empty() && wants.len() <= parallel + 1, "{}", wants.len());
        for want in wants {
            let bytes = fixture.owner.slice(want.offset as usize, want.bytes);
            match walk.feed(want, bytes, Proof::Checksum) {
                Step::More => {}
                Step::Found(()) => return (round, walk.believed()),
                other => panic!("{other:?}"),
            }
        }
    }
    unreachable!("it ends")
}

#[test]
fn leaves_are_read_many_at_a_time() {
    for keys in FORMS {
        let fixture = filled(keys, 64, 4_000);
        let levels = fixture.tree.check(&fixture.owner).unwrap();
        let (leaves, height) = (levels[0].nodes as usize, levels.len());
        let named: u64 = levels[1..].iter().map(|level| level.nodes).sum();
        for parallel in PARALLEL {
            let (rounds, nodes) = rounds(&fixture, Range::ALL, parallel);
            let least = leaves.div_ceil(parallel) + height - 1;
            // Where the children of one node of level 1 end, a round may be short.
            let most = least + levels[1].nodes as usize;
            assert!((least..=most).contains(&rounds), "{rounds} of {least} to {most}");
            assert!(nodes <= leaves as u64 + named, "{nodes}");
        }
        let few = Range { limit: 40, ..Range::ALL };
        let (_, nodes) = rounds(&fixture, few, 16);
        assert!(nodes <= height as u64 - 1 + 3, "a short range wants few leaves: {nodes}");
    }
}

#[test]
fn leaves_that_are_divided_meanwhile_cost_no_restart() {
    for (direction, parallel) in DIRECTIONS.into_iter().flat_map(|d| PARALLEL.map(|p| (d, p))) {
        let mut fixture = OrderedFixture::new(options(KeyForm::Integers, 4), 1 << 20, NoJournal);
        let number = |number: u64| number.to_be_bytes().to_vec();
        for old in 0..40 {
            fixture.set(&number(old * 8), ValueKind::Bytes, b"old");
        }
        let mut walk = begin(&fixture, Range { direction, ..Range::ALL }, parallel);
        // To the first leaf; then each leaf is divided, and has a neighbour that no parent has named.
        let leaf = loop {
            let want = walk.next_want().unwrap();
            let bytes = fixture.owner.slice(want.offset as usize, want.bytes);
            match want.what {
                What::Node { level: 0, .. } => break want,
                _ => assert_eq!(walk.feed(want, bytes, Proof::Checksum), Step::More),
            }
        };
        let nodes = fixture.tree.nodes();
        for new in 0..40 {
            fixture.set(&number(new * 8 + 3), ValueKind::Bytes, b"new");
        }
        assert!(fixture.tree.nodes() > nodes + 10);
        let bytes = fixture.owner.slice(leaf.offset as usize, leaf.bytes);
        assert_eq!(walk.feed(leaf, bytes, Proof::Checksum), Step::More);
        let mut still = Still { owner: &fixture.owner, random: Random::new(3) };
        feed(&mut walk, parallel + 1, &mut still).unwrap();
        assert_eq!(walk.retries(), 0);
        let mut found: Vec<_> = walk.entries().map(|(key, _)| key.to_vec()).collect();
        if direction == Direction::Descending {
            found.reverse();
        }
        assert!(found.iter().eq(fixture.map.keys()), "{direction:?}, {parallel} at a time");
    }
}

/// Nodes that arrive late and torn, in any order.
struct Late<'l, 'r> {
    replay: &'l mut Replay<'r>,
    random: &'l mut Random,
    header: NodeRef,
    /// The leaf that was read last.
    last: Option<NodeRef>,
}

impl Source<Scan> for Late<'_, '_> {
    fn bytes(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        let What::Node { at, level } = want.what else { panic!("a walk wants nodes") };
        if level == 0 {
            self.last = Some(at);
        }
        (self.replay.read(at, want.bytes, self.random), Proof::Checksum)
    }

    fn head(&mut self) -> OrderedHeader {
        self.replay.ordered_header(self.header, self.random)
    }

    fn next(&mut self, under_way: usize) -> usize {
        self.random.below(under_way)
    }
}

/// Counts of walks.
#[derive(Default, Debug)]
struct Counts {
    walks: u64,
    found: u64,
    restarted: u64,
    asked: u64,
}

/// What a walk has shown of the keys of its range: in order, each at most once.
fn shown(walk: &Scan, direction: Direction) -> Vec<(Vec<u8>, u64)> {
    let value = |value: Value<'_>| u64::from_le_bytes(value.bytes.try_into().unwrap());
    let mut shown: Vec<_> =
        walk.entries().map(|(key, bytes)| (key.to_vec(), value(bytes))).collect();
    if direction == Direction::Descending {
        shown.reverse();
    }
    let ascends = shown.windows(2).all(|pair| pair[0].0 < pair[1].0);
    assert!(ascends, "a key occurs twice, or out of order: {shown:?}");
    shown
}

/// Checks every key of the part of the range that was covered.
fn check(
    checker: &mut Checker<'_>,
    keys: KeyForm,
    range: Range<'_>,
    times: (usize, usize),
    shown: &[(Vec<u8>, u64)],
) {
    let is_cut = shown.len() == range.limit;
    let values: HashMap<&[u8], u64> = shown.iter().map(|(key, value)| (&key[..], *value)).collect();
    let (first, last) = (shown.first(), shown.last());
    let mut known = 0;
    for number in 0..KEYS {
        let key = bytes_of(keys, number);
        let value = values.get(&key[..]).copied();
        known += usize::from(value.is_some());
        let is_behind = match range.direction {
            Direction::Ascending => last.is_some_and(|(last, _)| key > *last),
            Direction::Descending => first.is_some_and(|(first, _)| key < *first),
        };
        let is_outside = match (range.from, range.to) {
            (Bound::Included(from), Bound::Excluded(to)) => &key[..] < from || &key[..] >= to,
            _ => false,
        };
        if is_outside || (is_cut && is_behind) {
            assert_eq!(value, None, "key {number} is not in the range");
        } else {
            checker.check(number, times, value);
        }
    }
    assert_eq!(known, shown.len(), "it shows keys that nobody has set");
}

fn run(keys: KeyForm, fan_out: usize, calm: u64, seed: u64, counts: &mut Counts) {
    let mut random = Random::new(seed);
    let history = record(keys, fan_out, 3_000, &mut random);
    let mut checker = Checker::new(&history.changes);
    let mut replay =
        Replay { words: history.start.clone(), stores: &history.stores, time: 0, calm };
    // A header that the reader keeps from an earlier walk, or a leaf, as a cache of nodes does.
    let mut kept: Option<OrderedHeader> = None;
    while replay.time < history.stores.len() {
        let between = random.pick(&[3, 60, 300]);
        replay.go_on(random.below(between));
        let mut ends = [(); 2].map(|()| bytes_of(keys, random.below(KEYS)));
        ends.sort();
        let mut range = Range { direction: random.pick(&DIRECTIONS), ..Range::ALL };
        if random.one_in(2) {
            range.from = Bound::Included(&ends[0]);
            range.to = Bound::Excluded(&ends[1]);
        }
        range.limit = random.pick(&[3, 20, usize::MAX]);
        let parallel = random.pick(&PARALLEL);
        let from = replay.time;
        let header = replay.ordered_header(history.header_at, &mut random);
        let first = kept.filter(|_| random.one_in(2)).unwrap_or(header);
        let region = replay.words.len() as u64 * 8;
        let at = history.header_at;
        let mut walk = Scan::begin(range, parallel, HOME, at, first, region);
        let mut late = Late { replay: &mut replay, random: &mut random, header: at, last: None };
        let end = feed(&mut walk, parallel + 1, &mut late);
        let last = late.last;
        if kept.is_none() || random.one_in(6) {
            let leaf = last.map(|root| OrderedHeader { root, height: 1, ..header });
            kept = random.pick(&[Some(header), leaf]);
        }
        let shown = shown(&walk, range.direction);
        counts.walks += 1;
        counts.found += shown.len() as u64;
        counts.restarted += u64::from(walk.retries() > 0);
        match end {
            Ok(_) => check(&mut checker, keys, range, (from, replay.time), &shown),
            Err(AskReason::Broken) => panic!("the owner's memory is no tree"),
            Err(_) => counts.asked += 1,
        }
    }
}

#[test]
fn torn_and_late_reads_miss_no_key_of_a_range_and_invent_none() {
    let mut counts = Counts::default();
    for keys in FORMS {
        for (seed, fan_out) in [4, 5, 16].into_iter().enumerate() {
            for calm in [60, 300, 2_000] {
                run(keys, fan_out, calm, seed as u64 * 31 + calm, &mut counts);
            }
        }
    }
    let Counts { walks, found, restarted, asked } = counts;
    let is_telling = walks > 5_000 && found > walks && restarted > 500;
    assert!(is_telling && asked < walks / 2, "{counts:?}");
}

/// Memory in which every address holds a node that fits what is wanted, each time another one.
struct Forger {
    random: Random,
    header: OrderedHeader,
    tree: NodeRef,
    fetches: u64,
}

const NODE_BYTES: usize = 512;
const REGION: u64 = 64 << 10;

impl Forger {
    fn place(&mut self) -> NodeRef {
        // Some of them lie outside of the region.
        NodeRef { slot: self.random.below(REGION as u32 / 16 + 40), generation: 1 }
    }

    fn node(&mut self, at: NodeRef, level: u8) -> Vec<u8> {
        let form = self.header.keys;
        let mut keys: Vec<Vec<u8>> = (0..2 + self.random.below(7u64))
            .map(|_| match form {
                KeyForm::Integers => self.random.bits().to_be_bytes().to_vec(),
                KeyForm::Bytes => self.random.bytes_up_to(12),
            })
            .collect();
        keys.sort();
        let high = keys.pop().filter(|_| !self.random.one_in(20));
        let low = if self.random.one_in(2) { Vec::new() } else { keys[0].clone() };
        let right = self.place();
        let is_deep = self.random.one_in(5);
        let items = keys.iter().map(|key| {
            let payload = match (level, is_deep) {
                (0, false) => Payload::Value(Value::of(b"forged value")),
                _ => Payload::Child(self.place()),
            };
            Item { key, payload }
        });
        let items: Vec<Item<'_>> = items.collect();
        let content = Content {
            level,
            is_deep,
            keys: form,
            low: &low,
            high: high.as_deref(),
            right,
            items: &items,
        };
        let mut bytes = vec![0; NODE_BYTES];
        encode(&content, Ownership { at, tree: self.tree, changed_at: 1 }, &mut bytes);
        bytes
    }
}

impl Source<Scan> for Forger {
    fn bytes(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        let What::Node { at, level } = want.what else { panic!("a walk wants nodes") };
        self.fetches += 1;
        let mut bytes = self.node(at, level);
        let rare = self.random.pick(&[3, 1_000]);
        if self.random.one_in(rare) {
            for _ in 0..1 + self.random.below(4u64) {
                // Not the words by which it would be believed no more.
                let known = [word::OWN, word::TREE];
                let index = 3 + self.random.below(40usize);
                if !known.contains(&index) {
                    let any = self.random.below(255u8);
                    let byte = self.random.below(8usize);
                    bytes[index * 8 + byte] = self.random.pick(&[0, 1, 2, 0x7f, 0x80, 0xff, any]);
                }
            }
        }
        let state = if self.random.one_in(500) { State::Dead } else { State::Live };
        let guardian = Guardian { generation: at.generation, state, class: 0 };
        bytes[..8].copy_from_slice(&guardian.to_word().to_le_bytes());
        bytes[8..16].copy_from_slice(&2u64.to_le_bytes());
        (bytes, Proof::VersionAfter(2))
    }

    fn head(&mut self) -> OrderedHeader {
        self.header
    }

    fn next(&mut self, under_way: usize) -> usize {
        self.random.below(under_way)
    }
}

#[test]
fn forged_nodes_end_a_scan_within_its_bounds() {
    let (mut found, mut asked, mut gathered) = (0, 0, 0);
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let tree = NodeRef { slot: 1, generation: 1 };
        let header = OrderedHeader {
            fan_out: 8,
            height: random.pick(&[1, 2, 3, 40]),
            keys: random.pick(&FORMS),
            node_bytes: NODE_BYTES as u32,
            root: NodeRef { slot: 32, generation: 1 },
            moves: random.below(3u64),
        };
        let ends = [(); 2].map(|()| random.bytes_up_to(9));
        let (from, to) = (bound(&mut random, &ends[0]), bound(&mut random, &ends[1]));
        let direction = random.pick(&DIRECTIONS);
        let range = Range { from, to, direction, limit: random.pick(&[0, 5, usize::MAX]) };
        let parallel = random.pick(&PARALLEL);
        let mut forger = Forger { random, header, tree, fetches: 0 };
        let mut walk = Scan::begin(range, parallel, HOME, tree, header, REGION);
        match feed(&mut walk, parallel + 1, &mut forger) {
            Ok(_) => found += 1,
            Err(_) => asked += 1,
        }
        let leaves = REGION / NODE_BYTES as u64 * u64::from(WALK_RESTARTS + 1);
        let most = leaves * 60 + u64::from(WALK_RETRIES);
        assert!(forger.fetches <= most, "{} fetches", forger.fetches);
        let longest = walk.entries().map(|(key, _)| key.len()).max().unwrap_or(0);
        assert!(longest <= MAX_ORDERED_KEY_BYTES && walk.results() <= range.limit);
        gathered += walk.results();
    }
    assert!(found > 1_000 && asked > 1_000 && gathered > 1_000, "{found} {asked} {gathered}");
}

#[test]
fn a_scan_shows_no_change_that_is_not_durable() {
    let mut fixture = filled(KeyForm::Integers, 4, 40);
    let range = Range::ALL;
    // Changes of the fixture are of sequence 1.
    fixture.set(&7u64.to_be_bytes(), ValueKind::Bytes, b"value");
    for (durable, is_shown) in [(0, false), (1, true)] {
        let mut walk = begin(&fixture, range, 4);
        walk.set_durable(durable);
        let mut still = Still { owner: &fixture.owner, random: Random::new(1) };
        let end = feed(&mut walk, 4, &mut still).map(|_| ());
        assert_eq!(end, if is_shown { Ok(()) } else { Err(AskReason::Pending) });
    }
    let mut walk = begin(&fixture, range, 4);
    walk.want_durable();
    let want = walk.next_want().unwrap();
    assert_eq!((want.what, want.bytes), (What::Beside, 8));
    let known = durable_word(1).to_le_bytes();
    assert_eq!(walk.feed(want, &known, Proof::Checksum), Step::More);
    let mut still = Still { owner: &fixture.owner, random: Random::new(1) };
    feed(&mut walk, 4, &mut still).unwrap();
    assert_eq!(walk.results() as u64, fixture.tree.keys());
}
