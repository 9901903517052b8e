//! The one encoding of commands, for rings, in-process queues and the
//! operation log.

use crate::command::{Command, Condition, ExpireCondition, Expiry};
use crate::message::{Op, RequestHeader, Status, form};
use crate::moved::{Dumped, LoadStep};
use crate::pairs::Pairs;
use crate::types::{Encoded, Request};
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_KEY_BYTES, MAX_PLAN_BYTES, MAX_VALUE_BYTES};
use zerocopy::{FromBytes, IntoBytes};

// Flags of SET: bits 0-1 condition, bits 2-3 expiry, bit 4 GET.
const SET_GET: u8 = 1 << 4;
// Flag of SETBIT: the bit; of GETEX: there is an expiry; of DIGEST: a key; of a dump:
// it holds the key; of RANDOMKEY: there is a place; of SYNCED: the disk begins.
const ON: u8 = 1;

/// The position of the form in an encoded command.
const FORM_BYTE: usize = std::mem::offset_of!(RequestHeader, form);

// The bounds of a GETRANGE fit 32 bits.
const _: () = assert!(MAX_VALUE_BYTES < i32::MAX as usize);

/// The argument of a GETRANGE: start in the low half, end in the high one.
const fn pack_range(start: i32, end: i32) -> i64 {
    (start as u32 as u64 | (end as u32 as u64) << 32) as i64
}

fn header(
    of: u8,
    op: u8,
    flags: u8,
    argument: i64,
    (key, value): (&[u8], &[u8]),
    id: u32,
) -> RequestHeader {
    RequestHeader {
        op,
        flags,
        form: 0,
        of,
        key_bytes: (key.len() as u32).into(),
        value_bytes: (value.len() as u32).into(),
        id: id.into(),
        argument: argument.into(),
    }
}

const fn encoded_expiry(expiry: Expiry) -> (u8, i64) {
    match expiry {
        Expiry::Never => (0, 0),
        Expiry::Keep => (1, 0),
        Expiry::At(at_ms) => (2, at_ms as i64),
    }
}

