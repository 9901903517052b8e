//! What goes out: frames that wait for the socket, and operations that wait
//! for the READ window.

use super::frame::Frame;
use super::socket::Socket;
use super::waiting::Handle;
use crate::LinkError;
use remora_layout::limits::{
    TCP_MAX_IN_FLIGHT, TCP_MAX_OUTBOUND_BYTES, TCP_PIECE_BYTES, TCP_READ_WINDOW_BYTES,
};
use remora_layout::wire::WIRE_HEADER_BYTES;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;

/// An operation as it was posted: what an error has to name.
#[derive(Clone, Copy)]
pub(super) struct Posted {
    pub region: u32,
    pub offset: u64,
    pub bytes: usize,
}

/// A request on the wire that is not yet answered.
pub(super) struct Flight {
    pub handle: Arc<Handle>,
    pub posted: Posted,
    /// Bytes that its DATA will bring; `None` for a WRITE.
    pub wanted: Option<usize>,
    /// With it the operation is complete.
    pub last: bool,
}

/// An operation that waits for the window, or behind one that does.
enum Held {
    Read { posted: Posted, asked: usize },
    Write { posted: Posted, frame: Vec<u8> },
}

/// How a flush ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flushed {
    All,
    /// The socket is full.
    Some,
    Broken,
}

/// The outgoing half of a connection, initiator and target.
pub(super) struct Outbound {
    buffer: Vec<u8>,
    /// As much of it the socket has taken.
    sent: usize,
    /// Bytes that the socket has taken since the connection was made.
    sent_ever: u64,
    /// DATA frames not yet sent: where each ends (as `sent_ever` counts), and
    /// its bytes.
    answers: VecDeque<(u64, usize)>,
    answer_bytes: usize,
    /// Held operations of each link, in turn: order holds within a link, and
    /// a long READ of one does not hold up the others.
    held: VecDeque<(Arc<Handle>, VecDeque<Held>)>,
    held_count: usize,
    held_bytes: usize,
    /// READ bytes that may yet be asked for.
    window: usize,
    flights: VecDeque<Flight>,
    /// Requests answered so far.
    answered: u64,
    /// Why this end's operations fail from now on.
    pub failure: Option<LinkError>,
}

/// What a READ of so many bytes takes of the window.
fn window_cost(bytes: usize) -> usize {
    bytes + WIRE_HEADER_BYTES
}

impl Outbound {
    pub fn new() -> Self {
        Self {
            buffer: Vec::new(),
            sent: 0,
            sent_ever: 0,
            answers: VecDeque::new(),
            answer_bytes: 0,
            held: VecDeque::new(),
            held_count: 0,
            held_bytes: 0,
            window: TCP_READ_WINDOW_BYTES,
            flights: VecDeque::new(),
            answered: 0,
            failure: None,
        }
    }

