//! Random programs of a B+tree against `BTreeMap`, for each fan-out and form of keys.

use crate::btree_fixture::{FAN_OUTS, OrderedFixture, key, options};
use remora_arena::{Journal, NoJournal};
use remora_index::btree::{Direction, Options, Range, TreeError};
use remora_layout::btree::{KeyForm, OrderedNode, Value, ValueKind};
use remora_layout::limits::{PAGE_BYTES, SLOT_UNIT_BYTES};
use remora_layout::node::{NodeRef, word};
use remora_testing::Random;
use std::collections::BTreeMap;
use std::ops::Bound;

pub const FORMS: [KeyForm; 2] = [KeyForm::Integers, KeyForm::Bytes];
pub const MANY: u64 = 3_000;

fn bound<'k>(random: &mut Random, key: &'k [u8]) -> Bound<&'k [u8]> {
    random.pick(&[Bound::Included(key), Bound::Excluded(key), Bound::Unbounded])
}

fn is_behind(key: &[u8], from: Bound<&[u8]>) -> bool {
    match from {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
    }
}

fn is_before(key: &[u8], to: Bound<&[u8]>) -> bool {
    match to {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
    }
}

/// A range, its count, and the numbers of keys.
pub fn compare_ranges<J: Journal>(fixture: &OrderedFixture<J>, random: &mut Random) {
    let keys = fixture.options.keys;
    let (one, other) = (key(random, keys, MANY), key(random, keys, MANY));
    let (from, to) = (bound(random, &one), bound(random, &other));
    let direction = random.pick(&[Direction::Ascending, Direction::Descending]);
    let limit = random.pick(&[0, 1, 5, 70, usize::MAX]);
    let inside = |key: &[u8]| is_behind(key, from) && is_before(key, to);
    let mut expected: Vec<Vec<u8>> =
        fixture.map.keys().filter(|key| inside(key)).cloned().collect();
    let count = expected.len() as u64;
    if direction == Direction::Descending {
        expected.reverse();
    }
    expected.truncate(limit);
    let range = Range { from, to, direction, limit };
    let mut found = Vec::new();
    let number = fixture.tree.range(&fixture.owner, range, |key, value| {
        let (kind, bytes) = &fixture.map[key];
        assert_eq!(value, Value { kind: *kind, bytes });
        found.push(key.to_vec());
    });
    assert_eq!((number, &found), (expected.len(), &expected), "{range:?}");
    let (tree, owner) = (&fixture.tree, &fixture.owner);
    assert_eq!(tree.count(owner, range), count, "{range:?}");
    let smaller = fixture.map.keys().filter(|key| **key < one).count();
    assert_eq!(tree.rank(owner, &one), smaller as u64);
    let selected = tree.select(owner, smaller as u64).map(|(key, _)| key);
    assert_eq!(selected.as_ref(), fixture.map.keys().nth(smaller));
}

/// Grows and shrinks three times, then deletes every key.
fn run(options: Options, words: u64, steps: usize, seed: u64) -> (u64, u64) {
    let mut random = Random::new(seed);
    let mut fixture = OrderedFixture::new(options, 16 << 20, NoJournal);
    fixture.words = words;
    let mut most = (0, 0);
    for step in 0..steps {
        let grows = (step * 6 / steps).is_multiple_of(2);
        let any = key(&mut random, options.keys, MANY);
        match random.below(10u64) {
            0 => compare_ranges(&fixture, &mut random),
            1 => {
                let expected = fixture.map.get(&any);
                let expected = expected.map(|(kind, bytes)| Value { kind: *kind, bytes });
                assert_eq!(fixture.tree.get(&fixture.owner, &any), expected);
            }
            2 if random.one_in(2) => fixture.delete(&any),
            2 => {
                let known = fixture.some(&mut random);
                if let Some(known) = known.filter(|_| !fixture.map.contains_key(&any)) {
                    fixture.move_entry(&known, &any);
                }
            }
            3 | 4 if grows => {
                // Another value, of another length.
                let known = fixture.some(&mut random).unwrap_or(any);
                let (kind, bytes) = fixture.value(&mut random);
                fixture.set(&known, kind, &bytes);
            }
            _ if grows => {
                let (kind, bytes) = fixture.value(&mut random);
                fixture.set(&any, kind, &bytes);
            }
            _ => {
                let known = fixture.some(&mut random).unwrap_or(any);
                fixture.delete(&known);
            }
        }
        let (nodes, height) = (fixture.tree.nodes(), fixture.tree.header().height as u64);
        most = (most.0.max(nodes), most.1.max(height));
        if step.is_multiple_of(steps / 40) {
            fixture.check();
        }
    }
    while let Some(known) = fixture.some(&mut random) {
        fixture.delete(&known);
        if random.one_in(50) {
            fixture.tree.check(&fixture.owner).unwrap();
        }
    }
    fixture.check();
    assert_eq!((fixture.tree.nodes(), fixture.tree.header().height), (1, 1));
    most
}

