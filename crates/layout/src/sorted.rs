//! A large sorted set: the keys of its B+tree, and its root record's state.
//!
//! ```text
//!  key of the tree     score 8 | member                            members of up to 247 bytes
//!                      score 8 | first bytes 232 | mark 16         longer ones
//!
//!  state of the root   R-tree header 80 | B+tree header | table of parts
//! ```
//! The score in a key is a number of 64 bits, most significant byte first, in whose order scores are
//! sorted. -0 stands as 0. So keys are sorted as sorted sets are: by score, then by member. Longer
//! members whose first bytes are the same are sorted by their marks, which are no order of theirs.
//!
//! The R-tree is that of a set that was searched for positions ([`crate::tree`]); its header is empty
//! before. The B+tree's header is [`crate::btree::OrderedHeader`].

use crate::btree::ORDERED_ROOT_BYTES;
use crate::limits::SLOT_UNIT_BYTES;
use crate::node::NodeRef;
use crate::table::OBJECT_STATE_BYTES;
use crate::tree::TREE_HEADER_BYTES;
use std::ops::Bound;

/// Bytes of a score in a key.
pub const SCORE_BYTES: usize = 8;
/// Longest member that lies whole in a key.
pub const SORTED_KEY_MEMBER_BYTES: usize = 247;
/// Bytes of a longer member in a key.
pub const SORTED_KEY_FIRST_BYTES: usize = 232;
/// Bytes of the mark of a longer member.
pub const SORTED_MARK_BYTES: usize = 16;
/// Bytes of a key, at most; those of longer members have so many, others fewer.
pub const SORTED_KEY_BYTES: usize = SCORE_BYTES + SORTED_KEY_FIRST_BYTES + SORTED_MARK_BYTES;

/// Where the B+tree's header begins in the state.
pub const SORTED_TREE_AT: usize = TREE_HEADER_BYTES;
/// Where the table of parts begins in the state.
pub const SORTED_PARTS_AT: usize =
    (SORTED_TREE_AT + ORDERED_ROOT_BYTES).next_multiple_of(SLOT_UNIT_BYTES);
/// Bytes of the state.
pub const SORTED_STATE_BYTES: usize = SORTED_PARTS_AT + OBJECT_STATE_BYTES;

const _: () = assert!(SORTED_TREE_AT.is_multiple_of(SLOT_UNIT_BYTES));
const _: () = assert!(SCORE_BYTES + SORTED_KEY_MEMBER_BYTES < SORTED_KEY_BYTES);

/// Where the B+tree's header lies, if the state begins there.
pub const fn sorted_tree_at(state: NodeRef) -> NodeRef {
    NodeRef { slot: state.slot + (SORTED_TREE_AT / SLOT_UNIT_BYTES) as u32, ..state }
}

