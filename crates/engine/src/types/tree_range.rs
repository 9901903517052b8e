//! Reads of a B+tree by its owner, some entries at a time.

use crate::store::Store;
use remora_arena::Journal;
use remora_index::btree::{Direction, Range, Tree};
use remora_layout::btree::Value;
use remora_layout::limits::{RANGE_TURN_BYTES, RANGE_TURN_KEYS};
use std::ops::Bound;

/// A bound that outlives its request, as the tree has keys.
pub(crate) type OwnBound = Bound<Vec<u8>>;

/// Some entries of a range, and where it goes on: so many keys, or bytes, of which the last entry may
/// have more. `each` gives the bytes of what it was handed.
pub(crate) fn range_some<J: Journal>(
    store: &Store<J>,
    tree: &Tree,
    (from, to, direction): (&mut OwnBound, &mut OwnBound, Direction),
    most: usize,
    mut each: impl FnMut(&[u8], Value<'_>) -> usize,
) -> usize {
    let (mut last, mut bytes, mut found) = (Vec::new(), 0, 0);
    // Bounded by `most`: each round finds something, or is the last one.
    loop {
        let limit = (most - found).min(RANGE_TURN_KEYS / 8);
        let range = Range {
            from: from.as_ref().map(Vec::as_slice),
            to: to.as_ref().map(Vec::as_slice),
            direction,
            limit,
        };
        let before = found;
        let some = tree.range(&store.owner, range, |key, value| {
            if bytes < RANGE_TURN_BYTES {
                bytes += each(key, value);
                found += 1;
                last.clear();
                last.extend_from_slice(key);
            }
        });
        if found > before {
            let next = Bound::Excluded(std::mem::take(&mut last));
            match direction {
                Direction::Ascending => *from = next,
                Direction::Descending => *to = next,
            }
        }
        if some < limit || found == most || bytes >= RANGE_TURN_BYTES {
            return found;
        }
    }
}

/// Where a sweep over all entries goes on.
pub(crate) struct OwnFrom(pub OwnBound);

impl Default for OwnFrom {
    fn default() -> Self {
        Self(Bound::Unbounded)
    }
}
