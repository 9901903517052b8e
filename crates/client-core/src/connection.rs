//! The connection of one client process to one server. All of the process's threads share it (H41:
//! fewer connections). `crate::ring_set` has their rings.

use crate::clock::Clock;
use crate::data_buffers::{ByLoad, DataBuffers};
use crate::error::{ConnectError, Error};
use crate::inbox::Inbox;
use crate::lane::pass_over_writes;
use crate::options::{Options, PointerCacheKind};
use crate::pointer_file::PointerTable;
use crate::ring_set::{RingSet, SetParts};
use crate::sync::AtomicUsize;
use remora_arena::{ForkGuard, Mapping, ReadView, Words};
use remora_fabric::remote::{self, LargeMemory};
use remora_fabric::shm::{self, Bell, Doorbell, ShmLink};
use remora_fabric::{Address, AnyLink, Link, Transport};
use remora_index::hash::TableRef;
use remora_layout::arena_header::word;
use remora_layout::hello::ServerHello;
use remora_layout::limits::{
    MAX_CLIENT_SESSIONS, MAX_SEARCH_REPLY_BYTES, MIN_SEARCH_REPLY_BYTES, SEARCH_REPLY_ARENAS,
};
use remora_layout::session::{CLIENT_LEFT_WORD, LINES_BYTES, WITHDRAWN_WORD};
use remora_layout::slot::SlotTable;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

const NO_TABLE: &str = "an arena's table lies outside of it";

/// See the module's text.
pub(crate) struct Connection {
    pub guard: ForkGuard,
    /// The session's number at the server.
    pub number: u64,
    pub incarnation: u64,
    pub hash_seed: u64,
    /// The shard of each slot; `None` if one shard has all.
    pub slots: Option<Arc<SlotTable>>,
    pub server_pid: u32,
    /// The user may not read everything: nothing is read, and the server asked.
    pub asks_only: bool,
    /// The clock of this machine.
    pub time: Clock,
    /// Where the read lease writes the client's clock: the mailbox itself, or with a remote server
    /// a copy that each session sends on.
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
    /// By number; the first session at a set creates it.
    sets: Vec<OnceLock<Arc<RingSet>>>,
    /// Memory into which the server writes large replies.
    pub data_buffers: Arc<DataBuffers>,
    pub backend: Backend,
    /// Threads that poll for their replies.
    pub pollers: AtomicUsize,
    over: OnceLock<Error>,
}

/// The transport's part of a connection.
pub(crate) enum Backend {
    Shm {
        /// The end of this socket is the end of the session.
        socket: UnixStream,
        to_server: Words,
        arenas: Vec<ReadView>,
        /// Wakes each shard.
        bells: Vec<Bell>,
    },
    /// The connection to a server over TCP or RDMA.
    Remote(remote::RemoteConnection),
    /// Creates a link for one session.
    Other(Box<MakeLink>),
}

/// Creates a link on a connection: regions 0 .. shards are the arenas, region `shards` is the
/// client's mailbox at the server.
pub type MakeLink = dyn Fn() -> AnyLink + Send + Sync;

/// The parts of a connection over a given fabric, made without dialling: the server's answer, and
/// the memory that already exists.
pub struct Parts {
    /// The server's answer.
    pub hello: ServerHello,
    /// Each shard's table.
    pub tables: Vec<TableRef>,
    /// The mailbox that the server writes.
    pub to_client: ReadView,
    /// The buffer into which the server writes large replies.
    pub large: ReadView,
    /// Creates each session's link. It does not complete operations at once.
    pub link: Box<MakeLink>,
    /// The clock of the client's machine.
    pub clock: Clock,
    /// The table of pointers that the machine's clients share, with the seed
    /// of its checksums.
    pub pointers: Option<(Words, u64)>,
}

