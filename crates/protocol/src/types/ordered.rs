//! The operations on ordered trees, and their encoding.
//!
//! Keys stand in operations and replies as users write them: a tree of integers has them in decimal
//! there. The shard knows the form of its tree; a client need not. Nodes that are handed out have the
//! keys of the tree.

mod held;

pub use held::{OrderedHold, inner_nodes_of, node_infos_of, push_inner_node, push_node_info};

use crate::items::Items;
use crate::message::Status;
use crate::types::operation::{Encoded, Operation};
use remora_layout::btree::KeyForm;
use remora_layout::kind::Kind;
use remora_layout::limits::{
    MAX_FAN_OUT, MAX_LISTED_NODES, MAX_ORDERED_KEY_BYTES, MAX_ORDERED_LONG_BYTES,
    MAX_ORDERED_VALUE_BYTES, MIN_FAN_OUT, ORDERED_FAN_OUT, ORDERED_VALUE_BYTES,
};
use remora_layout::packed::Field;
use std::ops::Bound;

/// The settings of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderedSettings {
    /// What the keys are.
    pub keys: KeyForm,
    /// Entries that a node may have.
    pub fan_out: usize,
    /// Longest key, in bytes; of integers 8.
    pub key_bytes: usize,
    /// Longest value that lies in a leaf, in bytes; longer ones lie in records.
    pub value_bytes: usize,
}

/// Bytes of encoded settings.
const SETTINGS_BYTES: usize = 8;
/// Bytes of an integer as a key.
const INTEGER_BYTES: usize = 8;

impl OrderedSettings {
    /// Those of a tree that is made without any.
    pub const fn of(keys: KeyForm) -> Self {
        let key_bytes = match keys {
            KeyForm::Integers => INTEGER_BYTES,
            KeyForm::Bytes => MAX_ORDERED_KEY_BYTES,
        };
        Self { keys, fan_out: ORDERED_FAN_OUT, key_bytes, value_bytes: ORDERED_VALUE_BYTES }
    }

    /// Appends them.
    pub fn write(self, to: &mut Vec<u8>) {
        to.extend_from_slice(&[self.keys as u8, 0]);
        for number in [self.fan_out, self.key_bytes, self.value_bytes] {
            to.extend_from_slice(&(number as u16).to_le_bytes());
        }
    }

    /// Encoded settings.
    ///
    /// # Errors
    /// They are none, or beyond the limits.
    pub fn parse(bytes: &[u8]) -> Result<Self, Status> {
        let bytes: &[u8; SETTINGS_BYTES] = bytes.try_into().map_err(|_| Status::Malformed)?;
        let keys = match bytes[..2] {
            [0, 0] => KeyForm::Integers,
            [1, 0] => KeyForm::Bytes,
            _ => return Err(Status::Malformed),
        };
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]).into();
        let of = Self { keys, fan_out: number(2), key_bytes: number(4), value_bytes: number(6) };
        of.checked()
    }

    /// The same, within the limits.
    ///
    /// # Errors
    /// They are not.
    pub fn checked(self) -> Result<Self, Status> {
        let keys = match self.keys {
            KeyForm::Integers => self.key_bytes == INTEGER_BYTES,
            KeyForm::Bytes => (1..=MAX_ORDERED_KEY_BYTES).contains(&self.key_bytes),
        };
        let is_sound = keys
            && (MIN_FAN_OUT..=MAX_FAN_OUT).contains(&self.fan_out)
            && self.value_bytes <= MAX_ORDERED_VALUE_BYTES;
        if is_sound { Ok(self) } else { Err(Status::BadCapacity) }
    }
}

/// A part of the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderedRange<'a> {
    /// The smallest key.
    pub from: Bound<&'a [u8]>,
    /// The greatest key.
    pub to: Bound<&'a [u8]>,
}

impl<'a> OrderedRange<'a> {
    /// All keys.
    pub const ALL: Self = Self { from: Bound::Unbounded, to: Bound::Unbounded };

