//! Mending, a few nodes in each turn of the owner: parts that grew deeper while their addresses were
//! held become as deep as the others again, and nodes that were held join their neighbours.
//!
//! A step is one change of the tree, with the order of publication of all changes:
//!
//! - A deep node whose address nobody holds gives its last child to its parent: first it ends where
//!   the child begins, and its right link leads there; then the parent names the child.
//! - A deep node with one child takes the child's content, and the child is freed.
//! - Other nodes that were held join a neighbour, as after a deletion; a root with one child goes.
//!   So do, in a tree of which something was held once, nodes that come to lie beside each other.
//!
//! Nodes that may join a neighbour are noted, so many at most. Of a level of which one had no place all
//! nodes are looked at, in the order of their keys.
//!
//! No step makes a part deeper: one that would waits until more addresses are released. So the steps
//! come to an end, and once nothing is held there are no deep nodes.

use super::image::{Entry, Owned};
use super::mending::{Mending, Sweep};
use super::plan::{Before, Plan, Upwards, WriteSet};
use super::tree::{Tree, node_in};
use crate::pool::{Arena, word_of};
use remora_arena::{ArenaFull, Journal, Owner};
use remora_layout::node::{NodeRef, word};
use remora_layout::record::{Guardian, State};

impl Tree {
    /// Keeps the lists of nodes true to a change that is being published: nodes still have their former
    /// content.
    pub(super) fn note_nodes<J: Journal>(&mut self, owner: &Owner<J>, set: &WriteSet) {
        let node_bytes = self.options.node_bytes;
        let Mending { deep, idle, .. } = &mut self.mending;
        for (at, image) in set.new.iter().chain(&set.changed) {
            self.shapes.add(image);
            if image.is_deep {
                deep.insert(*at);
                *idle = 0;
            } else if !deep.is_empty() && deep.remove(at) {
                *idle = 0;
            }
        }
        for (at, _) in &set.changed {
            self.shapes.remove(&node_in(owner, *at, node_bytes));
        }
        for at in &set.freed {
            let node = node_in(owner, *at, node_bytes);
            self.shapes.remove(&node);
            self.accesses.forget(*at);
            self.mending.forget(node.level(), *at);
        }
    }

    /// Looks at a node again when the tree is mended next.
    pub(super) fn look_at<J: Journal>(&mut self, owner: &Owner<J>, at: NodeRef) {
        if is_live(owner, at) {
            let level = self.node(owner, at).level();
            self.mending.look_at(level, at);
        }
    }

    /// The same of a node that has a new neighbour, if such nodes may be small: while an address was
    /// held its neighbours could not join it.
    pub(super) fn look_at_seam<J: Journal>(&mut self, owner: &Owner<J>, at: NodeRef) {
        if self.mending.was_held {
            self.look_at(owner, at);
        }
    }

    /// Once nothing is held, and nothing is left to look at, the tree is as one that was never held.
    pub(super) fn forget_holders(&mut self) {
        let is_done = !self.mending.has_work() && self.mending.deep_nodes() == 0;
        if is_done && self.pins.all().epochs == 0 {
            self.mending.was_held = false;
        }
    }

    /// Looks at all deep nodes again.
    pub fn look_again(&mut self) {
        self.mending.idle = 0;
    }

    /// Nodes of parts that are deeper than others.
    pub fn deep_nodes(&self) -> u64 {
        self.mending.deep_nodes()
    }

    /// Whether [`Tree::mend_some`] has anything to look at.
    pub fn wants_mending(&self) -> bool {
        self.mending.has_work()
    }

    /// Looks at one node, and makes one change at the most. True if there was one.
    ///
    /// # Errors
    /// There is no memory for it; nothing has changed.
    pub fn mend_some<J: Journal>(&mut self, arena: &mut Arena<'_, J>) -> Result<bool, ArenaFull> {
        let mended = self.mend_next(arena);
        self.forget_holders();
        mended
    }

    fn mend_next<J: Journal>(&mut self, arena: &mut Arena<'_, J>) -> Result<bool, ArenaFull> {
        let next = self.mending.next_deep();
        let Some(at) = next.or_else(|| self.mending.next_near()) else {
            return self.sweep_next(arena);
        };
        if !is_live(arena.owner, at) {
            return Ok(false);
        }
        let Some(set) = self.plan_mend(arena, at)? else { return Ok(false) };
        set.publish(self, arena);
        Ok(true)
    }

