//! Addresses that others hold, and mending, a few nodes in each turn. Neither is data: no entry of the
//! log has it, and a copy of a tree has its own nodes, whose addresses are not held.

use super::table::Named;
use super::trees::{OrderedTrees, refusal};
use super::waiting::Awaited;
use crate::store::{Now, Store};
use crate::types::arena::logged_arena;
use remora_arena::Journal;
use remora_index::btree::{Hold, Tree};
use remora_layout::btree::{CHILD_INFO_WORDS, InnerNode, NODE_INFO_WORDS};
use remora_layout::limits::{
    MAX_HELD_TREES, MAX_REPLY_BYTES, MEND_TURN_NODES, MEND_TURN_TREES, WORD_BYTES,
};
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
        if self.held.held() >= MAX_HELD_TREES && !self.held.holds(root) {
            return Err(Status::TooLarge);
        }
        let OrderedHold { epoch, for_ms, levels, most_bytes, below } = of;
        let until_ms = now.unix_ms.saturating_add(for_ms);
        let hold = Hold { epoch, until_ms, levels, below };
        let scratch = &mut self.scratch;
        scratch.clear();
        let each = |inner: &InnerNode| {
            // The first one comes whole: without it no request would come further.
            let most = if scratch.is_empty() { MAX_REPLY_BYTES } else { most_bytes };
            let has_room = scratch.len() + bytes_of(inner) <= most;
            if has_room {
                push_inner_node(scratch, inner);
            }
            has_room
        };
        let held = self.trees.on(root, |named| named.tree.hold(&store.owner, hold, each));
        self.held.note(root, awaited(&self.named(root).tree));
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
        let was_there = self.trees.on(root, |named| named.tree.release(&store.owner, epoch));
        self.held.note(root, awaited(&self.named(root).tree));
        store.to_be_mended = self.held.len() as u64;
        was_there
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

    /// Ends epochs whose time has come, and mends some nodes of trees whose addresses are held or were:
    /// of a bounded number of trees. True if there is more to do.
    pub(super) fn mend_turn<J: Journal>(&mut self, store: &mut Store<J>, now: Now) -> bool {
        let mut turn = MendTurn { left: MEND_TURN_NODES, goes_on: false };
        for _ in 0..MEND_TURN_TREES {
            let Some(root) = self.held.due(now.unix_ms) else { break };
            self.in_tree(store, root, |store, tree| tree.lapse(&store.owner, now.unix_ms));
        }
        for _ in 0..MEND_TURN_TREES {
            let Some(root) = self.held.next_wanting().filter(|_| turn.left > 0) else { break };
            self.in_tree(store, root, |store, tree| mend_tree(store, tree, &mut turn));
        }
        store.to_be_mended = self.held.len() as u64;
        self.held.due(now.unix_ms).is_some() || (turn.left == 0 && turn.goes_on)
    }

    /// Looks again at nodes for which there was no memory: nothing holds them. So many trees at a time.
    pub(super) fn look_again(&mut self) {
        for _ in 0..self.held.short().min(MEND_TURN_TREES) {
            let Some(root) = self.held.next_short() else { break };
            if self.trees.get(root).is_none() {
                self.held.forget(root);
                continue;
            }
            self.trees.on(root, |named| named.tree.look_again());
            self.held.note(root, awaited(&self.named(root).tree));
        }
    }

    /// Does something with a tree, and notes for what it waits.
    fn in_tree<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        work: impl FnOnce(&mut Store<J>, &mut Tree),
    ) {
        if self.trees.get(root).is_none_or(|named| !store.is_live(named.root)) {
            return self.held.forget(root);
        }
        self.trees.on(root, |Named { tree, .. }| work(store, tree));
        self.held.note(root, awaited(&self.named(root).tree));
    }
}

/// Why a tree is to be looked at.
fn awaited(tree: &Tree) -> Awaited {
    let (lapse_ms, wants_mending) = (tree.next_lapse_ms(), tree.wants_mending());
    let is_short = lapse_ms.is_none() && !wants_mending && tree.deep_nodes() > 0;
    Awaited { lapse_ms, wants_mending, is_short }
}

/// Mends nodes of a tree, so many as the turn has left.
fn mend_tree<J: Journal>(store: &mut Store<J>, tree: &mut Tree, turn: &mut MendTurn) {
    let is_held = tree.held().epochs > 0;
    while turn.left > 0 && tree.wants_mending() {
        turn.left -= 1;
        let mended = tree.mend_some(&mut logged_arena(store));
        turn.goes_on |= mended == Ok(true) || !is_held;
    }
}
