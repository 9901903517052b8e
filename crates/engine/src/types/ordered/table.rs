//! The trees of a shard by their roots, and what they take.
//!
//! Invariant: a tree is changed through [`TreeTable::on`] only, which counts.

use super::entry::LongValues;
use remora_arena::{Journal, Owner, Slot};
use remora_index::btree::Tree;
use remora_layout::btree::KeyForm;
use remora_protocol::ordered::OrderedSettings;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A tree, and its state beside the arena.
pub(super) struct Named {
    pub tree: Tree,
    pub root: Slot,
    pub settings: OrderedSettings,
    /// Values that lie in records.
    pub long: LongValues,
    /// Once no key leads to it: the part of its keys whose records are still to be released begins
    /// here.
    pub released_to: Bound<Vec<u8>>,
}

impl Named {
    pub fn keys_are(&self) -> KeyForm {
        self.settings.keys
    }
}

/// What trees take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Taken {
    /// Bytes on the heap.
    pub heap_bytes: u64,
    /// Bytes of the arena for their nodes.
    pub node_bytes: u64,
}

impl Taken {
    fn by(named: &Named) -> Self {
        Self { heap_bytes: named.tree.heap_bytes(), node_bytes: named.tree.bytes() }
    }

    /// One of the trees that takes so much has taken `before`, and takes `after`.
    fn change(&mut self, before: Self, after: Self) {
        self.heap_bytes = self.heap_bytes + after.heap_bytes - before.heap_bytes;
        self.node_bytes = self.node_bytes + after.node_bytes - before.node_bytes;
    }
}

/// The trees, by the slots of their root records.
#[derive(Default)]
pub(super) struct TreeTable {
    by_root: BTreeMap<u32, Named>,
    /// What all of them take.
    taken: Taken,
    /// The buffer in which all of them write their nodes: so a small tree takes little.
    node: Vec<u8>,
}

impl TreeTable {
    /// A tree that is there.
    pub fn named(&self, root: u32) -> &Named {
        self.by_root.get(&root).expect("a root record has its tree")
    }

    /// A tree, if it is there.
    pub fn get(&self, root: u32) -> Option<&Named> {
        self.by_root.get(&root)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.by_root.len() as u64
    }

    /// All trees.
    pub fn all(&self) -> impl Iterator<Item = &Named> {
        self.by_root.values()
    }

    /// Works on a tree that is there. What a change has planned stays in the buffer until it is
    /// published, which must be before another tree is changed.
    pub fn on<R>(&mut self, root: u32, work: impl FnOnce(&mut Named) -> R) -> R {
        let named = self.by_root.get_mut(&root).expect("a root record has its tree");
        let before = Taken::by(named);
        named.tree.swap_scratch(&mut self.node);
        let done = work(named);
        named.tree.swap_scratch(&mut self.node);
        self.taken.change(before, Taken::by(named));
        done
    }

    /// Counts a lookup of a key in a tree that is there.
    pub fn note_lookup<J: Journal>(&mut self, root: u32, owner: &Owner<J>, key: &[u8]) {
        let named = self.by_root.get_mut(&root).expect("a root record has its tree");
        if let Some((before, after)) = named.tree.note_lookup(owner, key) {
            self.taken.heap_bytes = self.taken.heap_bytes + after - before;
        }
    }

    pub fn insert(&mut self, named: Named) {
        self.taken.change(Taken::default(), Taken::by(&named));
        self.by_root.insert(named.root.slot, named);
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