#[test]
fn random_programs_give_what_a_map_gives() {
    for keys in FORMS {
        for fan_out in FAN_OUTS {
            // No leaves of words, some that are and become none, all.
            for (seed, words) in [0, 0, 98, 100].into_iter().enumerate() {
                let options = options(keys, fan_out);
                let (nodes, height) = run(options, words, 6_000, seed as u64);
                let least = if fan_out == 64 { 2 } else { 3 };
                assert!(nodes > 10 && height >= least, "{keys:?} {fan_out}: {nodes} {height}");
            }
        }
    }
}

/// The nodes of a tree, with version and sequence of the last change.
fn versions(fixture: &OrderedFixture<NoJournal>) -> BTreeMap<NodeRef, (u64, u64)> {
    let (owner, header) = (&fixture.owner, fixture.tree.header());
    let (mut found, mut waiting) = (BTreeMap::new(), vec![header.root]);
    while let Some(at) = waiting.pop() {
        let bytes = owner.slice(at.offset(), fixture.options.node_bytes);
        let node = OrderedNode::parse(bytes).unwrap();
        let version = owner.word(at.offset() / 8 + word::VERSION);
        found.insert(at, (version, node.changed_at()));
        if node.level() > 0 {
            waiting.extend((0..node.entries()).map(|index| node.child(index).unwrap()));
        }
    }
    found
}

#[test]
fn a_change_marks_the_nodes_that_it_changes_and_no_others() {
    for keys in FORMS {
        let mut random = Random::new(9);
        let mut fixture = OrderedFixture::new(options(keys, 16), 16 << 20, NoJournal);
        let mut before = versions(&fixture);
        for sequence in 2..1_500 {
            fixture.sequence = sequence;
            fixture.words = if sequence < 700 { 100 } else { 60 };
            match fixture.some(&mut random) {
                Some(known) if random.one_in(4) => fixture.delete(&known),
                known => {
                    let new = key(&mut random, keys, MANY);
                    let any = known.filter(|_| random.one_in(3)).unwrap_or(new);
                    let (kind, bytes) = fixture.value(&mut random);
                    fixture.set(&any, kind, &bytes);
                }
            }
            let after = versions(&fixture);
            let mut changed = 0;
            for (at, state) in &after {
                if before.get(at).map(|before| before.0) == Some(state.0) {
                    assert_eq!(before[at], *state);
                } else {
                    assert_eq!(state.1, sequence, "{at:?} is changed and does not say so");
                    changed += 1;
                }
            }
            let height = usize::from(fixture.tree.header().height);
            assert!((1..=2 * height).contains(&changed) || height == 1, "{changed} nodes");
            before = after;
        }
        fixture.check();
    }
}

#[test]
fn ascending_keys_fill_leaves_to_ninety_percent() {
    for fan_out in FAN_OUTS {
        let mut fixture =
            OrderedFixture::new(options(KeyForm::Integers, fan_out), 8 << 20, NoJournal);
        for number in 0..4_000u64 {
            fixture.set(&number.to_be_bytes(), ValueKind::Bytes, &number.to_le_bytes());
        }
        fixture.check();
        let leaves = fixture.tree.check(&fixture.owner).unwrap()[0];
        let full = leaves.entries * 100 / ((leaves.nodes - 1) * fan_out as u64);
        assert!(full >= 90, "fan-out {fan_out}: {full} %");
    }
}

#[test]
fn a_loaded_tree_is_one_that_can_be_changed() {
    for keys in FORMS {
        for fan_out in FAN_OUTS {
            let mut random = Random::new(fan_out as u64);
            for many in [0, 1, 15, 17, 1_500] {
                let mut fixture = OrderedFixture::new(options(keys, fan_out), 16 << 20, NoJournal);
                for _ in 0..many {
                    let value = fixture.value(&mut random);
                    fixture.map.insert(key(&mut random, keys, MANY), value);
                }
                let entries = fixture.map.clone();
                let sorted = entries
                    .iter()
                    .map(|(key, (kind, bytes))| (&key[..], Value { kind: *kind, bytes }));
                let (tree, mut arena) = fixture.parts();
                tree.load(&mut arena, sorted).unwrap();
                fixture.check();
                compare_ranges(&fixture, &mut random);
                for _ in 0..many {
                    let (kind, bytes) = fixture.value(&mut random);
                    fixture.set(&key(&mut random, keys, MANY), kind, &bytes);
                    let known = fixture.some(&mut random).unwrap();
                    fixture.delete(&known);
                }
                fixture.check();
            }
        }
    }
}

