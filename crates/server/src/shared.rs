//! State that all threads of the server share.

use crate::acknowledging::ShardReport;
use crate::agent_inbox::AgentInbox;
use crate::balance::BusyShare;
use crate::clock::Clock;
use crate::cluster::ClusterState;
use crate::cluster_facts::ClusterFactsCell;
use crate::config::Config;
use crate::disk::Disk;
use crate::following::Roles;
use crate::inbox::{Inbox, Message};
use crate::joint_gate::JointPlaces;
use crate::other_searches::OtherSearches;
use crate::plans::PlanCounts;
use crate::replica_view::{ReplicaView, TurnView};
use crate::ring_session::ReplicaPositions;
use crate::thread_counts::{ThreadCounts, count};
use crate::tls::Tls;
use crate::touch_hints::TouchHints;
use crate::traffic::TrafficSums;
use crate::turn_times::TurnTimes;
use crate::users::UserTable;
use remora_arena::{ReadView, Region};
use remora_cluster::topology::Instance;
use remora_engine::ShardStats;
use remora_fabric::shm::mark::{ReadyMark, RungClients};
use remora_fabric::{Transport, tcp, verbs};
use remora_layout::immediate::{self, Kind};
use remora_layout::slot::SlotTable;
use remora_mongo::running::MongoServer;
use remora_resp::cluster::ClusterFacts;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The public state of one shard.
pub struct ShardHandle {
    /// Its messages.
    pub inbox: Inbox,
    /// Parked clients over a network for which something has come.
    pub rung: Arc<RungClients>,
    /// Connections for the agent that its thread drives.
    pub agent: Arc<AgentInbox>,
    /// The NUMA node of its core and its arena; `None` if it has no place.
    pub node: Option<u32>,
    /// Its arena, to be granted to clients.
    pub region: Region,
    /// The number of that region.
    pub region_number: u32,
    /// Its arena, for optimistic reads by other threads.
    pub view: ReadView,
    /// What its thread answers by.
    pub turn_view: Arc<TurnView>,
    /// Its counts, some milliseconds old at most.
    pub stats: Mutex<ShardStats>,
    /// Records that other threads have read there.
    pub touched: Arc<TouchHints>,
    /// Nanoseconds spent on work since the start.
    pub busy_ns: AtomicU64,
    /// The sum over all turns of the turn's length times the time for which its clients made the
    /// others wait, ns squared; it wraps.
    pub waited_ns2: AtomicU64,
    /// Times it slept in the kernel.
    pub sleeps: AtomicU64,
    /// Frames it executed.
    pub frames: AtomicU64,
    /// Turns in which it executed some.
    pub ring_turns: AtomicU64,
    /// Clients whose ready bits it looked at in these turns.
    pub clients_looked_at: AtomicU64,
    /// Rings that it looked at in these turns.
    pub rings_looked_at: AtomicU64,
    /// Clients that rang while they were parked.
    pub doorbells: AtomicU64,
    /// Clients that are parked: it looks at them when they ring.
    pub clients_parked: AtomicU64,
    /// Clients that are not.
    pub clients_unparked: AtomicU64,
    /// Jobs it executed.
    pub jobs: AtomicU64,
    /// Replies that it holds back until they are durable, or behind others.
    pub held_replies: AtomicU64,
    /// Connections of its thread that wait for keys.
    pub blocked_clients: AtomicU64,
    /// Replicas of its in-sync set.
    pub in_sync_replicas: AtomicU64,
    /// The last entry of its log that is replicated.
    pub replicated: AtomicU64,
    /// Replicas that left the set because they lagged.
    pub laggards: AtomicU64,
    /// In a cluster, what the thread of the cluster wants to know of it, some milliseconds old at most.
    pub cluster: Mutex<ShardReport>,
    /// The replicas that it feeds, some milliseconds ago at most.
    pub replicas: Mutex<Vec<ReplicaPositions>>,
    /// Its turns with copies for replicas, since the start.
    pub copy_turns: TurnTimes,
    /// The plans of its thread, some milliseconds old at most.
    pub plans: Mutex<PlanCounts>,
    /// Bytes that its jobs under way have found and not replied yet.
    pub found_bytes: AtomicU64,
    /// Searches of other shards' trees that it was asked.
    pub searches: Arc<OtherSearches>,
    /// Share of the time that its thread was busy of late.
    pub busy_share: BusyShare,
    /// RESP connections that its thread serves or is about to.
    pub connections: AtomicU64,
    /// Its thread's counts of them.
    pub thread: ThreadCounts,
}

