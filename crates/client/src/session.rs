//! A session: one thread's operations on a connection.

use crate::admission::Admission;
use crate::api::{Counts, Options, SetOptions, Ticket};
use crate::batch::Batch;
use crate::choose::Chooser;
use crate::choosing::Explaining;
use crate::connection::{Client, Connection};
use crate::error::{ConnectError, Error};
use crate::gather::Gathered;
use crate::in_flight::{InFlight, RequestId};
use crate::inbox::Inbox;
use crate::pointers::Pointers;
use crate::right::Right;
use crate::ring_set::RingSet;
use crate::trees::Names;
use remora_fabric::{Address, AnyLink, Link, RemoteAddress, Transport, Work};
use remora_index::hash::TableRef;
use remora_index::rtree::Object;
use remora_layout::hash::KeyHash;
use remora_layout::limits::MAX_KEY_BYTES;
use remora_layout::plant::{Plant, planted};
use remora_layout::session::CLIENT_CLOCK_WORD;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, ExpireCondition, Expiry};
use remora_ring::WRITE_ID;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Requests that are sent together when many are made at once: enough to keep
/// the shard busy, few enough for their replies to fit the rings.
pub(crate) const PIPELINE_CHUNK: usize = 256;

/// How long a session lets others go on where it waits for what they do.
pub(crate) const PAUSE: Duration = Duration::from_micros(20);

/// One thread's use of a connection to one server. Operations take `&mut
/// self`; results that borrow are valid until the next operation.
pub struct Session {
    pub(crate) connection: Arc<Connection>,
    /// This session's number among those of the process.
    pub(crate) number: u16,
    /// Its rings.
    pub(crate) set: Arc<RingSet>,
    /// What others take out of them for it.
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) options: Options,
    pub(crate) link: AnyLink,
    pub(crate) shards: Vec<Shard>,
    pub(crate) right: Right,
    pub(crate) cache: Pointers,
    pub(crate) totals: Counts,
    pub(crate) chooser: Chooser,
    pub(crate) explaining: Explaining,
    /// Who admits walks of trees.
    pub(crate) admission: Option<Arc<Admission>>,
    /// The reply taken last.
    pub(crate) reply: Vec<u8>,
    /// Requests that are gathered, over all shards.
    pub(crate) gathered: usize,
    /// Shards of unanswered submitted requests, oldest first.
    pub(crate) order: VecDeque<u8>,
    pub(crate) next_ticket: u64,
    /// The client's clock as it was last read; never later than now.
    pub(crate) clock_ns: u64,
    /// The clock as it was last sent on to the server's memory (TCP).
    clock_sent_ns: u64,
    /// Length of the value that the last reply was too small for.
    pub(crate) needed_bytes: usize,
    pub(crate) batch: Batch,
    /// READs that are gathered to be posted.
    pub(crate) works: Vec<Work<'static>>,
    /// What the last search of a tree found.
    pub(crate) found: Vec<Object>,
    /// The ids of those whose words are none.
    pub(crate) found_names: Names,
    /// What a request about a tree is made in.
    pub(crate) request_scratch: Vec<u8>,
}

/// What a session keeps for one shard.
pub(crate) struct Shard {
    /// The shard's table, as it was when last looked at.
    pub table: TableRef,
    /// Sequence up to which its changes were durable when that was last read.
    pub durable: u64,
    /// Made and unanswered, oldest first; abandoned ones too. Their sequences
    /// follow one another, so that none is given out twice.
    pub in_flight: VecDeque<InFlight>,
    /// The last of `in_flight`, as far as they are not in the ring yet.
    pub gathered: Gathered,
    /// Replies that came while another one was waited for.
    pub arrived: VecDeque<(InFlight, Vec<u8>)>,
    /// Unanswered writes. Of an abandoned one nobody knows whether it was
    /// executed, so it counts until its late reply has come.
    pub writes: u32,
    pub next_sequence: u16,
    /// The last message that was handed over and may not be in the ring yet, by its
    /// number among those of all sessions.
    pub handed: Option<usize>,
    /// An abandoned request whose value has not been sent to its end.
    pub cut_off: Option<RequestId>,
}

