//! What a cluster is, and the contract of the coordinator that keeps it (HydraDB 5.1, H31 and H32).
//!
//! ```text
//!   Topology -- change --> Topology        pure functions, each with its refusals
//!       ^
//!       | compare-and-set by version
//!   Coordinator                            a member's session: requests in, events out
//!       ^              ^
//!   memory          the crate `zookeeper`  one conformance body for both
//! ```
//! Invariants of this crate: no I/O and no clock. Time comes in with each call. The order of events
//! follows from the calls alone.

#![forbid(unsafe_code)]

mod by_disk;
pub mod conformance;
pub mod coordinator;
mod leadership;
pub mod lease;
pub mod led_epoch;
pub mod member;
pub mod memory;
pub mod message;
pub mod topology;
pub mod view;
pub mod watcher;
pub mod wire;

pub use by_disk::NotByDisk;
pub use leadership::{ReplicaStanding, Required};
