//! Insertion and removal for all kinds of tree but the Hilbert R-tree, on images of nodes. The
//! kinds differ in the path that an entry takes and in the treatment of a node with one entry too
//! many.

use super::geometry::{least_growth, mbr};
use super::owned_node::prefetch_node;
use super::way::{Path, Way};
use super::write_set::{Changed, WriteSet};
use super::{guttman, rstar};
use crate::pool::{Arena, Pool};
use remora_arena::{ArenaFull, Journal};
use remora_layout::node::{Entry, NodeRef};
use remora_layout::rect::Rect;
use remora_layout::tree::{TreeHeader, TreeKind};

/// A change in progress, and its context.
pub(super) struct Change<'c, 'a, J: Journal> {
    pub arena: &'c mut Arena<'a, J>,
    pub pool: &'c mut Pool,
    pub edit: &'c mut WriteSet,
    /// The tree's header as it will be, but for the counter.
    pub header: TreeHeader,
    /// Fewest entries of a node that is not the root.
    pub least: usize,
}

impl<J: Journal> Change<'_, '_, J> {
    pub fn entries(&self, at: NodeRef) -> &[Entry] {
        self.edit.entries(self.arena.owner, at)
    }

    pub fn entries_mut(&mut self, at: NodeRef) -> &mut Vec<Entry> {
        self.edit.entries_mut(self.arena.owner, at)
    }

    pub fn new_node(&mut self, level: u8) -> Result<NodeRef, ArenaFull> {
        self.edit.new_node(self.arena, self.pool, level)
    }

    pub fn free_node(&mut self, at: NodeRef) {
        self.edit.free_node(self.arena.owner, at);
    }

    /// Adds an object.
    pub fn put(&mut self, entry: Entry) -> Result<(), ArenaFull> {
        if self.header.kind == TreeKind::Hilbert {
            return self.put_in_order(entry);
        }
        self.edit.orphans.push((entry, 0));
        self.settle()
    }

    /// Finds ways to leaves, level by level: the nodes of one level come from memory while the
    /// others' entries are compared.
    pub fn look_ahead(&self, ways: &mut [Way]) {
        if self.header.kind == TreeKind::Hilbert {
            ways.iter_mut().for_each(|way| way.rect = None);
        }
        for way in &mut *ways {
            way.path.clear();
            way.end = self.header.root;
        }
        for above in (1..self.header.height).rev() {
            for Way { rect, path, end } in &mut *ways {
                let Some(rect) = rect else { continue };
                *end = self.way_from(*end, above, rect, path);
                self.prefetch(*end);
            }
        }
    }

    /// As [`Change::put`], by a way found before, if it still leads to its leaf.
    pub fn put_by(&mut self, entry: Entry, way: &mut Way) -> Result<(), ArenaFull> {
        let leaf = way.end;
        if way.rect != Some(entry.rect) || !self.leads_to(&way.path, leaf) {
            return self.put(entry);
        }
        self.entries_mut(leaf).push(entry);
        self.go_up(leaf, 0, &mut way.path, Some(entry.rect))?;
        self.settle()
    }

    /// Whether a path is one from the root to this leaf.
    fn leads_to(&self, path: &Path, leaf: NodeRef) -> bool {
        let mut at = self.header.root;
        let all_are_ways = path.iter().all(|&(node, index)| {
            let is_next = node == at;
            at = self.entries(at).get(index).map_or(at, |way| NodeRef::from_word(way.word));
            is_next
        });
        all_are_ways && at == leaf && path.len() + 1 == self.header.height as usize
    }

    /// Removes the object at an index of a leaf.
    pub fn remove(&mut self, leaf: u32, index: usize) -> Result<(), ArenaFull> {
        let path = self.find(leaf, index);
        let &(at, _) = path.last().expect("a way ends at a leaf");
        self.edit.changed = Some(Changed::Removed(self.entries(at)[index].word));
        self.take_out(path)?;
        self.settle()
    }

