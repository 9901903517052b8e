//! The first exchange of a session, over a Unix socket.
//!
//! The client sends a [`ClientHello`]; the server answers with a
//! [`ServerHello`] and, beside it, the file descriptors (SCM_RIGHTS) in this
//! order: to_server mailbox, to_client mailbox, the client's wake-up eventfd,
//! then for each shard its arena and the eventfd that wakes it, and last the
//! table of shared pointers, if there is one.
//! After that the socket carries nothing: its end is the session's end.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Opens both hellos.
pub const HELLO_MAGIC: u64 = u64::from_le_bytes(*b"remora\r\n");
/// Version of every layout in this crate; both sides must have the same.
pub const PROTOCOL_VERSION: u32 = 1;

/// What a client says first.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ClientHello {
    /// [`HELLO_MAGIC`].
    pub magic: U64,
    /// [`PROTOCOL_VERSION`].
    pub version: U32,
    /// Process id of the client, for the server's logs.
    pub pid: U32,
}

/// What the server answers.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ServerHello {
    /// [`HELLO_MAGIC`].
    pub magic: U64,
    /// [`PROTOCOL_VERSION`].
    pub version: U32,
    /// A [`Refusal`], or 0 when the session is granted.
    pub refusal: U32,
    /// The session's number.
    pub session: U64,
    /// The server's life.
    pub life: U64,
    /// The server's epoch.
    pub epoch: U64,
    /// Seed of this session's rings.
    pub session_seed: U64,
    /// Seed of the key hash.
    pub hash_seed: U64,
    /// Number of shards.
    pub shards: U32,
    /// Process id of the server.
    pub pid: U32,
    /// Seed of the shared table of pointers; 0 if there is none.
    pub pointer_table_seed: U64,
}

/// Why a session is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[repr(u32)]
pub enum Refusal {
    /// The bytes are not a hello.
    #[error("the server did not understand the greeting: is this a Remora client?")]
    NotAHello = 1,
    /// Another version of the protocol.
    #[error(
        "client and server speak different protocol versions: use the same release on both sides"
    )]
    Version = 2,
    /// All sessions are taken.
    #[error("the server has reached its limit of sessions: close some clients")]
    TooManySessions = 3,
    /// Another user.
    #[error("the server runs as another user and refuses shared memory to this one")]
    OtherUser = 4,
    /// The server is draining.
    #[error("the server is shutting down")]
    ShuttingDown = 5,
}

impl Refusal {
    /// The refusal with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::NotAHello, Self::Version, Self::TooManySessions, Self::OtherUser, Self::ShuttingDown]
            .into_iter()
            .find(|refusal| *refusal as u32 == number)
    }
}

const _: () = assert!(size_of::<ClientHello>() == 16);
const _: () = assert!(size_of::<ServerHello>() == 72);
