//! Worlds as the suite runs them: a fixed set of seeds, some of them twice, and
//! fresh ones. The longer form is `make worlds`.

use remora_sim::run::Outcome;
use remora_sim::shrink::Less;
use remora_sim::world::World;
use std::hash::{BuildHasher, RandomState};

fn run(seed: u64, with_faults: bool) -> Outcome {
    let outcome = World::run(Less::default().of(seed, with_faults), false);
    let faults = if with_faults { "" } else { " --no-faults" };
    assert!(
        outcome.violations.is_empty(),
        "{}\nto repeat it: remora-sim --seed {seed}{faults} --shrink",
        outcome.violations[0]
    );
    outcome
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..10 {
        let (first, second) = (run(seed, true), run(seed, true));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.virtual_ns, second.virtual_ns);
        hashes.insert(first.hash);
    }
    assert_eq!(hashes.len(), 10, "each seed is a world of its own");
}

#[test]
fn fixed_seeds_keep_every_promise() {
    let (mut faults, mut keys, mut undecided) = (0, 0, 0);
    for seed in 0..150 {
        for outcome in [run(seed, true), run(seed, false)] {
            faults += outcome.faults.values().sum::<u64>();
            keys += outcome.keys;
            undecided += outcome.undecided;
        }
    }
    assert!(faults > 3_000, "things did go wrong: {faults}");
    assert!(1_000 * undecided < keys, "nearly all keys are judged: not {undecided} of {keys}");
}

/// Others each time: a failure names its seed.
#[test]
fn fresh_seeds_keep_every_promise() {
    let first = RandomState::new().hash_one("a number that differs with each process");
    for seed in (0..100).map(|at| first.wrapping_add(at)) {
        run(seed, true);
    }
}
