//! What the server knows of its cluster, for the threads that serve Redis clients: one thread writes
//! it, and each of them looks at a number to see whether it has changed.

use remora_resp::cluster::ClusterFacts;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The facts, and how often they have changed.
#[derive(Default)]
pub struct ClusterFactsCell {
    version: AtomicU64,
    now: Mutex<Arc<ClusterFacts>>,
}

impl ClusterFactsCell {
    /// Replaces the facts. Whether there may be something to announce: more than offsets differs.
    pub fn set(&self, facts: ClusterFacts) -> bool {
        let mut now = self.lock();
        let is_like = facts.is_like(&now);
        *now = Arc::new(facts);
        self.version.fetch_add(1, Ordering::Release);
        !is_like
    }

    /// The present facts.
    pub fn get(&self) -> Arc<ClusterFacts> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Arc<ClusterFacts>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread's view of the facts.
pub struct ClusterFactsView {
    cell: Arc<ClusterFactsCell>,
    version: u64,
    facts: Arc<ClusterFacts>,
}

impl ClusterFactsView {
    /// A view that has the present facts.
    pub fn new(cell: Arc<ClusterFactsCell>) -> Self {
        // Read before the facts: they are at least as new.
        let version = cell.version.load(Ordering::Acquire);
        Self { version, facts: cell.get(), cell }
    }

    /// The present facts.
    #[inline]
    pub fn facts(&mut self) -> &Arc<ClusterFacts> {
        let version = self.cell.version.load(Ordering::Acquire);
        if version != self.version {
            (self.version, self.facts) = (version, self.cell.get());
        }
        &self.facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_has_what_was_set_last() {
        let cell = Arc::new(ClusterFactsCell::default());
        let mut view = ClusterFactsView::new(Arc::clone(&cell));
        assert_eq!(**view.facts(), ClusterFacts::default());
        assert!(!cell.set(ClusterFacts { epoch: 2, ..ClusterFacts::default() }));
        assert_eq!(view.facts().epoch, 2);
        let own = remora_resp::cluster::NodeId { member: 1, incarnation: 2 };
        assert!(cell.set(ClusterFacts { own, ..ClusterFacts::default() }), "others are told");
        assert_eq!(view.facts().own, own);
    }
}
