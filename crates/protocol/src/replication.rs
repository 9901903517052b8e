//! Replication on the wire: what a shard of the primary writes into the log ring of a replica, and
//! what the replica says to that shard (HydraDB 5.2; RDMA_Mongo 4.4).
//!
//! ```text
//! to the replica   0 kind 1 | 0 3 | ask 4 | commit 8 | body
//!   begins           key 8 | epoch 8 | next 8 | kept 8 | former 8 | arena 8 | used 8 | keys 8 | shards 4 | 0 4
//!   entries          frames of the log
//!   echo             clock 8 | time 8 | frames of the log
//!   lost             is_same_log 8 | oldest 8 | next 8
//!   copy             operations of a snapshot; each message ends with any byte of one
//!   copied           sequence 8
//!   refused          reason 4 | text
//! to the primary, behind a request's header
//!   follow           next 8 | epoch 8 | key 8 | committed 8 | port 4 | replica 4
//!   acknowledge      received 8 | applied 8 | durable 8 | failed 8 | clock 8 | ask 4 | 0 4
//! ```
//! The ring's own credit says how many bytes the replica has freed.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

/// The kind of a message to a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, TryFromBytes)]
#[repr(u8)]
pub enum FeedKind {
    /// The shard follows the request: its log comes from now on.
    Begins = 1,
    /// Frames of the log, or none if only the commit position has grown.
    Entries = 2,
    /// The shard does not keep the entries that the replica wants, any more or yet.
    Lost = 3,
    /// A part of a copy of all that the shard has, as a snapshot writes it.
    Copy = 4,
    /// The end of that. The log comes from the next sequence on.
    Copied = 5,
    /// This server's log is not to be followed.
    Refused = 6,
    /// As [`FeedKind::Entries`], behind the newest clock of the replica.
    Echo = 7,
}

impl FeedKind {
    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::try_read_from_bytes(&[number]).ok()
    }
}

/// Before the body of each message to a replica.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FeedHeader {
    /// A [`FeedKind`].
    pub kind: u8,
    /// Zero.
    pub zero: [u8; 3],
    /// The replica is to acknowledge this; 0: it need not.
    pub ask: U32,
    /// Entries up to this sequence may be applied.
    pub commit: U64,
}

/// Bytes of that.
pub const FEED_HEADER_BYTES: usize = size_of::<FeedHeader>();

/// Before the frames of a [`FeedKind::Echo`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Echo {
    /// The newest clock of the replica that the primary had taken before it read `commit`.
    pub clock: U64,
    /// The primary's clock when it read `commit`, Unix ms.
    pub time: U64,
}

/// The body of [`FeedKind::Begins`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Begins {
    /// The key of the checksums of the log.
    pub key: U64,
    /// The epoch of the primary.
    pub epoch: U64,
    /// The sequence of the first entry that comes; 0: a copy comes first.
    pub next: U64,
    /// Under another epoch than the replica has followed: its entries up to this one count, and are
    /// all that there were before `next`. Under the same, the entry before `next`.
    pub kept: U64,
    /// The key of the log that the replica has followed, if this shard has followed it, too, and goes
    /// on with it as a primary; 0 if the replica has followed this log, or comes anew.
    pub former: U64,
    /// Bytes of memory that the shard has for data: a replica needs as many.
    pub arena_bytes: U64,
    /// Bytes that its data take now.
    pub used_bytes: U64,
    /// Its keys now.
    pub keys: U64,
    /// Shards of the primary.
    pub shards: U32,
    /// Zero.
    pub zero: U32,
}

/// Why a server's log is not to be followed: the first word of the body of
/// [`FeedKind::Refused`]. A text for people follows, of at most
/// [`remora_layout::limits::FEED_REASON_BYTES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RefusalReason {
    /// It is a replica itself, and has no log.
    IsReplica = 1,
    /// The replica's user may not do all there.
    NoPermission = 2,
}

/// The body of [`FeedKind::Lost`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LostLog {
    /// 1 if the replica has followed this log, and 0 if it was another one: the primary has begun
    /// anew, or another server is at its address. [`HAS_MORE`] and [`UNKNOWN_EPOCH`]: it is the same
    /// one, and a copy may cost acknowledged entries.
    pub is_same_log: U64,
    /// The oldest entry that is kept; with [`HAS_MORE`] the last one of the replica's epoch that is.
    pub oldest: U64,
}

/// The replica has more entries of its epoch than the primary, which was started again, had kept.
pub const HAS_MORE: u64 = 2;
/// The primary was started again, and does not know any more what it had kept of the epoch of the
/// replica.
pub const UNKNOWN_EPOCH: u64 = 3;

/// The body of [`crate::message::FOLLOW`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Follow {
    /// The sequence of the first entry that the replica wants; 0: a copy of everything first.
    pub next: U64,
    /// The epoch of the entry before it.
    pub epoch: U64,
    /// The key of the log that it has followed; 0 before the first.
    pub key: U64,
    /// The last entry of that epoch that it knows to be committed.
    pub committed: U64,
    /// The last entry that is in its copy of that epoch; 0 once it knows all of that to be committed.
    pub copied: U64,
    /// The incarnation of the replica's process: sessions with the same one are of one replica. 0: each
    /// session is.
    pub replica: U64,
    /// The port of the replica for RESP, which the primary shows; 0 if it says none.
    pub port: U32,
    /// Zero.
    pub zero: U32,
}

/// The body of [`crate::message::ACKNOWLEDGE`] (H37; M28).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Acknowledge {
    /// The last entry that lies whole in the memory of the replica.
    pub received: U64,
    /// The last entry that is applied.
    pub applied: U64,
    /// The last entry that is on the disk of the replica; 0 without one.
    pub durable: U64,
    /// The first entry that failed, and that has to come again; 0 if none has.
    pub failed: U64,
    /// The replica's monotonic clock, ns; not 0. The primary echoes it.
    pub clock: U64,
    /// The newest ask that it answers.
    pub ask: U32,
    /// Zero.
    pub zero: U32,
}

const _: () = assert!(FEED_HEADER_BYTES == 16 && size_of::<Echo>() == 16);
const _: () = assert!(size_of::<Begins>() == 72 && size_of::<Follow>() == 56);
const _: () = assert!(size_of::<Acknowledge>() == 48);
