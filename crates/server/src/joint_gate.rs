//! No shard's durable sequence passes a part of a change of two shards before both parts are durable
//! (design, "One change").
//!
//! Each shard shows how far it has come: all up to there is durable by itself, and all before is passed
//! by its gate. A gate passes a part once the other shard shows that part.
//!
//! ```text
//! shard 0   1  2  [3]  4          durable by itself: 4    shows 3    gate: 2, until shard 1 shows 9
//! shard 1   7  8  [9]             durable by itself: 8    shows 8    gate: 8
//! ```
//! Invariant: what a gate has passed is in a [`remora_log::consistent_cut`] of what is durable by
//! itself. Parts of two shards are made in the same order in both logs, also by way of others, as the
//! one that looks is held from before the first part to after the second. So gates do not wait for each
//! other in a circle.

use remora_log::Part;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What each shard of a server shows, for one kind of durability.
#[derive(Clone)]
pub struct JointPlaces(Arc<[AtomicU64]>);

impl JointPlaces {
    /// For so many shards.
    pub fn new(shards: usize) -> Self {
        Self((0..shards).map(|_| AtomicU64::new(0)).collect())
    }

    fn shows(&self, part: &Part) -> bool {
        let place = self.0.get(part.shard() as usize);
        place.is_some_and(|place| place.load(Ordering::SeqCst) >= part.sequence())
    }
}

/// One shard's gate. See the module's text.
pub struct JointGate {
    shard: usize,
    places: JointPlaces,
    /// The parts that are not passed: the sequence here, and the other part.
    parts: VecDeque<(u64, Part)>,
    /// The last sequence here of which the other shard was told.
    told: u64,
    /// A bit for each shard that is to look again.
    tells: u64,
}

impl JointGate {
    /// For this shard.
    pub const fn new(shard: usize, places: JointPlaces) -> Self {
        Self { shard, places, parts: VecDeque::new(), told: 0, tells: 0 }
    }

    /// The shard has made a part, the last one so far.
    pub fn note(&mut self, part: (u64, Part)) {
        self.parts.push_back(part);
    }

    /// The parts of the past are void: the shard follows another log.
    pub fn clear(&mut self) {
        self.parts.clear();
    }

    /// Whether parts wait.
    pub fn waits(&self) -> bool {
        !self.parts.is_empty()
    }

    /// All up to this sequence is durable by itself. How far the gate passes.
    pub fn pass(&mut self, reached: u64) -> u64 {
        let mut passed = reached;
        let mut shown = reached;
        // Bounded by the parts that were made.
        while let Some((sequence, other)) = self.parts.front() {
            if *sequence > reached {
                break;
            }
            if *sequence > self.told {
                self.told = *sequence;
                self.tells |= 1 << other.shard();
            }
            if !self.places.shows(other) {
                (passed, shown) = (sequence - 1, *sequence);
                break;
            }
            self.parts.pop_front();
        }
        self.places.0[self.shard].fetch_max(shown, Ordering::SeqCst);
        passed
    }

    /// The shards that may pass more now, a bit each, since the last call.
    pub fn take_told(&mut self) -> u64 {
        std::mem::take(&mut self.tells)
    }
}
