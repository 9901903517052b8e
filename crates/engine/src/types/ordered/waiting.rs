//! Which trees of a shard are to be looked at, because an epoch ends or nodes are to be mended. A turn
//! looks at these only, and not at all whose addresses are held.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Why a tree is to be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Awaited {
    /// An epoch ends then.
    pub lapse_ms: Option<u64>,
    /// There are nodes to look at.
    pub wants_mending: bool,
    /// Nodes wait for memory.
    pub is_short: bool,
}

/// Trees, by the slots of their root records.
#[derive(Default, Debug)]
pub(super) struct WaitingTrees {
    /// Those of which something is held, and when the first epoch ends.
    lapses: BTreeMap<u32, u64>,
    /// The same, by time.
    by_lapse: BTreeSet<(u64, u32)>,
    /// Those with nodes to look at.
    wanting: BTreeSet<u32>,
    /// The one of these that was looked at last.
    last: Option<u32>,
    /// Those of which nothing is held, and whose nodes wait for memory.
    short: BTreeSet<u32>,
    /// The one of these that was looked at last.
    last_short: Option<u32>,
}

/// The one behind the one that came last, around.
fn behind(trees: &BTreeSet<u32>, last: Option<u32>) -> Option<u32> {
    let from = last.map_or(Bound::Unbounded, Bound::Excluded);
    trees.range((from, Bound::Unbounded)).next().or_else(|| trees.first()).copied()
}

impl WaitingTrees {
    /// Trees of which something is held.
    pub fn held(&self) -> usize {
        self.lapses.len()
    }

    /// Whether something of a tree is held.
    pub fn holds(&self, root: u32) -> bool {
        self.lapses.contains_key(&root)
    }

    /// Those for which ticks are wanted, each for each reason.
    pub fn len(&self) -> usize {
        self.lapses.len() + self.wanting.len() + self.short.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A tree has nodes to look at. True if that was not known.
    pub fn insert(&mut self, root: u32) -> bool {
        self.wanting.insert(root)
    }

    /// Notes why a tree is to be looked at from now on.
    pub fn note(&mut self, root: u32, awaited: Awaited) {
        let Awaited { lapse_ms, wants_mending, is_short } = awaited;
        if self.lapses.get(&root).copied() != lapse_ms {
            if let Some(before) = self.lapses.remove(&root) {
                self.by_lapse.remove(&(before, root));
            }
            if let Some(lapse_ms) = lapse_ms {
                self.lapses.insert(root, lapse_ms);
                self.by_lapse.insert((lapse_ms, root));
            }
        }
        let mut mark = |trees: fn(&mut Self) -> &mut BTreeSet<u32>, is_in| {
            if is_in {
                trees(self).insert(root);
            } else {
                trees(self).remove(&root);
            }
        };
        mark(|trees| &mut trees.wanting, wants_mending);
        mark(|trees| &mut trees.short, is_short);
    }

    /// Forgets a tree.
    pub fn forget(&mut self, root: u32) {
        self.note(root, Awaited::default());
    }

    /// The tree whose epoch has ended first.
    pub fn due(&self, now_ms: u64) -> Option<u32> {
        let (lapse_ms, root) = self.by_lapse.first()?;
        (*lapse_ms <= now_ms).then_some(*root)
    }

    /// The next tree with nodes to look at.
    pub fn next_wanting(&mut self) -> Option<u32> {
        self.last = behind(&self.wanting, self.last);
        self.last
    }

    /// The next tree whose nodes wait for memory.
    pub fn next_short(&mut self) -> Option<u32> {
        self.last_short = behind(&self.short, self.last_short);
        self.last_short
    }

    /// Trees whose nodes wait for memory.
    pub fn short(&self) -> usize {
        self.short.len()
    }
}
