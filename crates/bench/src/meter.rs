//! Latencies and correctness of one client's operations.
//!
//! Reading the clock costs about 25 ns. If an operation takes many times that, the meter measures
//! every one, with one reading between two: the end of one is the beginning of the next. If it may
//! take only a few times that (over shared memory, in a local map), the meter measures one in
//! [`SAMPLE_EVERY`], so that the throughput is the operations' own. The number is a prime, so that
//! no pattern of a replayed trace hides between samples.

use crate::records::Records;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// One in so many short operations is measured.
pub const SAMPLE_EVERY: u32 = 7;
/// Latencies above are counted as this.
const MAX_LATENCY_NS: u64 = 60_000_000_000;
/// Three digits: a bucket is at most a thousandth wide.
const DIGITS: u8 = 3;

/// Hits and misses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Operations done.
    pub ops: u64,
    /// Loaded keys that were not found.
    pub missing: u64,
    /// Values that were not the key's.
    pub wrong: u64,
}

impl Tally {
    /// Judges the result of a lookup of the record `index`.
    #[inline]
    pub fn judge(&mut self, records: &impl Records, index: u32, value: Option<&[u8]>) {
        match std::hint::black_box(value) {
            Some(value) if records.is_right(index, value) => {}
            Some(_) => self.wrong += 1,
            None => self.missing += 1,
        }
    }

    /// Adds another client's.
    pub fn add(&mut self, other: Self) {
        self.ops += other.ops;
        self.missing += other.missing;
        self.wrong += other.wrong;
    }
}

/// The clock and the counters of one client.
#[derive(Debug)]
pub struct Meter {
    /// Measured latencies, ns.
    pub latency_ns: Histogram<u64>,
    /// Outcomes.
    pub tally: Tally,
    /// When the timed part began.
    pub began: Instant,
    every: u32,
    until_sample: u32,
    last: Instant,
    deadline: Option<Instant>,
}

impl Meter {
    /// Starts the clock. One in `every` operations is measured; after `limit`
    /// the run ends.
    pub fn start(every: u32, limit: Option<Duration>) -> anyhow::Result<Self> {
        let latency_ns = Histogram::new_with_bounds(1, MAX_LATENCY_NS, DIGITS)?;
        let now = Instant::now();
        Ok(Self {
            latency_ns,
            tally: Tally::default(),
            began: now,
            every,
            until_sample: every,
            last: now,
            deadline: limit.map(|limit| now + limit),
        })
    }

    /// Runs `work`, which does `ops` operations at once. `false`: time is up.
    #[inline]
    pub fn measure(
        &mut self,
        ops: u64,
        work: impl FnOnce(&mut Tally) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        self.tally.ops += ops;
        if self.every == 1 {
            let from = self.last;
            work(&mut self.tally)?;
            self.last = Instant::now();
            self.record(self.last - from, ops);
            return Ok(self.goes_on(self.last));
        }
        self.until_sample -= 1;
        if self.until_sample > 0 {
            work(&mut self.tally)?;
            return Ok(true);
        }
        self.until_sample = self.every;
        let from = Instant::now();
        work(&mut self.tally)?;
        let to = Instant::now();
        self.record(to - from, ops);
        Ok(self.goes_on(to))
    }

    /// The time at which a request of a pipeline leaves, for one in `every`.
    #[inline]
    pub fn stamp(&mut self) -> Option<Instant> {
        self.until_sample -= 1;
        if self.until_sample > 0 {
            return None;
        }
        self.until_sample = self.every;
        Some(Instant::now())
    }

    /// Counts the reply to a request of a pipeline. `false`: time is up.
    #[inline]
    pub fn arrived(&mut self, sent: Option<Instant>) -> bool {
        self.tally.ops += 1;
        let Some(sent) = sent else { return true };
        let now = Instant::now();
        self.record(now - sent, 1);
        self.goes_on(now)
    }

    #[inline]
    fn record(&mut self, latency: Duration, ops: u64) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(MAX_LATENCY_NS).max(1);
        self.latency_ns.saturating_record_n(nanoseconds, ops);
    }

    #[inline]
    fn goes_on(&self, now: Instant) -> bool {
        self.deadline.is_none_or(|deadline| now < deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_or_one_in_seven_is_measured() {
        for (every, samples) in [(1, 70), (SAMPLE_EVERY, 10)] {
            let mut meter = Meter::start(every, None).unwrap();
            for _ in 0..70 {
                assert!(meter.measure(1, |_| Ok(())).unwrap());
            }
            assert_eq!((meter.tally.ops, meter.latency_ns.len()), (70, samples));
        }
    }

    #[test]
    fn a_batch_counts_for_each_of_its_operations() {
        let mut meter = Meter::start(1, None).unwrap();
        meter.measure(16, |_| Ok(())).unwrap();
        assert_eq!((meter.tally.ops, meter.latency_ns.len()), (16, 16));
    }

    #[test]
    fn the_limit_ends_a_run() {
        let mut meter = Meter::start(1, Some(Duration::ZERO)).unwrap();
        assert!(!meter.measure(1, |_| Ok(())).unwrap());
        let sent = meter.stamp();
        assert!(!meter.arrived(sent));
    }
}
