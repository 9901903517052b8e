//! One client's session in the control thread: its transport, its heartbeats, its end.

use crate::agent::choose_agent;
use crate::agent_inbox::Served;
use crate::inbox::Message;
use crate::peer::Peer;
use crate::ring_session::{
    ClientEnd, RemoteEnd, RingParts, RingSession, SessionUser, ShmEnd, StoredBy,
};
use crate::shared::Shared;
use crate::thread_counts::count;
use crate::utilisation::Utilisation;
use remora_arena::{Mapping, ReadView, Words};
use remora_fabric::remote::{CLIENT_LARGE, CLIENT_MAILBOX};
use remora_fabric::shm::mark::ReadyMark;
use remora_fabric::shm::{self, Bell, ShmLink};
use remora_fabric::{
    AnyLink, HelloStream, Link, RemoteAddress, Transport, Work, remote, tcp, verbs,
};
use remora_layout::arena_header::ARENA_HEADER_BYTES;
use remora_layout::arena_header::word::RECORD_SECRET;
use remora_layout::hello::{Refusal, ServerHello};
use remora_layout::limits::MAX_RING_SETS;
use remora_layout::session::{CLIENT_CLOCK_WORD, HEARTBEAT_WORD, Heartbeat, mailbox_bytes};
use remora_ring::WRITE_ID;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A session.
pub struct Session {
    /// Its number.
    pub number: u64,
    backend: Backend,
    to_server: ReadView,
    beats: u64,
    /// The client's clock as it was last echoed.
    echoed_ns: u64,
    /// Set by a shard that finds a protocol violation in the rings.
    violated: Arc<AtomicBool>,
    /// Set by the agent when a TCP connection is at its end.
    has_ended: Arc<AtomicBool>,
    /// Threads of the client that have asked something, by the shards' rings.
    threads: Arc<AtomicU64>,
    /// How many of them are in the count of the server.
    counted: u64,
}

enum Backend {
    Shm {
        memory: shm::SessionMemory,
        to_client: Words,
        /// The client's wake-up of each shard.
        eventfds: Vec<Arc<OwnedFd>>,
    },
    Remote {
        connection: remote::RemoteConnection,
        /// For heartbeats.
        link: Box<AnyLink>,
    },
}

/// Ring sets of a client that comes so: over shared memory its sessions have
/// rings of their own.
pub fn ring_sets(transport: Transport) -> usize {
    if transport == Transport::Shm { MAX_RING_SETS } else { 1 }
}

fn no_room(error: impl std::fmt::Display) -> Refusal {
    tracing::error!(%error, "no room for a session");
    Refusal::NoResources
}

impl Session {
    /// A session over shared memory, its rings attached to the shards.
    ///
    /// # Errors
    /// There is no memory, or no descriptor.
    pub fn over_shm(
        shared: &Shared,
        (number, seed): (u64, u64),
        user: &SessionUser,
    ) -> Result<Self, Refusal> {
        let shards = shared.shards.len();
        let ring_sets = ring_sets(Transport::Shm);
        let memory = shm::SessionMemory::create(shards, ring_sets).map_err(no_room)?;
        let mut eventfds = Vec::with_capacity(shards);
        for _ in 0..shards {
            eventfds.push(Bell::eventfd().map_err(no_room)?);
        }
        let (to_server, to_client) = (memory.to_server(), memory.to_client());
        let (violated, threads) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (arenas, touched) = (shared.arenas(), shared.touched());
        for (shard, eventfd) in eventfds.iter().enumerate() {
            let mut link = ShmLink::new(None);
            link.add_writable(CLIENT_MAILBOX, to_client.clone());
            link.add_writable(CLIENT_LARGE, memory.large().words());
            attach(
                (shared, Peer::Local, user),
                RingParts {
                    session: number,
                    seed,
                    shard,
                    incarnation: shared.incarnation,
                    arenas: Arc::clone(&arenas),
                    touched: Arc::clone(&touched),
                    to_server: to_server.view(),
                    link: AnyLink::Shm(link),
                    large: Some(Arc::clone(memory.large())),
                    client: ClientEnd::Shm(ShmEnd {
                        to_server: to_server.clone(),
                        to_client: to_client.clone(),
                        shard,
                        ring_sets,
                        eventfd: Arc::clone(eventfd),
                    }),
                    violated: Arc::clone(&violated),
                    threads: Arc::clone(&threads),
                    searches: Arc::clone(&shared.shards[shard].searches),
                    view: Arc::clone(&shared.shards[shard].turn_view),
                },
            );
        }
        let backend = Backend::Shm { memory, to_client, eventfds };
        Ok(Self::new(number, backend, to_server.view(), violated, threads))
    }

