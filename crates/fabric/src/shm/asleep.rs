//! Waking without losing a wake-up (design, "Fabric"; the shared-memory form
//! of Catfish 4.2's event detection, C17).
//!
//! ```text
//!   sender                         receiver
//!   store the frame                store asleep = 1
//!   full fence                     full fence
//!   load asleep, signal if 1       scan once more, sleep if nothing is there
//! ```
//! The later of the two fences makes the other side's store visible: either the receiver finds the
//! frame, or the sender finds the receiver asleep. The caller decides how to signal and how to
//! wait; a signal that comes before the wait must end it.

use crate::sync::{AtomicU64, Ordering, fence};

/// The sender, after it has stored a frame: whether it has to signal. `asleep`
/// loads the receiver's word, relaxed.
#[inline(always)]
pub fn must_signal(asleep: impl FnOnce() -> u64) -> bool {
    fence(Ordering::SeqCst);
    asleep() != 0
}

/// The receiver is about to scan, and then to sleep if it finds nothing.
#[inline(always)]
pub fn announce(asleep: &AtomicU64) {
    asleep.store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// The receiver sleeps no more, or has not slept at all.
#[inline(always)]
pub fn awake(asleep: &AtomicU64) {
    asleep.store(0, Ordering::Relaxed);
}

/// The receiver's side: sleeps unless `scan` finds something to do. Returns the result of `sleep`,
/// if it slept.
#[inline(always)]
pub fn sleep_unless<T>(
    asleep: &AtomicU64,
    scan: impl FnOnce() -> bool,
    sleep: impl FnOnce() -> T,
) -> Option<T> {
    announce(asleep);
    let slept = (!scan()).then(sleep);
    awake(asleep);
    slept
}
