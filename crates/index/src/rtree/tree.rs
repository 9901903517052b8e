//! The writer's side of a tree: the owner's interface.

use super::change::Change;
use super::leaf_index::LeafIndex;
use super::owned_node::{entries_in, shape_in};
use super::way::Way;
use super::write_set::{WriteSet, store_header, write_new_node};
use crate::pool::{Arena, Pool, set_dead, set_state};
use crate::slot_table::HashSweep;
use remora_arena::{ArenaFull, Journal, Owner};
use remora_layout::limits::{MAX_NODE_ENTRIES, MIN_NODE_ENTRIES};
use remora_layout::node::{Entry, Home, NodeRef, NodeShape, node_bytes};
use remora_layout::record::State;
use remora_layout::rect::{BadRect, Rect};
use remora_layout::tree::{TreeHeader, TreeKind};

/// Fewest entries of a node, in percent of its capacity, unless it is the root. The value with the
/// fewest visited nodes: 2 M uniform rectangles, capacity 30, by inserts; with 33, 40, 50 the
/// R*-tree visits 6.82, 6.75, 10.24 nodes at scale 1e-5, Guttman's 14.21, 20.49, 24.41
/// (`crates/index/examples/rtree_counts.rs`).
const fn least_percent(kind: TreeKind) -> usize {
    match kind {
        TreeKind::RStar | TreeKind::Hilbert => 40,
        TreeKind::Guttman => 33,
    }
}

/// Objects of which the memory is fetched at a time, where several are put.
const AT_A_TIME: usize = 8;

/// Nodes that the first run has room for.
const FIRST_RUN_NODES: usize = 4;

