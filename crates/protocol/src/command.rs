//! Questions to a shard, and its answers. Commands have one encoding, for rings, in-process queues
//! and the operation log.
//!
//! Expiries are absolute, in Unix ms: the thread that accepts a request turns "in ten seconds" into
//! a point in time once, so that a later replay of the entry means the same.

use crate::moved::{Dumped, LoadStep};
use crate::pairs::Pairs;
use crate::types::Request;
use remora_layout::database::Database;

/// When a SET takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Condition {
    /// Always.
    #[default]
    Always,
    /// Only if the key does not exist (NX).
    IfAbsent,
    /// Only if the key exists (XX).
    IfPresent,
}

/// The effect of a SET on the key's expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expiry {
    /// The key no longer expires.
    #[default]
    Never,
    /// The expiry stays as it is (KEEPTTL).
    Keep,
    /// Unix ms.
    At(u64),
}

/// When an EXPIRE takes effect (Redis 7.0).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExpireCondition {
    /// Always.
    #[default]
    Always,
    /// Only if the key has no expiry (NX).
    IfNone,
    /// Only if the key has one (XX).
    IfSome,
    /// Only if later than the present one; none counts as infinite (GT).
    IfLater,
    /// Only if earlier than the present one; none counts as infinite (LT).
    IfEarlier,
    /// Only if the key has an expiry and the new one is earlier (XX LT).
    IfSomeEarlier,
}

