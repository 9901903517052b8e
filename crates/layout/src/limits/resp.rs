//! Bounds of RESP connections, and of what a shard's thread does for them.

use super::{MAX_KEY_BYTES, MAX_VALUE_BYTES, STREAM_BYTES};

/// Arguments of one RESP command, as Redis.
pub const RESP_MAX_ARGS: usize = 1 << 20;
/// Longest inline RESP command (as Redis: 64 KiB).
pub const RESP_MAX_INLINE_BYTES: usize = 64 << 10;
/// Output that waits for a RESP client above which its requests wait too: a
/// slow reader holds up itself.
pub const RESP_PAUSE_OUTPUT_BYTES: usize = 1 << 20;
/// Bytes of values in one RESP reply: the longest value.
pub const RESP_MAX_REPLY_BYTES: usize = MAX_VALUE_BYTES;
/// A reply of which the number of items is known at once is sent to a RESP
/// connection in pieces of about so many bytes of items, one when the one before it
/// is written.
pub const RESP_PIECE_BYTES: usize = 256 << 10;
/// Requests of one RESP connection that wait for shards, above which its
/// further requests wait too.
pub const RESP_PAUSE_PENDING: usize = 1024;
/// Bytes of the jobs of one RESP connection, above which its further requests wait
/// until some are answered: with one request more, what it can have other shards hold.
pub const RESP_PAUSE_JOB_BYTES: usize = 1 << 20;
/// A RESP client that has not read this much of its replies is cut off. The
/// longest reply, with the lengths of its parts, fits behind what pauses and
/// what was asked for before that.
pub const RESP_MAX_OUTPUT_BYTES: usize = 160 << 20;
/// Unparsed bytes of one RESP command after which the connection is cut off:
/// the longest key and value, with most of 1 MiB in hand.
pub const RESP_MAX_QUERY_BYTES: usize = 65 << 20;
/// A RESP request of which more than this is kept, and no more comes, is given
/// up as an upload over rings is. Less is kept for every connection anyway.
pub const STALL_BYTES: usize = RESP_MAX_INLINE_BYTES;
/// RESP connections that a shard's thread serves before it looks at its rings, its
/// mail and its sockets again.
pub const RESP_CONNECTIONS_PER_TURN: usize = 16;
/// Requests of one RESP connection that its thread executes before it serves
/// the next one: some tens of microseconds, and several times what pipelines
/// usually hold, so that their replies leave in one write.
pub const RESP_REQUESTS_PER_TURN: usize = 128;
/// Bytes that its thread sends to one RESP connection before it serves the next one:
/// some hundred microseconds. A client may read as fast as it is sent to.
pub const RESP_SEND_BYTES_PER_TURN: usize = 1 << 20;
/// Requests of one RESP connection that are parsed before the first of them is
/// executed, so that what they will look at is fetched side by side: about as many
/// lines as a core has under way at once, at two a request.
pub const RESP_REQUESTS_AHEAD: usize = 16;
/// Keys of one RESP request that its thread takes in one turn of the connection: looks
/// up, or hands to their shards. That takes some hundred microseconds; a request of
/// more goes on in the next turn. Requests of a turn count as one more for each
/// `RESP_KEYS_PER_TURN / RESP_REQUESTS_PER_TURN` of their words, so that all of a turn
/// name at most about twice as many keys.
pub const RESP_KEYS_PER_TURN: usize = 1024;
/// How often a shard's thread looks whether it should give a RESP connection to
/// one that has less to do, ms: long against a turn, short against a client's life.
pub const RESP_BALANCE_MS: u64 = 100;
/// A thread that is busy for a smaller share of its time gives none away.
pub const RESP_BALANCE_BUSY_PERCENT: u64 = 50;
/// Longest name of a RESP connection, and of what CLIENT SETINFO sets: longer than
/// programs give, and with three of them each all connections keep 30 MiB.
pub const RESP_MAX_CLIENT_NAME_BYTES: usize = 1024;
/// RESP connections of one server.
pub const RESP_MAX_CONNECTIONS: usize = 10_000;

const _: () = assert!(MAX_KEY_BYTES + MAX_VALUE_BYTES + 1024 <= RESP_MAX_QUERY_BYTES);
// A value's length takes up to 16 bytes of a reply.
const _: () = assert!(
    RESP_PAUSE_OUTPUT_BYTES
        + RESP_MAX_REPLY_BYTES
        + 16 * (RESP_MAX_ARGS + 1)
        + RESP_PAUSE_PENDING * STREAM_BYTES
        <= RESP_MAX_OUTPUT_BYTES
);
