//! How a connection is made and used.

use remora_client_core as core;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path as FilePath, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Where a server listens: its Unix socket, or its fabric address, whose host may be a name. A name is
/// resolved with each connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address(pub(crate) core::Address);

/// A text that is neither a path nor a host with a port.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} is neither a socket's path (with a /) nor an address like 127.0.0.1:7000 or host:7000"
)]
pub struct UnknownAddress(String);

impl Address {
    /// The server's Unix socket.
    ///
    /// ```
    /// use remora_client::Address;
    ///
    /// assert_eq!(Address::unix("/tmp/remora.sock").to_string(), "/tmp/remora.sock");
    /// ```
    pub fn unix(path: impl AsRef<FilePath>) -> Self {
        Self(core::Address::Unix(path.as_ref().to_owned()))
    }

    /// The server's fabric address, on this host or another one.
    ///
    /// ```
    /// use remora_client::Address;
    /// use std::net::SocketAddr;
    ///
    /// let address: SocketAddr = "10.0.0.5:7380".parse()?;
    /// assert_eq!(Address::tcp(address), "10.0.0.5:7380".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tcp(address: SocketAddr) -> Self {
        Self(core::Address::Tcp(address))
    }
}

impl FromStr for Address {
    type Err = UnknownAddress;

    fn from_str(text: &str) -> Result<Self, UnknownAddress> {
        text.parse().map(Self).map_err(|_| UnknownAddress(text.to_owned()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The transport of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Transport {
    /// Memory that client and server share. READs cost the server nothing.
    Shm,
    /// RDMA. READs cost the server's processor nothing.
    Verbs,
    /// TCP. The server's processor executes each READ.
    Tcp,
}

/// How a session waits for replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Wake {
    /// It polls without end: lowest latency, a core for each session that waits.
    Poll,
    /// It sleeps in the kernel.
    Event,
    /// It polls for a short while, then sleeps.
    #[default]
    Hybrid,
}

/// Where a session keeps pointers to records of the server's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum PointerCache {
    /// Nowhere: the session asks for each key, or finds it through its bucket.
    Off,
    /// In memory of its own.
    #[default]
    Private,
    /// In one table for all sessions that this user has with this server on this machine. A process
    /// that shares it can mislead the others' READs, which then fail validation; the session then
    /// asks.
    Shared,
}

/// Options of a connection. The defaults suit most applications.
///
/// ```
/// use remora_client::{Options, Path, Transport, Wake};
/// use std::time::Duration;
///
/// let options = Options::default()
///     .transport(Transport::Tcp)
///     .path(Path::Choose)
///     .wake(Wake::Event)
///     .timeout(Duration::from_secs(1));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) core: core::Options,
    pub(crate) path: core::Path,
}

impl Options {
    /// Names the transport of the connection. Without this the client takes the best that both
    /// sides have. If a named transport is not available, connecting fails.
    ///
    /// ```
    /// # use remora_client::{Options, Transport};
    /// let options = Options::default().transport(Transport::Shm);
    /// ```
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.core.transport = match transport {
            Transport::Shm => core::Wanted::Shm,
            Transport::Verbs => core::Wanted::Verbs,
            Transport::Tcp => core::Wanted::Tcp,
        };
        self
    }

    /// The user of the connection, and its password: that of a server with users, which may do all.
    ///
    /// ```
    /// # use remora_client::Options;
    /// let options = Options::default().user("alice", "a long secret");
    /// ```
    #[must_use]
    pub fn user(mut self, name: impl AsRef<[u8]>, password: impl AsRef<[u8]>) -> Self {
        self.core.credentials = core::Credentials::new(name, password);
        self
    }

    /// TLS with servers that are reached by TCP, whose certificates have to be of the authorities in this
    /// file of PEM, and to hold the name or the address that is dialled. The file is read with each
    /// connection. Over RDMA only the set-up is encrypted, shared memory needs none.
    ///
    /// ```
    /// # use remora_client::Options;
    /// let options = Options::default().tls("/etc/remora/ca.pem");
    /// ```
    #[must_use]
    pub fn tls(mut self, authorities: impl Into<PathBuf>) -> Self {
        self.core.tls = Some(core::ClientTlsSettings::new(authorities));
        self
    }

    /// The same, and the client shows this certificate, whose private key is in the second file: for
    /// servers that ask for one.
    ///
    /// ```
    /// # use remora_client::Options;
    /// let options = Options::default().tls_as("/etc/remora/ca.pem", "me.pem", "me.key");
    /// ```
    #[must_use]
    pub fn tls_as(
        mut self,
        authorities: impl Into<PathBuf>,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let tls = core::ClientTlsSettings::new(authorities);
        self.core.tls = Some(tls.with_identity(certificate, key));
        self
    }

