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

use crate::api::{Options, PointerCacheKind};
use crate::error::{ConnectError, Error};
use crate::inbox::Inbox;
use crate::session::Session;
use remora_arena::{ForkGuard, Mapping, RegionKind, Words};
use remora_fabric::shm::{self, Bell, ShmLink, Sleeper};
use remora_fabric::{Link, Transport};
use remora_index::hash::TableRef;
use remora_layout::frame::ring_seed;
use remora_layout::limits::{MAX_CLIENT_SESSIONS, POINTER_TABLE_BYTES};
use remora_layout::session::{CLIENT_ASLEEP_WORD, WITHDRAWN_WORD, credit_word, ring_offset};
use remora_ring::{Receiver, Sender};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// A client process's connection to one server. Cheap to clone; every thread
/// takes a [`Session`] of its own from it.
#[derive(Clone)]
pub struct Client {
    connection: Arc<Connection>,
    options: Options,
}

impl Client {
    /// Asks the server at this Unix socket for a connection over shared memory.
    ///
    /// # Errors
    /// Nobody listens there, the server refuses, the memory that it passes is
    /// not acceptable, or shared pointers are asked for and not to be had.
    pub fn connect(socket: &Path, options: &Options) -> Result<Self, ConnectError> {
        let connection = Arc::new(Connection::new(socket)?);
        if options.pointer_cache == PointerCacheKind::Shared && connection.pointer_table.is_none() {
            return Err(ConnectError::NoPointerSharing {
                server: socket.into(),
                transport: Transport::Shm,
            });
        }
        Ok(Self { connection, options: options.clone() })
    }

    /// A session for one thread.
    ///
    /// # Errors
    /// The connection is over, the process is a forked child, or it already
    /// has [`MAX_CLIENT_SESSIONS`] sessions.
    pub fn session(&self) -> Result<Session, Error> {
        Session::new(Arc::clone(&self.connection), &self.options)
    }
}

/// See the module's text.
pub(crate) struct Connection {
    pub guard: ForkGuard,
    pub socket: UnixStream,
    /// The session's number at the server.
    pub number: u64,
    pub life: u64,
    pub hash_seed: u64,
    pub server_pid: u32,
    pub to_server: Words,
    pub to_client: Words,
    arenas: Vec<Words>,
    /// The table of pointers that the machine's clients share, and its seed.
    pub pointer_table: Option<(Words, u64)>,
    pub lanes: Vec<Lane>,
    /// Inboxes by session number.
    inboxes: Vec<OnceLock<Inbox>>,
    /// Held by the one thread that sleeps in the kernel for all.
    pub sleeper: Mutex<Sleeper>,
    /// Wakes that thread.
    eventfd: Arc<OwnedFd>,
    /// Threads that poll for their replies.
    pub pollers: AtomicUsize,
    over: OnceLock<Error>,
}

/// One ring pair: this process's ends at one shard.
pub(crate) struct Lane {
    pub sender: Mutex<Sender>,
    pub receiver: Mutex<Receiver>,
    pub credit_word: usize,
    pub bell: Bell,
    /// The shard's table, as it was when the process connected.
    pub table: TableRef,
    /// Requests whose replies nobody has taken out of the ring.
    pub outstanding: AtomicU32,
}

impl Connection {
    fn new(socket: &Path) -> Result<Self, ConnectError> {
        let connected = shm::connect(socket)?;
        let hello = connected.hello;
        let mailbox = connected.arenas.len() as u32;
        let seed = hello.session_seed.get();
        let mut lanes = Vec::with_capacity(connected.arenas.len());
        for (number, (arena, bell)) in connected.arenas.iter().zip(connected.bells).enumerate() {
            let not_a_server = || ConnectError::NotAServer {
                server: socket.into(),
                what: "an arena's table lies outside of it",
            };
            let table = TableRef::read(number as u32, arena).ok_or_else(not_a_server)?;
            let ring = ring_offset(number);
            let sender = Sender::new(mailbox, ring as u64, ring_seed(seed, number, 0));
            let to_client = connected.to_client.clone();
            let receiver = Receiver::new(to_client, ring, ring_seed(seed, number, 1));
            lanes.push(Lane {
                sender: Mutex::new(sender),
                receiver: Mutex::new(receiver),
                credit_word: credit_word(number),
                bell,
                table,
                outstanding: AtomicU32::new(0),
            });
        }
        let pointer_table = match &connected.pointer_table {
            Some(fd) => {
                let mapping = Mapping::of_peer(fd.as_fd(), RegionKind::Hints, POINTER_TABLE_BYTES)?;
                Some((Words::new(mapping), hello.pointer_table_seed.get()))
            }
            None => None,
        };
        let sleeper = Sleeper::new(connected.to_server.clone(), CLIENT_ASLEEP_WORD)?;
        sleeper.watch(connected.eventfd.as_fd())?;
        sleeper.watch(connected.socket.as_fd())?;
        connected.socket.set_nonblocking(true)?;
        Ok(Self {
            guard: ForkGuard::new()?,
            socket: connected.socket,
            number: hello.session.get(),
            life: hello.life.get(),
            hash_seed: hello.hash_seed.get(),
            server_pid: hello.pid.get(),
            to_server: connected.to_server,
            to_client: connected.to_client,
            arenas: connected.arenas,
            pointer_table,
            lanes,
            inboxes: (0..MAX_CLIENT_SESSIONS).map(|_| OnceLock::new()).collect(),
            sleeper: Mutex::new(sleeper),
            eventfd: Arc::new(connected.eventfd),
            pollers: AtomicUsize::new(0),
            over: OnceLock::new(),
        })
    }

    /// A link for one session: regions 0 .. shards are the arenas, region
    /// `shards` is this client's mailbox at the server.
    pub fn link(&self) -> ShmLink {
        let mut link = ShmLink::new(Some((self.to_client.clone(), WITHDRAWN_WORD)));
        for (region, arena) in self.arenas.iter().enumerate() {
            link.add_region(region as u32, arena.clone(), false);
        }
        link.add_region(self.mailbox(), self.to_server.clone(), true);
        link
    }

    /// Region of this client's mailbox at the server.
    pub fn mailbox(&self) -> u32 {
        self.arenas.len() as u32
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

    /// Passes over a link's completed WRITEs; one that failed ends all.
    #[inline]
    pub fn pass_over_writes(&self, link: &mut ShmLink) -> Result<(), Error> {
        while let Some(completion) = link.poll() {
            if let Err(error) = completion.result {
                return Err(self.end(error.into()));
            }
        }
        Ok(())
    }

    /// Wakes the thread that sleeps in the kernel.
    pub fn wake_sleeper(&self) {
        Bell::new(self.to_server.clone(), CLIENT_ASLEEP_WORD, Arc::clone(&self.eventfd)).signal();
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
