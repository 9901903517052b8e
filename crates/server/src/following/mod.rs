//! The role of a server: a primary, or a replica, of which one thread takes the logs of all shards
//! of the primary out of their rings, and the threads of its own shards apply them.
//!
//! ```text
//!   rings, one for each shard      "role"               shards' threads
//!   of the primary       -------->  Replica  --batch-->  Applier
//!                        <--------  positions <--counts--
//! ```
//! Invariant: nothing but the log of the primary changes the data of a replica.

mod applier;
mod batch;
mod fit;
mod gate;
mod replica;
mod role;
mod state;
mod thread;

pub(crate) use applier::Applier;
pub(crate) use batch::Batch;
pub(crate) use role::{Role, RoleChange, RoleStep, Roles};
pub(crate) use state::Following;
pub(crate) use thread::RoleThread;
