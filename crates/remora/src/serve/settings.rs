//! The settings of a server: flags over environment over file over defaults.
//!
//! One struct, [`Layer`], names every setting once. The command line (with
//! the environment, by clap) fills one layer, the file another; [`Settings`]
//! is what holds after the defaults.

use super::durability::Durability;
use super::eviction::Eviction;
use super::replica_acks::ReplicaAcks;
use super::replica_reads::ReplicaReads;
use super::secret::Secret;
use super::socket;
use super::tls::{AuthClients, CertificateUser, MinVersion, TlsArgs};
use anyhow::Context;
use clap::Args;
use remora_client_core::{Mtu, Packets};
use remora_cluster::coordinator::Coordinator;
use remora_command_line::shards::{ByRule, Resources};
use remora_command_line::{DEFAULT_PORT, PacketArgs, Size, Transport, Wake, unavailable, usage};
use remora_fabric::{Address, UnknownAddress};
use remora_layout::limits::{
    LOG_HELD_BYTES, MAX_ARENA_BYTES, MAX_MIN_REPLICAS, MAX_READS_PER_CLIENT, MAX_SESSIONS,
    MAX_SHARDS, MIN_ARENA_BYTES, UPLOAD_IDLE_MAX_S, UPLOAD_IDLE_S,
};
use remora_server::cluster::{ClusterSettings, Connect};
use remora_server::{
    ClientCertificates, ClientMemoryLimits, Credentials, Data, TlsSettings, UserSettings,
    needs_no_login,
};
use remora_zookeeper::{ZookeeperAddress, ZookeeperCoordinator};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Memory of all shards together.
pub const DEFAULT_MAX_MEMORY: Size = Size(1 << 30);

/// Bytes of log after which a server writes a snapshot.
const DEFAULT_SNAPSHOT_LOG_BYTES: Size = Size(1 << 30);
/// Sixteen of the longest values.
const DEFAULT_CLIENT_MEMORY: Size = Size(1 << 30);
/// The least: with less there is no room for large values.
const MIN_CLIENT_MEMORY: Size = Size(1 << 20);
/// The least: with less a server writes one snapshot after another.
const MIN_SNAPSHOT_LOG_BYTES: Size = Size(1 << 20);
/// The port that messages and the documentation name for fabric_address.
const EXAMPLE_FABRIC_PORT: u16 = 7380;
const DEFAULT_GROUP: &str = "main";
/// Long against a busy machine's pauses, short against what a service can bear.
const DEFAULT_SESSION_MS: u64 = 2000;
/// The shortest that ZooKeeper gives with ticks of 50 ms, and a bound.
const MIN_SESSION_MS: u64 = 100;
const MAX_SESSION_MS: u64 = 60_000;
/// Some ten seconds of a hundred thousand small changes a second: a replica that is started again is away
/// for less.
const DEFAULT_REPLICA_BACKLOG: Size = Size(64 << 20);

