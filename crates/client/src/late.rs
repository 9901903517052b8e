//! Requests whose time was up, and their late replies.
//!
//! As long as the server's heartbeats come, a request that times out fails
//! alone; the session and the other threads of the process go on. What it keeps
//! true:
//! * an abandoned request stays in flight until its last reply has come. So its
//!   id is given to no other request, it takes a place of the window, and a
//!   write among them keeps the session from reading past it;
//! * its replies are dropped by its id, in any thread that takes them from the ring;
//! * the memory that its reply may fill is free once its last reply has come, or
//!   with the connection;
//! * what has not been sent is not sent later: the last gathered request is
//!   withdrawn, a value that has been sent in part is called off, before the
//!   session sends anything else to that shard.

use crate::api::Ticket;
use crate::data_buffers::Part;
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::large::special_header;
use crate::session::Session;
use remora_protocol::message::CALL_OFF;
use zerocopy::IntoBytes;

/// How often a thread takes in what has arrived before it misses a heartbeat:
/// after it has not run for a while, more than what one look takes in may wait
/// in its socket.
const LOOKS: u32 = 32;

impl Session {
    /// The time of an operation is up: that is its error. If heartbeats have
    /// stopped too, the connection is over.
    #[cold]
    pub(crate) fn time_is_up(&mut self) -> Error {
        for _ in 0..LOOKS {
            if let Err(error) = self.connection.pass_over_writes(&mut self.link) {
                return error;
            }
            let now_ns = self.connection.time.now_ns();
            if self.right.refresh_now(now_ns).is_err() {
                return self.end(Error::SessionEnded);
            }
            if !self.right.is_silent(now_ns) {
                return Error::TimedOut;
            }
        }
        self.end(Error::ServerSilent)
    }

    /// Nobody waits for the reply to this request any more. One that has been
    /// answered is left alone.
    #[cold]
    pub(crate) fn abandon(&mut self, shard: usize, ticket: Ticket) {
        let end = &mut self.shards[shard];
        let kept = end.arrived.iter().rfind(|(flight, _)| flight.ticket == ticket);
        let answered = kept.map(|(flight, _)| *flight);
        end.arrived.retain(|(flight, _)| flight.ticket != ticket);
        let Some(at) = end.in_flight.iter().rposition(|flight| flight.ticket == ticket) else {
            end.writes -= answered.is_some_and(|flight| flight.is_write) as u32;
            return;
        };
        if at + 1 == end.in_flight.len() && end.gathered.withdraw_last() {
            let withdrawn = end.in_flight.pop_back().expect("it is the last one");
            end.writes -= withdrawn.is_write as u32;
            end.next_sequence = withdrawn.id.sequence;
            self.gathered -= 1;
            if withdrawn.is_search {
                self.inbox.end_search(withdrawn.at());
            }
            return;
        }
        let flight = &mut end.in_flight[at];
        flight.is_abandoned = true;
        let at = flight.at();
        self.inbox.abandon(at);
    }

    /// As [`Session::abandon`], for several requests.
    #[cold]
    pub(crate) fn abandon_all(
        &mut self,
        requests: impl DoubleEndedIterator<Item = (usize, Ticket)>,
    ) {
        // The last first: those that were not sent are withdrawn from the end.
        requests.rev().for_each(|(shard, ticket)| self.abandon(shard, ticket));
    }

    /// Abandons the oldest request to a shard that is waited for.
    #[cold]
    pub(crate) fn abandon_oldest(&mut self, shard: usize) {
        let mut in_flight = self.shards[shard].in_flight.iter();
        if let Some(ticket) = in_flight.find(|flight| !flight.is_abandoned).map(|f| f.ticket) {
            self.abandon(shard, ticket);
        }
    }

    /// Keeps the memory that the reply to an abandoned request may fill.
    #[cold]
    pub(crate) fn keep_part(&self, shard: usize, ticket: Ticket, part: Part) {
        let mut in_flight = self.shards[shard].in_flight.iter();
        if let Some(flight) = in_flight.find(|flight| flight.ticket == ticket) {
            self.inbox.keep(flight.at(), part);
        }
    }

    /// Drops a reply to an abandoned request, which is in `self.reply`.
    #[cold]
    pub(crate) fn drop_late(&mut self, flight: &InFlight, is_followed: bool) -> Result<(), Error> {
        self.check_reply(flight)?;
        if !is_followed {
            self.shards[flight.shard].writes -= flight.is_write as u32;
            self.inbox.answered(flight.at());
        }
        Ok(())
    }

    /// A request was abandoned before its value had been sent to its end.
    #[cold]
    pub(crate) fn cut_off(&mut self, mut flight: InFlight) {
        flight.is_abandoned = true;
        self.inbox.abandon(flight.at());
        let end = &mut self.shards[flight.shard];
        end.cut_off = Some(flight.id);
        end.in_flight.push_back(flight);
    }

    /// Tells a shard that the rest of a value will not come, if that is so and
    /// there is room for it. False if there is none.
    pub(crate) fn call_off(&mut self, shard: usize) -> Result<bool, Error> {
        let Some(id) = self.shards[shard].cut_off else { return Ok(true) };
        let header = special_header(CALL_OFF, 0, id.to_number());
        // Its reply is expected since its first frame was sent.
        let is_sent = self.try_put(shard, &[header.as_bytes()], false)?;
        if is_sent {
            self.shards[shard].cut_off = None;
        }
        Ok(is_sent)
    }

    /// The session leaves: tells all shards that have room for it.
    pub(crate) fn call_off_all(&mut self) {
        // If it fails, the connection is over.
        (0..self.shards.len()).for_each(|shard| _ = self.call_off(shard));
    }
}
