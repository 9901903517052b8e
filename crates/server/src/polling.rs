//! When a thread of the server polls before it sleeps.
//!
//! A request on a ring, or a READ over TCP, takes less time than waking a thread that sleeps: a
//! thread that polls for a moment after its last work is awake for the next one. If the client
//! shares the thread's core, or does other things in between, polling only costs time. So the
//! thread adapts, by exponential backoff: each poll without a result doubles the number of sleeps
//! before the next try, and a poll that finds work sets it back to none.

use std::time::{Duration, Instant};

/// It polls this long after the last work: longer than a client on a ring needs
/// between two requests of a busy phase.
const SPIN: Duration = Duration::from_micros(20);
/// Sleeps between two tries are at most two to this power, less one.
const MAX_DOUBLINGS: u32 = 6;

/// See the module's text.
pub(crate) struct Polling {
    /// False in event mode: never.
    is_allowed: bool,
    until: Option<Instant>,
    /// Polls without a result, one after the other.
    vain: u32,
    /// Sleeps before the next try.
    sleeps: u32,
}

impl Polling {
    pub fn new(is_allowed: bool) -> Self {
        Self { is_allowed, until: None, vain: 0, sleeps: 0 }
    }

    /// There was work of the kind that polling finds, done at `now`.
    pub fn worked(&mut self, now: Instant) {
        if self.until.take().is_some() {
            self.vain = 0;
        }
        if !self.is_allowed {
            return;
        }
        match self.sleeps.checked_sub(1) {
            Some(left) => self.sleeps = left,
            None => self.until = Some(now + SPIN),
        }
    }

    /// Whether it may poll: [`Polling::polls_on`] says for how long.
    pub fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// There is no work at `now`: whether to poll on, or else to sleep.
    pub fn polls_on(&mut self, now: Instant) -> bool {
        let Some(until) = self.until else { return false };
        if now < until {
            return true;
        }
        self.until = None;
        self.vain = (self.vain + 1).min(MAX_DOUBLINGS);
        self.sleeps = (1 << self.vain) - 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work comes `gaps` after the thread finished its last work. Returns how often it polled for
    /// it.
    fn polls(polling: &mut Polling, gaps: impl IntoIterator<Item = Duration>) -> u32 {
        let mut now = Instant::now();
        let mut polls = 0;
        for gap in gaps {
            polling.worked(now);
            polls += polling.polls_on(now) as u32;
            now += gap;
            // Work that arrives after the spin finds the thread asleep.
            if gap > SPIN {
                assert!(!polling.polls_on(now), "an idle thread does not poll");
            }
        }
        polls
    }

    #[test]
    fn it_polls_while_that_finds_work_and_seldom_while_it_does_not() {
        let (soon, late) = (SPIN / 2, SPIN * 2);
        let mut polling = Polling::new(true);
        assert_eq!(polls(&mut polling, [soon; 1000]), 1000);
        // 2, 4, 8, ... 64 apart, then always 64.
        let vain = polls(&mut polling, [late; 1000]);
        assert_eq!(vain, 6 + (1000 - 126_u32).div_ceil(64));
        // It finds out that it pays again.
        let again = polls(&mut polling, [soon; 1000]);
        assert!((1000 - 64..1000).contains(&again), "{again}");
    }

    #[test]
    fn event_mode_never_polls() {
        assert_eq!(polls(&mut Polling::new(false), [SPIN / 2; 100]), 0);
    }
}
