//! Building a tree of many objects at once: they are kept as they come, then
//! loaded.

use super::super::{Now, Shard};
use super::refusal;
use crate::command::{Command, Objects, Reply};
use remora_arena::Journal;
use remora_index::rtree::Arena;
use remora_layout::limits::NODE_RUN_BYTES;
use remora_layout::message::Status;
use remora_layout::node::node_bytes;
use remora_layout::rect::Rect;

impl<J: Journal> Shard<J> {
    pub(super) fn stage(
        &mut self,
        name: &[u8],
        (load, first): (u64, bool),
        objects: Objects<'_>,
        entry: &Command<'_>,
    ) -> Reply<'_> {
        let Some(named) = self.trees.by_name.get_mut(name) else {
            return Reply::status(Status::NoTree);
        };
        if named.tree.objects() > 0 {
            named.staged = Vec::new();
            return Reply::status(Status::NotEmpty);
        }
        if first {
            (named.load, named.staged) = (load, Vec::new());
        } else if named.load != load {
            return Reply::status(Status::OtherLoad);
        }
        // What is kept must fit the arena once it is built, at least.
        let bytes = (named.staged.len() + objects.len()) * size_of::<(u64, Rect)>();
        if bytes > self.owner.region_bytes() {
            named.staged = Vec::new();
            return Reply::status(Status::OutOfMemory);
        }
        self.log.append(entry);
        named.staged.extend(objects.iter());
        Reply::number(named.staged.len() as i64)
    }

    pub(super) fn build_tree(
        &mut self,
        name: &[u8],
        load: u64,
        entry: &Command<'_>,
        now: Now,
    ) -> Reply<'_> {
        let Some(named) = self.trees.by_name.get_mut(name) else {
            return Reply::status(Status::NoTree);
        };
        if named.load != load {
            return Reply::status(Status::OtherLoad);
        }
        let capacity = named.tree.header().capacity as usize;
        let mut staged = std::mem::take(&mut named.staged);
        let bytes = packed_nodes(staged.len(), capacity) * node_bytes(capacity);
        if !self.make_free(NODE_RUN_BYTES, bytes.div_ceil(NODE_RUN_BYTES), now) {
            return Reply::status(Status::OutOfMemory);
        }
        let changed_at = self.log.last_sequence() + 1;
        let Some(named) = self.trees.by_name.get_mut(name) else {
            return Reply::status(Status::NoTree);
        };
        let before = (named.tree.objects(), named.tree.bytes());
        let (owner, slots) = (&mut self.owner, &mut self.slots);
        let mut arena = Arena { owner, slots, changed_at };
        let built = named.tree.load(&mut arena, std::mem::take(&mut staged), |_| {});
        self.trees.totals.update(before, &named.tree);
        let objects = named.tree.objects();
        match built {
            Ok(()) => {
                self.log.append(entry);
                Reply::number(objects as i64)
            }
            Err(error) => Reply::status(refusal(error)),
        }
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
