//! Incoming data: bytes from the socket, and the progress in the current frame.

use super::outbound::Answers;
use super::socket::Socket;
use crate::waiting::Handle;
use remora_layout::limits::{TCP_FRAMES_PER_TURN, TCP_PIECE_BYTES, TCP_RECEIVE_BYTES};
use remora_layout::wire::WIRE_HEADER_BYTES;
use rustix::io::Errno;
use std::sync::Arc;

/// The kind of the next bytes.
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
    /// Bytes of a READ of our own; `None` if no link waits for them any more.
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
    /// The rest of a lent buffer's content: less than a header, unless the turn ended early.
    rest: Vec<u8>,
    pub expect: Expect,
    /// Requests of the peer that were executed.
    pub executed: u64,
    /// It executed a WRITE whose completion the peer waits for.
    pub is_awaited: bool,
    /// Answers that are not yet handed to the outgoing half.
    pub answers: Answers,
    /// Frames executed in this turn.
    pub frames: usize,
    /// READ bytes that this turn has answered.
    pub read_bytes: usize,
    /// The turn's bound ended it: the received frames are executed before more bytes are received.
    pub is_suspended: bool,
    /// The socket may have more than the last receive took: that filled the buffer, or a turn
    /// without a receive followed it.
    pub may_be_more: bool,
    /// A request was refused: all later ones are skipped.
    pub refused: bool,
    /// The stream has ended.
    pub over: bool,
}

impl Inbound {
    pub fn new() -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            rest: Vec::new(),
            expect: Expect::Header,
            executed: 0,
            is_awaited: false,
            answers: Answers::default(),
            frames: 0,
            read_bytes: 0,
            is_suspended: false,
            may_be_more: false,
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
        let rest = std::mem::take(&mut self.rest);
        (self.start, self.end) = (0, rest.len());
        self.buffer[..self.end].copy_from_slice(&rest);
    }

    /// Gives the lent buffer back.
    pub fn give_back(&mut self, buffer: &mut ReceiveBuffer) {
        if !self.over {
            self.rest.extend_from_slice(&self.buffer[self.start..self.end]);
        }
        buffer.0 = std::mem::take(&mut self.buffer);
        (self.start, self.end) = (0, 0);
    }

    /// The received bytes that are not consumed yet.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        assert!(self.start <= self.end, "consumed what is not there");
    }

    /// Whether the turn has executed as much as one turn may, and a further frame
    /// is there.
    pub fn has_had_its_turn(&self) -> bool {
        let is_used_up = self.frames >= TCP_FRAMES_PER_TURN || self.read_bytes >= TCP_PIECE_BYTES;
        is_used_up
            && matches!(self.expect, Expect::Header)
            && self.bytes().len() >= WIRE_HEADER_BYTES
    }

    /// Whether a receive fetched all that its buffer could take: more may be
    /// there.
    pub fn is_full(&self) -> bool {
        self.end == self.buffer.len()
    }

    /// One receive. The rest (less than a header) moves to the front.
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
