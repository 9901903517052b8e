//! Whole connections with a shard whose jobs wait until they are executed.

mod ahead;
mod cluster;
mod held;
mod input;
mod long_replies;
mod output;
mod stalled;
pub mod world;
