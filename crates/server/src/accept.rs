//! Accepting clients when file descriptors run out.
//!
//! All listeners are edge-triggered: a client that waits in the queue is announced once. So when
//! `accept` fails, the limiter remembers to try again. Invariants:
//! * no client waits in the queue for ever: after a failure the thread tries again at its next
//!   turn, [`RETRY`] later at the latest;
//! * a client that is turned away for want of a descriptor receives the reason: the limiter gives
//!   up one spare descriptor to accept it, and the client's socket becomes the spare one again in
//!   one step, so that no other thread can take it meanwhile;
//! * a flood of arrivals holds a thread up for [`ACCEPTS_PER_TURN`] at most.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{DupFlags, dup3};
use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Clients that a listener takes before its thread sees to the others.
pub const ACCEPTS_PER_TURN: usize = 64;
/// How long after a failure `accept` is tried again, if nothing happens.
const RETRY: Duration = Duration::from_millis(100);

/// State of one listener.
pub struct AcceptLimiter {
    /// The spare descriptor is a duplicate of this one.
    anchor: Option<OwnedFd>,
    /// `None` while some other thread was quicker to take it.
    spare: Option<OwnedFd>,
    wants: Wants,
    /// Whether the failure is logged; once for each run of failures.
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

/// The outcome of one try to accept a client.
pub enum Arrival<S> {
    /// There is one.
    Client(S),
    /// It was turned away, or the kernel wants another try: there may be more.
    TurnedAway,
    /// There is no client, or the server cannot accept one now.
    NoClient,
}

impl AcceptLimiter {
    /// A limiter with its spare descriptor.
    pub fn new() -> Self {
        Self { anchor: spare(), spare: spare(), wants: Wants::Event, told: false }
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

    /// Accepts one client of a listener, with its `accept`. If descriptors have run out, `turn_away`
    /// sends a client the reason and returns its socket.
    pub fn accept<S>(
        &mut self,
        listener: impl AsFd,
        accept: impl Fn() -> Result<S>,
        turn_away: impl FnOnce(S) -> OwnedFd,
    ) -> Arrival<S> {
        match accept() {
            Ok(client) => {
                self.told = false;
                Arrival::Client(client)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.emptied();
                Arrival::NoClient
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Arrival::TurnedAway,
            Err(error) => match self.failed(&error, listener, || accept().map(turn_away)) {
                true => Arrival::TurnedAway,
                false => Arrival::NoClient,
            },
        }
    }

    /// The queue is empty.
    fn emptied(&mut self) {
        self.wants = Wants::Event;
    }

    /// The turn has ended, perhaps before the queue.
    pub fn turn_ended(&mut self) {
        self.wants = Wants::Turn;
    }

    /// Handles a failed `accept`. With the spare descriptor given up, `turn_away` accepts one
    /// client, sends it the reason and returns its socket. Returns true if it did: there may be
    /// more clients.
    fn failed(
        &mut self,
        error: &std::io::Error,
        listener: impl AsFd,
        turn_away: impl FnOnce() -> Result<OwnedFd>,
    ) -> bool {
        // `accept` needs a descriptor even if the queue is empty.
        if is_empty(&listener) {
            self.emptied();
            return false;
        }
        if !std::mem::replace(&mut self.told, true) {
            tracing::warn!(%error, "cannot accept clients; they are told so until it works again");
        }
        self.wants = Wants::Retry;
        if self.spare.take().is_none() && spare().is_none() {
            return false;
        }
        match turn_away() {
            Ok(socket) => {
                self.close_into_spare(socket);
                true
            }
            Err(_) => {
                self.spare = spare();
                false
            }
        }
    }

    /// Closes the socket; its number is the spare descriptor from then on.
    fn close_into_spare(&mut self, mut socket: OwnedFd) {
        let replaced = self
            .anchor
            .as_ref()
            .is_some_and(|anchor| dup3(anchor, &mut socket, DupFlags::CLOEXEC).is_ok());
        if replaced {
            self.spare = Some(socket);
        } else {
            drop(socket);
            self.spare = spare();
        }
    }
}

fn is_empty(listener: impl AsFd) -> bool {
    let mut waits = [PollFd::new(&listener, PollFlags::IN)];
    matches!(poll(&mut waits, Some(&Timespec::default())), Ok(0))
}

fn spare() -> Option<OwnedFd> {
    File::open("/dev/null").ok().map(OwnedFd::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, Read};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    fn full() -> Error {
        rustix::io::Errno::MFILE.into()
    }

    // One test: descriptors belong to the whole process.
    #[test]
    fn the_spare_is_lent_and_only_an_empty_queue_ends_the_trying() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut limiter = AcceptLimiter::new();
        let is_spare = |number: i32| {
            let link = std::fs::read_link(format!("/proc/self/fd/{number}"));
            link.is_ok_and(|path| path.as_os_str() == "/dev/null")
        };
        let mut clients = Vec::new();
        for _ in 0..3 {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let number = limiter.spare.as_ref().unwrap().as_raw_fd();
            assert!(is_spare(number));
            let turn_away = || {
                assert!(!is_spare(number), "it is not free");
                Ok(listener.accept()?.0.into())
            };
            assert!(limiter.failed(&full(), &listener, turn_away));
            assert!(is_spare(limiter.spare.as_ref().unwrap().as_raw_fd()));
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "the client is not closed");
            assert!(limiter.is_due());
            clients.push(client);
        }
        let _waits = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!limiter.failed(&full(), &listener, || Err(full())));
        assert!(limiter.is_due());
        assert_eq!(limiter.bound(None), Some(RETRY));
        assert_eq!(limiter.bound(Some(Duration::from_millis(7))), Some(Duration::from_millis(7)));
        drop(listener.accept().unwrap());
        assert!(!limiter.failed(&full(), &listener, || panic!("nobody waits")));
        assert!(!limiter.is_due());
        assert_eq!(limiter.bound(None), None);
        limiter.turn_ended();
        assert_eq!(limiter.bound(None), Some(Duration::ZERO));
        limiter.emptied();
        assert!(!limiter.is_due());
    }
}
