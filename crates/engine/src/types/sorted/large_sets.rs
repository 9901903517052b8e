//! Large sorted sets: bins of members with their scores, and a B+tree of keys made of both.
//!
//! Invariant: each member has one score, in its part, and one key, in the tree. A change is planned
//! with all its memory: the parts are written, and the tree has nodes in reserve. Then it is logged,
//! and all of it is published.

use super::changes::{Changes, Put};
use super::held::SortedSets;
use super::large::{Large, NOTHING, PlannedKeys, is_negative_zero};
use super::packing::Scores;
use super::readers::{Readers, lock};
use crate::elements;
use crate::elements::bins::{self, Planned};
use crate::store::{Now, Store};
use crate::types::arena::{logged_arena, planned_arena};
use crate::types::object::On;
use remora_arena::{ArenaFull, Journal, slot_of};
use remora_index::btree::{Options, Tree, TreeError};
use remora_layout::btree::KeyForm;
use remora_layout::limits::{RELEASE_RECORDS, SORTED_FAN_OUT};
use remora_layout::node::Home;
use remora_layout::sorted::{SORTED_KEY_BYTES, sorted_tree_at};
use remora_protocol::Command;
use remora_protocol::message::Status;

/// A change of which all memory is taken.
struct PlannedLarge {
    members: Planned,
    keys: PlannedKeys,
}

/// The settings of the trees.
fn options() -> Options {
    Options::of(KeyForm::Bytes, SORTED_FAN_OUT, SORTED_KEY_BYTES, 0)
}

/// Plans a change of a tree; if memory does not suffice, after some was made free.
fn with_room<J: Journal, P>(
    large: &mut Large,
    store: &mut Store<J>,
    now: Now,
    plan: impl Fn(&mut Large, &mut Store<J>) -> Result<P, TreeError>,
) -> Result<P, TreeError> {
    let planned = plan(large, store);
    if matches!(planned, Err(TreeError::Full(_)))
        && store.make_free(large.tree.wanted_run_bytes(), now)
    {
        return plan(large, store);
    }
    planned
}

