//! The first page of an arena: what a reader needs before it can read.
//!
//! ```text
//!    0  magic            8  layout version    16  incarnation            24  epoch
//!   32  region          40  hash seed         48  table offset    56  buckets
//!   64  region bytes    72  base buckets        80  record secret
//!  960  durable (a line of its own: it changes, and READs fetch it alone)
//! 1024  asleep (a line of its own: the owner writes it, all senders read it)
//! 1088  directory of the table's chunks (32 bits each, see `table`)
//! 4096  the table's first buckets, then slots and the table's chunks, then the reserve
//! ```
//! The owner stores a directory entry before it stores the bucket count that needs the entry, and
//! it never changes an entry. So a reader that fetches the page and finds every entry that the
//! count needs has a table that was valid at that time.

use crate::limits::{MAX_ARENA_BYTES, PAGE_BYTES, RESERVE_SHARE};

/// Opens every arena: "REMORA" and the layout's number.
pub const ARENA_MAGIC: u64 = u64::from_le_bytes(*b"REMORA\x00\x01");
/// Bytes of the header page.
pub const ARENA_HEADER_BYTES: usize = 4096;

/// Word offsets in the header page.
pub mod word {
    /// [`super::ARENA_MAGIC`].
    pub const MAGIC: usize = 0;
    /// The layout's version, [`crate::hello::PROTOCOL_VERSION`].
    pub const VERSION: usize = 1;
    /// The incarnation of the server, new at every start.
    pub const INCARNATION: usize = 2;
    /// The epoch under which this shard is primary.
    pub const EPOCH: usize = 3;
    /// This region's id.
    pub const REGION: usize = 4;
    /// Seed of the key hash.
    pub const HASH_SEED: usize = 5;
    /// Byte offset of the table's first buckets.
    pub const TABLE_OFFSET: usize = 6;
    /// Number of buckets, by now; it only grows.
    pub const BUCKETS: usize = 7;
    /// Bytes of the region.
    pub const REGION_BYTES: usize = 8;
    /// Buckets that the table began with, a power of two.
    pub const BASE_BUCKETS: usize = 9;
    /// Seed of the records' checksums, random in each incarnation: only a process that may read the
    /// arena can compute a checksum (decision 0011).
    pub const RECORD_SECRET: usize = 10;
    /// How far the shard's changes are durable, see [`super::durable_of`].
    pub const DURABLE: usize = 120;
    /// 1 while the owner sleeps and wants to be woken.
    pub const ASLEEP: usize = 128;
    /// First word of the directory, which has `table::DIRECTORY_ENTRIES`.
    pub const DIRECTORY: usize = 136;
}

/// The reserve behind an arena of so many bytes, for a shard that applies the log of another
/// (docs/decisions/0061). Its pages are not touched before that and cost no memory, so every server has
/// one: `REPLICAOF` may make it a replica. It is smaller where slot numbers would end.
pub const fn reserve_bytes(arena_bytes: u64) -> u64 {
    let share = arena_bytes.div_ceil(RESERVE_SHARE).next_multiple_of(PAGE_BYTES as u64);
    let most = MAX_ARENA_BYTES.saturating_sub(arena_bytes);
    if share < most { share } else { most }
}

/// The word [`word::DURABLE`] for a sequence up to which all changes are durable; `u64::MAX` where
/// each change is durable at once.
#[inline]
pub const fn durable_word(sequence: u64) -> u64 {
    sequence.wrapping_add(1)
}

/// The sequence up to which changes are durable, from the word [`word::DURABLE`]. A server and its
/// readers must not show later changes. `u64::MAX` where each change is durable at once.
#[inline(always)]
pub const fn durable_of(word: u64) -> u64 {
    word.wrapping_sub(1)
}

const _: () = assert!(durable_of(0) == u64::MAX && durable_of(durable_word(7)) == 7);
const _: () = assert!(reserve_bytes(80 << 20) == 10 << 20 && reserve_bytes(MAX_ARENA_BYTES) == 0);
const _: () = assert!(word::ASLEEP * 8 == 1024);
const _: () = assert!(word::DURABLE * 8 == 960);
