//! What comes in: bytes from the socket, and how far the current frame is.

use super::outbound::Answers;
use super::socket::Socket;
use crate::waiting::Handle;
use remora_layout::limits::TCP_RECEIVE_BYTES;
use remora_layout::wire::WIRE_HEADER_BYTES;
use rustix::io::Errno;
use std::sync::Arc;

/// What the next bytes are.
pub(super) enum Expect {
    /// A frame's header.
    Header,
    /// Bytes of a WRITE by the peer.
    Write {
        region: u32,
        offset: u64,
        left: usize,
        imm: Option<u32>,
        is_signalled: bool,
        discard: bool,
    },
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

/// Memory that connections receive into. All connections of one agent share
/// one: an idle connection keeps nothing of it.
#[derive(Default)]
pub struct ReceiveBuffer(Vec<u8>);

/// The incoming half of a connection: the pump's state.
pub(super) struct Inbound {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// What is left over of a lent buffer's content: less than a header.
    rest: [u8; WIRE_HEADER_BYTES],
    rest_bytes: usize,
    pub expect: Expect,
    /// Requests of the peer that were executed.
    pub executed: u64,
    /// A WRITE was executed for whose completion the peer waits.
    pub is_awaited: bool,
    /// Answers that are not yet handed to the outgoing half.
    pub answers: Answers,
    /// Frames that have come, since the last turn began.
    pub frames: u64,
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
            rest: [0; WIRE_HEADER_BYTES],
            rest_bytes: 0,
            expect: Expect::Header,
            executed: 0,
            is_awaited: false,
            answers: Answers::default(),
            frames: 0,
            refused: false,
            over: false,
        }
    }

    /// Receives into this buffer from now on, until it is given back.
    pub fn lend(&mut self, buffer: &mut ReceiveBuffer) {
        self.buffer = std::mem::take(&mut buffer.0);
        if self.buffer.is_empty() {
            self.buffer = vec![0; TCP_RECEIVE_BYTES];
        }
        (self.start, self.end) = (0, self.rest_bytes);
        self.buffer[..self.end].copy_from_slice(&self.rest[..self.end]);
    }

    /// Gives the lent buffer back.
    pub fn give_back(&mut self, buffer: &mut ReceiveBuffer) {
        // Everything that was whole is consumed, unless nothing counts any more.
        let left = if self.over { self.end..self.end } else { self.start..self.end };
        self.rest_bytes = left.len();
        self.rest[..left.len()].copy_from_slice(&self.buffer[left]);
        buffer.0 = std::mem::take(&mut self.buffer);
        (self.start, self.end) = (0, 0);
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
