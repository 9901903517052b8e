//! The B+trees of a shard by the root records of their objects, and what they take.
//!
//! Invariant: a tree is changed through [`TreeTable::on`] only, which counts.

use remora_arena::{Journal, Owner, Slot};
use remora_index::btree::Tree;
use std::collections::BTreeMap;

/// An object that has a B+tree.
pub(crate) trait HasTree {
    /// Its tree.
    fn tree(&self) -> &Tree;
    /// The same, for a change.
    fn tree_mut(&mut self) -> &mut Tree;
    /// Its root record.
    fn root(&self) -> Slot;
}

/// What trees take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Taken {
    /// Bytes on the heap.
    pub heap_bytes: u64,
    /// Bytes of the arena for their nodes.
    pub node_bytes: u64,
}

impl Taken {
    fn by(named: &impl HasTree) -> Self {
        Self { heap_bytes: named.tree().heap_bytes(), node_bytes: named.tree().bytes() }
    }

    /// One of the trees that takes so much has taken `before`, and takes `after`.
    fn change(&mut self, before: Self, after: Self) {
        self.heap_bytes = self.heap_bytes + after.heap_bytes - before.heap_bytes;
        self.node_bytes = self.node_bytes + after.node_bytes - before.node_bytes;
    }
}

/// The trees, by the slots of their root records.
pub(crate) struct TreeTable<T> {
    by_root: BTreeMap<u32, T>,
    /// What all of them take.
    taken: Taken,
    /// The buffer in which all of them write their nodes: so a small tree takes little.
    node: Vec<u8>,
}

impl<T> Default for TreeTable<T> {
    fn default() -> Self {
        Self { by_root: BTreeMap::new(), taken: Taken::default(), node: Vec::new() }
    }
}

impl<T: HasTree> TreeTable<T> {
    /// A tree that is there.
    pub fn named(&self, root: u32) -> &T {
        self.by_root.get(&root).expect("a root record has its tree")
    }

    /// A tree, if it is there.
    pub fn get(&self, root: u32) -> Option<&T> {
        self.by_root.get(&root)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.by_root.len() as u64
    }

    /// All trees.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.by_root.values()
    }

    /// Works on a tree that is there. What a change has planned stays in the buffer until it is
    /// published, which must be before another tree is changed.
    pub fn on<R>(&mut self, root: u32, work: impl FnOnce(&mut T) -> R) -> R {
        let named = self.by_root.get_mut(&root).expect("a root record has its tree");
        let before = Taken::by(named);
        named.tree_mut().swap_scratch(&mut self.node);
        let done = work(named);
        named.tree_mut().swap_scratch(&mut self.node);
        self.taken.change(before, Taken::by(named));
        done
    }

    /// Counts a lookup of a key in a tree that is there.
    pub fn note_lookup<J: Journal>(&mut self, root: u32, owner: &Owner<J>, key: &[u8]) {
        let named = self.by_root.get_mut(&root).expect("a root record has its tree");
        if let Some((before, after)) = named.tree_mut().note_lookup(owner, key) {
            self.taken.heap_bytes = self.taken.heap_bytes + after - before;
        }
    }

    pub fn insert(&mut self, named: T) {
        self.taken.change(Taken::default(), Taken::by(&named));
        self.by_root.insert(named.root().slot, named);
    }

    pub fn remove(&mut self, root: u32) {
        if let Some(named) = self.by_root.remove(&root) {
            self.taken.change(Taken::by(&named), Taken::default());
        }
    }

    /// What they take.
    pub fn taken(&self) -> Taken {
        self.taken
    }

    /// Compares the count with the trees.
    ///
    /// # Errors
    /// A description of the mismatch.
    pub fn audit(&self) -> Result<(), String> {
        let mut taken = Taken::default();
        self.all().for_each(|named| taken.change(Taken::default(), Taken::by(named)));
        match self.taken == taken {
            true => Ok(()),
            false => Err(format!("trees take {taken:?}, not {:?}", self.taken)),
        }
    }
}
