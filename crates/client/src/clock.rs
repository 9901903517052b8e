//! The client's clock: CLOCK_MONOTONIC, which all processes of a machine read
//! alike, so that a lease which one of them was given means the same to all.
//! (A process in another time namespace takes leases for longer or shorter
//! than they are. It loses hits or READs by that, never a right value.)

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since a moment that is the machine's own. Never 0: 0 is "no
/// time".
#[inline(always)]
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64).max(1)
}
