//! Sends requests and takes replies over the rings. The asker tracks the in-flight requests.

mod late;
mod put;
mod waiting;

use crate::counts::Counts;
use crate::data_buffers::BufferRange;
use crate::directory::Directory;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::error::is_refused_for_now;
use crate::gathered::Gathered;
use crate::in_flight::{InFlight, RequestAt, RequestId, Ticket, answered, is_followed};
use remora_layout::frame::frame_bytes;
use remora_layout::hash::KeyHash;
use remora_layout::lag::Lag;
use remora_layout::limits::{MAX_INLINE_BYTES, MAX_VALUE_BYTES, STREAM_PIECE_BYTES};
use remora_layout::pointer::RemotePointer;
use remora_protocol::Command;
use remora_protocol::message::{
    HAS_VALUE, IN_BUFFER, MORE, PIECE, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, ReplyHeader,
    RequestHeader, Status, form,
};
use std::collections::VecDeque;
use zerocopy::{FromBytes, IntoBytes};

/// A reply, with owned data where needed.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub status: Status,
    pub number: i64,
    /// Bytes of the value in the session's reply buffer.
    pub value: Option<(usize, usize)>,
    /// Bytes of a value in the buffer that the request named.
    pub in_buffer: Option<usize>,
    /// Another reply to the same request follows.
    pub is_followed: bool,
    /// Where the client can read the requested value, if the server told it.
    pub pointer: RemotePointer,
    /// What this request cost.
    pub counts: Counts,
    /// How old what the reply shows may be, ns of the client's clock: 0 from a primary.
    pub lag_ns: u64,
}

/// Requests that are sent together when many are made at once: enough to keep
/// the shard busy, few enough for their replies to fit the rings.
pub(crate) const PIPELINE_CHUNK: usize = 256;

/// Flags of a reply that is a part of a search's.
const PART: u8 = HAS_VALUE | MORE;

/// The in-flight requests to one shard.
#[derive(Default)]
pub(crate) struct Queue {
    /// In-flight requests, oldest first, abandoned ones included. Their sequences follow one
    /// another, so that no sequence is used twice.
    pub in_flight: VecDeque<InFlight>,
    /// The last requests of `in_flight` that are not in the ring yet.
    gathered: Gathered,
    /// Replies that arrived while the session waited for another one.
    arrived: VecDeque<(InFlight, Vec<u8>)>,
    /// Unanswered writes. It is unknown whether the server executed an abandoned one, so it counts
    /// until its late reply arrives.
    writes: u32,
    /// The session has sent writes that are not known to be on the disk.
    pub has_unsynced: bool,
    /// Once the session has changed something: replicas that are known to have it.
    pub replicas: Option<u8>,
    next_sequence: u16,
    /// An abandoned request whose value was sent only in part.
    cut_off: Option<RequestId>,
}

/// See the module's text.
pub(crate) struct Asker {
    pub endpoint: Endpoint,
    /// By shard.
    pub queues: Vec<Queue>,
    /// Requests that are gathered, over all shards.
    gathered: usize,
    /// Shards of unanswered submitted requests, oldest first.
    order: VecDeque<u8>,
    pub next_ticket: u64,
    /// Requests for a change that were sent, except those that were refused for now.
    pub changes_attempted: u64,
    /// Buffer for encoding a request.
    scratch: Vec<u8>,
}

impl Asker {
    /// Nothing is in flight.
    pub fn new(endpoint: Endpoint) -> Self {
        let shards = endpoint.connection.tables.len();
        Self {
            endpoint,
            queues: (0..shards).map(|_| Queue::default()).collect(),
            gathered: 0,
            order: VecDeque::new(),
            next_ticket: 0,
            changes_attempted: 0,
            scratch: Vec::new(),
        }
    }

    /// Checks before an operation that the session can be used, and that nothing it submitted stays
    /// unsent.
    #[inline(always)]
    pub fn ready(&mut self) -> Result<(), Error> {
        self.endpoint.check()?;
        self.endpoint.begin_operation()?;
        self.send_gathered()
    }

    /// Whether READs of this shard may conclude: none of this session's writes there is unanswered.
    #[inline(always)]
    pub fn may_read(&self, shard: usize) -> bool {
        !self.has_writes(shard)
    }

    /// Whether a write of this session to this shard is unanswered.
    #[inline(always)]
    pub fn has_writes(&self, shard: usize) -> bool {
        self.queues[shard].writes != 0
    }

