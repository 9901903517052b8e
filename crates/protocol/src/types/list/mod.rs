//! The operations on lists, and their encoding.

use crate::items::Items;
use crate::message::Status;
use crate::types::operation::{Encoded, Operation};
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_COMMAND_ITEMS, MAX_KEY_BYTES, MAX_VALUE_BYTES};
use remora_layout::packed::Field;

/// One end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The first element's.
    Left = 0,
    /// The last element's.
    Right = 1,
}

/// One request about a list. A key that holds something else is `WrongType`; one that holds nothing
/// is as an empty list, and a list without elements is no more. An index below 0 counts from the
/// end: -1 is the last element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListCommand<'a> {
    /// Adds elements at one end, one after the other; `number` is the list's new length.
    Push {
        /// The end.
        side: Side,
        /// Only if the list is there.
        if_there: bool,
        /// The elements, which may be links.
        items: Items<'a>,
    },
    /// Removes elements from one end, and returns them as [`Items`]; `number` counts them.
    /// `NotFound` without a list.
    Pop {
        /// The end.
        side: Side,
        /// How many, at most.
        count: u64,
        /// Fewer, if they would be too long for one frame: no other reply of a change can be sent
        /// over rings. `TooLarge` if the first one is.
        fits_frame: bool,
    },
    /// Moves an element to the list of another key of this shard and database. The value is the
    /// element; `NotFound` without a list.
    Move {
        /// The end that it leaves.
        from: Side,
        /// The end of the other list that it is added at.
        to: Side,
        /// The other key, which may be the same.
        other: &'a [u8],
    },
    /// Lets the key hold a list of these elements, in the place of whatever it holds; without any it
    /// is removed. `number` counts them.
    Store {
        /// The elements.
        items: Items<'a>,
    },
    /// `number` is that of the elements.
    Length,
    /// The elements of a range, as [`Items`], as they were when the read began; `number` counts
    /// them. Answered in turns if it is long, in elements or in bytes.
    Range {
        /// Index of the first one.
        start: i64,
        /// Index of the last one.
        stop: i64,
    },
    /// An element; `NotFound` if there is none. `number` is 1 if it is a link.
    Index {
        /// Its index.
        index: i64,
    },
    /// Replaces an element. `NotFound` without a list, `NotDone` without the element.
    SetAt {
        /// Its index.
        index: i64,
        /// The new one.
        value: &'a [u8],
    },
    /// Adds an element beside the first one that equals a pivot; `number` is the list's new length,
    /// -1 without a pivot, 0 without a list. The pivot is looked for in turns.
    Insert {
        /// It comes behind the pivot, not before it.
        after: bool,
        /// The pivot, then the element.
        pivot_and_value: Items<'a>,
    },
    /// Removes elements that equal a value, as one change; `number` counts them. They are looked for in
    /// turns.
    Remove {
        /// How many, at most: the first ones, or the last ones if it is below 0; 0: all.
        count: i64,
        /// The value.
        value: &'a [u8],
    },
    /// Leaves the elements of a range.
    Trim {
        /// Index of the first one.
        start: i64,
        /// Index of the last one.
        stop: i64,
    },
    /// The indexes of elements that equal a value, as [`Items`] of decimal texts; `number` counts them.
    Position {
        /// What to look for.
        value: &'a [u8],
        /// How to look.
        how: Search,
    },
    /// Removes elements from the front, and of the others all behind the first `keep`: what the log
    /// has of POP and LTRIM. `NotDone` if nothing is removed.
    Keep {
        /// How many to remove from the front.
        from: u64,
        /// How many to leave, at most.
        keep: u64,
    },
    /// Adds an element before the one of this index: what the log has of LINSERT. `NotDone` if there
    /// is none.
    InsertAt {
        /// The index.
        index: u64,
        /// The element.
        value: &'a [u8],
    },
    /// The hint of the link of this index has led nowhere: the owner looks for its target, and mends it if
    /// it knows better, and if the element is still a link to that key. `number` is 1 if it did. The
    /// content is as before, and the log has nothing of it.
    Mend {
        /// The index, counted from 0.
        index: u64,
        /// The key that the link names.
        target: &'a [u8],
    },
    /// Removes the elements of these indexes, four bytes each, ascending: what the log has of LREM.
    /// `NotDone` if nothing is removed.
    RemoveAt {
        /// The indexes.
        indexes: &'a [u8],
    },
}

