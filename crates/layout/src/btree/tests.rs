//! Nodes and headers: round trips, each check, forged bytes.

use super::*;
use crate::record::{Guardian, State};
use remora_testing::Random;

const HOME: Home = Home { secret: 0x5ec2_e7ed, region: 3 };
const AT: NodeRef = NodeRef { slot: 77, generation: 5 };
const TREE: NodeRef = NodeRef { slot: 9, generation: 2 };
const OWNERSHIP: Ownership = Ownership { at: AT, tree: TREE, changed_at: 10 };
const EXPECTED: Expected = Expected { at: Some(AT), tree: TREE, level: 0 };

/// A node as its writer stores it, in this version.
fn node(content: &Content<'_>, ownership: Ownership, version: u64) -> Vec<u8> {
    let mut bytes = vec![0xff; MAX_ORDERED_NODE_BYTES];
    let used = encode(content, ownership, &mut bytes);
    bytes.truncate(used);
    let at = ownership.at;
    let guardian = Guardian { generation: at.generation, state: State::Live, class: 0 };
    bytes[..8].copy_from_slice(&guardian.to_word().to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    seal(&mut bytes, at, version);
    bytes
}

fn seal(bytes: &mut [u8], at: NodeRef, version: u64) {
    let checked = &bytes[NODE_CHECKED_FROM..];
    let sum = HOME.checksum(CheckedPart::OrderedNode, at, version, checked);
    bytes[16..24].copy_from_slice(&sum.to_le_bytes());
}

/// Keys that share beginnings, end early and hold zeros, sorted.
fn keys(random: &mut Random, form: KeyForm, count: usize) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..count)
        .map(|_| match form {
            KeyForm::Integers => random.below(1u64 << 40).to_be_bytes().to_vec(),
            KeyForm::Bytes => {
                let mut key = b"https://".to_vec();
                let bytes = random.below(14u64);
                key.extend((0..bytes).map(|_| random.below(3u8)));
                key
            }
        })
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

fn whole_key(node: &OrderedNode<'_>, index: usize) -> Vec<u8> {
    node.key(index, &mut [0; MAX_ORDERED_KEY_BYTES]).expect("an entry").to_vec()
}

#[test]
fn a_leaf_keeps_what_is_encoded() {
    let mut random = Random::new(1);
    for round in 0..200 {
        let form = [KeyForm::Integers, KeyForm::Bytes][round % 2];
        let keys = keys(&mut random, form, 40);
        // Every fifth leaf has empty values only.
        let (longest, many) = if round % 5 == 0 { (0, 1) } else { (20, 3) };
        let values: Vec<Vec<u8>> = keys.iter().map(|_| random.bytes_up_to(longest)).collect();
        let kinds = [ValueKind::Bytes, ValueKind::Record, ValueKind::Link];
        let inner = &keys[1..keys.len() - 1];
        let items: Vec<Item<'_>> = inner
            .iter()
            .zip(&values)
            .map(|(key, bytes)| {
                let kind = kinds[bytes.len() % many];
                Item { key, payload: Payload::Value(Value { kind, bytes }) }
            })
            .collect();
        let high = (round % 3 != 0).then_some(&keys[keys.len() - 1][..]);
        let right =
            if high.is_some() { NodeRef { slot: 4, generation: 1 } } else { NodeRef::default() };
        let content = Content {
            level: 0,
            is_deep: false,
            keys: form,
            low: &keys[0],
            high,
            right,
            items: &items,
        };
        let bytes = node(&content, OWNERSHIP, 4);
        assert_eq!(bytes.len(), encoded_bytes(&content));
        let found = OrderedNode::verify(&bytes, HOME, EXPECTED, Proof::Checksum).unwrap();
        assert_eq!((found.low(), found.high(), found.keys()), (&keys[0][..], high, form));
        assert_eq!((found.right(), found.changed_at()), (high.map(|_| right), 10));
        for (index, item) in items.iter().enumerate() {
            assert_eq!(whole_key(&found, index), item.key);
            assert_eq!(found.value(index).map(Payload::Value), Some(item.payload));
            assert_eq!(found.position(item.key), Ok(index));
        }
        assert_eq!(found.entries(), items.len());
        assert_eq!(found.value(items.len()), None);
    }
}

