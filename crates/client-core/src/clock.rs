//! The client's clock: CLOCK_BOOTTIME. All processes of a machine read the same time from it, so a
//! lease granted to one of them means the same to all. It runs on while the machine is suspended,
//! as the server's clock does elsewhere: a read lease does not outlast a suspend. (A process in
//! another time namespace takes leases for longer or shorter than they are. It loses hits or READs
//! by that, never a right value.)

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::Duration;

/// Nanoseconds since a moment of the machine's own. Never 0: 0 means "no time".
#[inline(always)]
fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64).max(1)
}

/// A client's clock.
#[derive(Clone, Default)]
pub enum Clock {
    /// The machine's clock.
    #[default]
    Boottime,
    /// A given clock: nanoseconds since a moment of its own, never 0 and never going back.
    Given(Arc<dyn Fn() -> u64 + Send + Sync>),
}

impl Clock {
    /// The time, ns.
    #[inline(always)]
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Self::Boottime => boottime_ns(),
            Self::Given(now_ns) => now_ns(),
        }
    }

    /// The time since `began_ns`.
    pub(crate) fn since(&self, began_ns: u64) -> Duration {
        Duration::from_nanos(self.now_ns().saturating_sub(began_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_clock_goes_on_and_never_back() {
        let began_ns = Clock::Boottime.now_ns();
        std::thread::sleep(Duration::from_millis(2));
        assert!(Clock::Boottime.since(began_ns) >= Duration::from_millis(2));
        assert!((0..10_000).map(|_| Clock::Boottime.now_ns()).is_sorted());
    }
}
