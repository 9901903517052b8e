//! Ask or read? The chooser decides for each operation, from counters alone.
//!
//! No code here reads a clock, a network or a generator of its own: the same calls with the same
//! arguments decide the same, in any thread.
//!
//! Invariants:
//! * changes never come here: they go to the server (Catfish 4.1, A15);
//! * each session decides for itself, with random numbers of its own, so that sessions that see the
//!   same heartbeat do not all change route together (A16);
//! * every policy keeps trying both routes: an old estimate of one route does not stay in use only
//!   because the other route was taken.
//!   ever because the other one was taken.

mod catfish;
mod classes;
mod cost;
mod decision;
mod estimate;
mod explain;
mod policy;
mod tails;
mod trials;

pub use catfish::{Predictor, last_heartbeat, mean_of_heartbeats};
pub use classes::{Class, ClassKey, Classes};
pub use decision::{Decision, Route, Spent, Why};
pub use explain::Explanation;
pub use policy::Policy;

use crate::read_lease::ServerLoad;
use catfish::Catfish;
use cost::Cost;
use decision::Draws;

/// One session's choices.
#[derive(Clone, Debug)]
pub struct Chooser {
    policy: Policy,
    draws: Draws,
    catfish: Catfish,
    cost: Cost,
    /// Keys with a pointer, keys without one, and the same in batches.
    pub keys: [Class; 4],
}

/// Indices of classes in [`Chooser::keys`].
pub mod key_class {
    /// A key whose pointer is known: one READ.
    pub const CACHED: usize = 0;
    /// A key without one: bucket and record.
    pub const COLD: usize = 1;
    /// Added to the index if the key is one of many in a batch.
    pub const IN_BATCH: usize = 2;
}

impl Chooser {
    /// Nothing known yet. `reads_cost_server`: READs are executed by the
    /// server's processor on this transport.
    pub fn new(policy: Policy, reads_cost_server: bool, seed: u64) -> Self {
        Self {
            policy,
            draws: Draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            catfish: Catfish::new(last_heartbeat),
            cost: Cost::new(reads_cost_server),
            keys: [const { Class::NEW }; 4],
        }
    }

    /// Sets how Catfish's rules predict the server's load.
    #[must_use]
    pub fn predicting(mut self, predictor: Predictor) -> Self {
        self.catfish = Catfish::new(predictor);
        self
    }

    /// How it decides.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Decides for an operation of a class at `now_ns` of the client's clock. `load`: the load in
    /// the last heartbeat.
    #[inline]
    pub fn decide(&mut self, class: &mut Class, load: Option<ServerLoad>, now_ns: u64) -> Decision {
        if self.cost.goes_on(class, now_ns)
            && let Some(decision) = class.go_on()
        {
            return decision;
        }
        self.cost.hear(load);
        let catfish = &mut self.catfish;
        let (route, why) = match self.policy {
            Policy::Ask | Policy::Pointer => (Route::Ask, Why::Policy),
            Policy::Read => (Route::Read, Why::Policy),
            Policy::CatfishLiteral => catfish.decide(load, now_ns, &mut self.draws, false),
            Policy::CatfishKeep => catfish.decide(load, now_ns, &mut self.draws, true),
            Policy::Cost => return self.cost.decide(class, now_ns, &mut self.draws),
        };
        Decision { route, why, is_measured: false }
    }

    /// Decides for one of the two kinds of single keys.
    #[inline]
    pub fn decide_key(&mut self, at: usize, load: Option<ServerLoad>, now_ns: u64) -> Decision {
        if self.cost.goes_on(&mut self.keys[at], now_ns)
            && let Some(decision) = self.keys[at].go_on()
        {
            return decision;
        }
        if self.policy == Policy::Pointer && at % key_class::IN_BATCH == key_class::CACHED {
            return Decision { route: Route::Read, why: Why::Policy, is_measured: false };
        }
        let mut class = self.keys[at].clone();
        let decision = self.decide(&mut class, load, now_ns);
        self.keys[at] = class;
        decision
    }

    /// Learns the cost of an operation that was decided for this route.
    pub fn learn(&mut self, class: &mut Class, route: Route, spent: Spent, now_ns: u64) {
        self.cost.learn(class, route, spent, now_ns);
    }

    /// The same for a kind of key.
    pub fn learn_key(&mut self, at: usize, route: Route, spent: Spent, now_ns: u64) {
        let mut class = self.keys[at].clone();
        self.learn(&mut class, route, spent, now_ns);
        self.keys[at] = class;
    }

    /// Expected time of an operation of a class on each route, ns, as far as known.
    pub fn predict(&self, class: &Class, now_ns: u64) -> (Option<f32>, Option<f32>) {
        self.cost.predict(class, now_ns)
    }
}

#[cfg(test)]
mod tests;