/// One request to one shard. Keys and values borrow from the message.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Command<'a> {
    /// The value, with a pointer and a lease.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Sets a key.
    Set {
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
        /// When to set it.
        condition: Condition,
        /// The effect on the expiry.
        expiry: Expiry,
        /// Reply with the old value.
        get: bool,
    },
    /// Removes a key; `number` is 1 if it was there.
    Del {
        /// The key.
        key: &'a [u8],
    },
    /// `number` is 1 if the key exists.
    Exists {
        /// The key.
        key: &'a [u8],
    },
    /// `number` is 1 if the key exists: it counts as used for eviction.
    Touch {
        /// The key.
        key: &'a [u8],
    },
    /// Adds to the integer that the key holds (0 if it is absent).
    Incr {
        /// The key.
        key: &'a [u8],
        /// The summand.
        by: i64,
    },
    /// Sets the expiry; in the past means "remove now". `number` is 1 if done.
    Expire {
        /// The key.
        key: &'a [u8],
        /// Unix ms.
        at_ms: u64,
        /// When to set it.
        condition: ExpireCondition,
    },
    /// `number` is the time to live in ms, -1 without expiry, -2 without key.
    Ttl {
        /// The key.
        key: &'a [u8],
    },
    /// `number` is the kind of the key's object ([`remora_layout::kind::Kind`]); `NotFound` without
    /// the key.
    Type {
        /// The key.
        key: &'a [u8],
    },
    /// Sets all pairs, which are of this shard, as one change: no reader sees
    /// a part of it as the whole, and no pair is set if one has no room.
    MultiSet {
        /// The pairs.
        pairs: Pairs<'a>,
    },
    /// Appends to the value (empty if the key is absent); the expiry stays.
    /// `number` is the new length in bytes.
    Append {
        /// The key.
        key: &'a [u8],
        /// The bytes to append.
        value: &'a [u8],
    },
    /// Overwrites the value from `offset` on, behind zeros where it was
    /// shorter; the expiry stays. `number` is the new length in bytes. An
    /// empty `value` changes nothing and makes no key.
    SetRange {
        /// The key.
        key: &'a [u8],
        /// Bytes before the first one written.
        offset: u64,
        /// The bytes to write.
        value: &'a [u8],
    },
    /// The bytes from `start` to `end`, both included; negative ones count
    /// from the end, -1 being the last. Empty if the key is absent. Bounds of
    /// more bits go through [`Command::get_range`].
    GetRange {
        /// The key.
        key: &'a [u8],
        /// First byte.
        start: i32,
        /// Last byte.
        end: i32,
    },
    /// Sets one bit, behind zeros where the value was shorter; the expiry
    /// stays. `number` is the bit before.
    SetBit {
        /// The key.
        key: &'a [u8],
        /// In bits; 0 is the highest bit of the first byte.
        offset: u32,
        /// The bit.
        bit: bool,
    },
    /// `number` is one bit; 0 behind the end and if the key is absent.
    GetBit {
        /// The key.
        key: &'a [u8],
        /// In bits; 0 is the highest bit of the first byte.
        offset: u32,
    },
    /// `number` is the value's length in bytes; 0 if the key is absent.
    StrLen {
        /// The key.
        key: &'a [u8],
    },
    /// The value; the key is removed.
    GetDel {
        /// The key.
        key: &'a [u8],
    },
    /// The value, with a pointer and a lease; the expiry is changed.
    GetEx {
        /// The key.
        key: &'a [u8],
        /// Unix ms, and in the past means "remove now"; `None`: the key no
        /// longer expires.
        at_ms: Option<u64>,
    },
    /// An operation of one type on its object.
    Of {
        /// The key.
        key: &'a [u8],
        /// The operation.
        request: Request<'a>,
    },
    /// The value is the digest of the shard's keys, or of one key's value, 16 bytes (`Digest` of
    /// the engine). For RESP only.
    Digest {
        /// The one key; `NotFound` without it.
        key: Option<&'a [u8]>,
    },
    /// `number` is the count of keys of the database in the shard.
    Count,
    /// Removes every key of the database in the shard.
    Flush,
    /// Removes every key of the shard, whatever its database.
    FlushAll,
    /// Takes the expiry away; `number` is 1 if there was one.
    Persist {
        /// The key.
        key: &'a [u8],
    },
    /// `number` is when the key expires in Unix ms, -1 without expiry, -2
    /// without key.
    ExpireTime {
        /// The key.
        key: &'a [u8],
    },
    /// The value is how the key's value is kept, in Redis's words; `number` is how often
    /// the key was touched, 0 to 3, as far as eviction has counted it; -1 if it has not.
    Encoding {
        /// The key.
        key: &'a [u8],
    },
    /// The elements of the key's object, as [`crate::Items`], as they were when the read began; nothing
    /// without the key. The types say whether their objects have elements: of others it is `WrongType`.
    /// `number` is twice the number of the elements, and 1 more if they have an order of their own:
    /// then only those of a range are given. Answered in turns; more than a reply may have is
    /// `TooLarge`. For RESP only.
    Elements {
        /// The key.
        key: &'a [u8],
        /// The range's first index; below 0 it counts from the end, -1 being the last.
        start: i64,
        /// Its last index.
        stop: i64,
    },
    /// Some keys of the database from a place on, in the order of a scan: the value is a list of
    /// them ([`crate::ScannedKeys`]), `number` the place at which to continue, 0 at the end.
    Scan {
        /// 0 at the beginning.
        place: u32,
        /// About how many keys are wanted.
        count: u32,
    },
    /// The value is any key of the database; without one `NotFound`. `NotDone` if one turn found
    /// none: `number` is the place at which to continue. After one pass over the table it ends.
    RandomKey {
        /// Random bits, in each turn the same.
        random: u32,
        /// Where to continue; none in the first turn.
        place: Option<u32>,
    },
    /// Whether the shard's changes up to a sequence are on the disk: `Ok`, or `NotDone` while they
    /// are not. `number` is the sequence that was asked for; the value is the last sequence that is
    /// on the disk, 8 bytes. The reply waits for nothing. `NotKept`: the disk fails. `NothingKept`:
    /// the server has none.
    Synced {
        /// The sequence; 0 for that of the shard's last change.
        until: u64,
        /// The disk is to begin at once.
        begins: bool,
    },
    /// Whether so many replicas have stored the shard's changes up to a sequence: `Ok`, or `NotDone`
    /// while fewer have. `number` is the sequence that was asked for; the value is the number of
    /// replicas that have, 8 bytes. The reply waits for nothing.
    Replicated {
        /// The sequence; 0 for that of the shard's last change.
        until: u64,
        /// Replicas that are wanted.
        replicas: u8,
    },
    /// The topology of the cluster that the server belongs to, encoded, from this byte on, at most
    /// `TOPOLOGY_PART_BYTES` of it: less is its end. `number` is its version; another one than that of
    /// the part before begins anew. A server that is a replica, or without its lease, answers too.
    /// `NotFound`: it belongs to no cluster, or does not know the topology yet. The server answers,
    /// and no shard.
    Topology {
        /// The first byte that is wanted.
        from: u32,
    },
    /// Runs a plan over the keys of the database, of all shards. The value is the outcome, encoded, in
    /// as many replies as it takes; the parts follow each other, [`crate::message::MORE`] on all but the
    /// last. `Malformed`: the bytes are no plan. `TooLarge`: they are more than
    /// [`remora_layout::limits::MAX_PLAN_BYTES`]. `OtherGroup`: the plan has come to a key of another
    /// group of the cluster. Any thread of the server runs it. It changes nothing.
    Plan {
        /// The plan, as the plans' crate encodes it.
        plan: &'a [u8],
    },
    /// Gives this key's value to another key of the same shard. `number` is 1 if it was done, 0 if
    /// a key of that name exists.
    Transfer {
        /// The key.
        key: &'a [u8],
        /// The other one.
        to: &'a [u8],
        /// The other key's database.
        database: Database,
        /// Another key of that name is replaced.
        replaces: bool,
        /// The key stays.
        keeps: bool,
    },
    /// The value is the key's whole content ([`Dumped`]). For an object of parts it is the content
    /// from which an empty object is made, and the status is `InPieces`: a dump has begun, and
    /// commands that would change the key are refused with `TryAgain` until it ends.
    Dump {
        /// The key.
        key: &'a [u8],
        /// A dump begins of any key, also of one that lies in one record.
        holds: bool,
    },
    /// The value is the next piece of a dump; `number` is 0 if it is the last one. `NotFound`: the
    /// object was removed meanwhile.
    DumpPart {
        /// The key.
        key: &'a [u8],
        /// [`Dumped::dump`].
        dump: u64,
    },
    /// Ends a dump, if it is still under way; the key stays.
    EndDump {
        /// The key.
        key: &'a [u8],
        /// [`Dumped::dump`].
        dump: u64,
    },
    /// One step of making an object of parts from a dump. No key leads to it before it is complete.
    Load {
        /// The key that it is to have.
        key: &'a [u8],
        /// The load's number, which its first step gave; 0 in the first step.
        load: u64,
        /// The step.
        step: LoadStep<'a>,
    },
    /// Gives a key the dumped content. `number` is 1 if it was done, 0 if a key of that name
    /// exists.
    Restore {
        /// The key.
        key: &'a [u8],
        /// Its content.
        dumped: Dumped<'a>,
        /// Another key of that name is replaced.
        replaces: bool,
    },
    /// Ends a dump, and removes the key; `number` is 1 if that was done, 0 if the dump was no
    /// longer under way.
    DelDumped {
        /// The key.
        key: &'a [u8],
        /// [`Dumped::dump`].
        dump: u64,
    },
}

