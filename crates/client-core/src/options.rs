//! The application's options: how to make and use a connection, and how to set a key.

use crate::admission::ConcurrencyLimit;
use crate::choose::{Policy, Predictor, last_heartbeat};
use remora_fabric::detect::Wanted;
use remora_fabric::verbs::Packets;
use remora_fabric::{ClientTlsSettings, Credentials, Dialling, HELLO_TIMEOUT, Wake};
use remora_layout::database::Database;
use remora_layout::limits::DATA_BUFFER_BYTES;
use remora_protocol::{Condition, Expiry};
use std::path::PathBuf;
use std::time::Duration;

/// Where a session keeps pointers to records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PointerCacheKind {
    /// Nowhere: the client asks for each key, or walks to it.
    Off,
    /// In memory of its own.
    #[default]
    Private,
    /// In one table for all sessions that this user has with this server on this machine over this
    /// kind of transport (HydraDB 4.2.4, H28), and nowhere else: over shared memory the server's
    /// table, otherwise a file that the clients make. A process that shares it can mislead the
    /// others' READs, which then fail validation; the client then asks. A server that isolates its
    /// clients has no table (H29): connecting fails with `ConnectError::NoPointerSharing`. If the
    /// file is not available, it fails with `ConnectError::PointerFile`.
    Shared,
}

/// Options of a session.
#[derive(Clone, Debug)]
pub struct Options {
    /// The transport of the session; [`Wanted::Auto`] takes the best that both sides have.
    pub transport: Wanted,
    /// How the session waits for replies.
    pub wake: Wake,
    /// The database of the session's keys.
    pub database: Database,
    /// Where pointers to records are kept.
    pub pointer_cache: PointerCacheKind,
    /// Most pointers that a private cache keeps; 0 is as good as `Off`.
    pub pointer_cache_entries: usize,
    /// Directory of the file of shared pointers, which TCP needs: it must belong to this user
    /// alone, best in memory; the client creates it if it is missing. `None`:
    /// `$XDG_RUNTIME_DIR/remora`, else `/dev/shm/remora-UID`.
    pub pointer_directory: Option<PathBuf>,
    /// Minimum duration that the client assumes for leases (benches only: long enough for the run);
    /// `None` uses the server's term.
    pub lease: Option<Duration>,
    /// Memory for large replies that the process registers over RDMA on a
    /// machine without limits, in bytes: `S` of RDMA_Mongo's formula (1), which
    /// gives less on a loaded machine ([`crate::DataBufferCounts`]). One reply
    /// at a time always may have what it needs.
    pub data_buffer_bytes: usize,
    /// Over RDMA: traffic class, service level, partition and length of what
    /// this process sends.
    pub rdma_packets: Packets,
    /// The rule that decides [`crate::Path::Choose`].
    pub policy: Policy,
    /// How Catfish's two policies predict the server's load.
    pub predictor: Predictor,
    /// How many threads may walk trees at a time by READs.
    pub concurrency_limit: ConcurrencyLimit,
    /// How long an operation may wait for its reply.
    pub timeout: Duration,
    /// The oldest that what a read finds may be, if the server is a replica: a read that cannot be
    /// sure of it fails with [`crate::Error::TooStale`]. `None`: any age; the result says it.
    pub max_lag: Option<Duration>,
    /// The user that the client logs in as; by default `default`, without a password.
    pub credentials: Credentials,
    /// TLS with servers that are reached by TCP; `None`: the client speaks none.
    pub tls: Option<ClientTlsSettings>,
    /// How long to retry at a server that is busy with connecting others.
    pub connect_timeout: Duration,
    /// How long to wait for each answer of a server while connecting.
    pub hello_timeout: Duration,
    /// A wait ends, and the session with it, as soon as the server has been silent for
    /// `SERVER_SILENT_MS`. Otherwise only an operation whose time is up looks for that.
    pub ends_when_silent: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            transport: Wanted::Auto,
            wake: Wake::Hybrid,
            database: Database::ZERO,
            pointer_cache: PointerCacheKind::default(),
            pointer_cache_entries: 1 << 20,
            pointer_directory: None,
            lease: None,
            data_buffer_bytes: DATA_BUFFER_BYTES,
            rdma_packets: Packets::default(),
            policy: Policy::default(),
            predictor: last_heartbeat,
            concurrency_limit: ConcurrencyLimit::default(),
            timeout: Duration::from_secs(5),
            max_lag: None,
            credentials: Credentials::default(),
            tls: None,
            connect_timeout: Duration::from_secs(30),
            hello_timeout: HELLO_TIMEOUT,
            ends_when_silent: false,
        }
    }
}

impl Options {
    /// How the session is made.
    pub(crate) fn dialling(&self) -> Dialling {
        Dialling {
            wanted: self.transport,
            credentials: self.credentials.clone(),
            tls: self.tls.clone(),
            packets: self.rdma_packets,
            backoff: self.connect_timeout,
            hello_timeout: self.hello_timeout,
        }
    }
}

/// Options of a SET.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetOptions {
    /// When to set.
    pub condition: Condition,
    /// What happens to the expiry.
    pub expiry: Expiry,
}
