//! Asking: requests and replies over the rings.

use crate::api::{Counts, Ticket, Wake};
use crate::error::Error;
use crate::session::{InFlight, Session};
use remora_engine::Reply;
use remora_engine::command::Command;
use remora_fabric::shm::Woken;
use remora_fabric::{Link, RemoteAddress, Work};
use remora_layout::frame::frame_bytes;
use remora_layout::limits::{LEASE_MIN_S, MAX_IN_FLIGHT, MAX_VALUE_BYTES};
use remora_layout::message::{REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, ReplyHeader, Status};
use remora_layout::pointer::RemotePointer;
use remora_ring::{Poll, SendError, WRITE_ID};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// Hybrid mode polls this long for a reply before it blocks.
const HYBRID_SPIN: Duration = Duration::from_micros(50);
/// Empty polls between two looks at the clock.
const POLLS_PER_CLOCK: u32 = 128;
/// A poller looks after the server's life this often.
const LIFE_LOOK: Duration = Duration::from_millis(10);

/// A reply, owned where it has to be.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub status: Status,
    pub number: i64,
    /// Bytes of the value in the session's reply buffer.
    pub value: Option<(usize, usize)>,
    /// What this request cost.
    pub counts: Counts,
}

impl Session {
    /// Sends one request and waits for its reply.
    pub(crate) fn ask(&mut self, command: &Command<'_>) -> Result<Answer, Error> {
        let (shard, ticket) = self.send(command)?;
        let answer = self.collect(shard, ticket)?;
        match answer.status {
            Status::Ok | Status::NotFound | Status::NotDone => Ok(answer),
            refused => Err(Error::Refused(refused)),
        }
    }

