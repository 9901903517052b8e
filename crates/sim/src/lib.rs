//! Worlds from one seed: the production code over simulated memory, network and time, and the
//! checkers of the observed events.
//!
//! Not simulated: the Unix socket and TCP dialogue by which a real client finds its server; the
//! kernel's sleep; threads of one client process in one connection of the client's library (they
//! are model-checked, decision 0017; worlds with a [`crowd`] have threads at ring sets of their
//! own, which use rings alone); the sockets of RESP, and requests that a session answers itself
//! beyond PING and HELLO; requests over rings that wait for keys; rings of other than their one
//! size; peers that break the protocol (they are fuzzed); a power cut where changes are durable once
//! they are written, as it loses some; disks of [`replicas`], and reads from them.

#![deny(unsafe_code)]

pub mod check;
pub mod client;
pub mod clock;
pub mod collections;
pub mod compare;
pub mod counts;
pub mod crowd;
pub mod disk;
pub mod faults;
pub mod hashes;
pub mod history;
pub mod key_links;
pub mod lists;
pub mod node;
pub mod ordered;
pub mod places;
pub mod probes;
pub mod replicas;
pub mod resp;
pub mod run;
pub mod shrink;
pub mod sorted;
pub mod swarm;
#[allow(unsafe_code, reason = "see the module's text")]
pub mod tasks;
pub mod values;
pub mod world;
