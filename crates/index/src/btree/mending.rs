//! Which nodes are to be looked at, so that a tree gets its shape back (`mend`).

use remora_layout::limits::MAX_MENDED_NODES;
use remora_layout::node::NodeRef;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Nodes that are to be looked at.
#[derive(Default, Debug)]
pub(super) struct Mending {
    /// The deep ones.
    pub deep: BTreeSet<NodeRef>,
    /// Nodes that were held, or came to a new parent, and may join a neighbour; each with the levels
    /// that are not below it: the upper ones come first. All of them are in the tree.
    near: BTreeSet<(u8, NodeRef)>,
    /// Levels of which a node had no place there, a bit each: all their nodes are to be looked at.
    missed: u64,
    /// How far this has come.
    sweep: Option<Sweep>,
    /// An address is held, or was, and not all that follows from it has been looked at.
    pub was_held: bool,
    /// The deep node that was looked at last.
    last: Option<NodeRef>,
    /// Looks at deep nodes since the last change that could help.
    pub idle: usize,
}

/// A look at all nodes of a level, which goes on at a key.
#[derive(Debug)]
pub(super) struct Sweep {
    pub level: u8,
    pub from: Vec<u8>,
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
        let sweep = self.sweep.as_ref().map_or(0, |sweep| sweep.from.capacity());
        (self.deep.len() * size_of::<NodeRef>() + near + sweep) as u64
    }

    /// Whether there is anything to look at.
    pub fn has_work(&self) -> bool {
        let has_level = self.missed != 0 || self.sweep.is_some();
        has_level || !self.near.is_empty() || self.idle < self.deep.len()
    }

    /// Looks at a node later. If there are too many of them, all nodes of its level come later still.
    pub fn look_at(&mut self, level: u8, at: NodeRef) {
        self.idle = 0;
        let entry = (u8::MAX - level, at);
        if self.near.len() < MAX_MENDED_NODES || self.near.contains(&entry) {
            self.near.insert(entry);
        } else {
            self.missed |= 1 << level;
        }
    }

    /// Forgets a node of a level, which is freed.
    pub fn forget(&mut self, level: u8, at: NodeRef) {
        if !self.near.is_empty() {
            self.near.remove(&(u8::MAX - level, at));
        }
        if !self.deep.is_empty() {
            self.deep.remove(&at);
            self.idle = 0;
        }
    }

    /// The next node that is no deep one.
    pub fn next_near(&mut self) -> Option<NodeRef> {
        self.near.pop_first().map(|(_, at)| at)
    }

    /// The level that is looked at as a whole, and where; upper ones come first.
    pub fn next_sweep(&mut self) -> Option<Sweep> {
        self.sweep.take().or_else(|| {
            let level = self.missed.checked_ilog2()? as u8;
            self.missed &= !(1 << level);
            Some(Sweep { level, from: Vec::new() })
        })
    }

    /// Where it goes on; `None`: the level has ended.
    pub fn go_on(&mut self, sweep: Option<Sweep>) {
        self.sweep = sweep;
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
