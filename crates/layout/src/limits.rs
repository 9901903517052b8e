//! Every bound of the system: a name, a unit and a reason.
//! Relations between bounds are const assertions at the end of the file.

/// Bytes in a word: the unit that is never torn on any transport we use.
pub const WORD_BYTES: usize = 8;
/// Bytes in a cache line; frames and buckets are aligned to it so that one
/// line transfer is enough for a small message (HydraDB 4.1.3).
pub const CACHE_LINE_BYTES: usize = 64;
/// Granularity of slots in an arena. With 32-bit slot numbers it allows
/// arenas of 64 GiB.
pub const SLOT_UNIT_BYTES: usize = 16;
/// Largest arena that a 32-bit slot number can address.
pub const MAX_ARENA_BYTES: u64 = (SLOT_UNIT_BYTES as u64) << 32;
/// Smallest arena: header, a table of one page and one span of slots.
pub const MIN_ARENA_BYTES: u64 = 1 << 20;

/// Longest key. It has to fit a frame together with the longest value.
pub const MAX_KEY_BYTES: usize = 4 << 10;
/// Longest value. Key, value and headers must fit one frame.
pub const MAX_VALUE_BYTES: usize = 64 << 10;

/// One message ring; 256 KiB for each connection, as Catfish 5.2 uses.
pub const RING_BYTES: usize = 256 << 10;
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
/// Jobs that a shard takes from its in-process queue in one turn.
pub const JOBS_PER_TURN: usize = 64;
/// A frame that stays incomplete for this long ends its session: an honest
/// peer finishes a frame within microseconds.
pub const TORN_FRAME_MS: u64 = 1_000;

/// Shards of one server. Bounded by the file descriptors that one control
/// message can carry (two for each shard, SCM_MAX_FD is 253).
pub const MAX_SHARDS: usize = 64;
/// Sessions (client connections over rings) of one server.
pub const MAX_SESSIONS: usize = 1024;

/// The server writes a heartbeat into each mailbox this often (Catfish 4.1: Inv).
pub const HEARTBEAT_MS: u64 = 10;
/// While no client is active the server looks for active ones this often.
pub const IDLE_HEARTBEAT_MS: u64 = 100;
/// How long a reading right lasts, counted from the echoed client clock.
/// Twenty heartbeats: a busy machine may lose some without harm.
pub const RIGHT_MS: u64 = 200;
/// Taken off the right for clock drift: 10 %, far beyond any crystal.
pub const RIGHT_MARGIN_MS: u64 = 20;
/// A client refreshes the clock in its mailbox when it is older than this.
pub const CLOCK_REFRESH_MS: u64 = 2;
/// A client looks for a new heartbeat this often.
pub const HEARTBEAT_LOOK_US: u64 = 1_000;

/// Shortest lease term (HydraDB 4.2.3).
pub const LEASE_MIN_S: u64 = 1;
/// Longest lease term (HydraDB 4.2.3).
pub const LEASE_MAX_S: u64 = 64;
/// Longest lease that a server may be told to give out (benches): leases are
/// compared modulo 2^16 s, half of which is the future.
pub const LEASE_CONFIG_MAX_S: u64 = 1 << 14;
/// A sixteenth of the arena may wait for leases; then the oldest are reused
/// early, which generation and checksum make safe.
pub const QUARANTINE_SHARE: u64 = 16;

/// Records that the eviction policy looks at for one victim before it takes
/// the next one whatever was asked for: some tens of microseconds. A few are
/// enough unless nearly everything is in use.
pub const VICTIM_LOOKS: u32 = 256;
/// Records evicted for one allocation before the shard gives up. The first
/// makes room, unless its slot's generation is used up.
pub const EVICTIONS_PER_ALLOCATION: u32 = 16;
/// Slots touched by other threads' reads that a shard is told of between two
/// of its turns; of more, the earliest go untold.
pub const TOUCH_HINTS: usize = 1024;

/// READs of one operation that may fail validation before the client asks.
pub const READ_RETRIES: u32 = 3;
/// Buckets that one walk visits in an overflow chain before it asks instead.
pub const CHAIN_BUCKETS: usize = 8;
/// Records that one walk fetches for one key before it asks instead. A
/// second candidate means two equal 16-bit signatures in one bucket.
pub const WALK_CANDIDATES: usize = 7;

/// Operations in flight that one client session keeps for one shard.
pub const MAX_IN_FLIGHT: usize = 1024;

/// Bytes of operation log that a shard keeps in memory.
pub const OPLOG_BYTES: usize = 1 << 20;

/// Arguments of one RESP command, as Redis.
pub const RESP_MAX_ARGS: usize = 1 << 20;
/// Longest inline RESP command (as Redis: 64 KiB).
pub const RESP_MAX_INLINE_BYTES: usize = 64 << 10;
/// A RESP client that has not read this much of its replies is cut off.
pub const RESP_MAX_OUTPUT_BYTES: usize = 64 << 20;
/// Unparsed bytes of one RESP command after which the connection is cut off.
pub const RESP_MAX_QUERY_BYTES: usize = 64 << 20;
/// RESP connections of one server.
pub const RESP_MAX_CONNECTIONS: usize = 10_000;

const _: () = assert!(2 * MAX_FRAME_BYTES + CREDIT_BYTES <= RING_BYTES);
const _: () = assert!(RING_BYTES.is_multiple_of(FRAME_ALIGN_BYTES));
const _: () = assert!(MAX_KEY_BYTES + MAX_VALUE_BYTES + 256 <= MAX_FRAME_BYTES);
const _: () = assert!(MAX_KEY_BYTES <= u16::MAX as usize);
const _: () = assert!(RIGHT_MARGIN_MS < RIGHT_MS && 4 * HEARTBEAT_MS < RIGHT_MS);
const _: () = assert!(IDLE_HEARTBEAT_MS + HEARTBEAT_MS < RIGHT_MS - RIGHT_MARGIN_MS);
const _: () = assert!(LEASE_MAX_S < 1 << 15);
const _: () = assert!(2 * MAX_SHARDS + 3 <= 253);
