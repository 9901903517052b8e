//! Shuttle's threads and locks, with sleeps that end by time: a thread that
//! sleeps with a timeout wakes some steps later at the latest.

pub use shuttle::sync::atomic::{AtomicBool, AtomicUsize};
pub use shuttle::sync::{Mutex, MutexGuard};

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LockResult, PoisonError};
use std::time::Duration;

/// One: threads are to reach the bound.
pub const SENDS_IN_A_ROW: u32 = 1;

thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// As the standard library's. Only [`Condvar::wait_timeout_while`] lets time
/// go by.
#[derive(Clone, Copy)]
pub struct Instant(Duration);

impl Instant {
    /// The time.
    pub fn now() -> Self {
        Self(NOW.get())
    }

    /// Later by so much.
    pub fn checked_add(self, more: Duration) -> Option<Self> {
        self.0.checked_add(more).map(Self)
    }

    /// How long after `earlier`, or 0.
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Steps after which a timeout ends, at most.
const TIMEOUT_STEPS: u32 = 40;

/// As the standard library's.
#[derive(Default)]
pub struct Condvar(Arc<shuttle::sync::Condvar>);

impl Condvar {
    /// Sleeps while the condition holds.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait_while(guard, condition)
    }

    /// Sleeps while the condition holds and the time is not up.
    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        if timeout.is_zero() {
            return Ok((guard, ()));
        }
        let end = NOW.get() + timeout;
        let (is_up, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let alarm = {
            let (is_up, is_over, sleeper) = (is_up.clone(), is_over.clone(), self.0.clone());
            move || {
                for _ in 0..thread_rng().gen_range(0..TIMEOUT_STEPS) {
                    thread::yield_now();
                }
                is_up.store(true, Ordering::SeqCst);
                // Again and again: it may not be asleep yet.
                while !is_over.load(Ordering::SeqCst) {
                    sleeper.notify_all();
                    thread::yield_now();
                }
            }
        };
        thread::spawn(alarm);
        while condition(&mut guard) {
            if is_up.load(Ordering::SeqCst) {
                NOW.set(NOW.get().max(end));
                break;
            }
            guard = self.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        is_over.store(true, Ordering::SeqCst);
        Ok((guard, ()))
    }

    /// Wakes one sleeper.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all sleepers.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
