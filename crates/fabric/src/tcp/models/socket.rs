//! A kernel of a few lines: a pair of connected sockets with hardly any room.

use crate::HelloStream;
use crate::sync::{Condvar, Mutex};
use rustix::io::{Errno, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Bytes on their way in one direction: not a frame.
const ROOM: usize = 16;

/// Sleeps on sockets of clients, in all runs.
pub static SLEEPS: AtomicUsize = AtomicUsize::new(0);

/// What both ends share.
#[derive(Default)]
struct Wire {
    /// What each end has sent and the other has not received.
    sent: [VecDeque<u8>; 2],
    is_kicked: [bool; 2],
    is_shut: bool,
}

/// As production's.
pub struct Socket {
    wire: Arc<(Mutex<Wire>, Condvar)>,
    /// 0 is the client's.
    end: usize,
}

impl Socket {
    /// Both ends.
    pub fn pair() -> [Self; 2] {
        let wire = Arc::new((Mutex::default(), Condvar::default()));
        [0, 1].map(|end| Self { wire: Arc::clone(&wire), end })
    }

    /// Not over a kernel's stream.
    pub fn new(_stream: HelloStream, _sleeps: bool) -> std::io::Result<Self> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn with<T>(&self, change: impl FnOnce(&mut Wire) -> T) -> T {
        let changed = change(&mut self.wire.0.lock().unwrap());
        self.wire.1.notify_all();
        changed
    }

    /// One receive.
    pub fn receive(&self, into: &mut [u8]) -> Result<usize> {
        self.with(|wire| {
            let sent = &mut wire.sent[1 - self.end];
            if sent.is_empty() && !wire.is_shut {
                return Err(Errno::AGAIN);
            }
            let received = sent.len().min(into.len());
            into.iter_mut().zip(sent.drain(..received)).for_each(|(into, byte)| *into = byte);
            Ok(received)
        })
    }

    /// It keeps nothing.
    pub fn has_more(&self, _is_hung_up: bool) -> bool {
        false
    }

    /// As above.
    pub fn in_doubt(&self) -> usize {
        0
    }

    /// One send.
    pub fn send(&self, bytes: &[u8]) -> Result<usize> {
        self.with(|wire| {
            let sent = &mut wire.sent[self.end];
            let taken = bytes.len().min(ROOM - sent.len());
            if wire.is_shut {
                return Err(Errno::PIPE);
            }
            if taken == 0 {
                return Err(Errno::AGAIN);
            }
            sent.extend(&bytes[..taken]);
            Ok(taken)
        })
    }

    /// Ends both directions.
    pub fn shut_down(&self) {
        self.with(|wire| wire.is_shut = true);
    }

    /// Ends a sleep.
    pub fn kick(&self) {
        self.with(|wire| wire.is_kicked[self.end] = true);
    }

    /// Sleeps.
    pub fn sleep(&self, wants_room: bool, timeout: Option<Duration>) {
        let (wire, changed) = &*self.wire;
        let mut slept = false;
        let nothing = |wire: &mut Wire| {
            let is_ready = !wire.sent[1 - self.end].is_empty()
                || wants_room && wire.sent[self.end].len() < ROOM
                || wire.is_kicked[self.end]
                || wire.is_shut;
            slept |= !is_ready;
            !is_ready
        };
        let wire = wire.lock().unwrap();
        let mut wire = match timeout {
            None => changed.wait_while(wire, nothing).unwrap(),
            Some(timeout) => changed.wait_timeout_while(wire, timeout, nothing).unwrap().0,
        };
        wire.is_kicked[self.end] = false;
        SLEEPS.fetch_add((slept && self.end == 0) as usize, Ordering::Relaxed);
    }
}
