//! Putting requests into the rings: one at once, or several together.
//!
//! A request that has nothing before it is sent at once. One that follows
//! others is gathered: several go out by one WRITE, under one lock and with
//! one wake-up. What it keeps true:
//! * requests go into a ring in the order in which they were made;
//! * a session never waits for a reply, nor reads, while a request of its own
//!   is gathered: whoever does flushes first.

use crate::connection::Connection;
use crate::error::Error;
use crate::ring_set::Lane;
use crate::session::{Session, Shard};
use remora_layout::limits::MAX_IN_FLIGHT;
use remora_ring::{SendError, Sender};
use std::sync::atomic::Ordering;

/// Gathered requests that are sent without being asked for: half of what a
/// shard takes in a turn.
const GATHERED_REQUESTS: usize = 8;
/// The same over a network, where a write costs as much as some of them: two
/// turns of a shard.
const GATHERED_FAR_REQUESTS: usize = 32;
/// The same in bytes: what is copied twice should be small.
const GATHERED_BYTES: usize = 4096;

/// Requests to one shard that go into its ring together.
#[derive(Default)]
pub(crate) struct Gathered {
    /// Their messages, one behind the other.
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Gathered {
    /// Whether they are to be sent, over shared memory or over a network.
    pub fn is_full(&self, is_near: bool) -> bool {
        let most = if is_near { GATHERED_REQUESTS } else { GATHERED_FAR_REQUESTS };
        self.ends.len() >= most || self.bytes.len() >= GATHERED_BYTES
    }

    fn push(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.ends.push(self.bytes.len());
    }

    fn messages(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().scan(0, |from, &end| {
            let message = &self.bytes[*from..end];
            *from = end;
            Some(message)
        })
    }

    /// Takes the newest one back, which is not sent then. False if there is none.
    pub fn withdraw_last(&mut self) -> bool {
        let is_there = self.ends.pop().is_some();
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
        is_there
    }

    /// Forgets the oldest ones: they were sent.
    fn sent(&mut self, messages: usize) {
        let bytes = messages.checked_sub(1).map_or(0, |last| self.ends[last]);
        self.bytes.drain(..bytes);
        self.ends.drain(..messages);
        self.ends.iter_mut().for_each(|end| *end -= bytes);
    }
}

impl Shard {
    /// Requests whose replies this session can wait for.
    fn awaited(&self) -> usize {
        self.in_flight.len() - self.gathered.ends.len()
    }

    /// Replies that the session will have to keep.
    fn unanswered(&self) -> usize {
        self.in_flight.len() + self.arrived.len()
    }
}

impl Session {
    /// Gathers one request, if others are under way before it and it is small.
    /// Whether it did.
    #[inline]
    pub(crate) fn gather(&mut self, shard: usize, parts: &[&[u8]]) -> bool {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let end = &mut self.shards[shard];
        if end.in_flight.is_empty() || bytes > GATHERED_BYTES || end.unanswered() >= MAX_IN_FLIGHT {
            return false;
        }
        end.gathered.push(parts);
        self.gathered += 1;
        true
    }

    /// Sends what was submitted and not sent yet: when it returns, all requests are put
    /// into the rings, and none waits for another thread of this process to do that. Over
    /// TCP and RDMA what the socket or the device has no room for leaves when a session of
    /// the process next waits for something.
    ///
    /// # Errors
    /// See [`Error`]. After [`Error::TimedOut`] some requests may be sent later.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.send_gathered()?;
        (0..self.shards.len()).try_for_each(|shard| self.settle(shard))
    }

    /// Sends what is gathered, or hands it over to a thread that sends: enough for a
    /// session that waits for replies, because it pushes on then.
    #[inline(always)]
    pub(crate) fn send_gathered(&mut self) -> Result<(), Error> {
        if self.gathered == 0 { Ok(()) } else { self.flush_shards() }
    }

    fn flush_shards(&mut self) -> Result<(), Error> {
        (0..self.shards.len()).try_for_each(|shard| self.flush_shard(shard))
    }

    /// Sends what is gathered for one shard, once there is room in its ring.
    pub(crate) fn flush_shard(&mut self, shard: usize) -> Result<(), Error> {
        let mut began_ns = None;
        // Bounded by the session's timeout.
        while !self.shards[shard].gathered.ends.is_empty() {
            if !self.call_off(shard)? || self.try_flush(shard)? == 0 {
                self.make_room(shard, &mut began_ns)?;
            }
        }
        Ok(())
    }

    /// Sends one frame, once there is room for it in the shard's ring.
    pub(crate) fn put_into_ring(
        &mut self,
        shard: usize,
        parts: &[&[u8]],
        expects_reply: bool,
    ) -> Result<(), Error> {
        self.flush_shard(shard)?;
        let mut began_ns = None;
        // Bounded by the session's timeout.
        loop {
            let end = &self.shards[shard];
            if end.unanswered() < MAX_IN_FLIGHT {
                if self.call_off(shard)? && self.try_put(shard, parts, expects_reply)? {
                    return Ok(());
                }
            } else if end.in_flight.is_empty() {
                return Err(Error::TooManySubmitted);
            }
            self.make_room(shard, &mut began_ns)?;
        }
    }