#[test]
fn a_position_is_that_in_the_order_of_byte_strings() {
    let mut random = Random::new(2);
    for round in 0..300 {
        let form = [KeyForm::Integers, KeyForm::Bytes][round % 2];
        let all = keys(&mut random, form, 60);
        let (low, high) = (&all[0][..], &all[all.len() - 1][..]);
        let some: Vec<&Vec<u8>> =
            all[..all.len() - 1].iter().filter(|_| random.below(2u64) == 0).collect();
        let payload = Payload::Child(NodeRef { slot: 3, generation: 4 });
        let items: Vec<Item<'_>> = some.iter().map(|key| Item { key, payload }).collect();
        let right = NodeRef { slot: 8, generation: 8 };
        let content = Content {
            level: 1,
            is_deep: false,
            keys: form,
            low,
            high: Some(high),
            right,
            items: &items,
        };
        let bytes = node(&content, OWNERSHIP, 2);
        let found = OrderedNode::parse(&bytes).unwrap();
        for key in &all[..all.len() - 1] {
            assert_eq!(found.position(key), some.binary_search(&key), "{key:?} in {some:?}");
            assert_eq!(found.place_of(key), Ordering::Equal);
        }
        assert_eq!(found.place_of(high), Ordering::Greater);
        let before = &low[..low.len() - 1];
        assert_eq!(found.place_of(before), Ordering::Less);
    }
}

fn small(level: u8) -> Vec<u8> {
    let items = [
        Item { key: b"prefix-and-a-long-rest", payload: Payload::Value(Value::of(b"short")) },
        Item { key: b"prefix-b", payload: Payload::Value(Value::of(b"a longer value")) },
    ];
    let right = NodeRef { slot: 6, generation: 1 };
    let content = Content {
        level,
        is_deep: false,
        keys: KeyForm::Bytes,
        low: b"prefix-",
        high: Some(b"prefix-c"),
        right,
        items: &items,
    };
    node(&content, OWNERSHIP, 4)
}

#[test]
fn every_flipped_bit_is_noticed() {
    let good = small(0);
    for bit in 0..good.len() * 8 {
        if (40..49).contains(&bit) {
            continue; // the guardian's class, which nodes do not have, and its colour
        }
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        for at in [Some(AT), None] {
            let expected = Expected { at, ..EXPECTED };
            let found = OrderedNode::verify(&bytes, HOME, expected, Proof::Checksum);
            assert!(found.is_err(), "bit {bit}");
        }
    }
}

#[test]
fn a_node_is_bound_to_its_place_tree_level_and_version() {
    let bytes = small(0);
    let verify = |bytes: &[u8], home, expected, proof| {
        OrderedNode::verify(bytes, home, expected, proof).map(|node| node.entries())
    };
    let check = |expected| verify(&bytes, HOME, expected, Proof::Checksum);
    let at = |slot, generation| Expected { at: Some(NodeRef { slot, generation }), ..EXPECTED };
    assert_eq!(check(EXPECTED), Ok(2));
    assert_eq!(check(Expected { at: None, ..EXPECTED }), Ok(2));
    assert_eq!(check(at(78, 5)), Err(NotANode::Torn));
    assert_eq!(check(at(77, 6)), Err(NotANode::Dead));
    let other = NodeRef { slot: 9, generation: 3 };
    assert_eq!(check(Expected { tree: other, ..EXPECTED }), Err(NotANode::Dead));
    assert_eq!(check(Expected { level: 1, ..EXPECTED }), Err(NotANode::Dead));
    for home in [Home { secret: 1, ..HOME }, Home { region: 4, ..HOME }] {
        assert_eq!(verify(&bytes, home, EXPECTED, Proof::Checksum), Err(NotANode::Torn));
    }
    assert_eq!(verify(&bytes, HOME, EXPECTED, Proof::VersionAfter(4)), Ok(2));
    assert_eq!(verify(&bytes, HOME, EXPECTED, Proof::VersionAfter(6)), Err(NotANode::Torn));
    // Old content under a new version; a node that its owner changes.
    for (version, sealed_for) in [(6u64, 4), (5, 5)] {
        let mut bytes = bytes.clone();
        bytes[8..16].copy_from_slice(&version.to_le_bytes());
        seal(&mut bytes, AT, sealed_for);
        assert_eq!(verify(&bytes, HOME, EXPECTED, Proof::Checksum), Err(NotANode::Torn));
    }
    // A whole node that says that it lies elsewhere, read by one that trusts the version.
    let mut moved = bytes.clone();
    moved[word::OWN * 8] ^= 1;
    assert_eq!(verify(&moved, HOME, EXPECTED, Proof::VersionAfter(4)), Err(NotANode::Torn));
    for cut in 0..bytes.len() {
        assert!(verify(&bytes[..cut], HOME, EXPECTED, Proof::Checksum).is_err());
    }
}

