//! Outgoing data: frames that wait for the socket, and operations that wait for the READ window.
//!
//! Invariants:
//! * one thread at a time gives bytes to the socket, and it does so without the lock: a thread that
//!   adds frames meanwhile leaves them to that thread, which checks again when it has sent. So
//!   frames of many threads leave in one write, and no thread waits for a system call of another;
//! * bytes leave in the order in which they were added.

use super::frame::{Frame, Refused};
use super::socket::Socket;
use crate::LinkError;
use crate::waiting::Handle;
use remora_layout::limits::{
    MAX_OUTBOUND_BYTES, MAX_POSTED, OUTBOUND_KEPT_BYTES, READ_WINDOW_BYTES, TCP_PIECE_BYTES,
    UNSIGNALLED_WRITES,
};
use remora_layout::wire::WIRE_HEADER_BYTES;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;

/// A posted operation, as an error has to name it.
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

/// Answers of the target's side, assembled before they go out: the bytes of READs are copied
/// without the lock under which other threads post.
#[derive(Default)]
pub(super) struct Answers {
    bytes: Vec<u8>,
    /// The end of each DATA frame in `bytes`, and its share of the window.
    ends: Vec<(usize, usize)>,
    /// Requests that they say are executed.
    told: u64,
}

impl Answers {
    /// How many bytes they are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds the answer to the READ with this number; `fill` gets the place for
    /// its bytes. Nothing is added if that fails.
    pub fn add_data<E>(
        &mut self,
        number: u64,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.bytes.extend_from_slice(&Frame::Data { number, bytes }.header());
        let start = self.bytes.len();
        self.bytes.resize(start + bytes, 0);
        if let Err(error) = fill(&mut self.bytes[start..]) {
            self.bytes.truncate(start - WIRE_HEADER_BYTES);
            return Err(error);
        }
        self.ends.push((start + bytes, window_cost(bytes)));
        self.told = number + 1;
        Ok(())
    }

    /// Adds that the next request is refused.
    pub fn add_failure(&mut self, executed: u64, why: Refused) {
        self.bytes.extend_from_slice(&Frame::Fail { executed, why }.header());
        self.told = executed;
    }
}

/// The bytes of the one thread that gives them to the socket.
pub(super) struct Sending {
    bytes: Vec<u8>,
    /// Number of them that the socket has taken.
    sent: usize,
    /// Number of those behind them that may have reached the peer all the same.
    in_doubt: usize,
}

/// How far a send came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    All,
    /// The socket is full.
    Some,
    Broken,
}

impl Sending {
    /// Gives the socket as many bytes as it takes, without a lock. Returns their number.
    pub fn send(&mut self, socket: &Socket) -> (Sent, usize) {
        let before = self.sent;
        let how = loop {
            if self.sent == self.bytes.len() {
                break Sent::All;
            }
            match socket.send(&self.bytes[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(Errno::AGAIN) => break Sent::Some,
                Err(Errno::INTR) => {}
                Err(_) => break Sent::Broken,
            }
        };
        self.in_doubt = socket.in_doubt();
        (how, self.sent - before)
    }
}

/// The outgoing half of a connection, initiator and target.
pub(super) struct Outbound {
    /// The bytes that are sent next, and how many of them the socket has taken. They are elsewhere
    /// while a thread sends them.
    front: Vec<u8>,
    front_sent: usize,
    /// The bytes that are sent after those.
    back: Vec<u8>,
    /// A thread sends: bytes that are added during that time follow.
    is_sending: bool,
    /// Bytes that the socket has not yet taken.
    pending: usize,
    /// Bytes that the socket has taken since the connection was made.
    sent_ever: u64,
    /// Requests of the peer that are executed, and as many of them it was told of.
    executed: u64,
    told: u64,
    /// It is to be told even if nothing else goes out.
    must_tell: bool,
    /// DATA frames not yet sent: where each ends (as `sent_ever` counts), and
    /// its bytes.
    answers: VecDeque<(u64, usize)>,
    answer_bytes: usize,
    /// Bytes of them that the peer may have received, and ask for more, before they count as sent:
    /// those that the sending thread has, and those that TLS has encrypted and the socket has not wholly
    /// taken.
    in_doubt_bytes: usize,
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

/// The share of the window that a READ of this many bytes takes.
fn window_cost(bytes: usize) -> usize {
    bytes + WIRE_HEADER_BYTES
}

impl Outbound {
    pub fn new() -> Self {
        Self {
            front: Vec::new(),
            front_sent: 0,
            back: Vec::new(),
            is_sending: false,
            pending: 0,
            sent_ever: 0,
            executed: 0,
            told: 0,
            must_tell: false,
            answers: VecDeque::new(),
            answer_bytes: 0,
            in_doubt_bytes: 0,
            held: VecDeque::new(),
            held_count: 0,
            held_bytes: 0,
            window: READ_WINDOW_BYTES,
            flights: VecDeque::new(),
            answered: 0,
            failure: None,
        }
    }

