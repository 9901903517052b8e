//! The server: shard threads that own the data, a control thread that grants
//! sessions and writes heartbeats, and a thread that speaks RESP.
//!
//! ```text
//!   clients' rings ----> shard threads <---- jobs ---- RESP thread <---- TCP
//!                          | own              optimistic reads |
//!                        arenas <-----------------------------+
//!   Unix socket ---> control thread: hello, grant, heartbeats, end of session
//! ```

#![forbid(unsafe_code)]

mod accept;
mod agent;
mod clock;
mod config;
mod control;
mod jobs;
mod large;
mod large_jobs;
mod numa;
mod random;
mod resp;
mod ring_session;
mod server;
mod session;
mod shard_loop;
mod shared;
mod touch_hints;
mod utilisation;

pub use config::{Config, Eviction, Wake};
pub use server::{Server, StartError};
