//! Counts of searches of other shards' trees.

use std::sync::atomic::AtomicU64;

/// Searches over rings of trees of other shards, by their outcome.
#[derive(Default)]
pub struct OtherSearches {
    /// Answered by reading the other shard's memory.
    pub answered: AtomicU64,
    /// Sent on to the owner, as they cost more than one turn.
    pub beyond: AtomicU64,
    /// Sent on to the owner, because the tree was removed or changed too fast.
    pub unsettled: AtomicU64,
}
