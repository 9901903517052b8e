//! Makes a session: the hellos, and the memory that is passed with them.

use super::bell::Bell;
use super::doorbell::Doorbell;
use super::link::ShmLink;
use super::socket;
use super::thread_bell::ThreadBell;
use crate::Transport;
use crate::address::Address;
use crate::detect::Wanted;
use crate::dialling::Dialling;
use crate::hello::{ConnectError, Dialled, check_answer, hello_of};
use remora_arena::{MapError, Mapping, ReadView, Region, RegionKind, Words};
use remora_layout::arena_header::{ARENA_MAGIC, word};
use remora_layout::hello::{PROTOCOL_VERSION, ServerHello};
use remora_layout::limits::{LARGE_BUFFER_BYTES, MAX_ARENA_BYTES, MAX_SHARDS, MIN_ARENA_BYTES};
use remora_layout::session::{WITHDRAWN_WORD, mailbox_bytes};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// A client's end of a new session.
pub struct Connected {
    /// The server's answer.
    pub hello: ServerHello,
    /// The socket; its end is the session's end.
    pub socket: UnixStream,
    /// The mailbox that this client writes.
    pub to_server: Words,
    /// The mailbox that the server writes.
    pub to_client: ReadView,
    /// The buffer into which the server writes large replies.
    pub large: ReadView,
    /// Ring sets in each mailbox.
    pub ring_sets: usize,
    /// Each shard's arena.
    pub arenas: Vec<ReadView>,
    /// Each shard's bell.
    pub bells: Vec<Bell>,
    /// The link: regions 0 .. shards are the arenas, region `shards` is the
    /// mailbox at the server.
    pub link: ShmLink,
    /// The table of shared pointers, if the server has one; not yet mapped.
    pub pointer_table: Option<OwnedFd>,
}

impl Connected {
    /// Tells a shard about frames in a ring set.
    pub fn doorbell(&self, shard: usize, set: usize) -> Doorbell {
        let mailboxes = (self.to_server.clone(), self.to_client.clone());
        Doorbell::new(mailboxes, self.arenas.len(), shard, set, self.bells[shard].clone())
    }

    /// Wakes, from the server, the thread of this ring set.
    pub fn thread_bell(&self, set: usize) -> ThreadBell {
        ThreadBell::new(self.to_server.clone(), self.arenas.len(), set)
    }
}

/// Asks the server at `path` for a session over shared memory.
pub fn connect(path: &Path) -> Result<Connected, ConnectError> {
    match dial(path, Wanted::Shm, &Dialling::default())? {
        Dialled::Session(connected) => Ok(connected),
        Dialled::Elsewhere(_) => Err(ConnectError::NotAServer {
            server: Address::Unix(path.to_owned()),
            what: "it sends us elsewhere",
        }),
    }
}

/// Says hello at a Unix socket: returns a session, or another address to dial.
pub(crate) fn dial(
    path: &Path,
    wanted: Wanted,
    dialling: &Dialling,
) -> Result<Dialled<Connected>, ConnectError> {
    let server = || Address::Unix(path.to_owned());
    let failed = |source: std::io::Error| match source.raw_os_error() {
        // It is this process that has no descriptor left.
        Some(code) if code == rustix::io::Errno::MFILE.raw_os_error() => source.into(),
        _ => ConnectError::Unreachable { server: server(), source },
    };
    let not_a_server = |what| ConnectError::NotAServer { server: server(), what };
    // First, because it may have to open a file for it.
    let hello = hello_of(wanted, &dialling.credentials)?;
    let socket = UnixStream::connect(path).map_err(failed)?;
    socket.set_read_timeout(Some(dialling.hello_timeout))?;
    socket.set_write_timeout(Some(dialling.hello_timeout))?;
    let sent = socket::send(&socket, hello.as_bytes(), &[]);
    let mut answer = ServerHello::new_zeroed();
    // A server without descriptors refuses before it reads anything: its reason has arrived
    // although the hello could not be sent.
    let received = socket::receive(&socket, answer.as_mut_bytes());
    let fds = received.map_err(|error| failed(sent.err().unwrap_or(error)))?;
    if check_answer(&answer, &hello, &server)? != Transport::Shm {
        return Ok(Dialled::Elsewhere(Box::new(answer)));
    }
    let shards = answer.shards.get() as usize;
    let has_table = answer.pointer_table_seed.get() != 0;
    if shards == 0 || shards > MAX_SHARDS || fds.len() != 3 + 2 * shards + has_table as usize {
        return Err(not_a_server("it announces an impossible number of shards"));
    }
    if answer.slot_table().is_none() {
        return Err(not_a_server("its table of slots is impossible"));
    }
    let Some(ring_sets) = answer.ring_sets() else {
        return Err(not_a_server("it announces an impossible number of ring sets"));
    };
    let mut fds = fds.into_iter();
    let mut next = || fds.next().expect("counted above");
    let bytes = ring_sets * mailbox_bytes(shards);
    let to_server = Words::new(Mapping::of_peer(next().as_fd(), bytes)?);
    let to_client = ReadView::of_peer(next().as_fd(), bytes)?;
    let large = ReadView::of_peer(next().as_fd(), LARGE_BUFFER_BYTES)?;
    let mut link = ShmLink::new(Some((to_client.clone(), WITHDRAWN_WORD)));
    let mut arenas = Vec::with_capacity(shards);
    let mut bells = Vec::with_capacity(shards);
    for shard in 0..shards {
        let arena =
            map_arena(next(), answer.region(shard), answer.incarnation.get()).map_err(|error| {
                match error {
                    ArenaError::Map(error) => ConnectError::Memory(error),
                    ArenaError::Wrong(what) => not_a_server(what),
                }
            })?;
        bells.push(Bell::new(arena.clone(), word::ASLEEP, Arc::new(next())));
        link.add_readable(shard as u32, arena.clone());
        arenas.push(arena);
    }
    link.add_writable(shards as u32, to_server.clone());
    let pointer_table = has_table.then(next);
    let hello = answer;
    Ok(Dialled::Session(Connected {
        hello,
        socket,
        to_server,
        to_client,
        large,
        ring_sets,
        arenas,
        bells,
        link,
        pointer_table,
    }))
}