/// Settings that one source gives; all of them are optional.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Address that the RESP listener binds [default: 127.0.0.1]. Another address than
    /// loopback needs users, requirepass or TLS: see protected_mode.
    #[arg(long, env = "REMORA_BIND", value_name = "ADDRESS")]
    pub bind: Option<IpAddr>,
    /// Port of the RESP listener; 0 takes a free one [default: 7379].
    #[arg(long, env = "REMORA_PORT", value_name = "PORT")]
    pub port: Option<u16>,
    /// Port of the listener for MongoDB's drivers, at the same address; 0 takes a
    /// free one [default: none].
    #[arg(long, env = "REMORA_MONGO_PORT", value_name = "PORT")]
    pub mongo_port: Option<u16>,
    /// File of users and their rights, a line `user NAME rules` for each, as
    /// Redis's aclfile. It is read again whenever it changes [default: none].
    #[arg(long, env = "REMORA_USERS", value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// Password of the user default, for RESP. It is hidden from the list of
    /// processes; the variable keeps it out of the shell's history too.
    #[arg(long, env = super::secret::VARIABLE, value_name = "PASSWORD", hide_env_values = true)]
    pub requirepass: Option<Secret>,
    /// User that this server is at its primary and at the other servers of its
    /// cluster, who has to be one that may do all [default: default].
    #[arg(long, env = "REMORA_PEER_USER", value_name = "NAME")]
    pub peer_user: Option<String>,
    /// Its password. It is hidden from the list of processes.
    #[arg(long, env = super::secret::PEER_VARIABLE, value_name = "PASSWORD", hide_env_values = true)]
    pub peer_password: Option<Secret>,
    /// Whether the kernel may write the server's memory to a file if it crashes,
    /// and other processes of the same user of the machine may look into it
    /// [default: false with users, a password or TLS, else true].
    #[arg(long, env = "REMORA_CORE_DUMPS", value_name = "BOOL", num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub core_dumps: Option<bool>,
    /// Connections of RESP and sessions over a network that one address may have
    /// at a time; 0: as many as come [default: 0].
    #[arg(long, env = "REMORA_MAX_CLIENTS_PER_ADDRESS", value_name = "N")]
    pub max_clients_per_address: Option<usize>,
    /// Connections and sessions that may be logged in as one user at a time; 0:
    /// as many as come [default: 0].
    #[arg(long, env = "REMORA_MAX_CLIENTS_PER_USER", value_name = "N")]
    pub max_clients_per_user: Option<usize>,
    /// What the buffers of all RESP connections may hold together, beyond 64 KiB
    /// of each: requests that are not all there, and replies that are not read; 0:
    /// as much as there is [default: 1GiB].
    #[arg(long, env = "REMORA_MAX_CLIENT_MEMORY", value_name = "SIZE")]
    pub max_client_memory: Option<Size>,
    /// The same of one address; 0: as much as all may [default: 0].
    #[arg(long, env = "REMORA_MAX_CLIENT_MEMORY_PER_ADDRESS", value_name = "SIZE")]
    pub max_client_memory_per_address: Option<Size>,
    /// The same of one user; 0: as much as all may [default: 0].
    #[arg(long, env = "REMORA_MAX_CLIENT_MEMORY_PER_USER", value_name = "SIZE")]
    pub max_client_memory_per_user: Option<Size>,
    /// Users that may have shared memory, such as alice,bob, if they may read
    /// everything [default: all that may].
    #[arg(long, env = "REMORA_SHM_USERS", value_name = "NAMES", value_delimiter = ',')]
    pub shm_users: Option<Vec<String>>,
    /// Whether the server refuses to listen beyond loopback where it has neither
    /// users nor a password nor TLS. Say false on a network of which every
    /// client may do all [default: true].
    #[arg(long, env = "REMORA_PROTECTED_MODE", value_name = "BOOL", num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub protected_mode: Option<bool>,
    /// Certificate of the server and those that lead to its authority, PEM: its
    /// ports of TCP, for RESP and for sessions, speak TLS then, and nothing else,
    /// and so do its own connections to other servers. It, its key and tls_ca
    /// are read again whenever they change [default: none].
    #[arg(long, env = "REMORA_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of tls_cert, PEM, without a passphrase [default: none].
    #[arg(long, env = "REMORA_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Authorities of clients' certificates, PEM [default: none].
    #[arg(long, env = "REMORA_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Whether clients have to show a certificate of tls_ca [default: yes, with
    /// tls_ca].
    #[arg(long, env = "REMORA_TLS_AUTH_CLIENTS", value_name = "WHETHER", value_enum)]
    pub tls_auth_clients: Option<AuthClients>,
    /// Whether a client is the user whose name is its certificate's common name,
    /// without a password: off or cn [default: off].
    #[arg(long, env = "REMORA_TLS_AUTH_CLIENTS_USER", value_name = "HOW", value_enum)]
    pub tls_auth_clients_user: Option<CertificateUser>,
    /// Oldest version of TLS that is spoken [default: 1.2].
    #[arg(long, env = "REMORA_TLS_MIN_VERSION", value_name = "VERSION", value_enum)]
    pub tls_min_version: Option<MinVersion>,
    /// Authorities of other servers' certificates, PEM: of the primary of a
    /// replica, and of the other servers of a cluster. Connections to them speak
    /// TLS then, and show tls_cert [default: tls_ca, with tls_cert].
    #[arg(long, env = "REMORA_PEER_TLS_CA", value_name = "FILE")]
    pub peer_tls_ca: Option<PathBuf>,
    /// Authorities of ZooKeeper's certificates, PEM, where cluster begins with
    /// zk+tls:// [default: peer_tls_ca, or its default].
    #[arg(long, env = "REMORA_COORDINATOR_TLS_CA", value_name = "FILE")]
    pub coordinator_tls_ca: Option<PathBuf>,
    /// Unix socket on which clients ask for shared memory [default:
    /// $XDG_RUNTIME_DIR/remora.sock, else /tmp/remora-UID/remora.sock].
    #[arg(long, env = "REMORA_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Address on which clients ask for sessions over TCP, such as
    /// 10.0.0.5:7380; port 0 takes a free one [default: none]. Another address
    /// than loopback needs users, requirepass, or TLS with tls_ca: see
    /// protected_mode.
    #[arg(long, env = "REMORA_FABRIC_ADDRESS", value_name = "ADDRESS")]
    pub fabric_address: Option<SocketAddr>,
    /// What clients' sessions may use: shm by the Unix socket, tcp or verbs
    /// (RDMA) by fabric_address, or auto for all [default: auto].
    #[arg(long, env = "REMORA_TRANSPORT", value_name = "HOW", value_enum)]
    pub transport: Option<Transport>,
    /// RDMA devices that clients' sessions may use, such as mlx5_0,mlx5_1
    /// [default: all that have an active port].
    #[arg(long, env = "REMORA_RDMA_DEVICES", value_name = "NAMES", value_delimiter = ',')]
    pub rdma_devices: Option<Vec<String>>,
    /// Traffic class of RDMA packets, 0 to 255; with RoCE four times the DSCP
    /// [default: 0].
    #[arg(long, env = "REMORA_RDMA_TRAFFIC_CLASS", value_name = "N")]
    pub rdma_traffic_class: Option<u8>,
    /// Service level of RDMA packets, 0 to 15 [default: 0].
    #[arg(long, env = "REMORA_RDMA_SERVICE_LEVEL", value_name = "N")]
    pub rdma_service_level: Option<u8>,
    /// Index of the P_Key in the RDMA port's table [default: 0].
    #[arg(long, env = "REMORA_RDMA_PKEY_INDEX", value_name = "N")]
    pub rdma_pkey_index: Option<u16>,
    /// Longest RDMA packet, 256, 512, 1024, 2048 or 4096 bytes; the shorter of
    /// both ends' is used [default: what the port has].
    #[arg(long, env = "REMORA_RDMA_MTU", value_name = "BYTES")]
    pub rdma_mtu: Option<u32>,
    /// Shards, each with a thread of its own, 1 to 64 [default: one for each
    /// physical core that affinity and CPU quota allow, less one for each eight
    /// of them or part of that (2 cores: 1, 8: 7, 16: 14), and only as many as
    /// leave each 128 MiB of max_memory; at least 1].
    #[arg(long, env = "REMORA_SHARDS", value_name = "N")]
    pub shards: Option<usize>,
    /// Memory of all arenas, such as 512mb or 4GiB [default: 1GiB].
    #[arg(long, env = "REMORA_MAX_MEMORY", value_name = "SIZE")]
    pub max_memory: Option<Size>,
    /// Buckets that the tables of all shards together start with; they grow
    /// with the keys. 0 takes 1024 for each shard [default: 0].
    #[arg(long, env = "REMORA_BUCKETS", value_name = "N")]
    pub buckets: Option<u64>,
    /// How shards wait for work [default: hybrid].
    #[arg(long, env = "REMORA_WAKE", value_name = "HOW", value_enum)]
    pub wake: Option<Wake>,
    /// Pins each shard to a core, from core 0 up [default: true]. Say false
    /// where several servers share a machine.
    #[arg(long, env = "REMORA_PIN", value_name = "BOOL", num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub pin: Option<bool>,
    /// Shortest lease on a record that clients may read, in ms [default: 1000].
    #[arg(long, env = "REMORA_LEASE_MIN_MS", value_name = "MS")]
    pub lease_min_ms: Option<u64>,
    /// Whether clients may share their pointers to records through a table that
    /// all of them can write [default: true]. Say false where clients of the
    /// same user must be isolated from each other.
    #[arg(long, env = "REMORA_POINTER_SHARING", value_name = "BOOL", num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub pointer_sharing: Option<bool>,
    /// Memory of freed records, of all shards together, that may wait for
    /// leases to end; 0 takes a sixteenth of the memory [default: 0].
    #[arg(long, env = "REMORA_QUARANTINE_BYTES", value_name = "SIZE")]
    pub quarantine_bytes: Option<Size>,
    /// Seconds without a further piece after which a large value that a client
    /// is sending is given up, 1 to 3600 [default: 10].
    #[arg(long, env = "REMORA_UPLOAD_IDLE_S", value_name = "S")]
    pub upload_idle_s: Option<u64>,
    /// What happens when memory is full [default: none].
    #[arg(long, env = "REMORA_EVICTION", value_name = "POLICY", value_enum)]
    pub eviction: Option<Eviction>,
    /// Directory in which the data are kept, made if it is not there. Without one
    /// they end with the server [default: none].
    #[arg(long, env = "REMORA_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// What a reply to a change promises: memory nothing, everysec that the
    /// change survives the process, fsync that it survives a power cut
    /// [default: everysec, with data_dir].
    #[arg(long, env = "REMORA_DURABILITY", value_name = "WHEN", value_enum)]
    pub durability: Option<Durability>,
    /// Bytes of log after which the server writes a snapshot and drops what it
    /// covers, 1MiB or more [default: 1GiB].
    #[arg(long, env = "REMORA_SNAPSHOT_LOG_BYTES", value_name = "SIZE")]
    pub snapshot_log_bytes: Option<Size>,
    /// Primary that this server is a replica of: its Unix socket, or its
    /// fabric_address [default: none, it is a primary]. A replica takes no
    /// changes of its own.
    #[arg(long, env = "REMORA_REPLICA_OF", value_name = "ADDRESS")]
    pub replica_of: Option<String>,
    /// What this server answers to reads while it is a replica: none an error
    /// that names its primary, stale what it has, with how old that may be
    /// [default: none].
    #[arg(long, env = "REMORA_REPLICA_READS", value_name = "WHICH", value_enum)]
    pub replica_reads: Option<ReplicaReads>,
    /// Replicas that must have stored a change before it is acknowledged, 0 to 16;
    /// while fewer keep up, changes are refused [default: 0].
    #[arg(long, env = "REMORA_MIN_REPLICAS", value_name = "N")]
    pub min_replicas: Option<usize>,
    /// Cluster that this server is of, as zk://host1,host2,host3/path, or zk+tls://
    /// where ZooKeeper speaks TLS: its coordinator
    /// says whether the server leads or follows, and min_replicas is that of the
    /// cluster [default: none].
    #[arg(long, env = "REMORA_CLUSTER", value_name = "zk://HOSTS/PATH")]
    pub cluster: Option<String>,
    /// Group of the cluster whose keys this server holds [default: main].
    #[arg(long, env = "REMORA_GROUP", value_name = "NAME")]
    pub group: Option<String>,
    /// HOST:PORT at which Redis clients and the other servers reach this server, where
    /// that is not where it listens (NAT, containers); HOST may be a name. Remora's
    /// clients reach it at HOST, too, and at the port of fabric_address, which has to be
    /// set then [default: where it listens].
    #[arg(long, env = "REMORA_ANNOUNCE", value_name = "HOST:PORT")]
    pub announce: Option<String>,
    /// Time after which the coordinator takes a silent server for gone, ms: a dead
    /// primary is replaced then, not before. ZooKeeper gives 2 to 20 of its ticks
    /// [default: 2000].
    #[arg(long, env = "REMORA_SESSION_MS", value_name = "MS")]
    pub session_ms: Option<u64>,
    /// When a replica has stored a change: relaxed, once the WRITE that carries
    /// it has completed; strict, once the replica has said so [default: relaxed].
    #[arg(long, env = "REMORA_REPLICA_ACKS", value_name = "WHEN", value_enum)]
    pub replica_acks: Option<ReplicaAcks>,
    /// Log that all shards together keep in memory for replicas that are away, from
    /// the first replica on, beside max_memory: at most 160MiB of a shard, at least
    /// 1MiB [default: 64MiB].
    #[arg(long, env = "REMORA_REPLICA_BACKLOG", value_name = "SIZE")]
    pub replica_backlog: Option<Size>,
    /// Queue pairs of clients over RDMA, one for each client process, 1 to 1024
    /// and no more than the devices have [default: 1024]. Further clients get
    /// TCP by auto, and are refused by verbs.
    #[arg(long, env = "REMORA_MAX_QUEUE_PAIRS", value_name = "N")]
    pub max_queue_pairs: Option<usize>,
    /// READs that one client over RDMA may have under way, 1 to 16 and no more
    /// than the device serves [default: 16].
    #[arg(long, env = "REMORA_READS_PER_CLIENT", value_name = "N")]
    pub reads_per_client: Option<u8>,
    /// What is logged: a level, or a filter such as remora_server=debug [default: info].
    #[arg(long, env = "REMORA_LOG", value_name = "FILTER")]
    pub log: Option<String>,
}

