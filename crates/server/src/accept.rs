//! Accepting clients when file descriptors run out.
//!
//! Both listeners are edge-triggered: who waits in the queue is announced
//! once. So when `accept` fails, the gate remembers to try again. What it
//! keeps true:
//! * nobody waits in the queue for ever: after a failure the thread tries
//!   again at its next turn, [`RETRY`] later at the latest;
//! * whoever is turned away for want of a descriptor is told so: one spare
//!   descriptor is given up to accept it, and taken back when it is closed;
//! * a flood of arrivals holds a thread up for [`ACCEPTS_PER_TURN`] at most.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Clients that a listener takes before its thread sees to the others.
pub const ACCEPTS_PER_TURN: usize = 64;
/// How long after a failure `accept` is tried again, if nothing happens.
const RETRY: Duration = Duration::from_millis(100);

/// What one listener has to remember.
pub struct Gate {
    /// `None` while some other thread was quicker to take it.
    spare: Option<OwnedFd>,
    wants: Wants,
    /// Whether the log has been told; once for each run of failures.
    told: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wants {
    /// The next event.
    Event,
    /// Another turn at once: there may be more in the queue.
    Turn,
    /// Another try soon.
    Retry,
}

impl Gate {
    /// A gate with its spare descriptor.
    pub fn new() -> Self {
        Self { spare: spare(), wants: Wants::Event, told: false }
    }

    /// Whether to try again although no event says so.
    pub fn is_due(&self) -> bool {
        self.wants != Wants::Event
    }

    /// How long the thread may sleep that wants to sleep for `timeout`.
    pub fn bound(&self, timeout: Option<Duration>) -> Option<Duration> {
        let own = match self.wants {
            Wants::Event => return timeout,
            Wants::Turn => Duration::ZERO,
            Wants::Retry => RETRY,
        };
        Some(timeout.map_or(own, |timeout| timeout.min(own)))
    }

    /// Somebody was accepted.
    pub fn passed(&mut self) {
        self.told = false;
    }

    /// The queue is empty.
    pub fn emptied(&mut self) {
        self.wants = Wants::Event;
    }

    /// The turn has ended, perhaps before the queue.
    pub fn turn_ended(&mut self) {
        self.wants = Wants::Turn;
    }

    /// `accept` failed. With the spare descriptor given up, `turn_away` is to
    /// accept one client, to tell it the reason and to close it again. True if
    /// it did: there may be more.
    pub fn failed(
        &mut self,
        error: &std::io::Error,
        turn_away: impl FnOnce() -> Result<()>,
    ) -> bool {
        if !std::mem::replace(&mut self.told, true) {
            tracing::warn!(%error, "cannot accept clients; they are told so until it works again");
        }
        self.wants = Wants::Retry;
        if self.spare.take().is_none() && spare().is_none() {
            return false;
        }
        let turned_away = turn_away();
        self.spare = spare();
        match turned_away {
            Ok(()) => true,
            // With an empty queue too `accept` wants a descriptor first.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.emptied();
                false
            }
            Err(_) => false,
        }
    }
}

fn spare() -> Option<OwnedFd> {
    File::open("/dev/null").ok().map(OwnedFd::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;
    use std::os::fd::AsRawFd;

    fn full() -> Error {
        rustix::io::Errno::MFILE.into()
    }

    // One test: descriptors belong to the whole process.
    #[test]
    fn the_spare_is_lent_and_only_an_empty_queue_ends_the_trying() {
        let mut gate = Gate::new();
        let is_spare = |number: i32| {
            let link = std::fs::read_link(format!("/proc/self/fd/{number}"));
            link.is_ok_and(|path| path.as_os_str() == "/dev/null")
        };
        for _ in 0..3 {
            let number = gate.spare.as_ref().unwrap().as_raw_fd();
            assert!(is_spare(number));
            let turn_away = || {
                assert!(!is_spare(number), "it is not free");
                Ok(())
            };
            assert!(gate.failed(&full(), turn_away));
            assert!(gate.spare.is_some() && gate.is_due());
        }
        assert!(!gate.failed(&full(), || Err(full())));
        assert!(gate.is_due());
        assert_eq!(gate.bound(None), Some(RETRY));
        assert_eq!(gate.bound(Some(Duration::from_millis(7))), Some(Duration::from_millis(7)));
        assert!(!gate.failed(&full(), || Err(ErrorKind::WouldBlock.into())));
        assert!(!gate.is_due());
        assert_eq!(gate.bound(None), None);
        gate.turn_ended();
        assert_eq!(gate.bound(None), Some(Duration::ZERO));
        gate.emptied();
        assert!(!gate.is_due());
    }
}