    /// Sends a client over shared memory its file descriptors.
    ///
    /// # Errors
    /// The client has gone, or no more descriptors can be in flight.
    pub fn grant_shm(
        &self,
        shared: &Shared,
        socket: impl AsFd,
        hello: ServerHello,
    ) -> std::io::Result<()> {
        let Backend::Shm { memory, eventfds, .. } = &self.backend else { return Ok(()) };
        let shards: Vec<_> = shared
            .shards
            .iter()
            .zip(eventfds)
            .map(|(shard, eventfd)| (shard.region.fd(), eventfd.as_fd()))
            .collect();
        let table = shared.pointer_table.as_ref().filter(|_| hello.pointer_table_seed.get() != 0);
        let pointer_table = table.map(|table| table.region.fd());
        shm::Grant { hello, memory, shards: &shards, pointer_table }.send(socket)
    }

    /// A session over TCP: it sends the answer on `stream`, which the agent serves from now on.
    ///
    /// # Errors
    /// The socket or a descriptor cannot be had.
    pub fn over_tcp(
        shared: &Shared,
        stream: HelloStream,
        hello: ServerHello,
        user: &SessionUser,
    ) -> Result<Self, Refusal> {
        let (number, seed) = (hello.session.get(), hello.session_seed.get());
        let shards = shared.shards.len();
        let to_server = Words::new(Mapping::heap(mailbox_bytes(shards)));
        let arenas = match user.rights.may_read() {
            true => shared.arenas(),
            false => shared.arenas().iter().map(redacted_header).collect(),
        };
        let grant = tcp::Grant { hello, to_server: to_server.clone(), arenas: &arenas };
        let peer = Peer::of(stream.socket().peer_addr());
        let connection = grant.send(stream).map_err(no_room)?;
        shared.tcp_traffic.enter(number, Arc::clone(&connection));
        let connection = remote::RemoteConnection::Tcp(connection);
        let ends = (connection, shared.marks(), peer);
        Ok(Self::over(shared, (number, seed), ends, (to_server.view(), user)))
    }

    /// A session of this number and seed over RDMA, with connected queue pairs whose immediates set
    /// these marks; the agent serves it from now on.
    pub fn over_verbs(
        shared: &Shared,
        granted: (u64, u64),
        (connection, marks, peer): (Arc<verbs::Connection>, Arc<[ReadyMark]>, Peer),
        from: (ReadView, &SessionUser),
    ) -> Self {
        shared.verbs_traffic.enter(granted.0, Arc::clone(&connection));
        let connection = remote::RemoteConnection::Verbs(connection);
        Self::over(shared, granted, (connection, marks, peer), from)
    }

    fn over(
        shared: &Shared,
        (number, seed): (u64, u64),
        (connection, marks, peer): (remote::RemoteConnection, Arc<[ReadyMark]>, Peer),
        (to_server, user): (ReadView, &SessionUser),
    ) -> Self {
        let (violated, threads) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (arenas, touched) = (shared.arenas(), shared.touched());
        let agent = choose_agent(shared);
        for shard in 0..shared.shards.len() {
            let stored_by = match connection.transport() {
                Transport::Tcp if agent == shard => StoredBy::OwnThread,
                Transport::Tcp => StoredBy::OtherThread,
                _ => StoredBy::Device,
            };
            attach(
                (shared, peer, user),
                RingParts {
                    session: number,
                    seed,
                    shard,
                    incarnation: shared.incarnation,
                    arenas: Arc::clone(&arenas),
                    touched: Arc::clone(&touched),
                    to_server: to_server.clone(),
                    link: connection.link(),
                    large: None,
                    client: ClientEnd::Remote(RemoteEnd {
                        marks: Arc::clone(&marks),
                        shard,
                        stored_by,
                    }),
                    violated: Arc::clone(&violated),
                    threads: Arc::clone(&threads),
                    searches: Arc::clone(&shared.shards[shard].searches),
                    view: Arc::clone(&shared.shards[shard].turn_view),
                },
            );
        }
        let link = connection.link();
        let backend = Backend::Remote { connection: connection.clone(), link: Box::new(link) };
        let session = Self::new(number, backend, to_server, violated, threads);
        let has_ended = Arc::clone(&session.has_ended);
        shared.shards[agent].agent.serve(Served { connection, session: number, marks, has_ended });
        session
    }

    fn new(
        number: u64,
        backend: Backend,
        to_server: ReadView,
        violated: Arc<AtomicBool>,
        threads: Arc<AtomicU64>,
    ) -> Self {
        let has_ended = Arc::new(AtomicBool::new(false));
        let (beats, echoed_ns, counted) = (0, 0, 0);
        Self { number, backend, to_server, beats, echoed_ns, violated, has_ended, threads, counted }
    }

