//! A client of a whole cluster, which follows its primaries by itself.
//!
//! ```text
//!   ClusterSession    one thread: a session for each group that it uses      session
//!        |                it repeats what has changed nothing                outcome
//!   ClusterClient     one process: a connection to each primary              client, shared
//!        |                asks servers for the topology                      probes
//!   Routes            key -> slot -> group -> primary, epoch, address        routes
//! ```
//! Invariants:
//! * a connection is to one instance, in one epoch of its group. It ends with that epoch, and with it
//!   all pointers, leases and views that sessions have from it: `Sessions`;
//! * an operation is repeated only if none of its requests has changed anything, as far as the client
//!   can know; a change whose reply was lost is reported, and never sent again;
//! * only a primary's answers count: what a replica shows is refused as too old.

mod client;
mod counts;
mod links;
mod objects;
mod outcome;
mod pause;
mod probes;
mod routes;
mod session;
mod sessions;
mod shared;

pub use client::ClusterClient;
pub use counts::ClusterCounts;
pub use session::ClusterSession;
