//! The parts of a session, each with one task: the asker, the directory, the router and the meter.
//! This module has only the operations that need several of them.

use crate::asker::{Answer, Asker};
use crate::counts::Counts;
use crate::directory::Directory;
use crate::error::Error;
use crate::found::{Found, FoundAt, Got, Landed};
use crate::in_flight::Ticket;
use crate::router::Router;
use remora_fabric::Link;
use remora_layout::pointer::RemotePointer;
use remora_protocol::message::Status;
use remora_protocol::{Command, Items, Reply, Request};
use std::time::Duration;

/// A key that had something for an operation that waited, and the value of the operation's reply.
pub(crate) type ServedKey = (Vec<u8>, Vec<u8>);

/// See the module's text.
pub(crate) struct Core {
    /// Sends requests and gets replies; it has the session's end of the connection.
    pub asker: Asker,
    /// Where objects lie in the server's memory, as far as the session knows.
    pub directory: Directory,
    /// Decides between asking and reading.
    pub router: Router,
    /// What the session's operations have cost so far.
    pub meter: Counts,
    /// Length of the value that did not fit the last reply.
    pub needed_bytes: usize,
}

impl Core {
    /// An operation begins that asks only.
    pub fn begin(&mut self) -> Result<(), Error> {
        self.asker.endpoint.begin_operation()
    }

    /// Sends one request and waits for its reply.
    pub fn ask(&mut self, command: &Command<'_>) -> Result<Answer, Error> {
        let (shard, ticket) = self.send(command)?;
        let answer = self.collect(shard, ticket)?;
        self.accepted(answer)
    }

    /// Puts a request into its shard's ring and wakes the shard.
    pub fn send(&mut self, command: &Command<'_>) -> Result<(usize, Ticket), Error> {
        self.asker.send(&mut self.directory, command)
    }

    /// Puts a request into the ring of a shard, even if the request's key belongs to another shard.
    pub fn send_to(&mut self, shard: usize, command: &Command<'_>) -> Result<Ticket, Error> {
        self.asker.send_to(&mut self.directory, shard, command)
    }

    /// Waits for the reply to one request, and counts it.
    pub fn collect(&mut self, shard: usize, ticket: Ticket) -> Result<Answer, Error> {
        let answer = self.asker.collect(&mut self.directory, shard, ticket)?;
        self.meter.add(&answer.counts);
        Ok(answer)
    }

    /// An answer that is no refusal.
    pub fn accepted(&mut self, answer: Answer) -> Result<Answer, Error> {
        match answer.status {
            Status::Ok | Status::NotFound | Status::NotDone => {
                self.asker.endpoint.staleness.check(answer.lag_ns)?;
                Ok(answer)
            }
            Status::NeedsBuffer => {
                self.needed_bytes = usize::try_from(answer.number).unwrap_or(0);
                Err(Error::Refused(Status::NeedsBuffer))
            }
            Status::Refused => Err(Error::DocumentRefused { code: answer.number as i32 }),
            refused => Err(Error::Refused(refused)),
        }
    }

    /// The counts of the present operation, with the age of its results.
    #[inline(always)]
    pub fn counted(&self, counts: Counts) -> Counts {
        Counts { lag_ns: self.asker.endpoint.staleness.lag_ns, ..counts }
    }

    /// A part of the reply that was taken last.
    #[inline(always)]
    pub fn in_reply(&self, (from, to): (usize, usize)) -> &[u8] {
        &self.asker.endpoint.reply[from..to]
    }