impl<'a> Command<'a> {
    /// A [`Command::GetRange`] with bounds of 64 bits. A value's length fits into 32 bits. Only the
    /// order of two bounds before any value could get lost, so such a range becomes one that is
    /// empty too.
    pub fn get_range(key: &'a [u8], start: i64, end: i64) -> Self {
        if start < 0 && end < 0 && start > end {
            return Self::GetRange { key, start: -1, end: -2 };
        }
        let narrow = |at: i64| at.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        Self::GetRange { key, start: narrow(start), end: narrow(end) }
    }

    /// The key, if the command has one; several or none
    /// otherwise.
    pub fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Get { key }
            | Self::Set { key, .. }
            | Self::Del { key }
            | Self::Exists { key }
            | Self::Touch { key }
            | Self::Incr { key, .. }
            | Self::Expire { key, .. }
            | Self::Ttl { key }
            | Self::Type { key }
            | Self::Append { key, .. }
            | Self::SetRange { key, .. }
            | Self::GetRange { key, .. }
            | Self::SetBit { key, .. }
            | Self::GetBit { key, .. }
            | Self::StrLen { key }
            | Self::GetDel { key }
            | Self::GetEx { key, .. }
            | Self::Persist { key }
            | Self::ExpireTime { key }
            | Self::Encoding { key }
            | Self::Elements { key, .. }
            | Self::Transfer { key, .. }
            | Self::Dump { key, .. }
            | Self::DumpPart { key, .. }
            | Self::EndDump { key, .. }
            | Self::Load { key, .. }
            | Self::Restore { key, .. }
            | Self::DelDumped { key, .. }
            | Self::Of { key, .. } => Some(key),
            Self::Digest { key } => key,
            Self::MultiSet { .. }
            | Self::Count
            | Self::Flush
            | Self::FlushAll
            | Self::Scan { .. }
            | Self::RandomKey { .. }
            | Self::Synced { .. }
            | Self::Replicated { .. }
            | Self::Topology { .. }
            | Self::Plan { .. } => None,
        }
    }

    /// The command of RESP that does this, in lower case, `object|encoding` with a subcommand: users'
    /// rights are about its name. `None`: no user's command, but a step of the server's own work.
    pub fn command_name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Get { .. } => "get",
            Self::Set { .. } => "set",
            Self::Del { .. } => "del",
            Self::Exists { .. } => "exists",
            Self::Touch { .. } => "touch",
            Self::Incr { .. } => "incrby",
            Self::Expire { .. } => "pexpireat",
            Self::Ttl { .. } => "pttl",
            Self::Type { .. } => "type",
            Self::MultiSet { .. } => "mset",
            Self::Append { .. } => "append",
            Self::SetRange { .. } => "setrange",
            Self::GetRange { .. } => "getrange",
            Self::SetBit { .. } => "setbit",
            Self::GetBit { .. } => "getbit",
            Self::StrLen { .. } => "strlen",
            Self::GetDel { .. } => "getdel",
            Self::GetEx { .. } => "getex",
            Self::Of { request, .. } => request.command_name(),
            Self::Count => "dbsize",
            Self::Flush => "flushdb",
            Self::FlushAll => "flushall",
            Self::Persist { .. } => "persist",
            Self::ExpireTime { .. } => "pexpiretime",
            Self::Encoding { .. } => "object|encoding",
            Self::Scan { .. } => "scan",
            Self::Synced { .. } => "waitaof",
            Self::Replicated { .. } => "wait",
            Self::Topology { .. } => "cluster|shards",
            Self::Plan { .. } => "plan.run",
            _ => return None,
        })
    }

    /// Whether the command may change anything.
    pub fn is_write(&self) -> bool {
        if let Self::Of { request, .. } = self {
            return request.is_write();
        }
        !matches!(
            self,
            Self::Get { .. }
                | Self::Exists { .. }
                | Self::Touch { .. }
                | Self::Ttl { .. }
                | Self::Type { .. }
                | Self::GetRange { .. }
                | Self::GetBit { .. }
                | Self::StrLen { .. }
                | Self::Digest { .. }
                | Self::Count
                | Self::ExpireTime { .. }
                | Self::Encoding { .. }
                | Self::Elements { .. }
                | Self::Scan { .. }
                | Self::RandomKey { .. }
                | Self::Dump { .. }
                | Self::DumpPart { .. }
                | Self::EndDump { .. }
                | Self::Synced { .. }
                | Self::Replicated { .. }
                | Self::Topology { .. }
                | Self::Plan { .. }
        )
    }

    /// Whether clients may send it over rings. The others take as long as the shard is large, or
    /// are steps of the server's own work.
    pub fn is_for_rings(&self) -> bool {
        !matches!(
            self,
            Self::Digest { .. }
                | Self::Elements { .. }
                | Self::RandomKey { .. }
                | Self::Dump { .. }
                | Self::DumpPart { .. }
                | Self::EndDump { .. }
                | Self::Restore { .. }
                | Self::DelDumped { .. }
                | Self::Load { .. }
                | Self::Transfer { .. }
        )
    }

    /// Whether the reply may bring a value.
    pub fn brings_value(&self) -> bool {
        matches!(
            self,
            Self::Get { .. }
                | Self::GetRange { .. }
                | Self::GetDel { .. }
                | Self::GetEx { .. }
                | Self::Set { get: true, .. }
        )
    }
}