impl Layer {
    /// The settings for RDMA packets.
    fn packets(&self) -> PacketArgs {
        PacketArgs {
            rdma_traffic_class: self.rdma_traffic_class,
            rdma_service_level: self.rdma_service_level,
            rdma_pkey_index: self.rdma_pkey_index,
            rdma_mtu: self.rdma_mtu,
        }
    }

    /// The settings of a TOML file.
    pub fn from_file(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| usage(format!("cannot read {}: {error}", path.display())))?;
        Self::from_toml(&text).with_context(|| format!("in {}", path.display()))
    }

    fn from_toml(text: &str) -> anyhow::Result<Self> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let shown = error.to_string();
            // The line that is shown would hold the password.
            match ["requirepass", "peer_password"].iter().find(|name| shown.contains(**name)) {
                Some(name) => usage(format!("{name}: {}", error.message())),
                None => usage(shown.trim_end()),
            }
        })
    }

    /// This layer where it speaks, the one below where it is silent.
    pub fn over(self, below: Self) -> Self {
        Self {
            bind: self.bind.or(below.bind),
            port: self.port.or(below.port),
            mongo_port: self.mongo_port.or(below.mongo_port),
            users: self.users.or(below.users),
            requirepass: self.requirepass.or(below.requirepass),
            peer_user: self.peer_user.or(below.peer_user),
            peer_password: self.peer_password.or(below.peer_password),
            protected_mode: self.protected_mode.or(below.protected_mode),
            tls_cert: self.tls_cert.or(below.tls_cert),
            tls_key: self.tls_key.or(below.tls_key),
            tls_ca: self.tls_ca.or(below.tls_ca),
            core_dumps: self.core_dumps.or(below.core_dumps),
            max_clients_per_address: self.max_clients_per_address.or(below.max_clients_per_address),
            max_clients_per_user: self.max_clients_per_user.or(below.max_clients_per_user),
            max_client_memory: self.max_client_memory.or(below.max_client_memory),
            max_client_memory_per_address: self
                .max_client_memory_per_address
                .or(below.max_client_memory_per_address),
            max_client_memory_per_user: self
                .max_client_memory_per_user
                .or(below.max_client_memory_per_user),
            shm_users: self.shm_users.or(below.shm_users),
            tls_auth_clients: self.tls_auth_clients.or(below.tls_auth_clients),
            tls_auth_clients_user: self.tls_auth_clients_user.or(below.tls_auth_clients_user),
            tls_min_version: self.tls_min_version.or(below.tls_min_version),
            peer_tls_ca: self.peer_tls_ca.or(below.peer_tls_ca),
            coordinator_tls_ca: self.coordinator_tls_ca.or(below.coordinator_tls_ca),
            socket: self.socket.or(below.socket),
            fabric_address: self.fabric_address.or(below.fabric_address),
            transport: self.transport.or(below.transport),
            rdma_devices: self.rdma_devices.or(below.rdma_devices),
            rdma_traffic_class: self.rdma_traffic_class.or(below.rdma_traffic_class),
            rdma_service_level: self.rdma_service_level.or(below.rdma_service_level),
            rdma_pkey_index: self.rdma_pkey_index.or(below.rdma_pkey_index),
            rdma_mtu: self.rdma_mtu.or(below.rdma_mtu),
            shards: self.shards.or(below.shards),
            max_memory: self.max_memory.or(below.max_memory),
            buckets: self.buckets.or(below.buckets),
            wake: self.wake.or(below.wake),
            pin: self.pin.or(below.pin),
            lease_min_ms: self.lease_min_ms.or(below.lease_min_ms),
            pointer_sharing: self.pointer_sharing.or(below.pointer_sharing),
            quarantine_bytes: self.quarantine_bytes.or(below.quarantine_bytes),
            upload_idle_s: self.upload_idle_s.or(below.upload_idle_s),
            eviction: self.eviction.or(below.eviction),
            data_dir: self.data_dir.or(below.data_dir),
            durability: self.durability.or(below.durability),
            snapshot_log_bytes: self.snapshot_log_bytes.or(below.snapshot_log_bytes),
            replica_of: self.replica_of.or(below.replica_of),
            replica_reads: self.replica_reads.or(below.replica_reads),
            min_replicas: self.min_replicas.or(below.min_replicas),
            cluster: self.cluster.or(below.cluster),
            group: self.group.or(below.group),
            announce: self.announce.or(below.announce),
            session_ms: self.session_ms.or(below.session_ms),
            replica_acks: self.replica_acks.or(below.replica_acks),
            replica_backlog: self.replica_backlog.or(below.replica_backlog),
            max_queue_pairs: self.max_queue_pairs.or(below.max_queue_pairs),
            reads_per_client: self.reads_per_client.or(below.reads_per_client),
            log: self.log.or(below.log),
        }
    }
}