impl<'a> Command<'a> {
    /// The header of the encoded command, for database 0; key and value follow it. Another
    /// database goes into its form ([`form::within`]). `scratch` is overwritten if the
    /// value has to be made.
    #[inline]
    pub fn encode<'s>(
        &'s self,
        id: u32,
        scratch: &'s mut Vec<u8>,
    ) -> (RequestHeader, &'s [u8], &'s [u8]) {
        let none: &[u8] = &[];
        if let Self::Of { key, request } = self {
            let Encoded { op, flags, argument, value } = request.encode(scratch);
            return (header(request.kind().0, op, flags, argument, (key, value), id), key, value);
        }
        let (op, flags, argument, key, value) = match *self {
            Self::Get { key } => (Op::Get, 0, 0, key, none),
            Self::Set { key, value, condition, expiry, get } => {
                let (expiry_flag, at) = encoded_expiry(expiry);
                let flags = condition as u8 | expiry_flag << 2 | if get { SET_GET } else { 0 };
                (Op::Set, flags, at, key, value)
            }
            Self::Del { key } => (Op::Del, 0, 0, key, none),
            Self::Exists { key } => (Op::Exists, 0, 0, key, none),
            Self::Touch { key } => (Op::Touch, 0, 0, key, none),
            Self::Incr { key, by } => (Op::Incr, 0, by, key, none),
            Self::Expire { key, at_ms, condition } => {
                (Op::Expire, condition as u8, at_ms as i64, key, none)
            }
            Self::Ttl { key } => (Op::Ttl, 0, 0, key, none),
            Self::Type { key } => (Op::Type, 0, 0, key, none),
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
            Self::Digest { key: Some(key) } => (Op::Digest, ON, 0, key, none),
            Self::Digest { key: None } => (Op::Digest, 0, 0, none, none),
            Self::Count => (Op::Count, 0, 0, none, none),
            Self::Flush => (Op::Flush, 0, 0, none, none),
            Self::FlushAll => (Op::FlushAll, 0, 0, none, none),
            Self::Persist { key } => (Op::Persist, 0, 0, key, none),
            Self::ExpireTime { key } => (Op::ExpireTime, 0, 0, key, none),
            Self::Encoding { key } => (Op::Encoding, 0, 0, key, none),
            Self::Elements { key, start, stop } => {
                *scratch = stop.to_le_bytes().to_vec();
                (Op::Elements, 0, start, key, &scratch[..])
            }
            Self::Scan { place, count } => {
                (Op::Scan, 0, (u64::from(place) | u64::from(count) << 32) as i64, none, none)
            }
            Self::RandomKey { random, place } => {
                let argument = u64::from(random) | u64::from(place.unwrap_or(0)) << 32;
                (Op::RandomKey, place.is_some() as u8, argument as i64, none, none)
            }
            Self::Synced { until, begins } => (Op::Synced, begins as u8, until as i64, none, none),
            Self::Replicated { until, replicas } => {
                (Op::Replicated, replicas, until as i64, none, none)
            }
            Self::Topology { from } => (Op::Topology, 0, i64::from(from), none, none),
            Self::Plan { plan } => (Op::Plan, 0, 0, none, plan),
            Self::Transfer { .. }
            | Self::Dump { .. }
            | Self::Restore { .. }
            | Self::DelDumped { .. }
            | Self::DumpPart { .. }
            | Self::EndDump { .. }
            | Self::Load { .. } => self.encode_move(),
            Self::Of { .. } => unreachable!("encoded above"),
        };
        (header(0, op as u8, flags, argument, (key, value), id), key, value)
    }

    /// Operation, flags, argument, key and value of commands that give an object to another key.
    fn encode_move(&self) -> (Op, u8, i64, &[u8], &[u8]) {
        let none: &[u8] = &[];
        match *self {
            Self::Transfer { key, to, database, replaces, keeps } => {
                let flags = replaces as u8 | (keeps as u8) << 1;
                (Op::Transfer, flags, database.number().into(), key, to)
            }
            Self::Dump { key, holds } => (Op::Dump, holds as u8, 0, key, none),
            Self::Restore { key, dumped, replaces } => {
                (Op::Restore, replaces as u8, 0, key, dumped.bytes())
            }
            Self::DelDumped { key, dump } => (Op::DelDumped, 0, dump as i64, key, none),
            Self::DumpPart { key, dump } => (Op::DumpPart, 0, dump as i64, key, none),
            Self::EndDump { key, dump } => (Op::EndDump, 0, dump as i64, key, none),
            Self::Load { key, load, step } => {
                let (flags, value) = step.encode();
                (Op::Load, flags, load as i64, key, value)
            }
            _ => unreachable!("it moves nothing"),
        }
    }

    /// Appends the encoded command, for database 0, to `out`.
    pub fn encode_into(&self, id: u32, out: &mut Vec<u8>) {
        self.encode_within(Database::ZERO, id, out);
    }

    /// Appends the encoded command, for a database, to `out`.
    pub fn encode_within(&self, database: Database, id: u32, out: &mut Vec<u8>) {
        let mut scratch = Vec::new();
        let (mut header, key, value) = self.encode(id, &mut scratch);
        header.form = form::within(database);
        out.reserve(size_of_val(&header) + key.len() + value.len());
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }

    /// The command for database 0 that `bytes` encode, and its id; for another
    /// database they are malformed.
    ///
    /// # Errors
    /// The status to reply with, and the id if there was one.
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, u32), (Status, u32)> {
        match Self::decode_within(bytes)? {
            (Database::ZERO, command, id) => Ok((command, id)),
            (_, _, id) => Err((Status::Malformed, id)),
        }
    }

    /// The bytes of the first of several encoded commands, one behind the other, and those of the others;
    /// `None` if they end before it does.
    pub fn split_first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let (header, _) = RequestHeader::ref_from_prefix(bytes).ok()?;
        let parts = header.key_bytes.get() as usize + header.value_bytes.get() as usize;
        bytes.split_at_checked(size_of::<RequestHeader>() + parts)
    }

    /// The database, the command and the id that `bytes` encode.
    ///
    /// # Errors
    /// The status to reply with, and the id if there was one.
    #[inline]
    pub fn decode_within(bytes: &'a [u8]) -> Result<(Database, Self, u32), (Status, u32)> {
        let (command, id) = Self::decode_any(bytes)?;
        // The header is there: it was decoded.
        Ok((form::database(bytes[FORM_BYTE]), command, id))
    }

    /// As [`Command::decode_within`], for any database.
    #[inline]
    fn decode_any(bytes: &'a [u8]) -> Result<(Self, u32), (Status, u32)> {
        let Ok((header, rest)) = RequestHeader::ref_from_prefix(bytes) else {
            return Err((Status::Malformed, 0));
        };
        let id = header.id.get();
        let malformed = (Status::Malformed, id);
        let key_bytes = header.key_bytes.get() as usize;
        let value_bytes = header.value_bytes.get() as usize;
        let (key, rest) = rest.split_at_checked(key_bytes).ok_or(malformed)?;
        let (value, rest) = rest.split_at_checked(value_bytes).ok_or(malformed)?;
        if !rest.is_empty() {
            return Err(malformed);
        }
        if header.of != 0 {
            if key.len() > MAX_KEY_BYTES {
                return Err((Status::TooLarge, id));
            }
            let (op, flags, argument) = (header.op, header.flags, header.argument.get());
            let from = Encoded { op, flags, argument, value };
            let request = Request::decode(Kind(header.of), from);
            let request = request.map_err(|status| (status, id))?;
            return if header.form & form::MASK == 0 {
                Ok((Self::Of { key, request }, id))
            } else {
                Err(malformed)
            };
        }
        let op = Op::from_number(header.op).ok_or(malformed)?;
        if key.len() > MAX_KEY_BYTES {
            return Err((Status::TooLarge, id));
        }
        // The most frequent ones, as they mostly are.
        let is_plain = header.form & form::MASK == 0 && header.flags == 0 && header.argument == 0;
        match op {
            Op::Get if is_plain && value.is_empty() => Ok((Self::Get { key }, id)),
            Op::Set if is_plain && value.len() <= MAX_VALUE_BYTES => {
                let (condition, expiry) = (Condition::Always, Expiry::Never);
                Ok((Self::Set { key, value, condition, expiry, get: false }, id))
            }
            _ => match Self::decode_op(op, header, key, value) {
                Ok(command) => Ok((command, id)),
                Err(status) => Err((status, id)),
            },
        }
    }

    /// The command, if its key is not too long.
    #[inline(never)]
    fn decode_op(
        op: Op,
        header: &RequestHeader,
        key: &'a [u8],
        value: &'a [u8],
    ) -> Result<Self, Status> {
        check_parts(op, header, key, value)?;
        let (malformed, argument) = (Status::Malformed, header.argument.get());
        let command = match op {
            Op::Get => Self::Get { key },
            Op::Set => Self::decode_set(header, key, value)?,
            Op::Del => Self::Del { key },
            Op::Exists => Self::Exists { key },
            Op::Touch => Self::Touch { key },
            Op::Incr => Self::Incr { key, by: argument },
            Op::Expire => Self::Expire {
                key,
                at_ms: argument as u64,
                condition: expire_condition(header.flags)?,
            },
            Op::Ttl => Self::Ttl { key },
            Op::Type => Self::Type { key },
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
            Op::Digest => Self::Digest { key: (header.flags == ON).then_some(key) },
            Op::Count => Self::Count,
            Op::Flush => Self::Flush,
            Op::FlushAll => Self::FlushAll,
            Op::Persist => Self::Persist { key },
            Op::ExpireTime => Self::ExpireTime { key },
            Op::Encoding => Self::Encoding { key },
            Op::Elements => {
                let stop = value.try_into().map_err(|_| malformed)?;
                Self::Elements { key, start: argument, stop: i64::from_le_bytes(stop) }
            }
            Op::Scan => Self::Scan { place: argument as u32, count: (argument >> 32) as u32 },
            Op::RandomKey => {
                let place = Some((argument >> 32) as u32).filter(|_| header.flags == ON);
                if place.is_none() && argument >> 32 != 0 {
                    return Err(malformed);
                }
                Self::RandomKey { random: argument as u32, place }
            }
            Op::Synced => Self::Synced { until: argument as u64, begins: header.flags == ON },
            Op::Replicated => Self::Replicated { until: argument as u64, replicas: header.flags },
            Op::Topology => {
                Self::Topology { from: u32::try_from(argument).map_err(|_| malformed)? }
            }
            Op::Plan => Self::Plan { plan: value },
            Op::Transfer
            | Op::Dump
            | Op::Restore
            | Op::DelDumped
            | Op::DumpPart
            | Op::EndDump
            | Op::Load => Self::decode_move(op, header, key, value)?,
        };
        Ok(command)
    }

    fn decode_set(header: &RequestHeader, key: &'a [u8], value: &'a [u8]) -> Result<Self, Status> {
        let condition = match header.flags & 3 {
            0 => Condition::Always,
            1 => Condition::IfAbsent,
            2 => Condition::IfPresent,
            _ => return Err(Status::Malformed),
        };
        let expiry = match header.flags >> 2 & 3 {
            0 => Expiry::Never,
            1 => Expiry::Keep,
            2 => Expiry::At(header.argument.get() as u64),
            _ => return Err(Status::Malformed),
        };
        Ok(Self::Set { key, value, condition, expiry, get: header.flags & SET_GET != 0 })
    }

    /// Commands that give an object to another key.
    fn decode_move(
        op: Op,
        header: &RequestHeader,
        key: &'a [u8],
        value: &'a [u8],
    ) -> Result<Self, Status> {
        let (malformed, argument) = (Status::Malformed, header.argument.get());
        let command = match op {
            Op::Transfer => {
                if value.len() > MAX_KEY_BYTES {
                    return Err(Status::TooLarge);
                }
                let database = usize::try_from(argument).ok().and_then(Database::new);
                let database = database.ok_or(malformed)?;
                let (replaces, keeps) = (header.flags & 1 != 0, header.flags & 2 != 0);
                Self::Transfer { key, to: value, database, replaces, keeps }
            }
            Op::Dump => Self::Dump { key, holds: header.flags == ON },
            Op::Restore => {
                let dumped = Dumped::parse(value).filter(|dumped| !dumped.kind.is_root());
                let dumped = dumped.ok_or(malformed)?;
                Self::Restore { key, dumped, replaces: header.flags == ON }
            }
            Op::DelDumped => Self::DelDumped { key, dump: argument as u64 },
            Op::DumpPart => Self::DumpPart { key, dump: argument as u64 },
            Op::EndDump => Self::EndDump { key, dump: argument as u64 },
            Op::Load => {
                let step = LoadStep::decode(header.flags, value)?;
                if step.is_of_snapshot() && argument != 0 {
                    return Err(Status::Malformed);
                }
                Self::Load { key, load: argument as u64, step }
            }
            _ => unreachable!("it moves nothing"),
        };
        Ok(command)
    }
}

