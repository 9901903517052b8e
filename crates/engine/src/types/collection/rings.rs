//! Rings of a search by distance: each has some documents more than what lies inside it.

use super::held::{Collection, Index};
use super::plan::Ring;
use crate::store::Store;
use remora_arena::Journal;
use remora_document::Near;
use remora_layout::limits::NEAR_RING_DOCUMENTS;

/// How often the width of a ring is doubled.
const MOST_WIDENINGS: usize = 64;

/// The least width of one that is narrowed, as a part of the farthest distance and as a distance: several times
/// what [`Near::reach`] adds, so that no ring has only documents of its neighbours.
const NARROWEST: (f64, f64) = (1e-8, 1e-4);

/// How often it is halved again.
const MOST_NARROWINGS: usize = 32;

impl Index {
    /// The ring of a search by distance that begins at this one: as wide as some documents need it. The last one
    /// has no end.
    pub fn ring<J: Journal>(&self, store: &Store<J>, near: &Near, from: f64) -> Ring {
        /// Of the farthest distance.
        const LEAST_WIDTH: f64 = 1e-6;
        let last = Ring { from, to: f64::INFINITY };
        let Some(places) = &self.places else { return last };
        let Some(extent) = places.tree.extent(&store.owner) else { return last };
        let (_, farthest) = near.reach(&extent);
        let most = near.max().map_or(farthest, |of| of.min(farthest));
        let about = |to: f64| places.about(store, &|rect| Ring { from, to }.meets(near, rect));
        let mut width = (from / 4.0).max(farthest * LEAST_WIDTH);
        for _ in 0..MOST_WIDENINGS {
            let to = from + width;
            if to.is_nan() || to <= from {
                return last;
            }
            if to >= most || about(to) >= NEAR_RING_DOCUMENTS {
                break;
            }
            width *= 2.0;
        }
        // What is far from all documents may meet very many of them at once.
        let (mut least, mut to) = (from, (from + width).min(most));
        let narrowest = farthest * NARROWEST.0 + NARROWEST.1;
        for _ in 0..MOST_NARROWINGS {
            let middle = f64::midpoint(least, to);
            if about(to) < 2 * NEAR_RING_DOCUMENTS || middle - from < narrowest {
                break;
            }
            match about(middle) < NEAR_RING_DOCUMENTS {
                true => least = middle,
                false => to = middle,
            }
        }
        match to >= most || to <= from {
            true => last,
            false => Ring { from, to },
        }
    }
}

impl Collection {
    /// The ring of a search that goes over an index.
    pub fn ring_of<J: Journal>(
        &self,
        store: &Store<J>,
        index: &str,
        near: &Near,
        from: f64,
    ) -> Option<Ring> {
        let at = self.index(index)?;
        Some(self.indexes[at].ring(store, near, from))
    }
}
