//! Elements drawn by lot.

use super::kept::Elements;
use crate::store::Store;
use remora_arena::Journal;
use remora_index::hash::{record_key, record_value};
use std::collections::BTreeSet;

/// Random numbers from a seed: SplitMix64 (Steele, Lea and Flood 2014). A weaker mixing of a counter
/// makes the lots for a bucket and for a place in it depend on each other.
pub(crate) struct Random(pub u64);

impl Random {
    /// A number below this bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        ((u128::from(bits) * u128::from(bound)) >> 64) as u64
    }
}

/// Buckets drawn by lot for one random element, before they are looked at in order.
const LOTS: u64 = 256;

/// Progress of the search for one random element. Each is equally likely, except in a table of
/// which most was removed.
#[derive(Default)]
pub(crate) struct Draw {
    /// Lots that were drawn.
    lots: u64,
    /// The bucket that was looked at last.
    bucket: u64,
}

impl Draw {
    /// Looks for an element of an object of parts, in at most this many buckets. With the slot of
    /// a part, and the place of the element in it, it starts again.
    pub fn go_on<E: Elements, J: Journal>(
        &mut self,
        store: &Store<J>,
        root: u32,
        random: &mut Random,
        buckets: &mut u64,
    ) -> Option<(u32, u64)> {
        let parts = store.parts.of(root);
        while *buckets > 0 {
            *buckets -= 1;
            let is_by_lot = self.lots < LOTS;
            self.bucket = if is_by_lot {
                self.lots += 1;
                random.below(parts.buckets())
            } else {
                (self.bucket + 1) % parts.buckets()
            };
            let chain = parts.in_bucket(&store.owner, self.bucket);
            let elements_of = |&slot: &u32| {
                E::in_part(record_key(&store.owner, slot), record_value(&store.owner, slot))
            };
            // Longer chains are rare.
            let least = if is_by_lot { E::LOT_PLACES } else { 0 };
            let mut place = random.below(least.max(chain.iter().map(elements_of).sum()));
            for slot in chain {
                let elements = elements_of(&slot);
                if place < elements {
                    *self = Self::default();
                    return Some((slot, place));
                }
                place -= elements;
            }
        }
        None
    }
}

/// Draws this many different elements of an object of parts, each equally likely: the slots of their
/// parts, and their places there. `None` if that takes more than so many buckets.
pub(crate) fn draw_different<E: Elements, J: Journal>(
    store: &Store<J>,
    root: u32,
    random: &mut Random,
    (wanted, mut buckets): (u64, u64),
) -> Option<Vec<(u32, u64)>> {
    let (mut drawn, mut known, mut draw) = (Vec::new(), BTreeSet::new(), Draw::default());
    while (drawn.len() as u64) < wanted {
        let place = draw.go_on::<E, J>(store, root, random, &mut buckets)?;
        if known.insert(place) {
            drawn.push(place);
        }
    }
    Some(drawn)
}
