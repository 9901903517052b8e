//! Ask or read? Decided for each operation, from counters alone.
//!
//! Nothing here reads a clock, a network or a generator of its own: the same
//! calls with the same arguments decide the same, whoever makes them.
//!
//! What it keeps true:
//! * changes never come here: they go to the server (Catfish 4.1, A15);
//! * each session decides for itself, by draws of its own, so that those who
//!   see the same heartbeat do not turn round together (A16);
//! * every policy goes on trying: what one path costs now is not believed for
//!   ever because the other one was taken.

mod catfish;
mod classes;
mod cost;
mod explain;
mod tails;
mod trials;

pub use catfish::{Predictor, last_heartbeat, mean_of_heartbeats};
pub use classes::{Class, ClassKey, Classes};
pub use explain::{Explanation, Way, Why};

use crate::right::ServerLoad;
use catfish::Catfish;
use cost::Cost;

/// How [`Path::Choose`](crate::Path::Choose) is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// Always asks.
    Ask,
    /// Always reads.
    Read,
    /// Catfish's algorithm 1 as it is printed: a call that consumes no
    /// heartbeat forgets how often in a row the server was busy (A11, i).
    CatfishLiteral,
    /// Algorithm 1 as its text describes it: what was counted stays until a
    /// heartbeat says otherwise (A11, ii).
    CatfishKeep,
    /// A key whose pointer is known is read; whatever else is asked, which
    /// gives a pointer with a lease (HydraDB 4.2.2, H19).
    Pointer,
    /// The path that costs less time, by what was measured and by what the
    /// server says while the client reads.
    #[default]
    Cost,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Ask, Self::Read, Self::CatfishLiteral, Self::CatfishKeep, Self::Pointer, Self::Cost];

    /// The name in commands and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Read => "read",
            Self::CatfishLiteral => "catfish-literal",
            Self::CatfishKeep => "catfish-keep",
            Self::Pointer => "pointer",
            Self::Cost => "cost",
        }
    }
}

/// What was decided for one operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decision {
    /// The way to take.
    pub way: Way,
    /// Why.
    pub why: Why,
    /// Whether [`Chooser::learn`] is to be told what the operation took.
    pub is_measured: bool,
}

/// Draws numbers (xorshift64*, Vigna 2016).
#[derive(Clone, Debug)]
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `bound`, which is not 0.
    fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * bound as u64) >> 32) as u32
    }

    /// In [0, 1).
    fn share(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 24) as f32
    }
}

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

/// Places of classes in [`Chooser::keys`].
pub mod key_class {
    /// A key whose pointer is known: one READ.
    pub const CACHED: usize = 0;
    /// A key without one: bucket and record.
    pub const COLD: usize = 1;
    /// More to be added if it is one of many in a batch.
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

    /// Catfish's rules predict the server's load so.
    #[must_use]
    pub fn predicting(mut self, predictor: Predictor) -> Self {
        self.catfish = Catfish::new(predictor);
        self
    }

    /// How it decides.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Decides for an operation of a class at `now_ns` of the client's clock.
    /// `load`: what the last heartbeat said.
    #[inline]
    pub fn decide(&mut self, class: &mut Class, load: Option<ServerLoad>, now_ns: u64) -> Decision {
        if self.cost.goes_on(class, now_ns)
            && let Some(decision) = class.go_on()
        {
            return decision;
        }
        self.cost.hear(load);
        let catfish = &mut self.catfish;
        let (way, why) = match self.policy {
            Policy::Ask | Policy::Pointer => (Way::Ask, Why::Policy),
            Policy::Read => (Way::Read, Why::Policy),
            Policy::CatfishLiteral => catfish.decide(load, now_ns, &mut self.draws, false),
            Policy::CatfishKeep => catfish.decide(load, now_ns, &mut self.draws, true),
            Policy::Cost => return self.cost.decide(class, now_ns, &mut self.draws),
        };
        Decision { way, why, is_measured: false }
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
            return Decision { way: Way::Read, why: Why::Policy, is_measured: false };
        }
        let mut class = self.keys[at].clone();
        let decision = self.decide(&mut class, load, now_ns);
        self.keys[at] = class;
        decision
    }

    /// Learns what an operation took that was to go this way.
    pub fn learn(&mut self, class: &mut Class, way: Way, spent: Spent, now_ns: u64) {
        self.cost.learn(class, way, spent, now_ns);
    }

    /// The same for a kind of key.
    pub fn learn_key(&mut self, at: usize, way: Way, spent: Spent, now_ns: u64) {
        let mut class = self.keys[at].clone();
        self.learn(&mut class, way, spent, now_ns);
        self.keys[at] = class;
    }

    /// What an operation of a class would take each way, ns, as far as it is
    /// known.
    pub fn predict(&self, class: &Class, now_ns: u64) -> (Option<f32>, Option<f32>) {
        self.cost.predict(class, now_ns)
    }
}

/// What an operation took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spent {
    /// Time from its beginning to its end, ns: of one that read and was asked
    /// for after all, both.
    pub elapsed_ns: u64,
    /// Nodes that crossed the fabric, if it read.
    pub reads: u64,
    /// The share of it, 0 to 1, that was read in vain, and asked for after all.
    pub in_vain: f32,
}

#[cfg(test)]
mod tests;
