//! Starting and ending a server.

use crate::accept_loop::{AcceptLoop, ClientHandler};
use crate::agent_inbox::AgentInbox;
use crate::balance::BusyShare;
use crate::clients::ServedClients;
use crate::clock::{Clock, wall_unix_ms};
use crate::cluster::{ClusterState, ClusterThread};
use crate::config::{Config, Data, Wanted};
use crate::control::{self, Control, Network};
use crate::disk::{
    DataDirectory, Disk, LogThread, Progress, RecoverAs, SnapshotPlace, SnapshotThread, recover,
};
use crate::fabric_acceptor::FabricClientHandler;
use crate::file_watch::FileWatch;
use crate::following::{Following, Resume, Role, RoleThread, Roles};
use crate::inbox::{Inbox, Message};
use crate::joint_gate::JointPlaces;
use crate::mongo::MongoClients;
use crate::numa::{self, ShardPlacement, Topology};
use crate::random::random_u64;
use crate::regions::RegionNumbers;
use crate::replica_view::{ReplicaView, TurnView};
use crate::resp::RespClients;
use crate::shard_loop::ShardLoop;
use crate::shared::{AgentCounts, PointerTable, ServerCounts, ShardHandle, Shared};
use crate::socket_file::SocketFile;
use crate::start_error::StartError;
use crate::tls::{self, Tls};
use crate::touch_hints::TouchHints;
use crate::traffic::TrafficSums;
use crate::turn_times::TurnTimes;
use crate::users::{self, UserTable};
use remora_arena::{MapError, NoJournal, ReadView, Region, RegionKind};
use remora_cluster::topology::MemberId;
use remora_engine::{Durability, Shard, ShardOptions, table_end};
use remora_fabric::shm::{Bell, Sleeper};
use remora_fabric::verbs::{self, VerbsError};
use remora_fabric::vital_thread;
use remora_layout::arena_header::{reserve_bytes, word};
use remora_layout::hash::checksum;
use remora_layout::limits::{
    LEASE_CONFIG_MAX_S, LOG_HELD_BYTES, MAX_ARENA_BYTES, MAX_MIN_REPLICAS, MAX_SHARDS,
    MIN_ARENA_BYTES, POINTER_TABLE_BYTES, READ_LEASE_MARGIN_MS, READ_LEASE_MS,
    SMALLEST_CHUNK_BUCKETS, TCP_BACKLOG,
};
use remora_layout::slot::SlotTable;
use remora_mongo::running::MongoServer;
use remora_resp::cluster::ClusterFacts;
use remora_storage::{Directory, GroupCommit, Lock, Promise};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Default number of a shard's first buckets: 64 KiB.
const FIRST_BUCKETS: u64 = 1024;

/// What a shard's thread alone has: the shard, and what it sleeps on.
type Own = (Shard<NoJournal>, Sleeper);

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    /// Dropped, and so removed, after all threads have ended.
    socket: SocketFile,
    shards: Vec<JoinHandle<()>>,
    control: Option<JoinHandle<()>>,
    /// Accept clients of RESP, and those of sessions with TLS.
    acceptors: Vec<(JoinHandle<()>, mio::Waker)>,
    /// Writes the log, if there is a data directory, which stays locked until then.
    log: Option<LogThread>,
    /// Writes snapshots.
    snapshots: Option<SnapshotThread>,
    /// Changes the role, and follows the primary of a replica.
    role: Option<RoleThread>,
    cluster: Option<ClusterThread>,
    /// Watch the users' file and those of TLS, where there are such.
    file_watches: Vec<FileWatch>,
    lock: Option<Lock>,
}

