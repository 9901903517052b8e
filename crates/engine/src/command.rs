//! What a shard can be asked, and its one encoding for rings, in-process
//! queues and (later) the operation log.
//!
//! Expiries are absolute, in Unix ms: whoever accepts a request turns "in ten
//! seconds" into a point in time once, so that replaying an entry later means
//! the same.

use remora_layout::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use remora_layout::message::{Op, RequestHeader, Status};
use remora_layout::pointer::RemotePointer;
use zerocopy::{FromBytes, IntoBytes};

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

/// What a SET does to the key's expiry.
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
        /// What happens to the expiry.
        expiry: Expiry,
        /// Reply with the old value.
        get: bool,
    },
    /// Removes a key; `number` is 1 if it was there.
    Del {
        /// The key.
        key: &'a [u8],
    },
    /// `number` is 1 if the key is there.
    Exists {
        /// The key.
        key: &'a [u8],
    },
    /// Adds to the integer that the key holds (0 if it is absent).
    Incr {
        /// The key.
        key: &'a [u8],
        /// What to add.
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
        /// What to append.
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
        /// What to write.
        value: &'a [u8],
    },
    /// The bytes from `start` to `end`, both included; negative ones count
    /// from the end, -1 being the last. Empty if the key is absent. Bounds of
    /// more bits go through [`crate::string_edit::narrow_range`].
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
    /// `number` is the count of keys of the shard.
    Count,
    /// Removes every key of the shard.
    Flush,
}

/// Pairs of a [`Command::MultiSet`], encoded one after the other:
/// key_bytes 4 | value_bytes 4 | key | value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pairs<'a>(&'a [u8]);

impl<'a> Pairs<'a> {
    /// Appends one pair to an encoded list.
    pub fn push(list: &mut Vec<u8>, key: &[u8], value: &[u8]) {
        list.extend_from_slice(&(key.len() as u32).to_le_bytes());
        list.extend_from_slice(&(value.len() as u32).to_le_bytes());
        list.extend_from_slice(key);
        list.extend_from_slice(value);
    }

    /// The pairs of an encoded list, all checked: lengths and limits.
    pub fn parse(list: &'a [u8]) -> Option<Self> {
        let mut rest = list;
        while !rest.is_empty() {
            let (key, value, after) = Self::split(rest)?;
            if key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES {
                return None;
            }
            rest = after;
        }
        Some(Self(list))
    }

    /// The pairs, in order.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (key, value, after) = Self::split(rest)?;
            rest = after;
            Some((key, value))
        })
    }

    fn split(bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8], &'a [u8])> {
        let (header, rest) = bytes.split_at_checked(8)?;
        let length = |at: usize| {
            u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize
        };
        let (key, rest) = rest.split_at_checked(length(0))?;
        let (value, rest) = rest.split_at_checked(length(4))?;
        Some((key, value, rest))
    }
}

// Flags of SET: bits 0-1 condition, bits 2-3 expiry, bit 4 GET.
const SET_GET: u8 = 1 << 4;
// Flag of SETBIT: the bit. Flag of GETEX: there is an expiry.
const ON: u8 = 1;

// The bounds of a GETRANGE fit 32 bits.
const _: () = assert!(MAX_VALUE_BYTES < i32::MAX as usize);

/// The argument of a GETRANGE: start in the low half, end in the high one.
const fn pack_range(start: i32, end: i32) -> i64 {
    (start as u32 as u64 | (end as u32 as u64) << 32) as i64
}

