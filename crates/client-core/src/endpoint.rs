//! One session's end of a connection: its place at a ring set, its link, its clock and its
//! read lease.
//!
//! It moves bytes and does not interpret requests: `send` sends frames, `receive` waits for replies
//! and takes them. It feeds walks by READs (`remora_walk::remote::Reads`).

mod receive;
mod send;
mod staleness;

use crate::connection::Connection;
use crate::error::Error;
use crate::inbox::Inbox;
use crate::options::Options;
use crate::read_lease::{PRIMARY_NS, ReadLease};
use crate::ring_set::RingSet;
use crate::sync::yield_now;
use remora_fabric::{AnyLink, Link, RemoteAddress, Wake, Work};
use remora_layout::lag::Lag;
use remora_layout::session::CLIENT_CLOCK_WORD;
use remora_ring::WRITE_ID;
use remora_walk::remote::Reads;
pub(crate) use staleness::Staleness;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

/// How long a session lets others run while it waits for them.
pub(crate) const PAUSE: Duration = Duration::from_micros(20);

/// A session that is to notice the server's silence sleeps no longer than this at a time.
const SILENCE_LOOK: Duration = Duration::from_millis(50);

/// How often a thread receives before it takes a heartbeat for missing: after it has not run for a
/// while, its socket may hold more than one receive takes.
const LOOKS: u32 = 32;

/// See the module's text.
pub(crate) struct Endpoint {
    pub connection: Arc<Connection>,
    /// The session's number among those of the process.
    pub number: u16,
    /// Its rings.
    pub set: Arc<RingSet>,
    /// The replies that other threads take out of the rings for it.
    pub inbox: Arc<Inbox>,
    pub link: AnyLink,
    pub lease: ReadLease,
    /// The client's clock as it was last read; never later than now.
    pub clock_ns: u64,
    /// The clock as last sent to the server's memory (TCP).
    clock_sent_ns: u64,
    /// The reply that the session took last.
    pub reply: Vec<u8>,
    /// By shard: the last message that the session handed over and that may not be in the ring yet,
    /// as its number among those of all sessions.
    handed: Box<[Option<usize>]>,
    /// READs gathered for the next batch.
    works: Vec<Work<'static>>,
    wake: Wake,
    pub timeout: Duration,
    /// See [`Options::ends_when_silent`].
    ends_when_silent: bool,
    pub staleness: Staleness,
}

impl Endpoint {
    /// A place on the connection; nothing is sent yet.
    ///
    /// # Errors
    /// The connection is over, the process is a forked child, or it has no free number.
    pub fn new(connection: Arc<Connection>, options: &Options) -> Result<Self, Error> {
        if let Some(over) = connection.over() {
            return Err(over);
        }
        if !connection.guard.same_process() {
            return Err(Error::Forked);
        }
        let (number, set, inbox) = connection.take_number().ok_or(Error::TooManySessions)?;
        Ok(Self {
            link: connection.link(set.number),
            lease: ReadLease::new(
                connection.clock.clone(),
                connection.to_client.clone(),
                connection.number,
                connection.incarnation,
            ),
            number,
            set,
            inbox,
            clock_ns: 0,
            clock_sent_ns: 0,
            reply: Vec::new(),
            handed: vec![None; connection.tables.len()].into(),
            works: Vec::new(),
            wake: options.wake,
            timeout: options.timeout,
            ends_when_silent: options.ends_when_silent,
            staleness: Staleness::new(options.max_lag),
            connection,
        })
    }

    /// Whether the session can be used at all.
    #[inline(always)]
    pub fn check(&self) -> Result<(), Error> {
        if let Some(over) = self.connection.over() {
            return Err(over);
        }
        if !self.connection.guard.same_process() {
            return Err(Error::Forked);
        }
        Ok(())
    }

    /// Ends the connection for good, for all of the process's sessions.
    #[cold]
    pub fn end(&self, error: Error) -> Error {
        self.connection.end(error)
    }

    /// Reads the clock, and does the work that is due.
    #[inline(always)]
    pub fn now(&mut self) -> Result<u64, Error> {
        self.clock_ns = self.connection.time.now_ns();
        if self.lease.refresh(self.clock_ns).is_err() {
            return Err(self.end(Error::SessionEnded));
        }
        if !self.link.completes_at_once() {
            self.send_clock()?;
        }
        Ok(self.clock_ns)
    }

    /// Whether the results of READs so far count.
    pub fn holds_lease(&mut self) -> Result<bool, Error> {
        let now_ns = self.now()?;
        Ok(self.may_believe(now_ns))
    }