impl Server {
    /// Starts a server. Its listeners are bound and its shards run when this
    /// returns, which takes at least as long as a read lease of a former
    /// server on the same socket can last: until then nothing is acknowledged.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_watched(config, &Progress::logger())
    }

    /// As [`Server::start`]; `watch` gets how far it has come with the data directory, instead of
    /// the log.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_watched(config: Config, watch: &dyn Fn(Progress)) -> Result<Self, StartError> {
        let awaits_disk = match &config.data {
            None | Some(Data { promise: Promise::Memory, .. }) => false,
            Some(_) => true,
        };
        let knows_cluster = config.is_clustered();
        Self::start_with(config, (awaits_disk, knows_cluster), watch)
    }

    /// As [`Server::start`]; changes are durable once [`Server::set_durable`] says
    /// so. For tests, until there is a disk.
    ///
    /// # Errors
    /// See [`StartError`].
    #[doc(hidden)]
    pub fn start_told(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, (true, false), &Progress::logger())
    }

    /// As [`Server::start`]; to Redis clients the server is of a cluster that
    /// [`Server::set_cluster_facts`] tells of, although nobody tells it what to do. For tests.
    ///
    /// # Errors
    /// See [`StartError`].
    #[doc(hidden)]
    pub fn start_with_cluster_facts(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, (false, true), &Progress::logger())
    }

    /// What Redis clients are told of the cluster from now on. For tests.
    #[doc(hidden)]
    pub fn set_cluster_facts(&self, facts: ClusterFacts) {
        self.shared.set_cluster_facts(facts);
    }

    /// A shard's changes up to this sequence are durable.
    #[doc(hidden)]
    pub fn set_durable(&self, shard: usize, sequence: u64) {
        self.shared.shards[shard]
            .inbox
            .push(Message::Durable { durable: sequence, synced: sequence });
    }

    fn start_with(
        mut config: Config,
        (awaits_disk, knows_cluster): (bool, bool),
        watch: &dyn Fn(Progress),
    ) -> Result<Self, StartError> {
        check(&config)?;
        let is_told = awaits_disk || config.min_replicas > 0 || config.is_clustered();
        let durability = if is_told { Durability::Told } else { Durability::Memory };
        let shards = config.shards;
        let arena_bytes = (config.max_memory_bytes / shards as u64) & !4095;
        let buckets = buckets_per_shard(&config, arena_bytes)?;
        let (users, tls) = who_comes_in(&config)?;
        // Errors from here on are not caused by the settings.
        let (listener, mongo) = bind_clients(&mut config)?;
        let fabric = config.fabric_address.map(bind_tcp).transpose()?;
        let fabric_address = fabric.as_ref().map(TcpListener::local_addr).transpose()?;
        let (unix, socket) = SocketFile::bind(&config.socket_path)?;
        let data = config.data.as_ref().map(DataDirectory::open).transpose()?;
        let kept_ms = data.as_ref().map_or(0, |data| data.content.time_ms());
        let is_replica = config.begins_as_replica();
        let clock = if is_replica { Clock::start_at(kept_ms) } else { Clock::start_after(kept_ms) };
        let (incarnation, hash_seed) = (random_u64() | 1, random_u64());
        let epoch = data.as_ref().map_or(1, |data| data.content.epoch());
        let (topology, places) = placed(&config);
        let common = ShardOptions {
            incarnation,
            epoch,
            hash_seed,
            buckets,
            log_secret: data.as_ref().map_or_else(random_u64, |data| data.content.identity.secret),
            durability,
            reserve_bytes: reserve_bytes(arena_bytes),
            ..shard_options(&config)
        };
        let view = Arc::new(ReplicaView::begin(config.replica_reads, is_replica));
        let (handles, mut loops) =
            make_shards((&config, &view), (&topology, &places), (arena_bytes, common))?;
        let slots = Box::new(SlotTable::even(shards));
        let (disk, commit) =
            begin_disk(&config, (data.as_ref(), watch), (&mut loops, &slots))?.unzip();
        let role = first_role(&config, disk.is_some(), &mut loops);
        let pointer_table = config.pointer_sharing.then(pointer_table).transpose()?;
        let verbs = rdma_devices(&config, &handles)?;
        let shared = Arc::new(Shared {
            resp_address: config.resp_address,
            mongo: config.mongo_address.map(|_| mongo_server(&clock, &config)).transpose()?,
            users,
            tls,
            config,
            fabric_address,
            clock,
            incarnation,
            numa_nodes: topology.nodes(),
            hash_seed,
            shards: handles,
            slots,
            disk,
            view,
            joint_durable: JointPlaces::new(shards),
            joint_synced: JointPlaces::new(shards),
            awaits_disk,
            roles: Arc::new(Roles::new(role, epoch)),
            cluster: ClusterState::new(member_of(data.as_ref())),
            pointer_table,
            verbs,
            stopping: false.into(),
            control: OnceLock::new(),
            cluster_facts: knows_cluster.then(Arc::default),
            counts: ServerCounts::default(),
            agents: (0..shards).map(|_| AgentCounts::default()).collect(),
            tcp_traffic: TrafficSums::default(),
            verbs_traffic: TrafficSums::default(),
        });
        let mut server = Self::begin(shared, (socket, commit), data)?;
        server.spawn(loops, &places, unix, fabric, (listener, mongo))?;
        server.begin_roles()
    }

    /// Starts the threads that change the server's role, and those that watch files.
    fn begin_roles(mut self) -> Result<Self, StartError> {
        let shared = &self.shared;
        self.role = Some(RoleThread::start(Arc::clone(shared))?);
        if let Some(settings) = shared.config.cluster.clone() {
            self.cluster = Some(ClusterThread::start(Arc::clone(shared), settings)?);
        }
        let (of, users) = (Arc::clone(shared), Arc::clone(&shared.users));
        self.file_watches.extend(users::watch(users, move || of.users_changed())?);
        if let Some(tls) = &shared.tls {
            self.file_watches.push(tls::watch(Arc::clone(tls))?);
        }
        Ok(self)
    }

    /// A server whose shards do not run yet: with the threads of its disk, if it has one, and once
    /// no client of a former incarnation believes what it reads.
    fn begin(
        shared: Arc<Shared>,
        (socket, commit): (SocketFile, Option<GroupCommit<Directory>>),
        data: Option<DataDirectory>,
    ) -> Result<Self, StartError> {
        // A client of a former incarnation may read its memory as fresh until its
        // read lease has lapsed; nothing may be acknowledged before.
        let lapse = Duration::from_millis(READ_LEASE_MS + READ_LEASE_MARGIN_MS);
        std::thread::sleep(lapse.saturating_sub(shared.clock.started().elapsed()));
        let kept_bytes = data.as_ref().map_or(0, |data| data.content.found.bytes());
        let log = commit
            .map(|commit| LogThread::start(Arc::clone(&shared), (commit, kept_bytes)))
            .transpose()?;
        let place = data.as_ref().map(|data| SnapshotPlace::behind(&data.content));
        let snapshots =
            place.map(|place| SnapshotThread::start(Arc::clone(&shared), place)).transpose()?;
        let lock = data.and_then(DataDirectory::into_lock);
        let (shards, control, role, cluster) = (Vec::new(), None, None, None);
        let (acceptors, file_watches) = (Vec::new(), Vec::new());
        Ok(Self {
            socket,
            shared,
            shards,
            control,
            acceptors,
            log,
            snapshots,
            role,
            cluster,
            file_watches,
            lock,
        })
    }

    fn spawn(
        &mut self,
        loops: Vec<Own>,
        places: &[ShardPlacement],
        unix: UnixListener,
        fabric: Option<TcpListener>,
        (listener, mongo): (TcpListener, Option<TcpListener>),
    ) -> Result<(), StartError> {
        let (placed, all_placed) = mpsc::channel();
        for (number, ((shard, sleeper), place)) in loops.into_iter().zip(places).enumerate() {
            let shard_loop = ShardLoop::new(Arc::clone(&self.shared), number, shard, sleeper);
            let core = place.core.map(|id| core_affinity::CoreId { id });
            let name = format!("shard-{number}");
            let placed = placed.clone();
            let thread = vital_thread::spawn(&name, move || {
                if let Some(core) = core
                    && !core_affinity::set_for_current(core)
                {
                    tracing::warn!(core = core.id, "cannot pin the shard to its core");
                }
                drop(placed);
                shard_loop.run();
            })?;
            self.shards.push(thread);
        }
        // Ends when every shard has its place.
        drop(placed);
        let _: Result<(), _> = all_placed.recv();
        let poll = mio::Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), control::WAKER)?;
        self.shared.control.get_or_init(|| waker);
        unix.set_nonblocking(true)?;
        let unix = mio::net::UnixListener::from_std(unix);
        let network = fabric.map(|listener| self.network(listener)).transpose()?;
        let control = Control::new(Arc::clone(&self.shared), poll, unix, network)?;
        let thread = vital_thread::spawn("control", move || control.run())?;
        self.control = Some(thread);
        self.spawn_acceptor("acceptor", listener, ServedClients::<RespClients>::new())?;
        if let Some(listener) = mongo {
            self.spawn_acceptor("mongo-acceptor", listener, ServedClients::<MongoClients>::new())?;
        }
        Ok(())
    }

    /// Starts the thread that accepts the clients of a listening socket.
    fn spawn_acceptor(
        &mut self,
        name: &str,
        listener: TcpListener,
        handler: impl ClientHandler + Send + 'static,
    ) -> std::io::Result<()> {
        let (acceptor, waker) = AcceptLoop::new(Arc::clone(&self.shared), listener, handler)?;
        let thread = vital_thread::spawn(name, move || acceptor.run())?;
        self.acceptors.push((thread, waker));
        Ok(())
    }

    /// Where the control thread's clients over TCP come from: with TLS a thread of its own makes their
    /// handshakes.
    fn network(&mut self, listener: TcpListener) -> std::io::Result<Network> {
        if self.shared.tls.is_none() {
            listener.set_nonblocking(true)?;
            return Ok(Network::Plain(mio::net::TcpListener::from_std(listener)));
        }
        let (handler, handshaken) = FabricClientHandler::new();
        self.spawn_acceptor("fabric-accept", listener, handler)?;
        Ok(Network::Tls(handshaken))
    }

    /// The RESP address.
    pub fn resp_address(&self) -> SocketAddr {
        self.shared.resp_address
    }

    /// The address for MongoDB's protocol, if the server speaks it.
    pub fn mongo_address(&self) -> Option<SocketAddr> {
        self.shared.config.mongo_address
    }

    /// The address for sessions over TCP, if there are any.
    pub fn fabric_address(&self) -> Option<SocketAddr> {
        self.shared.fabric_address
    }

    /// The socket for sessions over shared memory.
    pub fn socket_path(&self) -> &Path {
        self.socket.path()
    }

    /// The RDMA devices by which clients may have sessions, now.
    pub fn rdma_devices(&self) -> Vec<String> {
        self.shared.verbs.as_ref().map(verbs::Host::devices).unwrap_or_default()
    }

    /// The server's incarnation.
    pub fn incarnation(&self) -> u64 {
        self.shared.incarnation
    }

    /// The state that all its threads share.
    #[cfg(test)]
    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Drains: takes no new clients, finishes accepted requests, withdraws all sessions, joins all
    /// threads, and removes the socket if it is still its own.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.file_watches.drain(..).for_each(FileWatch::stop);
        if let Some(cluster) = self.cluster.take() {
            cluster.join();
        }
        if let Some(role) = self.role.take() {
            role.stop();
        }
        for (thread, waker) in self.acceptors.drain(..) {
            // Fails only if the poll is gone, and then the thread is gone too.
            let _ = waker.wake();
            vital_thread::join(thread);
        }
        // First RESP connections, which still need all shards for their last replies.
        let (done, all_done) = mpsc::channel();
        for shard in self.shared.shards.iter().filter(|_| !self.shards.is_empty()) {
            shard.inbox.push(Message::Drain(done.clone()));
        }
        drop(done);
        let _: Result<(), _> = all_done.recv();
        if let Some(thread) = self.control.take() {
            self.shared.wake_control();
            vital_thread::join(thread);
        }
        if let Some(snapshots) = self.snapshots.take() {
            snapshots.stop();
        }
        // Every connection of a session is withdrawn and closed by now.
        for shard in &self.shared.shards {
            shard.inbox.push(Message::Stop);
        }
        for thread in self.shards.drain(..) {
            vital_thread::join(thread);
        }
        if let Some(log) = self.log.take() {
            log.stop();
        }
        self.lock = None;
    }
}