impl Session {
    /// A connection of its own, and one session on it: [`Client::connect`]
    /// and [`Client::session`].
    ///
    /// # Errors
    /// Nobody listens there, the server refuses, or the memory that it passes
    /// is not acceptable.
    pub fn connect(address: impl Into<Address>, options: &Options) -> Result<Self, ConnectError> {
        let session = Client::connect(address, options)?.session();
        Ok(session.expect("a fresh connection has room for its first session"))
    }

    /// A session on a connection that other threads may use too.
    pub(crate) fn new(
        connection: Arc<Connection>,
        options: &Options,
        admission: Option<Arc<Admission>>,
    ) -> Result<Self, Error> {
        if let Some(over) = connection.over() {
            return Err(over);
        }
        if !connection.guard.same_process() {
            return Err(Error::Forked);
        }
        let (number, set, inbox) = connection.take_number().ok_or(Error::TooManySessions)?;
        let shards = connection.tables.iter().map(|table| Shard {
            durable: if table.lags { 0 } else { u64::MAX },
            table: table.clone(),
            in_flight: VecDeque::new(),
            gathered: Gathered::default(),
            arrived: VecDeque::new(),
            writes: 0,
            next_sequence: 0,
            handed: None,
            cut_off: None,
        });
        let link = connection.link(set.number);
        let seed = connection.number << 16 ^ number as u64;
        Ok(Self {
            number,
            set,
            inbox,
            options: options.clone(),
            chooser: Chooser::new(options.policy, link.reads_cost_peer_cpu(), seed)
                .predicting(options.predictor),
            explaining: Explaining::default(),
            // Over shared memory there is no card to queue at.
            admission: admission.filter(|_| !link.completes_at_once()),
            link,
            shards: shards.collect(),
            right: Right::new(
                connection.clock.clone(),
                connection.to_client.clone(),
                connection.number,
                connection.life,
            ),
            cache: Pointers::of_session(options, connection.pointer_table.as_ref()),
            totals: Counts::default(),
            reply: Vec::new(),
            gathered: 0,
            order: VecDeque::new(),
            next_ticket: 0,
            clock_ns: 0,
            clock_sent_ns: 0,
            needed_bytes: 0,
            batch: Batch::default(),
            works: Vec::new(),
            found: Vec::new(),
            found_names: Names::default(),
            request_scratch: Vec::new(),
            connection,
        })
    }

    /// What carries this session.
    pub fn transport(&self) -> Transport {
        self.link.transport()
    }

    /// Process id of the server.
    pub fn server_pid(&self) -> u32 {
        self.connection.server_pid
    }

    /// Totals since the session began.
    pub fn totals(&self) -> Counts {
        self.totals
    }

    /// The server's utilisation as its last heartbeat told it, in parts per
    /// million; `None` before the first one.
    pub fn server_utilisation_ppm(&self) -> Option<u32> {
        Some(self.right.load()?.utilisation_ppm)
    }