    /// Waits for the reply to one request, and abandons the request when its time is up. Keeps
    /// earlier replies, which arrive first, for [`Asker::next_submitted`].
    pub fn collect(
        &mut self,
        directory: &mut Directory,
        shard: usize,
        ticket: Ticket,
    ) -> Result<Answer, Error> {
        let collected = self.try_collect(directory, shard, ticket);
        if matches!(collected, Err(Error::TimedOut)) {
            self.abandon(shard, ticket);
        }
        collected
    }

    fn try_collect(
        &mut self,
        directory: &mut Directory,
        shard: usize,
        ticket: Ticket,
    ) -> Result<Answer, Error> {
        // Before checking the arrived replies: it may take replies to make room.
        let flushed = self.send_gathered();
        let arrived = &mut self.queues[shard].arrived;
        if let Some(at) = arrived.iter().position(|(flight, _)| flight.ticket == ticket) {
            let (flight, reply) = arrived.remove(at).expect("it was found there");
            self.endpoint.reply = reply;
            return self.digest(directory, flight);
        }
        flushed?;
        // Bounded by what is in flight.
        loop {
            let flight = self.take_reply(shard)?;
            if flight.ticket == ticket {
                return self.digest(directory, flight);
            }
            let reply = std::mem::take(&mut self.endpoint.reply);
            self.queues[shard].arrived.push_back((flight, reply));
        }
    }

    /// Sends one request whose reply [`Asker::next_submitted`] takes.
    pub fn submit(
        &mut self,
        directory: &mut Directory,
        command: &Command<'_>,
    ) -> Result<Ticket, Error> {
        if is_search(command) {
            return Err(Error::Refused(Status::Malformed));
        }
        let (shard, ticket) = self.send(directory, command)?;
        self.order.push_back(shard as u8);
        Ok(ticket)
    }

    /// Number of submitted requests whose replies have not been taken.
    pub fn submitted(&self) -> usize {
        self.order.len()
    }

    /// Waits for the oldest submitted request; `None` if there is none.
    pub fn next_submitted(
        &mut self,
        directory: &mut Directory,
    ) -> Result<Option<(Ticket, Answer)>, Error> {
        self.endpoint.check()?;
        let Some(&shard) = self.order.front() else { return Ok(None) };
        let shard = shard as usize;
        // Before checking the arrived replies, as in `collect`.
        let flushed = self.send_gathered();
        let taken = match self.queues[shard].arrived.pop_front() {
            Some((flight, reply)) => {
                self.endpoint.reply = reply;
                Ok(flight)
            }
            None => flushed.and_then(|()| self.take_reply(shard)),
        };
        if matches!(taken, Err(Error::TimedOut)) {
            self.abandon_oldest(shard);
        }
        self.order.pop_front();
        let flight = taken?;
        Ok(Some((flight.ticket, self.digest(directory, flight)?)))
    }

    /// Puts a request into its shard's ring and wakes the shard.
    pub fn send(
        &mut self,
        directory: &mut Directory,
        command: &Command<'_>,
    ) -> Result<(usize, Ticket), Error> {
        self.send_into(directory, command, None)
    }

    /// As [`Asker::send`]; the server writes a large value into this part of the process's buffers.
    pub fn send_into(
        &mut self,
        directory: &mut Directory,
        command: &Command<'_>,
        part: Option<&BufferRange>,
    ) -> Result<(usize, Ticket), Error> {
        let Some(key) = command.key() else { return Err(Error::Refused(Status::Malformed)) };
        let (hash, shard) = directory.locate(key)?;
        Ok((shard, self.put(directory, shard, Some(hash), command, part)?))
    }

    /// Puts a request into the ring of a shard, even if the request's key belongs to another shard.
    pub fn send_to(
        &mut self,
        directory: &mut Directory,
        shard: usize,
        command: &Command<'_>,
    ) -> Result<Ticket, Error> {
        self.put(directory, shard, None, command, None)
    }