/// A number in whose order scores are sorted; -0 and 0 have the same. A score is no NaN.
///
/// ```
/// use remora_layout::sorted::{score_of, score_order};
///
/// let all = [f64::NEG_INFINITY, -1.5, 0.0, 1e-300, 2.0, f64::INFINITY];
/// assert!(all.windows(2).all(|two| score_order(two[0]) < score_order(two[1])));
/// assert_eq!(score_order(-0.0), score_order(0.0));
/// assert!(all.iter().all(|score| score_of(score_order(*score)) == *score));
/// ```
#[inline]
pub fn score_order(score: f64) -> u64 {
    // The sum makes 0 of -0.
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// The score of such a number.
#[inline]
pub fn score_of(order: u64) -> f64 {
    f64::from_bits(if order >> 63 == 1 { order & !(1 << 63) } else { !order })
}

/// Appends the key of a member with a score; `mark` gives the mark of a long one.
#[inline]
pub fn push_sorted_key(
    key: &mut Vec<u8>,
    (score, member): (f64, &[u8]),
    mark: impl FnOnce() -> [u8; SORTED_MARK_BYTES],
) {
    key.extend_from_slice(&score_order(score).to_be_bytes());
    if member.len() <= SORTED_KEY_MEMBER_BYTES {
        key.extend_from_slice(member);
    } else {
        key.extend_from_slice(&member[..SORTED_KEY_FIRST_BYTES]);
        key.extend_from_slice(&mark());
    }
}

/// What a key says of its member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyMember<'k> {
    /// The member.
    Whole(&'k [u8]),
    /// The mark of a longer one.
    Mark([u8; SORTED_MARK_BYTES]),
}

/// Score and member of a key; none if it is too short.
#[inline]
pub fn split_sorted_key(key: &[u8]) -> Option<(f64, KeyMember<'_>)> {
    let (order, member) = key.split_first_chunk()?;
    let member = match member.last_chunk() {
        Some(mark) if key.len() == SORTED_KEY_BYTES => KeyMember::Mark(*mark),
        _ => KeyMember::Whole(member),
    };
    Some((score_of(u64::from_be_bytes(*order)), member))
}

/// The beginning of the keys with this score, or with greater ones only.
pub fn score_bound(score: f64, is_behind: bool) -> [u8; SCORE_BYTES] {
    (score_order(score) + u64::from(is_behind)).to_be_bytes()
}

/// The keys of scores within these bounds: from the first one, inclusive, to before the second one;
/// without a bound to the end.
pub fn keys_of_scores(from: Bound<f64>, to: Bound<f64>) -> [Option<[u8; SCORE_BYTES]>; 2] {
    let from = match from {
        Bound::Unbounded => None,
        Bound::Included(score) => Some(score_bound(score, false)),
        Bound::Excluded(score) => Some(score_bound(score, true)),
    };
    let to = match to {
        Bound::Unbounded => None,
        Bound::Included(score) => Some(score_bound(score, true)),
        Bound::Excluded(score) => Some(score_bound(score, false)),
    };
    [from, to]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_by_score_then_by_member() {
        let scores = [f64::NEG_INFINITY, -7.0, -0.0, 5e-324, 1.0, 1.5, f64::MAX, f64::INFINITY];
        let long = [vec![b'b'; 247], vec![b'b'; 248]];
        let members: [&[u8]; 6] = [b"", b"a", b"a\0", b"b", &long[0], &long[1]];
        let mut last: Option<Vec<u8>> = None;
        for score in scores {
            for (at, member) in members.iter().enumerate() {
                let mut key = Vec::new();
                push_sorted_key(&mut key, (score, member), || [7; SORTED_MARK_BYTES]);
                assert!(key.len() <= SORTED_KEY_BYTES);
                let (score_of_key, told) = split_sorted_key(&key).unwrap();
                assert_eq!(score_of_key, score);
                match told {
                    KeyMember::Whole(told) => assert_eq!(told, *member),
                    KeyMember::Mark(mark) => assert_eq!((mark, at), ([7; 16], 5)),
                }
                // The mark of the long one decides between it and the one of 247 bytes.
                if at < 5 {
                    assert!(last.is_none_or(|last| last < key), "{score} {at}");
                    last = Some(key);
                } else {
                    last = None;
                }
            }
        }
        assert_eq!(split_sorted_key(b"1234567"), None);
    }

    #[test]
    fn bounds_of_scores_are_those_of_keys() {
        let key = |score: f64, member: &[u8]| {
            let mut key = Vec::new();
            push_sorted_key(&mut key, (score, member), || [0; SORTED_MARK_BYTES]);
            key
        };
        let scores = [f64::NEG_INFINITY, -1.0, 0.0, 2.0, f64::INFINITY];
        for (at, bound) in scores.into_iter().enumerate() {
            for (is_in, bounds) in [(at, Bound::Included(bound)), (at + 1, Bound::Excluded(bound))]
            {
                let [from, _] = keys_of_scores(bounds, Bound::Unbounded);
                let [_, to] = keys_of_scores(Bound::Unbounded, bounds);
                for (index, score) in scores.into_iter().enumerate() {
                    for member in [&b""[..], b"\xff\xff"] {
                        let key = key(score, member);
                        assert_eq!(&key[..] >= from.unwrap().as_slice(), index >= is_in);
                        let ends = if is_in == at { index <= at } else { index < at };
                        assert_eq!(&key[..] < to.unwrap().as_slice(), ends);
                    }
                }
            }
        }
    }
}
