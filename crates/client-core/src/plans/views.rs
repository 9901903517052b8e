//! Views of the trees that plans have named, which a session keeps.

use crate::ordered::OpenOrdered;
use crate::trees::OpenTree;
use remora_plan::Bytes;
use std::collections::BTreeMap;

/// Trees of each type that a session keeps views of for its plans.
const MOST_TREES: usize = 16;

/// Views of all of them.
#[derive(Default)]
pub(crate) struct PlanTrees {
    pub(super) places: KeptViews<OpenTree>,
    pub(super) ordered: KeptViews<OpenOrdered>,
}

/// Views of the trees of one type, by their keys.
pub(super) struct KeptViews<V>(BTreeMap<Bytes, V>);

impl<V> Default for KeptViews<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V> KeptViews<V> {
    pub fn has(&self, key: &Bytes) -> bool {
        self.0.contains_key(key)
    }

    pub fn get_mut(&mut self, key: &Bytes) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    pub fn keep(&mut self, key: Bytes, view: V) {
        if self.0.len() == MOST_TREES {
            self.0.clear();
        }
        self.0.insert(key, view);
    }

    pub fn forget(&mut self, key: &Bytes) {
        self.0.remove(key);
    }
}
