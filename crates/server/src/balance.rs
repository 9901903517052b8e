//! When a shard's thread gives a RESP connection to another one.
//!
//! Connections are spread by their number when they come. A few busy ones among
//! many idle ones may still meet at one thread: then it gives some away, one at a
//! time, to the thread that has the least to do, until they are about equally
//! busy. What a connection costs is judged by its turns.

use crate::shared::ShardHandle;
use remora_layout::limits::{RESP_BALANCE_BUSY_PERCENT, RESP_BALANCE_MS};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What one thread remembers between two looks.
pub struct Balance {
    at: Instant,
    busy_ns: u64,
}

impl Balance {
    /// A thread that begins now.
    pub fn new(now: Instant) -> Self {
        Self { at: now, busy_ns: 0 }
    }

    /// Publishes how busy the thread with the number `own` was since the last look,
    /// if that was long enough ago. The thread to which it should give a
    /// connection, and the largest share of its own work that this one may be.
    pub fn look(
        &mut self,
        shards: &[ShardHandle],
        own: usize,
        now: Instant,
    ) -> Option<(usize, f64)> {
        let since = now - self.at;
        if since < Duration::from_millis(RESP_BALANCE_MS) {
            return None;
        }
        let busy_ns = shards[own].busy_ns.load(Ordering::Relaxed);
        let percent = (busy_ns - self.busy_ns) * 100 / (since.as_nanos() as u64).max(1);
        (self.at, self.busy_ns) = (now, busy_ns);
        shards[own].busy_percent.store(percent, Ordering::Relaxed);
        let busy = |at: usize| shards[at].busy_percent.load(Ordering::Relaxed);
        let least = (0..shards.len()).min_by_key(|&at| busy(at))?;
        share_to_give(percent, busy(least)).map(|share| (least, share))
    }
}

/// The largest share of its work that a thread should give to another, by how busy
/// both are, percent: with more the other one would be the busier one.
fn share_to_give(own: u64, other: u64) -> Option<f64> {
    let gives = own >= RESP_BALANCE_BUSY_PERCENT && other <= own / 2;
    gives.then(|| (own - other) as f64 / (2 * own) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_busy_thread_gives_and_no_more_than_makes_both_equal() {
        assert_eq!(share_to_give(49, 0), None, "it has time");
        assert_eq!(share_to_give(100, 51), None, "the other one is busy too");
        assert_eq!(share_to_give(100, 0), Some(0.5));
        assert_eq!(share_to_give(100, 50), Some(0.25));
        assert_eq!(share_to_give(50, 25), Some(0.25));
    }
}
