//! Entries that move from one key to another, as the members of a sorted set do: the key is a score and a
//! member, and values are empty.
//!
//! Every store of a history of moves is recorded. Three rules hold for a member that is there all the time.
//! After each store at most one of its keys can be read, and one if no leaf is torn. A scan shows it once,
//! under a key that it had during the scan. And no reader shows a key that is older than one that was shown
//! before.

use crate::btree_fixture::{FAN_OUTS, OrderedFixture};
use crate::feeder::{Source, feed};
use crate::fixture::HOME;
use crate::replay::{Recorder, Replay};
use remora_arena::NoJournal;
use remora_index::btree::{AskReason, Direction, Get, Options, Range, Scan, TreeError, Want};
use remora_layout::btree::{
    Expected, KeyForm, ORDERED_ROOT_BYTES, OrderedHeader, OrderedNode, Value, ValueKind,
    verify_ordered_header,
};
use remora_layout::limits::PAGE_BYTES;
use remora_layout::node::{NodeRef, Proof};
use remora_testing::Random;
use remora_walk::{Walk, What};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};

/// Members of a history.
const MEMBERS: u64 = 60;
/// Members that come and go beside them, so that leaves are divided and joined.
const OTHERS: u64 = 200;
const SCORES: u64 = 500;

/// A key: a score and a member of a few bytes.
fn key(score: u64, member: u64) -> Vec<u8> {
    let mut key = score.to_be_bytes().to_vec();
    key.extend(format!("member-{member:04}").bytes());
    key
}

fn member_of(key: &[u8]) -> u64 {
    str::from_utf8(&key[15..]).unwrap().parse().unwrap()
}

/// The keys of a member, each with the stores between which it came to it.
type States = Vec<(usize, usize, Vec<u8>)>;

struct Moves {
    start: Vec<u64>,
    stores: Vec<(usize, u64)>,
    /// The number of stores after each change.
    ends: Vec<usize>,
    header_at: NodeRef,
    members: Vec<States>,
}

fn record(fan_out: usize, changes: u64, random: &mut Random) -> Moves {
    let recorder = Recorder::default();
    let options = Options::of(KeyForm::Bytes, fan_out, 64, 0);
    let mut fixture = OrderedFixture::new(options, 1 << 20, recorder.clone());
    let mut members: Vec<States> = Vec::new();
    for member in 0..MEMBERS {
        let key = key(random.below(SCORES), member);
        fixture.set(&key, ValueKind::Bytes, b"");
        members.push(vec![(0, 0, key)]);
    }
    let words = fixture.owner.region_bytes() / 8;
    let start: Vec<u64> = (0..words).map(|word| fixture.owner.word(word)).collect();
    recorder.0.borrow_mut().clear();
    let (mut others, mut ends) = (BTreeMap::<u64, Vec<u8>>::new(), Vec::new());
    for number in 0..changes {
        ends.push(recorder.0.borrow().len());
        let grows = (number * 8 / changes).is_multiple_of(2);
        let other = MEMBERS + random.below(OTHERS);
        if random.one_in(2) {
            if let Some(key) = others.remove(&other) {
                fixture.delete(&key);
            } else if grows || random.one_in(4) {
                let key = key(random.below(SCORES), other);
                fixture.set(&key, ValueKind::Bytes, b"");
                others.insert(other, key);
            }
            continue;
        }
        let member = random.below(MEMBERS);
        let states = &mut members[member as usize];
        let before = states.last().unwrap().2.clone();
        // Near the score before, or anywhere.
        let near = u64::from_be_bytes(*before.first_chunk().unwrap()) ^ random.below(16u64);
        let after = key(if random.one_in(2) { near } else { random.below(SCORES) }, member);
        if after != before {
            let from = recorder.0.borrow().len();
            fixture.move_entry(&before, &after);
            states.push((from, recorder.0.borrow().len(), after));
        }
    }
    fixture.check();
    let stores = recorder.0.borrow().clone();
    Moves { start, stores, ends, header_at: fixture.tree.at(), members }
}

/// The keys that members have had, and the last one of each that was shown.
struct Checker<'m> {
    members: &'m [States],
    shown: Vec<usize>,
}