    /// Bytes that the socket has not yet taken.
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len() - self.sent
    }

    fn has_room(&self, bytes: usize) -> bool {
        let used = self.pending_bytes() + self.held_bytes + bytes + WIRE_HEADER_BYTES;
        used + TCP_READ_WINDOW_BYTES <= TCP_MAX_OUTBOUND_BYTES
            && self.flights.len() + self.held_count < TCP_MAX_IN_FLIGHT
    }

    /// Takes a READ.
    pub fn read(&mut self, handle: &Arc<Handle>, posted: Posted) -> Result<(), LinkError> {
        if !self.has_room(0) {
            return Err(LinkError::Overrun);
        }
        let first = posted.bytes.min(TCP_PIECE_BYTES);
        if first == posted.bytes && self.held.is_empty() && window_cost(first) <= self.window {
            self.ask(handle, posted, 0, first);
            return Ok(());
        }
        self.hold(handle, Held::Read { posted, asked: 0 });
        self.release();
        Ok(())
    }

    /// Takes a WRITE and its bytes.
    pub fn write(
        &mut self,
        handle: &Arc<Handle>,
        posted: Posted,
        bytes: &[u8],
        imm: Option<u32>,
    ) -> Result<(), LinkError> {
        if !self.has_room(bytes.len()) {
            return Err(LinkError::Overrun);
        }
        let Posted { region, offset, .. } = posted;
        let header = Frame::Write { region, offset, bytes: bytes.len(), imm }.header();
        if self.held.iter().any(|(holder, _)| Arc::ptr_eq(holder, handle)) {
            let frame = [&header, bytes].concat();
            self.held_bytes += frame.len();
            self.hold(handle, Held::Write { posted, frame });
        } else {
            self.append(&header, bytes);
            let handle = Arc::clone(handle);
            self.flights.push_back(Flight { handle, posted, wanted: None, last: true });
        }
        Ok(())
    }

    /// Behind what this link already waits for.
    fn hold(&mut self, handle: &Arc<Handle>, held: Held) {
        self.held_count += 1;
        match self.held.iter_mut().find(|(holder, _)| Arc::ptr_eq(holder, handle)) {
            Some((_, queue)) => queue.push_back(held),
            None => self.held.push_back((Arc::clone(handle), VecDeque::from([held]))),
        }
    }

    /// Turns held operations into frames, link by link in turn, as far as the
    /// window allows.
    fn release(&mut self) {
        while let Some((handle, mut queue)) = self.held.pop_front() {
            let Some(held) = queue.pop_front() else { continue };
            match held {
                Held::Write { posted, frame } => {
                    self.held_count -= 1;
                    self.held_bytes -= frame.len();
                    self.append(&frame, &[]);
                    let handle = Arc::clone(&handle);
                    self.flights.push_back(Flight { handle, posted, wanted: None, last: true });
                }
                Held::Read { posted, asked } => {
                    let piece = (posted.bytes - asked).min(TCP_PIECE_BYTES);
                    if window_cost(piece) > self.window {
                        queue.push_front(Held::Read { posted, asked });
                        self.held.push_front((handle, queue));
                        return;
                    }
                    self.ask(&handle, posted, asked, piece);
                    if asked + piece < posted.bytes {
                        queue.push_front(Held::Read { posted, asked: asked + piece });
                    } else {
                        self.held_count -= 1;
                    }
                }
            }
            if !queue.is_empty() {
                self.held.push_back((handle, queue));
            }
        }
    }

    fn ask(&mut self, handle: &Arc<Handle>, posted: Posted, asked: usize, piece: usize) {
        self.window -= window_cost(piece);
        // Wraps only where the target refuses the first piece already.
        let offset = posted.offset.wrapping_add(asked as u64);
        let frame = Frame::Read { region: posted.region, offset, bytes: piece };
        self.append(&frame.header(), &[]);
        let last = asked + piece == posted.bytes;
        let handle = Arc::clone(handle);
        self.flights.push_back(Flight { handle, posted, wanted: Some(piece), last });
    }

    /// What goes out before any frame.
    pub fn begin_with(&mut self, bytes: &[u8]) {
        self.append(bytes, &[]);
    }

    /// Appends a frame of the target's side: an answer.
    pub fn answer(&mut self, frame: &Frame) {
        self.append(&frame.header(), &[]);
    }

    /// Appends the answer to a READ; `fill` gets the place for its bytes.
    /// `None` if the peer has asked for more than the window.
    pub fn answer_data<E>(
        &mut self,
        number: u64,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let whole = window_cost(bytes);
        if self.answer_bytes + whole > TCP_READ_WINDOW_BYTES {
            return None;
        }
        self.append(&Frame::Data { number, bytes }.header(), &[]);
        let start = self.buffer.len();
        self.buffer.resize(start + bytes, 0);
        let filled = fill(&mut self.buffer[start..]);
        if filled.is_err() {
            self.buffer.truncate(start - WIRE_HEADER_BYTES);
        } else {
            self.answer_bytes += whole;
            self.answers.push_back((self.sent_ever + self.pending_bytes() as u64, whole));
        }
        Some(filled)
    }

    fn append(&mut self, header: &[u8], payload: &[u8]) {
        // Moved to the front seldom enough that it costs a byte a copy.
        if self.sent > self.buffer.len() / 2 {
            self.buffer.drain(..self.sent);
            self.sent = 0;
        }
        self.buffer.extend_from_slice(header);
        self.buffer.extend_from_slice(payload);
    }

    /// Gives the socket what it takes.
    pub fn flush(&mut self, socket: &Socket) -> Flushed {
        while self.sent < self.buffer.len() {
            match socket.send(&self.buffer[self.sent..]) {
                Ok(sent) => self.took(sent),
                Err(Errno::AGAIN) => return Flushed::Some,
                Err(Errno::INTR) => {}
                Err(_) => return Flushed::Broken,
            }
        }
        self.buffer.clear();
        self.sent = 0;
        // A burst must not keep its memory for ever.
        self.buffer.shrink_to(2 * TCP_READ_WINDOW_BYTES);
        Flushed::All
    }

    fn took(&mut self, sent: usize) {
        self.sent += sent;
        self.sent_ever += sent as u64;
        while let Some(&(end, bytes)) = self.answers.front()
            && end <= self.sent_ever
        {
            self.answer_bytes -= bytes;
            self.answers.pop_front();
        }
    }

    /// The peer answers the READ `number`: the flights that it finishes before
    /// it go to `finished`; gives the READ's handle. The READ itself is
    /// finished by [`Self::data_arrived`], once its bytes are there.
    pub fn data_begins(
        &mut self,
        number: u64,
        bytes: usize,
        finished: &mut Vec<Flight>,
    ) -> Result<Arc<Handle>, &'static str> {
        self.done(number, finished)?;
        match self.flights.front() {
            Some(Flight { wanted: Some(wanted), handle, .. }) if *wanted == bytes => {
                Ok(Arc::clone(handle))
            }
            _ => Err("bytes that nobody asked for"),
        }
    }

    /// All bytes of the oldest READ have arrived.
    pub fn data_arrived(&mut self) -> Option<Flight> {
        let flight = self.flights.pop_front()?;
        self.answered += 1;
        self.window += window_cost(flight.wanted.unwrap_or_default());
        self.release();
        Some(flight)
    }

    /// The peer has executed the first `executed` requests.
    pub fn done(&mut self, executed: u64, finished: &mut Vec<Flight>) -> Result<(), &'static str> {
        let more = executed.checked_sub(self.answered).ok_or("it counts backwards")?;
        if more > self.flights.len() as u64 {
            return Err("it executed what nobody posted");
        }
        for flight in self.flights.drain(..more as usize) {
            if flight.wanted.is_some() {
                return Err("a READ is done without its bytes");
            }
            self.answered += 1;
            finished.push(flight);
        }
        Ok(())
    }

    /// The operation that the peer refused: the oldest one.
    pub fn refused(&self) -> Option<Posted> {
        self.flights.front().map(|flight| flight.posted)
    }

    /// No operation of this end goes out or is answered any more. Frames that
    /// were begun go on, the connection may still serve the peer.
    pub fn fail(&mut self, reason: LinkError) -> bool {
        if self.failure.is_some() {
            return false;
        }
        self.failure = Some(reason);
        self.held = VecDeque::new();
        (self.held_count, self.held_bytes) = (0, 0);
        self.flights = VecDeque::new();
        true
    }
}
