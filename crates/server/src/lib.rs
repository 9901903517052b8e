//! The server: shard threads that own the data, a control thread that grants
//! sessions and writes heartbeats, an agent that executes the READs and WRITEs
//! of sessions over TCP, and a thread that speaks RESP.
//!
//! ```text
//!   clients' rings ----> shard threads <---- jobs ---- RESP thread <---- RESP
//!      ^                   | own              optimistic reads |
//!      | WRITE, wake     arenas <------------------------------+
//!    agent -- READ ------->'
//!      ^-- clients' frames over TCP
//!   Unix socket, fabric address ---> control thread:
//!                        hello, grant, heartbeats, end of session
//! ```

#![forbid(unsafe_code)]

mod accept;
mod agent;
mod agent_polling;
mod clock;
mod config;
mod control;
mod cores;
pub mod jobs;
pub mod large_jobs;
mod numa;
mod random;
mod regions;
pub mod resp;
pub mod ring_session;
mod server;
mod session;
mod shard_loop;
mod shared;
mod socket_file;
pub mod touch_hints;
mod utilisation;

pub use config::{Config, Eviction, Mtu, Packets, Wake};
pub use cores::Cores;
pub use server::{Server, StartError};
pub use shared::Counts;