    fn encode(self, flags: u8, scratch: &mut Vec<u8>) -> u8 {
        scratch.clear();
        let mut encode = |bound, excluded| match bound {
            Bound::Unbounded => {
                Items::push_none(scratch);
                0
            }
            Bound::Included(key) => {
                Items::push(scratch, key);
                0
            }
            Bound::Excluded(key) => {
                Items::push(scratch, key);
                excluded
            }
        };
        flags | encode(self.from, FROM_EXCLUDED) | encode(self.to, TO_EXCLUDED)
    }

    fn decode(flags: u8, value: &'a [u8]) -> Result<Self, Status> {
        let mut items = Items::parse(value).ok_or(Status::Malformed)?.fields();
        let mut bound = |excluded| match items.next() {
            None => Err(Status::Malformed),
            Some(None) if flags & excluded != 0 => Err(Status::Malformed),
            Some(None) => Ok(Bound::Unbounded),
            Some(Some(key)) if key.is_link => Err(Status::Malformed),
            Some(Some(key)) if flags & excluded != 0 => Ok(Bound::Excluded(checked(key.value)?)),
            Some(Some(key)) => Ok(Bound::Included(checked(key.value)?)),
        };
        let range = Self { from: bound(FROM_EXCLUDED)?, to: bound(TO_EXCLUDED)? };
        if items.next().is_some() { Err(Status::Malformed) } else { Ok(range) }
    }
}

/// One request about an ordered tree. A key that holds something else is `WrongType`; one that
/// holds nothing is as an empty tree. A key of a tree of integers that is none is `NotAnInteger`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum OrderedCommand<'a> {
    /// Makes an empty tree; `NotDone` if there is one.
    Create(OrderedSettings),
    /// Gives a key a value; `number` is 1 if the key is new. A tree that is not there is made, of
    /// byte strings.
    Set {
        /// The key.
        key: &'a [u8],
        /// The value, which may be a link.
        value: Field<'a>,
    },
    /// The value of a key; `number` is 1 if it is a link.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Removes a key; `number` is 1 if it was there. A tree without keys stays.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Keys and values of a range, in order, as [`Items`]; `number` counts both. Answered in turns.
    Range {
        /// Where.
        range: OrderedRange<'a>,
        /// From the greatest key.
        is_reverse: bool,
        /// Keys at most.
        limit: u64,
    },
    /// `number` is that of the keys of a range.
    Count {
        /// Where.
        range: OrderedRange<'a>,
    },
    /// `number` is that of the keys before this one; `NotFound` if it is not there.
    Rank {
        /// The key.
        key: &'a [u8],
    },
    /// The key with so many keys before it, and its value, as [`Items`]; below 0 from the end: -1 is the
    /// greatest key.
    Select {
        /// The number.
        rank: i64,
    },
    /// What the tree is: [`remora_layout::btree::OrderedInfo`].
    Info,
    /// Its levels, from the root down: [`remora_layout::btree::LevelInfo`] of each.
    Levels,
    /// The nodes of a level, 0 that of the leaves, in the order of their keys: [`node_infos_of`].
    Nodes {
        /// The level.
        level: u8,
        /// Nodes at most, up to [`MAX_LISTED_NODES`].
        limit: u64,
    },
    /// Hands out inner nodes, [`inner_nodes_of`], and holds the addresses of their children; `number`
    /// is that of the nodes. `TooLarge` if more would be held than may be, of this tree or of so many trees, `NotDone` if the epoch does
    /// not hold the address at which they are to begin.
    Hold(OrderedHold),
    /// Ends an epoch; `number` is 1 if it held addresses.
    Release {
        /// The epoch.
        epoch: u64,
    },
}

/// Numbers of the operations.
mod op {
    pub const CREATE: u8 = 0;
    pub const SET: u8 = 1;
    pub const GET: u8 = 2;
    pub const DELETE: u8 = 3;
    pub const RANGE: u8 = 4;
    pub const COUNT: u8 = 5;
    pub const RANK: u8 = 6;
    pub const SELECT: u8 = 7;
    pub const INFO: u8 = 8;
    pub const LEVELS: u8 = 9;
    pub const NODES: u8 = 10;
    pub const HOLD: u8 = 11;
    pub const RELEASE: u8 = 12;
}

/// Flags of ranges.
const FROM_EXCLUDED: u8 = 1;
const TO_EXCLUDED: u8 = 2;
const REVERSE: u8 = 4;
/// The flags of a level: it is below 64.
const LEVELS: u8 = 0x3f;

