//! The sending end of a ring.

use remora_fabric::{Link, LinkError, RemoteAddress, Work};
use remora_layout::frame::{
    FRAME_HEADER_BYTES, MAX_PAYLOAD_BYTES, WRAP, first_word, frame_bytes, frame_checksum,
};
use remora_layout::limits::{
    LAP_CREDIT_FRAMES, MAX_WRITE_BYTES, RING_BYTES, RING_LAP_BYTES, RUN_KEPT_BYTES,
};

// A run of frames fits one WRITE.
const _: () = assert!(RING_BYTES <= MAX_WRITE_BYTES);

use crate::receive::Violation;

/// Id of the operations that a sender posts; the poller of the link skips successful completions
/// with this id.
pub const WRITE_ID: u64 = u64::MAX;

/// Why the sender did not send a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// There is no credit for the frame now; it fits later.
    #[error("the ring is full")]
    Full,
    /// Longer than any frame.
    #[error("the message has {0} bytes; a frame carries at most {MAX_PAYLOAD_BYTES}")]
    TooLong(usize),
    /// The link has failed.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Writes frames into the peer's ring.
pub struct Sender {
    region: u32,
    base: u64,
    seed: u64,
    sequence: u32,
    /// Bytes of ring used since it was made, skipped ends included.
    sent: u64,
    /// Bytes that the peer has consumed, as far as the sender knows.
    credit: u64,
    /// Behind so many bytes of the ring the sender wraps to the ring's start, if the peer has
    /// consumed the bytes there.
    lap: usize,
    /// Sent to the peer with each WRITE; it wakes a sleeping receiver.
    imm: Option<u32>,
    /// Frames that the next WRITE sends.
    run: Vec<u8>,
    /// Where the run begins, counted as `sent`.
    run_from: u64,
    /// WRITEs so far.
    writes: u64,
}

impl Sender {
    /// A sender for the fresh ring at `base` of the peer's `region`.
    pub fn new(region: u32, base: u64, seed: u64) -> Self {
        Self {
            region,
            base,
            seed,
            sequence: 0,
            sent: 0,
            credit: 0,
            lap: RING_BYTES,
            imm: None,
            run: Vec::new(),
            run_from: 0,
            writes: 0,
        }
    }

    /// The sender keeps to the ring's first bytes, up to [`RING_LAP_BYTES`] or some frames, while
    /// the in-flight frames fit there.
    #[must_use]
    pub fn in_short_laps(self) -> Self {
        Self { lap: RING_LAP_BYTES, ..self }
    }

    /// The WRITEs carry this immediate.
    #[must_use]
    pub fn with_immediate(self, imm: u32) -> Self {
        Self { imm: Some(imm), ..self }
    }

    /// Takes the credit word as read from one's own mailbox.
    #[inline]
    pub fn take_credit(&mut self, consumed: u64) -> Result<(), Violation> {
        if consumed < self.credit || consumed > self.sent {
            return Err(Violation::Credit);
        }
        self.credit = consumed;
        Ok(())
    }

    /// Whether a message of this length can be sent now.
    #[inline]
    pub fn has_room(&self, payload_bytes: usize) -> bool {
        let frame = frame_bytes(payload_bytes);
        let used = self.sent - self.credit;
        used + (self.skipped(frame) + frame) as u64 <= RING_BYTES as u64
    }

    /// The credit as it was last taken.
    pub fn credit(&self) -> u64 {
        self.credit
    }

    /// The WRITEs that it has posted: their completions come in this order.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Whether fresh credit would be useful although there is room: the lap is at its end.
    #[inline]
    pub fn wants_credit(&self) -> bool {
        self.position() >= self.lap
    }

    #[inline]
    fn position(&self) -> usize {
        (self.sent % RING_BYTES as u64) as usize
    }

    /// Bytes skipped at the ring's end if the frame does not go there: it does not fit, or the lap
    /// is at its end and half of it is free.
    #[inline]
    fn skipped(&self, frame: usize) -> usize {
        let position = self.position();
        let left = RING_BYTES - position;
        let in_use = (self.sent - self.credit) as usize;
        let is_long = position >= self.lap && position >= 2 * LAP_CREDIT_FRAMES * frame;
        // There is room for as much again behind the frame, before unconsumed bytes block the ring.
        let ends_lap = is_long && 2 * (in_use + frame) <= position;
        if frame > left || ends_lap { left } else { 0 }
    }

