//! A frame's header: bytes of a peer in, a typed frame or a violation out.

use crate::LinkError;
use remora_layout::limits::{MAX_WRITE_BYTES, TCP_PIECE_BYTES};
use remora_layout::wire::{
    FLAG_IMMEDIATE, FLAG_UNSIGNALLED, WIRE_HEADER_BYTES, WireHeader, kind, reason,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes, TryFromBytes};

/// Frames that no honest peer sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub &'static str);

impl From<Violation> for LinkError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation.0)
    }
}

/// A frame whose form is right; whether it makes sense now is for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// The peer wants bytes.
    Read {
        /// Of this region.
        region: u32,
        /// From here, unchecked.
        offset: u64,
        /// At most a piece.
        bytes: usize,
    },
    /// The peer brings bytes.
    Write {
        /// For this region.
        region: u32,
        /// For this place, unchecked.
        offset: u64,
        /// At most the longest WRITE; they follow.
        bytes: usize,
        /// To be told afterwards.
        imm: Option<u32>,
        /// Whether the peer waits for its completion.
        is_signalled: bool,
    },
    /// The bytes of a READ follow.
    Data {
        /// Which request it answers.
        number: u64,
        /// At most a piece.
        bytes: usize,
    },
    /// So many requests are executed.
    Done(u64),
    /// So many are executed, and the next one fails.
    Fail {
        /// Requests executed.
        executed: u64,
        /// Why.
        why: Refused,
    },
}

/// Why a target did not execute a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, TryFromBytes)]
#[repr(u32)]
pub enum Refused {
    /// Not in the region, or not aligned.
    OutOfBounds = reason::OUT_OF_BOUNDS,
    /// No such region.
    NoSuchRegion = reason::NO_SUCH_REGION,
    /// Only to be read.
    NotWritable = reason::NOT_WRITABLE,
    /// Only to be written.
    NotReadable = reason::NOT_READABLE,
    /// Withdrawn.
    Withdrawn = reason::WITHDRAWN,
}

impl Refused {
    fn from_number(number: u32) -> Option<Self> {
        Self::try_read_from_bytes(&number.to_ne_bytes()).ok()
    }
}

/// Reads a header. Pure; allocates nothing.
pub fn parse(bytes: &[u8; WIRE_HEADER_BYTES]) -> Result<Frame, Violation> {
    let header = WireHeader::read_from_bytes(bytes).map_err(|_| Violation("a short header"))?;
    let (region, place) = (header.region.get(), header.place.get());
    let (length, imm) = (header.bytes.get() as usize, header.immediate.get());
    if header.reserved.get() != 0 || header.flags & !(FLAG_IMMEDIATE | FLAG_UNSIGNALLED) != 0 {
        return Err(Violation("reserved bits of a frame are set"));
    }
    if header.flags != 0 && header.kind != kind::WRITE {
        return Err(Violation("a flag that belongs to no WRITE"));
    }
    let has_region = matches!(header.kind, kind::READ | kind::WRITE);
    let has_imm = header.kind == kind::FAIL || header.flags & FLAG_IMMEDIATE != 0;
    let has_length = !matches!(header.kind, kind::DONE | kind::FAIL);
    if (!has_region && region != 0) || (!has_imm && imm != 0) || (!has_length && length != 0) {
        return Err(Violation("an unused field of a frame is set"));
    }
    let limit = if header.kind == kind::WRITE { MAX_WRITE_BYTES } else { TCP_PIECE_BYTES };
    if length > limit {
        return Err(Violation("a frame longer than allowed"));
    }
    match header.kind {
        kind::READ => Ok(Frame::Read { region, offset: place, bytes: length }),
        kind::WRITE => Ok(Frame::Write {
            region,
            offset: place,
            bytes: length,
            imm: has_imm.then_some(imm),
            is_signalled: header.flags & FLAG_UNSIGNALLED == 0,
        }),
        kind::DATA => Ok(Frame::Data { number: place, bytes: length }),
        kind::DONE => Ok(Frame::Done(place)),
        kind::FAIL => {
            let why = Refused::from_number(imm).ok_or(Violation("an unknown reason"))?;
            Ok(Frame::Fail { executed: place, why })
        }
        _ => Err(Violation("an unknown kind of frame")),
    }
}

impl Frame {
    /// The header's bytes: the inverse of [`parse`].
    pub fn header(&self) -> [u8; WIRE_HEADER_BYTES] {
        let mut header = WireHeader::new_zeroed();
        match *self {
            Self::Read { region, offset, bytes } => {
                header.kind = kind::READ;
                header.region = region.into();
                header.place = offset.into();
                header.bytes = (bytes as u32).into();
            }
            Self::Write { region, offset, bytes, imm, is_signalled } => {
                header.kind = kind::WRITE;
                header.region = region.into();
                header.place = offset.into();
                header.bytes = (bytes as u32).into();
                header.flags = if is_signalled { 0 } else { FLAG_UNSIGNALLED };
                if let Some(imm) = imm {
                    header.flags |= FLAG_IMMEDIATE;
                    header.immediate = imm.into();
                }
            }
            Self::Data { number, bytes } => {
                header.kind = kind::DATA;
                header.place = number.into();
                header.bytes = (bytes as u32).into();
            }
            Self::Done(executed) => {
                header.kind = kind::DONE;
                header.place = executed.into();
            }
            Self::Fail { executed, why } => {
                header.kind = kind::FAIL;
                header.place = executed.into();
                header.immediate = (why as u32).into();
            }
        }
        let mut bytes = [0; WIRE_HEADER_BYTES];
        bytes.copy_from_slice(header.as_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip() {
        for frame in [
            Frame::Read { region: 3, offset: u64::MAX, bytes: TCP_PIECE_BYTES },
            Frame::Write {
                region: 0,
                offset: 64,
                bytes: MAX_WRITE_BYTES,
                imm: None,
                is_signalled: true,
            },
            Frame::Write { region: 9, offset: 0, bytes: 0, imm: Some(0), is_signalled: true },
            Frame::Write { region: 9, offset: 0, bytes: 8, imm: Some(7), is_signalled: false },
            Frame::Data { number: 77, bytes: 1 },
            Frame::Done(u64::MAX),
            Frame::Fail { executed: 1, why: Refused::Withdrawn },
        ] {
            assert_eq!(parse(&frame.header()), Ok(frame));
        }
    }

    /// Each bit of a header either changes the frame or breaks it: no bit is ignored.
    #[test]
    fn every_bit_counts() {
        let frame = Frame::Read { region: 1, offset: 8, bytes: 16 };
        for bit in 0..WIRE_HEADER_BYTES * 8 {
            let mut bytes = frame.header();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(parse(&bytes), Ok(frame), "bit {bit}");
            if let Ok(other) = parse(&bytes) {
                assert_eq!(other.header(), bytes);
            }
        }
    }
}
