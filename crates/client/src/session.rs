//! A session: its connection, and the operations of an application.

use crate::api::{Counts, Options, Path, SetOptions, Ticket};
use crate::batch::Batch;
use crate::error::{ConnectError, Error};
use crate::pointer_cache::PointerCache;
use crate::right::Right;
use remora_arena::{ForkGuard, Words};
use remora_engine::command::{Command, Condition, Expiry};
use remora_fabric::shm::{self, Bell, ShmLink, Sleeper};
use remora_fabric::{Link, Transport};
use remora_index::hash::TableRef;
use remora_layout::arena_header::word;
use remora_layout::frame::ring_seed;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use remora_layout::message::Status;
use remora_layout::session::{CLIENT_ASLEEP_WORD, credit_word, ring_offset};
use remora_ring::{Receiver, Sender};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Requests that are sent together when many are made at once: enough to keep
/// the shard busy, few enough for their replies to fit the rings.
pub(crate) const PIPELINE_CHUNK: usize = 256;

/// A connection to one server, for one thread. Operations take `&mut self`;
/// results that borrow are valid until the next operation.
pub struct Session {
    pub(crate) options: Options,
    pub(crate) guard: ForkGuard,
    pub(crate) socket: UnixStream,
    pub(crate) link: ShmLink,
    pub(crate) sleeper: Sleeper,
    pub(crate) to_client: Words,
    /// Region of this client's mailbox at the server.
    pub(crate) mailbox: u32,
    pub(crate) shards: Vec<Shard>,
    pub(crate) hash_seed: u64,
    pub(crate) server_pid: u32,
    pub(crate) right: Right,
    pub(crate) cache: PointerCache,
    pub(crate) totals: Counts,
    /// The reply taken last.
    pub(crate) reply: Vec<u8>,
    /// Shards of unanswered submitted requests, oldest first.
    pub(crate) order: VecDeque<u8>,
    pub(crate) next_ticket: u64,
    /// Zero of the client's clock.
    pub(crate) start: Instant,
    /// The clock as it was last read; never later than now.
    pub(crate) clock_ns: u64,
    /// Set by the first final error.
    pub(crate) over: Option<Error>,
    pub(crate) batch: Batch,
}

/// The client's end at one shard.
pub(crate) struct Shard {
    pub sender: Sender,
    pub receiver: Receiver,
    pub credit_word: usize,
    pub bell: Bell,
    pub table: TableRef,
    /// Sent and unanswered, oldest first.
    pub in_flight: VecDeque<InFlight>,
    /// Replies that came while another one was waited for.
    pub arrived: VecDeque<(InFlight, Vec<u8>)>,
    /// Unanswered writes.
    pub writes: u32,
    pub next_id: u32,
}

/// A request that was sent.
#[derive(Clone, Copy)]
pub(crate) struct InFlight {
    pub id: u32,
    /// The shard that it was sent to.
    pub shard: usize,
    pub ticket: Ticket,
    pub is_write: bool,
    /// The key's hash if the reply may bring a pointer to cache.
    pub hash: Option<KeyHash>,
    /// The clock before it was sent.
    pub sent_ns: u64,
    pub request_bytes: u32,
}

impl Session {
    /// Asks the server at this Unix socket for a session over shared memory.
    ///
    /// # Errors
    /// Nobody listens there, the server refuses, or the memory that it passes
    /// is not acceptable.
    pub fn connect(socket: &std::path::Path, options: &Options) -> Result<Self, ConnectError> {
        let connected = shm::connect(socket)?;
        let hello = connected.hello;
        let mut shards = Vec::with_capacity(connected.arenas.len());
        let mailbox = connected.arenas.len() as u32;
        let seed = hello.session_seed.get();
        for (number, (arena, bell)) in connected.arenas.iter().zip(connected.bells).enumerate() {
            let not_a_server = || ConnectError::NotAServer {
                server: remora_fabric::Address::Unix(socket.to_owned()),
                what: "an arena's table lies outside of it",
            };
            let table = TableRef::checked(
                number as u32,
                arena.bytes() as u64,
                arena.load(word::TABLE_OFFSET),
                arena.load(word::BUCKETS),
            )
            .ok_or_else(not_a_server)?;
            let ring = ring_offset(number);
            let to_client = connected.to_client.clone();
            shards.push(Shard {
                sender: Sender::new(mailbox, ring as u64, ring_seed(seed, number, 0)),
                receiver: Receiver::new(to_client, ring, ring_seed(seed, number, 1)),
                credit_word: credit_word(number),
                bell,
                table,
                in_flight: VecDeque::new(),
                arrived: VecDeque::new(),
                writes: 0,
                next_id: 0,
            });
        }
        let sleeper = Sleeper::new(connected.to_server.clone(), CLIENT_ASLEEP_WORD)?;
        sleeper.watch(connected.eventfd.as_fd())?;
        sleeper.watch(connected.socket.as_fd())?;
        connected.socket.set_nonblocking(true)?;
        let right = Right::new(
            connected.to_server,
            connected.to_client.clone(),
            hello.session.get(),
            hello.life.get(),
        );
        Ok(Self {
            cache: PointerCache::new(options.pointer_cache_entries),
            options: options.clone(),
            guard: ForkGuard::new()?,
            socket: connected.socket,
            link: connected.link,
            sleeper,
            to_client: connected.to_client,
            mailbox,
            shards,
            hash_seed: hello.hash_seed.get(),
            server_pid: hello.pid.get(),
            right,
            totals: Counts::default(),
            reply: Vec::new(),
            order: VecDeque::new(),
            next_ticket: 0,
            start: Instant::now(),
            clock_ns: 0,
            over: None,
            batch: Batch::default(),
        })
    }