    /// Brings the server's count of its clients' threads over RDMA up to date.
    pub fn count_threads(&mut self, shared: &Shared) {
        let threads = self.threads.load(Ordering::Relaxed);
        if self.transport() == Transport::Verbs && threads > self.counted {
            count(&shared.counts.client_threads, threads - self.counted);
            self.counted = threads;
        }
    }

    /// The session's transport.
    pub fn transport(&self) -> Transport {
        match &self.backend {
            Backend::Shm { .. } => Transport::Shm,
            Backend::Remote { connection, .. } => connection.transport(),
        }
    }

    /// Why the session is at its end, if it is.
    pub fn end(&self) -> Option<&'static str> {
        if self.violated.load(Ordering::Acquire) {
            return Some("it broke the protocol, or waited for replicas without a result");
        }
        self.has_ended.load(Ordering::Acquire).then_some("the client has gone")
    }

    /// Whether the client has written its clock since the last heartbeat. A client that has not is
    /// not reading, and an echo of the old clock would not renew its read lease.
    pub fn clock_has_moved(&self) -> bool {
        self.to_server.load(CLIENT_CLOCK_WORD) != self.echoed_ns
    }

    /// Writes a heartbeat. Over RDMA the first one follows the client's first write of its clock:
    /// the client names the address to which the device sends, and only a WRITE that came from
    /// there shows that the address is the client's.
    pub fn beat(&mut self, shared: &Shared, utilisation: &Utilisation) {
        let echoed_client_clock_ns = self.to_server.load(CLIENT_CLOCK_WORD);
        if self.transport() == Transport::Verbs && echoed_client_clock_ns == 0 {
            return;
        }
        Words::full_fence();
        // Still the primary? A server that stops is not.
        if shared.is_stopping() {
            return;
        }
        self.echoed_ns = echoed_client_clock_ns;
        self.beats += 1;
        // A replica that shows nothing renews no read lease.
        let lag = shared.view.lag();
        let echoed_client_clock_ns = if lag.is_unknown() { 0 } else { echoed_client_clock_ns };
        let words = Heartbeat {
            sequence: self.beats,
            utilisation_ppm_plus_1: utilisation.ppm() + 1,
            wait_ns: utilisation.wait_ns(),
            incarnation: shared.incarnation,
            epoch: shared.roles.epoch(),
            topology: shared.cluster.published.version() as u16,
            server_unix_ms: shared.clock.told_unix_ms(),
            echoed_client_clock_ns,
            session: self.number,
            lag,
        }
        .to_words();
        let mut bytes = [0u8; Heartbeat::WORDS * 8];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        let offset = HEARTBEAT_WORD * 8;
        match &mut self.backend {
            Backend::Shm { to_client, .. } => to_client.copy_in(offset, &bytes),
            Backend::Remote { link, .. } => {
                let to = RemoteAddress { region: CLIENT_MAILBOX, offset: offset as u64 };
                link.post(&[Work::Write { id: WRITE_ID, to, bytes: &bytes, imm: None }]);
                // Bounded by the beats posted; a failure shows at the agent.
                while link.poll().is_some() {}
            }
        }
    }

    /// Ends the session for the client and at every shard: none of its operations completes
    /// successfully afterwards.
    pub fn withdraw(&self, shared: &Shared) {
        shared.counts.client_threads.fetch_sub(self.counted, Ordering::Relaxed);
        match &self.backend {
            // A thread that has asked nothing yet sees it by itself.
            Backend::Shm { memory, .. } => {
                memory.withdraw(self.threads.load(Ordering::Relaxed) as usize)
            }
            Backend::Remote { connection, .. } => {
                connection.withdraw();
                connection.close();
            }
        }
        shared.tcp_traffic.leave(self.number);
        shared.verbs_traffic.leave(self.number);
        self.detach(shared);
    }

    /// No shard carries out a request of it from now on.
    pub fn detach(&self, shared: &Shared) {
        for shard in &shared.shards {
            shard.inbox.push(Message::Detach(self.number));
        }
    }
}

/// The header of an arena as a client may know it who reads nothing else of it: without the secret of
/// the checksums.
fn redacted_header(arena: &ReadView) -> ReadView {
    let header = Words::new(Mapping::heap(ARENA_HEADER_BYTES));
    for word in (0..ARENA_HEADER_BYTES / 8).filter(|&word| word != RECORD_SECRET) {
        header.store(word, arena.load_acquire(word));
    }
    header.view()
}

fn attach((shared, peer, user): (&Shared, Peer, &SessionUser), parts: RingParts) {
    let inbox = &shared.shards[parts.shard].inbox;
    let session = RingSession::new(parts).at(peer, Arc::clone(&shared.roles));
    let session = session.of_user(user.clone());
    let session = session.of_cluster(Arc::clone(&shared.cluster.published));
    inbox.push(Message::Attach(Box::new(session)));
}
