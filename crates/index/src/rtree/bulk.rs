//! Builds a tree of many objects in an empty one: level by level from the leaves up, with nodes as
//! full as possible. Objects are tiled (STR: Leutenegger et al., ICDE 1997), in a Hilbert R-tree in
//! the order of its curve.
//!
//! The build runs in steps, between which the tree's owner serves others. No path leads to a node
//! before the last step.

use super::geometry::mbr;
use super::hilbert;
use super::leaf_index::LeafIndex;
use super::sort::Sort;
use super::tree::{Tree, TreeError};
use super::write_set::write_new_node;
use crate::pool::Arena;
use remora_arena::Journal;
use remora_layout::node::{Entry, NodeRef, NodeShape};
use remora_layout::rect::Rect;
use remora_layout::tree::{TreeHeader, TreeKind};
use std::ops::Range;

/// What an entry of a node that is written costs, counted in looks at sort keys.
const WRITE_WORK: usize = 8;
/// Entries whose memory one step gives back.
const CLEAR_ENTRIES: usize = 1 << 16;
/// Nodes that one step gives back.
const CLEAR_NODES: usize = 1 << 10;

/// A tree that is being built: see [`Tree::build_some`]. If the owner gives it up,
/// [`Tree::unbuild_some`] frees its nodes.
#[derive(Default)]
pub struct Build {
    /// The entries of the level that is being built, the objects at first.
    entries: Vec<Entry>,
    /// The objects, once they stand in leaves.
    written: Vec<Entry>,
    /// Their largest Hilbert values, of a Hilbert R-tree above its leaves.
    lhvs: Vec<u64>,
    level: u8,
    /// Nodes that the level will have.
    nodes: usize,
    /// The remaining tasks for the level's entries, the next task last.
    tasks: Vec<Task>,
    above: Vec<Entry>,
    lhvs_above: Vec<u64>,
    ids: Option<LeafIndex>,
    made: Vec<NodeRef>,
}

enum Task {
    Sort(Axis, Sort<u64>),
    /// The entries of these nodes are to be sorted as a slice: by y.
    Slice(Range<usize>),
    /// These nodes are to be written.
    Write(Range<usize>),
}

/// The sort key of entries.
#[derive(Clone, Copy)]
enum Axis {
    X,
    Y,
    Curve,
}

impl Build {
    /// Of no objects yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds objects, before the first step: ids, and checked rectangles ([`Rect::checked`]).
    pub fn extend(&mut self, objects: impl Iterator<Item = Entry>) {
        self.entries.extend(objects);
    }

    /// Makes room for so many objects in all, and no more.
    pub fn reserve(&mut self, objects: usize) {
        self.entries.reserve_exact(objects - self.entries.len());
    }

    /// Objects that were taken in.
    pub fn objects(&self) -> usize {
        self.list().len()
    }

    /// Objects that there is room for.
    pub fn room(&self) -> usize {
        self.list().capacity()
    }

    /// Whether it takes no more objects: the first step was done.
    pub fn has_begun(&self) -> bool {
        self.ids.is_some()
    }

    /// Bytes that it takes on the heap.
    pub fn heap_bytes(&self) -> u64 {
        let lists = [&self.entries, &self.written, &self.above].map(Vec::capacity);
        let words = self.lhvs.capacity() + self.lhvs_above.capacity() + self.made.capacity();
        let bytes = lists.iter().sum::<usize>() * size_of::<Entry>() + words * 8;
        bytes as u64 + self.ids.as_ref().map_or(0, LeafIndex::bytes)
    }

    fn list(&self) -> &Vec<Entry> {
        if self.level == 0 { &self.entries } else { &self.written }
    }

    /// Frees some of the heap memory of a finished build. True once little is left.
    pub fn clear_some(&mut self) -> bool {
        for entries in [&mut self.entries, &mut self.written] {
            entries.truncate(entries.len().saturating_sub(CLEAR_ENTRIES));
            entries.shrink_to_fit();
        }
        self.entries.is_empty() && self.written.is_empty()
    }

    /// Where the entries of a node of the level begin.
    fn share(&self, node: usize) -> usize {
        share(self.entries.len(), self.nodes, node)
    }
}

