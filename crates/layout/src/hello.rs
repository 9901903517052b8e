//! The first exchange of a session, over a Unix socket or over TCP.
//!
//! The client sends a [`ClientHello`]; the server answers with a [`ServerHello`]. Both list the
//! transports that they offer; the server chooses (RDMA_Mongo, algorithm 1).
//! * The server chose shm, and the client connected over the Unix socket: the server passes file
//!   descriptors with the hello (SCM_RIGHTS), in this order: to_server mailbox, to_client mailbox,
//!   the buffer for large replies, then for each shard its arena and the eventfd that wakes it, and
//!   last the table of shared pointers, if there is one. After that the socket carries no bytes;
//!   the end of the socket is the end of the session.
//! * The server chose tcp, and the client connected over TCP: frames follow ([`crate::wire`]) on
//!   the same connection.
//! * The server chose the transport that needs the other socket: there is no session (its number is
//!   0), and the client dials again at `socket_path` or `tcp_address`.

use crate::limits::{MAX_ACL_WORD_BYTES, MAX_RING_SETS, MAX_SHARDS};
use crate::slot::SlotTable;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

/// Opens both hellos.
pub const HELLO_MAGIC: u64 = u64::from_le_bytes(*b"remora\r\n");
/// Version of every layout in this crate; both sides must have the same.
pub const PROTOCOL_VERSION: u32 = 9;
/// Bytes of a Unix socket's path in a hello: the most that the kernel accepts (sun_path), padded
/// with zeros.
pub const SOCKET_PATH_BYTES: usize = 108;
/// Bytes of a TCP address in a hello, as text, padded with zeros: the longest IPv6 address with its
/// scope and port has fewer.
pub const TCP_ADDRESS_BYTES: usize = 64;
/// Bytes of a user's name in a hello, padded with zeros: the longest name that ACL LOG shows.
pub const USER_BYTES: usize = MAX_ACL_WORD_BYTES;
/// Bytes of a password in a hello, padded with zeros: any that a program makes, and many a sentence.
pub const PASSWORD_BYTES: usize = 512;

/// Bits of the transports that a side offers.
pub mod offer {
    /// Shared memory with a process of the same host and user.
    pub const SHM: u32 = 1;
    /// READ and WRITE over TCP.
    pub const TCP: u32 = 2;
    /// RDMA: the library can be loaded, and a device has an active port.
    pub const VERBS: u32 = 4;
}

/// Numbers of the transports in hellos; as the client's wish, 0 leaves the choice to the server.
pub mod transport {
    /// The best that both sides have.
    pub const AUTO: u32 = 0;
    /// Shared memory.
    pub const SHM: u32 = 1;
    /// TCP.
    pub const TCP: u32 = 2;
    /// RDMA.
    pub const VERBS: u32 = 3;
}

/// The transports that a side has, and where the side runs.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct WireOffer {
    /// Hash of the host's boot id: equal on one running host only.
    pub host: U64,
    /// Bits of [`offer`].
    pub transports: U32,
    /// Effective user id.
    pub uid: U32,
}

/// The client's first message. It holds a password: nothing prints it.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ClientHello {
    /// [`HELLO_MAGIC`].
    pub magic: U64,
    /// [`PROTOCOL_VERSION`].
    pub version: U32,
    /// Process id of the client, for the server's logs.
    pub pid: U32,
    /// What the client offers.
    pub offer: WireOffer,
    /// The transport that it wants: a number of [`transport`].
    pub wanted: U32,
    /// Bytes of `user`; 0: the user `default`.
    pub user_bytes: U16,
    /// Bytes of `password`.
    pub password_bytes: U16,
    /// The user's name.
    pub user: [u8; USER_BYTES],
    /// The user's password.
    pub password: [u8; PASSWORD_BYTES],
}

impl ClientHello {
    /// The same with a user and a password; `None` if one of them is too long.
    #[must_use]
    pub fn with_login(mut self, user: &[u8], password: &[u8]) -> Option<Self> {
        self.user.get_mut(..user.len())?.copy_from_slice(user);
        self.password.get_mut(..password.len())?.copy_from_slice(password);
        self.user_bytes = (user.len() as u16).into();
        self.password_bytes = (password.len() as u16).into();
        Some(self)
    }

    /// The user and the password; `None` if their lengths are impossible.
    pub fn login(&self) -> Option<(&[u8], &[u8])> {
        let user = self.user.get(..self.user_bytes.get().into())?;
        Some((user, self.password.get(..self.password_bytes.get().into())?))
    }
}

