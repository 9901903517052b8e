//! What comes in: bytes from the socket, and how far the current frame is.

use super::socket::Socket;
use super::waiting::Handle;
use remora_layout::limits::TCP_RECEIVE_BYTES;
use rustix::io::Errno;
use std::sync::Arc;

/// What the next bytes are.
pub(super) enum Expect {
    /// A frame's header.
    Header,
    /// Bytes of a WRITE by the peer.
    Write { region: u32, offset: u64, left: usize, imm: Option<u32>, discard: bool },
    /// Bytes of a READ of our own; `None` if nobody waits for them any more.
    Data { handle: Option<Arc<Handle>>, left: usize },
}

/// How a receive ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Received {
    Bytes(usize),
    Nothing,
    Closed,
}

/// The incoming half of a connection: the pump's state.
pub(super) struct Inbound {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    pub expect: Expect,
    /// Requests of the peer that were executed.
    pub executed: u64,
    /// As many of them it was told of.
    pub told: u64,
    /// A request was refused: all later ones are passed over.
    pub refused: bool,
    /// Nothing comes any more.
    pub over: bool,
}

impl Inbound {
    pub fn new() -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            expect: Expect::Header,
            executed: 0,
            told: 0,
            refused: false,
            over: false,
        }
    }

    /// What was received and not yet consumed.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        assert!(self.start <= self.end, "consumed what is not there");
    }

    /// Whether a receive fetched all that its buffer could take: more may be
    /// there.
    pub fn is_full(&self) -> bool {
        self.end == self.buffer.len()
    }

    /// One receive. What was left over (less than a header) moves to the front.
    pub fn receive(&mut self, socket: &Socket) -> Received {
        if self.buffer.is_empty() {
            self.buffer = vec![0; TCP_RECEIVE_BYTES];
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        // Bounded: only signals repeat it.
        loop {
            return match socket.receive(&mut self.buffer[self.end..]) {
                Ok(0) => Received::Closed,
                Ok(received) => {
                    self.end += received;
                    Received::Bytes(received)
                }
                Err(Errno::AGAIN) => Received::Nothing,
                Err(Errno::INTR) => continue,
                Err(_) => Received::Closed,
            };
        }
    }
}
