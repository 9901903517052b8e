//! The connection of one client process to one server, shared by all of the
//! process's threads (H41: fewer connections). Their rings are `crate::ring_set`'s.

mod make;
#[cfg(test)]
mod models;

pub use make::Parts;

use crate::admission::Admission;
use crate::api::{Options, PointerCacheKind, SendCounts};
use crate::clock::Clock;
use crate::data_buffers::{DataBufferCounts, DataBuffers};
use crate::error::{ConnectError, Error};
use crate::inbox::Inbox;
use crate::pointer_file::PointerTable;
use crate::ring_set::{RingSet, SetParts};
use crate::session::Session;
use crate::sync::{AtomicUsize, Mutex, MutexGuard};
use remora_arena::{ForkGuard, ReadView, Words};
use remora_fabric::far;
use remora_fabric::shm::{Bell, Doorbell, ShmLink};
use remora_fabric::{Address, AnyLink, Connected, Link, LockWaits, Transport};
use remora_index::hash::TableRef;
use remora_layout::hello::ServerHello;
use remora_layout::limits::{
    MAX_CLIENT_SESSIONS, MAX_SEARCH_REPLY_BYTES, MIN_SEARCH_REPLY_BYTES, SEARCH_REPLY_ARENAS,
};
use remora_layout::session::WITHDRAWN_WORD;
use remora_layout::slot::SlotTable;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock, PoisonError, TryLockError};

/// A client process's connection to one server. Cheap to clone; every thread
/// takes a [`Session`] of its own from it.
#[derive(Clone)]
pub struct Client {
    connection: Arc<Connection>,
    options: Options,
    admission: Option<Arc<Admission>>,
}

impl Client {
    /// Asks the server at this address, its Unix socket or its TCP address,
    /// for a connection over the transport that the options ask for.
    ///
    /// # Errors
    /// Nobody listens there, the server refuses, the transport cannot be had,
    /// the memory that it passes is not acceptable, or shared pointers are
    /// asked for and not to be had.
    pub fn connect(address: impl Into<Address>, options: &Options) -> Result<Self, ConnectError> {
        let address = address.into();
        let (transport, patience) = (options.transport, options.connect_timeout);
        let connection =
            match remora_fabric::connect(&address, transport, patience, options.rdma_packets)? {
                Connected::Shm(connected) => Connection::over_shm(&address, *connected)?,
                Connected::Far(connected) => Connection::over_far(&address, *connected, options)?,
            };
        if options.pointer_cache == PointerCacheKind::Shared && connection.pointer_table.is_none() {
            return Err(ConnectError::NoPointerSharing { server: address });
        }
        Ok(Self::of(connection, options))
    }

    /// A connection over a fabric that is given. Each thread waits for itself:
    /// one session at a time.
    ///
    /// # Errors
    /// The process cannot tell itself from a forked child.
    ///
    /// # Panics
    /// Shared pointers are asked for, and the parts have no table.
    pub fn over(parts: Parts, options: &Options) -> Result<Self, ConnectError> {
        Ok(Self::of(Connection::over_parts(parts)?, options))
    }

    fn of(connection: Connection, options: &Options) -> Self {
        let admission = options.coordination.admission();
        Self { connection: Arc::new(connection), options: options.clone(), admission }
    }

    /// How many sessions may walk trees at a time by READs now; `None`: all.
    pub fn walks_at_a_time(&self) -> Option<usize> {
        self.admission.as_ref().map(|admission| admission.limit())
    }

    /// What carries the connection.
    pub fn transport(&self) -> Transport {
        self.connection.transport()
    }

    /// The RDMA device of this machine that carries the connection, if one does.
    pub fn rdma_device(&self) -> Option<&str> {
        match &self.connection.carrier {
            Carrier::Far(carrier) => carrier.device(),
            _ => None,
        }
    }

    /// How much memory there is for large replies.
    pub fn data_buffers(&self) -> DataBufferCounts {
        self.connection.data_buffers.counts()
    }

    /// The server's shards.
    pub fn shards(&self) -> usize {
        self.connection.tables.len()
    }

    /// Times that a thread had to wait for another at a lock that a request or its reply
    /// goes by: at a ring, an inbox, the memory for large replies, and over a network at
    /// the connection and what it delivers. Over shared memory none has to, as long as
    /// there are no more sessions than ring sets and no large replies. Over TCP
    /// locks are held for a copy of frames, and for the signal to their receiver.
    pub fn lock_waits(&self) -> u64 {
        let at_rings: u64 = self.connection.sets().map(|set| set.lock_waits.get()).sum();
        let over_network = match &self.connection.carrier {
            Carrier::Far(carrier) => carrier.lock_waits(),
            Carrier::Shm { .. } | Carrier::Other(_) => 0,
        };
        at_rings + self.connection.data_buffers.lock_waits() + over_network
    }

