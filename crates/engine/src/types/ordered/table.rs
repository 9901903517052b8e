//! An ordered tree of a shard, and its state beside the arena.

use super::entry::LongValues;
use crate::types::tree_table::HasTree;
use remora_arena::Slot;
use remora_index::btree::Tree;
use remora_layout::btree::KeyForm;
use remora_protocol::ordered::OrderedSettings;
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

impl HasTree for Named {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn tree_mut(&mut self) -> &mut Tree {
        &mut self.tree
    }

    fn root(&self) -> Slot {
        self.root
    }
}
