//! What two ends tell each other over TCP before they connect their queue
//! pairs (Catfish 2.2, C12; RDMA_Mongo 4.1, algorithm 1, l.12).
//!
//! ```text
//! client                                   server
//! ClientHello                         ->
//!                                     <-   ServerHello, chosen: verbs
//!                                          VerbsEnd, a RegionKey for each shard
//! VerbsEnd, RegionKey of its mailbox  ->
//!                                          connects its queue pair, binds the
//!                                          window to the client's mailbox
//!                                     <-   VerbsReady
//! ```
//! After that the connection carries nothing but the word [`WITHDRAWN`], if
//! the server withdraws the session; its end is the session's end.

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

/// Sent by a server that withdraws a session.
pub const WITHDRAWN: [u8; 8] = *b"withdrew";

const _: () = assert!(size_of::<VerbsEnd>() == 28);
const _: () = assert!(size_of::<RegionKey>() == 24);
const _: () = assert!(size_of::<VerbsReady>() == 32);