    /// What the process's sessions have sent so far.
    pub fn sends(&self) -> SendCounts {
        let mut counts = SendCounts::default();
        for lane in self.connection.sets().flat_map(|set| &set.lanes) {
            lane.sends.add_to(&mut counts);
        }
        counts
    }

    /// A session for one thread.
    ///
    /// # Errors
    /// The connection is over, the process is a forked child, or it already
    /// has [`MAX_CLIENT_SESSIONS`] sessions.
    pub fn session(&self) -> Result<Session, Error> {
        Session::new(Arc::clone(&self.connection), &self.options, self.admission.clone())
    }
}

/// See the module's text.
pub(crate) struct Connection {
    pub guard: ForkGuard,
    /// The session's number at the server.
    pub number: u64,
    pub life: u64,
    pub hash_seed: u64,
    /// Which shard has which slot; none where one shard has all.
    pub slots: Option<Box<SlotTable>>,
    pub server_pid: u32,
    /// The clock of this machine.
    pub time: Clock,
    /// Where the reading right writes the client's clock: the mailbox itself,
    /// or with a far server a copy that each session sends on.
    pub clock: Words,
    /// The mailbox that the server writes.
    pub to_client: ReadView,
    /// The table of pointers that the machine's clients share.
    pub pointer_table: Option<PointerTable>,
    /// Each shard's table, as it was when the process connected.
    pub tables: Vec<TableRef>,
    /// Bytes of all replies to one search, at most.
    pub search_bytes: u64,
    /// Seed of the rings.
    seed: u64,
    /// By number; each is made when a session first stands there.
    sets: Vec<OnceLock<Arc<RingSet>>>,
    /// Memory into which the server writes large replies.
    pub data_buffers: Arc<DataBuffers>,
    carrier: Carrier,
    /// Threads that poll for their replies.
    pub pollers: AtomicUsize,
    over: OnceLock<Error>,
}

/// What carries a connection.
enum Carrier {
    Shm {
        /// Its end is the session's end.
        socket: UnixStream,
        to_server: Words,
        arenas: Vec<ReadView>,
        /// Wakes each shard.
        bells: Vec<Bell>,
    },
    /// With a server that is reached by TCP.
    Far(far::Carrier),
    /// What makes a link for one session.
    Other(Box<MakeLink>),
}

/// Makes a link on a connection: regions 0 .. shards are the arenas, region
/// `shards` is the client's mailbox at the server.
pub type MakeLink = dyn Fn() -> AnyLink + Send + Sync;

impl Connection {
    #[allow(clippy::too_many_arguments, reason = "the parts of a connection, named once")]
    fn new(
        hello: &ServerHello,
        clock: Words,
        to_client: ReadView,
        pointer_table: Option<PointerTable>,
        tables: Vec<TableRef>,
        data_buffers: Arc<DataBuffers>,
        carrier: Carrier,
    ) -> Result<Self, ConnectError> {
        let slots = hello.slot_table().expect("looked at when the client connected");
        let sets = match carrier {
            Carrier::Shm { .. } => hello.ring_sets().expect("looked at when the client connected"),
            Carrier::Far(_) | Carrier::Other(_) => 1,
        };
        let largest = tables.iter().map(|table| table.region_bytes).max().unwrap_or(0);
        Ok(Self {
            search_bytes: largest
                .saturating_mul(SEARCH_REPLY_ARENAS)
                .clamp(MIN_SEARCH_REPLY_BYTES, MAX_SEARCH_REPLY_BYTES),
            guard: ForkGuard::new()?,
            number: hello.session.get(),
            life: hello.life.get(),
            hash_seed: hello.hash_seed.get(),
            slots: (tables.len() > 1).then(|| Box::new(slots)),
            server_pid: hello.pid.get(),
            time: Clock::Boottime,
            clock,
            to_client,
            pointer_table,
            tables,
            seed: hello.session_seed.get(),
            sets: (0..sets).map(|_| OnceLock::new()).collect(),
            data_buffers,
            carrier,
            pollers: AtomicUsize::new(0),
            over: OnceLock::new(),
        })
    }

    /// What carries it.
    pub fn transport(&self) -> Transport {
        match &self.carrier {
            Carrier::Shm { .. } => Transport::Shm,
            Carrier::Far(carrier) => carrier.transport(),
            Carrier::Other(link) => link().transport(),
        }
    }

