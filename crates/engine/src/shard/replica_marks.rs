//! How far replicas have the changes of a shard, as its caller says.

/// How far one replica has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplicaMarks {
    /// The last one that it has stored.
    pub stored: u64,
    /// The last one on its disk; 0 without one.
    pub durable: u64,
}