impl<'a> Command<'a> {
    /// The key, if the command has one; several or none otherwise.
    pub fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Get { key }
            | Self::Set { key, .. }
            | Self::Del { key }
            | Self::Exists { key }
            | Self::Incr { key, .. }
            | Self::Expire { key, .. }
            | Self::Ttl { key }
            | Self::Append { key, .. }
            | Self::SetRange { key, .. }
            | Self::GetRange { key, .. }
            | Self::SetBit { key, .. }
            | Self::GetBit { key, .. }
            | Self::StrLen { key }
            | Self::GetDel { key }
            | Self::GetEx { key, .. } => Some(key),
            Self::MultiSet { .. } | Self::Count | Self::Flush => None,
        }
    }

    /// Whether the command may change anything.
    pub fn is_write(&self) -> bool {
        !matches!(
            self,
            Self::Get { .. }
                | Self::Exists { .. }
                | Self::Ttl { .. }
                | Self::GetRange { .. }
                | Self::GetBit { .. }
                | Self::StrLen { .. }
                | Self::Count
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

    /// The header of the encoded command; key and value follow it.
    #[inline]
    pub fn encode(&self, id: u32) -> (RequestHeader, &'a [u8], &'a [u8]) {
        let none: &[u8] = &[];
        let (op, flags, argument, key, value) = match *self {
            Self::Get { key } => (Op::Get, 0, 0, key, none),
            Self::Set { key, value, condition, expiry, get } => {
                let (expiry_flag, at) = match expiry {
                    Expiry::Never => (0, 0),
                    Expiry::Keep => (1, 0),
                    Expiry::At(at_ms) => (2, at_ms as i64),
                };
                let flags = condition as u8 | expiry_flag << 2 | if get { SET_GET } else { 0 };
                (Op::Set, flags, at, key, value)
            }
            Self::Del { key } => (Op::Del, 0, 0, key, none),
            Self::Exists { key } => (Op::Exists, 0, 0, key, none),
            Self::Incr { key, by } => (Op::Incr, 0, by, key, none),
            Self::Expire { key, at_ms, condition } => {
                (Op::Expire, condition as u8, at_ms as i64, key, none)
            }
            Self::Ttl { key } => (Op::Ttl, 0, 0, key, none),
            Self::MultiSet { pairs } => (Op::MultiSet, 0, 0, none, pairs.0),
            Self::Append { key, value } => (Op::Append, 0, 0, key, value),
            Self::SetRange { key, offset, value } => (Op::SetRange, 0, offset as i64, key, value),
            Self::GetRange { key, start, end } => {
                (Op::GetRange, 0, pack_range(start, end), key, none)
            }
            Self::SetBit { key, offset, bit } => {
                (Op::SetBit, bit as u8, i64::from(offset), key, none)
            }
            Self::GetBit { key, offset } => (Op::GetBit, 0, i64::from(offset), key, none),
            Self::StrLen { key } => (Op::StrLen, 0, 0, key, none),
            Self::GetDel { key } => (Op::GetDel, 0, 0, key, none),
            Self::GetEx { key, at_ms: Some(at_ms) } => (Op::GetEx, ON, at_ms as i64, key, none),
            Self::GetEx { key, at_ms: None } => (Op::GetEx, 0, 0, key, none),
            Self::Count => (Op::Count, 0, 0, none, none),
            Self::Flush => (Op::Flush, 0, 0, none, none),
        };
        let header = RequestHeader {
            op: op as u8,
            flags,
            form: 0,
            reserved: 0,
            key_bytes: (key.len() as u32).into(),
            value_bytes: (value.len() as u32).into(),
            id: id.into(),
            argument: argument.into(),
        };
        (header, key, value)
    }

    /// Appends the encoded command to `out`.
    pub fn encode_into(&self, id: u32, out: &mut Vec<u8>) {
        let (header, key, value) = self.encode(id);
        out.reserve(size_of_val(&header) + key.len() + value.len());
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }

    /// The command that `bytes` encode, and its id. The error is the status
    /// to reply with, and the id if there was one.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, u32), (Status, u32)> {
        let Ok((header, rest)) = RequestHeader::ref_from_prefix(bytes) else {
            return Err((Status::Malformed, 0));
        };
        let id = header.id.get();
        let malformed = (Status::Malformed, id);
        let key_bytes = header.key_bytes.get() as usize;
        let value_bytes = header.value_bytes.get() as usize;
        let (key, rest) = rest.split_at_checked(key_bytes).ok_or(malformed)?;
        let (value, rest) = rest.split_at_checked(value_bytes).ok_or(malformed)?;
        let op = Op::from_number(header.op).ok_or(malformed)?;
        if !rest.is_empty() {
            return Err(malformed);
        }
        let brings_value = matches!(op, Op::Set | Op::Append | Op::SetRange);
        if key.len() > MAX_KEY_BYTES || (brings_value && value.len() > MAX_VALUE_BYTES) {
            return Err((Status::TooLarge, id));
        }
        // Nothing is carried that the operation does not use: every command
        // has one encoding, and the log replays to the same bytes.
        let argument = header.argument.get();
        let flags_used = match op {
            Op::Set => 0x1f,
            Op::Expire => 0xff,
            Op::SetBit | Op::GetEx => ON,
            _ => 0,
        };
        let uses_argument = match op {
            Op::Incr | Op::Expire | Op::SetRange | Op::GetRange | Op::SetBit | Op::GetBit => true,
            Op::Set => header.flags >> 2 & 3 == 2,
            Op::GetEx => header.flags == ON,
            _ => false,
        };
        let stray = header.reserved != 0
            || header.form != 0
            || header.flags & !flags_used != 0
            || (!uses_argument && argument != 0)
            || (!brings_value && op != Op::MultiSet && !value.is_empty())
            || (matches!(op, Op::MultiSet | Op::Count | Op::Flush) && !key.is_empty());
        if stray {
            return Err(malformed);
        }
        let command = match op {
            Op::Get => Self::Get { key },
            Op::Set => Self::Set {
                key,
                value,
                condition: match header.flags & 3 {
                    0 => Condition::Always,
                    1 => Condition::IfAbsent,
                    2 => Condition::IfPresent,
                    _ => return Err(malformed),
                },
                expiry: match header.flags >> 2 & 3 {
                    0 => Expiry::Never,
                    1 => Expiry::Keep,
                    2 => Expiry::At(argument as u64),
                    _ => return Err(malformed),
                },
                get: header.flags & SET_GET != 0,
            },
            Op::Del => Self::Del { key },
            Op::Exists => Self::Exists { key },
            Op::Incr => Self::Incr { key, by: argument },
            Op::Expire => Self::Expire {
                key,
                at_ms: argument as u64,
                condition: match header.flags {
                    0 => ExpireCondition::Always,
                    1 => ExpireCondition::IfNone,
                    2 => ExpireCondition::IfSome,
                    3 => ExpireCondition::IfLater,
                    4 => ExpireCondition::IfEarlier,
                    5 => ExpireCondition::IfSomeEarlier,
                    _ => return Err(malformed),
                },
            },
            Op::Ttl => Self::Ttl { key },
            Op::MultiSet => Self::MultiSet { pairs: Pairs::parse(value).ok_or(malformed)? },
            Op::Append => Self::Append { key, value },
            Op::SetRange => Self::SetRange { key, offset: argument as u64, value },
            Op::GetRange => {
                Self::GetRange { key, start: argument as i32, end: (argument >> 32) as i32 }
            }
            Op::SetBit => {
                let offset = u32::try_from(argument).map_err(|_| malformed)?;
                Self::SetBit { key, offset, bit: header.flags == ON }
            }
            Op::GetBit => {
                Self::GetBit { key, offset: u32::try_from(argument).map_err(|_| malformed)? }
            }
            Op::StrLen => Self::StrLen { key },
            Op::GetDel => Self::GetDel { key },
            Op::GetEx => {
                Self::GetEx { key, at_ms: (header.flags == ON).then_some(argument as u64) }
            }
            Op::Count => Self::Count,
            Op::Flush => Self::Flush,
        };
        Ok((command, id))
    }
}

/// A shard's answer. The value borrows from the shard's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    /// How it went.
    pub status: Status,
    /// The operation's number.
    pub number: i64,
    /// The value, or the old one for SET with GET.
    pub value: Option<&'a [u8]>,
    /// Where the record can be read from now on (HydraDB 4.2.2, H19).
    pub pointer: RemotePointer,
    /// Term of the lease on it, in ms.
    pub lease_ms: u32,
}

impl Reply<'_> {
    /// A reply with nothing but a status.
    pub const fn status(status: Status) -> Self {
        Self { status, number: 0, value: None, pointer: RemotePointer::NONE, lease_ms: 0 }
    }

    /// A reply with a number.
    pub const fn number(number: i64) -> Self {
        Self { status: Status::Ok, number, value: None, pointer: RemotePointer::NONE, lease_ms: 0 }
    }
}
