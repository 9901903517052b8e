//! What the thread that follows hands over to the shards' threads.

use super::state::Following;
use super::step_barrier::StepBarrier;
use remora_log::OwnedEntry;
use std::sync::Arc;

/// Something for a shard of a replica to do, in its turn.
pub struct Batch {
    /// The primary that it is of.
    pub following: Arc<Following>,
    /// What is to be done.
    pub body: Body,
}

/// See [`Batch`].
pub enum Body {
    /// All that the shard has goes away: the copy of another server begins, which has so many shards.
    Clear {
        /// Shards of that server.
        logs: usize,
    },
    /// A part of the log of one shard of the primary, or of a copy of it.
    Log {
        /// The number of that shard.
        log: usize,
        /// How many shards the primary has.
        logs: usize,
        /// The key of the log.
        key: u64,
        /// The part.
        part: LogPart,
    },
    /// All that came before is done.
    StepBarrier(Arc<StepBarrier>),
}

/// See [`Body::Log`].
pub enum LogPart {
    /// A copy begins: what is there of that shard's keys goes away.
    Begin,
    /// Whole operations of the copy.
    Operations(Vec<u8>),
    /// The end of the copy, or of an epoch: the log goes on behind this entry.
    Copied {
        /// Its sequence.
        sequence: u64,
        /// Its epoch.
        epoch: u64,
    },
    /// Entries, all of them committed.
    Entries(Vec<OwnedEntry>),
}
