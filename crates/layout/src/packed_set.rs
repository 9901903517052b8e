//! Members of a set in one record: all of a small set, or those of one bin of a large one.
//!
//! ```text
//! form 1 | members
//! form 0        items, in no order: member_bytes 1 | member
//! form 2, 4, 8  integers of so many bytes, little-endian, ascending
//! ```
//! The integers are as in Redis's intsets: the smallest width that fits all of them. A bin has items.

use crate::bins::{BIN, OWN};
use std::cmp::Ordering;

/// The form of items.
const ITEMS: u8 = 0;
/// Bytes of a member among items, at most: one byte holds its length.
pub const MAX_ITEM_BYTES: usize = u8::MAX as usize;

const _: () = assert!(crate::limits::WHOLE_ITEM_BYTES <= MAX_ITEM_BYTES);

/// Whether the part of a large set with this name and value holds a member.
pub fn part_holds(name: &[u8], value: &[u8], member: &[u8]) -> bool {
    match name.split_first() {
        Some((&OWN, own)) => own == member,
        Some((&BIN, _)) => contains(value, member, || None),
        _ => false,
    }
}

/// A member as it is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Member<'a> {
    /// The decimal text of an integer, as Redis writes it.
    Integer(i64),
    /// These bytes.
    Bytes(&'a [u8]),
}

/// Packed members. Invalid bytes are read as fewer members.
#[derive(Clone, Copy)]
enum Packed<'a> {
    Items(&'a [u8]),
    Integers { width: usize, bytes: &'a [u8] },
}

fn open(packed: &[u8]) -> Packed<'_> {
    match packed.split_first() {
        Some((&width @ (2 | 4 | 8), bytes)) => Packed::Integers { width: width.into(), bytes },
        Some((&ITEMS, items)) => Packed::Items(items),
        _ => Packed::Items(&[]),
    }
}

/// The integer at a place, of this width.
fn integer_at(bytes: &[u8], width: usize, at: usize) -> i64 {
    let bytes = &bytes[at * width..][..width];
    match width {
        2 => i16::from_le_bytes([bytes[0], bytes[1]]).into(),
        4 => i32::from_le_bytes(*bytes.first_chunk().expect("four bytes")).into(),
        _ => i64::from_le_bytes(*bytes.first_chunk().expect("eight bytes")),
    }
}

fn split_item(items: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&bytes, rest) = items.split_first()?;
    rest.split_at_checked(bytes.into())
}

/// Whether the members are packed as integers.
pub fn has_integers(packed: &[u8]) -> bool {
    matches!(open(packed), Packed::Integers { .. })
}

/// How many members there are.
pub fn count(packed: &[u8]) -> usize {
    match open(packed) {
        Packed::Integers { width, bytes } => bytes.len() / width,
        Packed::Items(_) => members(packed).count(),
    }
}

/// The members: integers in ascending order, others in no order.
pub fn members(packed: &[u8]) -> impl Iterator<Item = Member<'_>> + Clone {
    let opened = open(packed);
    let (mut at, mut rest) = (0, if let Packed::Items(items) = opened { items } else { &[] });
    std::iter::from_fn(move || match opened {
        Packed::Integers { width, bytes } => {
            at += 1;
            (at * width <= bytes.len()).then(|| Member::Integer(integer_at(bytes, width, at - 1)))
        }
        Packed::Items(_) => {
            let (item, after) = split_item(rest)?;
            rest = after;
            Some(Member::Bytes(item))
        }
    })
}

/// Whether a member is among them; `integer` is the integer whose text the member is, if it is one.
#[inline]
pub fn contains(packed: &[u8], member: &[u8], integer: impl FnOnce() -> Option<i64>) -> bool {
    match open(packed) {
        Packed::Items(mut rest) => {
            // Members of one set tend to differ in their last bytes, so that those alone are looked
            // at mostly.
            let end = member.last_chunk::<8>().map(|end| u64::from_le_bytes(*end));
            while let Some((item, after)) = split_item(rest) {
                rest = after;
                if item.len() != member.len() {
                    continue;
                }
                let of_item = item.last_chunk::<8>().map(|end| u64::from_le_bytes(*end));
                if of_item == end && item == member {
                    return true;
                }
            }
            false
        }
        Packed::Integers { width, bytes } => {
            let Some(wanted) = integer() else { return false };
            let (mut from, mut to) = (0, bytes.len() / width);
            while from < to {
                let middle = from.midpoint(to);
                match integer_at(bytes, width, middle).cmp(&wanted) {
                    Ordering::Equal => return true,
                    Ordering::Less => from = middle + 1,
                    Ordering::Greater => to = middle,
                }
            }
            false
        }
    }
}

/// Begins a list of items.
pub fn begin_items(packed: &mut Vec<u8>) {
    packed.clear();
    packed.push(ITEMS);
}

/// Appends a member, of at most [`MAX_ITEM_BYTES`], to a list of items.
pub fn push_item(packed: &mut Vec<u8>, member: &[u8]) {
    debug_assert!(member.len() <= MAX_ITEM_BYTES && packed.first() == Some(&ITEMS));
    packed.push(member.len() as u8);
    packed.extend_from_slice(member);
}

/// Packs integers in ascending order.
pub fn pack_integers(packed: &mut Vec<u8>, ascending: &[i64]) {
    debug_assert!(ascending.is_sorted());
    packed.clear();
    let fits = |least: i64, most: i64| {
        ascending.first().is_none_or(|first| *first >= least)
            && ascending.last().is_none_or(|last| *last <= most)
    };
    let width = match () {
        () if fits(i16::MIN.into(), i16::MAX.into()) => 2,
        () if fits(i32::MIN.into(), i32::MAX.into()) => 4,
        () => 8,
    };
    packed.push(width);
    for integer in ascending {
        packed.extend_from_slice(&integer.to_le_bytes()[..width.into()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn items_come_back_and_cut_bytes_give_fewer() {
        let all: [&[u8]; 4] = [b"a", b"", b"7", &[9; 255]];
        let mut packed = Vec::new();
        begin_items(&mut packed);
        all.iter().for_each(|member| push_item(&mut packed, member));
        assert!(members(&packed).eq(all.map(Member::Bytes)));
        assert_eq!((count(&packed), has_integers(&packed)), (4, false));
        assert!(all.iter().all(|member| contains(&packed, member, || None)));
        assert!(!contains(&packed, b"b", || None));
        for cut in 0..packed.len() {
            let some = members(&packed[..cut]);
            assert!(some.clone().count() < 4 && some.zip(all).all(|(a, b)| a == Member::Bytes(b)));
        }
    }

    #[test]
    fn integers_take_the_smallest_width_and_are_found() {
        let ends: [(i64, i64, usize); 4] =
            [(-32_768, 32_767, 2), (-32_769, 0, 4), (0, 2_147_483_648, 8), (i64::MIN, i64::MAX, 8)];
        for (least, most, width) in ends {
            let all: BTreeSet<i64> = [least, -1, 0, 5, most].into();
            let ascending: Vec<i64> = all.iter().copied().collect();
            let mut packed = Vec::new();
            pack_integers(&mut packed, &ascending);
            assert_eq!(packed.len(), 1 + ascending.len() * width);
            assert!(members(&packed).eq(all.iter().map(|&of| Member::Integer(of))));
            for of in [least, -2, -1, 0, 1, 5, most] {
                assert_eq!(contains(&packed, b"", || Some(of)), all.contains(&of), "{of}");
            }
            assert!(!contains(&packed, b"x", || None));
            for cut in 0..packed.len() {
                assert!(members(&packed[..cut]).count() < all.len());
            }
        }
    }
}