/// Appends what stands before the elements of a piece of a list's dump: the index of the first one.
pub fn begin_piece(index: u64, piece: &mut Vec<u8>) {
    piece.extend_from_slice(&index.to_le_bytes());
}

/// How LPOS looks for elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Search {
    /// The number of the first match that counts, from 1 on; below 0: from the end. Never 0.
    pub rank: i64,
    /// Matches to return, at most; 0: all.
    pub count: u64,
    /// Elements to compare, at most; 0: all.
    pub most: u64,
}

/// Bytes of an encoded [`Search`].
const SEARCH_BYTES: usize = 24;

/// The range of a list of this length that two indexes mean, as the first index and the number of
/// elements; none if it is empty.
pub fn range(length: u64, start: i64, stop: i64) -> Option<(u64, u64)> {
    let from_end = |index: i64| if index < 0 { index.saturating_add(length as i64) } else { index };
    let (start, stop) = (from_end(start).max(0) as u64, from_end(stop));
    let stop = u64::try_from(stop).ok()?.min(length.checked_sub(1)?);
    (start <= stop).then(|| (start, stop - start + 1))
}

/// Numbers of the operations.
mod op {
    pub const PUSH: u8 = 0;
    pub const POP: u8 = 1;
    pub const LENGTH: u8 = 2;
    pub const RANGE: u8 = 3;
    pub const INDEX: u8 = 4;
    pub const SET_AT: u8 = 5;
    pub const INSERT: u8 = 6;
    pub const REMOVE: u8 = 7;
    pub const TRIM: u8 = 8;
    pub const POSITION: u8 = 9;
    pub const KEEP: u8 = 10;
    pub const INSERT_AT: u8 = 11;
    pub const REMOVE_AT: u8 = 12;
    pub const MOVE: u8 = 13;
    pub const STORE: u8 = 14;
    pub const MEND: u8 = 15;
}

/// The flag of a push that needs a list.
const IF_THERE: u8 = 2;
/// The flag of a pop whose reply fits a frame.
const FITS_FRAME: u8 = 2;

fn side(flags: u8) -> Result<Side, Status> {
    match flags {
        0 => Ok(Side::Left),
        1 => Ok(Side::Right),
        _ => Err(Status::Malformed),
    }
}

/// A list of at least one element, none of which is a link.
fn elements(value: &[u8]) -> Result<Items<'_>, Status> {
    let items = elements_and_links(value)?;
    if items.has_links() { Err(Status::Malformed) } else { Ok(items) }
}

/// A list of at least one element. A link names a key.
fn elements_and_links(value: &[u8]) -> Result<Items<'_>, Status> {
    let items = Items::parse(value).filter(|_| !value.is_empty()).ok_or(Status::Malformed)?;
    for (count, item) in items.fields().enumerate() {
        let most = |is_link| if is_link { MAX_KEY_BYTES } else { MAX_VALUE_BYTES };
        match item {
            None => return Err(Status::Malformed),
            Some(Field { value, is_link }) if value.len() > most(is_link) => {
                return Err(Status::TooLarge);
            }
            Some(_) if count == MAX_COMMAND_ITEMS => return Err(Status::TooLarge),
            Some(_) => {}
        }
    }
    Ok(items)
}

fn element(value: &[u8]) -> Result<&[u8], Status> {
    if value.len() <= MAX_VALUE_BYTES { Ok(value) } else { Err(Status::TooLarge) }
}

fn word(value: &[u8]) -> Result<u64, Status> {
    value.try_into().map(u64::from_le_bytes).map_err(|_| Status::Malformed)
}

fn unsigned(argument: i64) -> Result<u64, Status> {
    argument.try_into().map_err(|_| Status::Malformed)
}

impl Search {
    fn to_bytes(self) -> [u8; SEARCH_BYTES] {
        let mut bytes = [0; SEARCH_BYTES];
        // There is no rank 0.
        let rank = if self.rank > 0 { self.rank - 1 } else { self.rank };
        for (at, word) in [rank as u64, self.count, self.most].into_iter().enumerate() {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8; SEARCH_BYTES]) -> Result<Self, Status> {
        let (words, _) = bytes.as_chunks::<8>();
        let [rank, count, most] = [0, 1, 2].map(|at| u64::from_le_bytes(words[at]));
        let rank = match rank as i64 {
            i64::MIN | i64::MAX => return Err(Status::Malformed),
            rank if rank >= 0 => rank + 1,
            rank => rank,
        };
        let is_bounded = i64::try_from(count).is_ok() && i64::try_from(most).is_ok();
        if is_bounded { Ok(Self { rank, count, most }) } else { Err(Status::Malformed) }
    }
}

