//! The engine's own policy as a cache of keys.

use super::replay::Cache;
use remora_engine::evict::{Id, Policy, Verdict};

/// All records are of one size here.
const BYTES: usize = 1;

/// S3-FIFO.
pub struct Engine {
    policy: Policy,
    capacity: usize,
    held: usize,
    is_held: Vec<bool>,
    spares_leased: bool,
}

impl Engine {
    /// Room for `capacity` of `keys` keys. `spares_leased` counts a record
    /// under a lease as touched when it is about to go.
    pub fn new(capacity: usize, keys: usize, spares_leased: bool) -> Self {
        let policy = Policy::new(keys * 2);
        Self { policy, capacity, held: 0, is_held: vec![false; keys], spares_leased }
    }
}

/// A fingerprint, as the hash of a key would be.
fn fingerprint(key: u32) -> u64 {
    let mut mixed = (key as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl Cache for Engine {
    fn has(&self, key: u32) -> bool {
        self.is_held[key as usize]
    }

    fn touched(&mut self, key: u32) {
        self.policy.touched(key * 2);
    }

    fn insert(&mut self, key: u32, is_leased: &dyn Fn(u32) -> bool) {
        if self.held == self.capacity {
            let judge = |id: Id| match self.spares_leased && is_leased(id.slot / 2) {
                true => Verdict::Spare { bytes: BYTES },
                false => Verdict::Take { bytes: BYTES },
            };
            let victim = match self.policy.victim(judge) {
                Some(victim) => victim,
                // All that was looked at is leased.
                None => self.policy.victim(|_| Verdict::Take { bytes: BYTES }).expect("it is full"),
            };
            let out = victim.id.slot / 2;
            if victim.came_from_small {
                self.policy.remember(fingerprint(out));
            }
            self.is_held[out as usize] = false;
            self.held -= 1;
        }
        self.policy.inserted(Id { slot: key * 2, generation: 1 }, BYTES, fingerprint(key));
        self.is_held[key as usize] = true;
        self.held += 1;
    }
}
