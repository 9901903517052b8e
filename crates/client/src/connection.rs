//! The connection of one client process to one server: one ring pair for each
//! shard, shared by all of the process's threads (H41: fewer connections).
//!
//! What it keeps true:
//! * a request is put into a ring under its lane's sending lock, a reply is
//!   taken under its lane's receiving lock: rings have one writer and one
//!   reader at a time;
//! * a reply names, in its id, the session that asked; whoever takes it hands
//!   it to that session's inbox, in the order of the ring;
//! * a session number is given out again only after every reply to its former
//!   holder has come.

mod make;
#[cfg(test)]
mod models;

pub use make::Parts;

use crate::admission::Admission;
use crate::api::{Options, PointerCacheKind};
use crate::clock::Clock;
use crate::data_buffers::{DataBufferCounts, DataBuffers};
use crate::error::{ConnectError, Error};
use crate::inbox::Inbox;
use crate::lane::Lane;
use crate::pointer_file::PointerTable;
use crate::session::Session;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, OwnBell, Sleeper};
use remora_arena::{ForkGuard, ReadView, Words};
use remora_fabric::far;
use remora_fabric::shm::{Bell, ShmLink};
use remora_fabric::{Address, AnyLink, Connected, Link, Transport, Waited};
use remora_layout::hello::ServerHello;
use remora_layout::limits::MAX_CLIENT_SESSIONS;
use remora_layout::session::WITHDRAWN_WORD;
use remora_layout::slot::SlotTable;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

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
        self.connection.lanes.len()
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
    /// Which shard has which slot.
    pub slots: Box<SlotTable>,
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
    pub lanes: Vec<Lane>,
    /// Memory into which the server writes large replies.
    pub data_buffers: Arc<DataBuffers>,
    carrier: Carrier,
    /// Inboxes by session number.
    inboxes: Vec<OnceLock<Inbox>>,
    /// Held by the one thread that sleeps in the kernel for all.
    pub sleep: Mutex<Sleep>,
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
        /// Wakes the thread that sleeps for all.
        own_bell: OwnBell,
    },
    /// With a server that is reached by TCP.
    Far(far::Carrier),
    /// What makes a link for one session.
    Other(Box<MakeLink>),
}

/// Makes a link on a connection: regions 0 .. shards are the arenas, region
/// `shards` is the client's mailbox at the server.
pub type MakeLink = dyn Fn() -> AnyLink + Send + Sync;

/// How one thread sleeps for all of the process.
pub(crate) enum Sleep {
    /// Until the server rings.
    Shm(Sleeper),
    /// Until something arrives, by the link of the thread that sleeps.
    ByLink,
}

impl Sleep {
    /// Sleeps until something may have come, unless `scan` finds that it has.
    /// Whether it slept.
    pub fn sleep(
        &mut self,
        link: &mut AnyLink,
        timeout: Duration,
        scan: impl FnOnce() -> bool,
    ) -> bool {
        match self {
            Self::Shm(sleeper) => {
                let before = sleeper.sleeps();
                sleeper.sleep(Some(timeout), scan);
                sleeper.sleeps() > before
            }
            // What arrives after the scan ends the wait.
            Self::ByLink => !scan() && link.wait(Some(timeout)) != Waited::Completed,
        }
    }
}

impl Connection {
    #[allow(clippy::too_many_arguments, reason = "the parts of a connection, named once")]
    fn new(
        hello: &ServerHello,
        clock: Words,
        to_client: ReadView,
        pointer_table: Option<PointerTable>,
        lanes: Vec<Lane>,
        data_buffers: Arc<DataBuffers>,
        carrier: Carrier,
        sleep: Sleep,
    ) -> Result<Self, ConnectError> {
        Ok(Self {
            guard: ForkGuard::new()?,
            number: hello.session.get(),
            life: hello.life.get(),
            hash_seed: hello.hash_seed.get(),
            slots: Box::new(hello.slot_table().expect("looked at when the client connected")),
            server_pid: hello.pid.get(),
            time: Clock::Boottime,
            clock,
            to_client,
            pointer_table,
            lanes,
            data_buffers,
            carrier,
            inboxes: (0..MAX_CLIENT_SESSIONS).map(|_| OnceLock::new()).collect(),
            sleep: Mutex::new(sleep),
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

    /// A link for one session: regions 0 .. shards are the arenas, region
    /// `shards` is this client's mailbox at the server.
    pub fn link(&self) -> AnyLink {
        match &self.carrier {
            Carrier::Shm { to_server, arenas, bells, .. } => {
                let mut link = ShmLink::new(Some((self.to_client.clone(), WITHDRAWN_WORD)));
                for (region, (arena, bell)) in (0u32..).zip(arenas.iter().zip(bells)) {
                    link.add_readable(region, arena.clone());
                    link.add_bell(region, bell.clone());
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
        self.lanes.len() as u32
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

    /// Takes a session number. `None` if all are in use.
    pub fn take_number(&self) -> Option<u16> {
        let free = |inbox: &Inbox| inbox.take_if_free();
        let at = self.inboxes.iter().position(|inbox| free(inbox.get_or_init(Inbox::default)))?;
        Some(at as u16)
    }

    /// The inbox of a session of this process; `None` for a number that the
    /// process never gave out.
    pub fn inbox(&self, number: u16) -> Option<&Inbox> {
        self.inboxes.get(number as usize)?.get()
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
        for inbox in self.inboxes.iter().filter_map(OnceLock::get) {
            inbox.nudge();
        }
        self.wake_sleeper();
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

    /// Wakes the thread that sleeps in the kernel. (With a far server it has
    /// what arrived before it sleeps: its link wakes for what comes later.)
    pub fn wake_sleeper(&self) {
        match &self.carrier {
            Carrier::Shm { own_bell, .. } => own_bell.signal(),
            Carrier::Far(carrier) if self.over().is_some() => carrier.close(),
            Carrier::Far(_) | Carrier::Other(_) => {}
        }
    }

    /// The thread that slept in the kernel for all no longer does: one of
    /// those who wait has to.
    pub fn hand_over_sleep(&self) {
        Words::full_fence();
        for inbox in self.inboxes.iter().map_while(OnceLock::get) {
            if inbox.nudge_if_parked() {
                return;
            }
        }
    }
}

/// Locks; a panic of another thread while it held the lock was our bug and is
/// reported there, the rings stay usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks, if nobody else holds the lock.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
