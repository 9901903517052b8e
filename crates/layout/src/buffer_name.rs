//! How a request names a buffer of its client.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Memory of the client that a reply may fill (RDMA_Mongo 4.3, M15; fields
/// `remote_addr` and `rkey` of its table 2, M26).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BufferName {
    /// First byte, a multiple of eight. Over RDMA: its address at the client. Otherwise: its offset
    /// in the buffer that client and server agreed on with the session.
    pub address: U64,
    /// Length in bytes.
    pub bytes: U32,
    /// Over RDMA the key of the registration, otherwise 0.
    pub key: U32,
}
