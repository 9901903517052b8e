//! Worlds as the suite runs them: a fixed set of seeds, some of them twice, then
//! fresh ones. The longer form is `remora-sim --seeds A..B --minutes M`.

use remora_sim::shrink::Less;
use remora_sim::world::{Outcome, World};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
    let mut faults = 0;
    for seed in 0..60 {
        let (faulty, faultless) = (run(seed, true), run(seed, false));
        assert_eq!(faulty.undecided + faultless.undecided, 0, "seed {seed}: every key is judged");
        faults += faulty.faults.values().sum::<u64>();
    }
    assert!(faults > 300, "things did go wrong: {faults}");
}

#[test]
fn fresh_seeds_keep_every_promise() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let first = since.as_nanos() as u64;
    let until = Instant::now() + Duration::from_secs(20);
    let (mut seed, mut undecided) = (first, 0);
    while Instant::now() < until {
        undecided += run(seed, true).undecided;
        seed += 1;
    }
    println!("fresh seeds {first}..{seed}, keys that were not judged: {undecided}");
}
