//! Worlds with collections. The longer form is `make worlds`.

use remora_sim::probes::{Probe, Probes};
use remora_sim::replicas::MAX_REPLICAS;
use remora_sim::run::Outcome;
use remora_sim::shrink::Less;
use remora_sim::world::World;
use std::hash::{BuildHasher, RandomState};

fn run(seed: u64, with_faults: bool, replicas: Option<usize>) -> Outcome {
    let less = Less { collections: true, replicas, ..Less::default() };
    let outcome = World::run(less.of(seed, with_faults), false);
    let faults = if with_faults { "" } else { " --no-faults" };
    assert!(
        outcome.violations.is_empty(),
        "{}\nto repeat it: remora-sim --seed {seed}{faults}{less} --shrink",
        outcome.violations[0]
    );
    outcome
}

#[test]
fn the_same_seed_gives_the_same_run_with_collections() {
    for seed in 0..3 {
        let (first, second) = (run(seed, true, None), run(seed, true, None));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.virtual_ns, second.virtual_ns);
    }
}

#[test]
fn fixed_seeds_keep_every_promise_with_collections() {
    let (mut probes, mut keys, mut undecided) = (Probes::default(), 0, 0);
    for seed in 0..11 {
        for outcome in [run(seed, true, None), run(seed, false, None)] {
            probes.add_all(&outcome.probes);
            keys += outcome.keys;
            undecided += outcome.undecided;
        }
    }
    let reached = Probe::OF_COLLECTIONS.map(|probe| probes.reached(probe));
    assert!(reached.iter().all(|&times| times > 5), "{reached:?}");
    assert!(1_000 * undecided < keys, "nearly all keys are judged: not {undecided} of {keys}");
}

/// The primary dies, and a replica takes its place with the collections that it has.
#[test]
fn collections_keep_every_promise_over_failovers() {
    let mut promotions = 0;
    for seed in 0..60 {
        promotions += run(seed, true, Some(MAX_REPLICAS)).replicas.promotions;
    }
    assert!(promotions > 5, "{promotions}");
}

/// Others each time: a failure names its seed.
#[test]
fn fresh_seeds_keep_every_promise_with_collections() {
    let first = RandomState::new().hash_one("a number that differs with each process");
    for seed in (0..6).map(|at| first.wrapping_add(at)) {
        run(seed, true, None);
        run(seed, true, Some(MAX_REPLICAS));
    }
}
