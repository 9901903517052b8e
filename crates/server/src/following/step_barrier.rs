//! A step of a change of the role, which every shard's thread takes, and which the thread of the
//! role waits for.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// See the module's text.
pub struct StepBarrier {
    state: Mutex<BarrierState>,
    all: Condvar,
}

#[derive(Clone, Copy)]
struct BarrierState {
    /// Shards that have not come.
    left: usize,
    /// The greatest number that one of those which have come has given: the latest epoch that it knows.
    most: u64,
}

impl StepBarrier {
    /// For so many shards.
    pub fn new(shards: usize) -> Arc<Self> {
        let state = Mutex::new(BarrierState { left: shards, most: 0 });
        Arc::new(Self { state, all: Condvar::new() })
    }

    /// A shard has taken the step, and gives this number: the latest epoch that it knows.
    pub fn pass(&self, number: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = BarrierState { left: state.left.saturating_sub(1), most: state.most.max(number) };
        if state.left == 0 {
            self.all.notify_all();
        }
    }

    /// Waits until all shards have come, while `goes_on` says so. The greatest number that any of them
    /// has given; `None` if the wait was given up.
    pub fn wait(&self, mut goes_on: impl FnMut() -> bool) -> Option<u64> {
        const LOOK: Duration = Duration::from_millis(10);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.left > 0 {
            if !goes_on() {
                return None;
            }
            let waited = self.all.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state.most)
    }
}

/// The end of a wait for progress: so long after the last.
pub struct ProgressWait {
    most: Duration,
    since: Instant,
    seen: u64,
}

impl ProgressWait {
    /// From now on.
    pub fn new(most: Duration) -> Self {
        Self { most, since: Instant::now(), seen: 0 }
    }

    /// Whether to wait on; `progress` is a number that changes with each bit of progress.
    pub fn goes_on(&mut self, progress: u64) -> bool {
        if progress != self.seen {
            (self.seen, self.since) = (progress, Instant::now());
        }
        self.since.elapsed() < self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_waits_for_all_and_gives_the_latest_epoch() {
        let barrier = StepBarrier::new(2);
        barrier.pass(3);
        assert_eq!(barrier.wait(|| false), None);
        barrier.pass(2);
        assert_eq!(barrier.wait(|| false), Some(3));
    }

    #[test]
    fn wait_ends_a_while_after_the_last_progress() {
        let mut wait = ProgressWait::new(Duration::from_millis(20));
        assert!(wait.goes_on(1));
        std::thread::sleep(Duration::from_millis(30));
        assert!(wait.goes_on(2), "there was some");
        std::thread::sleep(Duration::from_millis(30));
        assert!(!wait.goes_on(2));
    }
}
