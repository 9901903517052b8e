//! Which nodes are to be looked at in quiet times (`mend`).

use remora_layout::node::NodeRef;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Nodes that are to be looked at.
#[derive(Default, Debug)]
pub(super) struct Mending {
    /// The deep ones.
    pub deep: BTreeSet<NodeRef>,
    /// Nodes that were held, or came to a new parent, and may join a neighbour; each with the levels
    /// that are not below it: the upper ones come first.
    pub near: BTreeSet<(u8, NodeRef)>,
    /// An address has been held.
    pub was_held: bool,
    /// The deep node that was looked at last.
    last: Option<NodeRef>,
    /// Looks at deep nodes since the last change that could help.
    pub idle: usize,
}

impl Mending {
    /// Whether a node is deep.
    #[inline]
    pub fn is_deep(&self, at: NodeRef) -> bool {
        !self.deep.is_empty() && self.deep.contains(&at)
    }

    /// Deep nodes of the tree.
    pub fn deep_nodes(&self) -> u64 {
        self.deep.len() as u64
    }

    /// Bytes on the heap, about.
    pub fn heap_bytes(&self) -> u64 {
        let near = self.near.len() * size_of::<(u8, NodeRef)>();
        (self.deep.len() * size_of::<NodeRef>() + near) as u64
    }

    /// Whether there is anything to look at.
    pub fn has_work(&self) -> bool {
        !self.near.is_empty() || self.idle < self.deep.len()
    }

    /// The deep node behind the one that was looked at last.
    pub fn next_deep(&mut self) -> Option<NodeRef> {
        if self.idle >= self.deep.len() {
            return None;
        }
        self.idle += 1;
        let from = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.deep.range((from, Bound::Unbounded)).next();
        self.last = next.or_else(|| self.deep.first()).copied();
        self.last
    }
}