    fn put(
        &mut self,
        directory: &mut Directory,
        shard: usize,
        hash: Option<KeyHash>,
        command: &Command<'_>,
        part: Option<&BufferRange>,
    ) -> Result<Ticket, Error> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let ticket = self.put_in(&mut scratch, directory, (shard, hash), command, part);
        self.scratch = scratch;
        ticket
    }

    fn put_in(
        &mut self,
        scratch: &mut Vec<u8>,
        directory: &mut Directory,
        (shard, hash): (usize, Option<KeyHash>),
        command: &Command<'_>,
        part: Option<&BufferRange>,
    ) -> Result<Ticket, Error> {
        self.endpoint.check()?;
        if self.queues[shard].in_flight.back().is_none_or(|last| last.is_abandoned) {
            // Pointer leases and the read lease count from before the request was sent. While other
            // requests are in flight the clock of the last of them is recent enough, but that of an
            // abandoned one is old.
            self.endpoint.now()?;
        }
        let id =
            RequestId { session: self.endpoint.number, sequence: self.queues[shard].next_sequence };
        let (mut header, key, value) = command.encode(id.to_number(), scratch);
        if value.len() > MAX_VALUE_BYTES {
            return Err(Error::ValueTooLong);
        }
        let none: &[u8] = &[];
        let in_pieces = key.len() + value.len() > MAX_INLINE_BYTES;
        let name = part.map(BufferRange::name);
        let name = name.as_ref().map_or(none, IntoBytes::as_bytes);
        header.form = form::within(directory.database);
        header.form |= if in_pieces { form::IN_PIECES } else { 0 };
        header.form |= if part.is_some() { form::BUFFER } else { 0 };
        let inline = if in_pieces { none } else { value };
        let parts = [header.as_bytes(), key, inline, name];
        let (is_search, is_write) = (is_search(command), command.is_write());
        // Before the first byte: a failure may leave any of them sent.
        self.changes_attempted += u64::from(is_write);
        if is_search {
            self.endpoint.inbox.begin_search(RequestAt { shard, sequence: id.sequence });
        }
        if !self.gather(shard, &parts) {
            self.put_into_ring(shard, &parts, true)?;
        }
        let length = REQUEST_HEADER_BYTES + key.len() + value.len() + name.len();
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let end = &mut self.queues[shard];
        end.next_sequence = end.next_sequence.wrapping_add(1);
        end.writes += is_write as u32;
        end.has_unsynced |= is_write;
        if is_write {
            end.replicas = Some(0);
        }
        let flight = InFlight {
            id,
            shard,
            ticket,
            is_write,
            hash: hash.filter(|_| brings_pointer(command)),
            sent_ns: self.endpoint.clock_ns,
            request_bytes: frame_bytes(length) as u32,
            buffer_bytes: part.map_or(0, BufferRange::bytes) as u32,
            is_search,
            is_abandoned: false,
        };
        if is_write && let Some(hash) = hash {
            // The cached record will be dead; the reply may bring its successor.
            directory.forget(hash);
        }
        if in_pieces && let Err(error) = self.send_pieces(shard, id.to_number(), value) {
            self.cut_off(flight);
            return Err(error);
        }
        self.queues[shard].in_flight.push_back(flight);
        if self.queues[shard].gathered.is_full(self.endpoint.link.completes_at_once())
            && let Err(error) = self.flush_shard(shard)
        {
            self.abandon(shard, ticket);
            return Err(error);
        }
        Ok(ticket)
    }

    /// Sends in pieces the value of a request that was announced without it.
    fn send_pieces(&mut self, shard: usize, id: u32, value: &[u8]) -> Result<(), Error> {
        let header = special_header(PIECE, 0, id);
        for piece in value.chunks(STREAM_PIECE_BYTES) {
            self.put_into_ring(shard, &[header.as_bytes(), piece], false)?;
        }
        Ok(())
    }

    /// Waits for the next reply of a shard to this session; its payload is
    /// then in `self.endpoint.reply`. Gives the request that it answers.
    pub fn take_reply(&mut self, shard: usize) -> Result<InFlight, Error> {
        // One timeout for all: late replies that arrive before do not prolong it.
        let mut began_ns = None;
        // Bounded by what is in flight, and by the session's timeout.
        loop {
            if let Some(flight) = self.take_next(shard, &mut began_ns)? {
                return Ok(flight);
            }
        }
    }

    /// As [`Asker::take_reply`], since `began_ns`; `None` if the next reply was a late one, which
    /// it drops.
    pub fn take_next(
        &mut self,
        shard: usize,
        began_ns: &mut Option<u64>,
    ) -> Result<Option<InFlight>, Error> {
        self.endpoint.await_reply(shard, began_ns)?;
        let in_flight = &mut self.queues[shard].in_flight;
        let Some(&flight) = in_flight.front() else {
            return Err(self.endpoint.end(Error::Protocol("a reply to nothing")));
        };
        let is_followed = is_followed(&self.endpoint.reply);
        if answered(&self.endpoint.reply) != Some(flight.id) || is_followed && !flight.is_search {
            return Err(self.endpoint.end(Error::DOES_NOT_FIT));
        }
        // After each reply of a search but the last the request stays in flight.
        if !is_followed {
            in_flight.pop_front();
            if flight.is_search {
                self.endpoint.inbox.end_search(flight.at());
            }
        }
        if flight.is_abandoned {
            self.drop_late(&flight, is_followed)?;
            return Ok(None);
        }
        Ok(Some(flight))
    }

    /// Checks that the reply in `self.endpoint.reply` answers this request, and renews the read
    /// lease.
    pub fn check_reply(&mut self, flight: &InFlight) -> Result<(ReplyHeader, Status), Error> {
        let Ok((header, rest)) = ReplyHeader::read_from_prefix(&self.endpoint.reply) else {
            return Err(self.endpoint.end(Error::Protocol("a reply without a header")));
        };
        let value_bytes = header.value_bytes.get() as usize;
        let Some(status) = Status::from_number(header.status) else {
            return Err(self.endpoint.end(Error::Protocol("a reply with an unknown status")));
        };
        let fits = match header.flags {
            0 | HAS_VALUE => rest.len() == value_bytes,
            // A refusal is the last reply.
            PART => rest.len() == value_bytes && flight.is_search && status == Status::Ok,
            IN_BUFFER => rest.is_empty() && value_bytes <= flight.buffer_bytes as usize,
            _ => false,
        };
        if !fits || header.id.get() != flight.id.to_number() {
            return Err(self.endpoint.end(Error::DOES_NOT_FIT));
        }
        let lag = Lag::of_code(header.lag.get());
        if self
            .endpoint
            .lease
            .renew_by_reply(header.incarnation.get(), flight.sent_ns, lag)
            .is_err()
        {
            return Err(self.endpoint.end(Error::SessionEnded));
        }
        Ok((header, status))
    }

    /// Decodes the reply in `self.endpoint.reply`: checks it, counts its cost, renews the read
    /// lease, keeps the pointer.
    fn digest(&mut self, directory: &mut Directory, flight: InFlight) -> Result<Answer, Error> {
        let (header, status) = self.check_reply(&flight)?;
        let value_bytes = header.value_bytes.get() as usize;
        let in_buffer = (header.flags == IN_BUFFER).then_some(value_bytes);
        let is_followed = header.flags & MORE != 0;
        self.queues[flight.shard].writes -= (flight.is_write && !is_followed) as u32;
        if flight.is_write && is_refused_for_now(status) {
            self.changes_attempted -= 1;
        }
        let pointer = RemotePointer::from_words(header.pointer.map(|word| word.get()));
        if let Some(hash) = flight.hash {
            let term_ms = header.lease_ms.get() as u64;
            directory.remember((hash, flight.shard), pointer, term_ms, flight.sent_ns);
        }
        let value = (header.flags & HAS_VALUE != 0)
            .then_some((REPLY_HEADER_BYTES, REPLY_HEADER_BYTES + value_bytes));
        let bytes = frame_bytes(self.endpoint.reply.len()) as u64;
        let counts = if is_followed {
            Counts { bytes, ..Counts::default() }
        } else {
            let bytes = bytes + flight.request_bytes as u64;
            Counts { operations: 1, round_trips: 1, bytes, asked: 1, ..Counts::default() }
        };
        let number = header.number.get();
        // A change was acknowledged by a primary, even if it shows nothing more by now.
        let lag_ns = match flight.is_write {
            true => 0,
            false => self.endpoint.learn_reply(flight.sent_ns, Lag::of_code(header.lag.get())),
        };
        Ok(Answer { status, number, value, in_buffer, is_followed, pointer, counts, lag_ns })
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        // If it fails, the server may never execute the unsent requests.
        let _ = self.flush();
        self.call_off_all();
        let _ = self.flush();
        self.endpoint.inbox.give_back();
    }
}

/// Whether the reply to a command may bring the pointer to a record.
fn brings_pointer(command: &Command<'_>) -> bool {
    matches!(
        command,
        Command::Get { .. }
            | Command::Set { .. }
            | Command::Append { .. }
            | Command::SetRange { .. }
            | Command::SetBit { .. }
            | Command::GetEx { .. }
    )
}

/// Whether a request may have several replies.
pub(crate) fn is_search(command: &Command<'_>) -> bool {
    match command {
        Command::Of { request, .. } => request.may_have_parts(),
        Command::Plan { .. } => true,
        _ => false,
    }
}

/// The header of a message that is not a separate request.
pub(crate) fn special_header(op: u8, form: u8, id: u32) -> RequestHeader {
    RequestHeader {
        op,
        flags: 0,
        form,
        of: 0,
        key_bytes: 0.into(),
        value_bytes: 0.into(),
        id: id.into(),
        argument: 0.into(),
    }
}
