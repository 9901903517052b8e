//! Whether a policy is as good as the better of always asking and always
//! reading.

use super::{Outcome, Policy, Workload, run};

/// The share of the better path's throughput, and of its speed, that a policy must reach.
pub const REACHED: f64 = 0.95;

/// The results of always asking and of always reading.
#[derive(Clone, PartialEq, Debug)]
pub struct Fixed {
    /// Always asking.
    pub ask: Outcome,
    /// Always reading.
    pub read: Outcome,
}

impl Fixed {
    /// Runs both.
    pub fn of(work: &Workload) -> Self {
        Self { ask: run(work, Policy::Ask), read: run(work, Policy::Read) }
    }

    /// Ratio of operations by asking to operations by reading.
    pub fn ask_over_read(&self) -> f64 {
        self.ask.per_second() / self.read.per_second()
    }

    /// A policy's throughput as a share of the better path's.
    pub fn throughput_of(&self, policy: &Outcome) -> f64 {
        policy.per_second() / self.ask.per_second().max(self.read.per_second())
    }

    /// The better path's mean latency as a share of a policy's.
    pub fn speed_of(&self, policy: &Outcome) -> f64 {
        let best_ns = self.ask.total().mean_ns().min(self.read.total().mean_ns());
        best_ns / policy.total().mean_ns()
    }

    /// Whether a policy reaches its bound.
    pub fn is_reached_by(&self, policy: &Outcome) -> bool {
        self.throughput_of(policy).min(self.speed_of(policy)) >= REACHED
    }
}
