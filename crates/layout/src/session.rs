//! The two mailboxes of a session, one for each direction.
//!
//! ```text
//! to_server (written by the client)          to_client (written by the server)
//!     0  client's clock, ns; left                0  heartbeat, one line
//!    64  asleep, signals                        64  withdrawn: the session has ended
//!   128  credit of shard 0's response ring     128  credit of shard 0's request ring, stuck
//!   192  ready bits for shard 0                192  parked: shard 0 wants a doorbell
//!   256  request ring of shard 0               256  response ring of shard 0
//!        the same of shard 1 ...                    the same of shard 1 ...
//! ```
//! Each shard's part begins on a page, so that its lines and the ring's first bytes share a page.
//! This picture is a mailbox with one *ring set*: a ring pair for each shard. With several sets
//! (shared memory: one for each session, while sets are left) as many such blocks stand one behind
//! the other. The other blocks do not use the lines of the first block that belong to the process
//! (clock, heartbeat, withdrawn, ready bits, parked). Neither side touches a block that no session
//! uses.
//!
//! Every byte that a peer can write belongs to that peer's mailbox alone; over shared memory the
//! server also swaps the ready bits and counts signals there. A credit is the total number of bytes
//! consumed since the ring was made.

use crate::hash::checksum;
use crate::lag::Lag;
use crate::limits::{
    CACHE_LINE_BYTES, LAP_CREDIT_BYTES, MAX_SHARDS, PAGE_BYTES, RING_BYTES, RING_LAP_BYTES,
};

/// Bytes before each ring: lines of the process and the shard.
pub const LINES_BYTES: usize = 4 * CACHE_LINE_BYTES;
/// Bytes of one shard's part of a ring set's block: its lines and its ring, up to a
/// page's end.
const PART_BYTES: usize = RING_BYTES + PAGE_BYTES;
/// Word of the client's clock (to_server), in ns of the client's own clock.
pub const CLIENT_CLOCK_WORD: usize = 0;
/// Word that is 1 once the client takes nothing out of its rings that comes later (to_server, over
/// shared memory): a replica that gives its link up first says so, and then takes what lies there.
pub const CLIENT_LEFT_WORD: usize = 1;
/// Word that is 1 once the server has withdrawn the session (to_client).
pub const WITHDRAWN_WORD: usize = 8;
/// Word of the heartbeat's first word (to_client).
pub const HEARTBEAT_WORD: usize = 0;

/// Where the block of one ring set begins, in either mailbox for `shards` shards.
#[inline]
pub const fn set_offset(shards: usize, set: usize) -> usize {
    set * mailbox_bytes(shards)
}

/// The number of a ring within its session, for its seed ([`crate::frame::ring_seed`]).
#[inline]
pub const fn ring_number(set: usize, shard: usize) -> usize {
    set * MAX_SHARDS + shard
}

/// Word that is 1 while the thread of a ring set sleeps (to_server), within the
/// set's block.
pub const CLIENT_ASLEEP_WORD: usize = 8;
/// Word whose low half counts the signals to that thread (to_server), within
/// the set's block.
pub const CLIENT_SIGNALS_WORD: usize = 9;

/// Word of the credit for one shard's ring, in either mailbox, within the ring
/// set's block.
#[inline]
pub const fn credit_word(shard: usize) -> usize {
    (shard * PART_BYTES + 2 * CACHE_LINE_BYTES) / 8
}

/// Word that is 1 while one shard has replies for a ring set that wait for credit
/// (to_client), within the set's block.
#[inline]
pub const fn stuck_word(shard: usize) -> usize {
    credit_word(shard) + 1
}

/// Word of the ready bits for one shard (to_server): bit N tells the shard to look at the process's
/// ring set N.
#[inline]
pub const fn ready_word(shard: usize) -> usize {
    credit_word(shard) + CACHE_LINE_BYTES / 8
}

/// Word that is 1 while one shard does not poll the ready bits and needs a doorbell (to_client).
#[inline]
pub const fn parked_word(shard: usize) -> usize {
    ready_word(shard)
}

/// Byte offset of one shard's ring, in either mailbox, within the ring set's
/// block.
#[inline]
pub const fn ring_offset(shard: usize) -> usize {
    shard * PART_BYTES + LINES_BYTES
}

/// Bytes of a mailbox of one ring set for `shards` shards.
#[inline]
pub const fn mailbox_bytes(shards: usize) -> usize {
    shards * PART_BYTES
}

