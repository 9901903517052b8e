//! A lane: one ring pair, this process's ends at one shard. If sessions of several threads share
//! it, a session that finds another thread at the sending end hands its requests over, and
//! continues (`crate::combine`).
//!
//! Invariants:
//! * requests of one session go into a ring in the order in which the session made them;
//! * handed-over messages go out with the combiner's next WRITE, or a thread that waits for a reply
//!   puts them into the ring. A session that leaves or does other work first waits until that has
//!   happened (`Asker::flush`): the combiner may find the ring full, and return with its own reply;
//! * sessions hand over no more than a ring holds: without room a session tries again while it
//!   takes replies out, as it does when the ring is full;
//! * a thread that panics as the combiner gives the role back, and the messages that it has not put
//!   into the ring stay for the next combiner.

use crate::counts::SendCounts;
use crate::error::Error;
use crate::sync::{AtomicU32, AtomicUsize, Mutex, try_lock};
use crossbeam_queue::SegQueue;
use remora_arena::ReadView;
use remora_fabric::{AnyLink, Link};
use remora_layout::frame::frame_bytes;
use remora_layout::limits::RING_BYTES;
use remora_ring::{Receiver, SendError, Sender};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// One ring pair: this process's ends at one shard.
pub(crate) struct Lane {
    pub sending: Mutex<Sending>,
    /// Messages that the holder of that lock puts into the ring.
    pub handed_over: HandedOver,
    pub receiving: Mutex<Receiving>,
    pub credit_word: usize,
    /// The mailbox that the server writes: credit for this lane comes there.
    pub to_client: ReadView,
    /// Requests whose replies are still in the ring.
    pub outstanding: AtomicU32,
    pub sends: Sends,
}

/// The state of the thread that takes replies out.
pub(crate) struct Receiving {
    pub receiver: Receiver,
    /// Once there is a credit link, credit goes by this link alone: the credit of an earlier reply
    /// must not arrive after that of a later one, and only the operations of one link are ordered.
    pub credit_link: Option<AnyLink>,
}

/// Messages that go out by one WRITE.
const COMBINED: usize = 64;

/// The combiner's state.
pub(crate) struct Sending {
    pub sender: Sender,
    /// Messages handed over first, which had no room in the ring.
    left: VecDeque<Vec<u8>>,
}

impl Sending {
    /// Nothing is left.
    pub fn new(sender: Sender) -> Self {
        Self { sender, left: VecDeque::new() }
    }
}

/// Counts of what went into a ring; updated under the sending lock.
#[derive(Default)]
pub(crate) struct Sends {
    frames: AtomicU64,
    doorbells: AtomicU64,
    handed_over: AtomicU64,
}

impl Sends {
    /// So many frames went out by one doorbell.
    #[inline]
    pub fn count(&self, frames: usize) {
        add(&self.frames, frames);
        add(&self.doorbells, (frames > 0) as usize);
    }

    /// Adds what was counted.
    pub fn add_to(&self, counts: &mut SendCounts) {
        counts.frames += self.frames.load(Ordering::Relaxed);
        counts.doorbells += self.doorbells.load(Ordering::Relaxed);
        counts.handed_over += self.handed_over.load(Ordering::Relaxed);
    }
}

/// Adds to a counter that has one writer at a time.
#[inline]
fn add(counter: &AtomicU64, more: usize) {
    counter.store(counter.load(Ordering::Relaxed) + more as u64, Ordering::Relaxed);
}

/// Messages that threads have handed over, oldest first.
#[derive(Default)]
pub(crate) struct HandedOver {
    queue: SegQueue<Vec<u8>>,
    /// All messages so far; counted before they are added.
    handed: AtomicUsize,
    /// Number of the oldest messages that are in the ring.
    sent: AtomicUsize,
    /// Bytes of their frames.
    bytes: AtomicUsize,
}

impl HandedOver {
    /// Whether some message is not in the ring.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.sent.load(Ordering::Relaxed) != self.handed.load(Ordering::Relaxed)
    }

    /// Messages so far, including those that other threads are about to add.
    pub fn handed(&self) -> usize {
        self.handed.load(Ordering::Relaxed)
    }

    /// Whether the first so many messages are in the ring.
    pub fn has_sent(&self, messages: usize) -> bool {
        self.sent.load(Ordering::Relaxed).wrapping_sub(messages) as isize >= 0
    }

    /// Makes room for a frame of this length; false if there is none.
    pub fn reserve(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let has_room = before + bytes <= RING_BYTES;
        if !has_room {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        has_room
    }

    /// Leaves a message for the thread that sends.
    pub fn push(&self, message: Vec<u8>) {
        self.handed.fetch_add(1, Ordering::Relaxed);
        self.queue.push(message);
    }
}

impl Lane {
    /// Puts the handed-over messages into the ring. Returns whether there was room for all.
    ///
    /// # Errors
    /// The connection is over.
    pub fn drain(&self, sending: &mut Sending, link: &mut AnyLink) -> Result<bool, Error> {
        let Sending { sender, left } = sending;
        let handed = &self.handed_over;
        // Bounded by the handed-over messages: at most one more ring's length meanwhile.
        for _ in 0..RING_BYTES / COMBINED {
            while left.len() < COMBINED
                && let Some(message) = handed.queue.pop()
            {
                left.push_back(message);
            }
            let bytes = left.iter().map(Vec::len).sum();
            if left.is_empty() {
                break;
            }
            // Fresh credit, if even the sum might not fit.
            self.has_room(sender, bytes)?;
            let sent = sender.send_run(link, left.iter().map(Vec::as_slice));
            let sent = sent.map_err(not_sent)?;
            pass_over_writes(link)?;
            self.sends.count(sent);
            add(&self.sends.handed_over, sent);
            let bytes = left.drain(..sent).map(|message| frame_bytes(message.len())).sum();
            handed.bytes.fetch_sub(bytes, Ordering::Relaxed);
            handed.sent.fetch_add(sent, Ordering::Relaxed);
            if !left.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a handed-over message could go into the ring now; also if another thread is at it.
    pub fn may_push_on(&self) -> bool {
        self.handed_over.is_waiting()
            && try_lock(&self.sending).is_none_or(|sending| {
                let credit = self.to_client.load_acquire(self.credit_word);
                sending.left.is_empty() || credit != sending.sender.credit()
            })
    }

    /// Whether the ring has room for so many bytes, by fresh credit if need be.
    ///
    /// # Errors
    /// The connection is over: the server gave credit that makes no sense.
    #[inline]
    pub fn has_room(&self, sender: &mut Sender, bytes: usize) -> Result<bool, Error> {
        if sender.has_room(bytes) && !sender.wants_credit() {
            return Ok(true);
        }
        sender.take_credit(self.to_client.load_acquire(self.credit_word))?;
        Ok(sender.has_room(bytes))
    }
}

/// Why the lane did not send a frame that had room: the connection is over.
#[cold]
pub(crate) fn not_sent(error: SendError) -> Error {
    match error {
        SendError::Link(error) => error.into(),
        other => unreachable!("room was looked for, and the limits fit a frame: {other}"),
    }
}

/// Skips a link's completed WRITEs.
///
/// # Errors
/// One of them has failed, or the link by itself: the connection is over.
#[inline]
pub(crate) fn pass_over_writes(link: &mut AnyLink) -> Result<(), Error> {
    while let Some(completion) = link.poll() {
        completion.result?;
    }
    link.failure().map_or(Ok(()), |error| Err(error.into()))
}
