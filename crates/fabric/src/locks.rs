//! Takes locks, and counts how often threads wait for each other at them.

use crate::sync::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, TryLockError};

/// A lock whose holders never panic half way through a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], unless another thread holds it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Times that a thread waited for another one at a lock on the path of a request or its reply.
/// Clones share one count.
#[derive(Clone, Default, Debug)]
pub struct LockWaits(Arc<AtomicU64>);

impl LockWaits {
    /// A thread has to wait for the lock.
    #[cold]
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The times so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Locks, and counts if another thread has the lock.
    #[inline]
    pub(crate) fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
        try_lock(mutex).unwrap_or_else(|| {
            self.add();
            lock(mutex)
        })
    }
}
