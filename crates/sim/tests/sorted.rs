//! Worlds with sorted sets. The longer form is `make worlds`.

use crate::promises;
use remora_sim::probes::Probe;
use remora_sim::shrink::Less;
use remora_sim::sorted::{number_of_score, register_of_member};
use remora_sim::values::{HashName, Register, member_name};

fn worlds() -> Less {
    Less { sorted: true, ..Less::default() }
}

#[test]
fn the_same_seed_gives_the_same_run_with_sorted_sets() {
    promises::repeats(&worlds());
}

#[test]
fn fixed_seeds_keep_every_promise_with_sorted_sets() {
    promises::fixed_seeds(&worlds(), 11, (&Probe::OF_SORTED, 5), 1_000);
}

/// The primary dies, and a replica takes its place with the sets that it has.
#[test]
fn sorted_sets_keep_every_promise_over_failovers() {
    promises::failovers(&worlds(), 100);
}

#[test]
fn fresh_seeds_keep_every_promise_with_sorted_sets() {
    promises::fresh_seeds(&worlds(), 6);
}

#[test]
fn a_member_is_known_by_its_name_and_its_score_is_a_whole_number() {
    for set in [0, 1] {
        for number in [0, 3, 7, 59] {
            let register = Register { database: 1, hash: Some(HashName::Sorted(set)), number };
            let name = member_name(set, number);
            assert_eq!(register_of_member(1, set, &name, 60), Some(register));
            assert_eq!(register_of_member(1, set, &name, number), None, "no client adds it");
        }
    }
    for name in [&b""[..], b"member:07", b"member:3 and", b"\xff:1"] {
        assert_eq!(register_of_member(0, 1, name, 60), None, "{name:?}");
    }
    assert_eq!(number_of_score(-3.0), Some(-3));
    for score in [0.5, f64::INFINITY, 1e300] {
        assert_eq!(number_of_score(score), None, "{score}");
    }
}
