//! Loading many objects at once into an empty tree: levels from the leaves up,
//! nodes as full as they can be. Objects come in tiles (STR: Leutenegger et
//! al., ICDE 1997), in a Hilbert R-tree in the order of its curve.

use super::edit::write_new_node;
use super::geometry::around;
use super::hilbert;
use super::ids::Ids;
use super::pool::Arena;
use super::tree::{Tree, TreeError};
use remora_arena::Journal;
use remora_layout::node::{Entry, NodeRef, NodeShape};
use remora_layout::rect::Rect;
use remora_layout::tree::{TreeHeader, TreeKind};

/// Nodes after which whoever loads is told how far it is.
const TOLD_EVERY_NODES: usize = 1024;

impl Tree {
    /// Plans to load objects, ids with their rectangles, into an empty tree: writes
    /// nodes that no reader can reach before [`Tree::publish`]. `progress` is told
    /// the number of objects in finished leaves now and then.
    ///
    /// # Errors
    /// The tree is not empty, an id stands twice, or memory is full.
    pub fn plan_load<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        objects: Vec<(u64, Rect)>,
        mut progress: impl FnMut(u64),
    ) -> Result<(), TreeError> {
        if self.objects() > 0 {
            return Err(TreeError::NotEmpty);
        }
        let mut entries = Vec::with_capacity(objects.len());
        for (id, rect) in objects {
            entries.push(Entry { rect: rect.checked()?, word: id });
        }
        if entries.is_empty() {
            return Ok(());
        }
        let mut made = Vec::new();
        let mut ids = Ids::new(self.home.secret, entries.len());
        match self.build(arena, entries, &mut ids, &mut made, &mut progress) {
            Ok(header) => {
                self.plan_root(arena, header, ids);
                Ok(())
            }
            Err(error) => {
                made.into_iter().for_each(|at| self.pool.give(arena, at));
                Err(error)
            }
        }
    }

    /// [`Tree::plan_load`], published at once.
    ///
    /// # Errors
    /// As there.
    pub fn load<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        objects: Vec<(u64, Rect)>,
        progress: impl FnMut(u64),
    ) -> Result<(), TreeError> {
        self.plan_load(arena, objects, progress)?;
        self.publish(arena);
        Ok(())
    }

    /// Writes all nodes; no way leads to them yet.
    fn build<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        mut entries: Vec<Entry>,
        ids: &mut Ids,
        made: &mut Vec<NodeRef>,
        progress: &mut impl FnMut(u64),
    ) -> Result<TreeHeader, TreeError> {
        let TreeHeader { kind, capacity, bounds, .. } = self.header;
        let capacity = capacity as usize;
        if kind == TreeKind::Hilbert {
            entries.sort_by_cached_key(|entry| hilbert::value(&entry.rect, &bounds));
        }
        let mut lhvs = Vec::new();
        // Bounded by the height: each level has fewer nodes.
        for level in 0.. {
            let nodes = entries.len().div_ceil(capacity);
            if kind != TreeKind::Hilbert {
                tile(&mut entries, nodes);
            }
            let mut above = Vec::with_capacity(nodes);
            let mut lhvs_above = Vec::with_capacity(nodes);
            for node in 0..nodes {
                let (from, to) =
                    (share(entries.len(), nodes, node), share(entries.len(), nodes, node + 1));
                let part = &entries[from..to];
                let lhv = match (kind, level) {
                    (TreeKind::Hilbert, 0) => hilbert::value(&part[part.len() - 1].rect, &bounds),
                    (TreeKind::Hilbert, _) => lhvs[to - 1],
                    _ => 0,
                };
                let at = self.pool.take(arena)?;
                made.push(at);
                let shape = NodeShape { entries: part.len() as u16, level, kind };
                write_new_node(arena, self.home, at, shape, lhv, part);
                if level == 0 {
                    ids.add_leaf(arena.owner, at.slot, part).map_err(TreeError::TwiceGiven)?;
                }
                above.push(Entry { rect: around(part), word: at.to_word() });
                lhvs_above.push(lhv);
                if level == 0 && (node + 1 == nodes || node % TOLD_EVERY_NODES == 0) {
                    progress(to as u64);
                }
            }
            if nodes == 1 {
                let root = NodeRef::from_word(above[0].word);
                return Ok(TreeHeader { root, height: level + 1, ..self.header });
            }
            (entries, lhvs) = (above, lhvs_above);
        }
        unreachable!("the last level has one node")
    }
}

/// Where the part of node number `node` begins if `entries` are shared evenly.
fn share(entries: usize, nodes: usize, node: usize) -> usize {
    (entries as u128 * node as u128 / nodes as u128) as usize
}

/// Orders entries so that each run of a node's is a tile: slices by x, in each
/// slice by y.
fn tile(entries: &mut [Entry], nodes: usize) {
    let slices = (nodes as f64).sqrt().ceil() as usize;
    entries.sort_unstable_by(|a, b| a.rect.centre().0.total_cmp(&b.rect.centre().0));
    for slice in 0..slices {
        let edge = |slice| share(entries.len(), nodes, share(nodes, slices, slice));
        let part = edge(slice)..edge(slice + 1);
        entries[part].sort_unstable_by(|a, b| a.rect.centre().1.total_cmp(&b.rect.centre().1));
    }
}
