//! Requests and replies in a frame's payload.
//!
//! ```text
//! request   0 op 1 | flags 1 | form 1 | of 1 | key_bytes 4 | value_bytes 4 | id 4 | argument 8 |
//! key | value reply     0 status 1 | flags 1 | lag 2 | value_bytes 4 | id 4 | lease_ms 4 |
//!          16 remote pointer 16 | number 8 | incarnation 8 | value
//! ```

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

/// The form of a request in its frame, or frames. The high four bits of the form number the
/// database.
pub mod form {
    use remora_layout::database::Database;

    /// The bits for the request's form.
    pub const MASK: u8 = 15;

    /// The database that a form numbers.
    #[inline(always)]
    pub const fn database(form: u8) -> Database {
        Database::of_bits((form >> 4) as u64)
    }

    /// A form of this database.
    #[inline(always)]
    pub const fn within(database: Database) -> u8 {
        database.number() << 4
    }

    /// Only the key follows; the value's bytes come in [`super::PIECE`]s with
    /// the same id.
    pub const IN_PIECES: u8 = 1;
    /// A [`remora_layout::buffer_name::BufferName`] stands at the frame's end: a reply with a large
    /// value writes it there.
    pub const BUFFER: u8 = 2;
}

/// In place of an [`Op`]: the value is the next piece of a request's value.
pub const PIECE: u8 = 200;
/// In place of an [`Op`]: the client has taken the content of the buffer that the
/// [`remora_layout::buffer_name::BufferName`] at the frame's end names. Has no reply.
pub const RELEASE: u8 = 201;
/// In place of an [`Op`]: the client will not send the rest of the value of the
/// request with this id, which is not executed. Has a reply if that request has
/// had none.
pub const CALL_OFF: u8 = 202;
/// In place of an [`Op`]: the client is a replica and wants the shard's log, as
/// [`crate::replication::Follow`] says. From then on only that comes in the ring.
pub const FOLLOW: u8 = 203;
/// In place of an [`Op`]: how far the replica has come, as [`crate::replication::Acknowledge`].
/// Has no reply.
pub const ACKNOWLEDGE: u8 = 204;
/// In place of an [`Op`]: for how many ms the request waits, 8 bytes, 0 for without end, and encoded
/// commands, one behind the other. The first of them whose key holds something for it is executed, now or
/// later. It goes to the shard of the first key; several commands, or one on two keys, may be about keys of
/// any shards. The reply, of one or more frames, has two items, the key and the value of the command's
/// reply; `NotFound` once the time is over, or once another frame of the session has come.
pub const WAIT: u8 = 205;
/// Flag of a reply: it has a value, in the frame.
pub const HAS_VALUE: u8 = 1;
/// Flag of a reply: its value stands at the start of the named buffer.
pub const IN_BUFFER: u8 = 2;
/// Flag of a reply: it has a value, in the frame, and another reply to the
/// same request follows.
pub const MORE: u8 = 4;

/// Header of a request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RequestHeader {
    /// An [`Op`].
    pub op: u8,
    /// Flags of the operation.
    pub flags: u8,
    /// Bits of [`form`], and the number of the database.
    pub form: u8,
    /// The type of the operation `op`; 0 for keys of any type, and strings.
    pub of: u8,
    /// Bytes of the key.
    pub key_bytes: U32,
    /// Bytes of the value.
    pub value_bytes: U32,
    /// Chosen by the client; the reply carries the same.
    pub id: U32,
    /// The operation's number: an expiry in Unix ms, an increment, an offset.
    pub argument: I64,
}

