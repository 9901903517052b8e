//! A frame of a message ring.
//!
//! ```text
//!   0                 4                 8                       16
//!   +-----------------+-----------------+-----------------------+---------
//!   | sequence, salted| payload bytes   | checksum              | payload
//!   +-----------------+-----------------+-----------------------+---------
//! ```
//! Frames start on cache lines. HydraDB 4.2.1 (H15) frames a message by two indicator words and
//! relies on in-order delivery inside one WRITE. Our frame relies on no order: the sequence says
//! that the frame belongs to this lap, and the checksum (keyed by the ring's seed, over sequence,
//! size and payload) says that the frame is complete. A `payload bytes` of [`WRAP`] is a marker:
//! the receiver continues at the ring's start.

use crate::hash::{checksum, mix};
use crate::limits::{FRAME_ALIGN_BYTES, MAX_FRAME_BYTES};

/// Bytes before the payload.
pub const FRAME_HEADER_BYTES: usize = 16;
/// Longest payload.
pub const MAX_PAYLOAD_BYTES: usize = MAX_FRAME_BYTES - FRAME_HEADER_BYTES;
/// Stands in place of the payload's size: no frame follows before the end of the ring.
pub const WRAP: u32 = u32::MAX;

/// The first word of the frame with this sequence number.
#[inline]
pub const fn first_word(sequence: u32, payload_bytes: u32, seed: u64) -> u64 {
    (sequence ^ seed as u32) as u64 | (payload_bytes as u64) << 32
}

/// The payload's size if `word` opens the frame with this sequence number.
#[inline]
pub const fn payload_of(word: u64, sequence: u32, seed: u64) -> Option<u32> {
    if word as u32 == sequence ^ seed as u32 { Some((word >> 32) as u32) } else { None }
}

/// The frame's checksum.
#[inline]
pub fn frame_checksum(first_word: u64, payload: &[u8], seed: u64) -> u64 {
    checksum(payload, mix(seed, first_word))
}

/// Bytes that a frame with this payload takes in the ring.
#[inline]
pub const fn frame_bytes(payload_bytes: usize) -> usize {
    (FRAME_HEADER_BYTES + payload_bytes).next_multiple_of(FRAME_ALIGN_BYTES)
}

/// The seed of one ring of a session, by its number
/// ([`crate::session::ring_number`]): direction 0 towards the server, 1 back.
#[inline]
pub const fn ring_seed(session_seed: u64, ring: usize, direction: u64) -> u64 {
    mix(session_seed, (ring as u64) << 1 | direction)
}
