//! The server's settings. The binary decides where the values come from (flags, environment, file).

pub use crate::cluster::ClusterSettings;
pub use crate::replica_view::ReplicaReads;
pub use crate::tls::TlsSettings;
pub use crate::users::{Password, UserSettings};
pub use remora_engine::Eviction;
pub use remora_fabric::detect::Wanted;
pub use remora_fabric::verbs::{Mtu, Packets};
pub use remora_fabric::{Address, Credentials, Wake};
pub use remora_replica::AskFor;
pub use remora_storage::Promise;
pub use remora_tls::{ClientCertificates, ClientTlsSettings, LeastVersion, ServerTlsSettings};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where data are kept, and what that promises.
#[derive(Clone, Debug)]
pub struct Data {
    /// The directory, which is made if it is not there.
    pub directory: PathBuf,
    /// When a change is durable.
    pub promise: Promise,
    /// Bytes of log after which the server writes a snapshot.
    pub snapshot_log_bytes: u64,
}

/// Configuration of one server process.
#[derive(Clone, Debug)]
pub struct Config {
    /// The primary that this server is a replica of: its Unix socket, or its address for sessions.
    /// `None`: it is a primary.
    pub replica_of: Option<Address>,
    /// The user that it is at its primary, and at the other servers of its cluster.
    pub peer_login: Credentials,
    /// TLS with them; `None`: it speaks none with them.
    pub peer_tls: Option<ClientTlsSettings>,
    /// Whether it answers reads while it is a replica.
    pub replica_reads: ReplicaReads,
    /// The cluster that the server is of, whose coordinator says what it does: it begins as a replica
    /// without a primary. `None`: it is alone.
    pub cluster: Option<ClusterSettings>,
    /// Replicas that must have stored a change before it is acknowledged: up to
    /// [`remora_layout::limits::MAX_MIN_REPLICAS`]; 0: it is acknowledged without them.
    pub min_replicas: usize,
    /// When a replica is asked for an acknowledgement: after some tens of entries (relaxed), or for
    /// each message, and only then it counts as stored (strict).
    pub replica_acks: AskFor,
    /// Bytes of log that all shards together keep in memory for replicas that are away, from the first
    /// replica on; each keeps its part, and [`remora_layout::limits::OPLOG_BYTES`] at least.
    pub replica_backlog_bytes: u64,
    /// Where the data are kept; `None`: nowhere, they end with the server.
    pub data: Option<Data>,
    /// Where the users of RESP connections come from.
    pub users: UserSettings,
    /// Users that may have shared memory, if they may read everything; empty for all of those.
    pub shm_users: Vec<String>,
    /// TLS on the ports of TCP; `None`: they are plain.
    pub tls: Option<TlsSettings>,
    /// Address of the RESP listener; port 0 takes a free one.
    pub resp_address: SocketAddr,
    /// Address of the listener for MongoDB's protocol; port 0 takes a free one. `None`: there is none.
    pub mongo_address: Option<SocketAddr>,
    /// Path of the Unix socket on which clients ask for shared memory.
    pub socket_path: PathBuf,
    /// Address on which clients ask for sessions over TCP; port 0 takes a free one. `None`: no
    /// sessions over TCP.
    pub fabric_address: Option<SocketAddr>,
    /// Transports that clients may use: shared memory, TCP, or both.
    pub transport: Wanted,
    /// Names of the RDMA devices that may be used; empty for all.
    pub rdma_devices: Vec<String>,
    /// Traffic class, service level, partition and length of RDMA packets.
    pub rdma_packets: Packets,
    /// Number of shards, 1 to [`remora_layout::limits::MAX_SHARDS`].
    pub shards: usize,
    /// Bytes of all arenas together; hard.
    pub max_memory_bytes: u64,
    /// Buckets that all shards' tables together begin with; rounded up to a
    /// power of two, and a page, for each shard. 0 takes 1024 a shard.
    pub buckets: u64,
    /// How shards wait for work.
    pub wake: Wake,
    /// Whether shards are pinned to cores.
    pub pin: bool,
    /// Shortest lease term, ms (benches lengthen it).
    pub lease_min_ms: u64,
    /// Whether clients may share pointers through a table that all of them
    /// write (HydraDB 4.2.4, H28); false isolates them from each other (H29).
    pub pointer_sharing: bool,
    /// Bytes of freed records, of all shards together, that may wait for
    /// their leases to end; 0 derives it from the memory.
    pub quarantine_bytes: u64,
    /// An upload is abandoned after this many seconds without a piece: 1 to
    /// [`remora_layout::limits::UPLOAD_IDLE_MAX_S`].
    pub upload_idle_s: u64,
    /// The behaviour when memory is full.
    pub eviction: Eviction,
    /// Queue pairs of clients over RDMA, one for each process: 1 to
    /// [`remora_layout::limits::MAX_SESSIONS`].
    pub max_queue_pairs: usize,
    /// READs that one client over RDMA may have under way: 1 to
    /// [`remora_layout::limits::MAX_READS_PER_CLIENT`].
    pub reads_per_client: u8,
}

impl Config {
    /// Whether the server is no primary when it starts.
    pub(crate) fn begins_as_replica(&self) -> bool {
        self.replica_of.is_some() || self.is_clustered()
    }

    /// Whether the server is of a cluster.
    pub(crate) fn is_clustered(&self) -> bool {
        self.cluster.is_some()
    }

    /// Whether a user that may read everything may have shared memory.
    pub(crate) fn may_have_shm(&self, user: &[u8]) -> bool {
        self.shm_users.is_empty() || self.shm_users.iter().any(|name| name.as_bytes() == user)
    }

    /// A small server of two shards, whose socket is in this directory.
    #[cfg(test)]
    pub(crate) fn for_tests(directory: &std::path::Path) -> Self {
        Self {
            data: None,
            replica_of: None,
            peer_login: Credentials::default(),
            peer_tls: None,
            cluster: None,
            replica_reads: Default::default(),
            min_replicas: 0,
            replica_acks: remora_replica::AskFor::default(),
            replica_backlog_bytes: 0,
            users: UserSettings::default(),
            shm_users: Vec::new(),
            tls: None,
            resp_address: SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0)),
            mongo_address: None,
            socket_path: directory.join("socket"),
            fabric_address: None,
            rdma_devices: Vec::new(),
            rdma_packets: Packets::default(),
            transport: Wanted::Auto,
            shards: 2,
            max_memory_bytes: 8 << 20,
            buckets: 0,
            wake: Wake::Event,
            pin: false,
            lease_min_ms: 1000,
            pointer_sharing: true,
            quarantine_bytes: 0,
            upload_idle_s: remora_layout::limits::UPLOAD_IDLE_S,
            eviction: Eviction::None,
            max_queue_pairs: 1,
            reads_per_client: 1,
        }
    }
}