    /// Gives the object at an index of a leaf another rectangle, or another word.
    pub fn move_to(&mut self, leaf: u32, index: usize, to: Entry) -> Result<(), ArenaFull> {
        let mut path = self.find(leaf, index);
        self.edit.changed = Some(Changed::Moved(to.word));
        let stays = match path[..] {
            [.., (parent, way), _] => self.entries(parent)[way].rect.contains(&to.rect),
            _ => true,
        };
        if stays && self.header.kind != TreeKind::Hilbert {
            let (at, index) = path.pop().expect("a way ends at a leaf");
            self.entries_mut(at)[index] = to;
            return self.go_up(at, 0, &mut path, None);
        }
        self.take_out(path)?;
        if self.edit.orphans.is_empty() {
            // A node that shares with neighbours needs some.
            self.shrink_root();
        }
        self.put(to)
    }

    fn take_out(&mut self, path: Path) -> Result<(), ArenaFull> {
        match self.header.kind {
            TreeKind::Hilbert => self.take_out_in_order(path),
            _ => {
                self.condense(path);
                Ok(())
            }
        }
    }

    fn top_level(&self) -> u8 {
        self.header.height - 1
    }

    /// Puts all orphans into nodes. Bounded: entries are reinserted once for each level and change.
    fn settle(&mut self) -> Result<(), ArenaFull> {
        let mut path = std::mem::take(&mut self.edit.path);
        while let Some((entry, level)) = self.edit.orphans.pop() {
            let at = self.way_to(&entry.rect, level, &mut path);
            self.entries_mut(at).push(entry);
            self.go_up(at, level, &mut path, Some(entry.rect))?;
        }
        self.edit.path = path;
        Ok(())
    }

    /// The node of a level where an entry belongs, and the path to it.
    fn way_to(&self, rect: &Rect, level: u8, path: &mut Path) -> NodeRef {
        path.clear();
        let mut at = self.header.root;
        for above in (level + 1..self.header.height).rev() {
            at = self.way_from(at, above, rect, path);
        }
        at
    }

    /// The child of a node of level `above` to which an entry's path goes on.
    fn way_from(&self, at: NodeRef, above: u8, rect: &Rect, path: &mut Path) -> NodeRef {
        let entries = self.entries(at);
        let (mut index, contains) = least_growth(entries, rect);
        // A child that contains it does not increase its overlap.
        if self.header.kind == TreeKind::RStar && above == 1 && !contains {
            // Mostly it stays the one.
            self.prefetch(NodeRef::from_word(entries[index].word));
            index = rstar::choose_leaf(entries, rect, index);
        }
        path.push((at, index));
        NodeRef::from_word(entries[index].word)
    }

    fn prefetch(&self, at: NodeRef) {
        prefetch_node(self.arena.owner, at, self.header.capacity as usize);
    }

    /// Restores everything above a changed node: it treats overflowing nodes, and makes boxes
    /// tight. `added` covers all added entries, if nothing else has changed.
    fn go_up(
        &mut self,
        mut at: NodeRef,
        mut level: u8,
        path: &mut Path,
        mut added: Option<Rect>,
    ) -> Result<(), ArenaFull> {
        loop {
            let mut sibling = None;
            if self.entries(at).len() > self.header.capacity as usize {
                added = None;
                sibling = self.overflow_treatment(at, level)?;
            }
            let Some((parent, index)) = path.pop() else {
                return match sibling {
                    Some(sibling) => self.grow_root(at, sibling, level),
                    None => Ok(()),
                };
            };
            let before = self.entries(parent)[index].rect;
            let after = match &added {
                Some(rect) => before.union(rect),
                None => mbr(self.entries(at)),
            };
            if after == before && sibling.is_none() {
                return Ok(());
            }
            self.entries_mut(parent)[index].rect = after;
            if let Some(sibling) = sibling {
                let rect = mbr(self.entries(sibling));
                self.entries_mut(parent).push(Entry { rect, word: sibling.to_word() });
            }
            (at, level) = (parent, level + 1);
        }
    }

