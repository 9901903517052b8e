//! The pieces given to the device, and those for which it has no room yet: pieces of operations in
//! the order in which they go out, and the memory that they are sent from. Only the thread that has
//! the queue pair touches it.
//!
//! A queue pair executes and completes in order. So a completion says that everything before it is
//! complete too, and only some pieces ask for one.

use super::memlock::STAGING_BYTES;
use super::posting::{Intake, Local, Piece};
use super::queue_pair::{QueuePair, Request};
use super::registration::Registration;
use super::traffic::Counters;
use crate::LinkError;
use remora_layout::limits::READ_WINDOW_BYTES;
use remora_verbs_sys::IBV_WC_LOC_QP_OP_ERR;
use std::collections::VecDeque;
use std::sync::Arc;

/// Every so many pieces of a batch one asks for a completion.
const SIGNAL_EVERY: usize = 64;

/// What chains of requests are posted to.
pub trait SendQueue {
    /// Operations that may be under way.
    fn depth(&self) -> usize;

    /// As [`QueuePair::post`].
    ///
    /// # Safety
    /// As for [`QueuePair::post`].
    unsafe fn post(&self, requests: &[Request]) -> usize;
}

impl SendQueue for QueuePair {
    fn depth(&self) -> usize {
        self.send_depth() as usize
    }

    unsafe fn post(&self, requests: &[Request]) -> usize {
        // SAFETY: the caller's promise.
        unsafe { Self::post(self, requests) }
    }
}

/// Memory that a device sends from, [`STAGING_BYTES`] long.
pub trait Staging {
    /// Copies bytes to this place.
    fn store(&self, at: usize, bytes: &[u8]);

    /// Its address and key.
    fn place(&self) -> (u64, u32);
}

impl Staging for Registration {
    fn store(&self, at: usize, bytes: &[u8]) {
        Self::store(self, at, bytes);
    }

    fn place(&self) -> (u64, u32) {
        (self.address(), self.lkey())
    }
}

/// See the module's text.
pub struct Outbound<S = Registration> {
    staging: S,
    counters: Arc<Counters>,
    /// First used byte of the staging memory, and how many are used from
    /// there on, round its end.
    used_from: usize,
    used: usize,
    waiting: VecDeque<Piece>,
    /// Handed to the queue pair, oldest first.
    under_way: VecDeque<Piece>,
    /// Bytes of READs in `under_way`: so few that the answers to all come
    /// before the device takes them for lost.
    reading: usize,
    /// Number of the first of them.
    first: u64,
}

impl<S: Staging> Outbound<S> {
    /// Nothing posted; later posts are counted.
    pub(super) fn new(staging: S, counters: Arc<Counters>) -> Self {
        Self {
            staging,
            counters,
            used_from: 0,
            used: 0,
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
            reading: 0,
            first: 1,
        }
    }

    /// Whether something waits that completions make room for.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Gives as many waiting and posted operations to the queue pair as it has free places, with
    /// one doorbell.
    ///
    /// # Errors
    ///
    /// It does not take it: the connection is broken.
    pub(super) fn flush(
        &mut self,
        queue: &impl SendQueue,
        intake: &Intake,
    ) -> Result<(), LinkError> {
        intake.take_into(&mut self.waiting);
        let mut requests: Vec<Request> = Vec::new();
        let depth = queue.depth();
        while self.under_way.len() < depth
            && let Some(mut piece) = self.waiting.pop_front()
        {
            let Some(local) = self.place(&mut piece, intake) else {
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
        let posted = unsafe { queue.post(&requests) };
        self.counters.posted(posted);
        // It never takes less than it promised, unless it is broken.
        if posted == requests.len() { Ok(()) } else { Err(LinkError::Device(IBV_WC_LOC_QP_OP_ERR)) }
    }

    /// Address and key of a piece's bytes, in the staging memory if it is a
    /// WRITE. `None` if that has no room, or enough is being READ.
    fn place(&mut self, piece: &mut Piece, intake: &Intake) -> Option<(u64, u32)> {
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
        intake.placed(bytes.len());
        let taken = skipped + bytes.len();
        self.used += taken;
        piece.local = Local::Staged(taken);
        let (address, lkey) = self.staging.place();
        Some((address + at as u64, lkey))
    }

    /// The piece with this number, and all before it, are complete.
    pub fn complete(&mut self, number: u64, intake: &Intake) {
        while self.first <= number
            && let Some(piece) = self.under_way.pop_front()
        {
            self.first += 1;
            intake.completed(1);
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
