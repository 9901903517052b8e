//! Addresses that others hold, and mending in quiet times. Neither is data: no entry of the log has
//! it, and a copy of a tree has its own nodes, whose addresses nobody holds.

use super::table::Named;
use super::trees::{OrderedTrees, refusal};
use crate::store::{Now, Store};
use crate::types::arena::logged_arena;
use remora_arena::Journal;
use remora_index::btree::Hold;
use remora_layout::btree::{CHILD_INFO_WORDS, InnerNode, NODE_INFO_WORDS};
use remora_layout::limits::{MEND_TURN_NODES, WORD_BYTES};
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedHold, push_inner_node, push_node_info};
use remora_protocol::{Items, Reply};

/// What one turn may still look at, and whether the next one is to go on: while addresses of a tree
/// are held, many looks may find nothing, and these wait for a tick.
struct MendTurn {
    left: usize,
    goes_on: bool,
}

/// Bytes of an inner node in a reply.
fn bytes_of(inner: &InnerNode) -> usize {
    let head = Items::bytes_of((NODE_INFO_WORDS + 1) * WORD_BYTES);
    let high = inner.high.as_ref().map_or(0, Vec::len);
    let fences = Items::bytes_of(inner.low.len()) + Items::bytes_of(high);
    let child = Items::bytes_of(CHILD_INFO_WORDS * WORD_BYTES) + Items::bytes_of(0);
    let keys: usize = inner.children.iter().map(|of| of.key.len()).sum();
    head + fences + inner.children.len() * child + keys
}

impl OrderedTrees {
    /// Hands out inner nodes, and holds the addresses of their children.
    pub(super) fn hold<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (root, now): (u32, Now),
        of: OrderedHold,
    ) -> Result<Reply<'_>, Status> {
        if store.is_applying {
            // Its nodes are those of a copy, and nothing is mended here.
            return Err(Status::ReadOnly);
        }
        let OrderedHold { epoch, for_ms, levels, most_bytes, below } = of;
        let until_ms = now.unix_ms.saturating_add(for_ms);
        let hold = Hold { epoch, until_ms, levels, below };
        let scratch = &mut self.scratch;
        scratch.clear();
        let each = |inner: &InnerNode| {
            let has_room = scratch.len() + bytes_of(inner) <= most_bytes;
            if has_room {
                push_inner_node(scratch, inner);
            }
            has_room
        };
        let held = self.trees.on(root, |named| named.tree.hold(&store.owner, hold, each));
        self.held.insert(root);
        store.to_be_mended = self.held.len() as u64;
        let nodes = held.map_err(refusal)?;
        Ok(Reply { value: Some(&self.scratch), ..Reply::number(nodes as i64) })
    }

    /// Ends an epoch; whether it held addresses.
    pub(super) fn release_epoch<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        epoch: u64,
    ) -> bool {
        self.trees.on(root, |named| named.tree.release(&store.owner, epoch))
    }

    /// The nodes of a level.
    pub(super) fn nodes<J: Journal>(
        &mut self,
        store: &Store<J>,
        root: u32,
        (level, limit): (u8, u64),
    ) -> Reply<'_> {
        let named = self.trees.named(root);
        let (scratch, mut nodes) = (&mut self.scratch, 0);
        scratch.clear();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        named.tree.nodes_of(&store.owner, level, limit, |info| {
            push_node_info(scratch, &info);
            nodes += 1;
        });
        Reply { value: Some(scratch), ..Reply::number(nodes) }
    }

    /// Ends the epochs whose time has come, and mends some nodes of the trees whose addresses are held
    /// or were. True if there is more to mend.
    pub(super) fn mend_turn<J: Journal>(&mut self, store: &mut Store<J>, now: Now) -> bool {
        let mut turn = MendTurn { left: MEND_TURN_NODES, goes_on: false };
        // Bounded by the nodes of a turn, and by the trees.
        for _ in 0..self.held.len() {
            let Some(root) = self.held_behind(self.mended).filter(|_| turn.left > 0) else { break };
            self.mended = Some(root);
            if !self.mend_tree(store, (root, now), &mut turn) {
                self.held.remove(&root);
            }
        }
        store.to_be_mended = self.held.len() as u64;
        turn.left == 0 && turn.goes_on
    }

    /// Looks again at nodes for which there was no memory: nothing holds them.
    pub(super) fn look_again(&mut self) {
        for &root in &self.held {
            if let Some(Named { tree, .. }) = self.trees.get(root)
                && tree.held().epochs == 0
                && tree.deep_nodes() > 0
            {
                self.trees.on(root, |named| named.tree.look_again());
            }
        }
    }

    /// The tree behind the one that was looked at last.
    fn held_behind(&self, last: Option<u32>) -> Option<u32> {
        let behind = last.and_then(|last| self.held.range(last + 1..).next());
        behind.or_else(|| self.held.first()).copied()
    }

    /// The same for one tree. False once nothing of it is held, and nothing is to be mended.
    fn mend_tree<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (root, now): (u32, Now),
        turn: &mut MendTurn,
    ) -> bool {
        if self.trees.get(root).is_none_or(|named| !store.is_live(named.root)) {
            return false;
        }
        self.trees.on(root, |Named { tree, .. }| {
            tree.lapse(&store.owner, now.unix_ms);
            let is_held = tree.held().epochs > 0;
            while turn.left > 0 && tree.wants_mending() {
                turn.left -= 1;
                let mended = tree.mend_some(&mut logged_arena(store));
                turn.goes_on |= mended == Ok(true) || !is_held;
            }
            is_held || tree.wants_mending() || tree.deep_nodes() > 0
        })
    }
}
