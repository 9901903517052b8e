//! The kept nodes of several B+trees, under one bound.

use super::cache::{CachePolicy, OrderedCache, Pace, choose_together};
use super::view::BtreeView;

/// The kept nodes of all B+trees of a session, under one bound and, if they are chosen, one
/// super-root (Fat-B+Tree IV-A).
#[derive(Debug)]
pub struct SharedCache {
    cache: OrderedCache,
    pace: Pace,
}

impl Default for SharedCache {
    fn default() -> Self {
        Self::new(OrderedCache::default())
    }
}

impl SharedCache {
    /// Nodes are to be kept so.
    pub fn new(cache: OrderedCache) -> Self {
        Self { cache, pace: Pace::FIRST }
    }

    /// A view of a tree that shares it from now on. Until the next choice the tree's nodes come
    /// beside the others', and the choice comes soon.
    pub fn join(&mut self, tree: &mut BtreeView) {
        self.pace.hasten();
        match self.cache.policy {
            CachePolicy::Levels => tree.set_cache(self.cache),
            CachePolicy::Greedy(_) => tree.share_cache(self.cache.bytes),
        }
    }

    /// Counts a lookup in one of the trees.
    pub fn count_walk(&mut self) {
        self.pace.count();
    }

    /// Chooses anew among these trees if it is time to. Those that keep nodes for themselves stay
    /// as they are.
    pub fn choose_if_due<'t>(&mut self, trees: impl Iterator<Item = &'t mut BtreeView>) {
        let CachePolicy::Greedy(limits) = self.cache.policy else { return };
        if self.pace.is_due() {
            let mut shared: Vec<_> = trees.filter_map(BtreeView::shared_nodes).collect();
            choose_together(&mut shared, limits, self.cache.bytes);
        }
    }
}
