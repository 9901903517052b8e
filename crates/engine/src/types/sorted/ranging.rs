//! A range of a sorted set that is read in turns, as it is when it begins.

use super::held::SortedSets;
use super::ranges::Span;
use super::readers::{Ahead, lock};
use crate::store::Store;
use crate::types::object::Turn;
use remora_arena::{Journal, Slot, slot_of};
use remora_index::btree::Direction;
use remora_protocol::message::Status;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

/// A range that is read in turns.
pub(super) enum Ranging {
    /// Its members.
    Made(Vec<u8>, i64),
    /// Those of a large set.
    Ahead { root: Slot, ahead: Arc<Mutex<Ahead>>, count: i64 },
}

impl Ranging {
    pub(super) fn turn<J: Journal>(
        &mut self,
        sets: &SortedSets,
        store: &Store<J>,
        found: &mut Vec<u8>,
    ) -> Result<Turn, Status> {
        let (ended, number) = match self {
            Self::Made(list, count) => {
                found.append(list);
                (true, *count)
            }
            Self::Ahead { root, ahead, count } => {
                // Its memory is released only once all reads have what they need.
                let large = sets.large.get(root.slot).filter(|large| large.root == *root);
                let push = |key: &[u8], found: &mut Vec<u8>| {
                    large.expect("it has the key").push_entry(store, key, found);
                };
                let set = large.map(|large| (&large.tree, &push as _));
                (lock(ahead).go_on(store, set, found)?, *count)
            }
        };
        let gives_value = true;
        Ok(Turn { ended, number, is_counted: true, gives_value, has_doubles: false })
    }
}

impl SortedSets {
    /// Begins to read members of a large set in turns.
    pub(super) fn begin_large<J: Journal>(
        &mut self,
        store: &Store<J>,
        root: u32,
        (span, direction): (Span, Direction),
    ) -> Ranging {
        let tree = &self.large.named(root).tree;
        let at = |rank| tree.select(&store.owner, rank).map(|(key, _)| Bound::Included(key));
        let ends = match span.count() {
            0 => None,
            _ => at(span.from).zip(at(span.to - 1)),
        };
        let Some(ends) = ends else { return Ranging::Made(Vec::new(), 0) };
        let ahead = self.reads.begin(store, ends, direction, span.count());
        self.large.on(root, |large| large.readers.add(&ahead));
        let root = slot_of(&store.owner, root);
        Ranging::Ahead { root, ahead, count: span.count() as i64 }
    }
}