    /// How sessions fetch values if a handle does not say otherwise.
    ///
    /// ```
    /// # use remora_client::{Options, Path};
    /// let options = Options::default().path(Path::Read);
    /// ```
    #[must_use]
    pub fn path(mut self, path: core::Path) -> Self {
        self.path = path;
        self
    }

    /// The rule that decides [`Path::Choose`](crate::Path::Choose).
    ///
    /// ```
    /// # use remora_client::{Options, Policy};
    /// let options = Options::default().policy(Policy::CatfishKeep);
    /// ```
    #[must_use]
    pub fn policy(mut self, policy: core::Policy) -> Self {
        self.core.policy = policy;
        self
    }

    /// How sessions wait for replies.
    ///
    /// ```
    /// # use remora_client::{Options, Wake};
    /// let options = Options::default().wake(Wake::Poll);
    /// ```
    #[must_use]
    pub fn wake(mut self, wake: Wake) -> Self {
        self.core.wake = match wake {
            Wake::Poll => core::Wake::Poll,
            Wake::Event => core::Wake::Event,
            Wake::Hybrid => core::Wake::Hybrid,
        };
        self
    }

    /// The database of the sessions' keys, 0 to 15. 0 is the default.
    ///
    /// # Panics
    /// There is no such database.
    ///
    /// ```
    /// # use remora_client::Options;
    /// let options = Options::default().database(3);
    /// ```
    #[must_use]
    pub fn database(mut self, number: u8) -> Self {
        let database = core::Database::new(number.into());
        self.core.database = database.expect("a database's number is 0 to 15");
        self
    }

    /// Where sessions keep pointers to records.
    ///
    /// ```
    /// # use remora_client::{Options, PointerCache};
    /// let options = Options::default().pointer_cache(PointerCache::Shared);
    /// ```
    #[must_use]
    pub fn pointer_cache(mut self, kind: PointerCache) -> Self {
        self.core.pointer_cache = match kind {
            PointerCache::Off => core::PointerCacheKind::Off,
            PointerCache::Private => core::PointerCacheKind::Private,
            PointerCache::Shared => core::PointerCacheKind::Shared,
        };
        self
    }

    /// Most pointers that a private cache keeps, of 32 bytes each. A million is the default.
    ///
    /// ```
    /// # use remora_client::Options;
    /// let options = Options::default().pointer_cache_entries(1 << 16);
    /// ```
    #[must_use]
    pub fn pointer_cache_entries(mut self, entries: usize) -> Self {
        self.core.pointer_cache_entries = entries;
        self
    }

    /// Directory of the file of shared pointers, which TCP and RDMA need: it must belong to this
    /// user alone, best in memory. The default is `$XDG_RUNTIME_DIR/remora`, else
    /// `/dev/shm/remora-UID`.
    ///
    /// ```
    /// # use remora_client::Options;
    /// let options = Options::default().pointer_directory("/dev/shm/couriers");
    /// ```
    #[must_use]
    pub fn pointer_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.core.pointer_directory = Some(directory.into());
        self
    }

    /// Memory for large replies that the process registers over RDMA on a machine without
    /// load, in bytes.
    ///
    /// ```
    /// # use remora_client::Options;
    /// let options = Options::default().data_buffer_bytes(16 << 20);
    /// ```
    #[must_use]
    pub fn data_buffer_bytes(mut self, bytes: usize) -> Self {
        self.core.data_buffer_bytes = bytes;
        self
    }

    /// How many sessions of the process may read trees at a time over a network. Without this the
    /// client adapts the number by itself.
    ///
    /// ```
    /// # use remora_client::Options;
    /// let options = Options::default().concurrent_walks(3);
    /// ```
    #[must_use]
    pub fn concurrent_walks(mut self, most: usize) -> Self {
        self.core.concurrency_limit = core::ConcurrencyLimit::AtMost(most);
        self
    }

    /// How long an operation may wait for its reply. 5 seconds is the default.
    ///
    /// ```
    /// # use remora_client::Options;
    /// let options = Options::default().timeout(std::time::Duration::from_millis(200));
    /// ```
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.core.timeout = timeout;
        self
    }

    /// The oldest that what a read finds may be, if the server is a replica: a read that cannot be
    /// sure of it fails with [`Error::TooStale`](crate::Error::TooStale). Without this a read may
    /// find what is of any age, and says so ([`Session::lag`](crate::Session::lag)).
    ///
    /// ```
    /// # use remora_client::Options;
    /// let options = Options::default().max_lag(std::time::Duration::from_millis(100));
    /// ```
    #[must_use]
    pub fn max_lag(mut self, most: Duration) -> Self {
        self.core.max_lag = Some(most);
        self
    }

    /// How long to retry at a server that is busy with connecting others. 30 seconds is the
    /// default.
    ///
    /// ```
    /// # use remora_client::Options;
    /// let options = Options::default().connect_timeout(std::time::Duration::from_secs(2));
    /// ```
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.core.connect_timeout = timeout;
        self
    }
}
