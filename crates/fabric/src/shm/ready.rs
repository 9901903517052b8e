//! Ready bits: a word for each client process and shard that says which of the process's rings have
//! frames. So a shard looks at one word for a process, however many rings it has. An idle process
//! is *parked*: the shard does not look at its word either, until the process signals.
//!
//! ```text
//!   sender                              shard
//!   store the frame                     swap the ready bits for 0
//!   full fence                          full fence
//!   set the ring's bit, if it is not    take frames out of the rings they name
//!   full fence, if it was not
//!   load parked and asleep,             store parked = 1
//!   signal if one is 1                  full fence
//!                                       look at the ready bits once more
//! ```
//! A sender that finds its bit set has stored its frame before the shard takes that bit, and so
//! before the shard looks at the ring. If a sender sets the bit and a shard parks, one of them sees
//! the other, as in [`super::asleep`]. The bits are hints of a peer: a spurious bit costs the shard
//! a look at an empty ring, a missing bit delays its own process only.

use super::asleep;
use crate::sync::{AtomicU64, Ordering, fence};

/// The sender calls it after it has stored a frame into the ring of this set: returns whether it
/// has to signal. `waits` loads the word with which the shard asks for a signal, relaxed.
#[inline(always)]
pub fn tell(ready: &AtomicU64, set: u32, waits: impl FnOnce() -> u64) -> bool {
    let bit = 1 << set;
    fence(Ordering::SeqCst);
    if ready.load(Ordering::Relaxed) & bit == 0 {
        ready.fetch_or(bit, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }
    waits() != 0
}

/// The shard takes the bits, before it looks at the rings that they name.
#[inline(always)]
pub fn take(ready: &AtomicU64) -> u64 {
    if ready.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    let bits = ready.swap(0, Ordering::AcqRel);
    fence(Ordering::SeqCst);
    bits
}

/// The shard will no longer look at a process's ready bits, unless `scan`, the last check, finds
/// that it has to. Returns whether the process is parked now. `parked` is then `name`, never 0.
#[inline(always)]
pub fn park(parked: &AtomicU64, name: u64, scan: impl FnOnce() -> bool) -> bool {
    parked.store(name, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let found = scan();
    if found {
        unpark(parked);
    }
    !found
}

/// The shard looks at a process's ready bits again.
#[inline(always)]
pub fn unpark(parked: &AtomicU64) {
    asleep::awake(parked);
}
