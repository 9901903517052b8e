//! Frames of the TCP transport: what READ and WRITE are on a connection.
//!
//! ```text
//!    0      1       2          4         8                     16       20          24
//!    +------+-------+----------+---------+---------------------+--------+-----------+---------
//!    | kind | flags | reserved | region  | place               | bytes  | immediate | payload
//!    +------+-------+----------+---------+---------------------+--------+-----------+---------
//! READ    1   0         0       region    offset                 wanted   0
//! WRITE   2   0 to 3    0       region    offset                 payload  if flag 1   `bytes`
//! DATA    3   0         0       0         number of the READ     payload  0           `bytes`
//! DONE    4   0         0       0         executed so far        0        0
//! FAIL    5   0         0       0         executed so far        0        reason
//! ```
//! READ and WRITE are requests; each direction of a connection counts its own from 0. DATA answers
//! the READ with that number and says that the target has executed all requests before it. DONE and
//! FAIL give the number of executed requests; FAIL also says that the target has not executed the
//! next request and all after it, and will not. After an unsignalled WRITE (flag 2) the target may
//! delay DONE until it has something else to send or has executed many of them.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Opens every frame.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct WireHeader {
    /// A number of [`kind`].
    pub kind: u8,
    /// [`FLAG_IMMEDIATE`] and [`FLAG_UNSIGNALLED`], of a WRITE; else 0.
    pub flags: u8,
    /// Zero.
    pub reserved: U16,
    /// The region of a request.
    pub region: U32,
    /// Byte offset of a request; a count in an answer.
    pub place: U64,
    /// Bytes wanted, or bytes of payload that follow.
    pub bytes: U32,
    /// The immediate of a WRITE, or the reason of a FAIL.
    pub immediate: U32,
}

/// Bytes of a frame's header.
pub const WIRE_HEADER_BYTES: usize = 24;
/// The WRITE carries an immediate.
pub const FLAG_IMMEDIATE: u8 = 1;
/// The initiator of the WRITE does not wait for its completion.
pub const FLAG_UNSIGNALLED: u8 = 2;

/// Kinds of frames.
pub mod kind {
    /// Asks for bytes.
    pub const READ: u8 = 1;
    /// Brings bytes to be stored.
    pub const WRITE: u8 = 2;
    /// Brings the bytes of a READ.
    pub const DATA: u8 = 3;
    /// The target has executed so many requests.
    pub const DONE: u8 = 4;
    /// The target has executed so many requests, and will execute no more.
    pub const FAIL: u8 = 5;
}

/// Why the target did not execute a request.
pub mod reason {
    /// Out of the region's bounds, or not aligned.
    pub const OUT_OF_BOUNDS: u32 = 1;
    /// There is no such region.
    pub const NO_SUCH_REGION: u32 = 2;
    /// The region can only be read.
    pub const NOT_WRITABLE: u32 = 3;
    /// The region can only be written.
    pub const NOT_READABLE: u32 = 4;
    /// The server has withdrawn the region, or the whole session.
    pub const WITHDRAWN: u32 = 5;
}

const _: () = assert!(size_of::<WireHeader>() == WIRE_HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(WireHeader, place) == 8);
const _: () = assert!(std::mem::offset_of!(WireHeader, immediate) == 20);