impl SortedSets {
    /// Changes members of a large set, as one change.
    pub(super) fn change_large<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        changes: Changes<'_, '_>,
        entry: &Command<'_>,
    ) -> Result<(), Status> {
        let planned = self.plan_large(store, root, changes, on.now)?;
        let members = store.commit(on.hash.database(), entry, |store| {
            let changed_at = store.last_sequence();
            self.publish_large(store, (root, changed_at), (changes, planned), on.now)
        });
        members.settle(store, on.now);
        Ok(())
    }

    /// Gives members of a set scores that is being filled: its entry comes next. An error leaves no trace.
    pub(super) fn put_unlogged<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (root, now): (u32, Now),
        puts: &[Put<'_>],
    ) -> Result<(), Status> {
        let full = |ArenaFull { .. }| Status::OutOfMemory;
        let members = puts.iter().map(|put| (put.member, put.new));
        let planned = bins::plan::<Scores, J>((store, root), members, std::iter::empty(), now);
        let planned = planned.map_err(full)?;
        // No reader can reach the set, so its keys may come one by one and be taken back.
        let changed_at = store.last_sequence() + 1;
        let done = self.large.on(root, |large| {
            puts.iter().enumerate().try_for_each(|(at, put)| {
                let plan = |large: &mut Large, store: &mut Store<J>| {
                    large.plan_key(store, put, changed_at)
                };
                let change = with_room(large, store, now, plan).map_err(|_| at)?;
                large.publish_key(store, (put, change), changed_at);
                Ok(())
            })
        });
        let Err(done) = done else {
            planned.make(store, None, now);
            return Ok(());
        };
        planned.drop_plan(store, now);
        let gone: Vec<(f64, &[u8])> =
            puts[..done].iter().map(|put| (put.new, put.member)).collect();
        let (changes, keys) = (Changes { puts: &[], gone: &gone }, PlannedKeys::Reserved);
        self.large.on(root, |large| large.publish(store, (changes, keys), changed_at));
        Err(Status::OutOfMemory)
    }

    /// The same as [`Self::change_large`] of a set that is being filled.
    pub(super) fn change_unlogged<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (root, now): (u32, Now),
        changes: Changes<'_, '_>,
    ) -> Result<(), Status> {
        let planned = self.plan_large(store, root, changes, now)?;
        let changed_at = store.last_sequence() + 1;
        self.publish_large(store, (root, changed_at), (changes, planned), now).settle(store, now);
        Ok(())
    }

    /// Takes all memory that a change needs.
    fn plan_large<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        changes: Changes<'_, '_>,
        now: Now,
    ) -> Result<PlannedLarge, Status> {
        let members = match (changes.puts, changes.gone) {
            ([put], []) => {
                let at = (put.member, Some(put.new));
                bins::plan_one::<Scores, J>((store, root), at, &mut self.buffers, now)
            }
            ([], [(_, member)]) => {
                bins::plan_one::<Scores, J>((store, root), (member, None), &mut self.buffers, now)
            }
            _ => {
                let puts = changes.puts.iter().map(|put| (put.member, put.new));
                let gone = changes.gone.iter().map(|&(_, member)| member);
                bins::plan::<Scores, J>((store, root), puts, gone, now)
            }
        }
        .map_err(|ArenaFull { .. }| Status::OutOfMemory)?;
        match self.plan_keys(store, root, changes, now) {
            Ok(keys) => Ok(PlannedLarge { members, keys }),
            Err(_) => {
                members.drop_plan(store, now);
                Err(Status::OutOfMemory)
            }
        }
    }

    /// Takes the nodes that a change may need.
    fn plan_keys<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        changes: Changes<'_, '_>,
        now: Now,
    ) -> Result<PlannedKeys, TreeError> {
        let plan = |large: &mut Large, store: &mut Store<J>| match changes.puts {
            [] => Ok(PlannedKeys::Reserved),
            [put] => {
                let changed_at = store.last_sequence() + 1;
                large.plan_key(store, put, changed_at).map(PlannedKeys::One)
            }
            puts => {
                let keys = puts.iter().map(|put| large.key(store, (put.new, put.member)));
                let keys: Vec<Vec<u8>> = keys.collect();
                large.tree.reserve(&mut planned_arena(store), &keys)?;
                Ok(PlannedKeys::Reserved)
            }
        };
        self.large.on(root, |large| with_room(large, store, now, plan))
    }

    fn publish_large<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (root, changed_at): (u32, u64),
        (changes, planned): (Changes<'_, '_>, PlannedLarge),
        now: Now,
    ) -> Planned {
        let PlannedLarge { mut members, keys } = planned;
        members.publish(store, now);
        self.large.on(root, |large| large.publish(store, (changes, keys), changed_at));
        self.places.publish(store, (root, changed_at), changes, now);
        members
    }

    /// Lets a key hold a large set of these members, in ascending order, in the place of what it
    /// holds.
    pub(super) fn make_large<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, expires_at_ms): (On<'_>, u64),
        all: &[(f64, &[u8])],
        entry: &Command<'_>,
    ) -> Result<(), Status> {
        let mut made = None;
        let fill = |store: &mut Store<J>, root: u32| {
            let large = self.begin_large_set(store, root, on.now)?;
            made = Some(root);
            self.large.insert(large);
            self.fill(store, (root, all), on.now)
        };
        let put = elements::make_parts::<Scores, J>(store, (on, expires_at_ms), fill, entry);
        if let (Err(_), Some(root)) = (&put, made) {
            self.forget_nodes(store, root);
        }
        put.map_err(|ArenaFull { .. }| Status::OutOfMemory)
    }

    /// The tree of a new large set, which is empty.
    pub(super) fn begin_large_set<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        now: Now,
    ) -> Result<Large, ArenaFull> {
        let home = Home { secret: store.options.record_secret, region: store.options.region };
        let root = slot_of(&store.owner, root);
        let at = sorted_tree_at(store.state_of(root));
        let options = options();
        let mut made = Tree::create(&mut planned_arena(store), home, at, options);
        if made.is_err() && store.make_free(8 * options.node_bytes, now) {
            made = Tree::create(&mut planned_arena(store), home, at, options);
        }
        match made {
            Ok(tree) => Ok(Large { root, tree, negative_zeros: 0, readers: Readers::default() }),
            Err(TreeError::Full(full)) => Err(full),
            Err(error) => unreachable!("the settings are within the limits: {error}"),
        }
    }

    /// Adds members, in ascending order, to a set to which no key leads, and which has none of them.
    fn fill<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (root, all): (u32, &[(f64, &[u8])]),
        now: Now,
    ) -> Result<(), ArenaFull> {
        let puts = all.iter().map(|&(score, member)| (member, score));
        let planned = bins::plan::<Scores, J>((store, root), puts, std::iter::empty(), now)?;
        planned.make(store, None, now);
        let large = self.large.named(root);
        let mut entries: Vec<Vec<u8>> = all.iter().map(|&of| large.key(store, of)).collect();
        // Marks of long members have an order of their own.
        entries.sort_unstable();
        let load = |large: &mut Large, store: &mut Store<J>| {
            // Its entry comes next.
            let keys = entries.iter().map(|key| (&key[..], NOTHING));
            large.tree.load(&mut planned_arena(store), keys)
        };
        self.large.on(root, |large| {
            let zeros = all.iter().filter(|(score, _)| is_negative_zero(*score));
            large.negative_zeros = zeros.count() as u64;
            let mut loaded = load(large, store);
            if matches!(loaded, Err(TreeError::Full(_)))
                && store.make_free(2 * entries.len() * large.tree.options().key_bytes, now)
            {
                loaded = load(large, store);
            }
            match loaded {
                Ok(()) => Ok(()),
                Err(TreeError::Full(full)) => Err(full),
                Err(error) => unreachable!("sorted keys, each once: {error}"),
            }
        })
    }

    /// Frees the nodes of a set that no key has led to.
    pub(super) fn forget_nodes<J: Journal>(&mut self, store: &mut Store<J>, root: u32) {
        // Bounded: what was made for one command.
        while !self.large.on(root, |large| large.tree.release_some(&mut logged_arena(store))) {}
        self.large.remove(root);
    }

    /// Releases some memory of a set that no key leads to any more. True once none is left.
    pub(super) fn release_some<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        now: Now,
    ) -> bool {
        if self.large.get(root).is_some() {
            if self.keep_for_reads(store, root) || !self.places.release_some(store, root, now) {
                return false;
            }
            if !store.release_parts(root, RELEASE_RECORDS, now) {
                return false;
            }
            let ended =
                self.large.on(root, |large| large.tree.release_some(&mut logged_arena(store)));
            if ended {
                self.large.remove(root);
            }
            return ended;
        }
        store.release_parts(root, RELEASE_RECORDS, now)
    }

    /// Keeps some of what a range still has to give; whether there is one.
    fn keep_for_reads<J: Journal>(&mut self, store: &Store<J>, root: u32) -> bool {
        let running = self.large.on(root, |large| large.readers.running());
        let Some(ahead) = running else { return false };
        let large = self.large.named(root);
        let push = |key: &[u8], found: &mut Vec<u8>| large.push_entry(store, key, found);
        lock(&ahead).keep_some(store, (&large.tree, &push));
        true
    }
}
