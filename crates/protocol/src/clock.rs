//! The server's clock: a monotonic clock that follows the wall clock (decision
//! 0028).
//!
//! Invariants:
//! * it never goes back, for any thread that reads it;
//! * between two moments it gains at most `CLOCK_SLEW_PPM` and `CLOCK_SLEW_MS` on the monotonic
//!   clock, except for steps forward;
//! * heartbeats have announced a step forward for a whole wait before it: until then every bound
//!   that a reader made without it has lapsed.
//!
//! It reads no clock itself: times come in, so that tests and worlds own them.

use remora_layout::limits::{
    CLOCK_SLEW_MS, CLOCK_SLEW_PPM, CLOCK_STEP_MS, CLOCK_TOLERANCE_MS, READ_LEASE_MARGIN_MS,
    READ_LEASE_MS,
};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// How long heartbeats announce a step before it counts, ms of the monotonic clock: as long
/// as a new incarnation waits for the read leases of the one before.
const WAIT_MS: u64 = READ_LEASE_MS + READ_LEASE_MARGIN_MS;
/// Between two changes by `CLOCK_SLEW_MS`, ms.
const SLEW_EVERY_MS: u64 = CLOCK_SLEW_MS * 1_000_000 / CLOCK_SLEW_PPM;

/// Unix time of one server. All its threads read it; one [`ClockFollower`] leads it.
/// `since_ms` is everywhere the monotonic clock, in ms since the server's start.
#[derive(Debug)]
pub struct ServerClock {
    unix_ms_at_start: u64,
    /// Its lead over the monotonic clock, ms.
    ahead_ms: AtomicI64,
    /// The latest time that it has shown: it never shows less to any thread.
    latest_ms: AtomicU64,
    /// A step that is announced and does not count yet, ms.
    told_ms: AtomicU64,
}

impl ServerClock {
    /// A clock that shows this at the server's start.
    pub fn starting_at(unix_ms: u64) -> Self {
        Self {
            unix_ms_at_start: unix_ms,
            ahead_ms: AtomicI64::new(0),
            latest_ms: AtomicU64::new(unix_ms),
            told_ms: AtomicU64::new(0),
        }
    }

    /// The time, Unix ms.
    #[inline]
    pub fn unix_ms(&self, since_ms: u64) -> u64 {
        let shown_ms = self.followed_ms(since_ms);
        // Written once in a millisecond, not at each look.
        if shown_ms <= self.latest_ms.load(Ordering::Relaxed) {
            return self.latest_ms.load(Ordering::Relaxed);
        }
        self.latest_ms.fetch_max(shown_ms, Ordering::Relaxed).max(shown_ms)
    }

    /// The clock's time for heartbeats, Unix ms: no earlier than its present time, and no earlier
    /// than a time that it may come to show by a change that no reader expects.
    pub fn told_unix_ms(&self, since_ms: u64) -> u64 {
        self.unix_ms(since_ms) + CLOCK_SLEW_MS + self.told_ms.load(Ordering::Relaxed)
    }

    /// The monotonic clock with the gain on it; this one may go back.
    fn followed_ms(&self, since_ms: u64) -> u64 {
        let ahead_ms = self.ahead_ms.load(Ordering::Relaxed);
        (self.unix_ms_at_start + since_ms).saturating_add_signed(ahead_ms)
    }
}

/// A step forward that heartbeats announce to readers.
#[derive(Clone, Copy, Debug)]
struct Step {
    told_at_ms: u64,
    by_ms: u64,
}

/// Leads a [`ServerClock`] after the wall clock. It belongs to the thread that
/// writes the heartbeats, so that none is written between a step and its telling.
#[derive(Debug, Default)]
pub struct ClockFollower {
    slewed_at_ms: u64,
    step: Option<Step>,
}

impl ClockFollower {
    /// Compares the clock with the wall clock, both read at the same time, and changes it by as
    /// much as is allowed now.
    pub fn follow(&mut self, clock: &ServerClock, since_ms: u64, wall_unix_ms: u64) {
        let behind_ms = wall_unix_ms as i64 - clock.followed_ms(since_ms) as i64;
        if let Some(step) = self.step {
            if since_ms - step.told_at_ms >= WAIT_MS {
                // The wall clock may have gone back meanwhile: no more than is due.
                let by_ms = behind_ms.clamp(0, step.by_ms as i64);
                clock.ahead_ms.fetch_add(by_ms, Ordering::Relaxed);
                clock.told_ms.store(0, Ordering::Relaxed);
                self.step = None;
            }
        } else if behind_ms > CLOCK_STEP_MS as i64 {
            let by_ms = behind_ms as u64;
            clock.told_ms.store(by_ms, Ordering::Relaxed);
            self.step = Some(Step { told_at_ms: since_ms, by_ms });
        } else if behind_ms.unsigned_abs() >= CLOCK_TOLERANCE_MS
            && since_ms - self.slewed_at_ms >= SLEW_EVERY_MS
        {
            let by_ms = behind_ms.signum() * CLOCK_SLEW_MS as i64;
            clock.ahead_ms.fetch_add(by_ms, Ordering::Relaxed);
            self.slewed_at_ms = since_ms;
        }
    }

    /// Whether a step waits for its time.
    pub fn is_stepping(&self) -> bool {
        self.step.is_some()
    }
}

#[cfg(test)]
mod tests;
