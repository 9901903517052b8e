//! What a server is told at its start. Where the values come from (flags,
//! environment, file) is the binary's business.

pub use remora_engine::Eviction;
pub use remora_fabric::Wake;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Configuration of one server process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the RESP listener; port 0 takes a free one.
    pub resp_address: SocketAddr,
    /// Path of the Unix socket on which clients ask for shared memory.
    pub socket_path: PathBuf,
    /// Number of shards, 1 to [`remora_layout::limits::MAX_SHARDS`].
    pub shards: usize,
    /// Bytes of all arenas together; hard.
    pub max_memory_bytes: u64,
    /// Buckets of all shards' tables together; rounded up to a power of two
    /// for each shard. 0 derives it from the memory.
    pub buckets: u64,
    /// How shards wait for work.
    pub wake: Wake,
    /// Whether shards are pinned to cores.
    pub pin: bool,
    /// Shortest lease term, ms (benches lengthen it).
    pub lease_min_ms: u64,
    /// What happens when memory is full.
    pub eviction: Eviction,
}
