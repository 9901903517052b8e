//! Ranges of a sorted set as a reader sees them: in a small set's record, and among the keys of a
//! large set's tree.

use super::asked::SortedMember;
use remora_layout::packed_scores;
use remora_layout::sorted::{KeyMember, SORTED_KEY_FIRST_BYTES, score_bound, split_sorted_key};
use remora_protocol::sorted::{SortedRange, SortedRead};
use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};

/// Whether READs can decide which members the range has. Keys hold longer members by their marks,
/// whose order a bound that is as long does not have.
pub(super) fn is_readable(range: &SortedRange<'_>) -> bool {
    let is_number = |bound: Bound<f64>| match bound {
        Bound::Included(score) | Bound::Excluded(score) => !score.is_nan(),
        Bound::Unbounded => true,
    };
    let is_short = |bound: Bound<&[u8]>| match bound {
        Bound::Included(member) | Bound::Excluded(member) => member.len() <= SORTED_KEY_FIRST_BYTES,
        Bound::Unbounded => true,
    };
    match *range {
        SortedRange::Index { .. } => false,
        SortedRange::Score { from, to } => is_number(from) && is_number(to),
        SortedRange::Lex { from, to } => is_short(from) && is_short(to),
    }
}

fn holds(range: &SortedRange<'_>, (score, member): (f64, &[u8])) -> bool {
    match *range {
        SortedRange::Index { .. } => false,
        SortedRange::Score { from, to } => (from, to).contains(&score),
        SortedRange::Lex { from, to } => (from, to).contains(&member),
    }
}

/// What is read of a small set. `None` of a range by members, if they have different scores: only
/// the owner knows what that is.
pub(super) fn in_packed(packed: &[u8], read: &SortedRead<'_>) -> Option<Vec<SortedMember>> {
    let mut all: Vec<_> = packed_scores::items(packed).collect();
    let is_by_member = matches!(read.range, SortedRange::Lex { .. });
    if is_by_member && all.windows(2).any(|two| two[0].0 != two[1].0) {
        return None;
    }
    if read.is_reverse {
        all.reverse();
    }
    let found = all.into_iter().filter(|item| holds(&read.range, *item));
    let found = found.skip(clamped(read.offset)).take(clamped(read.limit));
    Some(found.map(|(score, member)| SortedMember { member: member.into(), score }).collect())
}

/// A count of members as the machine has it.
pub(super) fn clamped(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Members of the keys that a walk found, the first ones left out. `None` if one is not whole in
/// its key, or is there twice: it got another score between the READs.
pub(super) fn in_keys<'k>(
    keys: impl Iterator<Item = &'k [u8]>,
    offset: u64,
) -> Option<Vec<SortedMember>> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for (at, key) in keys.enumerate() {
        let (score, KeyMember::Whole(member)) = split_sorted_key(key)? else { return None };
        if !seen.insert(member) {
            return None;
        }
        if at as u64 >= offset {
            found.push(SortedMember { member: member.into(), score });
        }
    }
    Some(found)
}

/// A bound of a range by members as a key, where all members have this score.
pub(super) fn key_bound(bound: Bound<&[u8]>, score: f64) -> Bound<Vec<u8>> {
    bound.map(|member| [&score_bound(score, false), member].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_layout::sorted::push_sorted_key;

    fn key(score: f64, member: &[u8]) -> Vec<u8> {
        let mut key = Vec::new();
        push_sorted_key(&mut key, (score, member), || [7; 16]);
        key
    }

    fn names(found: Option<Vec<SortedMember>>) -> Option<Vec<Vec<u8>>> {
        Some(found?.into_iter().map(|of| of.member).collect())
    }

    #[test]
    fn a_packed_set_gives_what_the_range_holds() {
        let mut packed = Vec::new();
        for (score, member) in [(-1.0, b"a"), (0.0, b"b"), (0.0, b"c"), (5.0, b"d")] {
            packed_scores::push(&mut packed, score, member);
        }
        let range = SortedRange::Score { from: Bound::Excluded(-1.0), to: Bound::Included(5.0) };
        let read = SortedRead::of(range);
        let of = |letters: &str| Some(letters.bytes().map(|of| vec![of]).collect::<Vec<_>>());
        assert_eq!(names(in_packed(&packed, &read)), of("bcd"));
        let read = SortedRead { is_reverse: true, offset: 1, limit: 1, ..read };
        assert_eq!(names(in_packed(&packed, &read)), of("c"));
        let lex = SortedRange::Lex { from: Bound::Included(b"b"), to: Bound::Unbounded };
        assert_eq!(in_packed(&packed, &SortedRead::of(lex)), None);
        let mut packed = Vec::new();
        [b"a", b"b", b"c"].iter().for_each(|of| packed_scores::push(&mut packed, -0.0, *of));
        assert_eq!(names(in_packed(&packed, &SortedRead::of(lex))), of("bc"));
    }

    #[test]
    fn keys_that_do_not_tell_all_are_asked_for() {
        let (a, b) = (key(1.0, b"a"), key(2.0, b"b"));
        let both = [&a[..], &b];
        let found = in_keys(both.into_iter(), 1).expect("both are whole");
        assert_eq!(found, [SortedMember { member: b"b".to_vec(), score: 2.0 }]);
        let again = key(3.0, b"a");
        assert_eq!(in_keys([&a[..], &b, &again].into_iter(), 0), None);
        let long = key(3.0, &[b'l'; 300]);
        assert_eq!(in_keys([&a[..], &long].into_iter(), 0), None);
        assert_eq!(in_keys([&a[..7]].into_iter(), 0), None);
    }

    #[test]
    fn bounds_of_members_hold_the_keys_of_the_members_between_them() {
        let long = [b'm'; 300];
        let all: [&[u8]; 6] = [b"", b"l", &long[..231], &long[..232], &long, b"n"];
        for bound in &all[..4] {
            for bound in [Bound::Included(*bound), Bound::Excluded(*bound)] {
                assert!(is_readable(&SortedRange::Lex { from: bound, to: bound }));
                let keys = key_bound(bound, 4.0);
                for member in all {
                    let key = key(4.0, member);
                    let is_behind = (bound, Bound::Unbounded).contains(&member);
                    assert_eq!((keys.clone(), Bound::Unbounded).contains(&key), is_behind);
                    let is_before = (Bound::Unbounded, bound).contains(&member);
                    assert_eq!((Bound::Unbounded, keys.clone()).contains(&key), is_before);
                }
            }
        }
        let from = Bound::Included(&long[..233]);
        assert!(!is_readable(&SortedRange::Lex { from, to: Bound::Unbounded }));
        let from = Bound::Excluded(f64::NAN);
        assert!(!is_readable(&SortedRange::Score { from, to: Bound::Unbounded }));
    }
}
