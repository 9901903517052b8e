//! Which members a range has: their places in the order of the set.

use super::held::SortedSets;
use super::large::Large;
use crate::elements::{Held, packed_of};
use crate::store::Store;
use remora_arena::Journal;
use remora_index::btree::{Direction, Range};
use remora_layout::packed_scores;
use remora_layout::sorted::keys_of_scores;
use remora_protocol::sorted::{SortedRange, SortedRead};
use std::cmp::Ordering;
use std::ops::Bound;

/// Members side by side: from a place to before another one, counted from the lowest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Span {
    pub from: u64,
    pub to: u64,
}

impl Span {
    pub const fn count(self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    /// What is left of it behind `offset` members, so many at most, in the direction of a read.
    fn cut(self, direction: Direction, offset: u64, limit: u64) -> Self {
        let count = self.count().saturating_sub(offset).min(limit);
        match direction {
            Direction::Ascending => {
                let from = self.from.saturating_add(offset);
                Self { from, to: from.saturating_add(count) }
            }
            Direction::Descending => {
                let to = self.to.saturating_sub(offset);
                Self { from: to.saturating_sub(count), to }
            }
        }
    }
}

/// The direction of a read.
pub(super) const fn direction_of(is_reverse: bool) -> Direction {
    if is_reverse { Direction::Descending } else { Direction::Ascending }
}

/// The places of a range of indexes, as Redis has them, in a set of so many members.
fn span_of_indexes(members: u64, (start, stop): (i64, i64), direction: Direction) -> Span {
    let at = |index: i64| match u64::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => members.checked_sub(index.unsigned_abs()),
    };
    let Some(stop) = at(stop) else { return Span::default() };
    let (start, stop) = (at(start).unwrap_or(0), stop.min(members.saturating_sub(1)));
    if start > stop || start >= members {
        return Span::default();
    }
    match direction {
        Direction::Ascending => Span { from: start, to: stop + 1 },
        Direction::Descending => Span { from: members - 1 - stop, to: members - start },
    }
}

/// Whether a member comes before a range, lies in it, or comes behind it.
fn place_in(range: &SortedRange<'_>, (score, member): (f64, &[u8])) -> Ordering {
    match *range {
        SortedRange::Index { .. } => Ordering::Equal,
        SortedRange::Score { from, to } => place_between(score, from, to),
        SortedRange::Lex { from, to } => place_between(member, from, to),
    }
}

/// The same of a value and two bounds.
fn place_between<T: PartialOrd>(value: T, from: Bound<T>, to: Bound<T>) -> Ordering {
    let is_before = match from {
        Bound::Unbounded => false,
        Bound::Included(from) => value < from,
        Bound::Excluded(from) => value <= from,
    };
    let is_behind = match to {
        Bound::Unbounded => false,
        Bound::Included(to) => value > to,
        Bound::Excluded(to) => value >= to,
    };
    match (is_before, is_behind) {
        (true, _) => Ordering::Less,
        (_, true) => Ordering::Greater,
        _ => Ordering::Equal,
    }
}

/// The places of a range in a packed set.
fn span_of_packed(packed: &[u8], range: &SortedRange<'_>, direction: Direction) -> Span {
    use Ordering::{Equal, Greater, Less};
    let members = packed_scores::count(packed) as u64;
    if let SortedRange::Index { start, stop } = *range {
        return span_of_indexes(members, (start, stop), direction);
    }
    let (mut from, mut to) = (0, 0);
    for (score, member) in packed_scores::items(packed) {
        match place_in(range, (score, member)) {
            Less => from += 1,
            Equal => to += 1,
            Greater => {}
        }
    }
    Span { from, to: from + to }
}

/// Half-open bounds: keys from the first one on, before the second one; without one to the end.
pub(super) type KeyBounds = [Option<Vec<u8>>; 2];

impl Large {
    /// The keys of a range of scores or members; none of a range of indexes.
    pub(super) fn bounds<J: Journal>(
        &self,
        store: &Store<J>,
        range: &SortedRange<'_>,
    ) -> Option<KeyBounds> {
        match *range {
            SortedRange::Index { .. } => None,
            SortedRange::Score { from, to } => {
                Some(keys_of_scores(from, to).map(|key| key.map(|key| key.to_vec())))
            }
            SortedRange::Lex { from, to } => {
                // Such ranges are for sets whose members all have the same score.
                let first = self.tree.select(&store.owner, 0)?;
                let score = self.with_member(store, &first.0, |score, _| score);
                let key = |bound: Bound<&[u8]>, is_end: bool| {
                    let (member, is_behind) = match bound {
                        Bound::Unbounded => return None,
                        Bound::Included(member) => (member, is_end),
                        Bound::Excluded(member) => (member, !is_end),
                    };
                    let mut key = self.key(store, (score, member));
                    if is_behind {
                        // The next greater key.
                        key.push(0);
                    }
                    Some(key)
                };
                Some([key(from, false), key(to, true)])
            }
        }
    }

