//! Worlds with links. The longer form is `make worlds`.

use remora_sim::key_links::Target;
use remora_sim::probes::{Probe, Probes};
use remora_sim::replicas::MAX_REPLICAS;
use remora_sim::run::Outcome;
use remora_sim::shrink::Less;
use remora_sim::world::World;
use std::hash::{BuildHasher, RandomState};

fn run(seed: u64, with_faults: bool, replicas: Option<usize>) -> Outcome {
    let less = Less { links: true, replicas, ..Less::default() };
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
fn the_same_seed_gives_the_same_run_with_links() {
    for seed in 0..3 {
        let (first, second) = (run(seed, true, None), run(seed, true, None));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.virtual_ns, second.virtual_ns);
    }
}

#[test]
fn fixed_seeds_keep_every_promise_with_links() {
    let (mut probes, mut keys, mut undecided) = (Probes::default(), 0, 0);
    for seed in 0..40 {
        for outcome in [run(seed, true, None), run(seed, false, None)] {
            probes.add_all(&outcome.probes);
            keys += outcome.keys;
            undecided += outcome.undecided;
        }
    }
    let reached = Probe::OF_LINKS.map(|probe| probes.reached(probe));
    assert!(reached.iter().all(|&times| times > 20), "{reached:?}");
    assert!(100 * undecided < keys, "nearly all keys are judged: not {undecided} of {keys}");
}

/// The primary dies, and a replica takes its place, or it comes back: hints of before lead nowhere.
#[test]
fn links_keep_every_promise_over_failovers() {
    let (mut probes, mut promotions) = (Probes::default(), 0);
    for seed in 0..60 {
        let outcome = run(seed, true, Some(MAX_REPLICAS));
        probes.add_all(&outcome.probes);
        promotions += outcome.replicas.promotions;
    }
    let of_former = probes.reached(Probe::KeyLinkOfFormer);
    assert!(of_former > 20 && promotions > 3, "{of_former} {promotions}");
}

/// Others each time: a failure names its seed.
#[test]
fn fresh_seeds_keep_every_promise_with_links() {
    let first = RandomState::new().hash_one("a number that differs with each process");
    for seed in (0..15).map(|at| first.wrapping_add(at)) {
        run(seed, true, None);
        run(seed, true, Some(MAX_REPLICAS));
    }
}

#[test]
fn a_target_is_known_by_its_name() {
    for target in [Target::Key(0), Target::Key(17), Target::Hash(2)] {
        assert_eq!(Target::named(&target.name()), Some(target));
    }
    for name in [&b"key:07"[..], b"key:", b"field:1", b"plain", b"hash:300", b"\xff:1"] {
        assert_eq!(Target::named(name), None, "{name:?}");
    }
    assert_ne!(Target::Hash(0).number(), Target::Key(0).number());
}
