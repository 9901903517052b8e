//! Building a tree of many objects at once, which were staged before.

use super::super::On;
use super::stage::end_stage;
use super::{Trees, arena_of, refusal};
use crate::command::{Command, Reply};
use crate::store::Store;
use remora_arena::Journal;
use remora_layout::limits::NODE_RUN_BYTES;
use remora_layout::message::Status;
use remora_layout::node::node_bytes;

impl Trees {
    pub(super) fn build_tree<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        load: u64,
        entry: &Command<'_>,
    ) -> Reply<'static> {
        if self.named(root).tree.objects() > 0 {
            self.drop_stage(store, root);
            return Reply::status(Status::NotEmpty);
        }
        let Some(mut stage) = self.take_stage(root, load) else {
            return Reply::status(Status::OtherLoad);
        };
        let named = self.by_root.get_mut(&root).expect("a root record has its tree");
        let capacity = named.tree.header().capacity as usize;
        let objects = stage.take_objects();
        let bytes = packed_nodes(objects.len(), capacity) * node_bytes(capacity);
        store.making_room.keep = Some(root);
        let is_free = store.make_free(NODE_RUN_BYTES, bytes.div_ceil(NODE_RUN_BYTES), on.now);
        store.making_room.keep = None;
        if !is_free {
            self.unstage(store, root, stage);
            return Reply::status(Status::OutOfMemory);
        }
        let before = (named.tree.objects(), named.tree.bytes());
        let planned = named.tree.plan_load(&mut arena_of(store), objects, |_| {});
        self.totals.update(before, &named.tree);
        // Until here the objects lay on the heap, too.
        if let Err(error) = planned {
            self.unstage(store, root, stage);
            return Reply::status(refusal(error));
        }
        end_stage(store, stage);
        store.commit(on.hash.database(), entry, |store| self.publish(store, root));
        Reply::number(self.named(root).tree.objects() as i64)
    }
}

/// Nodes of a tree in which so many objects are packed.
fn packed_nodes(objects: usize, capacity: usize) -> usize {
    let (mut nodes, mut level) = (0, objects.max(1));
    // Bounded: each level has fewer nodes.
    loop {
        level = level.div_ceil(capacity);
        nodes += level;
        if level == 1 {
            return nodes;
        }
    }
}
