//! The writer's side of a tree: what its owner calls.

use super::change::Change;
use super::edit::{Edit, entries_in, shape_in, store_header, write_new_node};
use super::ids::Ids;
use super::pool::{Arena, Pool, set_state};
use remora_arena::{ArenaFull, Journal, Owner};
use remora_layout::limits::{MAX_NODE_ENTRIES, MIN_NODE_ENTRIES};
use remora_layout::node::{Entry, Home, NodeRef, NodeShape, node_bytes};
use remora_layout::record::State;
use remora_layout::rect::{BadRect, Rect};
use remora_layout::tree::{TreeHeader, TreeKind};

/// Entries out of a hundred that a node keeps at least, unless it is the root.
/// What makes searches visit fewest nodes: 2 M uniform rectangles, capacity 30,
/// by inserts; with 33, 40, 50 the R*-tree visits 6.82, 6.75, 10.24 nodes at
/// scale 1e-5, Guttman's 14.21, 20.49, 24.41 (`examples/rtree_counts.rs`).
const fn least_percent(kind: TreeKind) -> usize {
    match kind {
        TreeKind::RStar | TreeKind::Hilbert => 40,
        TreeKind::Guttman => 33,
    }
}

/// Why a tree was not changed.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum TreeError {
    /// What was given is no rectangle.
    #[error(transparent)]
    BadRect(#[from] BadRect),
    /// There is no memory for another node.
    #[error(transparent)]
    Full(#[from] ArenaFull),
    /// A node cannot be given room for so many entries.
    #[error("a node has room for {MIN_NODE_ENTRIES} to {MAX_NODE_ENTRIES} entries, not {0}")]
    BadCapacity(usize),
    /// Objects are loaded into an empty tree only.
    #[error("the tree is not empty: only an empty one can be loaded")]
    NotEmpty,
    /// Among the objects to be loaded this id stands twice.
    #[error("object {0} is given twice")]
    TwiceGiven(u64),
}

/// What a tree is to be.
#[derive(Clone, Copy, Debug)]
pub struct TreeOptions {
    /// How it is written.
    pub kind: TreeKind,
    /// Entries that a node has room for.
    pub capacity: usize,
    /// Where most objects lie: what a Hilbert R-tree's curve fills. Others may
    /// lie outside. Without meaning for other kinds.
    pub bounds: Rect,
}

/// A tree of objects, each an id and a rectangle. An id stands in it once.
pub struct Tree {
    pub(super) home: Home,
    /// Where the header lies.
    pub(super) at: NodeRef,
    pub(super) header: TreeHeader,
    pub(super) pool: Pool,
    edit: Edit,
    ids: Ids,
    /// Readers are told that there is no such tree.
    is_hidden: bool,
}

impl Tree {
    /// An empty tree in an arena.
    pub fn create<J: Journal>(
        arena: &mut Arena<'_, J>,
        home: Home,
        options: TreeOptions,
    ) -> Result<Self, TreeError> {
        let TreeOptions { kind, capacity, bounds } = options;
        if !(MIN_NODE_ENTRIES..=MAX_NODE_ENTRIES).contains(&capacity) {
            return Err(TreeError::BadCapacity(capacity));
        }
        let bounds = if kind == TreeKind::Hilbert { bounds.checked()? } else { Rect::default() };
        let mut pool = Pool::new(node_bytes(capacity));
        let at = pool.take(arena)?;
        let root = match pool.take(arena) {
            Ok(root) => root,
            Err(full) => {
                pool.give_all(arena);
                return Err(full.into());
            }
        };
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
        let ids = Ids::new(home.secret, 0);
        Ok(Self { home, at, header, pool, edit: Edit::default(), ids, is_hidden: false })
    }

    /// Ends the tree and gives its memory back.
    pub fn destroy<J: Journal>(self, arena: &mut Arena<'_, J>) {
        self.pool.give_all(arena);
    }

    /// Where the header lies: what a reader begins with.
    pub fn at(&self) -> NodeRef {
        self.at
    }

    /// Tells readers that there is no such tree any more. Its owner may go on
    /// with it, and destroys it at some time.
    pub fn hide<J: Journal>(&mut self, owner: &mut Owner<J>) {
        if !self.is_hidden {
            set_state(owner, self.at, State::Dead);
            // Nothing that comes later is seen by who does not see this.
            owner.release();
        }
        self.is_hidden = true;
    }

    /// Whether readers are told that there is no such tree.
    pub fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// What the header says.
    pub fn header(&self) -> TreeHeader {
        self.header
    }

    /// From now on objects may be other than their rectangles: readers are told
    /// before they can read the first one's.
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

    /// Nodes in the tree.
    pub fn nodes(&self) -> u64 {
        self.pool.used() - 1
    }

    /// Bytes of the arena that it takes, those of places not used now too.
    pub fn bytes(&self) -> u64 {
        self.pool.bytes()
    }

    /// Bytes outside of the arena by which objects are found by their ids.
    pub fn index_bytes(&self) -> u64 {
        self.ids.bytes()
    }

    /// Fewest entries of a node that is not the root.
    pub fn least_entries(&self) -> usize {
        (self.header.capacity as usize * least_percent(self.header.kind) / 100).max(2)
    }

    /// A node's level and entries.
    pub fn node<'a, J: Journal>(&self, owner: &'a Owner<J>, at: NodeRef) -> (u8, &'a [Entry]) {
        (shape_in(owner, at).level, entries_in(owner, at))
    }

    /// Adds an object, or moves the one with this id, at once for every
    /// reader. True if it is new.
    pub fn put<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        id: u64,
        rect: Rect,
    ) -> Result<bool, TreeError> {
        let entry = Entry { rect: rect.checked()?, word: id };
        let before = self.ids.leaf_of(arena.owner, id);
        self.change(arena, |change| match before {
            Some((leaf, index)) => change.move_to(leaf, index, entry),
            None => change.put(entry),
        })?;
        Ok(before.is_none())
    }

    /// Removes an object. False if it is not there.
    pub fn remove<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        id: u64,
    ) -> Result<bool, TreeError> {
        let Some((leaf, index)) = self.ids.leaf_of(arena.owner, id) else { return Ok(false) };
        self.change(arena, |change| change.remove(leaf, index))?;
        Ok(true)
    }

    /// Puts a tree just built in the place of an empty one.
    pub(super) fn replace_root<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        header: TreeHeader,
        ids: Ids,
    ) {
        let old = self.header.root;
        self.edit.free_node(arena.owner, old);
        self.publish(arena, header);
        self.ids = ids;
    }

    /// Works a change out, and publishes it whole or not at all.
    fn change<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        make: impl FnOnce(&mut Change<'_, '_, J>) -> Result<(), ArenaFull>,
    ) -> Result<(), TreeError> {
        let least = self.least_entries();
        let mut change = Change {
            arena,
            pool: &mut self.pool,
            edit: &mut self.edit,
            header: self.header,
            least,
        };
        if let Err(full) = make(&mut change) {
            self.edit.abandon(arena, &mut self.pool);
            return Err(full.into());
        }
        change.shrink_root();
        let header = change.header;
        self.publish(arena, header);
        Ok(())
    }

    fn publish<J: Journal>(&mut self, arena: &mut Arena<'_, J>, header: TreeHeader) {
        self.edit.compare(arena.owner, &mut self.ids);
        let Self { edit, pool, home, at, header: old, .. } = self;
        edit.publish(arena, pool, *home, *at, old, header);
    }
}
