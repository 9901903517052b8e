//! The one encoding of commands, for rings, in-process queues and the
//! operation log.

use super::{Command, Condition, ExpireCondition, Expiry, GeoCommand, Pairs, TreeRequest};
use remora_layout::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use remora_layout::message::{Op, RequestHeader, Status};
use zerocopy::{FromBytes, IntoBytes};

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
            Self::Tree { name, request: TreeRequest { op, flags, argument, value } } => {
                (op, flags, argument, name, value)
            }
            Self::Geo { key, command } => {
                let (op, flags, value) = command.encode();
                (op, flags, 0, key, value)
            }
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
        if op.is_tree() {
            if header.reserved != 0 || header.form != 0 {
                return Err(malformed);
            }
            let argument = header.argument.get();
            let request = TreeRequest::check(op, header.flags, argument, value);
            let request = request.map_err(|status| (status, id))?;
            return Ok((Self::Tree { name: key, request }, id));
        }
        if op.is_geo() {
            if header.reserved != 0 || header.form != 0 || header.argument.get() != 0 {
                return Err(malformed);
            }
            let command = GeoCommand::decode(op, header.flags, value);
            return Ok((Self::Geo { key, command: command.map_err(|status| (status, id))? }, id));
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
            // Those of trees are decoded above.
            _ => return Err(malformed),
        };
        Ok((command, id))
    }
}
