//! A server that is a replica: one thread takes the logs of all shards of the primary out of their
//! rings, and the threads of its own shards apply them.
//!
//! ```text
//!   rings, one for each shard      "following"          shards' threads
//!   of the primary       -------->  Follower  --batch-->  Applier
//!                        <--------  positions <--counts--
//! ```
//! Invariant: nothing but the log of the primary changes the data of a replica.

mod applier;
mod batch;
mod durable_places;
mod resume;
mod state;
mod thread;

pub(crate) use applier::Applier;
pub(crate) use batch::Batch;
pub(crate) use resume::Resume;
pub(crate) use state::Following;
pub(crate) use thread::FollowThread;