impl Connection {
    pub fn over_shm(address: &Address, connected: shm::Connected) -> Result<Self, ConnectError> {
        let not_a_server = |what| ConnectError::NotAServer { server: address.clone(), what };
        let hello = connected.hello;
        let arenas = connected.arenas.iter().enumerate();
        let tables: Option<Vec<TableRef>> =
            arenas.map(|(shard, arena)| TableRef::read(hello.region(shard), arena)).collect();
        let tables = tables.ok_or(not_a_server(NO_TABLE))?;
        let seed = hello.pointer_table_seed.get();
        let pointer_table = connected.pointer_table.as_ref();
        let pointer_table =
            pointer_table.map(|fd| PointerTable::of_server(fd.as_fd(), seed)).transpose()?;
        connected.socket.set_nonblocking(true)?;
        let clock = connected.to_server.clone();
        let backend = Backend::Shm {
            socket: connected.socket,
            to_server: connected.to_server,
            arenas: connected.arenas,
            bells: connected.bells,
        };
        let large = DataBuffers::region(connected.large);
        Self::new(&hello, clock, connected.to_client, pointer_table, tables, large, backend)
    }

    pub fn over_network(
        address: &Address,
        connected: remote::Connected,
        options: &Options,
    ) -> Result<Self, ConnectError> {
        let not_a_server = |what| ConnectError::NotAServer { server: address.clone(), what };
        let hello = connected.hello;
        let arenas = connected.arenas.iter().enumerate();
        let table = |(shard, arena): (usize, &remote::ArenaHeader)| {
            TableRef::parse(hello.region(shard), arena.word(word::REGION_BYTES), arena.page())
        };
        let tables: Option<Vec<TableRef>> = arenas.map(table).collect();
        let tables = tables.ok_or(not_a_server(NO_TABLE))?;
        let is_shared = options.pointer_cache == PointerCacheKind::Shared
            && hello.pointer_table_seed.get() != 0;
        let directory = options.pointer_directory.as_deref();
        let pointer_table =
            is_shared.then(|| PointerTable::of_machine(directory, &hello)).transpose()?;
        let clock = Words::new(Mapping::heap(LINES_BYTES));
        let backend = Backend::Remote(connected.connection);
        let large = match connected.large {
            LargeMemory::Region(view) => DataBuffers::region(view),
            LargeMemory::Registered(memory) => {
                let base_bytes = options.data_buffer_bytes;
                DataBuffers::registered(Box::new(ByLoad { memory, base_bytes }), Clock::default())
            }
        };
        Self::new(&hello, clock, connected.to_client, pointer_table, tables, large, backend)
    }