/// Every setting of a server, decided.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Settings {
    /// Address of the RESP listener.
    pub bind: IpAddr,
    /// Port of the RESP listener.
    pub port: u16,
    /// Port of the listener for MongoDB's drivers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mongo_port: Option<u16>,
    /// The users' file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<PathBuf>,
    /// The password of `default`; it is never shown.
    #[serde(skip)]
    pub requirepass: Option<Secret>,
    /// The user that it is at other servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_user: Option<String>,
    /// Its password; it is never shown.
    #[serde(skip)]
    pub peer_password: Option<Secret>,
    /// Whether it refuses to listen beyond loopback without users or TLS.
    pub protected_mode: bool,
    /// The server's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// Authorities of clients' certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_ca: Option<PathBuf>,
    /// Whether clients have to show one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_auth_clients: Option<AuthClients>,
    /// Whether it names their user.
    pub tls_auth_clients_user: CertificateUser,
    /// Oldest version of TLS.
    pub tls_min_version: MinVersion,
    /// Authorities of other servers' certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_tls_ca: Option<PathBuf>,
    /// Of ZooKeeper's certificates.
    pub coordinator_tls_ca: Option<PathBuf>,
    /// Path of the Unix socket.
    pub socket: PathBuf,
    /// Whether the user named no socket: then the server makes its directory.
    #[serde(skip)]
    pub socket_is_default: bool,
    /// Address for sessions over TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric_address: Option<SocketAddr>,
    /// The cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Its group.
    pub group: String,
    /// Where clients reach the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announce: Option<String>,
    /// After which a silent server is taken for gone, ms.
    pub session_ms: u64,
    /// Whether its memory may be dumped.
    pub core_dumps: bool,
    /// Connections and sessions of one address, at most; 0: as many as come.
    pub max_clients_per_address: usize,
    /// Logins of one user, at most; 0: as many as come.
    pub max_clients_per_user: usize,
    /// What the buffers of RESP connections may hold; 0: as much as there is.
    pub max_client_memory: Size,
    /// Those of one address.
    pub max_client_memory_per_address: Size,
    /// Those of one user.
    pub max_client_memory_per_user: Size,
    /// Users that may have shared memory; none for all that may read everything.
    pub shm_users: Vec<String>,
    /// Transports of sessions.
    pub transport: Transport,
    /// RDMA devices that may be used; none for all.
    pub rdma_devices: Vec<String>,
    /// Traffic class of RDMA packets.
    pub rdma_traffic_class: u8,
    /// Service level of RDMA packets.
    pub rdma_service_level: u8,
    /// Index of their P_Key.
    pub rdma_pkey_index: u16,
    /// Longest RDMA packet, bytes; none: what the port has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma_mtu: Option<u32>,
    /// Number of shards.
    pub shards: usize,
    /// The reason for that number, unless the user set it.
    #[serde(skip)]
    pub shards_by: Option<ByRule>,
    /// Memory of all arenas.
    pub max_memory: Size,
    /// Buckets that the tables of all shards start with; 0: 1024 each.
    pub buckets: u64,
    /// How shards wait.
    pub wake: Wake,
    /// Whether shards are pinned.
    pub pin: bool,
    /// Shortest lease, ms.
    pub lease_min_ms: u64,
    /// Whether clients may share pointers.
    pub pointer_sharing: bool,
    /// Memory that may wait for leases; 0: derived.
    pub quarantine_bytes: Size,
    /// Seconds without a piece after which an upload is given up.
    pub upload_idle_s: u64,
    /// The behaviour when memory is full.
    pub eviction: Eviction,
    /// Directory in which the data are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,
    /// What a reply to a change promises.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Bytes of log after which the server writes a snapshot.
    pub snapshot_log_bytes: Size,
    /// The primary that this server is a replica of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_of: Option<String>,
    /// What a replica answers to reads.
    pub replica_reads: ReplicaReads,
    /// Replicas that must have stored a change before it is acknowledged.
    pub min_replicas: usize,
    /// When a replica has stored a change.
    pub replica_acks: ReplicaAcks,
    /// Log that is kept for replicas that are away.
    pub replica_backlog: Size,
    /// Queue pairs of clients over RDMA.
    pub max_queue_pairs: usize,
    /// READs that one client over RDMA may have under way.
    pub reads_per_client: u8,
    /// Filter of the log.
    pub log: String,
}

impl Layer {
    /// Whether it names something that a dump of the memory would show.
    fn has_secrets(&self) -> bool {
        let is_named = |path: &Option<PathBuf>| named_file(path.clone()).is_some();
        self.requirepass.is_some()
            || self.peer_password.is_some()
            || is_named(&self.users)
            || is_named(&self.tls_key)
    }
}

