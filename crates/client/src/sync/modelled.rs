//! Shuttle's threads and locks, and a kernel made of them: one eventfd on which
//! the thread that sleeps for all of the process sleeps.

pub use shuttle::hint::spin_loop;
pub use shuttle::sync::atomic::{AtomicU32, AtomicUsize};
pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
pub use shuttle::thread::yield_now;

use remora_arena::{AsleepWord, ReadView};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Few: each is a step of its own here, and threads are to come to sleep.
pub const POLLS_PER_CLOCK: u32 = 2;

/// Sleeps in the kernel in all runs.
pub static SLEEPS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

shuttle::lazy_static! {
    /// The eventfd of the one client of a run.
    static ref EVENTFD: Eventfd = Eventfd::default();
}

#[derive(Default)]
struct Eventfd {
    is_asleep: AtomicBool,
    /// Stays until a sleeper takes it.
    is_signalled: Mutex<bool>,
    changed: Condvar,
}

/// As [`remora_fabric::shm::Bell`].
pub struct OwnBell;

impl OwnBell {
    /// A bell for the client.
    pub fn new(_asleep: ReadView, _word: usize, _eventfd: Arc<OwnedFd>) -> Self {
        Self
    }

    /// As the server's bell: wakes the sleeper if it sleeps.
    pub fn ring(&self) {
        if EVENTFD.is_asleep.load(Ordering::SeqCst) {
            self.signal();
        }
    }

    /// Wakes the sleeper whether it sleeps or not.
    pub fn signal(&self) {
        *EVENTFD.is_signalled.lock().unwrap() = true;
        EVENTFD.changed.notify_one();
    }
}

/// As [`remora_fabric::shm::Sleeper`]. Its time is never up: who sleeps for
/// ever is found as a deadlock.
pub struct Sleeper {
    sleeps: u64,
}

impl Sleeper {
    /// The sleeper of the client.
    pub fn new(_asleep: AsleepWord) -> std::io::Result<Self> {
        Ok(Self { sleeps: 0 })
    }

    /// There is one eventfd anyway.
    pub fn watch(&self, _fd: BorrowedFd<'_>) -> std::io::Result<()> {
        Ok(())
    }

    /// How often it really slept.
    pub fn sleeps(&self) -> u64 {
        self.sleeps
    }

    /// Sleeps until somebody signals, unless `scan` finds something.
    pub fn sleep(&mut self, _timeout: Option<Duration>, scan: impl FnOnce() -> bool) {
        EVENTFD.is_asleep.store(true, Ordering::SeqCst);
        if !scan() {
            self.sleeps += 1;
            SLEEPS.fetch_add(1, Ordering::Relaxed);
            let signalled = EVENTFD.is_signalled.lock().unwrap();
            let waited = EVENTFD.changed.wait_while(signalled, |signalled| !*signalled);
            *waited.unwrap() = false;
        }
        EVENTFD.is_asleep.store(false, Ordering::SeqCst);
    }
}
