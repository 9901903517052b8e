//! A frame: an entry of the log, or a piece of one.
//!
//! ```text
//!  0          8          16         24      28      29      30      32
//! +----------+----------+----------+-------+-------+-------+-------+---------+--------+
//! | checksum | sequence |  epoch   | bytes | flags | parts | piece |  body   | zeros  |
//! +----------+----------+----------+-------+-------+-------+-------+---------+--------+
//!                                    of the   1 first                 `bytes`   to a
//!                                    body     2 last                            multiple
//!                                                                               of 8
//! entry     the bodies of its pieces, in order:
//!
//! +---------------------+---------------------------+
//! | `parts` parts, 16 B |         operation         |
//! +---------------------+---------------------------+
//! ```
//! All pieces of an entry have its sequence and its number of parts; `piece`
//! counts from 0. An operation is opaque to the log.
//!
//! Invariant: the checksum is XXH3 over all bytes behind it up to the body's end, under a seed made
//! of a secret, the shard, the sequence and the epoch. Bytes that a client chose, inside a value,
//! never pass for a frame: the client does not know the secret. A frame from another position of
//! the log, or from another shard's log, does not pass for this one.

use remora_layout::hash::{checksum, mix};
use remora_layout::limits::LOG_PIECE_BYTES;
use std::mem::offset_of;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a frame before its body.
pub const FRAME_HEADER_BYTES: usize = 32;
/// Frames begin at multiples of this.
pub(crate) const FRAME_ALIGN_BYTES: usize = 8;
/// Flag of an entry's first piece.
pub(crate) const FIRST: u8 = 1;
/// Flag of an entry's last piece.
pub(crate) const LAST: u8 = 2;
/// Bytes of a checksum, which does not cover itself.
const CHECKSUM_BYTES: usize = 8;

/// The header before the body. See the module's text.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FrameHeader {
    pub checksum: U64,
    pub sequence: U64,
    pub epoch: U64,
    pub body_bytes: U32,
    pub flags: u8,
    pub parts: u8,
    pub piece: U16,
}

const _: () = assert!(size_of::<FrameHeader>() == FRAME_HEADER_BYTES);
const _: () = assert!(offset_of!(FrameHeader, sequence) == CHECKSUM_BYTES);
const _: () = assert!(offset_of!(FrameHeader, epoch) == 16);
const _: () = assert!(offset_of!(FrameHeader, body_bytes) == 24);
const _: () = assert!(offset_of!(FrameHeader, flags) == 28);
const _: () = assert!(offset_of!(FrameHeader, parts) == 29);
const _: () = assert!(offset_of!(FrameHeader, piece) == 30);
const _: () = assert!(FRAME_HEADER_BYTES.is_multiple_of(FRAME_ALIGN_BYTES));

/// Bytes of a frame with such a body.
#[inline]
pub(crate) const fn frame_bytes(body_bytes: usize) -> usize {
    (FRAME_HEADER_BYTES + body_bytes).next_multiple_of(FRAME_ALIGN_BYTES)
}

/// The secret of one shard's log. A process that has it can make frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LogKey(u64);

impl std::fmt::Debug for LogKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogKey")
    }
}

impl LogKey {
    /// The key of a shard's log, by a secret that clients do not know.
    pub const fn new(secret: u64, shard: u32) -> Self {
        Self(mix(secret, shard as u64))
    }

    /// The key as it is sent to a replica, which has to check the frames.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// The key that was sent so.
    pub const fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// The key under which the frames of an epoch are made.
    #[inline]
    pub(crate) const fn of_epoch(self, epoch: u64) -> EpochKey {
        EpochKey(mix(self.0, epoch))
    }
}

/// The key of one epoch's frames.
#[derive(Clone, Copy)]
pub(crate) struct EpochKey(u64);

impl EpochKey {
    /// The checksum of a frame's bytes behind the checksum, up to the body's end.
    #[inline]
    pub fn checksum(self, covered: &[u8], sequence: u64) -> u64 {
        checksum(covered, mix(self.0, sequence))
    }
}

/// One frame, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The sequence of its entry: grows by one with each entry.
    pub sequence: u64,
    /// The epoch under which it was written.
    pub epoch: u64,
    /// Whether it is the first piece of its entry.
    pub is_first: bool,
    /// Whether it is the last one.
    pub is_last: bool,
    /// The parts that the entry names; they come before the operation.
    pub parts: u8,
    /// Number of the piece, from 0.
    pub piece: u16,
    /// The piece.
    pub body: &'a [u8],
}

/// Why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// They end before the frame does.
    #[error("a frame of the log ends in its middle")]
    Short,
    /// A length or flag that no frame has.
    #[error("no frame of the log looks like this")]
    Malformed,
    /// Some byte differs from the written one.
    #[error("the checksum of a frame of the log is wrong")]
    Checksum,
}

impl<'a> Frame<'a> {
    /// The frame at the start of `bytes`, which may be anything, and how many
    /// bytes it takes.
    ///
    /// # Errors
    /// There is none, of this key.
    pub fn parse(bytes: &'a [u8], key: LogKey) -> Result<(Self, usize), FrameError> {
        let (header, rest) = FrameHeader::ref_from_prefix(bytes).map_err(|_| FrameError::Short)?;
        let (body_bytes, piece) = (header.body_bytes.get() as usize, header.piece.get());
        let (is_first, is_last) = (header.flags & FIRST != 0, header.flags & LAST != 0);
        let is_frame = body_bytes <= LOG_PIECE_BYTES
            && header.flags & !(FIRST | LAST) == 0
            && is_first == (piece == 0);
        if !is_frame {
            return Err(FrameError::Malformed);
        }
        let body = rest.get(..body_bytes).ok_or(FrameError::Short)?;
        let (sequence, epoch) = (header.sequence.get(), header.epoch.get());
        let end = FRAME_HEADER_BYTES + body_bytes;
        let covered = &bytes[CHECKSUM_BYTES..end];
        if key.of_epoch(epoch).checksum(covered, sequence) != header.checksum.get() {
            return Err(FrameError::Checksum);
        }
        let padding = bytes.get(end..frame_bytes(body_bytes)).ok_or(FrameError::Short)?;
        if padding.iter().any(|&byte| byte != 0) {
            return Err(FrameError::Malformed);
        }
        let parts = header.parts;
        let frame = Self { sequence, epoch, is_first, is_last, parts, piece, body };
        Ok((frame, frame_bytes(body_bytes)))
    }
}

/// The frames in some bytes, one after the other. It ends with an error at the
/// first bytes that are none.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
    key: LogKey,
}

impl<'a> Frames<'a> {
    /// The frames in `bytes`, which may be anything.
    pub fn new(bytes: &'a [u8], key: LogKey) -> Self {
        Self { rest: bytes, key }
    }

    /// Bytes behind the frames that were given so far.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let parsed = Frame::parse(self.rest, self.key);
        self.rest = match parsed {
            Ok((_, bytes)) => &self.rest[bytes..],
            Err(_) => &[],
        };
        Some(parsed.map(|(frame, _)| frame))
    }
}
