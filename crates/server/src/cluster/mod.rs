//! The server as a member of a cluster: a thread that carries out what the state machines of
//! `remora-cluster` say, and tells them what happens (HydraDB 5.1; docs/cluster.md).
//!
//! ```text
//!   coordinator <---> Coordinator
//!                          | events                       role thread   Orders: hold, follow, lead
//!   other servers ---> ClusterThread: Member, Watcher --> shards        Requirement
//!                 <---     | messages                 --> ReplicaView   the lease
//!                        Peers
//! ```
//! Invariants:
//! * one thread has the state machines; actions are carried out in their order;
//! * a server serves only while the lease word of `replica_view` says so, and this thread alone
//!   makes it last longer, a term at most: a thread that stands still lets it lapse. The thread of the role
//!   only ends it;
//! * the word is that of the new obligations before the coordinator is asked to record them.

mod facts;
mod offsets;
mod orders;
mod peers;
mod published;
mod recording;
mod settings;
mod standings;
mod state;
#[cfg(test)]
mod tests;
mod thread;

pub(crate) use facts::lines_of;
pub(crate) use published::PublishedTopology;
pub use settings::{ClusterSettings, Connect};
pub(crate) use state::ClusterState;
pub(crate) use thread::ClusterThread;
