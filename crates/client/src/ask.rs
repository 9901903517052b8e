//! Asking: requests and replies over the rings.

use crate::api::{Counts, Ticket};
use crate::data_buffers::Part;
use crate::error::Error;
use crate::in_flight::{InFlight, RequestAt, RequestId};
use crate::session::Session;
use remora_layout::frame::frame_bytes;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{LEASE_MIN_S, MAX_INLINE_BYTES, MAX_VALUE_BYTES};
use remora_layout::pointer::RemotePointer;
use remora_protocol::Command;
use remora_protocol::Reply;
use remora_protocol::message::{
    HAS_VALUE, IN_BUFFER, MORE, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, ReplyHeader, Status, form,
};
use zerocopy::{FromBytes, IntoBytes};

/// A reply, owned where it has to be.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub status: Status,
    pub number: i64,
    /// Bytes of the value in the session's reply buffer.
    pub value: Option<(usize, usize)>,
    /// Bytes of a value that stands in the buffer that the request named.
    pub in_buffer: Option<usize>,
    /// Another reply to the same request follows.
    pub is_followed: bool,
    /// Where what was asked for can be read, if that was told.
    pub pointer: RemotePointer,
    /// What this request cost.
    pub counts: Counts,
}

/// A reply of another form than its request has.
pub(crate) const DOES_NOT_FIT: Error = Error::Protocol("a reply that does not fit its request");

/// Flags of a reply that is a part of a search's.
const PART: u8 = HAS_VALUE | MORE;

impl Session {
    /// Sends one request and waits for its reply.
    pub(crate) fn ask(&mut self, command: &Command<'_>) -> Result<Answer, Error> {
        let (shard, ticket) = self.send(command)?;
        let answer = self.collect(shard, ticket)?;
        self.accepted(answer)
    }

    /// An answer that is no refusal.
    pub(crate) fn accepted(&mut self, answer: Answer) -> Result<Answer, Error> {
        match answer.status {
            Status::Ok | Status::NotFound | Status::NotDone => Ok(answer),
            Status::NeedsBuffer => {
                self.needed_bytes = usize::try_from(answer.number).unwrap_or(0);
                Err(Error::Refused(Status::NeedsBuffer))
            }
            refused => Err(Error::Refused(refused)),
        }
    }

    /// Waits for the reply to one request, which is abandoned if its time is up.
    /// Replies to earlier ones, which come first, are kept for
    /// [`Session::next_reply`].
    pub(crate) fn collect(&mut self, shard: usize, ticket: Ticket) -> Result<Answer, Error> {
        let collected = self.try_collect(shard, ticket);
        if matches!(collected, Err(Error::TimedOut)) {
            self.abandon(shard, ticket);
        }
        collected
    }

    fn try_collect(&mut self, shard: usize, ticket: Ticket) -> Result<Answer, Error> {
        // Before a look at what has arrived: it may take replies for the room.
        let flushed = self.send_gathered();
        let arrived = &mut self.shards[shard].arrived;
        if let Some(at) = arrived.iter().position(|(flight, _)| flight.ticket == ticket) {
            let (flight, reply) = arrived.remove(at).expect("it was found there");
            self.reply = reply;
            return self.digest(flight);
        }
        flushed?;
        // Bounded by what is in flight.
        loop {
            let flight = self.take_reply(shard)?;
            if flight.ticket == ticket {
                return self.digest(flight);
            }
            let reply = std::mem::take(&mut self.reply);
            self.shards[shard].arrived.push_back((flight, reply));
        }
    }

    /// Makes one request and does not wait. Its reply is taken by
    /// [`Session::next_reply`]; requests to one shard are executed in order.
    /// A request that follows others is sent together with some that follow
    /// it, or by the session's next wait for a reply; a thread that
    /// goes on to other things calls [`Session::flush`].
    ///
    /// # Errors
    /// See [`Error`]. A command without a key belongs to no shard and is
    /// refused as malformed, as is a search, which may have several replies.
    pub fn submit(&mut self, command: &Command<'_>) -> Result<Ticket, Error> {
        if is_search(command) {
            return Err(Error::Refused(Status::Malformed));
        }
        let (shard, ticket) = self.send(command)?;
        self.order.push_back(shard as u8);
        Ok(ticket)
    }

    /// Number of submitted requests whose replies have not been taken.
    pub fn in_flight(&self) -> usize {
        self.order.len()
    }

