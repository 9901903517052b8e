//! The receiving end of a ring: it polls this process's own memory.

use remora_arena::ReadView;
use remora_layout::frame::{
    FRAME_HEADER_BYTES, MAX_PAYLOAD_BYTES, WRAP, frame_bytes, frame_checksum, payload_of,
};
use remora_layout::limits::{CREDIT_BYTES, LAP_CREDIT_BYTES, LAP_CREDIT_FRAMES, RING_BYTES};

/// A violation of the protocol by the peer. It ends the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// A frame longer than the limit, or beyond the ring's end.
    #[error("a frame claims an impossible length")]
    Length,
    /// Credit for bytes that the sender never sent, or less credit than before.
    #[error("the credit makes no sense")]
    Credit,
}

/// The result of polling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Poll {
    /// No frame.
    Empty,
    /// A whole frame; the receiver appended its payload of this many bytes.
    Frame(usize),
    /// The beginning of a frame whose rest has not arrived.
    Torn,
    /// Bytes that no honest peer writes.
    Violated(Violation),
}

/// Takes frames out of a ring in this process's own mailbox.
pub struct Receiver {
    words: ReadView,
    base: usize,
    seed: u64,
    sequence: u32,
    /// Bytes of ring consumed since it was made.
    consumed: u64,
    /// Consumed bytes that the sender knows of (returned credit).
    told: u64,
    /// Credit is due once the receiver has consumed so many bytes, or some frames as long as the
    /// last one, since it last returned credit.
    credit_bytes: u64,
    last_bytes: u64,
}

impl Receiver {
    /// A receiver for the fresh ring at `base` of this mailbox.
    pub fn new(words: ReadView, base: usize, seed: u64) -> Self {
        let credit_bytes = CREDIT_BYTES as u64;
        let (sequence, consumed, told, last_bytes) = (0, 0, 0, 0);
        Self { words, base, seed, sequence, consumed, told, credit_bytes, last_bytes }
    }

    /// The sender keeps to short laps ([`Sender::in_short_laps`](crate::Sender::in_short_laps)),
    /// and wants credit more often.
    #[must_use]
    pub fn in_short_laps(self) -> Self {
        Self { credit_bytes: LAP_CREDIT_BYTES as u64, ..self }
    }

    #[inline(always)]
    fn position(&self) -> usize {
        (self.consumed % RING_BYTES as u64) as usize
    }

    /// Whether a frame has begun to arrive: the last check before sleeping.
    #[inline(always)]
    pub fn has_frame(&self) -> bool {
        let word = self.words.load_acquire((self.base + self.position()) / 8);
        payload_of(word, self.sequence, self.seed).is_some()
    }

    /// Prefetches the line where the next frame will stand.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.words.prefetch((self.base + self.position()) as u64);
    }

    /// Takes the next frame, if it is whole, and appends its payload to `into`. It copies the bytes
    /// once and checks the copy; it never reads the ring's memory twice.
    #[inline]
    pub fn poll(&mut self, into: &mut Vec<u8>) -> Poll {
        // At most one marker stands before a frame: two turns.
        for _ in 0..2 {
            let position = self.position();
            let word = self.words.load_acquire((self.base + position) / 8);
            let Some(payload) = payload_of(word, self.sequence, self.seed) else {
                return Poll::Empty;
            };
            let wrap = payload == WRAP;
            let payload = if wrap { 0 } else { payload as usize };
            let whole = FRAME_HEADER_BYTES + payload;
            if payload > MAX_PAYLOAD_BYTES || whole > RING_BYTES - position {
                return Poll::Violated(Violation::Length);
            }
            let start = into.len();
            into.resize(start + whole, 0);
            self.words.copy_out(self.base + position, &mut into[start..]);
            let sum = u64::from_le_bytes(into[start + 8..start + 16].try_into().expect("8 bytes"));
            let expected = frame_checksum(word, &into[start + FRAME_HEADER_BYTES..], self.seed);
            if sum != expected {
                into.truncate(start);
                return Poll::Torn;
            }
            self.sequence = self.sequence.wrapping_add(1);
            if wrap {
                into.truncate(start);
                self.consumed += (RING_BYTES - position) as u64;
                continue;
            }
            into.copy_within(start + FRAME_HEADER_BYTES.., start);
            into.truncate(start + payload);
            self.last_bytes = frame_bytes(payload) as u64;
            self.consumed += self.last_bytes;
            return Poll::Frame(payload);
        }
        Poll::Violated(Violation::Length)
    }

    /// Returns the credit to write to the sender, once the receiver has consumed a quarter of the
    /// ring, or of a lap, since the last credit.
    #[inline]
    pub fn credit_due(&mut self) -> Option<u64> {
        let some_frames = LAP_CREDIT_FRAMES as u64 * self.last_bytes;
        let due = some_frames.clamp(self.credit_bytes, CREDIT_BYTES as u64);
        if self.consumed - self.told < due {
            return None;
        }
        self.told = self.consumed;
        Some(self.consumed)
    }
}