impl Settings {
    /// Fills the settings that `layer` leaves open with the defaults, and checks the whole.
    pub fn decide(layer: Layer) -> anyhow::Result<Self> {
        let cluster = layer.cluster.clone().filter(|address| !address.is_empty());
        let socket_is_default = layer.socket.is_none();
        let packets = layer.packets().packets()?;
        let max_memory = layer.max_memory.unwrap_or(DEFAULT_MAX_MEMORY);
        let by_rule = ByRule::of(Resources::of_this_process(max_memory.0));
        let has_secrets = layer.has_secrets();
        let settings = Self {
            bind: layer.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            port: layer.port.unwrap_or(DEFAULT_PORT),
            mongo_port: layer.mongo_port,
            users: named_file(layer.users),
            requirepass: layer.requirepass,
            peer_user: layer.peer_user.filter(|name| !name.is_empty()),
            peer_password: layer.peer_password,
            protected_mode: layer.protected_mode.unwrap_or(true),
            tls_cert: named_file(layer.tls_cert),
            tls_key: named_file(layer.tls_key),
            tls_ca: named_file(layer.tls_ca),
            tls_auth_clients: layer.tls_auth_clients,
            tls_auth_clients_user: layer.tls_auth_clients_user.unwrap_or_default(),
            tls_min_version: layer.tls_min_version.unwrap_or_default(),
            peer_tls_ca: named_file(layer.peer_tls_ca),
            coordinator_tls_ca: named_file(layer.coordinator_tls_ca),
            socket: layer.socket.unwrap_or_else(socket::default_path),
            socket_is_default,
            // Other servers of a cluster have to reach this one.
            fabric_address: layer.fabric_address.or_else(|| {
                let bind = layer.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
                cluster.as_ref().map(|_| SocketAddr::new(bind, 0))
            }),
            cluster,
            transport: layer.transport.unwrap_or_default(),
            core_dumps: layer.core_dumps.unwrap_or(!has_secrets),
            max_clients_per_address: layer.max_clients_per_address.unwrap_or_default(),
            max_clients_per_user: layer.max_clients_per_user.unwrap_or_default(),
            max_client_memory: layer.max_client_memory.unwrap_or(DEFAULT_CLIENT_MEMORY),
            max_client_memory_per_address: layer.max_client_memory_per_address.unwrap_or(Size(0)),
            max_client_memory_per_user: layer.max_client_memory_per_user.unwrap_or(Size(0)),
            shm_users: named(layer.shm_users),
            rdma_devices: named(layer.rdma_devices),
            rdma_traffic_class: packets.traffic_class,
            rdma_service_level: packets.service_level,
            rdma_pkey_index: packets.pkey_index,
            rdma_mtu: packets.mtu.map(Mtu::bytes),
            shards: layer.shards.unwrap_or(by_rule.shards),
            shards_by: layer.shards.is_none().then_some(by_rule),
            max_memory,
            buckets: layer.buckets.unwrap_or(0),
            wake: layer.wake.unwrap_or_default(),
            pin: layer.pin.unwrap_or(true),
            lease_min_ms: layer.lease_min_ms.unwrap_or(remora_layout::limits::LEASE_MIN_S * 1000),
            pointer_sharing: layer.pointer_sharing.unwrap_or(true),
            quarantine_bytes: layer.quarantine_bytes.unwrap_or(Size(0)),
            upload_idle_s: layer.upload_idle_s.unwrap_or(UPLOAD_IDLE_S),
            eviction: layer.eviction.unwrap_or_default(),
            durability: layer.durability.or(layer.data_dir.as_ref().map(|_| Durability::default())),
            snapshot_log_bytes: layer.snapshot_log_bytes.unwrap_or(DEFAULT_SNAPSHOT_LOG_BYTES),
            data_dir: named_file(layer.data_dir),
            replica_of: layer.replica_of.filter(|address| !address.is_empty()),
            replica_reads: layer.replica_reads.unwrap_or_default(),
            min_replicas: layer.min_replicas.unwrap_or(0),
            group: layer.group.unwrap_or_else(|| DEFAULT_GROUP.into()),
            announce: layer.announce.filter(|address| !address.is_empty()),
            session_ms: layer.session_ms.unwrap_or(DEFAULT_SESSION_MS),
            replica_acks: layer.replica_acks.unwrap_or_default(),
            replica_backlog: layer.replica_backlog.unwrap_or(DEFAULT_REPLICA_BACKLOG),
            max_queue_pairs: layer.max_queue_pairs.unwrap_or(MAX_SESSIONS),
            reads_per_client: layer.reads_per_client.unwrap_or(MAX_READS_PER_CLIENT),
            log: layer.log.unwrap_or_else(|| "info".into()),
        };
        settings.check().map(|()| settings)
    }

    /// As TOML. A number of shards that the user did not set comes with its reason.
    pub fn to_toml(&self) -> anyhow::Result<String> {
        let reason = self.shards_by.map(|by_rule| format!("# shards: {by_rule}\n"));
        Ok(reason.unwrap_or_default() + &toml::to_string(self)?)
    }

    fn check(&self) -> anyhow::Result<()> {
        if !(1..=MAX_SHARDS).contains(&self.shards) {
            return Err(usage(format!("shards: {} is not in 1..={MAX_SHARDS}", self.shards)));
        }
        if self.transport.is_remote() && self.fabric_address.is_none() {
            let transport = self.transport;
            return Err(unavailable(format!(
                "{transport}: there is no address to listen on; set fabric_address"
            )));
        }
        if !(1..=MAX_SESSIONS).contains(&self.max_queue_pairs) {
            let pairs = self.max_queue_pairs;
            return Err(usage(format!("max_queue_pairs: {pairs} is not in 1..={MAX_SESSIONS}")));
        }
        if !(1..=MAX_READS_PER_CLIENT).contains(&self.reads_per_client) {
            let reads = self.reads_per_client;
            return Err(usage(format!(
                "reads_per_client: {reads} is not in 1..={MAX_READS_PER_CLIENT}"
            )));
        }
        let ClientMemoryLimits { total, of_address, of_user } = self.client_memory();
        if [total, of_address, of_user].iter().any(|&bytes| bytes < MIN_CLIENT_MEMORY.0 as usize) {
            return Err(usage(
                "max_client_memory, max_client_memory_per_address, max_client_memory_per_user: less than 1MiB leaves no room for large values",
            ));
        }
        if !(1..=UPLOAD_IDLE_MAX_S).contains(&self.upload_idle_s) {
            let seconds = self.upload_idle_s;
            return Err(usage(format!(
                "upload_idle_s: {seconds} is not in 1..={UPLOAD_IDLE_MAX_S}"
            )));
        }
        if self.snapshot_log_bytes.0 < MIN_SNAPSHOT_LOG_BYTES.0 {
            return Err(usage(format!(
                "snapshot_log_bytes: {} is less than {MIN_SNAPSHOT_LOG_BYTES}; the server would write \
                 one snapshot after another",
                self.snapshot_log_bytes
            )));
        }
        if let Some(durability) = self.durability.filter(|_| self.data_dir.is_none()) {
            return Err(usage(format!(
                "durability = {durability} needs a data_dir to keep data in"
            )));
        }
        if let Some(Err(error)) = self.primary() {
            return Err(usage(format!("replica_of: {error}")));
        }
        self.check_cluster()?;
        if self.min_replicas > MAX_MIN_REPLICAS {
            let replicas = self.min_replicas;
            return Err(usage(format!(
                "min_replicas: {replicas} is not in 0..={MAX_MIN_REPLICAS}; each change would wait for all of them"
            )));
        }
        self.check_backlog()?;
        self.check_tls()?;
        let share = self.max_memory.0 / self.shards as u64;
        if !(MIN_ARENA_BYTES..=MAX_ARENA_BYTES).contains(&share) {
            return Err(usage(format!(
                "max_memory: {} for {} shard(s) leaves each {}; a shard takes {} to {}",
                self.max_memory,
                self.shards,
                Size(share),
                Size(MIN_ARENA_BYTES),
                Size(MAX_ARENA_BYTES),
            )));
        }
        Ok(())
    }