    /// An answer as a reply of the protocol.
    pub fn reply(&self, answer: &Answer) -> Reply<'_> {
        Reply {
            status: answer.status,
            number: answer.number,
            value: answer.value.map(|range| self.in_reply(range)),
            pointer: RemotePointer::NONE,
            lease_ms: 0,
            wait: 0,
        }
    }

    /// Asks a shard for a result that it sends in parts, and hands over the value of each reply; an
    /// error of `take` ends the session. Returns the last reply, with the cost of all of them.
    pub fn ask_in_parts(
        &mut self,
        shard: usize,
        key: &[u8],
        request: Request<'_>,
        take: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<Answer, Error> {
        self.ask_parts_of(shard, &Command::Of { key, request }, take)
    }

    /// As [`Core::ask_in_parts`], with any command that may have several replies.
    pub fn ask_parts_of(
        &mut self,
        shard: usize,
        command: &Command<'_>,
        mut take: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<Answer, Error> {
        let ticket = self.send_to(shard, command)?;
        let mut counts = Counts::default();
        // Bounded by the bytes that a search may return.
        loop {
            let answer = self.collect(shard, ticket)?;
            let answer = match self.accepted(answer) {
                Err(stale @ Error::TooStale { .. }) if answer.is_followed => {
                    self.asker.abandon(shard, ticket);
                    return Err(stale);
                }
                accepted => accepted?,
            };
            counts.add(&answer.counts);
            let value = answer.value.map_or(&[][..], |range| self.in_reply(range));
            take(value).map_err(|error| self.asker.endpoint.end(error))?;
            if !answer.is_followed {
                return Ok(Answer { counts, ..answer });
            }
        }
    }

    /// Asks a shard for a list ([`Items`]), in as many replies as it takes.
    pub fn ask_list(
        &mut self,
        shard: usize,
        key: &[u8],
        request: Request<'_>,
    ) -> Result<(Vec<u8>, Counts), Error> {
        let mut list = Vec::new();
        let take = |part: &[u8]| {
            list.extend_from_slice(part);
            Ok(())
        };
        let answer = self.ask_in_parts(shard, key, request, take)?;
        match Items::parse(&list) {
            Some(_) => Ok((list, answer.counts)),
            None => Err(self.asker.endpoint.end(Error::Protocol("a list with wrong lengths"))),
        }
    }

    /// An operation that waits until its key holds something for it, for so long; `None`: without end.
    /// Returns the value of the operation's reply; `None` once the time is over.
    pub fn wait_for(
        &mut self,
        key: &[u8],
        request: Request<'_>,
        time: Option<Duration>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let found = self.wait_for_any((&[key], None), request, time)?;
        Ok(found.map(|(_, value)| value))
    }

    /// An operation on the first of some keys that holds something for it, now or within this time;
    /// `None`: without end. It also changes the key `to`, if there is one. Returns `None` once the time is over.
    pub fn wait_for_any(
        &mut self,
        (keys, to): (&[&[u8]], Option<&[u8]>),
        request: Request<'_>,
        time: Option<Duration>,
    ) -> Result<Option<ServedKey>, Error> {
        let all = keys.iter().copied().chain(to);
        let places = all.map(|key| self.directory.locate(key)).collect::<Result<Vec<_>, _>>()?;
        let commands = keys.iter().map(|&key| Command::Of { key, request });
        let began_ns = self.asker.endpoint.connection.time.now_ns();
        let ticket = self.asker.send_wait(&mut self.directory, &places, commands, time)?;
        let shard = places[0].1;
        // The server counts the time itself. Its answer is on its way for as long as any other.
        let longest = time.map(|time| time.saturating_add(self.asker.endpoint.timeout));
        let until_ns = longest.map(|longest| {
            began_ns.saturating_add(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX))
        });
        let mut found = Vec::new();
        // Bounded by the bytes of one reply.
        loop {
            let of = (shard, ticket);
            let answer = self.asker.collect_wait(&mut self.directory, of, until_ns)?;
            self.meter.add(&answer.counts);
            let answer = self.accepted(answer)?;
            if let Some(range) = answer.value {
                found.extend_from_slice(self.in_reply(range));
            }
            if answer.is_followed {
                continue;
            }
            if answer.status != Status::Ok {
                return Ok(None);
            }
            let mut items = Items::parse(&found).into_iter().flat_map(Items::iter).flatten();
            let (Some(key), Some(value)) = (items.next(), items.next()) else {
                let error = Error::Protocol("an answer to a wait without a key and a value");
                return Err(self.asker.endpoint.end(error));
            };
            return Ok(Some((key.to_vec(), value.to_vec())));
        }
    }

    /// A value in the landing memory, as the caller sees it.
    #[inline(always)]
    pub fn got_landed(&self, landed: Landed, counts: Counts) -> Got<'_> {
        let Landed { from, bytes, served_by } = landed;
        let counts = self.counted(counts);
        Got { value: Some(self.asker.endpoint.link.landed(from, bytes)), served_by, counts }
    }

    /// A found value, as the caller sees it.
    #[inline(always)]
    pub fn got(&self, found: Found) -> Got<'_> {
        let value = match found.at {
            FoundAt::Landed { from, bytes } => Some(self.asker.endpoint.link.landed(from, bytes)),
            FoundAt::Reply(range) => range.map(|range| self.in_reply(range)),
        };
        Got { value, served_by: found.served_by, counts: self.counted(found.counts) }
    }
}