/// The listeners of clients; the settings get their addresses.
fn bind_clients(config: &mut Config) -> Result<(TcpListener, Option<TcpListener>), StartError> {
    let resp = bind_tcp(config.resp_address)?;
    config.resp_address = resp.local_addr()?;
    let mongo = config.mongo_address.map(bind_tcp).transpose()?;
    config.mongo_address = mongo.as_ref().map(TcpListener::local_addr).transpose()?;
    Ok((resp, mongo))
}

/// What MongoDB's commands know of a server that starts now.
fn mongo_server(clock: &Clock, config: &Config) -> std::io::Result<Arc<MongoServer>> {
    let mut random = [0; 32];
    if !crate::random::fill(&mut random) {
        return Err(std::io::Error::other("the kernel gives no random bytes"));
    }
    let of = (env!("CARGO_PKG_VERSION"), std::process::id());
    let mut server = MongoServer::new(of, clock.now().unix_ms, random);
    server.is_synced =
        config.data.as_ref().is_some_and(|data| matches!(data.promise, Promise::Synced));
    Ok(Arc::new(server))
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.control.is_some() {
            self.stop();
        }
    }
}

/// All shards, empty.
fn make_shards(
    (config, view): (&Config, &Arc<ReplicaView>),
    (topology, places): (&Topology, &[ShardPlacement]),
    (arena_bytes, common): (u64, ShardOptions),
) -> Result<(Vec<ShardHandle>, Vec<Own>), StartError> {
    let mut regions = RegionNumbers::begin(random_u64());
    let mut handles = Vec::with_capacity(places.len());
    let mut loops = Vec::with_capacity(places.len());
    for place in places {
        let options = ShardOptions {
            region: regions.next(),
            record_secret: random_u64(),
            log_shard: handles.len() as u32,
            ..common
        };
        let node = place.node.filter(|_| topology.has_several());
        let region = arena(arena_bytes + common.reserve_bytes, node)?;
        let (handle, shard, sleeper) = make_shard((region, options), place, (config, view))?;
        handles.push(handle);
        loops.push((shard, sleeper));
    }
    Ok((handles, loops))
}

