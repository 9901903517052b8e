//! Other ways to pass messages and to share the work of a shard, for
//! comparison only: nothing outside the bench knows them.
//!
//! Invariant: memory, sealing, the hello, the engine and the payloads are those of the product;
//! only the form of a message ([`Messages`]) and the threads that serve it ([`ShardModel`]) differ.
//! Server and client are the bench's own, one connection for each client thread, and all forms run
//! in the same loops. The results of a variant are checked as everywhere.
//!
//! | | HydraDB | here |
//! | --- | --- | --- |
//! | `ring` | (ours) | frames with sequence and checksum, many outstanding |
//! | `indicator` | 4.2.1, H14 to H17 | one buffer each way, zeroed, polled |
//! | `sendrecv` | 6.2, H18 | posted buffers and completion queues |
//! | `single` | 4.1.1, H3 | one thread detects, executes, replies |
//! | `pipelined` | 6.2.1, H4 | two threads dispatch, two execute, one store |

mod client;
mod conversation;
mod ends;
pub mod form;
mod indicator;
mod nap;
mod ring_ends;
mod sendrecv;
mod server;

pub use client::open;
pub use server::{VariantServerArgs, run as run_server};
