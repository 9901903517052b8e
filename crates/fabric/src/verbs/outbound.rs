//! What one end has posted: operations in the order in which they go out, cut
//! into pieces that the queue pair takes, and the memory that they are sent
//! from.
//!
//! A queue pair executes and completes in order. So a completion says that
//! everything before it is complete too, and only some pieces ask for one.

use super::peer::{Ranges, Remote};
use super::queue_pair::{QueuePair, Request, Verb};
use super::registration::Registration;
use crate::LinkError;
use crate::waiting::Handle;
use remora_layout::limits::{MAX_OUTBOUND_BYTES, MAX_POSTED, READ_WINDOW_BYTES};
use remora_verbs_sys::IBV_WC_LOC_QP_OP_ERR;
use std::collections::VecDeque;
use std::sync::Arc;

/// A READ goes out in pieces of at most this length: every device takes it.
const READ_PIECE_BYTES: usize = READ_WINDOW_BYTES / 4;
/// So does a WRITE.
const WRITE_PIECE_BYTES: usize = 32 << 10;
/// Memory that WRITEs are sent from. What does not fit waits in plain memory.
pub const STAGING_BYTES: usize = 256 << 10;

/// Every so many pieces of a batch one asks for a completion.
const SIGNAL_EVERY: usize = 64;

/// A part of an operation.
struct Piece {
    handle: Arc<Handle>,
    verb: Verb,
    /// What READs go into, WRITEs come from.
    local: Local,
    remote: (u64, u32),
    bytes: usize,
    /// The operation is complete with it.
    is_last: bool,
}

enum Local {
    /// Somebody's landing memory, from this byte.
    Landing(Arc<Registration>, usize),
    /// Not yet in the staging memory.
    Waiting(Box<[u8]>),
    /// In the staging memory: bytes to give back, the unused ones at its end
    /// included.
    Staged(usize),
}

/// See the module's text.
pub struct Outbound {
    staging: Registration,
    /// First used byte of the staging memory, and how many are used from
    /// there on, round its end.
    used_from: usize,
    used: usize,
    waiting: VecDeque<Piece>,
    /// Bytes of WRITEs in `waiting`.
    waiting_bytes: usize,
    /// Handed to the queue pair, oldest first.
    under_way: VecDeque<Piece>,
    /// Bytes of READs in `under_way`: so few that the answers to all come
    /// before the device takes them for lost.
    reading: usize,
    /// Number of the first of them.
    first: u64,
}

impl Outbound {
    /// Nothing posted; `staging` is [`STAGING_BYTES`] long.
    pub fn new(staging: Registration) -> Self {
        Self {
            staging,
            used_from: 0,
            used: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            under_way: VecDeque::new(),
            reading: 0,
            first: 1,
        }
    }

    /// Bytes of WRITEs that the device has not been given.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Whether something waits that completions make room for.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Adds a READ of these ranges, one after the other, into landing memory,
    /// from this byte.
    pub fn read(
        &mut self,
        handle: &Arc<Handle>,
        from: Ranges<'_>,
        landing: &Arc<Registration>,
        mut into: usize,
    ) -> Result<(), LinkError> {
        self.check_room(0)?;
        let mut from = from.peekable();
        while let Some(range) = from.next() {
            let is_end = from.peek().is_none();
            for (at, length) in pieces(range.bytes, READ_PIECE_BYTES) {
                let local = Local::Landing(Arc::clone(landing), into + at);
                let is_last = is_end && at + length == range.bytes;
                self.push(handle, Verb::Read, local, range, at, length, is_last);
            }
            into += range.bytes;
        }
        Ok(())
    }

    /// Adds a WRITE; its length is rounded up to words by zeros.
    pub fn write(
        &mut self,
        handle: &Arc<Handle>,
        to: Remote,
        bytes: &[u8],
        imm: Option<u32>,
    ) -> Result<(), LinkError> {
        self.check_room(bytes.len())?;
        let total = bytes.len().next_multiple_of(8);
        for (at, length) in pieces(total, WRITE_PIECE_BYTES) {
            let mut piece = vec![0; length];
            let part = &bytes[at..bytes.len().min(at + length)];
            piece[..part.len()].copy_from_slice(part);
            self.waiting_bytes += length;
            // The peer is told once everything is stored.
            let is_last = at + length == total;
            let verb = Verb::Write(imm.filter(|_| is_last));
            self.push(handle, verb, Local::Waiting(piece.into()), to, at, length, is_last);
        }
        Ok(())
    }

