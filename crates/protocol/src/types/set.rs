//! The operations on sets, and their encoding; and how members are read from packed ones.

use crate::integer;
use crate::items::Items;
use crate::message::Status;
use crate::types::elements::{list, name, scan_options};
use crate::types::operation::{Encoded, Operation};
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_COMMAND_ITEMS, MAX_KEY_BYTES};
use remora_layout::packed_set::{self, Member};

pub use crate::types::elements::Combination;

/// Bytes of a member, at most: a part of a large set has a name of one more.
pub const MAX_SET_MEMBER_BYTES: usize = MAX_KEY_BYTES - 1;

/// The sets of [`SetCommand::Combine`] beside that of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Others<'a> {
    /// Whether there are members that were found before: the first item, a list of them. They
    /// stand before the key's set.
    pub has_before: bool,
    /// The keys of the other sets behind it.
    pub items: Items<'a>,
}

impl<'a> Others<'a> {
    /// What was found before, an encoded list of members.
    pub fn before(self) -> Option<&'a [u8]> {
        self.items.iter().next().flatten().filter(|_| self.has_before)
    }

    /// The keys of the other sets.
    pub fn keys(self) -> impl Iterator<Item = &'a [u8]> {
        self.items.iter().flatten().skip(self.has_before.into())
    }

    fn checked(self) -> Result<Self, Status> {
        if self.items.iter().any(|item| item.is_none()) {
            return Err(Status::Malformed);
        }
        match self.before() {
            None if self.has_before => return Err(Status::Malformed),
            Some(before)
                if Items::parse(before).is_none_or(|of| of.iter().any(|of| of.is_none())) =>
            {
                return Err(Status::Malformed);
            }
            _ => {}
        }
        for (at, key) in self.keys().enumerate() {
            if at == MAX_COMMAND_ITEMS || key.len() > MAX_KEY_BYTES {
                return Err(Status::TooLarge);
            }
        }
        Ok(self)
    }
}

/// One request about a set. A key that holds something else is `WrongType`; one
/// that holds nothing is as an empty set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetCommand<'a> {
    /// Adds members; `number` counts those that are new. One change: either all
    /// are added or, out of memory, none is.
    Add {
        /// The members.
        members: Items<'a>,
    },
    /// Removes members; `number` counts those that were there. A set without
    /// members is no more.
    Remove {
        /// The members.
        members: Items<'a>,
    },
    /// The key holds these members, and nothing else; without any it holds nothing. `number` counts
    /// them.
    Store {
        /// The members.
        members: Items<'a>,
    },
    /// Removes random members, and gives them as [`Items`]; `number` counts them. More than
    /// [`MAX_COMMAND_ITEMS`] go in turns: all members of the set as one change, fewer in pieces, each of
    /// them a change; it ends early where the reply would become too long.
    Pop {
        /// Most members.
        count: u64,
    },
    /// Moves a member to another set of the shard; `number` is 1 if it was there. Both are changed,
    /// or none.
    Move {
        /// The key of the other set, and the member.
        to_and_member: Items<'a>,
    },
    /// `number` is that of the members.
    Length,
    /// `NotFound` unless the member is there. The pointer is to the record
    /// that holds it, and `number` is the word of the root record on which that
    /// depends ([`remora_layout::part::root_word`]), 0 if on none. A small set, whose record holds all
    /// members, gives the pointer also with `NotFound`.
    Contains {
        /// The member.
        member: &'a [u8],
    },
    /// The value has a byte for each member: 1 if it is there, else 0; `number` counts them.
    ContainsMany {
        /// The members.
        members: Items<'a>,
    },
    /// All members, as [`Items`], as they were when the read began; `number` counts
    /// them. Answered in turns.
    All,
    /// Random members, as [`Items`]; `number` counts them. Answered in turns.
    Random {
        /// Most different members; below 0: this many, with repetitions allowed.
        count: i64,
    },
    /// Some members, as [`Items`]; `number` is the cursor with which to continue, 0 at the end. A
    /// member that is there all the time is returned at least once.
    Scan {
        /// Where to continue; 0 to begin.
        cursor: u64,
        /// Members to match, if not all; and how many to look at, as eight bytes.
        options: Items<'a>,
    },
    /// The members of several sets of the shard, combined, as [`Items`], as the sets were when the
    /// read began; `number` counts them. Answered in turns.
    Combine {
        /// How.
        how: Combination,
        /// The other sets.
        others: Others<'a>,
        /// Only their number is wanted, up to this many, if not 0.
        count_to: Option<u64>,
    },
}

