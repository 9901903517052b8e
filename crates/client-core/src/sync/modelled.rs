//! Shuttle's threads and locks, and a kernel made of them: for each ring set a futex on which the
//! thread sleeps that sleeps for all sessions of the set.

pub use shuttle::hint::spin_loop;
pub use shuttle::sync::atomic::{AtomicU32, AtomicUsize};
pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
pub use shuttle::thread::yield_now;

use remora_arena::Words;
use remora_fabric::shm::Woken;
use remora_layout::limits::MAX_RING_SETS;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Few: each is a step of its own here, and threads are to come to sleep.
pub const POLLS_PER_CLOCK: u32 = 2;

/// Few: threads are to reach the bound.
pub const COMBINE_ROUNDS: usize = 1;

/// Sleeps in the kernel in all runs.
pub static SLEEPS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

shuttle::lazy_static! {
    /// The futexes of the one client of a run, by ring set.
    static ref FUTEXES: Vec<Futex> = (0..MAX_RING_SETS).map(|_| Futex::default()).collect();
}

#[derive(Default)]
struct Futex {
    is_asleep: AtomicBool,
    /// Number of signals. Only a word: a signal from before the sleeper has read it ends no sleep.
    signals: Mutex<u32>,
    changed: Condvar,
}

/// As [`remora_fabric::shm::ThreadBell`]. Timeouts never expire: the checker reports a thread that
/// sleeps for ever as a deadlock.
#[derive(Clone)]
pub struct OwnBell {
    set: usize,
}

impl OwnBell {
    /// The bell of a ring set.
    pub fn new(_mailbox: Words, _shards: usize, set: usize) -> Self {
        Self { set }
    }

    /// As the server: wakes the sleeper if it sleeps.
    pub fn ring(&self) {
        if FUTEXES[self.set].is_asleep.load(Ordering::SeqCst) {
            self.signal();
        }
    }

    /// Wakes the sleeper whether it sleeps or not.
    pub fn signal(&self) {
        *FUTEXES[self.set].signals.lock().unwrap() += 1;
        FUTEXES[self.set].changed.notify_one();
    }

    /// Sleeps until somebody signals, unless `scan` finds something.
    pub fn sleep(&self, _timeout: Duration, scan: impl FnOnce() -> bool) -> Woken {
        let futex = &FUTEXES[self.set];
        let seen = *futex.signals.lock().unwrap();
        futex.is_asleep.store(true, Ordering::SeqCst);
        let found = scan();
        if !found {
            SLEEPS.fetch_add(1, Ordering::Relaxed);
            let signals = futex.signals.lock().unwrap();
            drop(futex.changed.wait_while(signals, |signals| *signals == seen).unwrap());
        }
        futex.is_asleep.store(false, Ordering::SeqCst);
        if found { Woken::Found } else { Woken::Signalled }
    }
}
