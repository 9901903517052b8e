//! Timed-out requests, and their late replies.
//!
//! As long as the server's heartbeats arrive, a request that times out fails alone; the session and
//! the other threads of the process continue. Invariants:
//! * an abandoned request stays in flight until its last reply has arrived. So no other request
//!   gets its id, it occupies a place of the window, and an abandoned write keeps the session from
//!   reading past it;
//! * any thread that takes its replies from the ring drops them by its id;
//! * the memory that its reply may fill is free once its last reply has arrived, or with the end of
//!   the connection;
//! * unsent bytes are not sent later: the session withdraws the last gathered request, and calls
//!   off a value that it has sent in part, before it sends anything else to that shard.

use super::{Asker, special_header};
use crate::data_buffers::BufferRange;
use crate::error::Error;
use crate::in_flight::{InFlight, Ticket};
use remora_protocol::message::CALL_OFF;
use zerocopy::IntoBytes;

impl Asker {
    /// The session no longer waits for the reply to this request. It does nothing if the request
    /// has been answered.
    #[cold]
    pub fn abandon(&mut self, shard: usize, ticket: Ticket) {
        let end = &mut self.queues[shard];
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
                self.endpoint.inbox.end_search(withdrawn.at());
            }
            return;
        }
        let flight = &mut end.in_flight[at];
        flight.is_abandoned = true;
        let at = flight.at();
        self.endpoint.inbox.abandon(at);
    }

    /// As [`Asker::abandon`], for several requests.
    #[cold]
    pub fn abandon_all(&mut self, requests: impl DoubleEndedIterator<Item = (usize, Ticket)>) {
        // The last first: unsent requests are withdrawn from the end.
        requests.rev().for_each(|(shard, ticket)| self.abandon(shard, ticket));
    }

    /// Abandons the oldest awaited request to a shard.
    #[cold]
    pub fn abandon_oldest(&mut self, shard: usize) {
        let mut in_flight = self.queues[shard].in_flight.iter();
        if let Some(ticket) = in_flight.find(|flight| !flight.is_abandoned).map(|f| f.ticket) {
            self.abandon(shard, ticket);
        }
    }

    /// Keeps the memory that the reply to an abandoned request may fill.
    #[cold]
    pub fn keep_part(&self, shard: usize, ticket: Ticket, part: BufferRange) {
        let mut in_flight = self.queues[shard].in_flight.iter();
        if let Some(flight) = in_flight.find(|flight| flight.ticket == ticket) {
            self.endpoint.inbox.keep(flight.at(), part);
        }
    }

    /// Drops a reply to an abandoned request, which is in `self.endpoint.reply`.
    #[cold]
    pub fn drop_late(&mut self, flight: &InFlight, is_followed: bool) -> Result<(), Error> {
        self.check_reply(flight)?;
        if !is_followed {
            self.queues[flight.shard].writes -= flight.is_write as u32;
            self.endpoint.inbox.answered(flight.at());
        }
        Ok(())
    }

    /// A request was abandoned before its value had been sent to its end.
    #[cold]
    pub fn cut_off(&mut self, mut flight: InFlight) {
        flight.is_abandoned = true;
        self.endpoint.inbox.abandon(flight.at());
        let end = &mut self.queues[flight.shard];
        end.cut_off = Some(flight.id);
        end.in_flight.push_back(flight);
    }

    /// Tells a shard that the rest of a value will not come, if that is so and there is room for
    /// it. False if there is none.
    pub fn call_off(&mut self, shard: usize) -> Result<bool, Error> {
        let Some(id) = self.queues[shard].cut_off else { return Ok(true) };
        let header = special_header(CALL_OFF, 0, id.to_number());
        // Its reply is expected since its first frame was sent.
        let is_sent = self.endpoint.try_put(shard, &[header.as_bytes()], false)?;
        if is_sent {
            self.queues[shard].cut_off = None;
        }
        Ok(is_sent)
    }

    /// The session leaves: tells all shards that have room for it.
    pub fn call_off_all(&mut self) {
        // If it fails, the connection is over.
        (0..self.queues.len()).for_each(|shard| _ = self.call_off(shard));
    }
}