impl ShardHandle {
    /// The replicas that it feeds.
    pub fn replicas(&self) -> Vec<ReplicaPositions> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its counts, some milliseconds old at most.
    pub fn stats(&self) -> ShardStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts of one agent, which alone writes all but the first.
#[derive(Default)]
#[repr(align(64))]
pub struct AgentCounts {
    /// Connections that it was given and that have not ended.
    pub connections: AtomicU64,
    /// Turns of connections.
    pub turns: AtomicU64,
    /// Other shards that it notified of frames, each once for a batch.
    pub rings: AtomicU64,
    /// The number of them that slept and needed a signal.
    pub signals: AtomicU64,
}

/// The table of pointers that the clients share; the server never reads it.
pub struct PointerTable {
    /// Its memory, to be granted to clients.
    pub region: Region,
    /// Seed of its checksums; never 0.
    pub seed: u64,
}

/// State that all threads share.
pub struct Shared {
    /// The configuration at the start.
    pub config: Config,
    /// The address that RESP listens on.
    pub resp_address: SocketAddr,
    /// What MongoDB's commands know of the server, if it speaks that protocol.
    pub mongo: Option<Arc<MongoServer>>,
    /// The address on which clients ask for sessions over TCP.
    pub fabric_address: Option<SocketAddr>,
    /// The time.
    pub clock: Clock,
    /// New at every start; never 0.
    pub incarnation: u64,
    /// NUMA nodes that have cores or memory for this process.
    pub numa_nodes: usize,
    /// Seed of the key hash.
    pub hash_seed: u64,
    /// The shards, by number.
    pub shards: Vec<ShardHandle>,
    /// Maps slots to shards.
    pub slots: Box<SlotTable>,
    /// The table of shared pointers, if clients may have one.
    pub pointer_table: Option<PointerTable>,
    /// Set once when the server is to end.
    pub stopping: AtomicBool,
    /// Wakes the control thread, once there is one.
    pub control: OnceLock<mio::Waker>,
    /// The RDMA devices, with the arenas registered, if they are in use.
    pub verbs: Option<verbs::Host>,
    /// The log's disk, if there is one.
    pub disk: Option<Disk>,
    /// What clients may read.
    pub view: Arc<ReplicaView>,
    /// How far the shards' changes are durable as configured, for changes of two shards.
    pub joint_durable: JointPlaces,
    /// The same of the disk.
    pub joint_synced: JointPlaces,
    /// Replies wait for what is said to be on a disk.
    pub awaits_disk: bool,
    /// What this server is: a primary, or a replica.
    pub roles: Arc<Roles>,
    /// What there is of the cluster, if the server is of one.
    pub cluster: ClusterState,
    /// In a cluster, what this server knows of it for Redis clients.
    pub cluster_facts: Option<Arc<ClusterFactsCell>>,
    /// The users of RESP connections.
    pub users: Arc<UserTable>,
    /// TLS on the ports of TCP.
    pub tls: Option<Arc<Tls>>,
    /// Counts of the server.
    pub counts: ServerCounts,
    /// Counts of each agent, by number.
    pub agents: Vec<AgentCounts>,
    /// Traffic of sessions' TCP connections.
    pub tcp_traffic: TrafficSums<tcp::Connection>,
    /// The same of their connections over RDMA.
    pub verbs_traffic: TrafficSums<verbs::Connection>,
}

/// Counts of the server.
#[derive(Default)]
pub struct ServerCounts {
    /// Sessions over shared memory, now.
    pub sessions_shm: AtomicU64,
    /// Sessions over TCP, now.
    pub sessions_tcp: AtomicU64,
    /// Sessions over RDMA, now.
    pub sessions_verbs: AtomicU64,
    /// Queue pairs of clients that have no session yet, now.
    pub half_open: AtomicU64,
    /// Sleeping shards that needed a signal for data over RDMA.
    pub verbs_signals: AtomicU64,
    /// Threads of clients over RDMA that have asked something.
    pub client_threads: AtomicU64,
    /// Sessions granted since the start.
    pub sessions_total: AtomicU64,
    /// Sessions ended because of a violation by the peer.
    pub sessions_violated: AtomicU64,
    /// Sessions that ended because their users may not do all any more.
    pub sessions_revoked: AtomicU64,
    /// Sessions that were refused, for whatever reason.
    pub sessions_refused: AtomicU64,
    /// Clients that were asked to come again.
    pub told_busy: AtomicU64,
    /// Clients that were refused a queue pair because all were taken.
    pub no_queue_pair: AtomicU64,
    /// Clients cut off because they did not say hello in time.
    pub hellos_timed_out: AtomicU64,
    /// Clients that had said nothing, and were dropped for newer ones.
    pub hellos_dropped: AtomicU64,
    /// RESP connections accepted since the start.
    pub connections_total: AtomicU64,
    /// RESP connections turned away: too many, or no descriptor left.
    pub connections_rejected: AtomicU64,
}

impl ServerCounts {
    /// Sessions carried so, now.
    pub fn sessions_by(&self, transport: Transport) -> &AtomicU64 {
        match transport {
            Transport::Tcp => &self.sessions_tcp,
            Transport::Verbs => &self.sessions_verbs,
            _ => &self.sessions_shm,
        }
    }