/// The users and the server's TLS.
fn who_comes_in(config: &Config) -> Result<(Arc<UserTable>, Option<Arc<Tls>>), StartError> {
    let tls = config.tls.clone().map(Tls::load).transpose()?;
    Ok((Arc::new(UserTable::new(config.users.clone())?), tls.map(Arc::new)))
}

/// The machine, and where the shards are on it.
fn placed(config: &Config) -> (Topology, Vec<ShardPlacement>) {
    let topology = Topology::of_this_process();
    let places = topology.places(config.shards, config.pin);
    numa::tell(&topology, &places);
    (topology, places)
}

/// What the settings say of a shard.
fn shard_options(config: &Config) -> ShardOptions {
    ShardOptions {
        lease_min_s: config.lease_min_ms.div_ceil(1000),
        quarantine_bytes: config.quarantine_bytes.div_ceil(config.shards as u64),
        eviction: config.eviction,
        upload_idle_s: config.upload_idle_s,
        ..ShardOptions::default()
    }
}

/// Brings the shards to the state that a data directory holds, and begins the log of this incarnation in
/// it.
fn begin_disk(
    config: &Config,
    (data, watch): (Option<&DataDirectory>, &dyn Fn(Progress)),
    (loops, slots): (&mut [Own], &SlotTable),
) -> Result<Option<(Disk, GroupCommit<Directory>)>, StartError> {
    let (Some(data), Some(settings)) = (data, &config.data) else { return Ok(None) };
    let started = Instant::now();
    let mut shards: Vec<&mut Shard<NoJournal>> = loops.iter_mut().map(|(shard, _)| shard).collect();
    let refused = |error| StartError::of_data(error, &settings.directory);
    let is_replica = config.begins_as_replica();
    let role = if is_replica { RecoverAs::Replica } else { RecoverAs::Primary };
    let recovered = recover(&data.content, (&mut shards, role), slots, watch);
    let (entries, first) = recovered.map_err(refused)?;
    if !is_replica {
        leave_primary(&mut shards).map_err(refused)?;
    }
    for (number, shard) in shards.iter_mut().enumerate() {
        shard.set_history(data.content.history(number, &first, settings.promise));
    }
    let commit = data.begin_log(first.clone()).map_err(|error| refused(error.into()))?;
    let place = (settings.directory.clone(), data.content.volume.clone());
    let disk = Disk::new(place, settings.promise, first);
    let saved_at_ms = data.content.snapshot_time_ms().unwrap_or_else(wall_unix_ms);
    disk.snapshots.saved_at_s.store(saved_at_ms / 1000, Ordering::Relaxed);
    let recovery_ms = started.elapsed().as_millis() as u64;
    disk.state.recovered.store(entries, Ordering::Relaxed);
    disk.state.recovery_ms.store(recovery_ms, Ordering::Relaxed);
    let directory = settings.directory.display();
    tracing::info!("{directory}: {entries} entries recovered in {recovery_ms} ms");
    Ok(Some((disk, commit)))
}