/// Numbers of the operations.
mod op {
    pub const ADD: u8 = 0;
    pub const REMOVE: u8 = 1;
    pub const STORE: u8 = 2;
    pub const POP: u8 = 3;
    pub const LENGTH: u8 = 4;
    pub const CONTAINS: u8 = 5;
    pub const CONTAINS_MANY: u8 = 6;
    pub const ALL: u8 = 7;
    pub const RANDOM: u8 = 8;
    pub const SCAN: u8 = 9;
    pub const COMBINE: u8 = 10;
    pub const MOVE: u8 = 11;
}

/// Flags of [`op::COMBINE`] beside the combination.
const HAS_BEFORE: u8 = 4;
const COUNTS: u8 = 8;

/// A list of at least one member.
fn some(value: &[u8]) -> Result<Items<'_>, Status> {
    any(list(value, 1)?.bytes())
}

/// A list of members.
fn any(value: &[u8]) -> Result<Items<'_>, Status> {
    if value.is_empty() {
        return Items::parse(value).ok_or(Status::Malformed);
    }
    let items = list(value, 1)?;
    let is_short = items.iter().flatten().all(|of| of.len() <= MAX_SET_MEMBER_BYTES);
    if is_short { Ok(items) } else { Err(Status::TooLarge) }
}

/// A key and a member.
fn two(value: &[u8]) -> Result<Items<'_>, Status> {
    let items = list(value, 1)?;
    let mut all = items.iter().flatten();
    match (all.next(), all.next(), all.next()) {
        (Some(_), Some(member), None) if member.len() <= MAX_SET_MEMBER_BYTES => Ok(items),
        (Some(_), Some(_), None) => Err(Status::TooLarge),
        _ => Err(Status::Malformed),
    }
}

fn combine<'a>(flags: u8, argument: i64, value: &'a [u8]) -> Result<SetCommand<'a>, Status> {
    let how = Combination::of(flags & !(HAS_BEFORE | COUNTS)).ok_or(Status::Malformed)?;
    let items = Items::parse(value).ok_or(Status::Malformed)?;
    let others = Others { has_before: flags & HAS_BEFORE != 0, items }.checked()?;
    let count_to = (flags & COUNTS != 0).then_some(argument as u64);
    if argument < 0 || (count_to.is_none() && argument != 0) {
        return Err(Status::Malformed);
    }
    Ok(SetCommand::Combine { how, others, count_to })
}

