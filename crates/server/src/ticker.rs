//! Wakes a thread every so often while it sleeps, if something wants it to: by one timer
//! that stays armed. A limit of each sleep would be a timer that is programmed before and
//! taken back after each, several microseconds of every request that a sleep follows.

use remora_fabric::shm::Sleeper;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// See the module's text.
pub(crate) struct Ticker {
    /// `None` if the kernel had no descriptor left.
    timer: Option<OwnedFd>,
    every: Duration,
    /// When it wakes the sleeper, if it is armed.
    due: Option<Instant>,
}

impl Ticker {
    /// One that wakes this sleeper, once it is armed.
    pub fn new(sleeper: &Sleeper, every: Duration) -> Self {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).ok();
        // Edge-triggered, and never read: each setting of it is a new edge to come.
        let timer = timer.filter(|timer| sleeper.watch(timer.as_fd(), 0).is_ok());
        Self { timer, every, due: None }
    }

    /// Sets the ticker if it is not set, or if its time has come. The thread calls it before each
    /// sleep that the ticker is to end. Returns whether it will wake the sleeper.
    #[inline]
    pub fn arm(&mut self, now: Instant) -> bool {
        if self.due.is_none_or(|due| now >= due) {
            self.due = self.set(self.every).then(|| now + self.every);
        }
        self.due.is_some()
    }

    /// Stops its ticks from waking a thread.
    pub fn disarm(&mut self) {
        if self.due.is_some() && self.set(Duration::ZERO) {
            self.due = None;
        }
    }

    /// Whether it is to wake the sleeper, or has.
    pub fn is_armed(&self) -> bool {
        self.due.is_some()
    }

    fn set(&self, after: Duration) -> bool {
        let Some(timer) = &self.timer else { return false };
        let it_value = Timespec::try_from(after).expect("a short time");
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(timer, TimerfdTimerFlags::empty(), &once).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_arena::{AsleepWord, Mapping, Words};
    use remora_fabric::shm::Woken;

    /// Longer than any wait here.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn it_ends_sleep_after_sleep_while_it_is_armed() {
        let word = AsleepWord::new(Words::new(Mapping::heap(8)), 0);
        let mut sleeper = Sleeper::new(word).unwrap();
        let every = Duration::from_millis(2);
        let mut ticker = Ticker::new(&sleeper, every);
        for round in 0..3 {
            assert!(!ticker.is_armed());
            for sleep in 0..5 {
                assert!(ticker.arm(Instant::now()));
                if sleep == round {
                    // It comes while the thread is awake, and a look takes it.
                    std::thread::sleep(2 * every);
                    sleeper.look();
                    assert!(ticker.arm(Instant::now()));
                }
                assert_eq!(sleeper.sleep(Some(LONG), || false), Woken::Signalled);
            }
            ticker.disarm();
            assert_eq!(sleeper.sleep(Some(10 * every), || false), Woken::TimedOut);
        }
    }
}