enum ArenaError {
    Map(MapError),
    Wrong(&'static str),
}

fn map_arena(fd: OwnedFd, region: u32, incarnation: u64) -> Result<ReadView, ArenaError> {
    let size = rustix::fs::fstat(&fd)
        .map_err(|_| ArenaError::Wrong("an arena is not a file"))?
        .st_size as u64;
    if !(MIN_ARENA_BYTES..=MAX_ARENA_BYTES).contains(&size) {
        return Err(ArenaError::Wrong("an arena has an impossible size"));
    }
    let arena = ReadView::of_peer(fd.as_fd(), size as usize).map_err(ArenaError::Map)?;
    let expected = [
        (word::MAGIC, ARENA_MAGIC),
        (word::VERSION, PROTOCOL_VERSION as u64),
        (word::REGION, region as u64),
        (word::INCARNATION, incarnation),
        (word::REGION_BYTES, size),
    ];
    if expected.iter().any(|&(index, value)| arena.load_acquire(index) != value) {
        return Err(ArenaError::Wrong("an arena's header is not as it should be"));
    }
    Ok(arena)
}

/// The server's memory of one session.
pub struct SessionMemory {
    to_server: Region,
    to_client: Region,
    large: Arc<Region>,
    shards: usize,
    ring_sets: usize,
}

impl SessionMemory {
    /// Mailboxes of so many ring sets for `shards` shards. The memory of unused sessions is not
    /// touched.
    pub fn create(shards: usize, ring_sets: usize) -> Result<Self, ConnectError> {
        let bytes = ring_sets * mailbox_bytes(shards);
        Ok(Self {
            to_server: Region::create("remora-to-server", RegionKind::Mailbox, bytes)?,
            to_client: Region::create("remora-to-client", RegionKind::Readable, bytes)?,
            large: Arc::new(Region::create(
                "remora-large",
                RegionKind::Mailbox,
                LARGE_BUFFER_BYTES,
            )?),
            shards,
            ring_sets,
        })
    }

    /// The mailbox that the client writes. Every word may change at any time.
    pub fn to_server(&self) -> Words {
        self.to_server.words()
    }

    /// The mailbox that the server writes.
    pub fn to_client(&self) -> Words {
        self.to_client.words()
    }

    /// The client's buffer for large replies. The server only writes it: a client that changes it
    /// harms only itself.
    pub fn large(&self) -> &Arc<Region> {
        &self.large
    }

    /// The bell that wakes the client's thread that has this ring set.
    pub fn thread_bell(&self, set: usize) -> ThreadBell {
        ThreadBell::new(self.to_server.words(), self.shards, set)
    }

    /// Ends the session for the client: none of its operations completes successfully any more. It
    /// wakes the sleeping threads of the first `sets_used` ring sets.
    pub fn withdraw(&self, sets_used: usize) {
        self.to_client().store_release(WITHDRAWN_WORD, 1);
        Words::full_fence();
        for set in 0..sets_used.min(self.ring_sets) {
            self.thread_bell(set).signal();
        }
    }
}

/// The parts that a server grants: its hello, and for each shard arena and eventfd.
pub struct Grant<'a> {
    /// The answer.
    pub hello: ServerHello,
    /// The session's memory.
    pub memory: &'a SessionMemory,
    /// For each shard its arena and the eventfd that wakes it.
    pub shards: &'a [(BorrowedFd<'a>, BorrowedFd<'a>)],
    /// The table of shared pointers, if the hello tells its seed.
    pub pointer_table: Option<BorrowedFd<'a>>,
}

impl Grant<'_> {
    /// Sends the grant to the client.
    pub fn send(&self, socket: impl AsFd) -> std::io::Result<()> {
        let mut fds =
            vec![self.memory.to_server.fd(), self.memory.to_client.fd(), self.memory.large.fd()];
        for &(arena, eventfd) in self.shards {
            fds.extend([arena, eventfd]);
        }
        fds.extend(self.pointer_table);
        socket::send(socket, self.hello.as_bytes(), &fds)
    }
}

/// Answers without a session: a refusal, or where to dial instead
/// ([`crate::refusal`], [`crate::elsewhere`]).
pub fn decline(socket: impl AsFd, answer: &ServerHello) -> std::io::Result<()> {
    socket::send(socket, answer.as_bytes(), &[])
}