/// A key, or an integer in decimal, is no longer than keys are.
fn checked(key: &[u8]) -> Result<&[u8], Status> {
    if key.len() <= MAX_ORDERED_KEY_BYTES { Ok(key) } else { Err(Status::TooLarge) }
}

fn pair(value: &[u8]) -> Result<OrderedCommand<'_>, Status> {
    let items = Items::parse(value).ok_or(Status::Malformed)?;
    let mut all = items.fields();
    match (all.next(), all.next(), all.next()) {
        (Some(Some(Field { value: key, is_link: false })), Some(Some(value)), None) => {
            if value.value.len() > MAX_ORDERED_LONG_BYTES {
                return Err(Status::TooLarge);
            }
            Ok(OrderedCommand::Set { key: checked(key)?, value })
        }
        _ => Err(Status::Malformed),
    }
}

impl<'a> Operation<'a> for OrderedCommand<'a> {
    const KIND: Kind = Kind::ORDERED;
    const COUNT: u8 = op::RELEASE + 1;

    fn decode(from: Encoded<'a>) -> Result<Self, Status> {
        let Encoded { op, flags, argument, value } = from;
        let known = match op {
            op::RANGE => FROM_EXCLUDED | TO_EXCLUDED | REVERSE,
            op::COUNT => FROM_EXCLUDED | TO_EXCLUDED,
            // The level.
            op::NODES => LEVELS,
            _ => 0,
        };
        let uses_argument = matches!(op, op::RANGE | op::SELECT | op::NODES | op::RELEASE);
        let uses_value =
            !matches!(op, op::SELECT | op::INFO | op::LEVELS | op::NODES | op::RELEASE);
        if flags & !known != 0
            || (argument != 0 && !uses_argument)
            || (!value.is_empty() && !uses_value)
        {
            return Err(Status::Malformed);
        }
        Ok(match op {
            op::CREATE => Self::Create(OrderedSettings::parse(value)?),
            op::SET => pair(value)?,
            op::GET => Self::Get { key: checked(value)? },
            op::DELETE => Self::Delete { key: checked(value)? },
            op::RANGE => Self::Range {
                range: OrderedRange::decode(flags, value)?,
                is_reverse: flags & REVERSE != 0,
                limit: u64::try_from(argument).map_err(|_| Status::Malformed)?,
            },
            op::COUNT => Self::Count { range: OrderedRange::decode(flags, value)? },
            op::RANK => Self::Rank { key: checked(value)? },
            op::SELECT => Self::Select { rank: argument },
            op::INFO => Self::Info,
            op::LEVELS => Self::Levels,
            op::NODES => {
                let limit = u64::try_from(argument).map_err(|_| Status::Malformed)?;
                if limit > MAX_LISTED_NODES as u64 {
                    return Err(Status::TooLarge);
                }
                Self::Nodes { level: flags, limit }
            }
            op::HOLD => Self::Hold(OrderedHold::parse(value)?),
            op::RELEASE => Self::Release { epoch: argument as u64 },
            _ => return Err(Status::Malformed),
        })
    }

    fn encode<'s>(&'s self, scratch: &'s mut Vec<u8>) -> Encoded<'s> {
        let none: &[u8] = &[];
        let (op, flags, argument, value) = match *self {
            Self::Create(settings) => {
                scratch.clear();
                settings.write(scratch);
                (op::CREATE, 0, 0, &scratch[..])
            }
            Self::Set { key, value } => {
                scratch.clear();
                Items::push(scratch, key);
                Items::push_field(scratch, value);
                (op::SET, 0, 0, &scratch[..])
            }
            Self::Get { key } => (op::GET, 0, 0, key),
            Self::Delete { key } => (op::DELETE, 0, 0, key),
            Self::Range { range, is_reverse, limit } => {
                let flags = range.encode(if is_reverse { REVERSE } else { 0 }, scratch);
                (op::RANGE, flags, i64::try_from(limit).unwrap_or(i64::MAX), &scratch[..])
            }
            Self::Count { range } => (op::COUNT, range.encode(0, scratch), 0, &scratch[..]),
            Self::Rank { key } => (op::RANK, 0, 0, key),
            Self::Select { rank } => (op::SELECT, 0, rank, none),
            Self::Info => (op::INFO, 0, 0, none),
            Self::Levels => (op::LEVELS, 0, 0, none),
            Self::Nodes { level, limit } => {
                (op::NODES, level & LEVELS, i64::try_from(limit).unwrap_or(i64::MAX), none)
            }
            Self::Hold(hold) => {
                scratch.clear();
                hold.write(scratch);
                (op::HOLD, 0, 0, &scratch[..])
            }
            Self::Release { epoch } => (op::RELEASE, 0, epoch as i64, none),
        };
        Encoded { op, flags, argument, value }
    }

    fn command_name(&self) -> &'static str {
        match *self {
            Self::Create(_) => "btree.create",
            Self::Set { .. } => "btree.set",
            Self::Get { .. } => "btree.get",
            Self::Delete { .. } => "btree.del",
            Self::Range { is_reverse: false, .. } => "btree.range",
            Self::Range { is_reverse: true, .. } => "btree.revrange",
            Self::Count { .. } => "btree.count",
            Self::Rank { .. } => "btree.rank",
            Self::Select { .. } => "btree.select",
            Self::Info => "btree.info",
            Self::Levels | Self::Nodes { .. } | Self::Hold(_) | Self::Release { .. } => {
                "btree.levels"
            }
        }
    }

    fn is_write(&self) -> bool {
        matches!(self, Self::Create(_) | Self::Set { .. } | Self::Delete { .. })
    }

    fn grows(&self) -> bool {
        matches!(self, Self::Create(_) | Self::Set { .. })
    }

    fn is_long(&self) -> bool {
        matches!(self, Self::Range { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_comes_back_and_nothing_else_does() {
        let value = Field { value: b"value", is_link: true };
        let range = OrderedRange { from: Bound::Excluded(b"a"), to: Bound::Included(b"") };
        let commands = [
            OrderedCommand::Create(OrderedSettings::of(KeyForm::Integers)),
            OrderedCommand::Create(OrderedSettings::of(KeyForm::Bytes)),
            OrderedCommand::Set { key: b"", value },
            OrderedCommand::Get { key: b"key" },
            OrderedCommand::Delete { key: b"key" },
            OrderedCommand::Range { range, is_reverse: true, limit: 7 },
            OrderedCommand::Range { range: OrderedRange::ALL, is_reverse: false, limit: 0 },
            OrderedCommand::Count { range },
            OrderedCommand::Rank { key: b"key" },
            OrderedCommand::Select { rank: -1 },
            OrderedCommand::Info,
            OrderedCommand::Levels,
            OrderedCommand::Nodes { level: 1, limit: 7 },
            OrderedCommand::Hold(OrderedHold {
                epoch: 7,
                for_ms: 10,
                levels: 2,
                most_bytes: 1 << 10,
                below: None,
            }),
            OrderedCommand::Release { epoch: u64::MAX },
        ];
        for command in commands {
            let mut scratch = Vec::new();
            let encoded = command.encode(&mut scratch);
            assert_eq!(OrderedCommand::decode(encoded), Ok(command));
            for flags in 0..=u8::MAX {
                if let Ok(other) = OrderedCommand::decode(Encoded { flags, ..encoded }) {
                    let mut scratch = Vec::new();
                    assert_eq!(other.encode(&mut scratch).flags, flags, "{command:?}");
                }
            }
        }
        let none = Encoded { op: op::RANGE, flags: FROM_EXCLUDED, argument: 1, value: b"" };
        assert_eq!(OrderedCommand::decode(none), Err(Status::Malformed));
        let long = vec![b'k'; MAX_ORDERED_KEY_BYTES + 1];
        let long = Encoded { op: op::GET, flags: 0, argument: 0, value: &long };
        assert_eq!(OrderedCommand::decode(long), Err(Status::TooLarge));
        assert_eq!(OrderedSettings::parse(&[1, 0, 3, 0, 9, 0, 9, 0]), Err(Status::BadCapacity));
        assert_eq!(OrderedSettings::parse(&[1, 0, 9]), Err(Status::Malformed));
    }
}
