//! The trees of a shard: the state of each, and how one is made, changed and published. The
//! operations on them are in files above.

use super::named::Named;
use super::stage::Stage;
use crate::store::Store;
use crate::types::arena::{arena_at, planned_arena};
use crate::types::object::On;
use remora_arena::{Journal, Slot, set_state_guardian};
use remora_index::rtree::{Arena, Tree, TreeError, TreeOptions};
use remora_layout::kind::Kind;
use remora_layout::node::{Home, node_bytes};
use remora_layout::record::State;
use remora_layout::tree::TREE_HEADER_BYTES;
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_protocol::tree::TreeSettings;
use std::collections::{BTreeMap, BTreeSet};

/// When an object is due, the slot of its tree's root record, and its word.
pub(super) type Due = (u64, u32, u64);

/// Bytes of an entry in an ordered set: half-full nodes, and their parents. Measured in
/// `crates/engine/tests/heap.rs`.
pub(super) const DUE_BYTES: u64 = 48;

/// The trees of one shard.
#[derive(Default)]
pub(crate) struct Trees {
    /// By the slots of their root records.
    pub(super) by_root: BTreeMap<u32, Named>,
    pub(super) totals: Totals,
    /// How many surrogates were given.
    pub(super) surrogates: u64,
    /// Objects that expire, the next one first.
    pub(super) due: BTreeSet<Due>,
    /// Where the sweep for those continues, if it paused.
    pub(super) sweeps_from: Option<Due>,
    /// Stages that are over, and still hold something, by the root records of their trees.
    pub(super) ended_stages: Vec<(Slot, Stage)>,
    /// When idle stages were last looked for, in [`Shard::ticked_s`](crate::Shard::ticked_s).
    pub(super) stages_looked_at_s: u64,
    /// Bytes of the heap that trees took when they were counted last, and those that
    /// may have changed since.
    pub(super) counted_heap: u64,
    pub(super) touched: Vec<u32>,
    /// Buffer for a reply's value.
    pub(super) scratch: Vec<u8>,
}

/// The state shared by all trees of a shard.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) trees: u64,
    pub(super) objects: u64,
    /// Bytes of the arena for nodes.
    pub(super) node_bytes: u64,
    /// Bytes of the arena for objects' records.
    pub(super) data_bytes: u64,
    /// Objects removed because they had expired.
    pub(super) expired: u64,
}

impl Totals {
    /// A tree that had `before` is now so.
    pub(super) fn update(&mut self, before: (u64, u64), tree: &Tree) {
        self.objects = self.objects + tree.objects() - before.0;
        self.node_bytes = self.node_bytes + tree.bytes() - before.1;
    }
}

pub(super) fn refusal(error: TreeError) -> Status {
    match error {
        TreeError::BadRect(_) => Status::BadRectangle,
        TreeError::Full(_) => Status::OutOfMemory,
        TreeError::BadCapacity(_) => Status::BadCapacity,
        TreeError::NotEmpty => Status::NotEmpty,
        TreeError::TwiceGiven(_) => Status::TwiceGiven,
    }
}

impl Trees {
    /// Notes that a tree is about to change: its heap bytes are counted anew.
    pub(super) fn touch(&mut self, root: u32) {
        if self.touched.last() != Some(&root) {
            self.touched.push(root);
        }
    }

    pub(super) fn named(&self, root: u32) -> &Named {
        self.by_root.get(&root).expect("a root record has its tree")
    }

    pub(super) fn named_mut(&mut self, root: u32) -> &mut Named {
        self.by_root.get_mut(&root).expect("a root record has its tree")
    }

    /// Plans a change of a tree; makes room if it is full and keys may go.
    pub(super) fn plan_change<J: Journal, T>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        plan: impl Fn(&mut Tree, &mut Arena<'_, J>) -> Result<T, TreeError>,
    ) -> Result<T, Status> {
        let named = self.by_root.get_mut(&root).expect("a root record has its tree");
        let before = (named.tree.objects(), named.tree.bytes());
        let mut outcome = plan(&mut named.tree, &mut planned_arena(store));
        if matches!(outcome, Err(TreeError::Full(_))) {
            let run_bytes = named.tree.wanted_run_bytes();
            if store.make_free(run_bytes, on.now) {
                outcome = plan(&mut named.tree, &mut planned_arena(store));
            }
        }
        self.totals.update(before, &named.tree);
        outcome.map_err(refusal)
    }

    /// Makes a tree of a key that is not there, and fills it aside; `fill` may
    /// refuse. It is one change.
    pub(super) fn make<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        settings: TreeSettings,
        entry: &Command<'_>,
        fill: impl FnOnce(&mut Self, &mut Store<J>, u32) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let (root, tree) = self.new_tree(store, on, settings)?;
        self.keep_tree(store, root, tree);
        let filled = fill(self, store, root.slot);
        let entered = match filled {
            Ok(()) => store
                .enter_root((on.key, on.hash), (root, 0), None, entry.into(), on.now)
                .map_err(|_| (Status::OutOfMemory, false)),
            Err(status) => Err((status, true)),
        };
        entered.map_err(|(status, is_held)| {
            // Bounded: it has one object at the most.
            while !self.release_some(store, root.slot, on.now) {}
            set_state_guardian(&mut store.owner, root, State::Dead);
            if is_held {
                store.give_back(root, on.now);
            }
            status
        })
    }

    /// A tree was made.
    pub(super) fn keep_tree<J: Journal>(&mut self, store: &Store<J>, root: Slot, tree: Tree) {
        self.totals.trees += 1;
        self.totals.update((0, 0), &tree);
        let named = Named::new(tree, root, store.options.record_secret);
        self.by_root.insert(root.slot, named);
        self.touch(root.slot);
    }

    pub(super) fn new_tree<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        settings: TreeSettings,
    ) -> Result<(Slot, Tree), Status> {
        let TreeSettings { kind: tree_kind, capacity, bounds } = settings;
        let options = TreeOptions { kind: tree_kind, capacity, bounds };
        let home = Home { secret: store.options.record_secret, region: store.options.region };
        let root = store.new_root((on.key, on.hash), Kind::RTREE, TREE_HEADER_BYTES, 0, on.now);
        let root = root.map_err(|_| Status::OutOfMemory)?;
        let at = store.state_of(root);
        let mut made = Tree::create(&mut planned_arena(store), home, at, options);
        if matches!(made, Err(TreeError::Full(_)))
            && store.make_free(8 * node_bytes(capacity), on.now)
        {
            made = Tree::create(&mut planned_arena(store), home, at, options);
        }
        made.map(|tree| (root, tree)).map_err(|error| {
            store.give_back(root, on.now);
            refusal(error)
        })
    }

    /// Publishes the planned change of a tree.
    pub(super) fn publish<J: Journal>(&mut self, store: &mut Store<J>, root: u32) {
        self.publish_as(store, root, store.last_sequence());
    }

    /// Publishes the planned change of a tree, under this sequence.
    pub(super) fn publish_as<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        changed_at: u64,
    ) {
        let named = self.by_root.get_mut(&root).expect("a root record has its tree");
        let before = (named.tree.objects(), named.tree.bytes());
        named.tree.publish(&mut arena_at(store, changed_at));
        self.totals.update(before, &named.tree);
    }
}