/// Why a tree was not changed.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum TreeError {
    /// The given numbers are no rectangle.
    #[error(transparent)]
    BadRect(#[from] BadRect),
    /// There is no memory for another node.
    #[error(transparent)]
    Full(#[from] ArenaFull),
    /// A node cannot have so many entries.
    #[error("a node has room for {MIN_NODE_ENTRIES} to {MAX_NODE_ENTRIES} entries, not {0}")]
    BadCapacity(usize),
    /// Objects can be loaded into an empty tree only.
    #[error("the tree is not empty: only an empty one can be loaded")]
    NotEmpty,
    /// Two of the objects to be loaded have this id.
    #[error("object {0} is given twice")]
    TwiceGiven(u64),
}

/// The settings of a tree.
#[derive(Clone, Copy, Debug)]
pub struct TreeOptions {
    /// The variant of the writer.
    pub kind: TreeKind,
    /// Capacity of a node, in entries.
    pub capacity: usize,
    /// The area of most objects, which a Hilbert R-tree's curve fills. Other objects may lie
    /// outside. It has no effect for other kinds.
    pub bounds: Rect,
}

/// A tree of objects, each an id and a rectangle. Each id occurs once.
pub struct Tree {
    pub(super) home: Home,
    /// The place of the header.
    pub(super) at: NodeRef,
    pub(super) header: TreeHeader,
    pub(super) pool: Pool,
    edit: WriteSet,
    ids: LeafIndex,
    /// The planned change, not yet published.
    planned: Option<Planned>,
}

/// A planned change.
struct Planned {
    /// The future header, except the counter.
    header: TreeHeader,
    /// The places where objects will be found, if all of them change.
    ids: Option<LeafIndex>,
}

impl Tree {
    /// An empty tree, whose header is to lie at `at`: [`remora_layout::tree::TREE_HEADER_BYTES`]
    /// that are the caller's, under a generation never used there before. Readers that know the
    /// place can read it when this returns.
    ///
    /// # Errors
    /// No memory for its first node, or a capacity beyond the limits.
    pub fn create<J: Journal>(
        arena: &mut Arena<'_, J>,
        home: Home,
        at: NodeRef,
        options: TreeOptions,
    ) -> Result<Self, TreeError> {
        let TreeOptions { kind, capacity, bounds } = options;
        if !(MIN_NODE_ENTRIES..=MAX_NODE_ENTRIES).contains(&capacity) {
            return Err(TreeError::BadCapacity(capacity));
        }
        let bounds = if kind == TreeKind::Hilbert { bounds.checked()? } else { Rect::default() };
        let mut pool = Pool::new(node_bytes(capacity), FIRST_RUN_NODES);
        let root = pool.take(arena)?;
        write_new_node(arena, home, root, NodeShape { entries: 0, level: 0, kind }, 0, &[]);
        let header = TreeHeader {
            kind,
            capacity: capacity as u16,
            height: 1,
            root,
            counter: 0,
            bounds,
            has_geometries: false,
        };
        store_header(arena.owner, home, at, &header, true);
        set_state(arena.owner, at, State::Live);
        let ids = LeafIndex::new(home.secret, 0);
        Ok(Self { home, at, header, pool, edit: WriteSet::default(), ids, planned: None })
    }

    /// Ends the tree and frees its nodes' memory; its header is dead, and the header's place
    /// belongs to the caller.
    pub fn destroy<J: Journal>(mut self, arena: &mut Arena<'_, J>) {
        set_dead(arena.owner, self.at);
        // No reader finds a freed node through a live header.
        arena.owner.release();
        self.pool.give_all(arena);
    }

    /// Frees a bounded part of the nodes' memory, once the header is dead. True once there is no
    /// more; the caller may do nothing else with the tree.
    pub fn release_some<J: Journal>(&mut self, arena: &mut Arena<'_, J>) -> bool {
        self.pool.give_run(arena)
    }

    /// The place of the header, at which a reader begins.
    pub fn at(&self) -> NodeRef {
        self.at
    }

    /// The content of the header.
    pub fn header(&self) -> TreeHeader {
        self.header
    }

    /// From now on objects may differ from their rectangles: the header says so before readers can
    /// read the first such rectangle.
    pub fn tell_of_geometries<J: Journal>(&mut self, owner: &mut Owner<J>) {
        if !self.header.has_geometries {
            self.header.has_geometries = true;
            store_header(owner, self.home, self.at, &self.header, false);
        }
    }

    /// Objects in the tree.
    pub fn objects(&self) -> u64 {
        self.ids.objects()
    }

    /// The rectangle of an object; `None` if it is not in the tree.
    pub fn find<J: Journal>(&self, owner: &Owner<J>, id: u64) -> Option<Rect> {
        let (leaf, index) = self.ids.leaf_of(owner, id)?;
        Some(entries_in(owner, NodeRef { slot: leaf, generation: 0 })[index].rect)
    }

    /// Hands some objects to `found`, and continues behind them the next time; false if there are
    /// no more. The tree may change between two calls. Each object that is in it from the first
    /// call to the last is given at least once, also if it moves; its word stays the same. The
    /// number of calls is bounded by the objects at the beginning.
    pub fn sweep_some<J: Journal>(
        &self,
        owner: &Owner<J>,
        sweep: &mut HashSweep,
        found: impl FnMut(&Entry),
    ) -> bool {
        self.ids.sweep_some(owner, sweep, found)
    }

    /// Nodes in the tree.
    pub fn nodes(&self) -> u64 {
        self.pool.used()
    }

    /// Bytes of the arena that it takes, unused places included.
    pub fn bytes(&self) -> u64 {
        self.pool.bytes()
    }

    /// Bytes outside the arena of the index from ids to objects.
    pub fn index_bytes(&self) -> u64 {
        self.ids.bytes()
    }

    /// Bytes of the heap that it takes: the index of ids, the tree itself, and the memory kept
    /// between changes.
    pub fn heap_bytes(&self) -> u64 {
        let lists = self.pool.heap_bytes() + self.edit.heap_bytes();
        size_of::<Self>() as u64 + self.ids.bytes() + lists
    }

    /// Bytes of consecutive pages that it may need for one change, if it has no free places.
    pub fn wanted_run_bytes(&self) -> usize {
        self.pool.wanted_run_bytes()
    }

    /// Fewest entries of a node that is not the root.
    pub fn least_entries(&self) -> usize {
        (self.header.capacity as usize * least_percent(self.header.kind) / 100).max(2)
    }

    /// A node's level and entries.
    pub fn node<'a, J: Journal>(&self, owner: &'a Owner<J>, at: NodeRef) -> (u8, &'a [Entry]) {
        (shape_in(owner, at).level, entries_in(owner, at))
    }

    /// Plans to add an object, or to move the one with this id. True if it is new. The change is
    /// not visible to readers; a plan that fails has no effect.
    ///
    /// # Errors
    ///
    /// The argument is no rectangle, or memory is full.
    pub fn plan_put<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        id: u64,
        rect: Rect,
    ) -> Result<bool, TreeError> {
        self.plan_replace(arena, id, id, rect)
    }

    /// Plans to give the object with the id `old` another id and a rectangle, as
    /// one change: a walk finds one of the two. An object that is not there is
    /// added. True if it is new; none has the id `new`, unless that is `old`.
    ///
    /// # Errors
    /// As [`Tree::plan_put`].
    pub fn plan_replace<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        old: u64,
        new: u64,
        rect: Rect,
    ) -> Result<bool, TreeError> {
        self.plan_by(arena, (old, new), rect, None)
    }

    /// As [`Tree::plan_replace`], of an object that was looked for ahead.
    fn plan_by<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        (old, new): (u64, u64),
        rect: Rect,
        way: Option<&mut Way>,
    ) -> Result<bool, TreeError> {
        let entry = Entry { rect: rect.checked()?, word: new };
        let before = self.ids.leaf_of(arena.owner, old);
        self.plan(arena, |change| match (before, way) {
            (Some((leaf, index)), _) => change.move_to(leaf, index, entry),
            (None, Some(way)) => change.put_by(entry, way),
            (None, None) => change.put(entry),
        })?;
        Ok(before.is_none())
    }

    /// Plans to remove an object. False, and there is nothing to publish, if it
    /// is not there.
    ///
    /// # Errors
    /// Memory is full.
    pub fn plan_remove<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        id: u64,
    ) -> Result<bool, TreeError> {
        let Some((leaf, index)) = self.ids.leaf_of(arena.owner, id) else { return Ok(false) };
        self.plan(arena, |change| change.remove(leaf, index))?;
        Ok(true)
    }

    /// Publishes the planned change, at once for every reader. The changed nodes carry the arena's
    /// `changed_at`.
    pub fn publish<J: Journal>(&mut self, arena: &mut Arena<'_, J>) {
        let Some(Planned { header, ids }) = self.planned.take() else { return };
        // Since the plan the header may have announced geometries.
        let has_geometries = header.has_geometries || self.header.has_geometries;
        let header = TreeHeader { has_geometries, ..header };
        self.edit.compare(arena.owner, &mut self.ids);
        let Self { edit, pool, home, at, header: old, .. } = self;
        edit.publish(arena, pool, *home, *at, old, header);
        if let Some(ids) = ids {
            self.ids = ids;
        }
    }

    /// As [`Tree::plan_put`], and publishes at once.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn put<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        id: u64,
        rect: Rect,
    ) -> Result<bool, TreeError> {
        let is_new = self.plan_put(arena, id, rect)?;
        self.publish(arena);
        Ok(is_new)
    }

    /// As [`Tree::put`] for each of some objects, in their order. Each is a change of its own, but
    /// the memory of several is fetched together: with many objects in the tree this is faster.
    /// Gives the number of new ones.
    ///
    /// # Errors
    ///
    /// As there: the objects before the one that fails are in the tree.
    pub fn put_all<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        objects: &[(u64, Rect)],
    ) -> Result<u64, TreeError> {
        let mut ways = std::mem::take(&mut self.edit.ways);
        ways.resize_with(AT_A_TIME, Way::default);
        let all = objects.chunks(AT_A_TIME).try_fold(0, |new, objects| {
            self.look_ahead(arena, objects, &mut ways);
            objects.iter().zip(&mut ways).try_fold(new, |new, (&(id, rect), way)| {
                let is_new = self.plan_by(arena, (id, id), rect, Some(way))?;
                self.publish(arena);
                Ok(new + u64::from(is_new))
            })
        });
        self.edit.ways = ways;
        all
    }

    /// Finds the ways of those of some objects that are new. The memory of all of them is on its
    /// way at once: first of the index of ids, then of the nodes of each level.
    fn look_ahead<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        objects: &[(u64, Rect)],
        ways: &mut [Way],
    ) {
        for ((id, rect), way) in objects.iter().zip(&mut *ways) {
            let is_new = self.ids.leaf_of(arena.owner, *id).is_none();
            way.begin(rect.checked().ok().filter(|_| is_new));
        }
        self.change(arena).look_ahead(&mut ways[..objects.len()]);
    }

    /// As [`Tree::plan_remove`], and publishes at once.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn remove<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        id: u64,
    ) -> Result<bool, TreeError> {
        let is_there = self.plan_remove(arena, id)?;
        self.publish(arena);
        Ok(is_there)
    }

    /// Plans to replace an empty tree by one just built.
    pub(super) fn plan_root<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        header: TreeHeader,
        ids: LeafIndex,
    ) {
        let old = self.header.root;
        self.edit.free_node(arena.owner, old);
        self.planned = Some(Planned { header, ids: Some(ids) });
    }

    /// A change that has not begun.
    fn change<'c, 'a, J: Journal>(&'c mut self, arena: &'c mut Arena<'a, J>) -> Change<'c, 'a, J> {
        let least = self.least_entries();
        let Self { pool, edit, header, .. } = self;
        Change { arena, pool, edit, header: *header, least }
    }

    /// Computes a change on images of the nodes.
    fn plan<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        make: impl FnOnce(&mut Change<'_, '_, J>) -> Result<(), ArenaFull>,
    ) -> Result<(), TreeError> {
        debug_assert!(self.planned.is_none(), "a plan is published before the next one");
        let mut change = self.change(arena);
        if let Err(full) = make(&mut change) {
            self.edit.abandon(arena, &mut self.pool);
            return Err(full.into());
        }
        change.shrink_root();
        let header = change.header;
        self.planned = Some(Planned { header, ids: None });
        Ok(())
    }
}
