//! Commands, replies, and the shard as a state machine: events and time in,
//! changes and replies out. No I/O, no clock, no randomness of its own.

#![forbid(unsafe_code)]

pub mod command;
pub mod evict;
pub mod geo;
pub mod geo_read;
pub mod integer;
pub mod oplog;
pub mod shard;
pub mod string_edit;

pub use command::{Command, Condition, ExpireCondition, Expiry, Reply};
pub use evict::Eviction;
pub use shard::{Download, LargeSet, Now, Outcome, Shard, ShardOptions, ShardStats, Upload};
