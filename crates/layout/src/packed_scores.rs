//! Members with scores in one record: all of a small sorted set, or those of one bin of a large one.
//!
//! ```text
//! score 8, a double, little-endian | member_bytes 1 | member
//! ```
//! Those of a small set ascend by score, and by the members' bytes where scores are equal. A bin has
//! them in no order. Invalid bytes are read as fewer members.

use crate::bins::{BIN, OWN};
use std::cmp::Ordering;

/// Bytes of a score.
pub const SCORE_BYTES: usize = 8;
/// Bytes of an item beside its member.
const HEAD_BYTES: usize = SCORE_BYTES + 1;
/// Bytes of a member, at most: one byte holds its length.
pub const MAX_ITEM_BYTES: usize = u8::MAX as usize;

const _: () = assert!(crate::limits::WHOLE_ITEM_BYTES <= MAX_ITEM_BYTES);

/// A score and its member.
type Item<'p> = (f64, &'p [u8]);

/// The first item, and what follows it.
#[inline]
fn split(packed: &[u8]) -> Option<(Item<'_>, &[u8])> {
    let (head, rest) = packed.split_first_chunk::<HEAD_BYTES>()?;
    let (score, &[bytes]) = head.split_first_chunk()? else { return None };
    let (member, rest) = rest.split_at_checked(bytes.into())?;
    let score = f64::from_le_bytes(*score);
    // Another server's bytes may say anything; NaN has no place in an order.
    (!score.is_nan()).then_some(((score, member), rest))
}

/// The scores and the members, as they are packed.
#[inline]
pub const fn items(packed: &[u8]) -> Scores<'_> {
    Scores { rest: packed }
}

/// See [`items`].
#[derive(Clone, Copy, Debug)]
pub struct Scores<'p> {
    rest: &'p [u8],
}

impl<'p> Iterator for Scores<'p> {
    type Item = (f64, &'p [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (item, rest) = split(self.rest)?;
        self.rest = rest;
        Some(item)
    }
}

/// How many members there are.
pub fn count(packed: &[u8]) -> usize {
    items(packed).count()
}

/// The score of a member.
#[inline]
pub fn find(packed: &[u8], member: &[u8]) -> Option<f64> {
    find_bytes(packed, member).map(|score| f64::from_le_bytes(*score))
}

/// The bytes of the score of a member, where they lie.
#[inline]
pub fn find_bytes<'p>(packed: &'p [u8], member: &[u8]) -> Option<&'p [u8; SCORE_BYTES]> {
    // Members of one set tend to differ in their last bytes, so that those alone are looked at mostly.
    let end = member.last_chunk::<8>();
    let mut rest = packed;
    while let Some(((_, other), after)) = split(rest) {
        if other.len() == member.len() && other.last_chunk::<8>() == end && other == member {
            return rest.first_chunk();
        }
        rest = after;
    }
    None
}

/// The bytes of the score of a member, if it is in the part of a large set with this name and value.
pub fn find_in_part<'p>(
    name: &[u8],
    value: &'p [u8],
    member: &[u8],
) -> Option<&'p [u8; SCORE_BYTES]> {
    match name.split_first() {
        Some((&OWN, own)) if own == member => value.try_into().ok(),
        Some((&BIN, _)) => find_bytes(value, member),
        _ => None,
    }
}

/// Appends a member, of at most [`MAX_ITEM_BYTES`].
pub fn push(packed: &mut Vec<u8>, score: f64, member: &[u8]) {
    debug_assert!(member.len() <= MAX_ITEM_BYTES && !score.is_nan());
    packed.extend_from_slice(&score.to_le_bytes());
    packed.push(member.len() as u8);
    packed.extend_from_slice(member);
}

