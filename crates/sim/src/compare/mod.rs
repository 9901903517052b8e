//! Policies compared in virtual time: the real client's sessions, rings and walks, the real shards,
//! over links and cores whose costs are stated (`costs`). Nothing fails, and only the clients'
//! requests are random, so every figure is exact and reproducible.
//!
//! Simulated are: the wire and its ports, a core's time for a request, a client thread's time for a
//! READ, and the queue of a core's requests (`core`). Heartbeats are those of the protocol and
//! report the cores' real work.

mod args;
mod coordination;
mod core;
mod costs;
mod gate;
mod judge;
mod links;
mod replication;
mod report;
mod run;
mod scheduler;
mod server;
mod watched;
mod work;
mod workloads;

pub use self::core::Absences;
pub use args::Args;
pub use coordination::{Walking, walking};
pub use costs::{CATFISH, Costs, RDMA, SHM, TCP};
pub use judge::{Fixed, REACHED};
pub use links::{APPLICATIONS, Application, Hop, TWO_SIDED, hop};
pub use replication::{Replicated, increase, replicate};
pub use report::Compared;
pub use run::{Outcome, Tally, run};
pub use scheduler::{Latencies, Threads};
pub use work::{Admits, Does, Phase, Workload};
pub use workloads::all;

pub use remora_client_core::Policy;

/// The policies that are compared: the two fixed ones first.
pub const POLICIES: [Policy; 5] =
    [Policy::Ask, Policy::Read, Policy::CatfishLiteral, Policy::CatfishKeep, Policy::Cost];