/// A heartbeat: one cache line, written every 10 ms (Catfish 4.1).
///
/// ```text
///  word 0 sequence | 1 utilisation 32, wait 32 | 2 incarnation
///       3 epoch 48, topology 16 | 4 server's Unix ms | 5 echoed client clock
///       6 session 48, lag 16 | 7 checksum of words 0 to 6
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// Grows by one with each heartbeat; 0 means none was written yet.
    pub sequence: u64,
    /// Busy share of the server's shards in parts per million, plus one:
    /// 0 never means idle (Catfish Algorithm 1, A6).
    pub utilisation_ppm_plus_1: u32,
    /// How long a request waits at the server before the server executes it, ns: the mean over the
    /// time since the previous heartbeat.
    pub wait_ns: u32,
    /// The server's incarnation.
    pub incarnation: u64,
    /// The server's epoch: its low 48 bits.
    pub epoch: u64,
    /// The low 16 bits of the version of the cluster's topology that the server knows; 0 without a
    /// cluster. A client that has another one asks for the topology.
    pub topology: u16,
    /// The server's clock, Unix ms.
    pub server_unix_ms: u64,
    /// The client's clock that the server read before it checked that it is still the primary; ns.
    pub echoed_client_clock_ns: u64,
    /// The session that the heartbeat is for: its number, less than 2^48.
    pub session: u64,
    /// How old what the server shows may be; read after `echoed_client_clock_ns`.
    pub lag: Lag,
}

/// Bits of a session's number in a heartbeat.
const SESSION_BITS: u32 = 48;
/// Bits of an epoch in a heartbeat.
const EPOCH_BITS: u32 = 48;

impl Heartbeat {
    /// Words of an encoded heartbeat.
    pub const WORDS: usize = 8;

    /// The heartbeat's words with their checksum.
    pub fn to_words(self) -> [u64; Self::WORDS] {
        let mut words = [
            self.sequence,
            self.utilisation_ppm_plus_1 as u64 | (self.wait_ns as u64) << 32,
            self.incarnation,
            self.epoch & ((1 << EPOCH_BITS) - 1) | (self.topology as u64) << EPOCH_BITS,
            self.server_unix_ms,
            self.echoed_client_clock_ns,
            self.session & ((1 << SESSION_BITS) - 1) | (self.lag.code() as u64) << SESSION_BITS,
            0,
        ];
        words[7] = heartbeat_checksum(&words);
        words
    }

    /// The heartbeat, if all words belong to the same one.
    pub fn from_words(words: &[u64; Self::WORDS]) -> Option<Self> {
        if words[0] == 0 || words[7] != heartbeat_checksum(words) {
            return None;
        }
        Some(Self {
            sequence: words[0],
            utilisation_ppm_plus_1: words[1] as u32,
            wait_ns: (words[1] >> 32) as u32,
            incarnation: words[2],
            epoch: words[3] & ((1 << EPOCH_BITS) - 1),
            topology: (words[3] >> EPOCH_BITS) as u16,
            server_unix_ms: words[4],
            echoed_client_clock_ns: words[5],
            session: words[6] & ((1 << SESSION_BITS) - 1),
            lag: Lag::of_code((words[6] >> SESSION_BITS) as u16),
        })
    }
}

fn heartbeat_checksum(words: &[u64; Heartbeat::WORDS]) -> u64 {
    let mut bytes = [0u8; 56];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    checksum(&bytes, 0x6865_6172_7462_6561)
}

const _: () = assert!(ready_word(0) * 8 + CACHE_LINE_BYTES == LINES_BYTES);
const _: () = assert!(PART_BYTES.is_multiple_of(PAGE_BYTES) && LINES_BYTES <= PAGE_BYTES);
// A lap of small frames stays in the page of its lines.
const _: () = assert!(LINES_BYTES + RING_LAP_BYTES + LAP_CREDIT_BYTES / 4 <= PAGE_BYTES);
const _: () = assert!(Heartbeat::WORDS * 8 == CACHE_LINE_BYTES);
const _: () =
    assert!(CLIENT_SIGNALS_WORD * 8 < 128 && HEARTBEAT_WORD + Heartbeat::WORDS <= WITHDRAWN_WORD);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_heartbeat_is_none() {
        let beat = Heartbeat {
            sequence: 7,
            utilisation_ppm_plus_1: 1,
            wait_ns: 70_000,
            incarnation: 99,
            epoch: 1,
            topology: 9,
            server_unix_ms: 1_700_000_000_000,
            echoed_client_clock_ns: 5,
            session: 3,
            lag: Lag::of_ns(70_000_000),
        };
        let words = beat.to_words();
        assert_eq!(Heartbeat::from_words(&words), Some(beat));
        let next = Heartbeat {
            sequence: 8,
            topology: u16::MAX,
            echoed_client_clock_ns: 6,
            lag: Lag::UNKNOWN,
            ..beat
        }
        .to_words();
        for mixed_at in 1..Heartbeat::WORDS {
            let mut mixed = next;
            mixed[mixed_at..].copy_from_slice(&words[mixed_at..]);
            if mixed != next && mixed != words {
                assert_eq!(Heartbeat::from_words(&mixed), None, "mixed at {mixed_at}");
            }
        }
        assert_eq!(Heartbeat::from_words(&[0; 8]), None);
    }
}
