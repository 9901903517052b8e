//! What the levels of a tree hold: kept with each change, so that no request walks over the nodes.

use super::image::Image;
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
