//! Questions to a shard, and its answers: typed operations, their encoding, their status codes. No
//! I/O.
//!
//! Invariant of this crate: an operation has one encoding, for rings, for the mail between shards
//! and for the log; each type has a range of 256 numbers of its own; decoded commands contain
//! checked parts only.

#![forbid(unsafe_code)]

pub mod applied;
mod claim;
mod clock;
mod command;
pub mod decimal;
mod encoding;
pub mod glob;
mod items;
pub mod message;
mod moved;
mod pairs;
pub mod replication;
mod reply;
mod sized;
mod types;

pub use claim::Claim;
pub use clock::{ClockFollower, ServerClock};
pub use command::{Command, Condition, ExpireCondition, Expiry};
pub use items::Items;
pub use moved::{Dumped, LoadStep, ScannedKeys, Source};
pub use pairs::Pairs;
pub use remora_layout::integer;
pub use reply::Reply;
pub use types::*;
