//! What the levels of a tree hold: kept with each change, so that nobody has to walk over the nodes.

use super::image::Image;
use super::tree::Tree;
use remora_arena::{Journal, Owner};
use remora_layout::btree::{LevelInfo, OrderedNode};

/// What each level holds, from the leaves up. Entries of leaves are the keys of the tree, and are not
/// counted here.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Shapes(Vec<LevelInfo>);

impl Shapes {
    /// Those of a tree with one leaf.
    pub fn of_leaf() -> Self {
        Self(vec![LevelInfo { nodes: 1, ..LevelInfo::default() }])
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<LevelInfo>()) as u64
    }

    /// What a level holds.
    pub fn of(&mut self, level: u8) -> &mut LevelInfo {
        let level = usize::from(level);
        if level >= self.0.len() {
            self.0.resize(level + 1, LevelInfo::default());
        }
        &mut self.0[level]
    }

    /// A node comes, with this content.
    pub fn add(&mut self, image: &Image) {
        let info = self.of(image.level);
        info.nodes += 1;
        match image.is_deep {
            true => info.deep += 1,
            false if image.level > 0 => info.entries += image.entries.len() as u64,
            false => {}
        }
    }

    /// A node goes, or gets another content.
    pub fn remove(&mut self, node: &OrderedNode<'_>) {
        let info = self.of(node.level());
        info.nodes -= 1;
        match node.is_deep() {
            true => info.deep -= 1,
            false if !node.is_leaf() => info.entries -= node.entries() as u64,
            false => {}
        }
    }

    /// A leaf was divided, below a node of this level.
    pub fn divided(&mut self, level: u8, is_deep: bool) {
        self.of(0).nodes += 1;
        if !is_deep {
            self.of(level).entries += 1;
        }
    }

    /// What it holds of a level.
    pub fn at(&self, level: usize) -> LevelInfo {
        self.0.get(level).copied().unwrap_or_default()
    }
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
}