impl Checker<'_> {
    /// A reader from one time to another found the member under a key of which this holds.
    fn check(&mut self, member: u64, (from, to): (usize, usize), is_it: impl Fn(&[u8]) -> bool) {
        let (states, possible) =
            (&self.members[member as usize], self.possible(member, (from, to)));
        let state = possible.clone().find(|&state| is_it(&states[state].2));
        self.shown[member as usize] = state.unwrap_or_else(|| {
            panic!("member {member} is shown under a key that it has not: {possible:?}")
        });
    }

    /// The states in which a reader may show a member.
    fn possible(&self, member: u64, (from, to): (usize, usize)) -> RangeInclusive<usize> {
        let (states, shown) = (&self.members[member as usize], self.shown[member as usize]);
        let over = states.partition_point(|&(_, end, _)| end <= from) - 1;
        let begun = states.partition_point(|&(begin, _, _)| begin < to || begin == 0) - 1;
        let first = over.max(shown);
        first..=begun.max(first)
    }
}

/// Nodes that arrive late and torn, in any order.
struct Late<'l, 'r> {
    replay: &'l mut Replay<'r>,
    random: &'l mut Random,
    header: NodeRef,
}

impl Late<'_, '_> {
    fn read(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        let What::Node { at, .. } = want.what else { panic!("a walk wants nodes") };
        (self.replay.read(at, want.bytes, self.random), Proof::Checksum)
    }
}

impl Source<Scan> for Late<'_, '_> {
    fn bytes(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        self.read(want)
    }

    fn head(&mut self) -> OrderedHeader {
        self.replay.ordered_header(self.header, self.random)
    }

    fn next(&mut self, under_way: usize) -> usize {
        self.random.below(under_way)
    }
}

impl Source<Get<'_>> for Late<'_, '_> {
    fn bytes(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        self.read(want)
    }

    fn head(&mut self) -> OrderedHeader {
        self.replay.ordered_header(self.header, self.random)
    }
}

#[derive(Default, Debug)]
struct Counts {
    scans: u64,
    gets: u64,
    restarted: u64,
    asked: u64,
}

/// Gets the key under which a member was shown last.
fn get(checker: &mut Checker<'_>, late: &mut Late<'_, '_>, counts: &mut Counts) {
    let (member, from) = (late.random.below(MEMBERS), late.replay.time);
    let key = &checker.members[member as usize][checker.shown[member as usize]].2;
    let header = late.replay.ordered_header(late.header, late.random);
    let region = late.replay.words.len() as u64 * 8;
    let mut walk = Get::begin(key, HOME, late.header, header, region);
    match feed(&mut walk, 1, late) {
        Ok((is_there, _)) => {
            counts.gets += 1;
            checker.check(member, (from, late.replay.time), |of| (of == key) == is_there);
        }
        Err(AskReason::Broken) => panic!("the owner's memory is no tree"),
        Err(_) => {}
    }
}

/// Scans keys of some scores, or all.
fn scan(checker: &mut Checker<'_>, late: &mut Late<'_, '_>, counts: &mut Counts) {
    let direction = late.random.pick(&[Direction::Ascending, Direction::Descending]);
    let first = late.random.below(SCORES);
    let scores = if late.random.one_in(3) { 0..SCORES } else { first..first + SCORES / 5 };
    let [low, high] = [scores.start, scores.end].map(u64::to_be_bytes);
    let (lower, upper) = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
    let range = Range { from: lower, to: upper, direction, limit: usize::MAX };
    let (parallel, from) = (late.random.pick(&[1, 4, 16]), late.replay.time);
    let header = late.replay.ordered_header(late.header, late.random);
    let region = late.replay.words.len() as u64 * 8;
    let mut walk = Scan::begin(range, parallel, HOME, late.header, header, region);
    let end = feed(&mut walk, parallel + 1, late);
    counts.scans += 1;
    counts.restarted += u64::from(walk.retries() > 0);
    match end {
        Ok(_) => check_scan(checker, &walk, (&low, &high), (from, late.replay.time)),
        Err(AskReason::Broken) => panic!("the owner's memory is no tree"),
        Err(_) => counts.asked += 1,
    }
}

