//! Rings of a search by distance: each has some documents more than what lies inside it.

use super::held::{Collection, Index};
use super::plan::Ring;
use crate::store::Store;
use remora_arena::Journal;
use remora_document::Near;
use remora_layout::limits::NEAR_RING_DOCUMENTS;

/// How often the width of a ring is doubled.
const MOST_WIDENINGS: usize = 64;

impl Index {
    /// The ring of a search by distance that begins at this one: as wide as some documents need it. The last one
    /// has no end.
    pub fn ring<J: Journal>(&self, store: &Store<J>, near: &Near, from: f64) -> Ring {
        /// Of the farthest distance.
        const LEAST_WIDTH: f64 = 1e-6;
        let last = Ring { from, to: f64::INFINITY };
        let Some(places) = &self.places else { return last };
        let Some(extent) = places.tree.extent(&store.owner) else { return last };
        let farthest = near.farthest(&extent);
        let most = near.max().map_or(farthest, |of| of.min(farthest));
        let mut width = (from / 4.0).max(farthest * LEAST_WIDTH);
        let about = |to: f64| places.about(store, &near.windows(to));
        let enough = about(from).saturating_add(NEAR_RING_DOCUMENTS);
        for _ in 0..MOST_WIDENINGS {
            let to = from + width;
            if to.is_nan() || to >= most || to <= from {
                break;
            }
            if about(to) >= enough {
                return Ring { from, to };
            }
            width *= 2.0;
        }
        last
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