    /// Takes a reply of this session, or waits a moment if room can only come
    /// from other sessions' requests.
    fn make_room(&mut self, shard: usize, began_ns: &mut Option<u64>) -> Result<(), Error> {
        if self.shards[shard].awaited() == 0 {
            return self.help_in_time(shard, began_ns);
        }
        // A late reply makes room, too.
        if let Some(flight) = self.take_next(shard, &mut None)? {
            let reply = std::mem::take(&mut self.reply);
            self.shards[shard].arrived.push_back((flight, reply));
        }
        Ok(())
    }

    /// As [`Session::help`], within the session's timeout since `began_ns`.
    pub(crate) fn help_in_time(
        &mut self,
        shard: usize,
        began_ns: &mut Option<u64>,
    ) -> Result<(), Error> {
        let time = &self.connection.time;
        let began_ns = *began_ns.get_or_insert_with(|| time.now_ns());
        if time.since(began_ns) >= self.options.timeout {
            return Err(self.time_is_up());
        }
        self.help(shard)
    }

    /// Sends one frame if the ring has room, and wakes the shard.
    #[inline]
    pub(crate) fn try_put(
        &mut self,
        shard: usize,
        parts: &[&[u8]],
        expects_reply: bool,
    ) -> Result<bool, Error> {
        let length = parts.iter().map(|part| part.len()).sum();
        let connection: &Connection = &self.connection;
        let lane = &self.set.lanes[shard];
        let Some(mut sending) = self.set.sending(lane) else {
            let message = std::iter::once(parts.concat());
            return Ok(self.hand_over(shard, message, expects_reply)? > 0);
        };
        let hands_over = self.set.hands_over;
        if hands_over && !lane.drain(connection, &mut sending, &mut self.link)? {
            return Ok(false);
        }
        let sender = &mut sending.sender;
        if !has_room(connection, lane, sender, length)? {
            return Ok(false);
        }
        // Before the frame: its reply may be taken at once by anybody.
        if expects_reply {
            lane.outstanding.fetch_add(1, Ordering::Relaxed);
            self.inbox.expect_replies(1);
        }
        let sent = sender.send(&mut self.link, parts);
        lane.sends.count(1);
        drop(sending);
        sent.map_err(|error| not_sent(connection, error))?;
        connection.pass_over_writes(&mut self.link)?;
        if hands_over {
            self.push_on(shard)?;
        }
        Ok(true)
    }

    /// Sends as many of the gathered requests as the ring has room for, and
    /// wakes the shard. Gives their number.
    fn try_flush(&mut self, shard: usize) -> Result<usize, Error> {
        let connection: &Connection = &self.connection;
        let lane = &self.set.lanes[shard];
        let gathered = &self.shards[shard].gathered;
        let Some(first) = gathered.messages().next() else { return Ok(0) };
        let Some(mut sending) = self.set.sending(lane) else {
            return self.hand_gathered_over(shard);
        };
        let hands_over = self.set.hands_over;
        if hands_over && !lane.drain(connection, &mut sending, &mut self.link)? {
            return Ok(0);
        }
        let sender = &mut sending.sender;
        // Fresh credit, if even the sum might not fit.
        has_room(connection, lane, sender, gathered.bytes.len())?;
        if !sender.has_room(first.len()) {
            return Ok(0);
        }
        // Before the frames: their replies may be taken at once by anybody.
        let requests = gathered.ends.len() as u32;
        lane.outstanding.fetch_add(requests, Ordering::Relaxed);
        self.inbox.expect_replies(requests);
        let sent = sender.send_run(&mut self.link, gathered.messages());
        lane.sends.count(sent.unwrap_or(0));
        drop(sending);
        let sent = sent.map_err(|error| not_sent(connection, error))?;
        let unsent = requests - sent as u32;
        if unsent > 0 {
            lane.outstanding.fetch_sub(unsent, Ordering::Relaxed);
            self.inbox.expect_fewer(unsent);
        }
        connection.pass_over_writes(&mut self.link)?;
        self.shards[shard].gathered.sent(sent);
        self.gathered -= sent;
        if hands_over {
            self.push_on(shard)?;
        }
        Ok(sent)
    }

    /// Hands the gathered requests over, as many as there is room for. Their number.
    fn hand_gathered_over(&mut self, shard: usize) -> Result<usize, Error> {
        let gathered = std::mem::take(&mut self.shards[shard].gathered);
        let handed = self.hand_over(shard, gathered.messages().map(<[u8]>::to_vec), true);
        let end = &mut self.shards[shard].gathered;
        *end = gathered;
        let handed = handed?;
        end.sent(handed);
        self.gathered -= handed;
        Ok(handed)
    }
}

/// Whether a lane has room for so many bytes, by fresh credit if need be.
#[inline]
pub(crate) fn has_room(
    connection: &Connection,
    lane: &Lane,
    sender: &mut Sender,
    bytes: usize,
) -> Result<bool, Error> {
    if sender.has_room(bytes) && !sender.wants_credit() {
        return Ok(true);
    }
    let credit = connection.to_client.load_acquire(lane.credit_word);
    sender.take_credit(credit).map_err(|violation| connection.end(violation.into()))?;
    Ok(sender.has_room(bytes))
}

#[cold]
pub(crate) fn not_sent(connection: &Connection, error: SendError) -> Error {
    match error {
        SendError::Link(error) => connection.end(error.into()),
        other => unreachable!("room was looked for, and the limits fit a frame: {other}"),
    }
}
