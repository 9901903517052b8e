//! Policies compared in virtual time.

use remora_sim::compare::{Policy, all, run};

#[test]
fn table() {
    for work in all() {
        for policy in Policy::ALL {
            let began = std::time::Instant::now();
            let it = run(&work, policy);
            let total = it.total();
            println!(
                "{} {} ops={} /s={:.0} mean={:.0} read={} nodes={:.2} found={:.2} util={:.2} port={:.2} took {:?} {:?}",
                work.name,
                policy.name(),
                total.operations,
                it.per_second(),
                total.mean_ns(),
                total.read,
                total.nodes as f64 / total.operations as f64,
                total.found as f64 / total.operations as f64,
                it.utilisation,
                it.port,
                began.elapsed(),
                it.phases.iter().map(|p| (p.operations, p.mean_ns() as u64)).collect::<Vec<_>>()
            );
        }
    }
}
