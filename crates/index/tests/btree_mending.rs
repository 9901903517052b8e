//! What mending keeps is bounded, and ends; what is known of the levels, and how nodes are handed out.

use crate::btree_fixture::{OrderedFixture, options};
use crate::btree_held::{NEVER, deep_nodes, hold, mend};
use remora_arena::NoJournal;
use remora_index::btree::{Hold, TreeError};
use remora_layout::btree::{KeyForm, NodeInfo, Value, ValueKind};
use remora_layout::limits::MAX_MENDED_NODES;

type Fixture = OrderedFixture<NoJournal>;

fn fixture(fan_out: usize, bytes: usize) -> Fixture {
    OrderedFixture::new(options(KeyForm::Integers, fan_out), bytes, NoJournal)
}

fn set(fixture: &mut Fixture, number: u64) {
    fixture.set(&number.to_be_bytes(), ValueKind::Bytes, b"value");
}

fn delete(fixture: &mut Fixture, number: u64) {
    fixture.delete(&number.to_be_bytes());
}

fn nodes(fixture: &Fixture, level: u8) -> Vec<NodeInfo> {
    let mut nodes = Vec::new();
    fixture.tree.nodes_of(&fixture.owner, level, usize::MAX, |info| nodes.push(info));
    nodes
}

/// Keys go and come while one epoch is renewed and nobody mends: joins leave nodes to look at.
#[test]
fn what_is_to_be_mended_takes_no_more_as_keys_come_and_go() {
    let mut fixture = fixture(4, 8 << 20);
    (0..3_000).for_each(|number| set(&mut fixture, number));
    // A node of the middle only: the others are joined.
    let held = nodes(&fixture, 1)[100].at;
    let mut most = 0;
    for round in 0..60 {
        fixture.tree.pin(1, [held], NEVER).unwrap();
        (0..2_990).for_each(|number| delete(&mut fixture, number));
        (0..2_990).for_each(|number| set(&mut fixture, number));
        let now = fixture.tree.heap_bytes();
        if round < 5 {
            most = now.max(most);
        }
        assert!(now <= most + most / 2, "{now} bytes in round {round}, {most} before");
    }
    assert!(deep_nodes(&fixture) > 0 && fixture.tree.wants_mending());
    fixture.tree.release(&fixture.owner, 1);
    mend(&mut fixture);
    fixture.check();
    assert_eq!(deep_nodes(&fixture), 0);
    // From now on nobody held anything: joins leave nothing to look at.
    (0..2_990).for_each(|number| delete(&mut fixture, number));
    assert!(!fixture.tree.wants_mending());
}

/// More nodes wait than are noted: those of the level are looked at all the same.
#[test]
fn nodes_that_had_no_place_are_mended_with_their_level() {
    let mut fixture = fixture(4, 32 << 20);
    let many = 8 * MAX_MENDED_NODES as u64;
    (0..many).for_each(|number| set(&mut fixture, number));
    let leaves: Vec<_> = nodes(&fixture, 0).iter().map(|info| info.at).collect();
    assert!(leaves.len() >= 2 * MAX_MENDED_NODES);
    fixture.tree.pin(1, leaves.iter().copied(), NEVER).unwrap();
    // Each leaf keeps one key, so that it would join its neighbours.
    (0..many).filter(|number| number % 4 != 0).for_each(|number| delete(&mut fixture, number));
    assert_eq!(nodes(&fixture, 0).len(), leaves.len());
    let before = fixture.tree.heap_bytes();
    fixture.tree.release(&fixture.owner, 1);
    assert!(fixture.tree.heap_bytes() < before, "what waits takes less than what was held");
    mend(&mut fixture);
    fixture.tree.check(&fixture.owner).unwrap();
    let mended = nodes(&fixture, 0);
    let small = mended.iter().filter(|info| info.keys <= 1).count();
    assert!(small * 20 < mended.len(), "{small} of {} are small", mended.len());
}

#[test]
fn levels_are_known_after_a_load_and_the_changes_behind_it() {
    for fan_out in [4, 16] {
        let mut fixture = fixture(fan_out, 8 << 20);
        let keys: Vec<[u8; 8]> = (0..5_000u64).map(|number| (number * 3).to_be_bytes()).collect();
        let value = Value { kind: ValueKind::Bytes, bytes: b"value" };
        let (tree, mut arena) = fixture.parts();
        tree.load(&mut arena, keys.iter().map(|key| (&key[..], value))).unwrap();
        let compare = |fixture: &Fixture| {
            let mut shapes = fixture.tree.check(&fixture.owner).unwrap();
            shapes.reverse();
            let levels = fixture.tree.levels(&fixture.owner);
            assert_eq!(levels.len(), shapes.len());
            for (level, shape) in levels.iter().zip(&shapes) {
                let entries = shape.entries - shape.deep_entries;
                let expected = (shape.nodes, entries, shape.deep);
                assert_eq!((level.nodes, level.entries, level.deep), expected);
            }
        };
        compare(&fixture);
        fixture.tree.hold(&fixture.owner, hold(1, 8), |_| true).unwrap();
        for number in 0..5_000u64 {
            let (tree, mut arena) = fixture.parts();
            tree.set(&mut arena, &(number * 3 + 1).to_be_bytes(), value).unwrap();
        }
        compare(&fixture);
        assert!(deep_nodes(&fixture) > 0);
        fixture.tree.release(&fixture.owner, 1);
        mend(&mut fixture);
        compare(&fixture);
    }
}

#[test]
fn an_epoch_to_which_no_node_comes_does_not_begin() {
    let mut fixture = fixture(4, 8 << 20);
    let of = hold(1, 2);
    assert_eq!(fixture.tree.hold(&fixture.owner, of, |_| true), Ok(0), "the root is a leaf");
    (0..100).for_each(|number| set(&mut fixture, number));
    let refused = fixture.tree.hold(&fixture.owner, of, |_| false);
    assert_eq!(refused, Err(TreeError::NoneTaken));
    assert_eq!(fixture.tree.hold(&fixture.owner, Hold { levels: 0, ..of }, |_| true), Ok(0));
    assert_eq!(fixture.tree.held().epochs, 0);
    assert!(fixture.tree.hold(&fixture.owner, of, |_| true).unwrap() > 0);
    // What it holds it goes on to hold.
    let renewal = Hold { levels: 0, ..of };
    assert_eq!(fixture.tree.hold(&fixture.owner, renewal, |_| true), Ok(0));
    assert_eq!(fixture.tree.held().epochs, 1);
}
