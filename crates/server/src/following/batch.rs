//! What the thread that follows hands over to the shards' threads.

use remora_log::OwnedEntry;

/// A part of the log of one shard of the primary, or of a copy of it.
pub struct Batch {
    /// The number of that shard.
    pub log: usize,
    /// How many shards the primary has.
    pub logs: usize,
    /// The key of the log.
    pub key: u64,
    /// What is to be done.
    pub body: Body,
}

/// See [`Batch`].
pub enum Body {
    /// A copy begins: what is there of that shard's keys goes away.
    Begin,
    /// Whole operations of the copy.
    Operations(Vec<u8>),
    /// The end of the copy: the log goes on behind this entry.
    Copied {
        /// Its sequence.
        sequence: u64,
        /// Its epoch.
        epoch: u64,
    },
    /// Entries, all of them committed.
    Entries(Vec<OwnedEntry>),
}
