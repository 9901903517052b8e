//! How often threads wait for each other.

use crate::sync::{Mutex, MutexGuard};
use crate::waiting::{lock, try_lock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Times that a thread had to wait for another that had a lock which a request or its
/// reply goes by. Clones count together.
#[derive(Clone, Default, Debug)]
pub struct LockWaits(Arc<AtomicU64>);

impl LockWaits {
    /// A lock was taken, and the thread has to wait.
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