impl Tree {
    /// Continues to build this tree, which is empty: `work` counts looks at sort keys, or equal
    /// time, and may be exceeded a little. True once all is planned: the caller has to publish the
    /// plan before any other change of the tree.
    ///
    /// # Errors
    /// An id occurs twice: the build is over. Or memory is full: it may continue once there is
    /// some.
    pub fn build_some<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        build: &mut Build,
        mut work: usize,
    ) -> Result<bool, TreeError> {
        if self.objects() > 0 {
            return Err(TreeError::NotEmpty);
        }
        if build.entries.is_empty() {
            return Ok(true);
        }
        if build.ids.is_none() {
            build.ids = Some(LeafIndex::new(self.home.secret, build.entries.len()));
            self.begin_level(build);
        }
        // Bounded by the work.
        while work > 0 {
            match build.tasks.pop() {
                Some(Task::Sort(axis, mut sort)) => {
                    let bounds = self.header.bounds;
                    let ended = match axis {
                        Axis::X => sort.go_on(&mut build.entries, x_key, &mut work),
                        Axis::Y => sort.go_on(&mut build.entries, y_key, &mut work),
                        Axis::Curve => {
                            let key = |entry: &Entry| hilbert::value(&entry.rect, &bounds);
                            sort.go_on(&mut build.entries, key, &mut work)
                        }
                    };
                    if !ended {
                        build.tasks.push(Task::Sort(axis, sort));
                    }
                }
                Some(Task::Slice(nodes)) => {
                    let entries = build.share(nodes.start)..build.share(nodes.end);
                    build.tasks.push(Task::Write(nodes));
                    build.tasks.push(Task::Sort(Axis::Y, Sort::new(self.home.secret, entries)));
                }
                Some(Task::Write(nodes)) if nodes.is_empty() => {}
                Some(Task::Write(nodes)) => {
                    let written = self.write_node(arena, build, nodes.start);
                    let rest = nodes.start + usize::from(written.is_ok())..nodes.end;
                    build.tasks.push(Task::Write(rest));
                    work = work.saturating_sub(written? * WRITE_WORK);
                }
                None if build.nodes == 1 => {
                    let root = NodeRef::from_word(build.above[0].word);
                    let header = TreeHeader { root, height: build.level + 1, ..self.header };
                    self.plan_root(arena, header, build.ids.take().expect("they are kept"));
                    build.made.clear();
                    return Ok(true);
                }
                None => {
                    let entries = std::mem::take(&mut build.above);
                    let below = std::mem::replace(&mut build.entries, entries);
                    if build.level == 0 {
                        build.written = below;
                    }
                    build.lhvs = std::mem::take(&mut build.lhvs_above);
                    build.level += 1;
                    self.begin_level(build);
                }
            }
        }
        Ok(false)
    }

    /// Frees some of the nodes of a build that is given up. True once there are no more.
    pub fn unbuild_some<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        build: &mut Build,
    ) -> bool {
        let kept = build.made.len().saturating_sub(CLEAR_NODES);
        build.made.drain(kept..).for_each(|at| self.pool.give(arena, at));
        kept == 0
    }

    /// Loads objects, ids with their rectangles, into an empty tree, in one step, and publishes
    /// them.
    ///
    /// # Errors
    /// The tree is not empty, an id occurs twice, or memory is full.
    pub fn load<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        objects: Vec<(u64, Rect)>,
    ) -> Result<(), TreeError> {
        let entries = objects.into_iter().map(|(word, rect)| {
            let rect = rect.checked()?;
            Ok(Entry { rect, word })
        });
        let mut build = Build::new();
        build.extend(entries.collect::<Result<Vec<_>, TreeError>>()?.into_iter());
        let built = self.build_some(arena, &mut build, usize::MAX);
        if built.is_ok() {
            self.publish(arena);
        }
        // Bounded: each step gives something back.
        while !self.unbuild_some(arena, &mut build) {}
        built.map(drop)
    }

    /// Plans the tasks for the entries of a level.
    fn begin_level(&self, build: &mut Build) {
        let TreeHeader { kind, capacity, .. } = self.header;
        let entries = build.entries.len();
        let nodes = entries.div_ceil(capacity as usize);
        build.nodes = nodes;
        (build.above, build.lhvs_above) = (Vec::with_capacity(nodes), Vec::new());
        let whole = |axis| Task::Sort(axis, Sort::new(self.home.secret, 0..entries));
        if kind == TreeKind::Hilbert {
            build.tasks.push(Task::Write(0..nodes));
            build.tasks.extend((build.level == 0).then(|| whole(Axis::Curve)));
            return;
        }
        let slices = (nodes as f64).sqrt().ceil() as usize;
        let slice = |at| Task::Slice(share(nodes, slices, at)..share(nodes, slices, at + 1));
        build.tasks.extend((0..slices).rev().map(slice));
        build.tasks.push(whole(Axis::X));
    }

    /// Writes a node of the level; no path leads to it yet. Returns the number of its entries.
    fn write_node<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        build: &mut Build,
        node: usize,
    ) -> Result<usize, TreeError> {
        let TreeHeader { kind, bounds, .. } = self.header;
        let (from, to) = (build.share(node), build.share(node + 1));
        let part = &build.entries[from..to];
        let lhv = match (kind, build.level) {
            (TreeKind::Hilbert, 0) => hilbert::value(&part[part.len() - 1].rect, &bounds),
            (TreeKind::Hilbert, _) => build.lhvs[to - 1],
            _ => 0,
        };
        let at = self.pool.take(arena)?;
        build.made.push(at);
        let shape = NodeShape { entries: part.len() as u16, level: build.level, kind };
        write_new_node(arena, self.home, at, shape, lhv, part);
        if let Some(ids) = build.ids.as_mut().filter(|_| build.level == 0) {
            ids.add_leaf(arena.owner, at.slot, part).map_err(TreeError::TwiceGiven)?;
        }
        build.above.push(Entry { rect: mbr(part), word: at.to_word() });
        if kind == TreeKind::Hilbert {
            build.lhvs_above.push(lhv);
        }
        Ok(part.len())
    }
}

/// Where the part of node number `node` begins if `entries` are shared evenly.
fn share(entries: usize, nodes: usize, node: usize) -> usize {
    (entries as u128 * node as u128 / nodes as u128) as usize
}

fn x_key(entry: &Entry) -> u64 {
    in_order(entry.rect.centre().0)
}

fn y_key(entry: &Entry) -> u64 {
    in_order(entry.rect.centre().1)
}

/// A number whose order is that of `f64::total_cmp`.
fn in_order(coordinate: f64) -> u64 {
    let bits = coordinate.to_bits();
    let flipped = if bits >> 63 == 1 { u64::MAX } else { 1 << 63 };
    bits ^ flipped
}