    /// Takes entries out of a node that has one too many: into a new node, or into the orphans.
    fn overflow_treatment(&mut self, at: NodeRef, level: u8) -> Result<Option<NodeRef>, ArenaFull> {
        let is_first = self.edit.reinserted & 1 << level == 0;
        if self.header.kind == TreeKind::RStar && level < self.top_level() && is_first {
            self.edit.reinserted |= 1 << level;
            let far = rstar::reinsert_candidates(self.entries_mut(at));
            self.edit.orphans.extend(far.into_iter().map(|entry| (entry, level)));
            return Ok(None);
        }
        let sibling = self.new_node(level)?;
        let (kind, least) = (self.header.kind, self.least);
        let entries = self.entries_mut(at);
        let part = match kind {
            TreeKind::RStar => rstar::split(entries, least),
            _ => guttman::split(entries, least),
        };
        self.entries_mut(sibling).extend_from_slice(&part);
        Ok(Some(sibling))
    }

    /// A new root above the old one and its new sibling.
    pub fn grow_root(
        &mut self,
        old: NodeRef,
        sibling: NodeRef,
        level: u8,
    ) -> Result<(), ArenaFull> {
        let root = self.new_node(level + 1)?;
        for child in [old, sibling] {
            let rect = mbr(self.entries(child));
            self.entries_mut(root).push(Entry { rect, word: child.to_word() });
        }
        self.header.root = root;
        self.header.height += 1;
        Ok(())
    }

    /// The path to an entry of a leaf: the leaf comes last, with the entry's index.
    fn find(&self, leaf: u32, index: usize) -> Path {
        let rect = self.entries(NodeRef { slot: leaf, generation: 0 })[index].rect;
        let mut path = Path::with_capacity(self.header.height as usize);
        let found = self.find_below(self.header.root, self.top_level(), leaf, &rect, &mut path);
        assert!(found, "a way leads to each leaf");
        path.last_mut().expect("a leaf").1 = index;
        path
    }

    /// Adds the path from a node to a leaf, if it leads there.
    fn find_below(&self, at: NodeRef, level: u8, leaf: u32, rect: &Rect, path: &mut Path) -> bool {
        if level == 0 {
            path.push((at, 0));
            return true;
        }
        for (index, entry) in self.entries(at).iter().enumerate() {
            let child = NodeRef::from_word(entry.word);
            if level == 1 && child.slot != leaf || !entry.rect.contains(rect) {
                continue;
            }
            path.push((at, index));
            if self.find_below(child, level - 1, leaf, rect, path) {
                return true;
            }
            path.pop();
        }
        false
    }

    /// Removes the entry at the end of a path. It frees nodes that become too small, and makes
    /// their entries orphans.
    fn condense(&mut self, mut path: Path) {
        let (mut at, index) = path.pop().expect("a way ends at a leaf");
        self.entries_mut(at).swap_remove(index);
        let mut level = 0;
        while let Some((parent, index)) = path.pop() {
            if self.entries(at).len() < self.least {
                self.entries_mut(parent).swap_remove(index);
                let entries = std::mem::take(self.entries_mut(at));
                self.edit.orphans.extend(entries.into_iter().map(|entry| (entry, level)));
                self.free_node(at);
            } else {
                let after = mbr(self.entries(at));
                if self.entries(parent)[index].rect == after {
                    return;
                }
                self.entries_mut(parent)[index].rect = after;
            }
            (at, level) = (parent, level + 1);
        }
    }

    /// An inner root with one child is one too many.
    pub fn shrink_root(&mut self) {
        while self.header.height > 1 && self.entries(self.header.root).len() == 1 {
            let old = self.header.root;
            self.header.root = NodeRef::from_word(self.entries(old)[0].word);
            self.header.height -= 1;
            self.free_node(old);
        }
    }
}