    /// Waits for the reply to one request. Replies to earlier ones, which
    /// come first, are kept for [`Session::next_reply`].
    pub(crate) fn collect(&mut self, shard: usize, ticket: Ticket) -> Result<Answer, Error> {
        let arrived = &mut self.shards[shard].arrived;
        if let Some(at) = arrived.iter().position(|(flight, _)| flight.ticket == ticket) {
            let (flight, reply) = arrived.remove(at).expect("it was found there");
            self.reply = reply;
            return self.digest(flight);
        }
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

    /// Sends one request and does not wait. Its reply is taken by
    /// [`Session::next_reply`]; requests to one shard are executed in order.
    ///
    /// # Errors
    /// See [`Error`]. A command without a key belongs to no shard and is
    /// refused as malformed.
    pub fn submit(&mut self, command: &Command<'_>) -> Result<Ticket, Error> {
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
    /// See [`Error`]. A refusal of the request is a reply, not an error.
    pub fn next_reply(&mut self, f: &mut dyn FnMut(Ticket, &Reply<'_>)) -> Result<bool, Error> {
        self.check()?;
        let Some(&shard) = self.order.front() else { return Ok(false) };
        let shard = shard as usize;
        let flight = match self.shards[shard].arrived.pop_front() {
            Some((flight, reply)) => {
                self.reply = reply;
                flight
            }
            None => self.take_reply(shard)?,
        };
        self.order.pop_front();
        let answer = self.digest(flight)?;
        let reply = Reply {
            status: answer.status,
            number: answer.number,
            value: answer.value.map(|(from, to)| &self.reply[from..to]),
            pointer: RemotePointer::NONE,
            lease_ms: 0,
        };
        f(flight.ticket, &reply);
        Ok(true)
    }

    /// Puts a request into its shard's ring and wakes the shard.
    pub(crate) fn send(&mut self, command: &Command<'_>) -> Result<(usize, Ticket), Error> {
        self.check()?;
        let (hash, shard) = match command.key() {
            Some(key) => {
                let (hash, shard) = self.route(key)?;
                (Some(hash), shard)
            }
            None => return Err(Error::Refused(Status::Malformed)),
        };
        if self.shards[shard].in_flight.is_empty() {
            // Lease and right count from before the request was sent. While
            // others are under way the clock of the last of them will do.
            self.now()?;
        }
        let id = self.shards[shard].next_id;
        let (header, key, value) = command.encode(id);
        let length = REQUEST_HEADER_BYTES + key.len() + value.len();
        if value.len() > MAX_VALUE_BYTES {
            return Err(Error::ValueTooLong);
        }
        self.make_room(shard, length)?;
        let end = &mut self.shards[shard];
        match end.sender.send(&mut self.link, &[header.as_bytes(), key, value]) {
            Ok(()) => {}
            Err(SendError::Link(error)) => return Err(self.end(error.into())),
            Err(other) => unreachable!("room was made, and the limits fit a frame: {other}"),
        }
        self.drain_writes()?;
        let end = &mut self.shards[shard];
        end.bell.ring();
        end.next_id = end.next_id.wrapping_add(1);
        let is_write = command.is_write();
        end.writes += is_write as u32;
        let brings_pointer = matches!(command, Command::Get { .. } | Command::Set { .. });
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        end.in_flight.push_back(InFlight {
            id,
            shard,
            ticket,
            is_write,
            hash: hash.filter(|_| brings_pointer),
            sent_ns: self.clock_ns,
            request_bytes: frame_bytes(length) as u32,
        });
        if is_write && let Some(hash) = hash {
            // What was cached will be dead; the reply may bring its successor.
            self.cache.remove(hash);
        }
        Ok((shard, ticket))
    }

    /// Waits until a request of this length has room at the shard.
    fn make_room(&mut self, shard: usize, length: usize) -> Result<(), Error> {
        let mut waiting: Option<Instant> = None;
        loop {
            let end = &mut self.shards[shard];
            if end.in_flight.len() + end.arrived.len() < MAX_IN_FLIGHT {
                if end.sender.has_room(length) {
                    return Ok(());
                }
                let credit = self.to_client.load_acquire(end.credit_word);
                if let Err(violation) = end.sender.take_credit(credit) {
                    return Err(self.end(violation.into()));
                }
                if end.sender.has_room(length) {
                    return Ok(());
                }
            }
            if self.shards[shard].in_flight.is_empty() {
                if self.shards[shard].arrived.len() >= MAX_IN_FLIGHT {
                    return Err(Error::TooManySubmitted);
                }
                // Everything is answered, so the credit is on its way.
                let began = *waiting.get_or_insert_with(Instant::now);
                if began.elapsed() > self.options.timeout {
                    return Err(self.end(Error::TimedOut));
                }
                std::hint::spin_loop();
                continue;
            }
            let flight = self.take_reply(shard)?;
            let reply = std::mem::take(&mut self.reply);
            self.shards[shard].arrived.push_back((flight, reply));
        }
    }

    /// Waits for the next reply of a shard; its payload is then in
    /// `self.reply`. Gives the request that it answers.
    fn take_reply(&mut self, shard: usize) -> Result<InFlight, Error> {
        self.reply.clear();
        self.wait_for_frame(shard)?;
        let end = &mut self.shards[shard];
        let flight = end.in_flight.pop_front();
        if let Some(consumed) = end.receiver.credit_due() {
            let offset = end.credit_word as u64 * 8;
            let to = RemoteAddress { region: self.mailbox, offset };
            let bytes = consumed.to_le_bytes();
            self.link.post(&[Work::Write { id: WRITE_ID, to, bytes: &bytes, imm: None }]);
            self.drain_writes()?;
            // The shard may hold replies back for want of this credit.
            self.shards[shard].bell.ring();
        }
        flight.ok_or_else(|| self.end(Error::Protocol("a reply to nothing")))
    }

    /// Passes over completed WRITEs; one that failed ends the session.
    fn drain_writes(&mut self) -> Result<(), Error> {
        while let Some(completion) = self.link.poll() {
            if let Err(error) = completion.result {
                return Err(self.end(error.into()));
            }
        }
        Ok(())
    }

    fn wait_for_frame(&mut self, shard: usize) -> Result<(), Error> {
        let mut started = None;
        let mut looked = Duration::ZERO;
        let mut polls = 0u32;
        loop {
            match self.shards[shard].receiver.poll(&mut self.reply) {
                Poll::Frame(_) => return Ok(()),
                Poll::Violated(violation) => return Err(self.end(violation.into())),
                Poll::Empty | Poll::Torn => {}
            }
            polls += 1;
            if self.options.wake != Wake::Event && !polls.is_multiple_of(POLLS_PER_CLOCK) {
                std::hint::spin_loop();
                continue;
            }
            let waited = started.get_or_insert_with(Instant::now).elapsed();
            if waited > self.options.timeout {
                return Err(self.end(Error::TimedOut));
            }
            self.now()?;
            let spins = match self.options.wake {
                Wake::Poll => true,
                Wake::Hybrid => waited < HYBRID_SPIN,
                Wake::Event => false,
            };
            if spins {
                if waited - looked > LIFE_LOOK {
                    looked = waited;
                    self.look_after_server()?;
                }
                continue;
            }
            let receiver = &self.shards[shard].receiver;
            let left = self.options.timeout - waited.min(self.options.timeout);
            if self.sleeper.sleep(Some(left), || receiver.has_frame()) != Woken::Found {
                self.look_after_server()?;
            }
        }
    }

    /// Whether the server's process still holds its end of the socket.
    fn look_after_server(&mut self) -> Result<(), Error> {
        let mut byte = [0u8; 1];
        match rustix::net::recv(&self.socket, &mut byte[..], rustix::net::RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(self.end(Error::ServerGone)),
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
            Err(_) => Err(self.end(Error::ServerGone)),
        }
    }

    /// Understands the reply in `self.reply`: checks it, counts it, renews the
    /// right, caches the pointer.
    fn digest(&mut self, flight: InFlight) -> Result<Answer, Error> {
        let Ok((header, rest)) = ReplyHeader::read_from_prefix(&self.reply) else {
            return Err(self.end(Error::Protocol("a reply without a header")));
        };
        let value_bytes = header.value_bytes.get() as usize;
        let Some(status) = Status::from_number(header.status) else {
            return Err(self.end(Error::Protocol("a reply with an unknown status")));
        };
        if rest.len() != value_bytes || header.id.get() != flight.id {
            return Err(self.end(Error::Protocol("a reply that does not fit its request")));
        }
        self.shards[flight.shard].writes -= flight.is_write as u32;
        if self.right.renew_by_reply(header.life.get(), flight.sent_ns).is_err() {
            return Err(self.end(Error::SessionEnded));
        }
        if let Some(hash) = flight.hash {
            let pointer =
                RemotePointer::from_words([header.pointer[0].get(), header.pointer[1].get()]);
            self.remember(hash, pointer, header.lease_ms.get() as u64, flight.sent_ns);
        }
        let value = (header.flags & 1 != 0)
            .then_some((REPLY_HEADER_BYTES, REPLY_HEADER_BYTES + value_bytes));
        let bytes = flight.request_bytes as u64 + frame_bytes(self.reply.len()) as u64;
        let counts = Counts { operations: 1, round_trips: 1, bytes, asked: 1, ..Counts::default() };
        self.totals.add(&counts);
        Ok(Answer { status, number: header.number.get(), value, counts })
    }

    /// Caches a pointer. Its lease counts from before the request was sent;
    /// one that comes without a lease is kept for the shortest term, as a hint.
    pub(crate) fn remember(
        &mut self,
        hash: remora_layout::hash::KeyHash,
        pointer: RemotePointer,
        lease_ms: u64,
        from_ns: u64,
    ) {
        let shard = hash.shard(self.shards.len());
        let is_sane = pointer.is_some()
            && pointer.region as usize == shard
            && self.shards[shard].table.holds(pointer);
        if !is_sane {
            return;
        }
        let mut term_ms = if lease_ms == 0 { LEASE_MIN_S * 1000 } else { lease_ms };
        if let Some(least) = self.options.lease {
            term_ms = term_ms.max(least.as_millis() as u64);
        }
        self.cache.put(hash, pointer, term_ms, from_ns + term_ms * 1_000_000);
    }
}