/// The bytes of a hello that say whether the rest is understood: both sides have them at this place in
/// every version.
pub const HELLO_HEAD_BYTES: usize = 12;

/// The magic number and the version of the hello that begins so.
pub fn head_of(bytes: &[u8]) -> Option<(u64, u32)> {
    let (magic, rest) = bytes.split_first_chunk()?;
    let version = rest.first_chunk()?;
    Some((u64::from_le_bytes(*magic), u32::from_le_bytes(*version)))
}

/// The server's answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ServerHello {
    /// [`HELLO_MAGIC`].
    pub magic: U64,
    /// [`PROTOCOL_VERSION`].
    pub version: U32,
    /// A [`Refusal`], or 0 when the session is granted.
    pub refusal: U32,
    /// The session's number; 0 where the client has to dial again.
    pub session: U64,
    /// The server's incarnation.
    pub incarnation: U64,
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
    /// Seed of the shared table of pointers, whether the server provides the table (shm) or the
    /// clients of a machine make it; 0 if the clients must not share one (H29).
    pub pointer_table_seed: U64,
    /// What the server offers.
    pub offer: WireOffer,
    /// The chosen transport: a number of [`transport`].
    pub transport: U32,
    /// Ring sets in each mailbox; 0 means one ([`crate::session`]).
    pub ring_sets: U32,
    /// The server's Unix socket, for a client that connected over TCP although shared memory is
    /// possible.
    pub socket_path: [u8; SOCKET_PATH_BYTES],
    /// 1 if the client's user may not read everything: it asks, and reads no region.
    pub asks_only: U32,
    /// The server's TCP address, for a client on the Unix socket.
    pub tcp_address: [u8; TCP_ADDRESS_BYTES],
    /// Numbers of the shards' regions: unique in the server's incarnation, and different from the
    /// shard numbers. Zero behind the last shard.
    pub regions: [U32; MAX_SHARDS],
    /// The first slot of each shard's range ([`crate::slot`]). Zero behind the
    /// last shard.
    pub first_slots: [U16; MAX_SHARDS],
}

impl ServerHello {
    /// Ring sets in each mailbox; `None` for a number that no server gives.
    pub fn ring_sets(&self) -> Option<usize> {
        let sets = (self.ring_sets.get() as usize).max(1);
        (sets <= MAX_RING_SETS && sets.is_power_of_two()).then_some(sets)
    }

    /// The number of a shard's region.
    pub fn region(&self, shard: usize) -> u32 {
        self.regions[shard].get()
    }

    /// The table from slots to shards; `None` if the hello's numbers are not valid.
    pub fn slot_table(&self) -> Option<SlotTable> {
        let mut first = [0; MAX_SHARDS];
        first.iter_mut().zip(&self.first_slots).for_each(|(to, from)| *to = from.get());
        SlotTable::from_first_slots(first.get(..self.shards.get() as usize)?)
    }

    /// Writes the shards' region numbers and their slots into the hello.
    pub fn tell_shards(&mut self, regions: impl IntoIterator<Item = u32>, slots: &SlotTable) {
        self.shards = (slots.shards() as u32).into();
        self.regions.iter_mut().zip(regions).for_each(|(to, region)| *to = region.into());
        let first = slots.first_slots();
        self.first_slots.iter_mut().zip(first).for_each(|(to, first)| *to = first.into());
    }
}