#[test]
fn what_cannot_be_loaded_leaves_the_tree_empty() {
    let mut fixture = OrderedFixture::new(options(KeyForm::Integers, 4), 1 << 20, NoJournal);
    let numbers = |numbers: &[u64]| numbers.iter().map(|n| n.to_be_bytes()).collect::<Vec<_>>();
    let long = [7; 9];
    for (keys, value, error) in [
        (numbers(&[1, 2, 3, 4, 5, 5]), &b"value"[..], TreeError::NotLoadable),
        (numbers(&[1, 2, 3, 4, 5, 4]), b"value", TreeError::NotLoadable),
        (numbers(&[1, 2]), &long, TreeError::ValueTooLong),
    ] {
        let (tree, mut arena) = fixture.parts();
        let entries = keys.iter().map(|key| (&key[..], Value::of(value)));
        assert_eq!(tree.load(&mut arena, entries), Err(error));
        fixture.check();
        assert_eq!(fixture.tree.nodes(), 1);
    }
    fixture.set(&1u64.to_be_bytes(), ValueKind::Bytes, b"value");
    let (tree, mut arena) = fixture.parts();
    let none = std::iter::empty::<(&[u8], Value<'_>)>();
    assert_eq!(tree.load(&mut arena, none), Err(TreeError::NotLoadable));
    fixture.check();
}

#[test]
fn a_change_without_memory_changes_nothing() {
    for keys in FORMS {
        let mut random = Random::new(5);
        let mut fixture = OrderedFixture::new(options(keys, 4), 192 << 10, NoJournal);
        let mut refused = 0;
        for _ in 0..20_000 {
            let (kind, bytes) = fixture.value(&mut random);
            let any = key(&mut random, keys, 1 << 20);
            match fixture.try_set(&any, kind, &bytes) {
                Ok(()) => {}
                Err(TreeError::Full(_)) => {
                    refused += 1;
                    fixture.check();
                    if refused == 20 {
                        break;
                    }
                    let known = fixture.some(&mut random).unwrap();
                    fixture.delete(&known);
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(refused, 20, "{keys:?}");
    }
}

#[test]
fn keys_and_values_beyond_the_limits_are_refused() {
    let mut fixture = OrderedFixture::new(options(KeyForm::Integers, 4), 1 << 20, NoJournal);
    let kind = ValueKind::Bytes;
    assert_eq!(fixture.try_set(b"seven..", kind, b""), Err(TreeError::BadKey));
    assert_eq!(fixture.try_set(b"eight...", kind, &[0; 9]), Err(TreeError::ValueTooLong));
    let mut fixture = OrderedFixture::new(options(KeyForm::Bytes, 4), 1 << 20, NoJournal);
    assert_eq!(fixture.try_set(&[0; 1025], kind, b""), Err(TreeError::BadKey));
    fixture.set(&[0; 1024], kind, &[1; 200]);
    fixture.set(b"", kind, b"of the empty key");
    fixture.check();
}

#[test]
fn a_run_taken_while_memory_is_short_has_room_for_a_node() {
    // A node takes a bit more than four pages: half of some runs would be too short.
    let options = Options::byte_strings(16, 1024, 1024, 1024);
    assert_eq!(options.node_bytes.div_ceil(PAGE_BYTES), 5);
    for pages in 40..100 {
        let mut fixture = OrderedFixture::new(options, pages * PAGE_BYTES, NoJournal);
        for number in 0u64.. {
            let key = number.to_be_bytes();
            if fixture.try_set(&key, ValueKind::Bytes, &[1; 1000]).is_err() {
                break;
            }
        }
        assert!(fixture.tree.nodes() > 2, "{pages}");
        // Others write to all that is left.
        while let Ok(slot) = fixture.slots.allocate(&mut fixture.owner, SLOT_UNIT_BYTES, 0) {
            let offset = slot.slot as usize * SLOT_UNIT_BYTES;
            fixture.owner.store_bytes(offset, &[0xff; SLOT_UNIT_BYTES]);
        }
        fixture.check();
    }
}
