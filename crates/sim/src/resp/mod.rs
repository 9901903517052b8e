//! RESP in a world: the production connections, executor and jobs of one server
//! thread, between simulated streams of bytes and the world's shards, and
//! clients that send pipelines.
//!
//! The optimistic reads of that thread return, for each word, a value that it held during the read:
//! the thread is suspended in the middle of each read, and the shards go on.

mod client;
mod jobs;
mod lists;
mod moves;
mod replies;
mod requests;
mod stream;
mod swarm;
mod thread;
mod tree_moves;

pub use client::RespClient;
pub use jobs::ShardJobs;
pub use lists::ListClient;
pub use moves::MOVED_KEYS;
pub(crate) use stream::lock;
pub use swarm::RespSwarm;
pub use thread::{BesideMemory, Resp, SimHost};