/// Header of a reply.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ReplyHeader {
    /// A [`Status`].
    pub status: u8,
    /// [`HAS_VALUE`], [`IN_BUFFER`].
    pub flags: u8,
    /// How old what the reply shows may have been when the request was executed: a
    /// [`remora_layout::lag::Lag`].
    pub lag: U16,
    /// Bytes of the value.
    pub value_bytes: U32,
    /// The request's id.
    pub id: U32,
    /// Term of the lease on `pointer`, in ms; 0 without one.
    pub lease_ms: U32,
    /// Words of a remote pointer; zero without one.
    pub pointer: [U64; 2],
    /// The operation's number: a count, a TTL in ms.
    pub number: I64,
    /// The server's incarnation: a reply renews the read lease like a heartbeat.
    pub incarnation: U64,
}

/// Operations on a key of any type, or on a string. Other types number their operations themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, TryFromBytes)]
#[repr(u8)]
pub enum Op {
    /// Value of a key, with pointer and lease.
    Get = 1,
    /// Sets a key.
    Set = 2,
    /// Removes a key.
    Del = 3,
    /// Whether a key exists.
    Exists = 4,
    /// Adds to an integer.
    Incr = 5,
    /// Sets or clears an expiry.
    Expire = 6,
    /// Time to live.
    Ttl = 7,
    /// Sets several keys of one shard at once; the value holds the pairs.
    MultiSet = 8,
    /// Number of keys of the database in the shard.
    Count = 9,
    /// Removes all keys of the database in the shard.
    Flush = 10,
    /// Appends to a value.
    Append = 11,
    /// Overwrites a part of a value.
    SetRange = 12,
    /// A part of a value; the argument holds start and end.
    GetRange = 13,
    /// Sets one bit of a value; the flag is the bit.
    SetBit = 14,
    /// One bit of a value.
    GetBit = 15,
    /// Bytes of a value.
    StrLen = 16,
    /// Value of a key, which is removed.
    GetDel = 17,
    /// Value of a key, whose expiry is set or cleared.
    GetEx = 18,
    /// The kind of a key's record.
    Type = 19,
    /// Removes all keys of the shard.
    FlushAll = 20,
    /// Digest of the shard, or of one key's value.
    Digest = 60,
    /// Takes an expiry away.
    Persist = 21,
    /// When a key expires.
    ExpireTime = 22,
    /// How a key's value is kept, in Redis's words.
    Encoding = 23,
    /// Some keys of the database, in the order of a scan.
    Scan = 24,
    /// Any key of the database.
    RandomKey = 25,
    /// Gives another key this key's value.
    Transfer = 26,
    /// All that a key has.
    Dump = 27,
    /// Gives a key another key's value.
    Restore = 28,
    /// Removes a key that was dumped, if the dump is still under way.
    DelDumped = 29,
    /// The next part of an object that is dumped in pieces.
    DumpPart = 30,
    /// Ends a dump.
    EndDump = 31,
    /// One step of filling an object that no key leads to yet.
    Load = 32,
    /// Whether a key exists; it counts as used.
    Touch = 33,
    /// Whether changes of the shard are on the disk.
    Synced = 34,
    /// How many replicas have stored changes of the shard.
    Replicated = 35,
    /// A part of the topology of the server's cluster.
    Topology = 36,
    /// The elements of an object, whatever its type; the argument and the value hold a range.
    Elements = 37,
    /// Runs a plan; the value is the plan.
    Plan = 38,
}

impl Op {
    /// Whether the operation is about a database, and not about one key.
    #[inline]
    pub const fn has_no_key(self) -> bool {
        matches!(
            self,
            Self::MultiSet
                | Self::Count
                | Self::Flush
                | Self::FlushAll
                | Self::Scan
                | Self::RandomKey
                | Self::Synced
                | Self::Replicated
                | Self::Topology
                | Self::Plan
        )
    }

    /// The operation with this number.
    #[inline]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::try_read_from_bytes(&[number]).ok()
    }
}