    /// What carries this session.
    pub fn transport(&self) -> Transport {
        self.link.transport()
    }

    /// Process id of the server.
    pub fn server_pid(&self) -> u32 {
        self.server_pid
    }

    /// Totals since the session began.
    pub fn totals(&self) -> Counts {
        self.totals
    }

    /// The server's utilisation as its last heartbeat told it, in parts per
    /// million; `None` before the first one.
    pub fn server_utilisation_ppm(&self) -> Option<u64> {
        self.right.utilisation_ppm_plus_1().checked_sub(1)
    }

    /// Sets a key. False if the condition did not hold.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn set(&mut self, key: &[u8], value: &[u8], options: SetOptions) -> Result<bool, Error> {
        if value.len() > MAX_VALUE_BYTES {
            return Err(Error::ValueTooLong);
        }
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
        let mut refused = None;
        let mut tickets = Vec::new();
        for chunk in pairs.chunks(PIPELINE_CHUNK) {
            tickets.clear();
            for &(key, value) in chunk {
                let (condition, expiry) = (Condition::Always, Expiry::Never);
                let command = Command::Set { key, value, condition, expiry, get: false };
                // What was sent before has to be answered in any case.
                match self.send(&command) {
                    Ok(sent) => tickets.push(sent),
                    Err(error) if error.is_final() => return Err(error),
                    Err(error) => refused = Some(error),
                }
            }
            for &(shard, ticket) in &tickets {
                let status = self.collect(shard, ticket)?.status;
                if status != Status::Ok {
                    refused = Some(Error::Refused(status));
                }
            }
            if let Some(refused) = refused {
                return Err(refused);
            }
        }
        Ok(())
    }

    /// A key's hash and its shard, by consistent hashing at the client (H1).
    #[inline(always)]
    pub(crate) fn route(&self, key: &[u8]) -> Result<(KeyHash, usize), Error> {
        if key.len() > MAX_KEY_BYTES {
            return Err(Error::KeyTooLong);
        }
        let hash = KeyHash::of(key, self.hash_seed);
        Ok((hash, hash.shard(self.shards.len())))
    }

    /// Reads the clock, and does what is due by it.
    #[inline(always)]
    pub(crate) fn now(&mut self) -> Result<u64, Error> {
        // Never 0: 0 is "no time".
        self.clock_ns = self.start.elapsed().as_nanos() as u64 + 1;
        if self.right.refresh(self.clock_ns).is_err() {
            return Err(self.end(Error::SessionEnded));
        }
        Ok(self.clock_ns)
    }

    /// Whether the session can be used at all.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(over) = self.over {
            return Err(over);
        }
        if !self.guard.same_process() {
            return Err(Error::Forked);
        }
        Ok(())
    }

    /// Ends the session for good.
    #[cold]
    pub(crate) fn end(&mut self, error: Error) -> Error {
        self.over.get_or_insert(error);
        error
    }

    /// Whether reading may conclude for this shard: none of this session's
    /// writes there is unanswered.
    #[inline(always)]
    pub(crate) fn may_read(&self, shard: usize) -> bool {
        self.shards[shard].writes == 0
    }

    /// How a path treats a key without a usable pointer: `Read` walks, the
    /// others ask.
    #[inline(always)]
    pub(crate) fn walks(path: Path) -> bool {
        path == Path::Read
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("server_pid", &self.server_pid)
            .field("transport", &self.transport().name())
            .field("shards", &self.shards.len())
            .field("totals", &self.totals)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}