/// Appends these members, which ascend, without those of `gone` and with those of `new` in their places.
/// Both ascend, too; none of `new` is one that stays.
pub fn push_changed(packed: &mut Vec<u8>, from: &[u8], gone: &[Item<'_>], new: &[Item<'_>]) {
    let (mut gone_next, mut new_next) = (gone.iter().peekable(), new.iter().peekable());
    // Where those begin that stay and are not copied yet, and those that are not looked at yet.
    let (mut stays, mut rest) = (from, from);
    while let Some((item, after)) = split(rest) {
        let goes = gone_next.next_if(|gone| **gone == item).is_some();
        let comes = new_next.peek().is_some_and(|new| order(**new, item) == Ordering::Less);
        if goes || comes {
            packed.extend_from_slice(&stays[..stays.len() - rest.len()]);
            stays = if goes { after } else { rest };
            while let Some(new) = new_next.next_if(|new| order(**new, item) == Ordering::Less) {
                push(packed, new.0, new.1);
            }
        }
        rest = after;
        if gone_next.peek().is_none() && new_next.peek().is_none() {
            // All others stay.
            packed.extend_from_slice(stays);
            return;
        }
    }
    packed.extend_from_slice(&stays[..stays.len() - rest.len()]);
    new_next.for_each(|new| push(packed, new.0, new.1));
}

/// The order of members: by scores, which are not NaN, then by bytes. -0 is 0.
pub fn order(a: (f64, &[u8]), b: (f64, &[u8])) -> Ordering {
    let by_score = a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal);
    by_score.then_with(|| a.1.cmp(b.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bins::bin_name;

    const ALL: [(f64, &[u8]); 5] = [
        (f64::NEG_INFINITY, b"lowest"),
        (-0.0, b""),
        (0.0, b"member:000017"),
        (0.5, b"member:000018"),
        (f64::INFINITY, &[9; 255]),
    ];

    fn packed(all: &[(f64, &[u8])]) -> Vec<u8> {
        let mut packed = Vec::new();
        all.iter().for_each(|(score, member)| push(&mut packed, *score, member));
        packed
    }

    #[test]
    fn items_come_back_and_cut_bytes_give_fewer() {
        let packed = packed(&ALL);
        assert!(items(&packed).eq(ALL) && count(&packed) == ALL.len());
        assert!(items(&packed).nth(1).is_some_and(|(score, _)| score.is_sign_negative()));
        for (score, member) in ALL {
            assert_eq!(find(&packed, member), Some(score));
        }
        for absent in [&b"member:000019"[..], b"x", b"Member:000017", &[9; 254]] {
            assert_eq!(find(&packed, absent), None, "{absent:?}");
        }
        for cut in 0..packed.len() {
            let some = items(&packed[..cut]);
            assert!(some.count() < ALL.len() && some.zip(ALL).all(|(a, b)| a == b));
        }
    }

    #[test]
    fn a_part_is_a_bin_or_one_member() {
        let bin = packed(&ALL);
        let lowest = f64::NEG_INFINITY.to_le_bytes();
        assert_eq!(find_in_part(&bin_name(1), &bin, b"lowest"), Some(&lowest));
        let (own, value) = ([OWN, b'o', b'w', b'n'], 7.5_f64.to_le_bytes());
        assert_eq!(find_in_part(&own, &value, b"own"), Some(&value));
        assert_eq!(find_in_part(&own, &value, b"ow"), None);
        assert_eq!(find_in_part(&own, &value[1..], b"own"), None);
        assert_eq!(find_in_part(b"", &bin, b"lowest"), None);
    }

    /// Each way to take some of seven away and to put some others in: as sorting all of them again.
    #[test]
    fn members_get_their_places_in_the_order_and_leave_them() {
        let members: [Item<'_>; 7] = [
            (f64::NEG_INFINITY, b"c"),
            (-1.5, b"a"),
            (0.0, b"d"),
            (0.0, b"e"),
            (1.0, b"b"),
            (1.0, b"bb"),
            (f64::INFINITY, b""),
        ];
        let some = |bits: u32| {
            let chosen = (0..members.len()).filter(move |at| bits & 1 << at != 0);
            chosen.map(|at| members[at]).collect::<Vec<_>>()
        };
        for there in 0..1 << members.len() {
            let from = packed(&some(there));
            for changed in 0..1 << members.len() {
                let mut made = b"before".to_vec();
                push_changed(&mut made, &from, &some(there & changed), &some(changed & !there));
                let made = made.strip_prefix(b"before").expect("it stays");
                assert!(items(made).eq(some(there ^ changed)), "{there:b} {changed:b}");
            }
        }
    }
}