impl<'a> ListCommand<'a> {
    /// The indexes of a [`ListCommand::RemoveAt`].
    pub fn indexes(bytes: &[u8]) -> impl ExactSizeIterator<Item = u32> + Clone + '_ {
        bytes.as_chunks::<4>().0.iter().map(|index| u32::from_le_bytes(*index))
    }

    fn remove_at(value: &'a [u8]) -> Result<Self, Status> {
        let is_whole = !value.is_empty() && value.len().is_multiple_of(4);
        if is_whole && Self::indexes(value).is_sorted_by(|a, b| a < b) {
            Ok(Self::RemoveAt { indexes: value })
        } else {
            Err(Status::Malformed)
        }
    }

    fn pivot_and_value(value: &'a [u8]) -> Result<Items<'a>, Status> {
        let items = elements(value)?;
        if items.iter().count() == 2 { Ok(items) } else { Err(Status::Malformed) }
    }

    fn position(value: &'a [u8]) -> Result<Self, Status> {
        let (how, value) = value.split_first_chunk().ok_or(Status::Malformed)?;
        Ok(Self::Position { value: element(value)?, how: Search::parse(how)? })
    }
}

impl<'a> Operation<'a> for ListCommand<'a> {
    const KIND: Kind = Kind::LIST;
    const COUNT: u8 = op::MEND + 1;

    fn decode(from: Encoded<'a>) -> Result<Self, Status> {
        let Encoded { op, flags, argument, value } = from;
        let uses_argument = !matches!(
            op,
            op::PUSH
                | op::LENGTH
                | op::INSERT
                | op::POSITION
                | op::REMOVE_AT
                | op::MOVE
                | op::STORE
        );
        let uses_flags = matches!(op, op::PUSH | op::POP | op::INSERT | op::MOVE);
        let uses_value = !matches!(op, op::POP | op::LENGTH | op::INDEX);
        if (argument != 0 && !uses_argument)
            || (flags != 0 && !uses_flags)
            || (!value.is_empty() && !uses_value)
        {
            return Err(Status::Malformed);
        }
        Ok(match op {
            op::PUSH => Self::Push {
                side: side(flags & !IF_THERE)?,
                if_there: flags & IF_THERE != 0,
                items: elements_and_links(value)?,
            },
            op::POP => Self::Pop {
                side: side(flags & !FITS_FRAME)?,
                count: unsigned(argument)?,
                fits_frame: flags & FITS_FRAME != 0,
            },
            op::STORE if value.is_empty() => {
                Self::Store { items: Items::parse(value).ok_or(Status::Malformed)? }
            }
            op::STORE => Self::Store { items: elements(value)? },
            op::LENGTH => Self::Length,
            op::RANGE => Self::Range { start: argument, stop: word(value)? as i64 },
            op::INDEX => Self::Index { index: argument },
            op::SET_AT => Self::SetAt { index: argument, value: element(value)? },
            op::INSERT => Self::Insert {
                after: side(flags)? == Side::Right,
                pivot_and_value: Self::pivot_and_value(value)?,
            },
            op::REMOVE => Self::Remove { count: argument, value: element(value)? },
            op::TRIM => Self::Trim { start: argument, stop: word(value)? as i64 },
            op::POSITION => Self::position(value)?,
            op::KEEP => Self::Keep { from: word(value)?, keep: unsigned(argument)? },
            op::INSERT_AT => Self::InsertAt { index: unsigned(argument)?, value: element(value)? },
            op::MEND if value.len() > MAX_KEY_BYTES => return Err(Status::TooLarge),
            op::MEND => Self::Mend { index: unsigned(argument)?, target: value },
            op::REMOVE_AT => Self::remove_at(value)?,
            op::MOVE if value.len() > MAX_KEY_BYTES => return Err(Status::TooLarge),
            op::MOVE => Self::Move { from: side(flags & 1)?, to: side(flags >> 1)?, other: value },
            _ => return Err(Status::Malformed),
        })
    }

    #[inline]
    fn encode<'s>(&'s self, scratch: &'s mut Vec<u8>) -> Encoded<'s> {
        let none: &[u8] = &[];
        let mut word = |word: u64| {
            scratch.clear();
            scratch.extend_from_slice(&word.to_le_bytes());
        };
        let (op, flags, argument, value) = match *self {
            Self::Push { side, if_there, items } => {
                let flags = side as u8 | if if_there { IF_THERE } else { 0 };
                (op::PUSH, flags, 0, items.bytes())
            }
            Self::Pop { side, count, fits_frame } => {
                let flags = side as u8 | if fits_frame { FITS_FRAME } else { 0 };
                (op::POP, flags, count as i64, none)
            }
            Self::Store { items } => (op::STORE, 0, 0, items.bytes()),
            Self::Length => (op::LENGTH, 0, 0, none),
            Self::Range { start, stop } => {
                word(stop as u64);
                (op::RANGE, 0, start, &scratch[..])
            }
            Self::Index { index } => (op::INDEX, 0, index, none),
            Self::SetAt { index, value } => (op::SET_AT, 0, index, value),
            Self::Insert { after, pivot_and_value } => {
                (op::INSERT, after as u8, 0, pivot_and_value.bytes())
            }
            Self::Remove { count, value } => (op::REMOVE, 0, count, value),
            Self::Trim { start, stop } => {
                word(stop as u64);
                (op::TRIM, 0, start, &scratch[..])
            }
            Self::Position { value, how } => {
                scratch.clear();
                scratch.extend_from_slice(&how.to_bytes());
                scratch.extend_from_slice(value);
                (op::POSITION, 0, 0, &scratch[..])
            }
            Self::Keep { from, keep } => {
                word(from);
                (op::KEEP, 0, keep as i64, &scratch[..])
            }
            Self::InsertAt { index, value } => (op::INSERT_AT, 0, index as i64, value),
            Self::Mend { index, target } => (op::MEND, 0, index as i64, target),
            Self::RemoveAt { indexes } => (op::REMOVE_AT, 0, 0, indexes),
            Self::Move { from, to, other } => (op::MOVE, from as u8 | (to as u8) << 1, 0, other),
        };
        Encoded { op, flags, argument, value }
    }

    fn command_name(&self) -> &'static str {
        match *self {
            Self::Push { items, .. } if items.has_links() => "link.push",
            Self::Push { side: Side::Left, if_there: false, .. } => "lpush",
            Self::Push { side: Side::Right, if_there: false, .. } => "rpush",
            Self::Push { side: Side::Left, if_there: true, .. } => "lpushx",
            Self::Push { side: Side::Right, if_there: true, .. } => "rpushx",
            Self::Pop { side: Side::Left, .. } => "lpop",
            Self::Pop { side: Side::Right, .. } => "rpop",
            Self::Move { .. } => "lmove",
            Self::Store { .. } => "sort",
            Self::Length => "llen",
            Self::Range { .. } => "lrange",
            Self::Index { .. } => "lindex",
            Self::SetAt { .. } => "lset",
            Self::Insert { .. } | Self::InsertAt { .. } => "linsert",
            Self::Remove { .. } | Self::RemoveAt { .. } => "lrem",
            Self::Trim { .. } | Self::Keep { .. } => "ltrim",
            Self::Position { .. } => "lpos",
            Self::Mend { .. } => "link.chase",
        }
    }

    fn is_write(&self) -> bool {
        !matches!(
            self,
            Self::Length
                | Self::Range { .. }
                | Self::Index { .. }
                | Self::Position { .. }
                | Self::Mend { .. }
        )
    }

    fn grows(&self) -> bool {
        matches!(
            self,
            Self::Push { .. }
                | Self::Insert { .. }
                | Self::InsertAt { .. }
                | Self::Move { .. }
                | Self::Store { .. }
        )
    }

    fn is_long(&self) -> bool {
        match *self {
            // A range that is known to be short is answered at once.
            Self::Range { start, stop } => {
                let span = stop.wrapping_sub(start);
                (start < 0) != (stop < 0) || span >= SHORT_RANGE
            }
            Self::Position { .. } | Self::Insert { .. } | Self::Remove { .. } => true,
            _ => false,
        }
    }

    fn has_other_keys(&self) -> bool {
        matches!(self, Self::Move { .. })
    }

    fn other_keys(&self) -> Vec<&'a [u8]> {
        match *self {
            Self::Move { other, .. } => vec![other],
            _ => Vec::new(),
        }
    }

    fn may_have_parts(&self) -> bool {
        self.is_long() || matches!(self, Self::Range { .. })
    }
}

/// Elements of a range that is answered at once, at most.
const SHORT_RANGE: i64 = 128;
