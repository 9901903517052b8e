//! How busy the shards are, for heartbeats.

use crate::shared::ShardHandle;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The share of time that the shards were at work between two measurements.
pub struct Utilisation {
    at: Instant,
    busy_ns: u64,
    ppm: u64,
}

impl Utilisation {
    /// Nothing measured yet: idle.
    pub fn new() -> Self {
        Self { at: Instant::now(), busy_ns: 0, ppm: 0 }
    }

    /// Parts per million, at most a million.
    pub fn ppm(&self) -> u64 {
        self.ppm
    }

    /// Measures the time since the last measurement.
    pub fn measure(&mut self, shards: &[ShardHandle], now: Instant) {
        let busy_ns: u64 = shards.iter().map(|shard| shard.busy_ns.load(Ordering::Relaxed)).sum();
        let wall_ns = (now - self.at).as_nanos() as u64 * shards.len() as u64;
        if let Some(ppm) = ((busy_ns - self.busy_ns) * 1_000_000).checked_div(wall_ns) {
            self.ppm = ppm.min(1_000_000);
        }
        (self.at, self.busy_ns) = (now, busy_ns);
    }
}