/// What a scan of keys between two others showed.
fn check_scan(
    checker: &mut Checker<'_>,
    walk: &Scan,
    (low, high): (&[u8], &[u8]),
    time: (usize, usize),
) {
    let mut found = BTreeMap::<u64, Vec<&[u8]>>::new();
    for (key, _) in walk.entries() {
        found.entry(member_of(key)).or_default().push(key);
    }
    let is_inside = |key: &[u8]| key >= low && key < high;
    for member in 0..MEMBERS {
        let keys = found.remove(&member).unwrap_or_default();
        let states = &checker.members[member as usize];
        let stays = checker.possible(member, time).all(|state| is_inside(&states[state].2));
        assert!(keys.len() <= 1, "a scan shows a member twice: {keys:?}");
        assert!(!stays || keys.len() == 1, "a scan misses member {member}");
        match keys[..] {
            [key] => checker.check(member, time, |of| of == key),
            _ => checker.check(member, time, |of| !is_inside(of)),
        }
    }
}

#[test]
fn torn_and_late_scans_show_each_member_once() {
    let mut counts = Counts::default();
    for (seed, fan_out) in [4, 5, 16, 64].into_iter().enumerate() {
        for calm in [300, 2_000, 20_000] {
            let mut random = Random::new(seed as u64 * 31 + calm);
            let moves = record(fan_out, 3_000, &mut random);
            let shown = vec![0; MEMBERS as usize];
            let mut checker = Checker { members: &moves.members, shown };
            let mut replay =
                Replay { words: moves.start.clone(), stores: &moves.stores, time: 0, calm };
            while replay.time < moves.stores.len() {
                let (replay, header) = (&mut replay, moves.header_at);
                replay.go_on(random.below(80));
                // Most readers begin between two changes.
                let next = moves.ends.partition_point(|end| *end < replay.time);
                if let Some(end) = moves.ends.get(next).filter(|_| !random.one_in(4)) {
                    replay.go_on(end - replay.time);
                }
                let is_get = random.one_in(2);
                let mut late = Late { replay, random: &mut random, header };
                if is_get {
                    get(&mut checker, &mut late, &mut counts);
                } else {
                    scan(&mut checker, &mut late, &mut counts);
                }
            }
        }
    }
    let Counts { scans, gets, restarted, asked } = counts;
    let is_telling = scans > 5_000 && gets > 5_000 && restarted > 500;
    assert!(is_telling && asked < scans / 2, "{counts:?}");
}

/// How often the members can be read in the leaves, by their right links; false if some leaf cannot be
/// believed.
fn in_leaves(
    memory: &[u8],
    tree: NodeRef,
    (first, node_bytes): (NodeRef, usize),
) -> (Vec<u64>, bool) {
    let bytes = |at: NodeRef| &memory[at.offset()..at.offset() + node_bytes];
    let mut next = Some(first);
    let (mut found, mut is_whole) = (vec![0; MEMBERS as usize], true);
    while let Some(at) = next {
        let expected = Expected { at: Some(at), tree, level: 0 };
        match OrderedNode::verify(bytes(at), HOME, expected, Proof::Checksum) {
            Ok(node) => node.visit(0..node.entries(), &mut [0; 1024], |key, _| {
                if let Some(times) = found.get_mut(member_of(key) as usize) {
                    *times += 1;
                }
            }),
            Err(_) => is_whole = false,
        }
        // A link is one word.
        next = OrderedNode::parse(bytes(at)).and_then(|node| node.right());
    }
    (found, is_whole)
}

