//! Releases the memory of a tree that no key leads to any longer, in turns.

use super::record::{expires_at_ms, word_in};
use super::trees::Trees;
use crate::store::{Now, Store};
use crate::types::arena::logged_arena;
use remora_arena::Journal;
use remora_layout::limits::RELEASE_RECORDS;

impl Trees {
    /// Releases some records, or a run of nodes. True once there is nothing more.
    pub(super) fn release_some<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        now: Now,
    ) -> bool {
        self.drop_stage(store, root);
        let Some(named) = self.by_root.get_mut(&root) else { return true };
        let some = named.take_records(RELEASE_RECORDS);
        if !some.is_empty() {
            for slot in some {
                let due = (root, word_in(store, slot));
                self.set_due(store, due, (expires_at_ms(store, slot), 0));
                self.free_record(store, slot, now);
            }
            return false;
        }
        let before = named.tree.bytes();
        let ended = named.tree.release_some(&mut logged_arena(store));
        self.totals.node_bytes -= before - named.tree.bytes();
        if ended && let Some(named) = self.by_root.remove(&root) {
            self.counted_heap -= named.counted_heap;
            self.totals.trees -= 1;
            self.totals.objects -= named.tree.objects();
        }
        ended
    }
}
