//! The operations on hashes, and their encoding.

use crate::items::Items;
use crate::message::Status;
use crate::types::elements::{list, list_with_links, name, scan_options};
use crate::types::operation::{Encoded, Operation};
use remora_layout::kind::Kind;

pub use crate::types::elements::Told;

/// One request about a hash. A key that holds something else is `WrongType`; one
/// that holds nothing is as an empty hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashCommand<'a> {
    /// Sets fields; `number` counts those that are new. One change: either all
    /// are set or, out of memory, none is.
    Set {
        /// Names and values, in turn; a value may be a link.
        pairs: Items<'a>,
    },
    /// Sets one field if it is not there; `number` is 1 if it was not.
    SetAbsent {
        /// Its name and its value.
        pair: Items<'a>,
    },
    /// Removes fields; `number` counts those that were there. A hash without
    /// fields is no more.
    Remove {
        /// The names.
        names: Items<'a>,
    },
    /// Removes those of these fields that are links; `number` counts them. The log has a
    /// [`HashCommand::Remove`] of them.
    RemoveLinks {
        /// The names.
        names: Items<'a>,
    },
    /// The hint of a link has led nowhere: the owner looks for its target, and mends it if it knows better.
    /// `number` is 1 if it did. The content is as before, and the log has nothing of it.
    Mend {
        /// The name of the link's field.
        name: &'a [u8],
    },
    /// The value of a field; `NotFound` without it. The pointer is to the record
    /// that holds it, and `number` is the word of the root record on which that
    /// depends ([`remora_layout::part::root_word`]), 0 if on none.
    Get {
        /// The name.
        name: &'a [u8],
    },
    /// The values of fields, as [`Items`]; `number` counts them. One look at the hash; the answer
    /// may take several replies.
    GetMany {
        /// The names.
        names: Items<'a>,
    },
    /// `number` is that of the fields.
    Length,
    /// `number` is 1 if the field exists.
    Exists {
        /// The name.
        name: &'a [u8],
    },
    /// `number` is that of the bytes of a field's value.
    ValueLength {
        /// The name.
        name: &'a [u8],
    },
    /// Adds to the integer that a field holds (0 if it is not there); `number` is
    /// the sum.
    Increment {
        /// The name.
        name: &'a [u8],
        /// The summand.
        by: i64,
    },
    /// Adds to the number that a field holds (0 if it is not there); the value is
    /// the sum as text.
    IncrementFloat {
        /// The name, and the text of the summand.
        name_and_by: Items<'a>,
    },
    /// All fields, as [`Items`], as they were when the read began; `number` counts
    /// the items. Answered in turns.
    All {
        /// The parts of each field in the reply.
        told: Told,
    },
    /// Random fields, as [`Items`]; `number` counts the items. Answered in turns.
    Random {
        /// Most different fields; below 0: this many, with repetitions allowed.
        count: i64,
        /// The parts of each field in the reply: names, or both.
        told: Told,
    },
    /// Some fields, as [`Items`]; `number` is the cursor with which to continue, 0 at the end. A
    /// field that exists all the time is returned at least once.
    Scan {
        /// Where to continue; 0 to begin.
        cursor: u64,
        /// Names to match, if not all; and how many fields to look at, as eight bytes.
        options: Items<'a>,
    },
}

/// Numbers of the operations.
mod op {
    pub const SET: u8 = 0;
    pub const SET_ABSENT: u8 = 1;
    pub const REMOVE: u8 = 2;
    pub const GET: u8 = 3;
    pub const GET_MANY: u8 = 4;
    pub const LENGTH: u8 = 5;
    pub const EXISTS: u8 = 6;
    pub const VALUE_LENGTH: u8 = 7;
    pub const INCREMENT: u8 = 8;
    pub const INCREMENT_FLOAT: u8 = 9;
    pub const ALL: u8 = 10;
    pub const RANDOM: u8 = 11;
    pub const SCAN: u8 = 12;
    pub const REMOVE_LINKS: u8 = 13;
    pub const MEND: u8 = 14;
}

fn one_pair(value: &[u8]) -> Result<Items<'_>, Status> {
    let items = list(value, 2)?;
    if items.iter().count() == 2 { Ok(items) } else { Err(Status::Malformed) }
}