    /// Bytes that the socket has not yet taken.
    pub fn pending_bytes(&self) -> usize {
        self.pending
    }

    /// Whether bytes wait for the socket, and no thread gives them to it.
    pub fn wants_room(&self) -> bool {
        self.pending > 0 && !self.is_sending
    }

    fn has_room(&self, bytes: usize) -> bool {
        let used = self.pending_bytes() + self.held_bytes + bytes + WIRE_HEADER_BYTES;
        used + READ_WINDOW_BYTES <= MAX_OUTBOUND_BYTES
            && self.flights.len() + self.held_count < MAX_POSTED
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
        (imm, is_signalled): (Option<u32>, bool),
    ) -> Result<(), LinkError> {
        if !self.has_room(bytes.len()) {
            return Err(LinkError::Overrun);
        }
        let Posted { region, offset, .. } = posted;
        let header =
            Frame::Write { region, offset, bytes: bytes.len(), imm, is_signalled }.header();
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

    /// Bytes to be sent before any frame.
    pub fn begin_with(&mut self, bytes: &[u8]) {
        self.append(bytes, &[]);
    }

    /// Whether the peer may ask for so many bytes more, which then count.
    pub fn reserve_answer(&mut self, bytes: usize) -> bool {
        let owed = self.answer_bytes - self.in_doubt_bytes;
        let fits = owed + window_cost(bytes) <= READ_WINDOW_BYTES;
        if fits {
            self.answer_bytes += window_cost(bytes);
        }
        fits
    }

    /// The READ of so many bytes is not answered.
    pub fn unreserve_answer(&mut self, bytes: usize) {
        self.answer_bytes -= window_cost(bytes);
    }

    /// Takes over answers, behind the present ones, and notes how many requests are executed. The
    /// peer receives that number with the next frame, or at once if it waits for it or many
    /// executed requests are unreported.
    pub fn hand_over(&mut self, answers: &mut Answers, executed: u64, is_awaited: bool) {
        let base = self.sent_ever + self.pending as u64;
        self.pending += answers.bytes.len();
        if self.back.is_empty() {
            std::mem::swap(&mut self.back, &mut answers.bytes);
        } else {
            self.back.extend_from_slice(&answers.bytes);
        }
        answers.bytes.clear();
        answers.bytes.shrink_to(OUTBOUND_KEPT_BYTES);
        self.answers.extend(answers.ends.drain(..).map(|(end, cost)| (base + end as u64, cost)));
        self.told = self.told.max(answers.told);
        self.executed = executed;
        self.must_tell |= is_awaited || executed - self.told >= UNSIGNALLED_WRITES;
    }

    fn append(&mut self, header: &[u8], payload: &[u8]) {
        self.back.extend_from_slice(header);
        self.back.extend_from_slice(payload);
        self.pending += header.len() + payload.len();
    }

    /// Hands out the bytes to send, if there are any and no thread sends.
    pub fn begin_sending(&mut self) -> Option<Sending> {
        if self.is_sending {
            return None;
        }
        if self.front.is_empty() {
            if self.told < self.executed && (self.must_tell || !self.back.is_empty()) {
                self.told = self.executed;
                self.append(&Frame::Done(self.executed).header(), &[]);
            }
            self.must_tell = false;
            if self.back.is_empty() {
                return None;
            }
            std::mem::swap(&mut self.front, &mut self.back);
        }
        self.is_sending = true;
        self.doubt(self.front.len() - self.front_sent);
        let (bytes, sent) = (std::mem::take(&mut self.front), std::mem::take(&mut self.front_sent));
        Some(Sending { bytes, sent, in_doubt: 0 })
    }

    /// Answers that lie within so many bytes behind the sent ones may have reached the peer.
    fn doubt(&mut self, bytes: usize) {
        let until = self.sent_ever + bytes as u64;
        let in_doubt = self.answers.iter().take_while(|&&(end, _)| end <= until);
        self.in_doubt_bytes = in_doubt.map(|&(_, cost)| cost).sum();
    }

    /// The socket has taken so many bytes more of those handed out. Returns whether all of them
    /// have gone and more have been added meanwhile.
    pub fn end_sending(&mut self, sending: Sending, taken: usize) -> bool {
        self.is_sending = false;
        let in_doubt = sending.in_doubt;
        (self.front, self.front_sent) = (sending.bytes, sending.sent);
        self.pending -= taken;
        self.sent_ever += taken as u64;
        while let Some(&(end, cost)) = self.answers.front()
            && end <= self.sent_ever
        {
            self.answer_bytes -= cost;
            self.answers.pop_front();
        }
        self.doubt(in_doubt);
        if self.front_sent < self.front.len() {
            return false;
        }
        self.front.clear();
        // A burst must not keep its memory permanently.
        self.front.shrink_to(OUTBOUND_KEPT_BYTES);
        self.front_sent = 0;
        !self.back.is_empty() || self.must_tell
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

    /// This end sends no further operation and expects no answer. Frames in progress continue, and
    /// the connection may still serve the peer.
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

#[cfg(test)]
mod tests;
