//! The primitives on which threads and processes synchronize and sleep. The library's own tests
//! replace them by shuttle's, which draws the order of the threads' steps from a seed; the crate
//! `models` replaces [`Words`] by loom's.

use remora_fabric::LockWaits;
use std::sync::{PoisonError, TryLockError};

#[cfg(test)]
mod modelled;

#[cfg(test)]
pub use modelled::*;
pub use remora_arena::Words;
#[cfg(not(test))]
pub use remora_fabric::shm::ThreadBell as OwnBell;
#[cfg(not(test))]
pub use std::hint::spin_loop;
#[cfg(not(test))]
pub use std::sync::atomic::{AtomicU32, AtomicUsize};
pub use std::sync::atomic::{Ordering, fence};
#[cfg(not(test))]
pub use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(test))]
pub use std::thread::yield_now;

/// Times that a thread sends for others in a row because they left more meanwhile, before it
/// continues with its own work (`crate::combine`).
#[cfg(not(test))]
pub const COMBINE_ROUNDS: usize = 16;
/// Empty polls between two looks at the clock.
#[cfg(not(test))]
pub const POLLS_PER_CLOCK: u32 = 128;

/// Locks. A panic of another thread while it held the lock is a bug in this crate and is reported
/// there; the rings stay usable.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`]; counts if another thread has the lock.
#[inline]
pub fn lock_counted<'m, T>(mutex: &'m Mutex<T>, waits: &LockWaits) -> MutexGuard<'m, T> {
    try_lock(mutex).unwrap_or_else(|| {
        waits.add();
        lock(mutex)
    })
}

/// Locks, if no other thread holds the lock.
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
