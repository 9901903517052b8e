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
mod durable_places;
mod fit;
mod host;
mod replica;
mod resume;
mod role;
mod state;
mod step_barrier;
mod thread;
mod worker;

pub use applier::Applier;
pub use batch::{Batch, Body, LogPart};
pub use fit::Memory;
pub use host::Host;
pub use resume::Resume;
pub(crate) use role::{Order, OrderAnswer, Role, RoleChange, RoleStep, Roles};
pub use state::Following;
pub use step_barrier::StepBarrier;
pub(crate) use thread::RoleThread;
pub use worker::{Ended, Worker};
