//! Policies compared in virtual time.

use remora_sim::compare::{Fixed, POLICIES, all, run};

#[test]
fn table() {
    let wanted = std::env::var("W").unwrap_or_default();
    for work in all() {
        if !wanted.is_empty() && !wanted.split(',').any(|name| name == work.name) {
            continue;
        }
        let fixed = Fixed::of(&work);
        for policy in POLICIES {
            let began = std::time::Instant::now();
            let it = run(&work, policy);
            let total = it.total();
            println!(
                "{:13} {:15} {:9.0}/s {:8.0} ns read {:.2} nodes={:.2} util={:.2} port={:.2} T {:.3} L {:.3} {} {:?} {:?}",
                work.name,
                policy.name(),
                it.per_second(),
                total.mean_ns(),
                total.read as f64 / total.operations as f64,
                total.nodes as f64 / total.operations as f64,
                it.utilisation,
                it.port,
                fixed.throughput_of(&it),
                fixed.speed_of(&it),
                fixed.is_reached_by(&it),
                began.elapsed(),
                it.phases
                    .iter()
                    .map(|p| (
                        p.operations,
                        p.mean_ns() as u64,
                        p.read as f64 / p.operations as f64
                    ))
                    .collect::<Vec<_>>()
            );
        }
    }
}
