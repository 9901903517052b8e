//! Commands, replies, and the shard as a state machine: it takes events and time, and gives changes
//! and replies. It has no I/O, no clock and no randomness of its own.

#![forbid(unsafe_code)]

mod elements;
pub mod evict;
pub mod geo_read;
mod keys;
pub mod moving;
mod outcome;
mod shard;
mod store;
pub mod storing;
pub mod string_edit;
pub mod types;

pub use evict::Eviction;
pub use outcome::Outcome;
pub use shard::{
    Applied, ApplyError, BadOperation, Digest, DigestRead, EpochHistory, FollowedLog, LogHistory,
    OperationCount, Origin, PartReply, ReplicaMarks, ReplicaPosition, Resumption, Served, Shard,
    SnapshotTurn, SplitOperation, TailPiece, Tried, WaitFor, WaiterName, split_operation,
};
pub use store::{
    Download, Durability, FindElsewhere, KeyCounts, Now, STREAM_CLASS, SetAside, ShardOptions,
    ShardStats, table_end,
};
pub use types::object::{LongRead, Turn};
pub use types::sought::{Area, Met, Seek, Sought};
pub use types::string::{LargeSet, Upload};