impl<'a> Operation<'a> for SetCommand<'a> {
    const KIND: Kind = Kind::SET;
    const COUNT: u8 = op::MOVE + 1;

    fn decode(from: Encoded<'a>) -> Result<Self, Status> {
        let Encoded { op, flags, argument, value } = from;
        if op == op::COMBINE {
            return combine(flags, argument, value);
        }
        let uses_argument = matches!(op, op::POP | op::RANDOM | op::SCAN);
        let uses_value = !matches!(op, op::POP | op::LENGTH | op::ALL | op::RANDOM);
        if flags != 0 || (argument != 0 && !uses_argument) || (!value.is_empty() && !uses_value) {
            return Err(Status::Malformed);
        }
        Ok(match op {
            op::ADD => Self::Add { members: some(value)? },
            op::REMOVE => Self::Remove { members: list(value, 1)? },
            op::STORE => Self::Store { members: any(value)? },
            op::POP => Self::Pop { count: u64::try_from(argument).map_err(|_| Status::Malformed)? },
            op::MOVE => Self::Move { to_and_member: two(value)? },
            op::LENGTH => Self::Length,
            op::CONTAINS => Self::Contains { member: name(value)? },
            op::CONTAINS_MANY => Self::ContainsMany { members: list(value, 1)? },
            op::ALL => Self::All,
            op::RANDOM => Self::Random { count: argument },
            op::SCAN => Self::Scan { cursor: argument as u64, options: scan_options(value)? },
            _ => return Err(Status::Malformed),
        })
    }

    #[inline]
    fn encode<'s>(&'s self, _scratch: &'s mut Vec<u8>) -> Encoded<'s> {
        let none: &[u8] = &[];
        let (op, flags, argument, value) = match *self {
            Self::Add { members } => (op::ADD, 0, 0, members.bytes()),
            Self::Remove { members } => (op::REMOVE, 0, 0, members.bytes()),
            Self::Store { members } => (op::STORE, 0, 0, members.bytes()),
            Self::Pop { count } => (op::POP, 0, count as i64, none),
            Self::Move { to_and_member } => (op::MOVE, 0, 0, to_and_member.bytes()),
            Self::Length => (op::LENGTH, 0, 0, none),
            Self::Contains { member } => (op::CONTAINS, 0, 0, member),
            Self::ContainsMany { members } => (op::CONTAINS_MANY, 0, 0, members.bytes()),
            Self::All => (op::ALL, 0, 0, none),
            Self::Random { count } => (op::RANDOM, 0, count, none),
            Self::Scan { cursor, options } => (op::SCAN, 0, cursor as i64, options.bytes()),
            Self::Combine { how, others, count_to } => {
                let before = if others.has_before { HAS_BEFORE } else { 0 };
                let counts = if count_to.is_some() { COUNTS } else { 0 };
                let flags = how as u8 | before | counts;
                (op::COMBINE, flags, count_to.unwrap_or(0) as i64, others.items.bytes())
            }
        };
        Encoded { op, flags, argument, value }
    }

    fn command_name(&self) -> &'static str {
        match *self {
            Self::Add { .. } => "sadd",
            Self::Remove { .. } => "srem",
            Self::Store { .. } => "sunionstore",
            Self::Pop { .. } => "spop",
            Self::Move { .. } => "smove",
            Self::Length => "scard",
            Self::Contains { .. } => "sismember",
            Self::ContainsMany { .. } => "smismember",
            Self::All => "smembers",
            Self::Random { .. } => "srandmember",
            Self::Scan { .. } => "sscan",
            Self::Combine { how: Combination::Inter, count_to: Some(_), .. } => "sintercard",
            Self::Combine { how: Combination::Inter, .. } => "sinter",
            Self::Combine { how: Combination::Union, .. } => "sunion",
            Self::Combine { how: Combination::Diff, .. } => "sdiff",
        }
    }

    fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Add { .. }
                | Self::Remove { .. }
                | Self::Store { .. }
                | Self::Pop { .. }
                | Self::Move { .. }
        )
    }

    fn grows(&self) -> bool {
        matches!(self, Self::Add { .. } | Self::Move { .. } | Self::Store { .. })
    }

    fn is_long(&self) -> bool {
        match self {
            Self::All | Self::Random { .. } | Self::Combine { .. } => true,
            Self::Pop { count } => *count > MAX_COMMAND_ITEMS as u64,
            _ => false,
        }
    }

    fn has_other_keys(&self) -> bool {
        matches!(self, Self::Move { .. } | Self::Combine { .. })
    }

    fn other_keys(&self) -> Vec<&'a [u8]> {
        match *self {
            Self::Move { to_and_member } => to_and_member.iter().flatten().take(1).collect(),
            Self::Combine { others, .. } => others.keys().collect(),
            _ => Vec::new(),
        }
    }
}

/// Hands over the bytes of each of the members that a record packs.
#[inline]
pub fn each_member(packed: &[u8], mut each: impl FnMut(&[u8])) {
    for member in packed_set::members(packed) {
        match member {
            Member::Bytes(bytes) => each(bytes),
            Member::Integer(integer) => each(itoa::Buffer::new().format(integer).as_bytes()),
        }
    }
}

/// Whether a record packs this member.
#[inline]
pub fn packs(packed: &[u8], member: &[u8]) -> bool {
    packed_set::contains(packed, member, || integer::parse(member))
}