    pub fn over_parts(parts: Parts) -> Result<Self, ConnectError> {
        let Parts { hello, tables, to_client, large, link, clock: time, pointers } = parts;
        let clock = Words::new(Mapping::heap(LINES_BYTES));
        let large = DataBuffers::region(large);
        let backend = Backend::Other(link);
        let pointers = pointers.map(PointerTable::of_parts);
        let connection = Self::new(&hello, clock, to_client, pointers, tables, large, backend)?;
        Ok(Self { time, ..connection })
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a connection, named once")]
    pub fn new(
        hello: &ServerHello,
        clock: Words,
        to_client: ReadView,
        pointer_table: Option<PointerTable>,
        tables: Vec<TableRef>,
        data_buffers: Arc<DataBuffers>,
        backend: Backend,
    ) -> Result<Self, ConnectError> {
        let slots = hello.slot_table().expect("looked at when the client connected");
        let sets = match backend {
            Backend::Shm { .. } => hello.ring_sets().expect("looked at when the client connected"),
            Backend::Remote(_) | Backend::Other(_) => 1,
        };
        let largest = tables.iter().map(|table| table.region_bytes).max().unwrap_or(0);
        Ok(Self {
            search_bytes: largest
                .saturating_mul(SEARCH_REPLY_ARENAS)
                .clamp(MIN_SEARCH_REPLY_BYTES, MAX_SEARCH_REPLY_BYTES),
            guard: ForkGuard::new()?,
            number: hello.session.get(),
            incarnation: hello.incarnation.get(),
            hash_seed: hello.hash_seed.get(),
            slots: (tables.len() > 1).then(|| Arc::new(slots)),
            server_pid: hello.pid.get(),
            asks_only: hello.asks_only.get() != 0,
            time: Clock::Boottime,
            clock,
            to_client,
            pointer_table,
            tables,
            seed: hello.session_seed.get(),
            sets: (0..sets).map(|_| OnceLock::new()).collect(),
            data_buffers,
            backend,
            pollers: AtomicUsize::new(0),
            over: OnceLock::new(),
        })
    }

    /// The transport that carries it.
    pub fn transport(&self) -> Transport {
        match &self.backend {
            Backend::Shm { .. } => Transport::Shm,
            Backend::Remote(connection) => connection.transport(),
            Backend::Other(link) => link().transport(),
        }
    }

    /// A link for one session that stands at this ring set: regions 0 .. shards are
    /// the arenas, region `shards` is this client's mailbox at the server.
    pub fn link(&self, set: usize) -> AnyLink {
        match &self.backend {
            Backend::Shm { to_server, arenas, bells, .. } => {
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
            Backend::Remote(connection) => connection.link(),
            Backend::Other(link) => link(),
        }
    }

    /// Whether the server owns the memory for large replies, and gives pages back after the client
    /// reports that it took a reply.
    pub fn gives_pages_back(&self) -> bool {
        matches!(self.backend, Backend::Shm { .. })
    }

    /// Whether only a link can make a thread wait: then the link is not one of the system's.
    pub fn sleeps_by_link_alone(&self) -> bool {
        matches!(self.backend, Backend::Other(_))
    }

    /// Region of this client's mailbox at the server.
    pub fn mailbox(&self) -> u32 {
        self.tables.len() as u32
    }

    /// Checks whether the server still holds its end.
    pub fn look_after_server(&self) -> Result<(), Error> {
        let socket = match &self.backend {
            Backend::Shm { socket, .. } => socket,
            Backend::Remote(connection) => {
                return connection.look_after_peer().map_err(|error| self.end(error.into()));
            }
            Backend::Other(_) => return Ok(()),
        };
        let mut byte = [0u8; 1];
        match rustix::net::recv(socket, &mut byte[..], rustix::net::RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(self.end(Error::ServerGone)),
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
            Err(_) => Err(self.end(Error::ServerGone)),
        }
    }

    /// Lets nothing more into the memory of this end, as far as the server may rely on it.
    pub fn leave(&self) {
        match &self.backend {
            Backend::Shm { to_server, .. } => {
                to_server.store(CLIENT_LEFT_WORD, 1);
                // Either the server sees this, or this end sees what the server has written.
                Words::full_fence();
            }
            Backend::Remote(connection) => connection.close(),
            Backend::Other(_) => {}
        }
    }

    /// Takes a session number, with its ring set and its inbox. `None` if all are in use. The first
    /// sessions have sets of their own.
    pub fn take_number(&self) -> Option<(u16, Arc<RingSet>, Arc<Inbox>)> {
        let shards = self.tables.len();
        (0..MAX_CLIENT_SESSIONS).find_map(|number| {
            let at = number % self.sets.len();
            let set = self.sets[at].get_or_init(|| {
                let to_server = match &self.backend {
                    Backend::Shm { to_server, .. } => Some(to_server),
                    Backend::Remote(_) | Backend::Other(_) => None,
                };
                let (sets, to_client) = (self.sets.len(), &self.to_client);
                let parts = SetParts { seed: self.seed, shards, sets, to_client, to_server };
                Arc::new(RingSet::new(&parts, at))
            });
            Some((number as u16, Arc::clone(set), set.take_number(number)?))
        })
    }

    /// The ring sets that a session uses, or has used.
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
        if let Backend::Remote(connection) = &self.backend {
            connection.close();
        }
        error
    }

    /// Skips a link's completed WRITEs; a failed WRITE ends the connection, and so does a link that
    /// failed by itself.
    #[inline]
    pub fn pass_over_writes(&self, link: &mut AnyLink) -> Result<(), Error> {
        pass_over_writes(link).map_err(|error| self.end(error))
    }
}
