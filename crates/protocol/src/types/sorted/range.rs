//! Parts of a sorted set: by indexes, by scores or by members.

use crate::items::Items;
use crate::message::Status;
use remora_layout::limits::MAX_SORTED_MEMBER_BYTES;
use std::ops::Bound;

/// A part of a sorted set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SortedRange<'a> {
    /// By indexes, 0 that of the first member; below 0 from the end: -1 is that of the last one. A
    /// read from the greatest member counts in its own direction.
    Index {
        /// The first one.
        start: i64,
        /// The last one.
        stop: i64,
    },
    /// By scores, from the lowest to the greatest in each direction of the read. None is NaN.
    Score {
        /// The lowest score.
        from: Bound<f64>,
        /// The greatest one.
        to: Bound<f64>,
    },
    /// By members, as bytes: meant for sets whose members have one score.
    Lex {
        /// The lowest member.
        from: Bound<&'a [u8]>,
        /// The greatest one.
        to: Bound<&'a [u8]>,
    },
}

/// What is read of a part of a sorted set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SortedRead<'a> {
    /// The part.
    pub range: SortedRange<'a>,
    /// From the greatest member.
    pub is_reverse: bool,
    /// Members of the range that are left out first.
    pub offset: u64,
    /// Members behind them, at most; `u64::MAX` for all.
    pub limit: u64,
}

// Flags: the form of the range, the bounds that are excluded, and the direction.
const INDEX: u8 = 0;
const SCORE: u8 = 1;
const LEX: u8 = 2;
const FROM_EXCLUDED: u8 = 4;
const TO_EXCLUDED: u8 = 8;
const REVERSE: u8 = 16;

/// Appends a bound, an item or none; the flag if it is excluded.
fn push(out: &mut Vec<u8>, bound: Bound<&[u8]>, excluded: u8) -> u8 {
    match bound {
        Bound::Unbounded => Items::push_none(out),
        Bound::Included(item) | Bound::Excluded(item) => Items::push(out, item),
    }
    if matches!(bound, Bound::Excluded(_)) { excluded } else { 0 }
}

/// A bound of an encoded list, and the list behind it.
fn take(list: &[u8], is_excluded: bool) -> Result<(Bound<&[u8]>, &[u8]), Status> {
    let (item, rest) = Items::split_field(list).ok_or(Status::Malformed)?;
    let bound = match item {
        None if is_excluded => return Err(Status::Malformed),
        None => Bound::Unbounded,
        Some(item) if item.is_link => return Err(Status::Malformed),
        Some(item) if is_excluded => Bound::Excluded(item.value),
        Some(item) => Bound::Included(item.value),
    };
    Ok((bound, rest))
}

/// The number of a bound.
fn score(bound: Bound<&[u8]>) -> Result<Bound<f64>, Status> {
    let number = |bytes: &[u8]| {
        let number = f64::from_le_bytes(bytes.try_into().ok()?);
        Some(number).filter(|number| !number.is_nan())
    };
    Ok(match bound {
        Bound::Included(bytes) => Bound::Included(number(bytes).ok_or(Status::Malformed)?),
        Bound::Excluded(bytes) => Bound::Excluded(number(bytes).ok_or(Status::Malformed)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

fn index(bound: Bound<&[u8]>) -> Result<i64, Status> {
    let Bound::Included(bytes) = bound else { return Err(Status::Malformed) };
    bytes.try_into().map(i64::from_le_bytes).map_err(|_| Status::Malformed)
}

fn member(bound: Bound<&[u8]>) -> Result<Bound<&[u8]>, Status> {
    match bound {
        Bound::Included(member) | Bound::Excluded(member)
            if member.len() > MAX_SORTED_MEMBER_BYTES =>
        {
            Err(Status::TooLarge)
        }
        bound => Ok(bound),
    }
}

impl<'a> SortedRange<'a> {
    /// All members.
    pub const ALL: Self = Self::Index { start: 0, stop: -1 };

    /// The flags; the bounds are appended to `out`.
    pub(super) fn encode(self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::Index { start, stop } => {
                Items::push(out, &start.to_le_bytes());
                Items::push(out, &stop.to_le_bytes());
                INDEX
            }
            Self::Score { from, to } => {
                let [from, to] = [from, to].map(|bound| bound.map(f64::to_le_bytes));
                let from = push(out, from.as_ref().map(<[u8; 8]>::as_slice), FROM_EXCLUDED);
                SCORE | from | push(out, to.as_ref().map(<[u8; 8]>::as_slice), TO_EXCLUDED)
            }
            Self::Lex { from, to } => {
                let from = push(out, from, FROM_EXCLUDED);
                LEX | from | push(out, to, TO_EXCLUDED)
            }
        }
    }

    /// The range of these flags and bounds, and the bytes behind the bounds.
    ///
    /// # Errors
    /// It is none, or a member is too long.
    fn take(flags: u8, value: &'a [u8]) -> Result<(Self, &'a [u8]), Status> {
        let (from, rest) = take(value, flags & FROM_EXCLUDED != 0)?;
        let (to, rest) = take(rest, flags & TO_EXCLUDED != 0)?;
        let range = match flags & !(FROM_EXCLUDED | TO_EXCLUDED) {
            INDEX => Self::Index { start: index(from)?, stop: index(to)? },
            SCORE => Self::Score { from: score(from)?, to: score(to)? },
            LEX => Self::Lex { from: member(from)?, to: member(to)? },
            _ => return Err(Status::Malformed),
        };
        Ok((range, rest))
    }

    /// The range of these flags and bounds.
    ///
    /// # Errors
    /// It is none, or a member is too long.
    pub(super) fn decode(flags: u8, value: &'a [u8]) -> Result<Self, Status> {
        let (range, rest) = Self::take(flags, value)?;
        if rest.is_empty() { Ok(range) } else { Err(Status::Malformed) }
    }
}

impl<'a> SortedRead<'a> {
    /// All of a range, from the lowest member.
    pub const fn of(range: SortedRange<'a>) -> Self {
        Self { range, is_reverse: false, offset: 0, limit: u64::MAX }
    }

    /// The flags; bounds and limit are appended to `out`.
    pub(super) fn encode(self, out: &mut Vec<u8>) -> u8 {
        let flags = self.range.encode(out);
        out.extend_from_slice(&self.limit.to_le_bytes());
        flags | if self.is_reverse { REVERSE } else { 0 }
    }

    /// The read of these flags, offset, bounds and limit.
    ///
    /// # Errors
    /// It is none, or a member is too long.
    pub(super) fn decode(flags: u8, offset: i64, value: &'a [u8]) -> Result<Self, Status> {
        let (range, limit) = SortedRange::take(flags & !REVERSE, value)?;
        let limit = limit.try_into().map(u64::from_le_bytes).map_err(|_| Status::Malformed)?;
        let is_reverse = flags & REVERSE != 0;
        Ok(Self { range, is_reverse, offset: offset as u64, limit })
    }
}
