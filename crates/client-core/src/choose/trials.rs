//! The cost of trying the worse route, and whether the session may try it again.
//!
//! The cost of a trial cannot be known before: a sleeping shard on a machine whose processors are
//! all busy answers after milliseconds, where a READ takes two microseconds. So the session counts
//! the cost beyond the better route's time as it arises, and a [`PROBES`] share of all time pays it
//! off.

use super::estimate::PROBES;

/// The cost of trials that time has not paid off yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trials {
    owed_ns: f32,
    at_ns: u64,
}

impl Trials {
    /// A trial that has cost this much ends, whatever its planned length; ns.
    pub const MOST_NS: f32 = 1e6;

    fn owed(self, now_ns: u64) -> f32 {
        let paid = PROBES * now_ns.saturating_sub(self.at_ns) as f32;
        (self.owed_ns - paid).max(0.0)
    }

    /// Whether another trial may begin.
    pub fn are_paid(self, now_ns: u64) -> bool {
        self.owed_ns <= 0.0 || self.owed(now_ns) <= 0.0
    }

    /// An operation of a trial took so much longer than the better route, ns; negative if it was
    /// faster.
    pub fn cost(&mut self, ns: f32, now_ns: u64) {
        *self = Self { owed_ns: (self.owed(now_ns) + ns).max(0.0), at_ns: now_ns };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_trial_costs_is_paid_off_by_a_hundredth_of_the_time() {
        let mut trials = Trials::default();
        assert!(trials.are_paid(0));
        trials.cost(1_000.0, 50);
        assert!(!trials.are_paid(50) && !trials.are_paid(100_000));
        assert!(trials.are_paid(100_100));
        trials.cost(-500.0, 200_000);
        assert!(trials.are_paid(200_000), "a trial that was worth it costs nothing");
    }
}
