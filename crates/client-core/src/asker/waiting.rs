//! Requests that wait at the server until a key holds something for them.
//!
//! Invariant: a session sends nothing while such a request of it waits, because the server takes the
//! session's next frame for its end.

use super::{Answer, Asker, special_header};
use crate::directory::Directory;
use crate::error::Error;
use crate::in_flight::{InFlight, RequestAt, RequestId, Ticket};
use remora_layout::frame::frame_bytes;
use remora_layout::hash::KeyHash;
use remora_layout::limits::MAX_INLINE_BYTES;
use remora_protocol::Command;
use remora_protocol::message::{REQUEST_HEADER_BYTES, Status, WAIT};
use std::time::Duration;
use zerocopy::IntoBytes;

impl Asker {
    /// Sends a request that waits for the keys of its commands for so long; `None`: without end. It goes to
    /// the shard of the first of `keys`, which are all that it is about. It may have several replies, which
    /// [`Asker::collect_wait`] takes.
    pub fn send_wait<'a>(
        &mut self,
        directory: &mut Directory,
        keys: &[(KeyHash, usize)],
        commands: impl Iterator<Item = Command<'a>>,
        time: Option<Duration>,
    ) -> Result<Ticket, Error> {
        let Some(&(_, shard)) = keys.first() else { return Err(Error::Refused(Status::Malformed)) };
        self.ready()?;
        self.endpoint.now()?;
        let id =
            RequestId { session: self.endpoint.number, sequence: self.queues[shard].next_sequence };
        let mut encoded = Vec::new();
        for command in commands {
            command.encode_within(directory.database, id.to_number(), &mut encoded);
        }
        // No time at all would be one without end.
        let wait_ms = time.map_or(0, |time| (time.as_millis() as u64).max(1)).to_le_bytes();
        let header = special_header(WAIT, 0, id.to_number());
        let parts = [header.as_bytes(), &wait_ms, &encoded];
        let length = REQUEST_HEADER_BYTES + wait_ms.len() + encoded.len();
        if length > MAX_INLINE_BYTES {
            return Err(Error::ValueTooLong);
        }
        // Before the first byte: a failure may leave any of them sent.
        self.changes_attempted += 1;
        self.endpoint.inbox.begin_search(RequestAt { shard, sequence: id.sequence });
        self.put_into_ring(shard, &parts, true)?;
        for &(hash, shard) in keys {
            directory.forget(hash);
            let end = &mut self.queues[shard];
            (end.has_unsynced, end.replicas) = (true, Some(0));
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let end = &mut self.queues[shard];
        end.next_sequence = end.next_sequence.wrapping_add(1);
        end.writes += 1;
        end.in_flight.push_back(InFlight {
            id,
            shard,
            ticket,
            is_write: true,
            hash: None,
            sent_ns: self.endpoint.clock_ns,
            request_bytes: frame_bytes(length) as u32,
            buffer_bytes: 0,
            is_search: true,
            is_abandoned: false,
        });
        Ok(ticket)
    }

    /// Waits for the next reply to such a request, until this time of the connection's clock, ns; then
    /// the request is abandoned, and what it may have taken from its key is lost.
    pub fn collect_wait(
        &mut self,
        directory: &mut Directory,
        (shard, ticket): (usize, Ticket),
        until_ns: Option<u64>,
    ) -> Result<Answer, Error> {
        // Bounded by the wait; a server that is silent for a timeout ends it.
        loop {
            let collected = self.try_collect(directory, shard, ticket);
            if !matches!(collected, Err(Error::TimedOut)) {
                return collected;
            }
            let now_ns = self.endpoint.connection.time.now_ns();
            if until_ns.is_some_and(|until_ns| now_ns >= until_ns) {
                self.abandon(shard, ticket);
                return collected;
            }
        }
    }
}
