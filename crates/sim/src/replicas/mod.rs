//! Worlds of several servers: a primary and replicas, over links that fail, with processes that
//! stand still and die. A replica takes the primary's place when that is gone.
//!
//! ```text
//!   clients --- Node, the primary --- rings, log ---> Replica, shards 0 .. n
//!                     |                                   |    |
//!                     +-----------> Oracle <--------------+    +--- rings, READs --- ReplicaReader
//! ```
//! The server's code for both ends runs: sessions and feeds at the primary, the worker that follows
//! and the appliers of the shards at the replica. Simulated are their threads and the operator.

mod counts;
mod oracle;
mod promotion;
mod reader;
mod reading;
mod server;
mod state;
mod swarm;

pub use counts::ReplicaCounts;
pub use oracle::Oracle;
pub use reader::ReplicaReader;
pub use server::{Gone, Process, Replica, ReplicaTask};
pub use state::Replicas;
pub use swarm::{MAX_REPLICAS, ReplicaSwarm};
