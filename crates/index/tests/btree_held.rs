//! Addresses that others hold: whatever is inserted and deleted, such an address leads to all keys of
//! its part, until it is released; then the tree gets its shape back.

use crate::btree_fixture::{FAN_OUTS, OrderedFixture, key, options};
use crate::btree_oracle::{FORMS, MANY, compare_ranges};
use crate::btree_scans::compare;
use crate::feeder::{Source, feed};
use crate::fixture::HOME;
use remora_arena::{Journal, NoJournal, Owner};
use remora_index::btree::{AskReason, Direction, Get, Hold, Range, Scan, TreeError, Want};
use remora_layout::btree::{
    Content, Expected, Item, KeyForm, OrderedHeader, OrderedNode, Ownership, Payload, Value,
    ValueKind, encode,
};
use remora_layout::limits::{MAX_HELD_ADDRESSES, MAX_HELD_EPOCHS};
use remora_layout::node::{NodeRef, Proof};
use remora_layout::record::{Guardian, State};
use remora_testing::Random;
use remora_walk::{Walk, What};
use std::collections::BTreeMap;

/// The time at which no epoch ends by itself.
pub const NEVER: u64 = u64::MAX;

/// A node whose address is held, with the fences that it has as long as it is.
#[derive(Clone, Debug)]
struct Part {
    level: u8,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

/// Held addresses, by epoch.
type Parts = BTreeMap<u64, BTreeMap<NodeRef, Part>>;

pub fn hold(epoch: u64, levels: usize) -> Hold {
    Hold { epoch, until_ms: NEVER, levels, below: None }
}

/// Hands out some levels, and notes what is held from now on.
fn take<J: Journal>(fixture: &mut OrderedFixture<J>, parts: &mut Parts, hold: Hold) {
    let mut named = Vec::new();
    let nodes = fixture.tree.hold(&fixture.owner, hold, |inner| {
        for (index, child) in inner.children.iter().enumerate() {
            let next = inner.children.get(index + 1).map(|next| next.key.clone());
            let level = inner.info.child_level();
            let low = if index == 0 { inner.low.clone() } else { child.key.clone() };
            let high = next.or_else(|| inner.high.clone());
            named.push((child.at, Part { level, low, high }));
        }
        true
    });
    nodes.unwrap();
    // An epoch to which nothing comes does not begin.
    if !named.is_empty() {
        parts.entry(hold.epoch).or_default().extend(named);
    }
}

/// Nodes of an owner, whose tree does not change; no walk may restart.
struct Still<'o, J: Journal>(&'o Owner<J>);

impl<J: Journal> Source<Get<'_>> for Still<'_, J> {
    fn bytes(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        (self.0.slice(want.offset as usize, want.bytes).to_vec(), Proof::Checksum)
    }

    fn head(&mut self) -> OrderedHeader {
        panic!("a held address leads to no dead node")
    }
}

/// Looks a key up from a held address, as one whose switch has led it there.
fn get_from<J: Journal>(fixture: &OrderedFixture<J>, at: NodeRef, level: u8, key: &[u8]) {
    let header = OrderedHeader { root: at, height: level + 1, ..fixture.tree.header() };
    let region = fixture.owner.region_bytes() as u64;
    let mut walk = Get::begin(key, HOME, fixture.tree.at(), header, region);
    let (is_there, _) = feed(&mut walk, 1, &mut Still(&fixture.owner)).unwrap();
    let expected = fixture.map.get(key).map(|(kind, bytes)| Value { kind: *kind, bytes });
    assert_eq!(is_there.then(|| walk.value()), expected, "a held address answers for its part");
    assert_eq!(walk.right_links(), 0);
}

/// Each held address is that of a node with the same fences, and leads to keys in its part.
fn check_parts<J: Journal>(fixture: &OrderedFixture<J>, parts: &Parts, random: &mut Random) {
    for (at, part) in parts.values().flatten() {
        let bytes = fixture.owner.slice(at.offset(), fixture.options.node_bytes);
        let expected = Expected { at: Some(*at), tree: fixture.tree.at(), level: part.level };
        let node = OrderedNode::verify(bytes, HOME, expected, Proof::Checksum);
        let node = node.expect("a held address leads to a node");
        assert_eq!((node.low(), node.high()), (&part.low[..], part.high.as_deref()));
        let mut probes = vec![part.low.clone(), key(random, fixture.options.keys, MANY)];
        let behind = fixture.map.range(part.low.clone()..).map(|(key, _)| key.clone());
        probes.extend(behind.take(2));
        for probe in probes {
            let is_inside = node.place_of(&probe).is_eq();
            if is_inside && (fixture.options.keys == KeyForm::Bytes || probe.len() == 8) {
                get_from(fixture, *at, part.level, &probe);
            }
        }
    }
}

