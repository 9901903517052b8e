//! What worlds of every feature promise: the same seed gives the same run, and no seed breaks a promise, with faults,
//! without them, and over failovers.

use remora_sim::probes::{Probe, Probes};
use remora_sim::replicas::MAX_REPLICAS;
use remora_sim::run::Outcome;
use remora_sim::shrink::Less;
use remora_sim::world::World;
use std::hash::{BuildHasher, RandomState};

/// Runs a world of this kind, in which every promise is kept.
fn run(kind: &Less, seed: u64, with_faults: bool) -> Outcome {
    let outcome = World::run(kind.of(seed, with_faults), false);
    let faults = if with_faults { "" } else { " --no-faults" };
    assert!(
        outcome.violations.is_empty(),
        "{}\nto repeat it: remora-sim --seed {seed}{faults}{kind} --shrink",
        outcome.violations[0]
    );
    outcome
}

fn with_replicas(kind: &Less) -> Less {
    Less { replicas: Some(MAX_REPLICAS), ..kind.clone() }
}

/// The same seed gives the same run.
pub fn repeats(kind: &Less) {
    for seed in 0..3 {
        let (first, second) = (run(kind, seed, true), run(kind, seed, true));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.virtual_ns, second.virtual_ns);
    }
}

/// The first seeds reach each of these probes more often than that, and of so many keys one at most is undecided.
pub fn fixed_seeds(kind: &Less, seeds: u64, (probes, least): (&[Probe], u64), one_of: u64) {
    let (mut all, mut keys, mut undecided) = (Probes::default(), 0, 0);
    for seed in 0..seeds {
        for outcome in [run(kind, seed, true), run(kind, seed, false)] {
            all.add_all(&outcome.probes);
            keys += outcome.keys;
            undecided += outcome.undecided;
        }
    }
    let reached: Vec<u64> = probes.iter().map(|&probe| all.reached(probe)).collect();
    assert!(reached.iter().all(|&times| times > least), "{reached:?}");
    assert!(one_of * undecided < keys, "nearly all keys are judged: not {undecided} of {keys}");
}

/// The primary dies, and a replica takes its place with what it has.
pub fn failovers(kind: &Less, seeds: u64) {
    let kind = with_replicas(kind);
    let promotions: u64 = (0..seeds).map(|seed| run(&kind, seed, true).replicas.promotions).sum();
    assert!(promotions > 5, "{promotions}");
}

/// Other seeds each time: a failure names its seed.
pub fn fresh_seeds(kind: &Less, seeds: u64) {
    let first = RandomState::new().hash_one("a number that differs with each process");
    for seed in (0..seeds).map(|at| first.wrapping_add(at)) {
        run(kind, seed, true);
        run(&with_replicas(kind), seed, true);
    }
}
