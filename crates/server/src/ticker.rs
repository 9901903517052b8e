//! Wakes a thread every so often while it sleeps, if something wants it to, or at a time: by a timer
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
        Self { timer: timer_for(sleeper), every, due: None }
    }

    /// Sets the ticker if it is not set, or if its time has come. The thread calls it before each
    /// sleep that the ticker is to end. Returns whether it will wake the sleeper.
    #[inline]
    pub fn arm(&mut self, now: Instant) -> bool {
        if self.due.is_none_or(|due| now >= due) {
            self.due = set(self.timer.as_ref(), self.every).then(|| now + self.every);
        }
        self.due.is_some()
    }

    /// Stops its ticks from waking a thread.
    pub fn disarm(&mut self) {
        if self.due.is_some() && set(self.timer.as_ref(), Duration::ZERO) {
            self.due = None;
        }
    }

    /// Whether it is to wake the sleeper, or has.
    pub fn is_armed(&self) -> bool {
        self.due.is_some()
    }
}

/// Wakes a thread once, at the first of some times that change. It is programmed when that one does, not
/// for each sleep.
pub(crate) struct Alarm {
    /// `None` if the kernel had no descriptor left.
    timer: Option<OwnedFd>,
    /// The time that the caller has named, in its own clock, and when it wakes the sleeper.
    due: Option<(u64, Instant)>,
}

impl Alarm {
    /// One that wakes this sleeper, once it is armed.
    pub fn new(sleeper: &Sleeper) -> Self {
        Self { timer: timer_for(sleeper), due: None }
    }

    /// Sets the alarm to the time with this name, which is so far away, if it is not set to that or
    /// if it has come. Returns whether it will wake the sleeper.
    pub fn arm(&mut self, now: Instant, (name, left): (u64, Duration)) -> bool {
        if self.due.is_none_or(|(before, due)| before != name || now >= due) {
            let after = left.max(Duration::from_micros(1));
            self.due = set(self.timer.as_ref(), after).then(|| (name, now + after));
        }
        self.due.is_some()
    }

    /// It wakes nobody.
    pub fn disarm(&mut self) {
        if self.due.is_some() && set(self.timer.as_ref(), Duration::ZERO) {
            self.due = None;
        }
    }

    /// Whether it is to wake the sleeper, or has.
    pub fn is_armed(&self) -> bool {
        self.due.is_some()
    }
}

/// A timer that wakes a sleeper; `None` if the kernel has no descriptor left.
fn timer_for(sleeper: &Sleeper) -> Option<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags).ok();
    // Edge-triggered, and never read: each setting of it is a new edge to come.
    timer.filter(|timer| sleeper.watch(timer.as_fd(), 0).is_ok())
}

/// Sets a timer; a time of zero stops it. Whether that was done.
fn set(timer: Option<&OwnedFd>, after: Duration) -> bool {
    let Some(timer) = timer else { return false };
    let (Ok(it_value), it_interval) =
        (Timespec::try_from(after), Timespec { tv_sec: 0, tv_nsec: 0 })
    else {
        return false;
    };
    let once = Itimerspec { it_interval, it_value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once).is_ok()
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
