//! Policies compared in virtual time: the real client's sessions, rings and walks, the real shards,
//! over links and cores whose costs are stated (`costs`). Nothing fails, and only the clients'
//! requests are random, so every figure is exact and reproducible.
//!
//! Simulated are: the wire and its ports, how long a core works for a request,
//! how long a client's thread works for a READ, and that a core's requests
//! wait for each other (`core`). Heartbeats are those of the protocol and say
//! what the cores really did.

mod args;
mod coordination;
mod core;
mod costs;
mod gate;
mod judge;
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
pub use report::Compared;
pub use run::{Outcome, Tally, run};
pub use scheduler::{Latencies, Threads};
pub use work::{Admits, Does, Phase, Workload};
pub use workloads::all;

pub use remora_client_core::Policy;

/// The policies that are compared: the two fixed ones first.
pub const POLICIES: [Policy; 5] =
    [Policy::Ask, Policy::Read, Policy::CatfishLiteral, Policy::CatfishKeep, Policy::Cost];
