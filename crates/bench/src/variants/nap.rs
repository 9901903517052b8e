//! The high-resolution sleep of 100 ns (HydraDB 4.2.1, H17).
//!
//! The real duration: the kernel adds the thread's timer slack, 50 us by default, so it is set to 1
//! ns for threads that nap. The rest is a system call, a timer that is programmed, and a switch of
//! threads and back: microseconds on a machine at rest. On a busy virtual machine of two cores 25
//! us were measured, and 84 us with the slack left as it is.

use rustix::thread::{ClockId, Timespec};
use std::num::NonZeroU64;

/// Empty looks before a nap: some microseconds, longer than a client and a
/// shard that have a core each wait for each other, and so short that threads
/// without a core of their own do not wear out their share of one.
pub const POLLS_PER_NAP: u32 = 128;
/// The requested duration.
const NAP_NS: i64 = 100;

/// A thread that will nap calls this once.
pub fn prepare() {
    // Refused, a nap lasts 50 us: a matter of latency only.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

#[cfg(test)]
thread_local! {
    /// Naps of this thread.
    pub static NAPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Sleeps 100 ns, as far as the kernel lets it.
pub fn nap() {
    #[cfg(test)]
    NAPS.set(NAPS.get() + 1);
    let request = Timespec { tv_sec: 0, tv_nsec: NAP_NS };
    // A signal may cut it short; that is no harm.
    let _ = rustix::thread::clock_nanosleep_relative(ClockId::Monotonic, &request);
}