/// What a server begins as. The shards of a replica follow their primary, from where they were.
fn first_role(config: &Config, has_disk: bool, loops: &mut [Own]) -> Role {
    let shards = loops.len();
    let mut following = match &config.replica_of {
        Some(primary) => Following::new(primary.clone(), shards),
        None if config.is_clustered() => Following::unled(shards),
        None => return Role::Primary,
    };
    if !has_disk {
        let each = loops.iter_mut().enumerate();
        each.for_each(|(number, (shard, _))| shard.begin_following((number, shards), false));
    }
    following.resume(Resume::of(loops.iter().map(|(shard, _)| shard.followed_logs()).collect()));
    Role::Replica(Arc::new(following))
}

/// Shards that were recovered go on as a primary. If they were those of a replica, they leave the
/// primary that they followed: they have all that they had applied of it.
fn leave_primary(shards: &mut [&mut Shard<NoJournal>]) -> Result<(), StartError> {
    let followed = Resume::of(shards.iter().map(|shard| shard.followed_logs()).collect());
    if followed.is_empty() {
        return Ok(());
    }
    if !followed.is_whole() {
        return Err(StartError::Config(
            "it is of a replica whose copy of its primary is not complete: start it with replica_of, so that the copy is made again".into(),
        ));
    }
    tracing::warn!(
        "the data are those of a replica: this server is a primary now, with what it had applied"
    );
    shards.iter_mut().for_each(|shard| shard.forget_followed());
    Ok(())
}

