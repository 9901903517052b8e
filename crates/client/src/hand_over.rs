//! The sending end of a ring at which sessions of several threads stand: a session that
//! finds another at it hands its requests over, and goes on (`crate::combine`).
//!
//! What it keeps true:
//! * requests of one session go into a ring in the order in which they were made;
//! * what is handed over goes out with the combiner's next WRITE, or is put into the
//!   ring by a thread that waits for a reply. A session that leaves or goes on to other
//!   things waits until it has ([`Session::flush`]): the combiner may find the ring full,
//!   and return with its own reply;
//! * no more is handed over than a ring holds: without room a session tries again
//!   while it takes replies out, as it does when the ring is full;
//! * a thread that panics as the combiner gives the role back, and what it has not put
//!   into the ring stays for the next one.

use crate::api::SendCounts;
use crate::combine::combine;
use crate::connection::{Connection, try_lock};
use crate::error::Error;
use crate::gather::{has_room, not_sent};
use crate::ring_set::Lane;
use crate::session::Session;
use crate::sync::AtomicUsize;
use crossbeam_queue::SegQueue;
use remora_fabric::AnyLink;
use remora_layout::frame::frame_bytes;
use remora_layout::limits::RING_BYTES;
use remora_ring::Sender;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Messages that go out by one WRITE.
const COMBINED: usize = 64;

/// What the combiner has.
pub(crate) struct Sending {
    pub sender: Sender,
    /// Handed over first, and not in the ring for want of room.
    left: VecDeque<Vec<u8>>,
}

impl Sending {
    /// Nothing is left.
    pub fn new(sender: Sender) -> Self {
        Self { sender, left: VecDeque::new() }
    }
}

/// What has gone into a ring; counted under the sending lock.
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

/// What threads have handed over, oldest first.
#[derive(Default)]
pub(crate) struct HandedOver {
    queue: SegQueue<Vec<u8>>,
    /// Messages ever; counted before they are there.
    handed: AtomicUsize,
    /// As many of them, the oldest, are in the ring.
    sent: AtomicUsize,
    /// Bytes of their frames.
    bytes: AtomicUsize,
}

impl HandedOver {
    /// Whether something is not in the ring.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.sent.load(Ordering::Relaxed) != self.handed.load(Ordering::Relaxed)
    }

    /// Messages so far, those that other threads are about to hand over too.
    fn handed(&self) -> usize {
        self.handed.load(Ordering::Relaxed)
    }

    /// Whether the first so many messages are in the ring.
    fn has_sent(&self, messages: usize) -> bool {
        self.sent.load(Ordering::Relaxed).wrapping_sub(messages) as isize >= 0
    }

    /// Makes room for a frame of this length; false if there is none.
    fn reserve(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let has_room = before + bytes <= RING_BYTES;
        if !has_room {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        has_room
    }

    fn push(&self, message: Vec<u8>) {
        self.handed.fetch_add(1, Ordering::Relaxed);
        self.queue.push(message);
    }
}

impl Lane {
    /// Puts into the ring what was handed over. Whether there was room for all.
    pub fn drain(
        &self,
        connection: &Connection,
        sending: &mut Sending,
        link: &mut AnyLink,
    ) -> Result<bool, Error> {
        let Sending { sender, left } = sending;
        let handed = &self.handed_over;
        // Bounded by what is handed over: at most one more ring's length meanwhile.
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
            has_room(connection, self, sender, bytes)?;
            let sent = sender.send_run(link, left.iter().map(Vec::as_slice));
            let sent = sent.map_err(|error| not_sent(connection, error))?;
            connection.pass_over_writes(link)?;
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

    /// Whether something that was handed over could go into the ring now; also if
    /// another thread is at it.
    pub fn may_push_on(&self, connection: &Connection) -> bool {
        self.handed_over.is_waiting()
            && try_lock(&self.sending).is_none_or(|sending| {
                let credit = connection.to_client.load_acquire(self.credit_word);
                sending.left.is_empty() || credit != sending.sender.credit()
            })
    }
}

impl Session {
    /// Hands messages over, as many as there is room for; their number. Those that
    /// expect a reply are counted first: any thread may take it at once.
    pub(crate) fn hand_over<'m>(
        &mut self,
        shard: usize,
        messages: impl Iterator<Item = Vec<u8>> + 'm,
        expects_reply: bool,
    ) -> Result<usize, Error> {
        let set = Arc::clone(&self.set);
        let lane = &set.lanes[shard];
        let mut handed = 0;
        for message in messages {
            if !lane.handed_over.reserve(frame_bytes(message.len())) {
                break;
            }
            if expects_reply {
                lane.outstanding.fetch_add(1, Ordering::Relaxed);
                self.inbox.expect_replies(1);
            }
            lane.handed_over.push(message);
            handed += 1;
        }
        if handed > 0 {
            self.shards[shard].handed = Some(lane.handed_over.handed());
        }
        self.push_on(shard)?;
        Ok(handed)
    }

    /// Waits until what the session has handed over is in the shard's ring.
    pub(crate) fn settle(&mut self, shard: usize) -> Result<(), Error> {
        let Some(handed) = self.shards[shard].handed else { return Ok(()) };
        self.check()?;
        self.push_on(shard)?;
        let set = Arc::clone(&self.set);
        let mut began_ns = None;
        // Bounded by the session's timeout.
        while !set.lanes[shard].handed_over.has_sent(handed) {
            self.help_in_time(shard, &mut began_ns)?;
        }
        self.shards[shard].handed = None;
        Ok(())
    }

    /// Puts into a ring what threads have handed over, if no other thread does.
    #[inline]
    pub(crate) fn push_on(&mut self, shard: usize) -> Result<(), Error> {
        let Self { connection, set, link, .. } = self;
        let lane = &set.lanes[shard];
        combine(
            || lane.handed_over.is_waiting(),
            || try_lock(&lane.sending),
            |sending| lane.drain(connection, sending, link),
            || set.nudge_one(),
        )
    }

    /// The same for the rings of all shards. For a session that waits for replies: room
    /// comes with them.
    #[inline]
    pub(crate) fn push_all_on(&mut self) -> Result<(), Error> {
        if !self.set.hands_over {
            return Ok(());
        }
        (0..self.shards.len()).try_for_each(|shard| self.push_on(shard))
    }
}