#[test]
fn after_every_store_one_key_of_each_member_can_be_read() {
    let moves = record(5, 1_200, &mut Random::new(4));
    let mut memory: Vec<u8> = moves.start.iter().flat_map(|word| word.to_le_bytes()).collect();
    // The first leaf stays where it is.
    let at = moves.header_at;
    let header = &memory[at.offset()..at.offset() + ORDERED_ROOT_BYTES];
    let header = verify_ordered_header(header, HOME, at, Proof::Checksum).unwrap();
    let (mut first, node_bytes) = (header.root, header.node_bytes as usize);
    for _ in 1..header.height {
        let node = OrderedNode::parse(&memory[first.offset()..first.offset() + node_bytes]);
        first = node.unwrap().child(0).unwrap();
    }
    let (mut whole, mut torn) = (0, 0);
    for (time, &(index, value)) in moves.stores.iter().enumerate() {
        memory[index * 8..index * 8 + 8].copy_from_slice(&value.to_le_bytes());
        let (found, is_whole) = in_leaves(&memory, at, (first, node_bytes));
        let least = u64::from(is_whole);
        let are_right = found.iter().all(|times| (least..=1).contains(times));
        assert!(are_right, "after {} stores members can be read so often: {found:?}", time + 1);
        (whole, torn) = (whole + u64::from(is_whole), torn + u64::from(!is_whole));
    }
    assert!(whole > 1_000 && torn > 1_000, "{whole} {torn}");
}

/// Grows, moves and shrinks; now and then many changes whose memory is taken before, and then all
/// other memory.
fn program(fan_out: usize, seed: u64) -> u64 {
    let (mut random, mut refused) = (Random::new(seed), 0);
    let options = Options::of(KeyForm::Bytes, fan_out, 256, 0);
    let mut fixture = OrderedFixture::new(options, 16 << 20, NoJournal);
    let any = |random: &mut Random| {
        let mut key = key(random.below(SCORES), random.below(2_000u64));
        if random.one_in(20) {
            key.resize(256 - random.below(3usize), b'x');
        }
        key
    };
    for step in 0..4_000 {
        let (known, to) = (fixture.some(&mut random), any(&mut random));
        let is_new = !fixture.map.contains_key(&to);
        match known {
            Some(known) if random.one_in(3) => fixture.delete(&known),
            Some(known) if is_new && random.one_in(2) => fixture.move_entry(&known, &to),
            _ => fixture.set(&to, ValueKind::Bytes, b""),
        }
        if step % 200 != 199 {
            continue;
        }
        fixture.check();
        let is_reserved = random.one_in(2);
        let many = 1 + random.below(if is_reserved { 30 } else { 300usize });
        let keys: Vec<Vec<u8>> = (0..many).map(|_| any(&mut random)).collect();
        let (tree, mut arena) = fixture.parts();
        if is_reserved {
            tree.reserve(&mut arena, &keys).unwrap();
        }
        // All other memory is taken.
        let mut runs = Vec::new();
        while let Ok(run) = fixture.slots.take_run(PAGE_BYTES) {
            runs.push(run);
        }
        for to in keys {
            let known = fixture.some(&mut random);
            let done = match known {
                _ if fixture.map.contains_key(&to) => Ok(()),
                Some(known) if random.one_in(3) => fixture.try_move(&known, &to),
                _ => fixture.try_set(&to, ValueKind::Bytes, b""),
            };
            assert!(done.is_ok() || !is_reserved, "memory was reserved: {done:?}");
            refused += u64::from(matches!(done, Err(TreeError::Full(_))));
        }
        fixture.check();
        for run in runs {
            fixture.slots.give_places(run, PAGE_BYTES, 1);
        }
    }
    refused
}

#[test]
fn changes_whose_memory_is_reserved_do_not_fail() {
    let programs = FAN_OUTS.into_iter().flat_map(|fan_out| (0..3).map(move |seed| (fan_out, seed)));
    let refused: u64 = programs.map(|(fan_out, seed)| program(fan_out, seed)).sum();
    assert!(refused > 0, "without a reserve some fail: {refused}");
}

#[test]
fn an_entry_of_a_large_sorted_set_takes_forty_bytes() {
    let mut random = Random::new(3);
    let options = Options::of(KeyForm::Bytes, 64, 256, 0);
    let mut fixture = OrderedFixture::new(options, 32 << 20, NoJournal);
    for _ in 0..200_000 {
        let key = random.bytes(18);
        let (tree, mut arena) = fixture.parts();
        tree.set(&mut arena, &key, Value::of(b"")).unwrap();
    }
    let bytes = fixture.tree.bytes() as f64 / fixture.tree.keys() as f64;
    assert!(bytes < 41.0, "{bytes}");
}
