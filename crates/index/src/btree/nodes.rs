//! The nodes themselves, as they are listed and handed out: who holds their content leads its own
//! lookups to their children (Fat-B+Tree II, IV-B).

use super::shapes::Shapes;
use super::tree::{Tree, TreeError};
use remora_arena::{Journal, Owner};
use remora_layout::btree::{ChildInfo, InnerNode, LevelInfo, NodeInfo};
use remora_layout::limits::MAX_ORDERED_KEY_BYTES;
use remora_layout::node::NodeRef;
use std::collections::VecDeque;

/// What is to be handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// The epoch that holds the children's addresses.
    pub epoch: u64,
    /// Until then, by the clock of [`Tree::lapse`].
    pub until_ms: u64,
    /// Levels of inner nodes, from the top; deep nodes count as levels.
    pub levels: usize,
    /// A node whose address the epoch holds, at which they begin; `None`: at the root.
    pub below: Option<NodeRef>,
}

impl Tree {
    /// Its levels, from the root down. It looks at no node but those whose lookups are counted.
    pub fn levels<J: Journal>(&self, owner: &Owner<J>) -> Vec<LevelInfo> {
        let height = usize::from(self.header.height);
        let mut levels: Vec<LevelInfo> = (0..height).map(|level| self.shapes.at(level)).collect();
        levels[0].entries += self.keys;
        for (at, accesses) in self.accesses.all() {
            levels[usize::from(self.node(owner, at).level())].accesses += accesses;
        }
        levels.reverse();
        levels
    }

    /// Counts what the levels of a tree hold that has just been loaded: it looks at inner nodes only.
    pub(super) fn count_shapes<J: Journal>(&self, owner: &Owner<J>) -> Shapes {
        let mut shapes = Shapes::default();
        shapes.of(self.header.height - 1).nodes += 1;
        let mut waiting = vec![self.header.root];
        // Bounded by the nodes: each of them comes once.
        while let Some(at) = waiting.pop() {
            let node = self.node(owner, at);
            if node.is_leaf() {
                continue;
            }
            let entries = node.entries();
            shapes.of(node.level()).entries += entries as u64;
            shapes.of(node.child_level()).nodes += entries as u64;
            if node.child_level() > 0 {
                waiting.extend((0..entries).filter_map(|index| node.child(index)));
            }
        }
        shapes
    }

    /// Counts a lookup of a key. One of some counts for all of them; that one gives the bytes that the
    /// tree takes on the heap before and after.
    #[inline]
    pub fn note_lookup<J: Journal>(&mut self, owner: &Owner<J>, key: &[u8]) -> Option<(u64, u64)> {
        if !self.accesses.is_sample() {
            return None;
        }
        let before = self.heap_bytes();
        self.sample(owner, key);
        Some((before, self.heap_bytes()))
    }

    #[cold]
    fn sample<J: Journal>(&mut self, owner: &Owner<J>, key: &[u8]) {
        self.accesses.begin_sample();
        let mut accesses = std::mem::take(&mut self.accesses);
        self.descend(owner, key, |at, _| accesses.count(at));
        self.accesses = accesses;
    }

    fn info<J: Journal>(&self, owner: &Owner<J>, at: NodeRef) -> NodeInfo {
        let node = self.node(owner, at);
        let counts = (0..node.entries()).map(|index| owner.word(self.count_word(at, index)));
        let keys = if node.is_leaf() { node.entries() as u64 } else { counts.sum() };
        let accesses = self.accesses.of(at);
        NodeInfo { at, level: node.level(), is_deep: node.is_deep(), keys, accesses }
    }

    /// The content of an inner node.
    fn inner<J: Journal>(&self, owner: &Owner<J>, at: NodeRef) -> InnerNode {
        let node = self.node(owner, at);
        let mut key = [0; MAX_ORDERED_KEY_BYTES];
        let children = (0..node.entries()).map(|index| {
            let child = node.child(index).expect("the owner's own");
            ChildInfo {
                key: node.key(index, &mut key).expect("the owner's own").to_vec(),
                at: child,
                keys: owner.word(self.count_word(at, index)),
                accesses: self.accesses.of(child),
            }
        });
        InnerNode {
            children: children.collect(),
            info: self.info(owner, at),
            low: node.low().to_vec(),
            high: node.high().map(<[u8]>::to_vec),
        }
    }

    /// Hands over inner nodes, from the top, and holds the addresses of their children. Nodes come
    /// until `each` takes no more: the one that it refuses is not handed over. Gives their number. An
    /// epoch that held nothing before, and to which no node comes, does not begin.
    ///
    /// # Errors
    /// More addresses would be held than may be, the epoch does not hold the node at which they are to
    /// begin, or `each` took not even the first node; no address is held more than before.
    pub fn hold<J: Journal>(
        &mut self,
        owner: &Owner<J>,
        hold: Hold,
        mut each: impl FnMut(&InnerNode) -> bool,
    ) -> Result<usize, TreeError> {
        let Hold { epoch, until_ms, levels, below } = hold;
        if below.is_some_and(|at| !self.pins.is_of(epoch, at)) {
            return Err(TreeError::NotHeld);
        }
        let (mut named, mut nodes) = (Vec::new(), 0);
        let mut waiting = VecDeque::from([(below.unwrap_or(self.header.root), 0)]);
        // Bounded by the nodes, and by what `each` takes.
        while let Some((at, depth)) = waiting.pop_front() {
            if depth >= levels || self.node(owner, at).is_leaf() {
                continue;
            }
            let inner = self.inner(owner, at);
            if !each(&inner) {
                if nodes == 0 {
                    return Err(TreeError::NoneTaken);
                }
                break;
            }
            nodes += 1;
            named.extend(inner.children.iter().map(|child| child.at));
            waiting.extend(inner.children.iter().map(|child| (child.at, depth + 1)));
        }
        if nodes > 0 || self.pins.has(epoch) {
            self.pin(epoch, named, until_ms)?;
        }
        Ok(nodes)
    }

    /// Hands over the nodes of a level, so many at most, in the order of their keys; a deep one comes
    /// before its children.
    pub fn nodes_of<J: Journal>(
        &self,
        owner: &Owner<J>,
        level: u8,
        limit: usize,
        mut each: impl FnMut(NodeInfo),
    ) {
        let mut waiting = vec![self.header.root];
        let mut left = limit;
        // Bounded by the limit, and by the nodes above.
        while let Some(at) = waiting.pop()
            && left > 0
        {
            let node = self.node(owner, at);
            if node.level() == level {
                each(self.info(owner, at));
                left -= 1;
            }
            if !node.is_leaf() && node.child_level() >= level {
                let children = (0..node.entries()).rev().filter_map(|index| node.child(index));
                waiting.extend(children);
            }
        }
    }
}
