//! The trees of a shard, and how one is made and ends.

use super::entry::LongValues;
use super::table::Named;
use super::waiting::WaitingTrees;
use crate::store::{Now, Store};
use crate::types::arena::{logged_arena, planned_arena};
use crate::types::object::On;
use crate::types::tree_table::TreeTable;
use remora_arena::{Journal, Slot, set_state_guardian};
use remora_index::btree::{Arena, Options, Tree, TreeError};
use remora_layout::btree::ORDERED_ROOT_BYTES;
use remora_layout::kind::Kind;
use remora_layout::node::Home;
use remora_layout::record::State;
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_protocol::ordered::OrderedSettings;
use std::ops::Bound;

/// The ordered trees of one shard.
#[derive(Default)]
pub(crate) struct OrderedTrees {
    pub(super) trees: TreeTable<Named>,
    /// Bytes of the slots of all records with values.
    pub(super) long_bytes: u64,
    /// Those of them whose addresses are held, or that are to be mended.
    pub(super) held: WaitingTrees,
    /// Buffer for a reply's value.
    pub(super) scratch: Vec<u8>,
}

pub(super) fn refusal(error: TreeError) -> Status {
    match error {
        TreeError::Full(_) => Status::OutOfMemory,
        TreeError::BadOptions => Status::BadCapacity,
        TreeError::BadKey | TreeError::ValueTooLong => Status::TooLarge,
        TreeError::NotLoadable => Status::NotEmpty,
        TreeError::TooManyHeld | TreeError::NoneTaken => Status::TooLarge,
        TreeError::NotHeld => Status::NotDone,
    }
}

impl OrderedTrees {
    pub(super) fn named(&self, root: u32) -> &Named {
        self.trees.named(root)
    }

    /// Works on a tree; makes room and works again if memory was missing and keys may go.
    pub(super) fn with_room<J: Journal, T>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        work: impl Fn(&mut Tree, &mut Arena<'_, J>) -> Result<T, TreeError>,
    ) -> Result<T, Status> {
        let outcome = self.trees.on(root, |Named { tree, .. }| {
            let outcome = work(tree, &mut planned_arena(store));
            if matches!(outcome, Err(TreeError::Full(_)))
                && store.make_free(tree.wanted_run_bytes(), on.now)
            {
                return work(tree, &mut planned_arena(store));
            }
            outcome
        });
        outcome.map_err(refusal)
    }

    /// Makes a tree of a key that is not there, and fills it aside; `fill` may refuse. It is one
    /// change.
    pub(super) fn make<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, settings): (On<'_>, OrderedSettings),
        entry: &Command<'_>,
        fill: impl FnOnce(&mut Self, &mut Store<J>, u32) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let root = self.new_tree(store, on, settings)?;
        let entered = match fill(self, store, root.slot) {
            Ok(()) => store
                .enter_root((on.key, on.hash), (root, 0), None, entry.into(), on.now)
                .map_err(|_| (Status::OutOfMemory, false)),
            Err(status) => Err((status, true)),
        };
        entered.map_err(|(status, is_held)| {
            // Bounded: it has one key at the most.
            while !self.release_some(store, root.slot, on.now) {}
            set_state_guardian(&mut store.owner, root, State::Dead);
            if is_held {
                store.give_back(root, on.now);
            }
            status
        })
    }

    /// A tree that no key leads to.
    pub(super) fn new_tree<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        settings: OrderedSettings,
    ) -> Result<Slot, Status> {
        let OrderedSettings { keys, fan_out, key_bytes, value_bytes } = settings.checked()?;
        let options = Options::of(keys, fan_out, key_bytes, value_bytes);
        let home = Home { secret: store.options.record_secret, region: store.options.region };
        let root = store.new_root((on.key, on.hash), Kind::ORDERED, ORDERED_ROOT_BYTES, 0, on.now);
        let root = root.map_err(|_| Status::OutOfMemory)?;
        let at = store.state_of(root);
        let mut made = Tree::create(&mut planned_arena(store), home, at, options);
        if matches!(made, Err(TreeError::Full(_)))
            && store.make_free(8 * options.node_bytes, on.now)
        {
            made = Tree::create(&mut planned_arena(store), home, at, options);
        }
        match made {
            Ok(tree) => {
                let (long, released_to) = (LongValues::default(), Bound::Unbounded);
                let named = Named { tree, root, settings, long, released_to };
                self.trees.insert(named);
                Ok(root)
            }
            Err(error) => {
                store.give_back(root, on.now);
                Err(refusal(error))
            }
        }
    }

    /// Gives back some records, or a run of the nodes, of a tree that no key leads to any more. True once
    /// there is nothing more.
    pub(super) fn release_some<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        now: Now,
    ) -> bool {
        if !self.release_long(store, root, now) {
            return false;
        }
        if self.trees.get(root).is_none() {
            return true;
        }
        let arena = &mut logged_arena(store);
        let ended = self.trees.on(root, |named| named.tree.release_some(arena));
        if ended {
            self.trees.remove(root);
            self.held.forget(root);
            store.to_be_mended = self.held.len() as u64;
        }
        ended
    }
}