/// Mends until there is nothing to look at; gives the changes.
pub fn mend<J: Journal>(fixture: &mut OrderedFixture<J>) -> usize {
    let mut changes = 0;
    for _ in 0..1_000_000 {
        let (tree, mut arena) = fixture.parts();
        if !tree.wants_mending() {
            return changes;
        }
        changes += usize::from(tree.mend_some(&mut arena).unwrap());
    }
    panic!("mending does not come to an end");
}

fn release<J: Journal>(fixture: &mut OrderedFixture<J>, parts: &mut Parts, epoch: u64) {
    let was_held = fixture.tree.release(&fixture.owner, epoch);
    assert_eq!(was_held, parts.remove(&epoch).is_some());
}

pub fn deep_nodes<J: Journal>(fixture: &OrderedFixture<J>) -> u64 {
    let levels = fixture.tree.check(&fixture.owner).unwrap();
    levels.iter().map(|level| level.deep).sum()
}

#[derive(Default, Debug)]
struct Counts {
    deep: u64,
    mended: usize,
    most_held: usize,
}

/// Grows and shrinks while random levels are held and released.
fn run(keys: KeyForm, fan_out: usize, seed: u64, counts: &mut Counts) {
    let mut random = Random::new(seed);
    let mut fixture = OrderedFixture::new(options(keys, fan_out), 32 << 20, NoJournal);
    let mut parts = Parts::new();
    let steps = 4_000usize;
    for step in 0..steps {
        let grows = (step * 6 / steps).is_multiple_of(2);
        match random.below(160u64) {
            0 => {
                let levels = 1 + random.below(4usize);
                take(&mut fixture, &mut parts, hold(random.below(3), levels));
            }
            1 if !grows => release(&mut fixture, &mut parts, random.below(3)),
            2..20 => {
                let (tree, mut arena) = fixture.parts();
                counts.mended += usize::from(tree.mend_some(&mut arena).unwrap());
            }
            20..24 => compare_ranges(&fixture, &mut random),
            // Often neighbours, so that single parts grow.
            24..140 if grows => {
                let any = key(&mut random, keys, MANY);
                let (kind, bytes) = fixture.value(&mut random);
                fixture.set(&any, kind, &bytes);
            }
            _ => {
                let any = key(&mut random, keys, MANY);
                let known = fixture.some(&mut random).unwrap_or(any);
                fixture.delete(&known);
            }
        }
        counts.most_held = counts.most_held.max(fixture.tree.held().addresses);
        if step.is_multiple_of(100) {
            fixture.check();
            check_parts(&fixture, &parts, &mut random);
            counts.deep = counts.deep.max(deep_nodes(&fixture));
            let range = Range { direction: random.pick(&DIRECTIONS), ..Range::ALL };
            compare(&fixture, range, 4, seed);
        }
    }
    let is_emptied_first = random.one_in(2);
    if is_emptied_first {
        empty(&mut fixture, &parts, &mut random);
    }
    for epoch in 0..3 {
        release(&mut fixture, &mut parts, epoch);
    }
    mend(&mut fixture);
    fixture.check();
    assert_eq!(deep_nodes(&fixture), 0, "once nothing is held, nothing is deep");
    empty(&mut fixture, &parts, &mut random);
    mend(&mut fixture);
    fixture.check();
    let shape = (fixture.tree.nodes(), fixture.tree.header().height);
    assert_eq!(shape, (1, 1), "{keys:?} {fan_out} {seed} {is_emptied_first}");
}

const DIRECTIONS: [Direction; 2] = [Direction::Ascending, Direction::Descending];

fn empty<J: Journal>(fixture: &mut OrderedFixture<J>, parts: &Parts, random: &mut Random) {
    while let Some(known) = fixture.some(random) {
        fixture.delete(&known);
        if random.one_in(4) {
            let (tree, mut arena) = fixture.parts();
            tree.mend_some(&mut arena).unwrap();
        }
        if random.one_in(100) {
            fixture.tree.check(&fixture.owner).unwrap();
            check_parts(fixture, parts, random);
        }
    }
}

#[test]
fn a_held_address_answers_for_its_part_until_it_is_released() {
    for keys in FORMS {
        for fan_out in FAN_OUTS {
            let mut counts = Counts::default();
            for seed in 0..4 {
                run(keys, fan_out, seed, &mut counts);
            }
            let Counts { deep, mended, most_held } = counts;
            let is_telling = deep > 1 && mended > 10 && most_held > 3;
            assert!(is_telling, "{keys:?} {fan_out}: {counts:?}");
        }
    }
}