impl<'a> Operation<'a> for HashCommand<'a> {
    const KIND: Kind = Kind::HASH;
    const COUNT: u8 = op::MEND + 1;

    fn decode(from: Encoded<'a>) -> Result<Self, Status> {
        let Encoded { op, flags, argument, value } = from;
        let uses_argument = matches!(op, op::INCREMENT | op::RANDOM | op::SCAN);
        let uses_flags = matches!(op, op::ALL | op::RANDOM);
        let uses_value = !matches!(op, op::LENGTH | op::ALL | op::RANDOM);
        if (argument != 0 && !uses_argument)
            || (flags != 0 && !uses_flags)
            || (!value.is_empty() && !uses_value)
        {
            return Err(Status::Malformed);
        }
        let told = || Told::of(flags).ok_or(Status::Malformed);
        Ok(match op {
            op::SET => Self::Set { pairs: list_with_links(value)? },
            op::SET_ABSENT => Self::SetAbsent { pair: one_pair(value)? },
            op::REMOVE => Self::Remove { names: list(value, 1)? },
            op::REMOVE_LINKS => Self::RemoveLinks { names: list(value, 1)? },
            op::MEND => Self::Mend { name: name(value)? },
            op::GET => Self::Get { name: name(value)? },
            op::GET_MANY => Self::GetMany { names: list(value, 1)? },
            op::LENGTH => Self::Length,
            op::EXISTS => Self::Exists { name: name(value)? },
            op::VALUE_LENGTH => Self::ValueLength { name: name(value)? },
            op::INCREMENT => Self::Increment { name: name(value)?, by: argument },
            op::INCREMENT_FLOAT => Self::IncrementFloat { name_and_by: one_pair(value)? },
            op::ALL => Self::All { told: told()? },
            op::RANDOM => Self::Random { count: argument, told: told()? },
            op::SCAN => Self::Scan { cursor: argument as u64, options: scan_options(value)? },
            _ => return Err(Status::Malformed),
        })
    }

    #[inline]
    fn encode<'s>(&'s self, _scratch: &'s mut Vec<u8>) -> Encoded<'s> {
        let none: &[u8] = &[];
        let (op, flags, argument, value) = match *self {
            Self::Set { pairs } => (op::SET, 0, 0, pairs.bytes()),
            Self::SetAbsent { pair } => (op::SET_ABSENT, 0, 0, pair.bytes()),
            Self::Remove { names } => (op::REMOVE, 0, 0, names.bytes()),
            Self::RemoveLinks { names } => (op::REMOVE_LINKS, 0, 0, names.bytes()),
            Self::Mend { name } => (op::MEND, 0, 0, name),
            Self::Get { name } => (op::GET, 0, 0, name),
            Self::GetMany { names } => (op::GET_MANY, 0, 0, names.bytes()),
            Self::Length => (op::LENGTH, 0, 0, none),
            Self::Exists { name } => (op::EXISTS, 0, 0, name),
            Self::ValueLength { name } => (op::VALUE_LENGTH, 0, 0, name),
            Self::Increment { name, by } => (op::INCREMENT, 0, by, name),
            Self::IncrementFloat { name_and_by } => {
                (op::INCREMENT_FLOAT, 0, 0, name_and_by.bytes())
            }
            Self::All { told } => (op::ALL, told as u8, 0, none),
            Self::Random { count, told } => (op::RANDOM, told as u8, count, none),
            Self::Scan { cursor, options } => (op::SCAN, 0, cursor as i64, options.bytes()),
        };
        Encoded { op, flags, argument, value }
    }

    fn command_name(&self) -> &'static str {
        match *self {
            Self::Set { pairs } if pairs.has_links() => "link.set",
            Self::Set { .. } => "hset",
            Self::SetAbsent { .. } => "hsetnx",
            Self::Remove { .. } => "hdel",
            Self::RemoveLinks { .. } => "link.del",
            Self::Mend { .. } => "link.chase",
            Self::Get { .. } => "hget",
            Self::GetMany { .. } => "hmget",
            Self::Length => "hlen",
            Self::Exists { .. } => "hexists",
            Self::ValueLength { .. } => "hstrlen",
            Self::Increment { .. } => "hincrby",
            Self::IncrementFloat { .. } => "hincrbyfloat",
            Self::All { told: Told::Names } => "hkeys",
            Self::All { told: Told::Values } => "hvals",
            Self::All { told: Told::Both } => "hgetall",
            Self::Random { .. } => "hrandfield",
            Self::Scan { .. } => "hscan",
        }
    }

    fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Set { .. }
                | Self::SetAbsent { .. }
                | Self::Remove { .. }
                | Self::RemoveLinks { .. }
                | Self::Increment { .. }
                | Self::IncrementFloat { .. }
        )
    }

    fn is_long(&self) -> bool {
        matches!(self, Self::GetMany { .. } | Self::All { .. } | Self::Random { .. })
    }
}
