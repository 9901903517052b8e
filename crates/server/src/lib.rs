//! The server: shard threads that own the data and serve rings, RESP connections
//! and connections of sessions over TCP and RDMA, a control thread that grants
//! sessions and writes heartbeats, and a thread that accepts RESP connections.
//!
//! ```text
//!   clients' rings ----> shard threads <---- RESP connections <---- acceptor
//!      ^                 |  | own   ^ mail, optimistic reads
//!      '-- WRITE --.     | arenas   '----> other shard threads
//!   clients' READs and   | v
//!   WRITEs over TCP ---> agent of the thread
//!   Unix socket, fabric address ---> control thread:
//!                        hello, grant, heartbeats, end of session
//! ```

#![forbid(unsafe_code)]

mod accept;
mod accept_loop;
pub mod acknowledging;
mod address_limit;
mod agent;
mod agent_inbox;
mod balance;
mod client_memory;
mod client_stream;
mod clients;
mod clock;
pub mod cluster;
mod cluster_facts;
mod config;
mod control;
mod cores;
pub mod disk;
mod fabric_acceptor;
mod file_watch;
pub mod following;

mod handshakes;
pub mod inbox;
pub mod joint;
pub mod joint_gate;
mod key_work;
pub mod large_jobs;
mod link_targets;
pub mod mail_queues;
mod mongo;
mod numa;
pub mod other_searches;
mod peer;
pub mod plans;
mod polling;
mod random;
mod regions;
mod replica_view;
pub mod resp;
pub mod ring_clients;
pub mod ring_session;
mod ring_waits;
mod server;
mod session;
mod shard_loop;
mod shared;
mod socket_file;
mod start_error;
mod sync;
pub mod thread_counts;
mod ticker;
mod tls;
pub mod touch_hints;
mod traffic;
mod turn_times;
mod users;
mod utilisation;
pub mod waits;

pub use client_memory::ClientMemoryLimits;
pub use clock::MonotonicClock;
pub use config::{
    AskFor, ClientCertificates, ClientTlsSettings, Config, Credentials, Data, Eviction,
    LeastVersion, Mtu, Packets, Password, Promise, ReplicaReads, ServerTlsSettings, TlsSettings,
    UserSettings, Wake,
};
pub use cores::Cores;
pub use disk::{EachKey, Loaded, LoadedData, Progress};
pub use replica_view::{ReplicaView, TurnView};
pub use server::Server;
pub use shared::ServerCounts;
pub use start_error::StartError;
pub use users::needs_no_login;
