//! Worlds of a primary and replicas, as the suite runs them. The longer form is `make worlds`.

use remora_sim::faults::Fault;
use remora_sim::replicas::{MAX_REPLICAS, ReplicaCounts};
use remora_sim::run::Outcome;
use remora_sim::shrink::Less;
use remora_sim::world::World;
use std::hash::{BuildHasher, RandomState};

fn run(seed: u64, with_faults: bool) -> Outcome {
    let less = Less { replicas: Some(MAX_REPLICAS), ..Less::default() };
    let outcome = World::run(less.of(seed, with_faults), false);
    let faults = if with_faults { "" } else { " --no-faults" };
    assert!(
        outcome.violations.is_empty(),
        "{}\nto repeat it: remora-sim --seed {seed}{faults} --replicas --shrink",
        outcome.violations[0]
    );
    outcome
}

#[test]
fn the_same_seed_gives_the_same_run_with_replicas() {
    for seed in 0..5 {
        let (first, second) = (run(seed, true), run(seed, true));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.virtual_ns, second.virtual_ns);
    }
}

#[test]
fn fixed_seeds_keep_every_promise_with_replicas() {
    let mut counts = ReplicaCounts::default();
    let (mut crashes, mut stalls, mut lost) = (0, 0, 0);
    for seed in 0..200 {
        let outcome = run(seed, true);
        counts += outcome.replicas;
        let struck = |fault| outcome.faults.get(&fault).copied().unwrap_or(0);
        crashes += struck(Fault::ReplicaCrash);
        stalls += struck(Fault::ReplicaStall);
        lost += struck(Fault::LinkLost);
    }
    assert!(crashes > 20 && stalls > 20 && lost > 20, "{crashes} {stalls} {lost}");
    assert!(counts.promotions > 10 && counts.anew > 5 && counts.restarts > 10, "{counts:?}");
    assert!(counts.strict > 10 && counts.anew_by_order > 10, "{counts:?}");
    assert!(counts.reads > 3_000 && counts.one_sided > 500, "{counts:?}");
    assert!(counts.hidden > 500 && counts.no_reads > 50, "{counts:?}");
    assert!(counts.too_stale > 100 && counts.read_only > 300, "{counts:?}");
    assert!(counts.copies > 300 && counts.compared > 1_000, "{counts:?}");
    // A copy is of a log, and so is a log that goes on without one.
    assert!(counts.resumes > 100 && counts.links > 100, "{counts:?}");
}

#[test]
fn without_faults_replicas_keep_every_promise() {
    for seed in 0..50 {
        run(seed, false);
    }
}

/// Others each time: a failure names its seed.
#[test]
fn fresh_seeds_keep_every_promise_with_replicas() {
    let first = RandomState::new().hash_one("a number that differs with each process");
    for seed in (0..50).map(|at| first.wrapping_add(at)) {
        run(seed, true);
    }
}