    fn check_cluster(&self) -> anyhow::Result<()> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let address = cluster.parse::<ZookeeperAddress>();
        let address = address.map_err(|error| usage(format!("cluster: {error}")))?;
        if address.is_encrypted() && self.tls_args().coordinator().is_none() {
            return Err(usage(
                "cluster: of which authority are ZooKeeper's certificates? Name its file, coordinator_tls_ca",
            ));
        }
        if self.replica_of.is_some() {
            return Err(usage(
                "replica_of: the coordinator of the cluster says whom this server follows; leave it out",
            ));
        }
        if self.min_replicas > 0 {
            return Err(usage(
                "min_replicas: a cluster has one for each group: remora cluster init --min-replicas",
            ));
        }
        self.check_reachable()?;
        if !(MIN_SESSION_MS..=MAX_SESSION_MS).contains(&self.session_ms) {
            let ms = self.session_ms;
            return Err(usage(format!(
                "session_ms: {ms} is not in {MIN_SESSION_MS}..={MAX_SESSION_MS}"
            )));
        }
        Ok(())
    }

    /// Clients and the other servers of the cluster have to reach this one at what it says of itself.
    fn check_reachable(&self) -> anyhow::Result<()> {
        let fabric = self.fabric_address.unwrap_or_else(|| SocketAddr::new(self.bind, 0));
        let Some(announced) = &self.announce else {
            let Some(any) = [self.bind, fabric.ip()].into_iter().find(IpAddr::is_unspecified)
            else {
                return Ok(());
            };
            return Err(usage(format!(
                "bind: no other server reaches this one at {any}: bind the address at which the others reach it, or name it, --announce HOST:PORT"
            )));
        };
        let is_one = match announced.parse::<Address>() {
            Ok(Address::Tcp(address)) => address.port() != 0 && !address.ip().is_unspecified(),
            Ok(Address::Host(_, port)) => port != 0,
            Ok(Address::Unix(_)) | Err(_) => false,
        };
        if !is_one {
            return Err(usage(format!("announce: {announced:?} is no HOST:PORT")));
        }
        if fabric.port() == 0 {
            let bind = self.bind;
            return Err(usage(format!(
                "announce: Remora's clients and the other servers need a second port, which has to be known: set fabric_address with one, such as --fabric-address {}, and let it be reached at the announced host, too",
                SocketAddr::new(bind, EXAMPLE_FABRIC_PORT)
            )));
        }
        Ok(())
    }

    /// Whether only this machine reaches a server of a cluster, so that all its servers have to be on it.
    pub fn is_cluster_of_one_machine(&self) -> bool {
        let is_local = self.bind.is_loopback()
            || self.fabric_address.is_some_and(|address| address.ip().is_loopback());
        self.cluster.is_some() && self.announce.is_none() && is_local
    }

    /// What the server does as a member of a cluster, if it is one.
    pub fn cluster(&self) -> Option<ClusterSettings> {
        let address = self.cluster.as_ref()?.parse::<ZookeeperAddress>().ok()?;
        let (coordinator, session_ms) = (address.to_string(), self.session_ms);
        let tls = self.tls_args().coordinator();
        let connect: Connect = Arc::new(move || {
            let coordinator =
                ZookeeperCoordinator::connect(address.clone(), tls.clone(), session_ms);
            let coordinator = coordinator.map_err(|error| error.to_string())?;
            Ok(Box::new(coordinator) as Box<dyn Coordinator + Send>)
        });
        Some(ClusterSettings {
            group: self.group.clone(),
            announced_resp: self.announce.clone(),
            announced_host: self
                .announce
                .as_ref()
                .and_then(|address| Some(address.rsplit_once(':')?.0.to_owned())),
            coordinator,
            connect,
        })
    }

    /// The listeners that others than this machine's processes reach.
    fn far_listeners(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let resp = Some(("bind", SocketAddr::new(self.bind, self.port)));
        let fabric = self.fabric_address.map(|of| ("fabric_address", of));
        let listeners = [resp, fabric].into_iter().flatten();
        listeners.filter(|(_, address)| !address.ip().is_loopback())
    }

    /// Refuses listeners that let anybody in, as Redis's protected mode does, or returns a warning of
    /// each. It reads the users' file: one may leave the server open.
    ///
    /// # Errors
    /// There is one, and the settings do not say that this is meant; or the file is wrong.
    pub fn check_listeners(&self) -> anyhow::Result<Vec<String>> {
        let mut warnings = Vec::new();
        if self.far_listeners().next().is_none() {
            return Ok(warnings);
        }
        let is_open =
            needs_no_login(&self.user_settings()).map_err(|error| usage(error.to_string()))?;
        let tls = self.tls()?;
        let asks_for_certificates =
            tls.as_ref().is_some_and(|tls| tls.server.clients == ClientCertificates::Required);
        for (name, address) in self.far_listeners().filter(|_| is_open) {
            let is_protected = asks_for_certificates || (name == "bind" && tls.is_some());
            if self.protected_mode && !is_protected {
                return Err(usage(format!(
                    "{name}: any client that reaches {address} could read and change everything: set requirepass, or users with a password for default; or ask for clients' certificates, tls_cert with tls_ca (for RESP tls_cert would do); or say that the network is to be trusted, --protected-mode=false"
                )));
            }
            if !asks_for_certificates {
                warnings.push(format!(
                    "NO AUTHENTICATION: any client that reaches {address} ({name}) may read, change and delete everything; requirepass or users change that"
                ));
            }
        }
        Ok(warnings)
    }

    fn user_settings(&self) -> UserSettings {
        let password = self.requirepass.as_ref().and_then(Secret::password);
        UserSettings {
            file: self.users.clone(),
            password,
            most_logins: self.max_clients_per_user,
            most_of_address: self.max_clients_per_address,
            memory: self.client_memory(),
            scram: self.mongo_port.is_some(),
        }
    }

    fn client_memory(&self) -> ClientMemoryLimits {
        let bytes = |limit: Size| if limit.0 == 0 { usize::MAX } else { limit.0 as usize };
        ClientMemoryLimits {
            total: bytes(self.max_client_memory),
            of_address: bytes(self.max_client_memory_per_address),
            of_user: bytes(self.max_client_memory_per_user),
        }
    }

    fn tls_args(&self) -> TlsArgs<'_> {
        TlsArgs {
            cert: self.tls_cert.as_deref(),
            key: self.tls_key.as_deref(),
            ca: self.tls_ca.as_deref(),
            auth_clients: self.tls_auth_clients,
            auth_clients_user: self.tls_auth_clients_user,
            min_version: self.tls_min_version,
            peer_ca: self.peer_tls_ca.as_deref(),
            coordinator_ca: self.coordinator_tls_ca.as_deref(),
        }
    }

    fn tls(&self) -> anyhow::Result<Option<TlsSettings>> {
        self.tls_args().settings()
    }

    fn check_tls(&self) -> anyhow::Result<()> {
        let reaches_others =
            self.cluster.is_some() || matches!(self.primary(), Some(Ok(of)) if !of.is_unix());
        if self.tls()?.is_some() && reaches_others && self.tls_args().peers().is_none() {
            return Err(usage(
                "tls_cert: of which authority are the certificates of the other servers? Name its file, peer_tls_ca",
            ));
        }
        Ok(())
    }

    fn check_backlog(&self) -> anyhow::Result<()> {
        let share = self.replica_backlog.0 / self.shards as u64;
        if share <= LOG_HELD_BYTES as u64 {
            return Ok(());
        }
        let (backlog, shards) = (self.replica_backlog, self.shards);
        Err(usage(format!(
            "replica_backlog: {backlog} for {shards} shard(s) is {} each; the log of a shard keeps {} at most",
            Size(share),
            Size(LOG_HELD_BYTES as u64)
        )))
    }

    /// The address of the primary.
    fn primary(&self) -> Option<Result<Address, UnknownAddress>> {
        self.replica_of.as_ref().map(|address| address.parse())
    }

    /// Where the data are kept.
    fn data(&self) -> Option<Data> {
        let directory = self.data_dir.clone()?;
        let promise = self.durability.unwrap_or_default().into();
        Some(Data { directory, promise, snapshot_log_bytes: self.snapshot_log_bytes.0 })
    }

    /// The same, for the server.
    pub fn to_config(&self) -> remora_server::Config {
        remora_server::Config {
            resp_address: SocketAddr::new(self.bind, self.port),
            mongo_address: self.mongo_port.map(|port| SocketAddr::new(self.bind, port)),
            socket_path: self.socket.clone(),
            fabric_address: self.fabric_address,
            transport: self.transport.wanted(),
            shm_users: self.shm_users.clone(),
            rdma_devices: self.rdma_devices.clone(),
            rdma_packets: Packets {
                traffic_class: self.rdma_traffic_class,
                service_level: self.rdma_service_level,
                pkey_index: self.rdma_pkey_index,
                mtu: self.rdma_mtu.and_then(Mtu::of_bytes),
            },
            shards: self.shards,
            max_memory_bytes: self.max_memory.0,
            buckets: self.buckets,
            wake: self.wake.into(),
            pin: self.pin,
            lease_min_ms: self.lease_min_ms,
            pointer_sharing: self.pointer_sharing,
            quarantine_bytes: self.quarantine_bytes.0,
            upload_idle_s: self.upload_idle_s,
            eviction: self.eviction.into(),
            data: self.data(),
            replica_of: self.primary().and_then(Result::ok),
            cluster: None,
            peer_login: Credentials::new(
                self.peer_user.as_deref().unwrap_or_default(),
                self.peer_password.as_ref().map_or(&b""[..], Secret::bytes),
            ),
            peer_tls: self.tls_args().peers(),
            replica_reads: self.replica_reads.into(),
            min_replicas: self.min_replicas,
            replica_acks: self.replica_acks.into(),
            replica_backlog_bytes: self.replica_backlog.0,
            users: self.user_settings(),
            tls: self.tls().ok().flatten(),
            max_queue_pairs: self.max_queue_pairs,
            reads_per_client: self.reads_per_client,
        }
    }
}

