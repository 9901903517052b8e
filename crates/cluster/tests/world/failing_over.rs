//! The worlds that the suite runs.

use super::{Sum, World};

fn run(seed: u64) -> Sum {
    let result = std::panic::catch_unwind(|| World::new(seed, false).run());
    match result {
        Ok(sum) => sum,
        Err(_) => {
            let mut world = World::new(seed, true);
            let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
            let from = world.trace.len().saturating_sub(120);
            eprintln!("{}", world.trace[from..].join("\n"));
            panic!("seed {seed} breaks a promise, and again: {}", again.is_err());
        }
    }
}

#[test]
fn a_thousand_failovers_lose_nothing_and_serve_nothing_stale() {
    let mut all = Sum::default();
    let mut seeds = 0;
    while all.failovers < 1_000 {
        let sum = run(seeds);
        seeds += 1;
        all.failovers += sum.failovers;
        all.acknowledged += sum.acknowledged;
        all.reads += sum.reads;
        all.gone += sum.gone;
        all.faults += sum.faults;
        all.recovery_ms = all.recovery_ms.max(sum.recovery_ms);
    }
    println!("{seeds} worlds: {all:?}");
}