/// The server, as a cluster knows it: by its data, or by chance if it keeps none.
fn member_of(data: Option<&DataDirectory>) -> MemberId {
    MemberId(match data.map(|data| &data.content.identity) {
        Some(identity) => checksum(&identity.cluster.to_le_bytes(), identity.secret) | 1,
        None => random_u64() | 1,
    })
}

/// Memory for a shard, on this node if it can be had there.
fn arena(bytes: u64, node: Option<u32>) -> Result<Region, StartError> {
    let region = Region::create("remora-arena", RegionKind::Arena, bytes as usize)?;
    // Before the first byte is touched.
    if let Some(node) = node
        && let Err(error) = region.prefer_node(node)
    {
        tracing::warn!(%error, node, "cannot place an arena on its node");
    }
    Ok(region)
}

/// A fresh shard in this memory: its public handle, the shard itself, and the object on which its
/// thread sleeps.
fn make_shard(
    (region, options): (Region, ShardOptions),
    place: &ShardPlacement,
    (config, shown): (&Config, &Arc<ReplicaView>),
) -> Result<(ShardHandle, Shard<NoJournal>, Sleeper), StartError> {
    let region_number = options.region;
    let owner = region.owner(NoJournal).expect("just created: nobody else owns it");
    let shard = Shard::new(owner, options);
    let view = region.view();
    let eventfd = Bell::eventfd()?;
    let sleeper = Sleeper::new(region.asleep_word())?;
    sleeper.watch(eventfd.as_fd(), 0)?;
    let bell = Bell::new(view.clone(), word::ASLEEP, eventfd);
    let handle = ShardHandle {
        agent: AgentInbox::new(bell.clone()),
        inbox: Inbox::new(config.shards, bell),
        rung: Arc::default(),
        node: place.node,
        region,
        region_number,
        view,
        turn_view: Arc::new(TurnView::new(Arc::clone(shown))),
        stats: shard.stats().into(),
        touched: Arc::new(TouchHints::new(config.eviction)),
        busy_ns: 0.into(),
        waited_ns2: 0.into(),
        sleeps: 0.into(),
        frames: 0.into(),
        ring_turns: 0.into(),
        clients_looked_at: 0.into(),
        rings_looked_at: 0.into(),
        doorbells: 0.into(),
        clients_parked: 0.into(),
        clients_unparked: 0.into(),
        jobs: 0.into(),
        held_replies: 0.into(),
        blocked_clients: 0.into(),
        in_sync_replicas: 0.into(),
        replicated: 0.into(),
        laggards: 0.into(),
        cluster: Mutex::default(),
        copy_turns: TurnTimes::default(),
        replicas: Mutex::default(),
        found_bytes: 0.into(),
        plans: Mutex::default(),
        searches: Arc::default(),
        busy_share: BusyShare::default(),
        connections: 0.into(),
        thread: Default::default(),
    };
    Ok((handle, shard, sleeper))
}

