//! Bounds of ranges, as Redis reads them.

use crate::error::CommandError;
use crate::numbers::strtod;
use remora_layout::limits::MAX_SORTED_MEMBER_BYTES;
use remora_protocol::integer;
use remora_protocol::sorted::SortedRange;
use std::ops::Bound;

/// A range without members.
const EMPTY: SortedRange<'static> = SortedRange::Index { start: 1, stop: 0 };

/// What bounds are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Index,
    Score,
    Lex,
}

/// The range between two words, the lower bound first.
pub(super) fn range<'a>(
    unit: Unit,
    (from, to): (&'a [u8], &'a [u8]),
) -> Result<SortedRange<'a>, CommandError> {
    match unit {
        Unit::Index => {
            let index = |word| integer::parse(word).ok_or(CommandError::NotAnInteger);
            Ok(SortedRange::Index { start: index(from)?, stop: index(to)? })
        }
        Unit::Score => {
            let bound = |word| score_bound(word).ok_or(CommandError::ScoreBound);
            let (from, to) = (bound(from)?, bound(to)?);
            let is_empty = is_empty(from, to, |a, b| a > b, |a, b| a == b);
            Ok(if is_empty { EMPTY } else { SortedRange::Score { from, to } })
        }
        Unit::Lex => {
            let bound = |word| lex_bound(word).ok_or(CommandError::LexBound);
            lex_range(bound(from)?, bound(to)?)
        }
    }
}

/// Whether nothing can lie between two bounds.
fn is_empty<T: Copy>(
    from: Bound<T>,
    to: Bound<T>,
    is_above: impl Fn(T, T) -> bool,
    is_equal: impl Fn(T, T) -> bool,
) -> bool {
    let of = |bound| match bound {
        Bound::Included(value) => Some((value, false)),
        Bound::Excluded(value) => Some((value, true)),
        Bound::Unbounded => None,
    };
    let (Some((from, is_from_excluded)), Some((to, is_to_excluded))) = (of(from), of(to)) else {
        return false;
    };
    is_above(from, to) || (is_equal(from, to) && (is_from_excluded || is_to_excluded))
}

/// A score, excluded behind a parenthesis. What is empty is 0, and a zero byte ends a word.
fn score_bound(word: &[u8]) -> Option<Bound<f64>> {
    let (is_excluded, digits) = match word.strip_prefix(b"(") {
        Some(digits) => (true, digits),
        None => (false, word),
    };
    let parsed = strtod(digits);
    let ends = matches!(digits.get(parsed.bytes), None | Some(0));
    if !ends || parsed.value.is_nan() {
        return None;
    }
    Some(if is_excluded { Bound::Excluded(parsed.value) } else { Bound::Included(parsed.value) })
}

/// A bound of members.
#[derive(Clone, Copy)]
enum Lex<'a> {
    /// Before all of them.
    Lowest,
    /// Behind all of them.
    Greatest,
    Member(Bound<&'a [u8]>),
}

fn lex_bound(word: &[u8]) -> Option<Lex<'_>> {
    let is_sign = matches!(word.get(1), None | Some(0));
    match word.split_first()? {
        (b'-', _) if is_sign => Some(Lex::Lowest),
        (b'+', _) if is_sign => Some(Lex::Greatest),
        (b'(', member) => Some(Lex::Member(Bound::Excluded(member))),
        (b'[', member) => Some(Lex::Member(Bound::Included(member))),
        _ => None,
    }
}

fn lex_range<'a>(from: Lex<'a>, to: Lex<'a>) -> Result<SortedRange<'a>, CommandError> {
    let from = match from {
        Lex::Lowest => Bound::Unbounded,
        Lex::Greatest => return Ok(EMPTY),
        // No member is longer than the limit: beyond it a bound lies between two.
        Lex::Member(Bound::Included(of) | Bound::Excluded(of))
            if of.len() > MAX_SORTED_MEMBER_BYTES =>
        {
            Bound::Excluded(&of[..MAX_SORTED_MEMBER_BYTES])
        }
        Lex::Member(bound) => bound,
    };
    let to = match to {
        Lex::Greatest => Bound::Unbounded,
        Lex::Lowest => return Ok(EMPTY),
        Lex::Member(Bound::Included(of) | Bound::Excluded(of))
            if of.len() > MAX_SORTED_MEMBER_BYTES =>
        {
            Bound::Included(&of[..MAX_SORTED_MEMBER_BYTES])
        }
        Lex::Member(bound) => bound,
    };
    let is_empty = is_empty(from, to, |a, b| a > b, |a, b| a == b);
    Ok(if is_empty { EMPTY } else { SortedRange::Lex { from, to } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_scores_are_read_as_by_c() {
        for (word, bound) in [
            (&b"1.5"[..], Some(Bound::Included(1.5))),
            (b"(1.5", Some(Bound::Excluded(1.5))),
            (b" 1", Some(Bound::Included(1.0))),
            (b"( 1", Some(Bound::Excluded(1.0))),
            (b"", Some(Bound::Included(0.0))),
            (b"(", Some(Bound::Excluded(0.0))),
            (b"1\0x", Some(Bound::Included(1.0))),
            (b"+inf", Some(Bound::Included(f64::INFINITY))),
            (b"1e400", Some(Bound::Included(f64::INFINITY))),
            (b"0x10", Some(Bound::Included(16.0))),
            (b"((1", None),
            (b"1 ", None),
            (b"nan", None),
            (b"one", None),
        ] {
            assert_eq!(score_bound(word), bound, "{}", word.escape_ascii());
        }
    }

    #[test]
    fn what_has_no_members_is_one_range() {
        let of = |unit, from, to| range(unit, (from, to)).unwrap();
        assert_eq!(of(Unit::Score, b"2", b"1"), EMPTY);
        assert_eq!(of(Unit::Score, b"(1", b"1"), EMPTY);
        assert_ne!(of(Unit::Score, b"1", b"1"), EMPTY);
        assert_eq!(of(Unit::Lex, b"+", b"-"), EMPTY);
        assert_eq!(of(Unit::Lex, b"-", b"-"), EMPTY);
        assert_eq!(of(Unit::Lex, b"(a", b"[a"), EMPTY);
        assert_ne!(of(Unit::Lex, b"-", b"+"), EMPTY);
    }

    #[test]
    fn a_bound_that_is_longer_than_members_lies_between_two() {
        let long = [b"(".as_slice(), &vec![b'm'; MAX_SORTED_MEMBER_BYTES + 5]].concat();
        let cut = &long[1..=MAX_SORTED_MEMBER_BYTES];
        let behind = range(Unit::Lex, (&long, b"+")).unwrap();
        let (from, to) = (Bound::Excluded(cut), Bound::Unbounded);
        assert_eq!(behind, SortedRange::Lex { from, to });
        let before = range(Unit::Lex, (b"-", &long)).unwrap();
        let (from, to) = (Bound::Unbounded, Bound::Included(cut));
        assert_eq!(before, SortedRange::Lex { from, to });
    }
}
