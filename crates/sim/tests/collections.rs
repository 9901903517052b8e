//! Worlds with collections. The longer form is `make worlds`.

use crate::promises;
use remora_sim::probes::Probe;
use remora_sim::shrink::Less;

fn worlds() -> Less {
    Less { collections: true, ..Less::default() }
}

#[test]
fn the_same_seed_gives_the_same_run_with_collections() {
    promises::repeats(&worlds());
}

#[test]
fn fixed_seeds_keep_every_promise_with_collections() {
    promises::fixed_seeds(&worlds(), 11, (&Probe::OF_COLLECTIONS, 5), 1_000);
}

/// The primary dies, and a replica takes its place with the collections that it has.
#[test]
fn collections_keep_every_promise_over_failovers() {
    promises::failovers(&worlds(), 60);
}

#[test]
fn fresh_seeds_keep_every_promise_with_collections() {
    promises::fresh_seeds(&worlds(), 6);
}