    /// Sets a key. False if the condition did not hold.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn set(&mut self, key: &[u8], value: &[u8], options: SetOptions) -> Result<bool, Error> {
        let SetOptions { condition, expiry } = options;
        let command = Command::Set { key, value, condition, expiry, get: false };
        Ok(self.ask(&command)?.status == Status::Ok)
    }

    /// Removes a key. Whether it was there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn del(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.ask(&Command::Del { key })?.number == 1)
    }

    /// Whether a key exists.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn exists(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.ask(&Command::Exists { key })?.number == 1)
    }

    /// Lets a key of any type expire at `at_ms`, Unix ms; a time in the past removes it.
    /// False if there is no such key.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn expire_at(&mut self, key: &[u8], at_ms: u64) -> Result<bool, Error> {
        let condition = ExpireCondition::Always;
        Ok(self.ask(&Command::Expire { key, at_ms, condition })?.number == 1)
    }

    /// When a key of any type expires, Unix ms; `None` if it is not there, or never
    /// does.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn expires_at(&mut self, key: &[u8]) -> Result<Option<u64>, Error> {
        Ok(u64::try_from(self.ask(&Command::ExpireTime { key })?.number).ok())
    }

    /// Adds to an integer; gives the sum.
    ///
    /// # Errors
    /// See [`Error`]; the value may not be an integer, or the sum not fit.
    pub fn incr(&mut self, key: &[u8], by: i64) -> Result<i64, Error> {
        Ok(self.ask(&Command::Incr { key, by })?.number)
    }

    /// Sets several keys. Requests are pipelined and each is a write of its
    /// own: another client may see some of them before the others.
    ///
    /// # Errors
    /// See [`Error`]; some of the keys may have been set.
    pub fn set_many(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<(), Error> {
        let mut tickets = Vec::new();
        for chunk in pairs.chunks(PIPELINE_CHUNK) {
            tickets.clear();
            let set = self.set_chunk(chunk, &mut tickets);
            if set.is_err() {
                self.abandon_all(tickets.iter().copied());
            }
            set?;
        }
        Ok(())
    }

    /// Sets some keys; tells of each request in `tickets`.
    fn set_chunk(
        &mut self,
        pairs: &[(&[u8], &[u8])],
        tickets: &mut Vec<(usize, Ticket)>,
    ) -> Result<(), Error> {
        let mut refused = None;
        for &(key, value) in pairs {
            let (condition, expiry) = (Condition::Always, Expiry::Never);
            let command = Command::Set { key, value, condition, expiry, get: false };
            // What was sent before has to be answered in any case.
            match self.send(&command) {
                Ok(sent) => tickets.push(sent),
                Err(error) if error.is_final() || error == Error::TimedOut => return Err(error),
                Err(error) => refused = Some(error),
            }
        }
        for &(shard, ticket) in &*tickets {
            let status = self.collect(shard, ticket)?.status;
            if status != Status::Ok {
                refused = Some(Error::Refused(status));
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// A key's hash and its shard, by the table that the server told (H1).
    #[inline(always)]
    pub(crate) fn route(&self, key: &[u8]) -> Result<(KeyHash, usize), Error> {
        if key.len() > MAX_KEY_BYTES {
            return Err(Error::KeyTooLong);
        }
        let hash = KeyHash::within(self.options.database, key, self.connection.hash_seed);
        let slots = self.connection.slots.as_ref();
        Ok((hash, slots.map_or(0, |slots| slots.shard_of(key))))
    }

    /// Reads the clock, and does what is due by it.
    #[inline(always)]
    pub(crate) fn now(&mut self) -> Result<u64, Error> {
        self.clock_ns = self.connection.time.now_ns();
        if self.right.refresh(self.clock_ns).is_err() {
            return Err(self.end(Error::SessionEnded));
        }
        if !self.link.completes_at_once() {
            self.send_clock()?;
        }
        Ok(self.clock_ns)
    }

    /// Sends the clock on to the mailbox at the server, if it was written
    /// since the last time.
    fn send_clock(&mut self) -> Result<(), Error> {
        let written_ns = self.right.clock_written_ns();
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

    /// Lets others go on for a moment.
    pub(crate) fn pause(&mut self) {
        if self.link.completes_at_once() {
            crate::sync::yield_now();
        } else {
            // What comes meanwhile is found by whoever looks next.
            self.link.wait(Some(PAUSE));
        }
    }

    /// Whether the session can be used at all.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<(), Error> {
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
    pub(crate) fn end(&self, error: Error) -> Error {
        self.connection.end(error)
    }

    /// Whether reading may conclude for this shard: none of this session's
    /// writes there is unanswered.
    #[inline(always)]
    pub(crate) fn may_read(&self, shard: usize) -> bool {
        self.shards[shard].writes == 0 || planted(Plant::ReadPastOwnWrites)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // If it fails, what was not sent may never be executed.
        let _ = self.flush();
        self.call_off_all();
        let _ = self.flush();
        self.inbox.give_back();
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("server_pid", &self.server_pid())
            .field("transport", &self.transport().name())
            .field("shards", &self.shards.len())
            .field("totals", &self.totals)
            .field("over", &self.connection.over())
            .finish_non_exhaustive()
    }
}
