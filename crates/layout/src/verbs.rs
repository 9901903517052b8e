//! Messages that the two ends exchange over TCP before they connect their queue pairs (Catfish 2.2,
//! C12; RDMA_Mongo 4.1, algorithm 1, l.12).
//!
//! ```text
//! client                                   server
//! ClientHello                         ->
//!                                     <-   ServerHello, chosen: verbs
//!                                          VerbsEnd, an ArenaPlace for each shard,
//!                                          then a key, U32, for each piece of each
//!                                          arena, in their order
//! VerbsEnd, RegionKey of its mailbox  ->
//!                                          connects its queue pair, binds the
//!                                          window to the client's mailbox
//!                                     <-   VerbsReady
//! ```
//! After that the connection carries only the word [`WITHDRAWN`], if the server withdraws the
//! session; the end of the connection is the end of the session.

use crate::limits::MAX_PIECES;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One end of a queue pair.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct VerbsEnd {
    /// Address of the port.
    pub gid: [u8; 16],
    /// Number of the queue pair, 24 bits.
    pub qp_number: U32,
    /// Number of the first packet that this end sends: 24 random bits.
    pub psn: U32,
    /// Local id of the port; 0 on Ethernet.
    pub lid: U16,
    /// Largest packet: 1 to 5 for 256 to 4096 bytes.
    pub mtu: u8,
    /// READs that this end serves at a time.
    pub read_depth: u8,
}

/// Where a region lies at its end, and the key to it.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RegionKey {
    /// Address of its first byte.
    pub address: U64,
    /// Its length.
    pub bytes: U64,
    /// The key that the device checks.
    pub rkey: U32,
    /// Zero.
    pub reserved: U32,
}

/// Where an arena lies at the server. The server registers it in pieces, each with its own key:
/// each piece has `piece_bytes`, the last one the rest.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ArenaPlace {
    /// Address of its first byte.
    pub address: U64,
    /// Its length.
    pub bytes: U64,
    /// Length of a piece.
    pub piece_bytes: U64,
}

impl ArenaPlace {
    /// The number of its pieces; `None` if that number is not valid: 0, or more than
    /// [`MAX_PIECES`].
    pub fn pieces(&self) -> Option<usize> {
        let pieces = self.bytes.get().checked_div(self.piece_bytes.get())?;
        let pieces = pieces + !self.bytes.get().is_multiple_of(self.piece_bytes.get()) as u64;
        usize::try_from(pieces).ok().filter(|pieces| (1..=MAX_PIECES).contains(pieces))
    }
}

/// The server is ready: the queue pairs are connected.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct VerbsReady {
    /// Zero, or a number of [`crate::hello::Refusal`].
    pub refusal: U32,
    /// Zero.
    pub reserved: U32,
    /// The client's mailbox at the server.
    pub mailbox: RegionKey,
}

/// A server sends this when it withdraws a session.
pub const WITHDRAWN: [u8; 8] = *b"withdrew";

const _: () = assert!(size_of::<VerbsEnd>() == 28);
const _: () = assert!(size_of::<RegionKey>() == 24);
const _: () = assert!(size_of::<ArenaPlace>() == 24);
const _: () = assert!(size_of::<VerbsReady>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_has_as_many_pieces_as_cover_it_and_a_liar_none() {
        let pieces = |bytes: u64, piece_bytes: u64| {
            let (bytes, piece_bytes) = (bytes.into(), piece_bytes.into());
            ArenaPlace { address: 4096.into(), bytes, piece_bytes }.pieces()
        };
        assert_eq!([pieces(1, 64), pieces(64, 64), pieces(65, 64)], [Some(1), Some(1), Some(2)]);
        assert_eq!(pieces(64 * MAX_PIECES as u64, 64), Some(MAX_PIECES));
        assert_eq!(pieces(64 * MAX_PIECES as u64 + 1, 64), None);
        assert_eq!([pieces(0, 64), pieces(64, 0), pieces(0, 0), pieces(u64::MAX, 1)], [None; 4]);
    }
}
