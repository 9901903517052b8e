//! A process's client of a cluster.

use super::counts::ClusterCounts;
use super::pause::Pause;
use super::probes::Probes;
use super::session::ClusterSession;
use super::shared::Shared;
use crate::error::{ClusterConnectError, ConnectFailure};
use crate::options::{Address, Options};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A process's connections to the primaries of a cluster. Cheap to clone. Each thread takes a
/// [`ClusterSession`] of its own from it.
///
/// It learns the topology from any server, routes each key by its slot, and follows failovers by
/// itself. [`ClusterSession`] says what that means for an operation.
///
/// ```no_run
/// use remora_client::{ClusterClient, Error, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Some servers of the cluster: one that answers is enough.
/// let servers = ["10.0.0.5:7380".parse()?, "10.0.0.6:7380".parse()?];
/// let client = ClusterClient::connect(&servers, &Options::default())?;
/// let mut session = client.session();
/// match session.set(b"courier:7", b"free") {
///     Ok(()) => println!("acknowledged: it survives the primary"),
///     Err(Error::Unknown) => println!("look whether it was set: the primary is gone"),
///     Err(other) => return Err(other.into()),
/// }
/// let got = session.get(b"courier:7")?;
/// println!("{:?}, {:?}, {:?}", got.value, got.served_by, client.counts());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ClusterClient {
    shared: Arc<Shared>,
}

impl ClusterClient {
    /// Connects to a cluster by the addresses of some of its servers, their Unix sockets or fabric
    /// addresses. It tries one after the other, again and again, for [`Options::timeout`].
    ///
    /// [`Options::max_lag`] has no effect: only primaries' answers count.
    ///
    /// # Errors
    /// No server tells the topology in time: why the last one does not.
    pub fn connect(addresses: &[Address], options: &Options) -> Result<Self, ClusterConnectError> {
        let mut options = options.clone();
        options.core.max_lag = Some(Duration::ZERO);
        options.core.ends_when_silent = true;
        let mut probes = Probes::new(&options.core, addresses);
        let mut pause = Pause::new(Instant::now(), options.core.timeout);
        let mut last = ClusterConnectError::NoAddress;
        // Bounded by the timeout: then no address is tried.
        let topology = loop {
            match probes.ask(Vec::new(), None, &pause) {
                Ok(topology) => break topology,
                Err(ClusterConnectError::NoAddress) => return Err(last),
                // The servers of a cluster have the same users and authorities.
                Err(ClusterConnectError::Connect(why))
                    if matches!(why.kind(), ConnectFailure::NotLoggedIn | ConnectFailure::Tls) =>
                {
                    return Err(why.into());
                }
                Err(why) => last = why,
            }
            pause.sleep();
        };
        probes.settle();
        let shared = Shared::new(options, topology, probes);
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A session for one thread. It connects to a primary once it needs it.
    ///
    /// ```no_run
    /// # use remora_client::{ClusterClient, Error};
    /// # fn example(client: &ClusterClient) {
    /// std::thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| -> Result<(), Error> {
    ///             let mut session = client.session();
    ///             session.set(b"state", b"free")
    ///         });
    ///     }
    /// });
    /// # }
    /// ```
    pub fn session(&self) -> ClusterSession {
        ClusterSession::new(Arc::clone(&self.shared))
    }

    /// What following the cluster has cost so far, over all sessions.
    ///
    /// ```no_run
    /// # fn example(client: &remora_client::ClusterClient) {
    /// let counts = client.counts();
    /// println!("{} failovers, {} unknown", counts.failovers_followed, counts.unknown);
    /// # }
    /// ```
    pub fn counts(&self) -> ClusterCounts {
        self.shared.counts.now()
    }

    /// The version of the topology that the client goes by: it grows with each change of the cluster.
    ///
    /// ```no_run
    /// # fn example(client: &remora_client::ClusterClient) {
    /// println!("version {}", client.topology_version());
    /// # }
    /// ```
    pub fn topology_version(&self) -> u64 {
        self.shared.see().routes.version()
    }
}

impl std::fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterClient")
            .field("topology_version", &self.topology_version())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