    /// The same of the next node of a level all of whose nodes are looked at.
    fn sweep_next<J: Journal>(&mut self, arena: &mut Arena<'_, J>) -> Result<bool, ArenaFull> {
        let Some(Sweep { level, from }) = self.mending.next_sweep() else { return Ok(false) };
        if level >= self.header.height {
            return Ok(false);
        }
        let at = self.node_at(arena.owner, level, &from);
        let high = self.node(arena.owner, at).high().map(<[u8]>::to_vec);
        self.mending.go_on(high.map(|from| Sweep { level, from }));
        let Some(set) = self.plan_mend(arena, at)? else { return Ok(false) };
        // The node there may have become another one.
        self.mending.go_on(Some(Sweep { level, from }));
        set.publish(self, arena);
        Ok(true)
    }

    /// The node of a level for a key: the lowest one, which is not deep.
    fn node_at<J: Journal>(&self, owner: &Owner<J>, level: u8, key: &[u8]) -> NodeRef {
        let mut at = self.header.root;
        // Bounded: each node is nearer to the leaves.
        loop {
            let node = self.node(owner, at);
            if node.level() == level && !node.is_deep() {
                return at;
            }
            at = node.child(node.child_index(key)).expect("an inner node has children");
        }
    }

    /// The change by which a node is mended next; `None` if there is none.
    fn plan_mend<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        at: NodeRef,
    ) -> Result<Option<WriteSet>, ArenaFull> {
        let plan = Plan::of(self, arena.owner, (self.path_to(arena.owner, at), at));
        let (is_held, is_deep) = (self.pins.holds(at), plan.image.is_deep);
        match plan.image.only_child() {
            Some(child) if is_deep && !self.pins.holds(child) => {
                self.take_content(arena, plan, child)
            }
            Some(child) if plan.path.is_empty() && !is_deep && !is_held => {
                self.look_at(arena.owner, child);
                let root = Some((child, plan.image.level));
                Ok(Some(WriteSet { freed: vec![at], root, ..WriteSet::default() }))
            }
            Some(_) if is_deep => Ok(None),
            _ if is_held => Ok(None),
            _ if is_deep => self.give_last(arena, plan),
            _ => {
                let set = Plan { before: Before::LARGER, ..plan }.complete(self, arena)?;
                Ok((!set.freed.is_empty()).then_some(set))
            }
        }
    }

    /// The inner nodes above a node, which is in the tree.
    fn path_to<J: Journal>(&self, owner: &Owner<J>, at: NodeRef) -> Vec<(NodeRef, usize)> {
        let low = self.node(owner, at).low();
        let (mut path, mut above) = (Vec::new(), self.header.root);
        // Bounded: each node is nearer to the leaves.
        while above != at {
            let node = self.node(owner, above);
            let index = node.child_index(low);
            path.push((above, index));
            above = node.child(index).expect("the node is in the tree");
        }
        path
    }

    /// A deep node takes the content of its only child.
    fn take_content<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        plan: Plan,
        child: NodeRef,
    ) -> Result<Option<WriteSet>, ArenaFull> {
        let (image, at) = (self.image(arena.owner, child), plan.at);
        let mut set = Plan { image, before: Before::LARGER, ..plan }.complete(self, arena)?;
        // Before the nodes that a join of it frees.
        set.freed.insert(0, child);
        set.seams.push(at);
        Ok(Some(set))
    }

    /// A deep node gives its last child to its parent, as its right neighbour.
    fn give_last<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        mut plan: Plan,
    ) -> Result<Option<WriteSet>, ArenaFull> {
        let (at, mut image) = (plan.at, std::mem::take(&mut plan.image));
        let Some(entry @ Entry { payload: Owned::Child(child, _), .. }) = image.entries.pop()
        else {
            return Ok(None);
        };
        (image.high, image.right) = (Some(entry.key.clone()), child);
        let upwards = Upwards::Divided(image.count(), entry);
        let mut set = WriteSet { changed: vec![(at, image)], ..WriteSet::default() };
        let parent = plan.path.pop();
        let computed = plan.rise(self, arena, &mut set, (at, parent), upwards);
        let set = set.unless(computed, self, arena)?;
        if set.deepens {
            set.give_back(self, arena);
            return Ok(None);
        }
        self.look_at(arena.owner, child);
        Ok(Some(set))
    }
}

/// Whether an address still leads to a node.
fn is_live<J: Journal>(owner: &Owner<J>, at: NodeRef) -> bool {
    let guardian = Guardian::from_word(owner.word(word_of(at, word::GUARDIAN)));
    guardian.is_some_and(|of| of.generation == at.generation && of.state == State::Live)
}