    /// All sessions, now.
    pub fn sessions(&self) -> u64 {
        [&self.sessions_shm, &self.sessions_tcp, &self.sessions_verbs]
            .map(|sessions| sessions.load(Ordering::Relaxed))
            .iter()
            .sum()
    }
}

impl Shared {
    /// Whether the data of a replica may be cleared: not while the newest topology that is known says that this
    /// process has every acknowledged change.
    pub fn may_clear(&self) -> bool {
        let (Some(settings), Some(topology)) = (&self.config.cluster, self.cluster.topology())
        else {
            return true;
        };
        let own = Instance { member: self.cluster.member, incarnation: self.incarnation };
        let group = topology.group_named(&settings.group);
        group.is_none_or(|of| !of.has_all_acknowledged(own))
    }

    /// Wakes the control thread: the server ends, or a session does.
    pub fn wake_control(&self) {
        if let Some(waker) = self.control.get() {
            // Fails only if the poll is gone, and then no thread waits.
            let _ = waker.wake();
        }
    }

    /// Redis clients get these facts of the cluster from now on, and subscribers and clients of a
    /// server that leads no more get messages. At a server of no cluster nothing happens.
    pub fn set_cluster_facts(&self, facts: ClusterFacts) {
        let has_news = self.cluster_facts.as_ref().is_some_and(|cell| cell.set(facts));
        if has_news {
            self.shards.iter().for_each(|shard| shard.inbox.push(Message::News));
        }
    }

    /// The users have changed: every thread has a look at its connections.
    pub fn users_changed(&self) {
        self.shards.iter().for_each(|shard| shard.inbox.push(Message::News));
        self.wake_control();
    }

    /// Queue pairs that clients may have, over all devices; none without one.
    pub fn max_queue_pairs(&self) -> u64 {
        let has = self.verbs.as_ref().map_or(0, verbs::Host::max_queue_pairs);
        self.config.max_queue_pairs.min(has) as u64
    }

    /// The arenas of all shards.
    pub fn arenas(&self) -> Arc<[ReadView]> {
        self.shards.iter().map(|shard| shard.view.clone()).collect()
    }

    /// The hints by which threads tell each shard of records that they have read.
    pub fn touched(&self) -> Arc<[Arc<TouchHints>]> {
        self.shards.iter().map(|shard| Arc::clone(&shard.touched)).collect()
    }

    /// Whether clients can have sessions over RDMA, now.
    pub fn has_rdma(&self) -> bool {
        self.verbs.as_ref().is_some_and(|host| !host.devices().is_empty())
    }

    /// The shard that the immediate of a peer's WRITE is for.
    pub fn shard_of(&self, imm: u32) -> Option<usize> {
        match immediate::kind_of(imm) {
            Some(Kind::Request | Kind::Credit) => {
                Some(immediate::shard_of(imm)).filter(|shard| *shard < self.shards.len())
            }
            // A peer's whim, as is a number that is no shard's.
            Some(Kind::Reply) | None => None,
        }
    }

    /// A mark for each shard, of a new client over a network.
    pub fn marks(&self) -> Arc<[ReadyMark]> {
        self.shards.iter().map(|_| ReadyMark::default()).collect()
    }

    /// A WRITE of the client with these marks came with this immediate: marks the client at the
    /// shard that it names. The caller wakes that shard.
    pub fn mark(&self, marks: &[ReadyMark], imm: u32) -> Option<usize> {
        let shard = self.shard_of(imm)?;
        marks[shard].tell(&self.shards[shard].rung);
        Some(shard)
    }

    /// As [`Shared::mark`]; wakes the shard, too.
    pub fn mark_and_ring(&self, marks: &[ReadyMark], imm: u32) {
        if let Some(shard) = self.mark(marks, imm)
            && self.shards[shard].inbox.ring()
        {
            count(&self.counts.verbs_signals, 1);
        }
    }

    /// Whether the server is to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}
