//! The state of a tree's writer: the shard's memory, and the sequence that changed nodes carry.

use crate::store::Store;
use remora_arena::Journal;
use remora_index::btree::Arena;

/// Nodes carry this sequence.
pub(crate) fn arena_at<J: Journal>(store: &mut Store<J>, changed_at: u64) -> Arena<'_, J> {
    Arena { owner: &mut store.owner, slots: &mut store.slots, changed_at }
}

/// For a change that is logged next.
pub(crate) fn planned_arena<J: Journal>(store: &mut Store<J>) -> Arena<'_, J> {
    let changed_at = store.last_sequence() + 1;
    arena_at(store, changed_at)
}

/// For a change that is logged.
pub(crate) fn logged_arena<J: Journal>(store: &mut Store<J>) -> Arena<'_, J> {
    let changed_at = store.last_sequence();
    arena_at(store, changed_at)
}
