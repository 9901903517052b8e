//! Helpers of the end-to-end tests: the real binary as a process, a RESP
//! client and a ring client that know nothing of ours, and what /proc tells.
#![forbid(unsafe_code)]

mod binary;
mod clean;
mod client_program;
mod disk;
mod file_fixture;
mod foreign;
mod own_server;
mod ports;
mod postgres;
pub mod proc;
mod raw;
mod redis;
mod redis_py;
mod relay;
mod resp;
pub mod revocation;
mod role;
pub mod scripted;
mod server;
mod session;
mod test_cluster;
mod wait;

pub use binary::{Finished, remora, remora_path, remora_with_open_files, run, run_remora};
pub use clean::{check_numbers, is_empty, json, json_of, run_clean, run_command_clean};
pub use client_program::{ClientProgram, Library, Outcomes, WRITERS};
pub use disk::UnreliableDisk;
pub use file_fixture::FileFixture;
pub use foreign::{run_foreign_suite, run_mongo_driver};
pub use own_server::own_config;
pub use ports::free_port;
pub use postgres::PostgresServer;
pub use raw::{RawSession, greet};
pub use redis::{Bytes, RedisServer, let_clocks_go_on};
pub use redis_py::{run_redis_py, run_redis_py_with};
pub use relay::Relay;
pub use remora_crash::Fault;
pub use remora_testing::{Random, in_own_process};
pub use resp::{Resp, Value, encode};
pub use role::{Role, role};
pub use server::{ServerDirectory, ServerProcess};
pub use session::{by_pointers, long_leases, options, while_read_lease_lapses};
pub use test_cluster::{GroupStatus, MemberStatus, TestCluster};
pub use wait::{DEADLINE, wait_for, wait_until};

/// Whether a tool that the tests need was said to be missing.
pub fn is_skipped(tool: &str) -> bool {
    let skip = std::env::var("REMORA_SKIP").unwrap_or_default();
    skip.split(',').any(|name| name.trim() == tool)
}