/// Calls everything that a reader may call.
fn use_all(bytes: &[u8]) {
    let Some(node) = OrderedNode::parse(bytes) else { return };
    let mut key = [0; MAX_ORDERED_KEY_BYTES];
    for index in 0..node.entries() + 2 {
        let _ = node.key(index, &mut key);
        let _ = node.value(index);
        let _ = node.child(index);
    }
    for key in [&b""[..], b"prefix-b", b"prefix-and-a-long-rest", &[0xff; 9]] {
        let _ = (node.position(key), node.child_index(key), node.place_of(key));
    }
    let _ = (node.right(), node.tree(), node.changed_at(), node.low(), node.high());
}

#[test]
fn forged_bytes_never_end_the_reader() {
    let mut random = Random::new(3);
    let good = small(0);
    for round in 0..20_000 {
        let mut bytes = if round % 4 == 0 { random.bytes(200) } else { good.clone() };
        for _ in 0..1 + random.below(4u64) {
            // Most of them in the header or in the directory of entries.
            let at = NODE_CHECKED_FROM + random.below(bytes.len() - NODE_CHECKED_FROM);
            let any = random.below(255u8);
            bytes[at] = random.pick(&[0, 1, 2, 0x7f, 0x80, 0xff, any]);
        }
        let cut = if round % 5 == 0 { random.below(bytes.len()) } else { bytes.len() };
        use_all(&bytes[..cut]);
        seal(&mut bytes, AT, 4);
        let _ = OrderedNode::verify(&bytes, HOME, EXPECTED, Proof::Checksum);
    }
}

#[test]
fn a_key_that_is_forged_longer_than_any_is_cut() {
    let mut bytes = small(0);
    let node = OrderedNode::parse(&bytes).unwrap();
    let rest = node.parts.rests;
    bytes[rest + 2..rest + 4].copy_from_slice(&u16::MAX.to_le_bytes());
    let node = OrderedNode::parse(&bytes).unwrap();
    assert!(node.key(0, &mut [0; MAX_ORDERED_KEY_BYTES]).unwrap().len() <= 1024);
}

#[test]
fn a_header_keeps_its_content_and_is_bound_to_its_place() {
    let header = OrderedHeader {
        fan_out: 16,
        height: 3,
        keys: KeyForm::Bytes,
        node_bytes: 4096,
        root: NodeRef { slot: 5, generation: 6 },
        moves: 1 << 40,
    };
    let guardian = Guardian { generation: TREE.generation, state: State::Live, class: 0 };
    let [shape, root, moves] = header.to_words();
    let words = [guardian.to_word(), 2, 0, shape, root, moves];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let sum = HOME.checksum(CheckedPart::OrderedHeader, TREE, 2, &bytes[NODE_CHECKED_FROM..]);
    bytes[16..24].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(verify_ordered_header(&bytes, HOME, TREE, Proof::Checksum), Ok(header));
    for bit in 0..bytes.len() * 8 {
        if (40..49).contains(&bit) {
            continue;
        }
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(verify_ordered_header(&bytes, HOME, TREE, Proof::Checksum).is_err(), "bit {bit}");
    }
    let low = OrderedHeader { fan_out: 3, ..header };
    let flat = OrderedHeader { height: 0, ..header };
    let long = OrderedHeader { node_bytes: MAX_ORDERED_NODE_BYTES as u32 + 1, ..header };
    for broken in [low, flat, long] {
        assert_eq!(OrderedHeader::from_words(broken.to_words()), None);
    }
}