/// Memory in which each address holds a deep node that names it again.
struct Endless(NodeRef);

impl<W: Walk<Head = OrderedHeader>> Source<W> for Endless {
    fn bytes(&mut self, want: &remora_walk::Want<W::Tag>) -> (Vec<u8>, Proof) {
        let What::Node { at, level } = want.what else { panic!("a walk wants nodes") };
        let items = [Item { key: &[], payload: Payload::Child(at) }];
        let (keys, right) = (KeyForm::Bytes, NodeRef::default());
        let low = &[];
        let content = Content { level, is_deep: true, keys, low, high: None, right, items: &items };
        let mut bytes = vec![0; want.bytes];
        encode(&content, Ownership { at, tree: self.0, changed_at: 1 }, &mut bytes);
        let guardian = Guardian { generation: at.generation, state: State::Live, class: 0 };
        bytes[..8].copy_from_slice(&guardian.to_word().to_le_bytes());
        bytes[8..16].copy_from_slice(&2u64.to_le_bytes());
        (bytes, Proof::VersionAfter(2))
    }

    fn head(&mut self) -> OrderedHeader {
        panic!("it has no reason to restart")
    }
}

#[test]
fn a_walk_that_finds_no_end_downwards_asks() {
    let tree = NodeRef { slot: 4, generation: 1 };
    for height in [1, 2, 3] {
        let root = NodeRef { slot: 32, generation: 1 };
        let keys = KeyForm::Bytes;
        let header = OrderedHeader { fan_out: 8, height, keys, node_bytes: 512, root, moves: 0 };
        let mut get = Get::begin(b"key", HOME, tree, header, 1 << 20);
        let end = feed(&mut get, 1, &mut Endless(tree)).map(|(found, _)| found);
        assert_eq!(end, Err(AskReason::TooDeep));
        for direction in DIRECTIONS {
            let range = Range { direction, ..Range::ALL };
            let mut scan = Scan::begin(range, 4, HOME, tree, header, 1 << 20);
            let end = feed(&mut scan, 5, &mut Endless(tree)).map(|(found, _)| found);
            assert_eq!(end, Err(AskReason::TooDeep), "{height} {direction:?}");
        }
    }
}

fn grown(fan_out: usize, many: u64) -> OrderedFixture<NoJournal> {
    let options = options(KeyForm::Integers, fan_out);
    let mut fixture = OrderedFixture::new(options, 16 << 20, NoJournal);
    for number in 0..many {
        fixture.set(&(number << 20).to_be_bytes(), ValueKind::Bytes, b"value");
    }
    fixture
}

#[test]
fn a_held_root_stays_the_root_and_its_part_grows_as_a_tree_does() {
    let mut fixture = grown(4, 40);
    let (root, height) = (fixture.tree.header().root, fixture.tree.header().height);
    fixture.tree.pin(1, [root], NEVER).unwrap();
    for number in 0..2_000u64 {
        fixture.set(&(number * 7_919 % 2_000).to_be_bytes(), ValueKind::Bytes, b"more");
    }
    fixture.check();
    assert_eq!((fixture.tree.header().root, fixture.tree.header().height), (root, height));
    let mut walk_depth = 0;
    let mut waiting = vec![(root, 1)];
    while let Some((at, depth)) = waiting.pop() {
        let bytes = fixture.owner.slice(at.offset(), fixture.options.node_bytes);
        let node = OrderedNode::parse(bytes).unwrap();
        walk_depth = walk_depth.max(depth);
        if !node.is_leaf() {
            waiting
                .extend((0..node.entries()).map(|index| (node.child(index).unwrap(), depth + 1)));
        }
    }
    assert!(walk_depth > height && walk_depth < 16, "{walk_depth}");
    assert!(fixture.tree.release(&fixture.owner, 1));
    assert!(mend(&mut fixture) > 0);
    fixture.check();
    assert_eq!(deep_nodes(&fixture), 0);
}