    /// A link for one session that stands at this ring set: regions 0 .. shards are
    /// the arenas, region `shards` is this client's mailbox at the server.
    pub fn link(&self, set: usize) -> AnyLink {
        match &self.carrier {
            Carrier::Shm { to_server, arenas, bells, .. } => {
                let mut link = ShmLink::new(Some((self.to_client.clone(), WITHDRAWN_WORD)));
                for (shard, (arena, bell)) in arenas.iter().zip(bells).enumerate() {
                    let mailboxes = (to_server.clone(), self.to_client.clone());
                    let bell = bell.clone();
                    let doorbell = Doorbell::new(mailboxes, arenas.len(), shard, set, bell);
                    link.add_readable(shard as u32, arena.clone());
                    link.add_doorbell(shard as u32, doorbell);
                }
                link.add_writable(self.mailbox(), to_server.clone());
                AnyLink::Shm(link)
            }
            Carrier::Far(carrier) => carrier.link(),
            Carrier::Other(link) => link(),
        }
    }

    /// Whether the memory for large replies is the server's, which gives pages
    /// back once it is told that a reply has been taken.
    pub fn gives_pages_back(&self) -> bool {
        matches!(self.carrier, Carrier::Shm { .. })
    }

    /// Whether nothing but a link can make a thread wait: it is not one of the
    /// system's.
    pub fn sleeps_by_link_alone(&self) -> bool {
        matches!(self.carrier, Carrier::Other(_))
    }

    /// Region of this client's mailbox at the server.
    pub fn mailbox(&self) -> u32 {
        self.tables.len() as u32
    }

    /// Whether the server still holds its end.
    pub fn look_after_server(&self) -> Result<(), Error> {
        let socket = match &self.carrier {
            Carrier::Shm { socket, .. } => socket,
            Carrier::Far(carrier) => {
                return carrier.look_after_peer().map_err(|error| self.end(error.into()));
            }
            Carrier::Other(_) => return Ok(()),
        };
        let mut byte = [0u8; 1];
        match rustix::net::recv(socket, &mut byte[..], rustix::net::RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(self.end(Error::ServerGone)),
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
            Err(_) => Err(self.end(Error::ServerGone)),
        }
    }

    /// Takes a session number: where it stands, and its inbox. `None` if all are in
    /// use. The first ones stand at sets of their own.
    pub fn take_number(&self) -> Option<(u16, Arc<RingSet>, Arc<Inbox>)> {
        let shards = self.tables.len();
        (0..MAX_CLIENT_SESSIONS).find_map(|number| {
            let at = number % self.sets.len();
            let set = self.sets[at].get_or_init(|| {
                let to_server = match &self.carrier {
                    Carrier::Shm { to_server, .. } => Some(to_server),
                    Carrier::Far(_) | Carrier::Other(_) => None,
                };
                let (sets, to_client) = (self.sets.len(), &self.to_client);
                let parts = SetParts { seed: self.seed, shards, sets, to_client, to_server };
                Arc::new(RingSet::new(&parts, at))
            });
            Some((number as u16, Arc::clone(set), set.take_number(number)?))
        })
    }

    /// The ring sets at which a session stands, or has stood.
    pub fn sets(&self) -> impl Iterator<Item = &Arc<RingSet>> {
        self.sets.iter().filter_map(OnceLock::get)
    }

    /// The error that ended the connection, if one has.
    #[inline(always)]
    pub fn over(&self) -> Option<Error> {
        self.over.get().copied()
    }

    /// Ends the connection for all sessions; the first error stays.
    #[cold]
    pub fn end(&self, error: Error) -> Error {
        let error = *self.over.get_or_init(|| error);
        for set in self.sets() {
            set.nudge_all();
            set.wake_sleeper();
        }
        if let Carrier::Far(carrier) = &self.carrier {
            carrier.close();
        }
        error
    }

    /// Passes over a link's completed WRITEs; one that failed ends all, and so
    /// does a link that failed by itself.
    #[inline]
    pub fn pass_over_writes(&self, link: &mut AnyLink) -> Result<(), Error> {
        while let Some(completion) = link.poll() {
            if let Err(error) = completion.result {
                return Err(self.end(error.into()));
            }
        }
        match link.failure() {
            Some(error) => Err(self.end(error.into())),
            None => Ok(()),
        }
    }
}

/// Locks; a panic of another thread while it held the lock was our bug and is
/// reported there, the rings stay usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`]; counts if another thread has the lock.
#[inline]
pub(crate) fn lock_counted<'m, T>(mutex: &'m Mutex<T>, waits: &LockWaits) -> MutexGuard<'m, T> {
    try_lock(mutex).unwrap_or_else(|| {
        waits.add();
        lock(mutex)
    })
}

/// Locks, if nobody else holds the lock.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