/// An entry: its key, and a leaf's value or the child.
type Entry = (Vec<u8>, Option<(ValueKind, Vec<u8>)>, Option<NodeRef>);

/// What a node holds, whatever the order of its heap.
fn content_of(bytes: &[u8]) -> Vec<Entry> {
    let node = OrderedNode::parse(bytes).unwrap();
    let entries = (0..node.entries()).map(|index| {
        let is_leaf = node.is_leaf();
        let value = node.value(index).filter(|_| is_leaf);
        let value = value.map(|value| (value.kind, value.bytes.to_vec()));
        (whole_key(&node, index), value, node.child(index).filter(|_| !is_leaf))
    });
    entries.collect()
}

#[test]
fn a_spliced_node_holds_what_an_encoded_one_does() {
    let (mut random, mut done, mut refused) = (Random::new(7), 0, 0);
    for round in 0..400 {
        let form = [KeyForm::Integers, KeyForm::Bytes][round % 2];
        let (level, is_deep) = (u8::from(round % 5 == 0), round % 7 == 0);
        // Words, empty values, or values of any length.
        let same = [Some(8), Some(0), None][round % 3];
        let keys = keys(&mut random, form, 40);
        let mut value =
            |same| if let Some(of) = same { random.bytes(of) } else { random.bytes_up_to(20) };
        let bytes: Vec<Vec<u8>> = keys.iter().map(|_| value(same)).collect();
        let kinds = [ValueKind::Bytes, ValueKind::Record, ValueKind::Link];
        let item = |index: usize, value: usize| {
            let bytes: &[u8] = &bytes[value];
            let kind = if same.is_some() { ValueKind::Bytes } else { kinds[bytes.len() % 3] };
            let child = NodeRef { slot: value as u32 + 1, generation: 1 };
            let payload = match (level, is_deep) {
                (0, false) => Payload::Value(Value { kind, bytes }),
                _ => Payload::Child(child),
            };
            Item { key: &keys[index], payload }
        };
        let (last, low) = (keys.len() - 1, &keys[0][..]);
        let high = (round % 4 > 0).then_some(&keys[last][..]);
        let base = Content { level, is_deep, keys: form, low, high, right: AT, items: &[] };
        let mut items: Vec<Item<'_>> = (1..last).step_by(2).map(|at| item(at, at)).collect();
        let mut before = node(&Content { items: &items, ..base }, OWNERSHIP, 4);
        for _ in 0..60 {
            let at = 1 + random.below(last - 1);
            let place = items.binary_search_by(|item| item.key.cmp(&keys[at]));
            let new = item(at, 1 + random.below(last - 1));
            let (index, splice) = match place {
                Ok(index) if random.one_in(2) => {
                    items.remove(index);
                    (index, Splice::Remove)
                }
                Ok(index) => {
                    items[index] = new;
                    (index, Splice::Replace(new.payload))
                }
                Err(index) => {
                    items.insert(index, new);
                    (index, Splice::Insert(new))
                }
            };
            let content = Content { items: &items, ..base };
            let mut into = vec![random.pick(&[0, 1, 0xff]); MAX_ORDERED_NODE_BYTES];
            let parsed = OrderedNode::parse(&before).unwrap();
            let Some(used) = parsed.spliced(index, splice, &mut into) else {
                refused += 1;
                before = node(&content, OWNERSHIP, 4);
                continue;
            };
            done += 1;
            into[..NODE_CHECKED_FROM].copy_from_slice(&before[..NODE_CHECKED_FROM]);
            let mut short = vec![0; used - 1];
            assert_eq!(parsed.spliced(index, splice, &mut short), None);
            into.truncate(used);
            let encoded = node(&content, OWNERSHIP, 4);
            assert_eq!(content_of(&into), content_of(&encoded));
            let form = OrderedNode::parse(&encoded).unwrap().payloads;
            assert!(used == encoded.len() || parsed.payloads != form, "gaps in the heap");
            seal(&mut into, AT, 4);
            let expected = Expected { level, ..EXPECTED };
            let [one, other] = [&into, &encoded]
                .map(|bytes| OrderedNode::verify(bytes, HOME, expected, Proof::Checksum).unwrap());
            assert_eq!((one.low(), one.high()), (other.low(), other.high()));
            assert_eq!((one.right(), one.entries()), (other.right(), items.len()));
            before = into;
        }
    }
    assert!(done > 20_000 && refused < 200, "{done} {refused}");
}