    fn check_room(&self, bytes: usize) -> Result<(), LinkError> {
        let fits = self.waiting_bytes + bytes <= MAX_OUTBOUND_BYTES
            && self.waiting.len() + self.under_way.len() < MAX_POSTED;
        if fits { Ok(()) } else { Err(LinkError::Overrun) }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a piece, named once")]
    fn push(
        &mut self,
        handle: &Arc<Handle>,
        verb: Verb,
        local: Local,
        remote: Remote,
        at: usize,
        length: usize,
        is_last: bool,
    ) {
        self.waiting.push_back(Piece {
            handle: Arc::clone(handle),
            verb,
            local,
            remote: (remote.address + at as u64, remote.rkey),
            bytes: length,
            is_last,
        });
    }

    /// Hands to the queue pair what it has room for, with one doorbell.
    ///
    /// # Errors
    /// It does not take it: the connection is broken.
    pub fn flush(&mut self, pair: &QueuePair) -> Result<(), LinkError> {
        let mut requests: Vec<Request> = Vec::new();
        let depth = pair.send_depth() as usize;
        while self.under_way.len() < depth
            && let Some(mut piece) = self.waiting.pop_front()
        {
            let Some(local) = self.place(&mut piece) else {
                // Completions make room.
                self.waiting.push_front(piece);
                break;
            };
            requests.push(Request {
                id: self.first + self.under_way.len() as u64,
                verb: piece.verb,
                local,
                remote: piece.remote,
                bytes: piece.bytes as u32,
                // The last, and now and then one before, so that its room is
                // known to be free.
                is_signalled: requests.len() % SIGNAL_EVERY == SIGNAL_EVERY - 1,
            });
            self.under_way.push_back(piece);
        }
        let Some(last) = requests.last_mut() else { return Ok(()) };
        last.is_signalled = true;
        // SAFETY: `under_way` keeps the landing memory, `self` the staging
        // memory, until the completion has come or the queue pair is gone;
        // links look at landing memory only after their completions.
        let posted = unsafe { pair.post(&requests) };
        // It never takes less than it promised, unless it is broken.
        if posted == requests.len() { Ok(()) } else { Err(LinkError::Device(IBV_WC_LOC_QP_OP_ERR)) }
    }

    /// Address and key of a piece's bytes, in the staging memory if it is a
    /// WRITE. `None` if that has no room, or enough is being READ.
    fn place(&mut self, piece: &mut Piece) -> Option<(u64, u32)> {
        let bytes = match &piece.local {
            Local::Landing(landing, at) => {
                let fits = self.reading + piece.bytes <= READ_WINDOW_BYTES;
                self.reading += if fits { piece.bytes } else { 0 };
                return fits.then(|| (landing.address() + *at as u64, landing.lkey()));
            }
            Local::Waiting(bytes) => bytes,
            Local::Staged(_) => unreachable!("a piece is placed once"),
        };
        let at = (self.used_from + self.used) % STAGING_BYTES;
        // Not round the end: then the end stays unused.
        let skipped = if at + bytes.len() > STAGING_BYTES { STAGING_BYTES - at } else { 0 };
        if self.used + skipped + bytes.len() > STAGING_BYTES {
            return None;
        }
        let at = (at + skipped) % STAGING_BYTES;
        self.staging.store(at, bytes);
        self.waiting_bytes -= bytes.len();
        let taken = skipped + bytes.len();
        self.used += taken;
        piece.local = Local::Staged(taken);
        Some((self.staging.address() + at as u64, self.staging.lkey()))
    }

    /// The piece with this number, and all before it, are complete.
    pub fn complete(&mut self, number: u64) {
        while self.first <= number
            && let Some(piece) = self.under_way.pop_front()
        {
            self.first += 1;
            match piece.local {
                Local::Staged(taken) => {
                    self.used_from = (self.used_from + taken) % STAGING_BYTES;
                    self.used -= taken;
                }
                Local::Landing(..) => self.reading -= piece.bytes,
                Local::Waiting(_) => unreachable!("it was placed before it went out"),
            }
            if piece.is_last {
                piece.handle.deliver(&[], 1);
            }
        }
    }
}

/// Offset and length of each piece; one of length 0 for nothing.
fn pieces(bytes: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = bytes.div_ceil(most).max(1);
    (0..count).map(move |piece| (piece * most, most.min(bytes - piece * most)))
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn pieces_cover_everything_once_and_nothing_is_one_piece() {
        for (bytes, expected) in [
            (0, vec![(0, 0)]),
            (5, vec![(0, 5)]),
            (10, vec![(0, 10)]),
            (11, vec![(0, 10), (10, 1)]),
            (20, vec![(0, 10), (10, 10)]),
        ] {
            assert_eq!(pieces(bytes, 10).collect::<Vec<_>>(), expected);
        }
    }
}
