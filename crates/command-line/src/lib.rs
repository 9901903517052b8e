//! Code that commands share: words for options, the address of a server, a server process of one's
//! own, a small RESP client, CPU clocks, and exit codes.
//!
//! The commands of the binary `remora`, its benches, and the examples use it. It
//! stands above the client and the server, and knows no command.

#![forbid(unsafe_code)]

mod address;
mod cpu;
mod credentials;
mod failure;
mod note;
mod options;
mod puts;
mod rdma_packets;
mod resp_connection;
mod resp_stream;
mod server_process;
pub mod serving;
pub mod shards;
mod size;

pub use address::{Address, DEFAULT_PORT, DEFAULT_SERVER, connect};
pub use cpu::ProcessCpu;
pub use credentials::{coordinator_tls, login, tls_files};
pub use failure::{Usage, exit_code, unavailable, usage};
pub use note::note;
pub use options::{Policy, Transport, TreeKind, Wake};
pub use puts::{PutCounts, Puts};
pub use rdma_packets::PacketArgs;
pub use resp_connection::Connection;
pub use server_process::{ServerPlan, ServerProcess};
pub use size::Size;
