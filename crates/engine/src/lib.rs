//! Commands, replies, and the shard as a state machine: events and time in,
//! changes and replies out. No I/O, no clock, no randomness of its own.

#![forbid(unsafe_code)]

pub mod command;

pub use command::{Command, Condition, ExpireCondition, Expiry, Reply};