    /// Waits for the oldest submitted request and hands its reply to `f`.
    /// False if there is none.
    ///
    /// # Errors
    /// See [`Error`]. A refusal of the request is a reply, not an error. After
    /// [`Error::TimedOut`] nothing more will be heard of the oldest request; the
    /// next call waits for the one that follows it.
    pub fn next_reply(&mut self, f: &mut dyn FnMut(Ticket, &Reply<'_>)) -> Result<bool, Error> {
        self.check()?;
        let Some(&shard) = self.order.front() else { return Ok(false) };
        let shard = shard as usize;
        // Before a look at what has arrived, as in `collect`.
        let flushed = self.send_gathered();
        let taken = match self.shards[shard].arrived.pop_front() {
            Some((flight, reply)) => {
                self.reply = reply;
                Ok(flight)
            }
            None => flushed.and_then(|()| self.take_reply(shard)),
        };
        if matches!(taken, Err(Error::TimedOut)) {
            self.abandon_oldest(shard);
        }
        self.order.pop_front();
        let flight = taken?;
        let answer = self.digest(flight)?;
        let reply = Reply {
            status: answer.status,
            number: answer.number,
            value: answer.value.map(|(from, to)| &self.reply[from..to]),
            pointer: RemotePointer::NONE,
            lease_ms: 0,
            wait: 0,
        };
        f(flight.ticket, &reply);
        Ok(true)
    }

    /// Puts a request into its shard's ring and wakes the shard.
    pub(crate) fn send(&mut self, command: &Command<'_>) -> Result<(usize, Ticket), Error> {
        self.send_into(command, None)
    }

    /// As [`Session::send`]; a large value is to come into this part of the
    /// process's buffers.
    pub(crate) fn send_into(
        &mut self,
        command: &Command<'_>,
        part: Option<&Part>,
    ) -> Result<(usize, Ticket), Error> {
        let Some(key) = command.key() else { return Err(Error::Refused(Status::Malformed)) };
        let (hash, shard) = self.route(key)?;
        Ok((shard, self.put(shard, Some(hash), command, part)?))
    }

    /// Puts a request into the ring of a shard that its key, if it has one,
    /// need not belong to.
    pub(crate) fn send_to(&mut self, shard: usize, command: &Command<'_>) -> Result<Ticket, Error> {
        self.put(shard, None, command, None)
    }

    fn put(
        &mut self,
        shard: usize,
        hash: Option<KeyHash>,
        command: &Command<'_>,
        part: Option<&Part>,
    ) -> Result<Ticket, Error> {
        let mut scratch = std::mem::take(&mut self.request_scratch);
        let ticket = self.put_in(&mut scratch, (shard, hash), command, part);
        self.request_scratch = scratch;
        ticket
    }

    fn put_in(
        &mut self,
        scratch: &mut Vec<u8>,
        (shard, hash): (usize, Option<KeyHash>),
        command: &Command<'_>,
        part: Option<&Part>,
    ) -> Result<Ticket, Error> {
        self.check()?;
        if self.shards[shard].in_flight.back().is_none_or(|last| last.is_abandoned) {
            // Lease and right count from before the request was sent. While
            // others are under way the clock of the last of them will do, but
            // that of an abandoned one is old.
            self.now()?;
        }
        let id = RequestId { session: self.number, sequence: self.shards[shard].next_sequence };
        let (mut header, key, value) = command.encode(id.to_number(), scratch);
        if value.len() > MAX_VALUE_BYTES {
            return Err(Error::ValueTooLong);
        }
        let none: &[u8] = &[];
        let in_pieces = key.len() + value.len() > MAX_INLINE_BYTES;
        let name = part.map(Part::name);
        let name = name.as_ref().map_or(none, IntoBytes::as_bytes);
        header.form = form::within(self.options.database);
        header.form |= if in_pieces { form::IN_PIECES } else { 0 };
        header.form |= if part.is_some() { form::BUFFER } else { 0 };
        let inline = if in_pieces { none } else { value };
        let parts = [header.as_bytes(), key, inline, name];
        let is_search = is_search(command);
        if is_search {
            self.inbox.begin_search(RequestAt { shard, sequence: id.sequence });
        }
        if !self.gather(shard, &parts) {
            self.put_into_ring(shard, &parts, true)?;
        }
        let length = REQUEST_HEADER_BYTES + key.len() + value.len() + name.len();
        let is_write = command.is_write();
        let brings_pointer = matches!(
            command,
            Command::Get { .. }
                | Command::Set { .. }
                | Command::Append { .. }
                | Command::SetRange { .. }
                | Command::SetBit { .. }
                | Command::GetEx { .. }
        );
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let end = &mut self.shards[shard];
        end.next_sequence = end.next_sequence.wrapping_add(1);
        end.writes += is_write as u32;
        let flight = InFlight {
            id,
            shard,
            ticket,
            is_write,
            hash: hash.filter(|_| brings_pointer),
            sent_ns: self.clock_ns,
            request_bytes: frame_bytes(length) as u32,
            buffer_bytes: part.map_or(0, Part::bytes) as u32,
            is_search,
            is_abandoned: false,
        };
        if is_write && let Some(hash) = hash {
            // What was cached will be dead; the reply may bring its successor.
            self.cache.remove(hash);
        }
        if in_pieces && let Err(error) = self.send_pieces(shard, id.to_number(), value) {
            self.cut_off(flight);
            return Err(error);
        }
        self.shards[shard].in_flight.push_back(flight);
        if self.shards[shard].gathered.is_full(self.link.completes_at_once())
            && let Err(error) = self.flush_shard(shard)
        {
            self.abandon(shard, ticket);
            return Err(error);
        }
        Ok(ticket)
    }

    /// Checks that the reply in `self.reply` is one to this request, and renews
    /// the right.
    pub(crate) fn check_reply(
        &mut self,
        flight: &InFlight,
    ) -> Result<(ReplyHeader, Status), Error> {
        let Ok((header, rest)) = ReplyHeader::read_from_prefix(&self.reply) else {
            return Err(self.end(Error::Protocol("a reply without a header")));
        };
        let value_bytes = header.value_bytes.get() as usize;
        let Some(status) = Status::from_number(header.status) else {
            return Err(self.end(Error::Protocol("a reply with an unknown status")));
        };
        let fits = match header.flags {
            0 | HAS_VALUE => rest.len() == value_bytes,
            // A refusal is the last reply.
            PART => rest.len() == value_bytes && flight.is_search && status == Status::Ok,
            IN_BUFFER => rest.is_empty() && value_bytes <= flight.buffer_bytes as usize,
            _ => false,
        };
        if !fits || header.id.get() != flight.id.to_number() {
            return Err(self.end(DOES_NOT_FIT));
        }
        if self.right.renew_by_reply(header.life.get(), flight.sent_ns).is_err() {
            return Err(self.end(Error::SessionEnded));
        }
        Ok((header, status))
    }

    /// Understands the reply in `self.reply`: checks it, counts it, renews the
    /// right, caches the pointer.
    fn digest(&mut self, flight: InFlight) -> Result<Answer, Error> {
        let (header, status) = self.check_reply(&flight)?;
        let value_bytes = header.value_bytes.get() as usize;
        let in_buffer = (header.flags == IN_BUFFER).then_some(value_bytes);
        let is_followed = header.flags & MORE != 0;
        self.shards[flight.shard].writes -= flight.is_write as u32;
        let pointer = RemotePointer::from_words(header.pointer.map(|word| word.get()));
        if let Some(hash) = flight.hash {
            let term_ms = header.lease_ms.get() as u64;
            self.remember((hash, flight.shard), pointer, term_ms, flight.sent_ns);
        }
        let value = (header.flags & HAS_VALUE != 0)
            .then_some((REPLY_HEADER_BYTES, REPLY_HEADER_BYTES + value_bytes));
        let bytes = frame_bytes(self.reply.len()) as u64;
        let counts = if is_followed {
            Counts { bytes, ..Counts::default() }
        } else {
            let bytes = bytes + flight.request_bytes as u64;
            Counts { operations: 1, round_trips: 1, bytes, asked: 1, ..Counts::default() }
        };
        self.totals.add(&counts);
        let number = header.number.get();
        Ok(Answer { status, number, value, in_buffer, is_followed, pointer, counts })
    }

    /// Caches a pointer. Its lease counts from before the request was sent;
    /// one that comes without a lease is kept for the shortest term, as a hint.
    pub(crate) fn remember(
        &mut self,
        (hash, shard): (KeyHash, usize),
        pointer: RemotePointer,
        lease_ms: u64,
        from_ns: u64,
    ) {
        if !self.is_readable(pointer, shard) {
            return;
        }
        let mut term_ms = if lease_ms == 0 { LEASE_MIN_S * 1000 } else { lease_ms };
        if let Some(least) = self.options.lease {
            term_ms = term_ms.max(least.as_millis() as u64);
        }
        self.cache.put(hash, pointer, term_ms, from_ns);
    }
}

fn is_search(command: &Command<'_>) -> bool {
    matches!(command, Command::Of { request, .. } if request.is_long())
}