/// Why a session is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, TryFromBytes)]
#[repr(u32)]
pub enum Refusal {
    /// The bytes are not a hello.
    #[error("the server did not understand the greeting: is this a Remora client?")]
    NotAHello = 1,
    /// The peer speaks another version of the protocol.
    #[error(
        "client and server speak different protocol versions: use the same release on both sides"
    )]
    Version = 2,
    /// All sessions are taken.
    #[error("the server has reached its limit of sessions: close some clients")]
    TooManySessions = 3,
    /// The client runs as another user.
    #[error("the server runs as another user and refuses shared memory to this one")]
    OtherUser = 4,
    /// The server is draining.
    #[error("the server is shutting down")]
    ShuttingDown = 5,
    /// The wanted transport is not available; the offers say why.
    #[error("the wanted transport cannot be had with this server")]
    Unavailable = 6,
    /// The server has no file descriptor or no memory left for the session.
    #[error(
        "the server has no file descriptor or memory left for another session: close some clients, or raise its limit of open files (ulimit -n)"
    )]
    NoResources = 7,
    /// The server is connecting too many other clients over RDMA at this moment.
    #[error("the server is busy with connecting others over RDMA: come again")]
    Busy = 8,
    /// No queue pair is free.
    #[error(
        "the server has reached its limit of queue pairs: close some clients over RDMA, raise its max_queue_pairs, or use transport auto or tcp"
    )]
    TooManyQueuePairs = 9,
    /// There is no such user, it is off, or its password is another one.
    #[error("the server knows no such user with this password, or the user is off")]
    WrongPassword = 10,
    /// The client named no user, and must.
    #[error(
        "the server has users: name one, and its password (REMORA_USER and REMORA_PASSWORD for Remora's own commands)"
    )]
    NotLoggedIn = 11,
    /// The user gets no session over the wanted transport.
    #[error(
        "this user gets no session of that kind: users that may not read everything ask over TCP (transport auto or tcp, and a fabric_address at the server), and shm_users may name the users of shared memory"
    )]
    RestrictedUser = 12,
    /// The user has as many logins as it may have.
    #[error(
        "as many connections and sessions are logged in as this user as may be (max_clients_per_user): close some"
    )]
    TooManyOfUser = 13,
    /// The client's address has as many connections and sessions as it may have.
    #[error(
        "this address has as many connections and sessions as it may have (max_clients_per_address): close some"
    )]
    TooManyOfAddress = 14,
}

impl Refusal {
    /// Whether another user would not be refused.
    pub fn is_about_the_user(self) -> bool {
        matches!(self, Self::WrongPassword | Self::NotLoggedIn | Self::RestrictedUser)
    }

    /// The refusal with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::try_read_from_bytes(&number.to_ne_bytes()).ok()
    }
}

/// A text field of a hello: the bytes before the first zero.
pub fn text_of(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..end]).ok()
}

/// A text field of a hello, or `None` if the text does not fit.
pub fn text_field<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let mut field = [0; BYTES];
    field.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    (!text.contains('\0')).then_some(field)
}

const _: () = assert!(size_of::<WireOffer>() == 16);
const _: () = assert!(size_of::<ClientHello>() == 40 + USER_BYTES + PASSWORD_BYTES);
const _: () =
    assert!(std::mem::offset_of!(ClientHello, version) + size_of::<u32>() == HELLO_HEAD_BYTES);
const _: () = assert!(size_of::<ServerHello>() == 272 + 6 * MAX_SHARDS);
const _: () = assert!(std::mem::offset_of!(ServerHello, socket_path) == 96);

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn every_refusal_is_known_by_its_number() {
        let known = (1..=14).map(|number| Refusal::from_number(number).unwrap() as u32);
        assert!(known.eq(1..=14));
        assert_eq!((Refusal::from_number(0), Refusal::from_number(15)), (None, None));
    }

    #[test]
    fn a_login_round_trips_or_does_not_fit() {
        let hello = ClientHello::new_zeroed();
        let (user, password) = ([7; USER_BYTES], [9; PASSWORD_BYTES]);
        for (user, password) in [(&b""[..], &b""[..]), (b"alice", b"p\0\xff"), (&user, &password)] {
            let said = hello.with_login(user, password).unwrap();
            assert_eq!(said.login(), Some((user, password)));
        }
        assert!(hello.with_login(&[7; USER_BYTES + 1], b"").is_none());
        assert!(hello.with_login(b"", &[7; PASSWORD_BYTES + 1]).is_none());
        let mut lies = hello;
        lies.user_bytes = (USER_BYTES as u16 + 1).into();
        assert!(lies.login().is_none());
        (lies.user_bytes, lies.password_bytes) = (0.into(), u16::MAX.into());
        assert!(lies.login().is_none());
        assert_eq!(head_of(hello.as_bytes()), Some((0, 0)));
        assert_eq!(head_of(&[0; HELLO_HEAD_BYTES - 1]), None);
    }

    #[test]
    fn texts_round_trip_or_are_refused() {
        for text in ["", "/run/remora/socket", &"x".repeat(SOCKET_PATH_BYTES)] {
            let field: [u8; SOCKET_PATH_BYTES] = text_field(text).unwrap();
            assert_eq!(text_of(&field), Some(text));
        }
        assert_eq!(text_field::<SOCKET_PATH_BYTES>(&"x".repeat(SOCKET_PATH_BYTES + 1)), None);
        assert_eq!(text_field::<8>("a\0b"), None);
        assert_eq!(text_of(&[0xff, 0xfe, 0]), None);
    }
}
