//! Why there is no client of a cluster.

use crate::error::{ConnectError, Error};
use crate::options::Address;

/// Why there is no [`ClusterClient`](super::ClusterClient).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterConnectError {
    /// No address was given.
    #[error("no address of a server of the cluster was given, or none was tried in time")]
    NoAddress,
    /// The last server that was tried gives no session.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server has gone meanwhile, or does not answer.
    #[error(transparent)]
    Session(Error),
    /// The server belongs to no cluster, or has not reached its coordinator yet.
    #[error("the server at {0} belongs to no cluster, or has not reached its coordinator yet")]
    NoCluster(Address),
    /// The topology cannot be read: the server is of another release.
    #[error("the topology that the server at {0} tells cannot be read: {1}")]
    Topology(Address, String),
}
