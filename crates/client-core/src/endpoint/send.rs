//! Puts frames into the lanes of a session's ring set: by itself, or by the thread at the sending
//! end (`crate::combine`).

use super::Endpoint;
use crate::combine::combine;
use crate::connection::Connection;
use crate::error::Error;
use crate::gathered::Gathered;
use crate::lane::not_sent;
use crate::sync::try_lock;
use remora_layout::frame::frame_bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Endpoint {
    /// Sends one frame if the ring has room, and wakes the shard.
    #[inline]
    pub fn try_put(
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
        let over = |error| connection.end(error);
        if hands_over && !lane.drain(&mut sending, &mut self.link).map_err(over)? {
            return Ok(false);
        }
        let sender = &mut sending.sender;
        if !lane.has_room(sender, length).map_err(over)? {
            return Ok(false);
        }
        // Before the frame: any thread may take its reply at once.
        if expects_reply {
            lane.outstanding.fetch_add(1, Ordering::Relaxed);
            self.inbox.expect_replies(1);
        }
        let sent = sender.send(&mut self.link, parts);
        lane.sends.count(1);
        drop(sending);
        sent.map_err(|error| over(not_sent(error)))?;
        connection.pass_over_writes(&mut self.link)?;
        if hands_over {
            self.push_on(shard)?;
        }
        Ok(true)
    }

    /// Sends as many of the gathered requests as the ring has room for, and
    /// wakes the shard. Gives their number; they are no longer gathered then.
    pub fn try_put_gathered(
        &mut self,
        shard: usize,
        gathered: &mut Gathered,
    ) -> Result<usize, Error> {
        let connection: &Connection = &self.connection;
        let lane = &self.set.lanes[shard];
        let Some(first) = gathered.messages().next() else { return Ok(0) };
        let Some(mut sending) = self.set.sending(lane) else {
            let handed = self.hand_over(shard, gathered.messages().map(<[u8]>::to_vec), true)?;
            gathered.sent(handed);
            return Ok(handed);
        };
        let hands_over = self.set.hands_over;
        let over = |error| connection.end(error);
        if hands_over && !lane.drain(&mut sending, &mut self.link).map_err(over)? {
            return Ok(0);
        }
        let sender = &mut sending.sender;
        // Fresh credit, if even the sum might not fit.
        lane.has_room(sender, gathered.bytes()).map_err(over)?;
        if !sender.has_room(first.len()) {
            return Ok(0);
        }
        // Before the frames: any thread may take their replies at once.
        let requests = gathered.len() as u32;
        lane.outstanding.fetch_add(requests, Ordering::Relaxed);
        self.inbox.expect_replies(requests);
        let sent = sender.send_run(&mut self.link, gathered.messages());
        lane.sends.count(sent.unwrap_or(0));
        drop(sending);
        let sent = sent.map_err(|error| over(not_sent(error)))?;
        let unsent = requests - sent as u32;
        if unsent > 0 {
            lane.outstanding.fetch_sub(unsent, Ordering::Relaxed);
            self.inbox.expect_fewer(unsent);
        }
        connection.pass_over_writes(&mut self.link)?;
        gathered.sent(sent);
        if hands_over {
            self.push_on(shard)?;
        }
        Ok(sent)
    }

    /// Hands messages over, as many as there is room for; returns their number. It first counts
    /// those that expect a reply: any thread may take the reply at once.
    fn hand_over(
        &mut self,
        shard: usize,
        messages: impl Iterator<Item = Vec<u8>>,
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
            self.handed[shard] = Some(lane.handed_over.handed());
        }
        self.push_on(shard)?;
        Ok(handed)
    }

    /// Waits until the messages that the session has handed over are in the shard's ring.
    pub fn settle(&mut self, shard: usize) -> Result<(), Error> {
        let Some(handed) = self.handed[shard] else { return Ok(()) };
        self.check()?;
        self.push_on(shard)?;
        let set = Arc::clone(&self.set);
        let mut began_ns = None;
        // Bounded by the session's timeout.
        while !set.lanes[shard].handed_over.has_sent(handed) {
            self.help_in_time(shard, &mut began_ns)?;
        }
        self.handed[shard] = None;
        Ok(())
    }

    /// Puts handed-over messages into a ring, if no other thread does.
    #[inline]
    fn push_on(&mut self, shard: usize) -> Result<(), Error> {
        let Self { connection, set, link, .. } = self;
        let lane = &set.lanes[shard];
        let pushed = combine(
            || lane.handed_over.is_waiting(),
            || try_lock(&lane.sending),
            |sending| lane.drain(sending, link),
            || set.nudge_one(),
        );
        pushed.map_err(|error| connection.end(error))
    }

    /// The same for the rings of all shards. For a session that waits for replies: replies make
    /// room.
    #[inline]
    pub(super) fn push_all_on(&mut self) -> Result<(), Error> {
        if !self.set.hands_over {
            return Ok(());
        }
        (0..self.handed.len()).try_for_each(|shard| self.push_on(shard))
    }
}
