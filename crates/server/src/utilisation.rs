//! How busy the shards are, for heartbeats.

use crate::shared::ShardHandle;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The shards' work between two measurements.
///
/// A shard looks at every ring once a turn. A request that comes at any moment finds a turn under
/// way with a probability in proportion to the turn's length. It waits for the rest of that turn,
/// half of it in the mean, and then for its place in the next one: together about as long as a turn
/// works for other clients. So the mean wait is the sum over the turns of their length times that
/// work, over the time; a client that is alone does not wait.
pub struct Utilisation {
    at: Instant,
    busy_ns: u64,
    waited_ns2: u64,
    ppm: u32,
    wait_ns: u32,
}

impl Utilisation {
    /// Nothing measured yet: idle.
    pub fn new() -> Self {
        Self { at: Instant::now(), busy_ns: 0, waited_ns2: 0, ppm: 0, wait_ns: 0 }
    }

    /// Busy share of the shards, parts per million, at most a million.
    pub fn ppm(&self) -> u32 {
        self.ppm
    }

    /// How long a request waits for its turn, ns.
    pub fn wait_ns(&self) -> u32 {
        self.wait_ns
    }

    /// Measures the time since the last measurement.
    pub fn measure(&mut self, shards: &[ShardHandle], now: Instant) {
        let sum =
            |field: fn(&ShardHandle) -> u64| shards.iter().map(field).fold(0, u64::wrapping_add);
        let busy_ns = sum(|shard| shard.busy_ns.load(Ordering::Relaxed));
        let waited_ns2 = sum(|shard| shard.waited_ns2.load(Ordering::Relaxed));
        let wall_ns = (now - self.at).as_nanos() as u64 * shards.len() as u64;
        let of_wall = |ns: u64| ns.checked_div(wall_ns);
        if let Some(ppm) = of_wall((busy_ns - self.busy_ns).saturating_mul(1_000_000)) {
            self.ppm = ppm.min(1_000_000) as u32;
        }
        if let Some(wait_ns) = of_wall(waited_ns2.wrapping_sub(self.waited_ns2)) {
            self.wait_ns = wait_ns.min(u32::MAX.into()) as u32;
        }
        (self.at, self.busy_ns, self.waited_ns2) = (now, busy_ns, waited_ns2);
    }
}