    /// The places of a range.
    pub(super) fn span<J: Journal>(
        &self,
        store: &Store<J>,
        range: &SortedRange<'_>,
        direction: Direction,
    ) -> Span {
        let members = self.tree.keys();
        if let SortedRange::Index { start, stop } = *range {
            return span_of_indexes(members, (start, stop), direction);
        }
        let Some([from, to]) = self.bounds(store, range) else { return Span::default() };
        let rank = |key: &Vec<u8>| self.tree.rank(&store.owner, key);
        let (from, to) = (from.as_ref().map_or(0, rank), to.as_ref().map_or(members, rank));
        Span { from, to: to.max(from) }
    }

    /// Hands over the members of a span, in this direction.
    pub(super) fn each_of<J: Journal>(
        &self,
        store: &Store<J>,
        span: Span,
        direction: Direction,
        mut each: impl FnMut(f64, &[u8]),
    ) {
        let first = match direction {
            _ if span.count() == 0 => return,
            Direction::Ascending => span.from,
            Direction::Descending => span.to - 1,
        };
        let Some((first, _)) = self.tree.select(&store.owner, first) else { return };
        let (from, to) = match direction {
            Direction::Ascending => (Bound::Included(&first[..]), Bound::Unbounded),
            Direction::Descending => (Bound::Unbounded, Bound::Included(&first[..])),
        };
        let range = Range { from, to, direction, limit: span.count() as usize };
        self.tree.range(&store.owner, range, |key, _| self.with_member(store, key, &mut each));
    }
}

impl SortedSets {
    /// The places of a range in a set.
    pub(super) fn span<J: Journal>(
        &self,
        store: &Store<J>,
        held: Held,
        range: &SortedRange<'_>,
        direction: Direction,
    ) -> Span {
        match held {
            Held::Whole(found) => span_of_packed(packed_of(store, found), range, direction),
            Held::Parts(root) => self.large_of(root).span(store, range, direction),
        }
    }

    /// The places of what a read is to give.
    pub(super) fn span_of_read<J: Journal>(
        &self,
        store: &Store<J>,
        held: Held,
        read: &SortedRead<'_>,
    ) -> Span {
        let direction = direction_of(read.is_reverse);
        let span = self.span(store, held, &read.range, direction);
        span.cut(direction, read.offset, read.limit)
    }

    /// Hands over the members of a span, in this direction.
    pub(super) fn each_of<J: Journal>(
        &self,
        store: &Store<J>,
        held: Held,
        (span, direction): (Span, Direction),
        mut each: impl FnMut(f64, &[u8]),
    ) {
        match held {
            Held::Whole(found) => {
                let packed = packed_of(store, found);
                let (skip, count) = (span.from as usize, span.count() as usize);
                let some = packed_scores::items(packed).skip(skip).take(count);
                match direction {
                    Direction::Ascending => some.for_each(|(score, member)| each(score, member)),
                    Direction::Descending => {
                        let all: Vec<(f64, &[u8])> = some.collect();
                        all.into_iter().rev().for_each(|(score, member)| each(score, member));
                    }
                }
            }
            Held::Parts(root) => self.large_of(root).each_of(store, span, direction, each),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_count_from_the_end_and_are_cut_as_redis_cuts_them() {
        let span = |start, stop, direction| {
            let Span { from, to } = span_of_indexes(5, (start, stop), direction);
            (from, to)
        };
        use Direction::{Ascending, Descending};
        assert_eq!(span(0, -1, Ascending), (0, 5));
        assert_eq!(span(-100, 1, Ascending), (0, 2));
        assert_eq!(span(-2, 100, Ascending), (3, 5));
        assert_eq!(span(3, 1, Ascending), (0, 0));
        assert_eq!(span(5, 9, Ascending), (0, 0));
        assert_eq!(span(0, -6, Ascending), (0, 0));
        assert_eq!(span(0, 1, Descending), (3, 5));
        assert_eq!(span(-1, -1, Descending), (0, 1));
        assert_eq!(span_of_indexes(0, (0, -1), Ascending), Span::default());
    }

    #[test]
    fn an_offset_and_a_limit_leave_a_part_in_the_order_of_the_read() {
        let span = Span { from: 10, to: 20 };
        let cut = |direction, offset, limit| {
            let Span { from, to } = span.cut(direction, offset, limit);
            (from, to)
        };
        assert_eq!(cut(Direction::Ascending, 2, 3), (12, 15));
        assert_eq!(cut(Direction::Descending, 2, 3), (15, 18));
        assert_eq!(span.cut(Direction::Ascending, 11, u64::MAX).count(), 0);
        assert_eq!(span.cut(Direction::Descending, u64::MAX, u64::MAX).count(), 0);
        assert_eq!(span.cut(Direction::Ascending, 0, 0).count(), 0);
    }
}
