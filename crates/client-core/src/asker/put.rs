//! Putting requests into the rings: one at once, or several together
//! (`crate::gathered`).
//!
//! Invariants:
//! * requests go into a ring in the order in which the session made them;
//! * a session never waits for a reply, nor reads, while a request of its own is gathered: it
//!   flushes first.

use super::{Asker, Queue};
use crate::error::Error;
use crate::gathered::GATHERED_BYTES;
use remora_layout::limits::MAX_IN_FLIGHT;

impl Queue {
    /// Requests whose replies this session can wait for.
    fn awaited(&self) -> usize {
        self.in_flight.len() - self.gathered.len()
    }

    /// Replies that the session will have to keep.
    fn unanswered(&self) -> usize {
        self.in_flight.len() + self.arrived.len()
    }
}

impl Asker {
    /// Gathers one request, if others are in flight before it and it is small. Returns whether it
    /// did.
    #[inline]
    pub(super) fn gather(&mut self, shard: usize, parts: &[&[u8]]) -> bool {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let end = &mut self.queues[shard];
        if end.in_flight.is_empty() || bytes > GATHERED_BYTES || end.unanswered() >= MAX_IN_FLIGHT {
            return false;
        }
        end.gathered.push(parts);
        self.gathered += 1;
        true
    }

    /// Sends the submitted requests that are not sent yet: when it returns, all are in the rings,
    /// and none waits for another thread of this process. Over TCP and RDMA the bytes for which the
    /// socket or the device has no room leave when a session of the process next waits.
    ///
    /// # Errors
    /// See [`Error`]. After [`Error::TimedOut`] some requests may be sent later.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.send_gathered()?;
        (0..self.queues.len()).try_for_each(|shard| self.endpoint.settle(shard))
    }

    /// Sends the gathered requests, or hands them over to a thread that sends: that is enough for a
    /// session that waits for replies, because it drains handed-over requests then.
    #[inline(always)]
    pub fn send_gathered(&mut self) -> Result<(), Error> {
        if self.gathered == 0 { Ok(()) } else { self.flush_shards() }
    }

    fn flush_shards(&mut self) -> Result<(), Error> {
        (0..self.queues.len()).try_for_each(|shard| self.flush_shard(shard))
    }

    /// Sends the gathered requests for one shard, once there is room in its ring.
    pub fn flush_shard(&mut self, shard: usize) -> Result<(), Error> {
        let mut began_ns = None;
        // Bounded by the session's timeout.
        while !self.queues[shard].gathered.is_empty() {
            if !self.call_off(shard)? || self.try_flush(shard)? == 0 {
                self.make_room(shard, &mut began_ns)?;
            }
        }
        Ok(())
    }

    /// Sends as many of the gathered requests as the ring has room for. Gives their number.
    fn try_flush(&mut self, shard: usize) -> Result<usize, Error> {
        let gathered = &mut self.queues[shard].gathered;
        let before = gathered.len();
        let sent = self.endpoint.try_put_gathered(shard, gathered);
        self.gathered -= before - gathered.len();
        sent
    }

    /// Sends one frame, once there is room for it in the shard's ring.
    pub fn put_into_ring(
        &mut self,
        shard: usize,
        parts: &[&[u8]],
        expects_reply: bool,
    ) -> Result<(), Error> {
        self.flush_shard(shard)?;
        let mut began_ns = None;
        // Bounded by the session's timeout.
        loop {
            let end = &self.queues[shard];
            if end.unanswered() < MAX_IN_FLIGHT {
                if self.call_off(shard)? && self.endpoint.try_put(shard, parts, expects_reply)? {
                    return Ok(());
                }
            } else if end.in_flight.is_empty() {
                return Err(Error::TooManySubmitted);
            }
            self.make_room(shard, &mut began_ns)?;
        }
    }

    /// Takes a reply of this session, or waits a moment if only other sessions' requests can make
    /// room.
    fn make_room(&mut self, shard: usize, began_ns: &mut Option<u64>) -> Result<(), Error> {
        if self.queues[shard].awaited() == 0 {
            return self.endpoint.help_in_time(shard, began_ns);
        }
        // A late reply makes room, too.
        if let Some(flight) = self.take_next(shard, &mut None)? {
            let reply = std::mem::take(&mut self.endpoint.reply);
            self.queues[shard].arrived.push_back((flight, reply));
        }
        Ok(())
    }
}