    /// Sends the clock on to the mailbox at the server, if it was written
    /// since the last time.
    fn send_clock(&mut self) -> Result<(), Error> {
        let written_ns = self.lease.clock_written_ns();
        if written_ns == self.clock_sent_ns {
            return Ok(());
        }
        self.clock_sent_ns = written_ns;
        let offset = CLIENT_CLOCK_WORD as u64 * 8;
        let to = RemoteAddress { region: self.connection.mailbox(), offset };
        let bytes = written_ns.to_le_bytes();
        self.link.post(&[Work::Write { id: WRITE_ID, to, bytes: &bytes, imm: None }]);
        match self.link.failure() {
            Some(error) => Err(self.end(error.into())),
            None => Ok(()),
        }
    }

    /// Lets others run for a moment.
    pub fn pause(&mut self) {
        if self.link.completes_at_once() {
            yield_now();
        } else {
            // The next receiving thread finds what arrives meanwhile.
            self.link.wait(Some(PAUSE));
        }
    }

    /// Does nothing for this long, or shorter.
    pub fn rest(&mut self, time: Duration) -> Result<(), Error> {
        if !self.connection.sleeps_by_link_alone() {
            sleep(time);
            return Ok(());
        }
        // A WRITE that has completed would end the rest at once.
        self.connection.pass_over_writes(&mut self.link)?;
        self.link.wait(Some(time));
        Ok(())
    }

    /// The error of an operation whose time is up. If heartbeats have stopped too, the connection
    /// is over.
    #[cold]
    pub fn time_is_up(&mut self) -> Error {
        for _ in 0..LOOKS {
            if let Err(error) = self.connection.pass_over_writes(&mut self.link) {
                return error;
            }
            let now_ns = self.connection.time.now_ns();
            if self.lease.refresh_now(now_ns).is_err() {
                return self.end(Error::SessionEnded);
            }
            if !self.lease.is_silent(now_ns) {
                return Error::TimedOut;
            }
        }
        self.end(Error::ServerSilent)
    }

    /// How long a wait may sleep at a time, of the time that is left.
    fn at_a_time(&self, left: Duration) -> Duration {
        if self.ends_when_silent { left.min(SILENCE_LOOK) } else { left }
    }

    /// Ends the connection if the server has been silent for too long, and the session is to notice.
    fn look_for_silence(&mut self) -> Result<(), Error> {
        if !self.ends_when_silent || !self.lease.is_silent(self.clock_ns) {
            return Ok(());
        }
        match self.time_is_up() {
            Error::TimedOut => Ok(()),
            over => Err(over),
        }
    }

    /// An operation begins.
    #[inline(always)]
    pub fn begin_operation(&mut self) -> Result<(), Error> {
        if self.lease.fresh_ns() != PRIMARY_NS {
            // The newest heartbeat makes the operation's results as fresh as possible.
            self.now()?;
        }
        self.staleness.begin(self.lease.fresh_ns());
        Ok(())
    }

    /// Whether what READs have found counts at this time: the read lease holds, and it may not be
    /// older than the application allows.
    #[inline(always)]
    pub fn may_believe(&mut self, now_ns: u64) -> bool {
        self.lease.holds(now_ns) && self.staleness.allows_reads(now_ns)
    }

    /// How old what a reply shows may be, ns, if the request was sent after `sent_ns`.
    #[inline(always)]
    pub fn learn_reply(&mut self, sent_ns: u64, lag: Lag) -> u64 {
        if lag.is_primary() {
            return 0;
        }
        self.staleness.learn_reply(self.connection.time.now_ns().saturating_sub(sent_ns), lag)
    }
}

impl Reads for Endpoint {
    type Error = Error;

    #[inline(always)]
    fn works(&mut self) -> &mut Vec<Work<'static>> {
        &mut self.works
    }

    #[inline(always)]
    fn reserve(&mut self, bytes: usize) {
        self.link.reserve_landing(bytes);
    }

    #[inline(always)]
    fn post(&mut self, reads: &[Work<'_>]) {
        self.link.post(reads);
    }

    /// Polls until a READ has completed; a failure of the link ends the session.
    #[inline(always)]
    fn next(&mut self) -> Result<u64, Error> {
        loop {
            let completion = match self.link.poll() {
                Some(completion) => completion,
                None => self.await_completion()?,
            };
            if let Err(error) = completion.result {
                return Err(self.end(error.into()));
            }
            if completion.id != WRITE_ID {
                return Ok(completion.id);
            }
        }
    }

    #[inline(always)]
    fn landed(&self, from: usize, bytes: usize) -> &[u8] {
        self.link.landed(from, bytes)
    }
}
