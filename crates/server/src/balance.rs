//! When a shard's thread gives a RESP connection to another one.
//!
//! Connections are spread by their number when they arrive. A few busy ones among many idle ones
//! may still meet at one thread: then the thread gives some away, one at a time, to the least busy
//! thread, until both are about equally busy. The cost of a connection is estimated from its turns.

use remora_layout::limits::{RESP_BALANCE_BUSY_PERCENT, RESP_BALANCE_MS};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A thread whose share is older than this is idle: a busy thread writes its share every
/// [`RESP_BALANCE_MS`] or soon after, a sleeping one does not.
const STALE_MS: u64 = 3 * RESP_BALANCE_MS;
/// The low bits of a share's word are its percentage; the bits above are the time of writing.
const PERCENT_BITS: u32 = 8;

/// The busy share of a thread's recent time, and when the thread wrote it. Only that thread writes
/// it.
#[derive(Default)]
pub struct BusyShare(AtomicU64);

impl BusyShare {
    fn tell(&self, percent: u64, at_ms: u64) {
        let percent = percent.min((1 << PERCENT_BITS) - 1);
        self.0.store(at_ms << PERCENT_BITS | percent, Ordering::Relaxed);
    }

    /// The percentage that is valid at this time.
    fn percent(&self, now_ms: u64) -> u64 {
        let word = self.0.load(Ordering::Relaxed);
        let is_stale = now_ms.saturating_sub(word >> PERCENT_BITS) > STALE_MS;
        if is_stale { 0 } else { word & ((1 << PERCENT_BITS) - 1) }
    }
}

/// State of one thread between two looks.
pub struct Balance {
    /// The server's start.
    started: Instant,
    at: Instant,
    busy_ns: u64,
}

impl Balance {
    /// A thread that begins now, of a server that was started then.
    pub const fn new(started: Instant, now: Instant) -> Self {
        Self { started, at: now, busy_ns: 0 }
    }

    /// Publishes how busy the thread with the number `own` was since the last look, by its time of
    /// work so far, if that was long enough ago. From the shares of all threads it returns the
    /// thread to which this one should give a connection, and the largest share of its own work
    /// that this connection may have.
    pub fn look<'s>(
        &mut self,
        (own, busy_ns): (usize, u64),
        shares: impl Iterator<Item = &'s BusyShare> + Clone,
        now: Instant,
    ) -> Option<(usize, f64)> {
        let since = now - self.at;
        if since < Duration::from_millis(RESP_BALANCE_MS) {
            return None;
        }
        let percent = (busy_ns - self.busy_ns) * 100 / (since.as_nanos() as u64).max(1);
        (self.at, self.busy_ns) = (now, busy_ns);
        let now_ms = (now - self.started).as_millis() as u64;
        shares.clone().nth(own)?.tell(percent, now_ms);
        let (least, to) = shares.map(|share| share.percent(now_ms)).zip(0..).min()?;
        share_to_give(percent, least).map(|share| (to, share))
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

    #[test]
    fn a_thread_that_tells_nothing_is_idle() {
        let started = Instant::now();
        let at = |ms| started + Duration::from_millis(ms);
        let busy_ns = |ms: u64, percent: u64| ms * percent * 10_000;
        let shares: [BusyShare; 3] = Default::default();
        let [mut first, mut second] = [0, 1].map(|_| Balance::new(started, started));
        shares[2].tell(90, RESP_BALANCE_MS);
        let soon = RESP_BALANCE_MS - 1;
        assert_eq!(first.look((0, busy_ns(soon, 90)), shares.iter(), at(soon)), None);
        assert_eq!(shares[0].percent(soon), 0, "too early to tell");
        // Two are busy; the first one thinks the second idle until that one has published its
        // share.
        let look = RESP_BALANCE_MS;
        let gives = first.look((0, busy_ns(look, 80)), shares.iter(), at(look));
        assert_eq!(gives, Some((1, 0.5)));
        assert_eq!(second.look((1, busy_ns(look, 80)), shares.iter(), at(look)), None);
        // The second one falls asleep for ever, and the first one looks on.
        for looks in 2..10 {
            let now = looks * look;
            let gives = first.look((0, busy_ns(now, 80)), shares.iter(), at(now));
            shares[2].tell(90, now);
            let is_stale = looks > 4;
            assert_eq!(gives, is_stale.then_some((1, 0.5)), "{now} ms");
        }
        // It wakes, and was idle meanwhile.
        let now = 10 * look;
        let busy = busy_ns(look, 80) + 1_000_000;
        assert_eq!(second.look((1, busy), shares.iter(), at(now)), None);
        assert!(shares[1].percent(now) < 10);
    }
}
