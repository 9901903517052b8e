//! The server's clock, over the machine's clocks.

use remora_engine::Now;
use remora_layout::limits::CLOCK_LOOK_TAKES_MS;
use remora_protocol::{ClockFollower, ServerClock};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Unix time that never goes back, and follows the wall clock within the bounds that readers allow.
/// While the machine is suspended the monotonic clock stops: the wall clock is ahead then, and this
/// clock follows it by a step.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    unix: ServerClock,
}

impl Clock {
    /// A clock that starts now, and not before this Unix time, ms.
    pub fn start_after(unix_ms: u64) -> Self {
        let now_ms = wall_unix_ms().max(unix_ms);
        Self { start: Instant::now(), unix: ServerClock::starting_at(now_ms) }
    }

    /// The clock of a replica, which shows no earlier Unix time than this, ms, and its primary's once
    /// that is known ([`Clock::follow_primary`]): not the machine's, which may be ahead.
    pub fn start_at(unix_ms: u64) -> Self {
        Self { start: Instant::now(), unix: ServerClock::starting_at(unix_ms) }
    }

    /// The time, read once for as many commands as are executed together.
    pub fn now(&self) -> Now {
        self.at(Instant::now())
    }

    /// The time at an instant already read.
    pub fn at(&self, instant: Instant) -> Now {
        let since_ms = self.since_ms(instant);
        Now { unix_ms: self.unix.unix_ms(since_ms), since_start_s: since_ms / 1000 }
    }

    /// The clock's time for heartbeats, Unix ms.
    pub fn told_unix_ms(&self) -> u64 {
        self.unix.told_unix_ms(self.since_ms(Instant::now()))
    }

    /// Compares it with the wall clock.
    pub fn follow(&self, follower: &mut ClockFollower) {
        let before = Instant::now();
        let wall_unix_ms = wall_unix_ms();
        // Between the two looks the thread, or the machine, may have stood still.
        if before.elapsed() <= Duration::from_millis(CLOCK_LOOK_TAKES_MS) {
            follower.follow(&self.unix, self.since_ms(before), wall_unix_ms);
        }
    }

    /// Compares it with the clock of the primary, at a replica.
    pub fn follow_primary(&self, follower: &mut ClockFollower, unix_ms: u64) {
        follower.follow(&self.unix, self.since_ms(Instant::now()), unix_ms);
    }

    /// When the clock was started.
    pub fn started(&self) -> Instant {
        self.start
    }

    /// The monotonic clock, ms since this one was started: how long something lasts, whatever the wall
    /// clock does.
    pub fn since_ms(&self, instant: Instant) -> u64 {
        instant.duration_since(self.start).as_millis() as u64
    }
}

/// A clock that never goes back, ns: the machine's, or the one of a simulated world.
#[derive(Clone)]
pub enum MonotonicClock {
    /// The machine's CLOCK_BOOTTIME, as clients have: it runs on while the machine is suspended, so that no
    /// lease outlasts that. In a virtual machine that its host pauses it may stand (docs/assumptions.md, T5).
    Boottime,
    /// A given one: never 0, and never going back.
    Given(Arc<dyn Fn() -> u64 + Send + Sync>),
}

impl MonotonicClock {
    /// The time, ns; never 0.
    pub fn now_ns(&self) -> u64 {
        match self {
            Self::Boottime => {
                let now = clock_gettime(ClockId::Boottime);
                now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 + 1
            }
            Self::Given(now_ns) => now_ns(),
        }
    }
}

impl fmt::Debug for MonotonicClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.now_ns())
    }
}

/// The wall clock, Unix ms.
pub fn wall_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_leases_is_that_of_the_machine_with_its_suspends() {
        let boottime_ns = || {
            let now = clock_gettime(ClockId::Boottime);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        };
        let before_ns = boottime_ns();
        let now_ns = MonotonicClock::Boottime.now_ns();
        assert!((before_ns..=boottime_ns() + 1).contains(&now_ns), "{before_ns} {now_ns}");
    }
}
