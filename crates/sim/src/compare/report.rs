//! The result of a comparison, for people and for programs.

use super::{Fixed, Outcome, POLICIES, Policy, REACHED, Workload, run};
use std::fmt::Write;

/// A workload under every policy.
pub struct Compared {
    name: &'static str,
    shows: &'static str,
    fixed: Fixed,
    outcomes: Vec<(Policy, Outcome)>,
}

impl Compared {
    /// Runs a workload under every policy.
    pub fn of(work: &Workload) -> Self {
        let fixed = Fixed::of(work);
        let outcomes = POLICIES.map(|policy| match policy {
            Policy::Ask => (policy, fixed.ask.clone()),
            Policy::Read => (policy, fixed.read.clone()),
            _ => (policy, run(work, policy)),
        });
        let Workload { name, shows, .. } = *work;
        Self { name, shows, fixed, outcomes: outcomes.to_vec() }
    }

    /// Whether `cost` reaches its bound.
    pub fn is_reached(&self) -> bool {
        let mut cost = self.outcomes.iter().filter(|(policy, _)| *policy == Policy::Cost);
        cost.all(|(_, cost)| self.fixed.is_reached_by(cost))
    }

    /// A table for people.
    pub fn table(&self) -> String {
        let mut text = format!("{}: {}\n", self.name, self.shows);
        text += "  policy            ops/s   mean us  of the better: ops/s  speed   read   cores  port  phases, us\n";
        for (policy, it) in &self.outcomes {
            let total = it.total();
            let misses = match (policy, self.fixed.is_reached_by(it)) {
                (Policy::Cost, false) => format!("  below {REACHED}"),
                _ => String::new(),
            };
            let phases = it.phases.iter().map(|phase| format!(" {:.2}", phase.mean_ns() / 1e3));
            writeln!(
                text,
                "  {:15} {:>8.0} {:>9.2} {:>21.3} {:>6.3} {:>6.3} {:>7.2} {:>5.2} {}{misses}",
                policy.name(),
                it.per_second(),
                total.mean_ns() / 1e3,
                self.fixed.throughput_of(it),
                self.fixed.speed_of(it),
                total.read as f64 / total.operations.max(1) as f64,
                it.utilisation,
                it.port,
                phases.collect::<String>(),
            )
            .expect("a string takes it");
        }
        text
    }

    /// One object for each policy, a line each.
    pub fn json(&self) -> String {
        let line = |(policy, it): &(Policy, Outcome)| {
            let total = it.total();
            format!(
                "{{\"workload\":\"{}\",\"policy\":\"{}\",\"operations\":{},\"per_second\":{:.1},\
                 \"mean_ns\":{:.1},\"throughput_of_better\":{:.4},\"speed_of_better\":{:.4},\
                 \"read\":{},\"nodes\":{},\"found\":{},\"utilisation\":{:.4},\"port\":{:.4}}}\n",
                self.name,
                policy.name(),
                total.operations,
                it.per_second(),
                total.mean_ns(),
                self.fixed.throughput_of(it),
                self.fixed.speed_of(it),
                total.read,
                total.nodes,
                total.found,
                it.utilisation,
                it.port,
            )
        };
        self.outcomes.iter().map(line).collect()
    }
}
