//! The worlds that the suite runs.

use super::{Sum, World};

/// Lines of a trace that are shown.
const SHOWN_LINES: usize = 120;

/// A world; if it breaks a promise, once more with its trace.
fn run(seed: u64) -> Sum {
    let Ok(sum) = std::panic::catch_unwind(|| World::new(seed, false).run()) else {
        let mut world = World::new(seed, true);
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
        world.say_state();
        let from = world.trace.len().saturating_sub(SHOWN_LINES);
        eprintln!("{}", world.trace[from..].join("\n"));
        panic!("seed {seed} breaks a promise, and again: {}", again.is_err());
    };
    sum
}

/// `REMORA_WORLD_SEEDS=A..B` runs these instead, and `REMORA_FAILOVERS=N` until there were so many.
fn settings() -> (u64, u64, u64) {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let failovers = std::env::var("REMORA_FAILOVERS").map_or(1_000, |text| number(&text));
    match std::env::var("REMORA_WORLD_SEEDS") {
        Ok(seeds) => {
            let (from, to) = seeds.split_once("..").expect("A..B");
            (number(from), number(to), u64::MAX)
        }
        Err(_) => (0, u64::MAX, failovers),
    }
}

#[test]
fn a_thousand_failovers_lose_nothing_and_serve_nothing_stale() {
    let (from, to, failovers) = settings();
    let (mut all, mut seed) = (Sum::default(), from);
    while all.failovers < failovers && seed < to {
        let sum = run(seed);
        seed += 1;
        all.failovers += sum.failovers;
        all.acknowledged += sum.acknowledged;
        all.reads += sum.reads;
        all.gone += sum.gone;
        all.by_disk += sum.by_disk;
        all.faults += sum.faults;
        all.recovery_ms = all.recovery_ms.max(sum.recovery_ms);
    }
    println!("seeds {from}..{seed}: {all:?}");
    assert!(all.gone * 20 <= all.failovers, "most failovers have somebody to promote");
}