#[test]
fn a_leaf_of_empty_values_has_no_payloads() {
    let low = [0; 8];
    let keys: Vec<[u8; 12]> = (1..=20).map(|number| [number; 12]).collect();
    let with = |bytes| {
        let items = keys.iter().map(|key| Item { key, payload: Payload::Value(Value::of(bytes)) });
        let items: Vec<Item<'_>> = items.collect();
        let (keys, right) = (KeyForm::Bytes, NodeRef::default());
        let content =
            Content { level: 0, is_deep: false, keys, low: &low, high: None, right, items: &items };
        node(&content, OWNERSHIP, 4)
    };
    let (short, empty) = (with(b"1"), with(b""));
    assert_eq!(short.len() - empty.len(), keys.len() * WORD_BYTES);
    // A leaf cannot have words and nothing at the same time, and an inner node has children.
    for (byte, wrong) in [(27, EMPTY | WORDS | BYTE_STRINGS), (26, 1)] {
        let mut bytes = empty.clone();
        bytes[byte] = wrong;
        assert!(OrderedNode::parse(&bytes).is_none());
    }
}

#[test]
fn a_node_with_a_moved_entry_holds_what_an_encoded_one_does() {
    let (mut random, mut done) = (Random::new(8), 0);
    for round in 0..300 {
        let form = [KeyForm::Integers, KeyForm::Bytes][round % 2];
        let bytes = [0, 8, 20][round % 3];
        let keys = keys(&mut random, form, 40);
        let values: Vec<Vec<u8>> = keys.iter().map(|_| random.bytes(bytes)).collect();
        let item = |index: usize| Item {
            key: &keys[index],
            payload: Payload::Value(Value::of(&values[index])),
        };
        let (last, low) = (keys.len() - 1, &keys[0][..]);
        let high = (round % 4 > 0).then_some(&keys[last][..]);
        let items: Vec<Item<'_>> = (1..last).step_by(2).map(item).collect();
        let is_deep = false;
        let base = Content { level: 0, is_deep, keys: form, low, high, right: AT, items: &[] };
        let mut before = node(&Content { items: &items, ..base }, OWNERSHIP, 4);
        let mark = MoveMark { moved_at: 1 << 50, is_joined: round % 7 == 0 };
        set_move_mark(&mut before, mark);
        let parsed = OrderedNode::parse(&before).unwrap();
        for _ in 0..40 {
            let from = random.below(items.len());
            let key = &keys[2 + 2 * random.below((last - 1) / 2)];
            let to = items.partition_point(|item| item.key < &key[..]);
            let mut into = vec![0xff; before.len() + random.below(9usize)];
            let used = parsed.with_moved(from, to, key, &mut into);
            assert_eq!(used.is_some(), key.len() == items[from].key.len());
            let Some(used) = used else { continue };
            done += 1;
            into.truncate(used);
            let mut moved = items.clone();
            let Item { payload, .. } = moved.remove(from);
            moved.insert(to - usize::from(from < to), Item { key, payload });
            let encoded = node(&Content { items: &moved, ..base }, OWNERSHIP, 4);
            assert_eq!((content_of(&into), used), (content_of(&encoded), encoded.len()));
            assert_eq!(OrderedNode::parse(&into).unwrap().move_mark(), mark);
            let mut short = vec![0; used - 1];
            assert_eq!(parsed.with_moved(from, to, key, &mut short), None);
        }
    }
    assert!(done > 6_000, "{done}");
}
