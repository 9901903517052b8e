//! Worlds with ordered trees. The longer form is `make worlds`.

use crate::promises;
use remora_sim::ordered::register_named;
use remora_sim::probes::Probe;
use remora_sim::shrink::Less;
use remora_sim::values::{HashName, Register, key_name};

fn worlds() -> Less {
    Less { ordered: true, ..Less::default() }
}

#[test]
fn the_same_seed_gives_the_same_run_with_ordered_trees() {
    promises::repeats(&worlds());
}

#[test]
fn fixed_seeds_keep_every_promise_with_ordered_trees() {
    promises::fixed_seeds(&worlds(), 40, (&Probe::OF_ORDERED, 20), 1_000);
}

/// The primary dies, and a replica takes its place with the trees that it has.
#[test]
fn ordered_trees_keep_every_promise_over_failovers() {
    promises::failovers(&worlds(), 100);
}

#[test]
fn fresh_seeds_keep_every_promise_with_ordered_trees() {
    promises::fresh_seeds(&worlds(), 15);
}

#[test]
fn a_key_is_known_by_its_name_in_its_tree_only() {
    let (bytes, integers) = (HashName::Ordered(0), HashName::Ordered(1));
    for number in [0, 7, 59] {
        for (tree, other) in [(bytes, integers), (integers, bytes)] {
            let name = key_name(tree, number);
            let register = Register { database: 1, hash: Some(tree), number };
            assert_eq!(register_named(1, tree, &name, 60), Some(register));
            assert_eq!(register_named(1, tree, &name, number), None, "no client sets it");
            assert_eq!(register_named(1, other, &name, 60), None);
        }
    }
    for name in [&b""[..], b"key of a tree:07", b"99999", b"\xff:1"] {
        assert_eq!(register_named(0, bytes, name, 60), None, "{name:?}");
        assert_eq!(register_named(0, integers, name, 60), None, "{name:?}");
    }
}