    /// Sends one message, given in parts. Without an immediate the caller has to wake the peer
    /// ([`remora_fabric::shm::Bell`]).
    #[inline]
    pub fn send<L: Link>(&mut self, link: &mut L, parts: &[&[u8]]) -> Result<(), SendError> {
        self.gather(link, parts)?;
        self.post(link)
    }

    /// Adds one message, given in parts, to those that the next [`Sender::post`] sends, in one
    /// WRITE (two at the ring's end).
    #[inline]
    pub fn gather<L: Link>(&mut self, link: &mut L, parts: &[&[u8]]) -> Result<(), SendError> {
        if let Some(failure) = link.failure() {
            return Err(failure.into());
        }
        self.add(link, parts)
    }

    /// Sends as many of these messages as there is room for, oldest first, in one WRITE (two at the
    /// ring's end). Returns their number.
    pub fn send_run<'m, L: Link>(
        &mut self,
        link: &mut L,
        messages: impl Iterator<Item = &'m [u8]>,
    ) -> Result<usize, SendError> {
        if let Some(failure) = link.failure() {
            return Err(failure.into());
        }
        let mut added = 0;
        for message in messages {
            match self.add(link, &[message]) {
                Ok(()) => added += 1,
                Err(SendError::Full) => break,
                Err(other) => return Err(other),
            }
        }
        self.post(link)?;
        Ok(added)
    }

    /// Adds a message to the run. If the ring ends before the message, the sender first posts the
    /// present run.
    #[inline]
    fn add<L: Link>(&mut self, link: &mut L, parts: &[&[u8]]) -> Result<(), SendError> {
        let payload: usize = parts.iter().map(|part| part.len()).sum();
        if payload > MAX_PAYLOAD_BYTES {
            return Err(SendError::TooLong(payload));
        }
        if !self.has_room(payload) {
            return Err(SendError::Full);
        }
        let frame = frame_bytes(payload);
        let skipped = self.skipped(frame);
        if skipped > 0 {
            self.compose(WRAP, &[], skipped);
        }
        if self.sent.is_multiple_of(RING_BYTES as u64) {
            // A WRITE cannot continue at the ring's beginning.
            self.post(link)?;
        }
        self.compose(payload as u32, parts, frame);
        Ok(())
    }

    /// Writes a frame behind the run's last one.
    #[inline]
    fn compose(&mut self, payload_bytes: u32, parts: &[&[u8]], ring_bytes: usize) {
        let at = (self.sent - self.run_from) as usize;
        let word = first_word(self.sequence, payload_bytes, self.seed);
        // From the end of the last frame's payload to its end in the ring.
        self.run.resize(at + FRAME_HEADER_BYTES, 0);
        for part in parts {
            self.run.extend_from_slice(part);
        }
        let sum = frame_checksum(word, &self.run[at + FRAME_HEADER_BYTES..], self.seed);
        self.run[at..at + 8].copy_from_slice(&word.to_le_bytes());
        self.run[at + 8..at + 16].copy_from_slice(&sum.to_le_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        self.sent += ring_bytes as u64;
    }

    /// Posts the gathered frames, if there are any.
    #[inline]
    pub fn post<L: Link>(&mut self, link: &mut L) -> Result<(), SendError> {
        if !self.run.is_empty() {
            let offset = self.base + self.run_from % RING_BYTES as u64;
            let to = RemoteAddress { region: self.region, offset };
            link.post(&[Work::Write { id: WRITE_ID, to, bytes: &self.run, imm: self.imm }]);
            self.writes += 1;
            self.run.clear();
            // A burst must not keep its memory for ever.
            self.run.shrink_to(RUN_KEPT_BYTES);
        }
        self.run_from = self.sent;
        link.failure().map_or(Ok(()), |failure| Err(failure.into()))
    }
}
