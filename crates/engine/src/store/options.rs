//! A shard's options at its start.

use crate::evict::Eviction;
use remora_layout::arena_header::ARENA_HEADER_BYTES;
use remora_layout::bucket::BUCKET_BYTES;
use remora_layout::limits::{LEASE_MIN_S, UPLOAD_IDLE_S};

/// When a change is as durable as configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// At once: the log is kept in memory.
    #[default]
    Memory,
    /// Once [`crate::Shard::set_durable`] says so.
    Told,
}

/// A shard's options at its start.
#[derive(Clone, Copy, Debug)]
pub struct ShardOptions {
    /// Region id of its arena.
    pub region: u32,
    /// The server's incarnation.
    pub incarnation: u64,
    /// The epoch under which the shard is primary.
    pub epoch: u64,
    /// Seed of the key hash.
    pub hash_seed: u64,
    /// Buckets that its table begins with, a power of two.
    pub buckets: u64,
    /// Shortest lease term, seconds; at most 2^14.
    pub lease_min_s: u64,
    /// Random; a client that may read the arena can compute its records' checksums.
    pub record_secret: u64,
    /// Random; keys the checksums of the log. Must stay secret from clients.
    pub log_secret: u64,
    /// Number of the shard's log among those of its server.
    pub log_shard: u32,
    /// Bytes of freed slots that may wait for leases; 0 for a sixteenth.
    pub quarantine_bytes: u64,
    /// Bytes at the end of the arena that only apply mode may take, and only for what finds no room
    /// elsewhere.
    pub reserve_bytes: u64,
    /// The behaviour when the arena is full.
    pub eviction: Eviction,
    /// A slot is not used again after this many generations: the range of 32 bits, except in tests
    /// and worlds, where it should happen often.
    pub last_generation: u32,
    /// An upload is abandoned after this many seconds without a piece.
    pub upload_idle_s: u64,
    /// When a change is as durable as configured.
    pub durability: Durability,
}

impl Default for ShardOptions {
    /// A small shard of region 0 in incarnation 1, without secrets.
    fn default() -> Self {
        Self {
            region: 0,
            incarnation: 1,
            epoch: 1,
            hash_seed: 0,
            buckets: 64,
            lease_min_s: LEASE_MIN_S,
            record_secret: 0,
            log_secret: 0,
            log_shard: 0,
            quarantine_bytes: 0,
            reserve_bytes: 0,
            eviction: Eviction::None,
            last_generation: u32::MAX,
            upload_idle_s: UPLOAD_IDLE_S,
            durability: Durability::Memory,
        }
    }
}

/// Bytes before the first slot of an arena whose table begins with this many buckets.
pub const fn table_end(buckets: u64) -> u64 {
    ARENA_HEADER_BYTES as u64 + buckets * BUCKET_BYTES as u64
}