/// Whether a message carries nothing that its operation does not use: every command has
/// one encoding, and the log replays to the same bytes.
fn check_parts(op: Op, header: &RequestHeader, key: &[u8], value: &[u8]) -> Result<(), Status> {
    let brings_value =
        matches!(op, Op::Set | Op::Append | Op::SetRange | Op::Restore | Op::Transfer);
    if brings_value && value.len() > MAX_VALUE_BYTES {
        return Err(Status::TooLarge);
    }
    if op == Op::Plan && value.len() > MAX_PLAN_BYTES {
        return Err(Status::TooLarge);
    }
    let flags_used = match op {
        Op::Set => 0x1f,
        Op::Expire | Op::Load | Op::Replicated => 0xff,
        Op::SetBit
        | Op::GetEx
        | Op::Restore
        | Op::Digest
        | Op::Dump
        | Op::RandomKey
        | Op::Synced => ON,
        Op::Transfer => 3,
        _ => 0,
    };
    let uses_argument = match op {
        Op::Incr | Op::Expire | Op::SetRange | Op::GetRange | Op::SetBit | Op::GetBit => true,
        Op::Scan | Op::RandomKey | Op::Transfer | Op::DelDumped => true,
        Op::DumpPart | Op::EndDump | Op::Load | Op::Synced | Op::Replicated => true,
        Op::Topology | Op::Elements => true,
        Op::Set => header.flags >> 2 & 3 == 2,
        Op::GetEx => header.flags == ON,
        _ => false,
    };
    let stray = header.form & form::MASK != 0
        || header.flags & !flags_used != 0
        || (!uses_argument && header.argument.get() != 0)
        || (!brings_value
            && !matches!(op, Op::MultiSet | Op::Load | Op::Elements | Op::Plan)
            && !value.is_empty())
        || (op.has_no_key() && !key.is_empty());
    let is_keyless = op == Op::Digest && header.flags == 0;
    if stray || (is_keyless && !key.is_empty()) { Err(Status::Malformed) } else { Ok(()) }
}

fn expire_condition(flags: u8) -> Result<ExpireCondition, Status> {
    Ok(match flags {
        0 => ExpireCondition::Always,
        1 => ExpireCondition::IfNone,
        2 => ExpireCondition::IfSome,
        3 => ExpireCondition::IfLater,
        4 => ExpireCondition::IfEarlier,
        5 => ExpireCondition::IfSomeEarlier,
        _ => return Err(Status::Malformed),
    })
}
