//! Bounds of message rings, and of how a shard looks at them.

use super::{CACHE_LINE_BYTES, MAX_CLIENT_SESSIONS, RESP_MAX_REPLY_BYTES};

/// One message ring; 256 KiB for each connection, as Catfish 5.2 uses.
pub const RING_BYTES: usize = 256 << 10;
/// Ring sets of one client process over shared memory: as many as a word of ready
/// bits names. Sessions beyond them share sets.
pub const MAX_RING_SETS: usize = 64;
/// A session's own ring goes back to its start behind this many bytes, where what
/// stands there has been consumed: a session with few small frames under way stays
/// in the first page of a ring.
pub const RING_LAP_BYTES: usize = 3 << 10;
/// On such a ring the consumer returns credit each time it has consumed this much:
/// half a lap, a dozen small frames. Credit is one store then, without a wake-up.
pub const LAP_CREDIT_BYTES: usize = RING_LAP_BYTES / 2;
/// With longer frames a lap, and what is consumed for one credit, are longer: as
/// many frames as this for a credit, twice as many for a lap.
pub const LAP_CREDIT_FRAMES: usize = 8;
/// Longest frame, header included. Two of them and the credit not yet given
/// back fit a ring, so that a frame always finds room once everything before
/// it has been consumed, wherever the tail stands.
pub const MAX_FRAME_BYTES: usize = 96 << 10;
/// Frames start on cache lines: a small message is one line transfer.
pub const FRAME_ALIGN_BYTES: usize = CACHE_LINE_BYTES;
/// The consumer returns credit each time it has consumed this much: a quarter
/// of the ring, so that the producer seldom waits and credit is cheap.
pub const CREDIT_BYTES: usize = RING_BYTES / 4;
/// Frames a shard takes from one ring before it looks at the next one
/// (round-robin, HydraDB 4.1.1), and the depth of its prefetching.
pub const FRAMES_PER_TURN: usize = 16;
/// A client process at whose rings there was no work for so long is parked, in
/// microseconds: the shard looks at it again when it rings. Longer than the gaps in
/// a busy phase; a doorbell costs both sides some microseconds.
pub const PARK_AFTER_US: u64 = 1_000;
/// Idle client processes that a shard looks at all the same: so few words cost less
/// than the system call that looks for doorbells.
pub const KEPT_UNPARKED: usize = 4;
/// A busy shard with parked processes looks for their doorbells this often, in
/// microseconds: the system call then takes less than 2 % of its time.
pub const DOORBELL_LOOK_US: u64 = 50;
/// What a client takes as replies to one search or list, in the server's largest arenas:
/// what a search gives lies in one arena, and what moves meanwhile may be given again. A
/// server that sends more ends the connection.
pub const SEARCH_REPLY_ARENAS: u64 = 2;
/// The same at least, bytes, however small the arenas: a list may name one field many
/// times, and has [`RESP_MAX_REPLY_BYTES`] whatever the arena; late replies to earlier
/// searches count, too.
pub const MIN_SEARCH_REPLY_BYTES: u64 = 1 << 28;
/// The same at most, bytes, however large an arena a server claims to have: a hundred
/// million objects.
pub const MAX_SEARCH_REPLY_BYTES: u64 = 1 << 32;

const _: () = assert!(4 * RESP_MAX_REPLY_BYTES as u64 <= MIN_SEARCH_REPLY_BYTES);
const _: () = assert!(2 * MAX_FRAME_BYTES + CREDIT_BYTES <= RING_BYTES);
const _: () = assert!(RING_BYTES.is_multiple_of(FRAME_ALIGN_BYTES));
const _: () = assert!(RING_LAP_BYTES < RING_BYTES && LAP_CREDIT_BYTES <= CREDIT_BYTES);
// The bits of a word, and a mask takes a session's number to its set.
const _: () = assert!(MAX_RING_SETS == u64::BITS as usize && MAX_RING_SETS.is_power_of_two());
const _: () = assert!(MAX_RING_SETS <= MAX_CLIENT_SESSIONS);