/// How it went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, TryFromBytes)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// There is no such key.
    NotFound = 1,
    /// The condition (NX, XX, GT, LT) did not hold; nothing was changed.
    NotDone = 2,
    /// The value is not a 64-bit integer.
    NotAnInteger = 3,
    /// The result would not fit a 64-bit integer.
    Overflow = 4,
    /// The arena is full.
    OutOfMemory = 5,
    /// Key or value is longer than the limit.
    TooLarge = 6,
    /// The request makes no sense.
    Malformed = 7,
    /// The expiry is out of range.
    InvalidExpiry = 8,
    /// The value is too large for a frame, and the request named no buffer, or
    /// one too small; `number` is its length.
    NeedsBuffer = 9,
    /// There is no such tree.
    NoTree = 10,
    /// NaN, infinite or inverted numbers are no rectangle and no point.
    BadRectangle = 11,
    /// A node cannot have room for this many entries.
    BadCapacity = 12,
    /// Objects are loaded into an empty tree only.
    NotEmpty = 13,
    /// Two of the objects to be loaded have one id.
    TwiceGiven = 14,
    /// Reading another shard's tree did not conclude: its own shard knows.
    AskOwner = 15,
    /// This load of the tree is no longer under way: another has begun
    /// meanwhile, or nothing came for too long.
    OtherLoad = 16,
    /// The argument is not a geometry, or not a predicate on one, or the rectangle does not belong
    /// to the geometry.
    BadGeometry = 17,
    /// The key holds a value of another kind.
    WrongType = 18,
    /// The value's pieces stopped coming: the request was abandoned.
    Stalled = 19,
    /// The shard applies another shard's log: only that log changes it.
    ReadOnly = 20,
    /// The object has parts: it moves to another key in pieces. Or a tree is being built: ask for
    /// the next step.
    InPieces = 21,
    /// The key is on its way to another one, or too many are: ask again.
    TryAgain = 22,
    /// The object has changed so much since the read began that the rest of the read is lost.
    Outrun = 23,
    /// The log's disk takes nothing more: nothing was changed.
    NotKept = 24,
    /// The server has no log on a disk: nothing is ever kept.
    NothingKept = 25,
    /// Fewer replicas keep up than the server asks for before it acknowledges: nothing was changed.
    TooFewReplicas = 26,
    /// The server is a replica, and is set to answer no reads.
    NoReads = 27,
    /// The server is a replica that does not have all data of its primary yet.
    Copying = 28,
    /// The server became a replica before the change was acknowledged: whether it outlives that is
    /// not known.
    RoleChanged = 29,
    /// The server is a primary of a cluster whose lease has ended: another one may lead.
    Fenced = 30,
    /// The slot of the key belongs to another group of the cluster: ask for the topology.
    OtherGroup = 31,
    /// Another client has ended the wait for a key.
    Unblocked = 32,
    /// The wait for a key has ended: the server becomes a replica, or stops. Nothing was changed.
    WaitEnded = 33,
    /// The resulting score would not be a number.
    NotANumber = 34,
    /// The session's user may not do this, or not with this key.
    NoPermission = 35,
    /// The model of documents refuses it: `number` is MongoDB's code of the error, the value its text.
    Refused = 36,
}

impl Status {
    /// The status with this number.
    #[inline]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::try_read_from_bytes(&[number]).ok()
    }
}

/// Bytes of a request before the key.
pub const REQUEST_HEADER_BYTES: usize = size_of::<RequestHeader>();
/// Bytes of a reply before the value.
pub const REPLY_HEADER_BYTES: usize = size_of::<ReplyHeader>();

const _: () = assert!(REQUEST_HEADER_BYTES == 24);
const _: () = assert!(REPLY_HEADER_BYTES == 48);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_on_the_wire_is_that_of_what_it_means() {
        for number in 0..=u8::MAX {
            let op = Op::from_number(number).map(|op| op as u8);
            assert_eq!(op, matches!(number, 1..=38 | 60).then_some(number));
            let status = Status::from_number(number).map(|status| status as u8);
            assert_eq!(status, (number <= Status::Refused as u8).then_some(number));
        }
    }
}
