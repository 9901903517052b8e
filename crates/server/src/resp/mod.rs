//! RESP: connections that parse, execute in their thread's own shard, read other shards
//! optimistically, hand the rest to those shards, and reply in order. Their interface to the server
//! is a [`Host`], and their interface to the network is a stream of bytes each; the shard's loop
//! has the sockets, which `acceptor` hands to it.

mod acceptor;
mod ask;
mod block;
mod execute;
mod executor;
mod geo;
mod hashes;
mod host;
mod info;
mod info_lines;
mod key_answers;
pub(crate) mod key_steps;
mod keys;
mod many_keys;
mod own;
mod plan;
mod plan_job;
mod read;
mod replication;
mod sets;
mod shard_host;
mod sort;
mod sort_job;
mod steps;
mod trees;
mod users;

pub(crate) use acceptor::RespClients;
pub use executor::{RespConnections, RespExecutor};
pub use host::{Host, Prefetch, Save};
pub use remora_resp::commands::replication::RoleFacts;
pub use remora_resp::request::{RoleRequest, Sections};
pub(crate) use shard_host::ShardHost;

#[cfg(test)]
mod tests;