/// A file; an empty name names none.
fn named_file(path: Option<PathBuf>) -> Option<PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}

/// The names of a list, in which an empty one names nothing.
fn named(list: Option<Vec<String>>) -> Vec<String> {
    let names = list.unwrap_or_default().into_iter().map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(text: &str) -> Layer {
        Layer::from_toml(text).unwrap()
    }

    fn devices_of(names: &[&str]) -> Vec<String> {
        let rdma_devices = Some(names.iter().map(|name| (*name).to_owned()).collect());
        let settings = Settings::decide(Layer { rdma_devices, ..Layer::default() }).unwrap();
        settings.to_config().rdma_devices
    }

    #[test]
    fn the_upper_layer_wins_setting_by_setting() {
        let flags = layer("port = 1\npin = false");
        let file = layer("port = 2\npin = true\nwake = \"poll\"\nmax_memory = \"64MiB\"");
        let settings = Settings::decide(flags.over(file)).unwrap();
        assert_eq!((settings.port, settings.pin), (1, false));
        assert_eq!((settings.wake, settings.max_memory), (Wake::Poll, Size(64 << 20)));
        assert_eq!(settings.bind, IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert_eq!(settings.log, "info");
        let named = Settings::decide(layer("shards = 1")).unwrap().to_toml().unwrap();
        assert!(named.starts_with("bind") && named.contains("shards = 1"), "{named}");
    }

    #[test]
    fn defaults_hold_where_nobody_speaks() {
        let settings = Settings::decide(Layer::default()).unwrap();
        assert_eq!(settings.port, 7379);
        assert_eq!(settings.max_memory, Size(1 << 30));
        assert_eq!(settings.wake, Wake::Hybrid);
        assert_eq!(settings.to_config().quarantine_bytes, 0);
        assert_eq!(settings.eviction, Eviction::None);
        assert!(settings.shards >= 1 && settings.socket_is_default);
        assert!(settings.to_toml().unwrap().starts_with("# shards: by "));
        assert!(settings.pointer_sharing && settings.rdma_devices.is_empty());
        // As for an empty environment variable.
        assert!(devices_of(&["", " "]).is_empty());
        assert_eq!(devices_of(&["rxe0", " mlx5_0"]), ["rxe0", "mlx5_0"]);
        let text = "rdma_traffic_class = 104\nrdma_mtu = 1024";
        let packets = Settings::decide(layer(text)).unwrap().to_config().rdma_packets;
        let (traffic_class, mtu) = (104, Some(Mtu::Bytes1024));
        assert_eq!(packets, Packets { traffic_class, mtu, ..Packets::default() });
    }

    #[test]
    fn a_whole_file_is_read() {
        let all = layer(
            "bind = \"::1\"\nport = 0\nsocket = \"/run/r.sock\"\nshards = 2\nmax_memory = 1048576\n\
             buckets = 64\nwake = \"event\"\npin = true\nlease_min_ms = 5\n\
             pointer_sharing = false\nquarantine_bytes = \"2MiB\"\nupload_idle_s = 3\n\
             rdma_devices = [\"rxe0\", \"mlx5_0\"]\n\
             rdma_traffic_class = 104\nrdma_service_level = 3\nrdma_pkey_index = 1\nrdma_mtu = 1024\n\
              eviction = \"s3-fifo\"\nmax_queue_pairs = 8\nreads_per_client = 4\nlog = \"debug\"",
        );
        assert_eq!(all.max_memory, Some(Size(1 << 20)));
        assert_eq!(all.bind, Some("::1".parse().unwrap()));
        assert_eq!((all.buckets, all.lease_min_ms), (Some(64), Some(5)));
        assert_eq!(all.pointer_sharing, Some(false));
        assert_eq!(all.quarantine_bytes, Some(Size(2 << 20)));
        assert_eq!((all.upload_idle_s, all.eviction), (Some(3), Some(Eviction::S3Fifo)));
        assert_eq!((all.max_queue_pairs, all.reads_per_client), (Some(8), Some(4)));
        assert_eq!(all.rdma_devices, Some(vec!["rxe0".into(), "mlx5_0".into()]));
        let packets = all.packets().packets().unwrap();
        assert_eq!((packets.traffic_class, packets.service_level, packets.pkey_index), (104, 3, 1));
        assert_eq!(packets.mtu, Some(Mtu::Bytes1024));
    }

    #[test]
    fn an_unknown_field_is_named() {
        let error = Layer::from_toml("prot = 7379").unwrap_err().to_string();
        assert!(error.contains("prot"), "{error}");
    }

    #[test]
    fn impossible_settings_are_refused() {
        for text in [
            "shards = 0",
            "shards = 65",
            "max_memory = \"1k\"",
            "max_memory = \"100TiB\"",
            "max_queue_pairs = 0",
            "max_queue_pairs = 1025",
            "reads_per_client = 0",
            "reads_per_client = 17",
            "rdma_service_level = 16",
            "rdma_mtu = 1500",
            "upload_idle_s = 0",
            "upload_idle_s = 3601",
            "durability = \"fsync\"",
            "snapshot_log_bytes = \"0\"",
            "snapshot_log_bytes = \"1023KiB\"",
            "replica_backlog = \"100GiB\"",
        ] {
            let error = Settings::decide(layer(text)).unwrap_err().to_string();
            assert!(error.contains(text.split(' ').next().unwrap()), "{error}");
        }
    }

    #[test]
    fn servers_trust_the_authority_of_their_clients_unless_another_one_is_named() {
        let decide = |text: &str| Settings::decide(layer(text)).map_err(|error| error.to_string());
        let peers = |text: &str| {
            let tls = decide(text).expect(text).to_config().peer_tls;
            tls.map(|tls| (tls.authorities.display().to_string(), tls.identity.is_some()))
        };
        let (own, of) = ("tls_cert = \"c\"\ntls_key = \"k\"\n", |ca: &str| ca.to_owned());
        assert_eq!(peers(""), None);
        assert_eq!(peers(own), None);
        assert_eq!(peers("peer_tls_ca = \"p\""), Some((of("p"), false)));
        assert_eq!(peers(&format!("{own}tls_ca = \"a\"")), Some((of("a"), true)));
        let both = format!("{own}tls_ca = \"a\"\npeer_tls_ca = \"p\"");
        assert_eq!(peers(&both), Some((of("p"), true)));
        for follows in ["replica_of = \"10.0.0.1:1\"", "cluster = \"zk://h/p\""] {
            let error = decide(&format!("{own}{follows}")).expect_err(follows);
            assert!(error.contains("peer_tls_ca"), "{error}");
            assert!(decide(&format!("{own}{follows}\npeer_tls_ca = \"p\"")).is_ok());
        }
        assert!(decide(&format!("{own}replica_of = \"/run/s\"")).is_ok(), "no TCP");
    }

    #[test]
    fn zookeepers_authority_is_that_of_the_other_servers_unless_another_one_is_named() {
        let decide = |text: &str| Settings::decide(layer(text)).map_err(|error| error.to_string());
        let coordinator = |text: &str| {
            let tls = decide(text).expect(text).tls_args().coordinator();
            tls.map(|tls| (tls.authorities.display().to_string(), tls.identity.is_some()))
        };
        let (own, of) = ("tls_cert = \"c\"\ntls_key = \"k\"\n", |ca: &str| ca.to_owned());
        assert_eq!(coordinator(""), None);
        assert_eq!(coordinator("peer_tls_ca = \"p\""), Some((of("p"), false)));
        assert_eq!(coordinator(&format!("{own}tls_ca = \"a\"")), Some((of("a"), true)));
        let named = "peer_tls_ca = \"p\"\ncoordinator_tls_ca = \"z\"";
        assert_eq!(coordinator(named), Some((of("z"), false)));
        let cluster = "cluster = \"zk+tls://h/p\"";
        let error = decide(cluster).expect_err("without an authority");
        assert!(error.contains("coordinator_tls_ca"), "{error}");
        // The servers go without TLS among each other.
        let settings = decide(&format!("{cluster}\ncoordinator_tls_ca = \"z\"")).unwrap();
        assert_eq!(settings.to_config().peer_tls, None);
    }

    #[test]
    fn certificates_of_clients_protect_sessions_and_a_certificate_of_the_server_does_not() {
        let listens = |text: &str| {
            let all = "tls_cert = \"c\"\ntls_key = \"k\"\nfabric_address = \"0.0.0.0:0\"\n";
            Settings::decide(layer(&format!("{all}{text}"))).unwrap().check_listeners()
        };
        assert!(listens("").is_err());
        assert_eq!(listens("tls_ca = \"a\"").unwrap(), [""; 0]);
        assert!(listens("tls_ca = \"a\"\ntls_auth_clients = \"optional\"").is_err());
        assert_eq!(listens("protected_mode = false").unwrap().len(), 1);
    }

    #[test]
    fn a_server_of_a_cluster_says_where_it_is_reached() {
        let decide = |text: &str| {
            Settings::decide(layer(&format!("cluster = \"zk://h/p\"\n{text}")))
                .map_err(|error| error.to_string())
        };
        for (text, words) in [
            ("bind = \"0.0.0.0\"", "no other server reaches"),
            ("bind = \"::\"", "no other server reaches"),
            ("bind = \"10.0.0.5\"\nfabric_address = \"0.0.0.0:7380\"", "no other server reaches"),
            ("announce = \"here\"", "is no HOST:PORT"),
            ("announce = \"/a:1\"", "is no HOST:PORT"),
            ("announce = \"a:0\"", "is no HOST:PORT"),
            ("announce = \"0.0.0.0:7379\"", "is no HOST:PORT"),
            ("announce = \"a:1\"", "set fabric_address"),
            ("announce = \"a:1\"\nfabric_address = \"0.0.0.0:0\"", "set fabric_address"),
        ] {
            let error = decide(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
        let container = "bind = \"0.0.0.0\"\nfabric_address = \"0.0.0.0:7380\"\n\
                         announce = \"remora-0:7379\"";
        let settings = decide(container).unwrap();
        assert!(!settings.is_cluster_of_one_machine());
        let cluster = settings.cluster().unwrap();
        assert_eq!(cluster.announced_resp.as_deref(), Some("remora-0:7379"));
        assert_eq!(cluster.announced_host.as_deref(), Some("remora-0"));
        assert!(!decide("bind = \"10.0.0.5\"").unwrap().is_cluster_of_one_machine());
        assert!(decide("port = 0").unwrap().is_cluster_of_one_machine());
        assert!(!Settings::decide(Layer::default()).unwrap().is_cluster_of_one_machine());
    }
}
