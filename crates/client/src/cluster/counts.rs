//! What following a cluster has cost the sessions of a process.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of all sessions of a [`ClusterClient`](crate::ClusterClient), since it connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ClusterCounts {
    /// Newer epochs of groups that the client has used: it went to another primary, or to another
    /// incarnation of it.
    pub failovers_followed: u64,
    /// Connections to primaries that were lost, and not left because of a newer epoch.
    pub connections_lost: u64,
    /// Pointers to records, and views of hashes and trees, that were dropped with a connection.
    pub pointers_dropped: u64,
    /// Times that an operation was begun again. None of its requests had changed anything.
    pub operations_repeated: u64,
    /// Operations that ended as [`Error::Unknown`](crate::Error::Unknown).
    pub unknown: u64,
    /// Topologies that servers sent.
    pub topologies_fetched: u64,
}

/// The same, as threads count.
#[derive(Default)]
pub(super) struct SharedCounts {
    pub failovers_followed: AtomicU64,
    pub connections_lost: AtomicU64,
    pub pointers_dropped: AtomicU64,
    pub operations_repeated: AtomicU64,
    pub unknown: AtomicU64,
    pub topologies_fetched: AtomicU64,
}

impl SharedCounts {
    pub fn now(&self) -> ClusterCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ClusterCounts {
            failovers_followed: of(&self.failovers_followed),
            connections_lost: of(&self.connections_lost),
            pointers_dropped: of(&self.pointers_dropped),
            operations_repeated: of(&self.operations_repeated),
            unknown: of(&self.unknown),
            topologies_fetched: of(&self.topologies_fetched),
        }
    }
}

/// Adds to a count.
pub(super) fn count(to: &AtomicU64, more: u64) {
    to.fetch_add(more, Ordering::Relaxed);
}