#[test]
fn an_address_is_held_until_the_last_epoch_that_holds_it_ends() {
    let mut fixture = grown(4, 200);
    let mut parts = Parts::new();
    take(&mut fixture, &mut parts, Hold { until_ms: 100, ..hold(1, 2) });
    take(&mut fixture, &mut parts, Hold { until_ms: 300, ..hold(2, 1) });
    let mut random = Random::new(1);
    // The first one is renewed: a renewal makes no time shorter.
    take(&mut fixture, &mut parts, Hold { until_ms: 200, levels: 0, ..hold(1, 0) });
    take(&mut fixture, &mut parts, Hold { until_ms: 50, levels: 0, ..hold(1, 0) });
    assert_eq!(fixture.tree.next_lapse_ms(), Some(200));
    for (now_ms, epochs) in [(199, 2), (200, 1), (299, 1), (300, 0)] {
        fixture.tree.lapse(&fixture.owner, now_ms);
        assert_eq!(fixture.tree.held().epochs, epochs, "at {now_ms}");
        if now_ms >= 200 {
            parts.remove(&1);
        }
        if epochs > 0 {
            for number in 0..190u64 {
                fixture.delete(&(number << 20).to_be_bytes());
            }
            mend(&mut fixture);
            fixture.check();
            check_parts(&fixture, &parts, &mut random);
            for number in 0..190u64 {
                fixture.set(&(number << 20).to_be_bytes(), ValueKind::Bytes, b"again");
            }
            mend(&mut fixture);
            check_parts(&fixture, &parts, &mut random);
        }
    }
    mend(&mut fixture);
    assert_eq!((fixture.tree.held().addresses, deep_nodes(&fixture)), (0, 0));
    assert!(!fixture.tree.release(&fixture.owner, 2), "it has ended by itself");
}

#[test]
fn what_is_handed_out_goes_on_below_a_held_address_and_is_bounded() {
    let mut fixture = grown(4, 500);
    let mut roots = Vec::new();
    let two = Hold { levels: 8, ..hold(1, 8) };
    let nodes = fixture.tree.hold(&fixture.owner, two, |inner| {
        let takes = roots.len() < 2;
        if takes {
            roots.push(inner.clone());
        }
        takes
    });
    assert_eq!((nodes, roots.len()), (Ok(2), 2));
    let named: usize = roots.iter().map(|inner| inner.children.len()).sum();
    assert_eq!(fixture.tree.held().addresses, named, "only children of what was handed out");
    let rest: Vec<_> = roots[0].children[1..].iter().collect();
    for child in rest {
        let below = Some(child.at);
        let mut first = None;
        let of = Hold { below, ..hold(1, 1) };
        fixture
            .tree
            .hold(&fixture.owner, of, |inner| first.replace(inner.info.at).is_none())
            .unwrap();
        assert_eq!(first, below);
        let other = Hold { epoch: 2, ..of };
        let refused = fixture.tree.hold(&fixture.owner, other, |_| true);
        assert_eq!(refused, Err(TreeError::NotHeld));
    }
    let held = fixture.tree.held();
    for epoch in 2..=MAX_HELD_EPOCHS as u64 {
        fixture.tree.pin(epoch, [], NEVER).unwrap();
    }
    assert_eq!(fixture.tree.pin(1 << 40, [], NEVER), Err(TreeError::TooManyHeld));
    let places = (0..MAX_HELD_ADDRESSES as u32).map(|slot| NodeRef { slot, generation: 1 });
    assert_eq!(fixture.tree.pin(1, places, NEVER), Err(TreeError::TooManyHeld));
    let now = fixture.tree.held();
    assert_eq!((now.addresses, now.epochs), (held.addresses, MAX_HELD_EPOCHS));
}

#[test]
fn counts_of_accesses_follow_the_lookups() {
    let mut fixture = grown(16, 3_000);
    let hot = 2_500u64 << 20;
    for number in 0..400_000u64 {
        let key = if number.is_multiple_of(10) { (number % 3_000) << 20 } else { hot };
        fixture.tree.note_lookup(&fixture.owner, &key.to_be_bytes());
    }
    let mut nodes = Vec::new();
    fixture.tree.nodes_of(&fixture.owner, 1, usize::MAX, |info| nodes.push(info));
    let levels = fixture.tree.levels(&fixture.owner);
    let all = levels[0].accesses;
    assert!((320_000..480_000).contains(&all), "{all} of 400000");
    assert_eq!(nodes.iter().map(|info| info.accesses).sum::<u64>(), all);
    assert_eq!(nodes.iter().map(|info| info.keys).sum::<u64>(), 3_000);
    let hottest = nodes.iter().map(|info| info.accesses).max().unwrap();
    assert!(hottest > all * 8 / 10, "{hottest} of {all}");
    let mut few = Vec::new();
    fixture.tree.nodes_of(&fixture.owner, 0, 3, |info| few.push(info));
    assert!(few.len() == 3 && few.iter().all(|info| info.accesses == 0 && info.keys > 0));
}