fn check(config: &Config) -> Result<(), StartError> {
    let wrong = |what: String| Err(StartError::Config(what));
    if config.shards == 0 || config.shards > MAX_SHARDS {
        return wrong(format!("shards = {}: must be 1 to {MAX_SHARDS}", config.shards));
    }
    let arena = config.max_memory_bytes / config.shards as u64;
    if !(MIN_ARENA_BYTES..=MAX_ARENA_BYTES).contains(&arena) {
        return wrong(format!(
            "max_memory = {} bytes over {} shards gives {arena} bytes each: must be {MIN_ARENA_BYTES} to {MAX_ARENA_BYTES}",
            config.max_memory_bytes, config.shards
        ));
    }
    if config.min_replicas > MAX_MIN_REPLICAS {
        let wanted = config.min_replicas;
        return wrong(format!("min_replicas = {wanted}: must be at most {MAX_MIN_REPLICAS}"));
    }
    let backlog = config.replica_backlog_bytes / config.shards as u64;
    if backlog > LOG_HELD_BYTES as u64 {
        return wrong(format!(
            "replica_backlog = {backlog} bytes of each shard: at most {LOG_HELD_BYTES}"
        ));
    }
    if config.lease_min_ms > LEASE_CONFIG_MAX_S * 1000 {
        return wrong(format!(
            "lease_min_ms = {}: must be at most {}",
            config.lease_min_ms,
            LEASE_CONFIG_MAX_S * 1000
        ));
    }
    Ok(())
}

/// The RDMA devices, if clients may use them. Without any that can be used,
/// `auto` does without; those that become active later are taken in then.
fn rdma_devices(
    config: &Config,
    shards: &[ShardHandle],
) -> Result<Option<verbs::Host>, VerbsError> {
    let is_wanted = config.transport == Wanted::Verbs;
    let may = config.fabric_address.is_some() && (is_wanted || config.transport == Wanted::Auto);
    if !may || (!is_wanted && !verbs::has_devices()) {
        return Ok(None);
    }
    let arenas: Vec<ReadView> = shards.iter().map(|shard| shard.view.clone()).collect();
    match verbs::Host::new(&arenas, &config.rdma_devices, &config.rdma_packets) {
        Ok(host) if is_wanted && host.devices().is_empty() => Err(VerbsError::NoPlace),
        Ok(host) => Ok(Some(host)),
        Err(error) if is_wanted => Err(error),
        Err(error) => {
            tracing::warn!(%error, "transport auto: without RDMA");
            Ok(None)
        }
    }
}

/// One table for each incarnation: it contains nothing that a former incarnation's clients wrote.
fn pointer_table() -> Result<PointerTable, MapError> {
    let region = Region::create("remora-pointers", RegionKind::Hints, POINTER_TABLE_BYTES)?;
    Ok(PointerTable { region, seed: random_u64() | 1 })
}

fn buckets_per_shard(config: &Config, arena_bytes: u64) -> Result<u64, StartError> {
    let wanted = match config.buckets {
        0 => FIRST_BUCKETS,
        buckets => buckets.div_ceil(config.shards as u64),
    };
    // From a page on, the directory suffices for any arena.
    let buckets = wanted.clamp(SMALLEST_CHUNK_BUCKETS, 1 << 31).next_power_of_two();
    // At least half of the memory is for records.
    if table_end(buckets) > arena_bytes / 2 {
        return Err(StartError::Config(format!(
            "buckets = {}: a table of {buckets} buckets takes more than half of a shard's {arena_bytes} bytes; raise max_memory or lower buckets",
            config.buckets
        )));
    }
    Ok(buckets)
}

fn bind_tcp(address: SocketAddr) -> Result<TcpListener, StartError> {
    let listen = || {
        let listener = TcpListener::bind(address)?;
        // The standard library's backlog is 128.
        rustix::net::listen(&listener, TCP_BACKLOG)?;
        Ok(listener)
    };
    listen().map_err(|source| StartError::Listen { what: address.to_string(), source })
}
