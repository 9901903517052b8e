//! Trees of places: keys of type `rtree` (docs/decisions/0029).
//!
//! What it keeps true: a change of a tree is planned whole on images of the
//! nodes that it touches, then logged, then published under the sequence that
//! the changed nodes carry (`changed_at`); what an object carries lies in a
//! record of its own, that no key leads to, and goes with the object; a search
//! that has begun ends, or is told that its tree has gone, whatever happens
//! meanwhile.

mod build;
mod carried;
mod digest;
mod expire;
mod named;
mod put;
mod refine;
mod release;
mod search;
mod stage;
mod transfer;

use super::{Content, LongRead, On, Turn, Type, find_root};
use crate::store::{DumpAt, Now, ShardStats, Store};
use expire::{DUE_BYTES, Due};
use named::Named;
use remora_arena::{Journal, Slot, set_state_guardian, slot_of};
use remora_index::rtree::{Arena, Tree, TreeError, TreeOptions};
use remora_layout::kind::Kind;
use remora_layout::limits::MAX_NEAREST;
use remora_layout::node::{ENTRY_BYTES, Home, node_bytes};
use remora_layout::record::State;
use remora_layout::tree::{TREE_HEADER_BYTES, TreeInfo};
use remora_protocol::message::Status;
use remora_protocol::tree::{FoundObjects, TreeCommand, TreeSettings};
use remora_protocol::{Command, Reply, Request};
use search::Searching;
use stage::Stage;
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::IntoBytes;

/// The trees of one shard.
#[derive(Default)]
pub(crate) struct Trees {
    /// By the slots of their root records.
    by_root: BTreeMap<u32, Named>,
    totals: Totals,
    /// How many surrogates were given.
    surrogates: u64,
    /// Objects that expire, the next one first.
    due: BTreeSet<Due>,
    /// Where the sweep for those goes on, if it paused.
    sweeps_from: Option<Due>,
    /// Stages that are over, and still hold something, by the root records of their trees.
    ended_stages: Vec<(Slot, Stage)>,
    /// Bytes of the heap that trees took when they were counted last, and those that
    /// may have changed since.
    counted_heap: u64,
    touched: Vec<u32>,
    /// What a reply's value is made in.
    scratch: Vec<u8>,
}

/// What all trees of a shard have.
#[derive(Clone, Copy, Default)]
struct Totals {
    trees: u64,
    objects: u64,
    /// Bytes of the arena for nodes.
    node_bytes: u64,
    /// Bytes of the arena for objects' records.
    data_bytes: u64,
    /// Objects removed because they had expired.
    expired: u64,
}

impl Totals {
    /// A tree that had `before` is now so.
    fn update(&mut self, before: (u64, u64), tree: &Tree) {
        self.objects = self.objects + tree.objects() - before.0;
        self.node_bytes = self.node_bytes + tree.bytes() - before.1;
    }
}

fn refusal(error: TreeError) -> Status {
    match error {
        TreeError::BadRect(_) => Status::BadRectangle,
        TreeError::Full(_) => Status::OutOfMemory,
        TreeError::BadCapacity(_) => Status::BadCapacity,
        TreeError::NotEmpty => Status::NotEmpty,
        TreeError::TwiceGiven(_) => Status::TwiceGiven,
    }
}

impl<J: Journal> Type<J> for Trees {
    fn id(&self) -> Kind {
        Kind::RTREE
    }

    fn execute<'s>(
        &'s mut self,
        store: &'s mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s> {
        let command = TreeCommand::of(request);
        let entry = Command::Of { key: on.key, request };
        let root = match find_root(store, on, Kind::RTREE) {
            Ok(root) => root,
            Err(status) => return Reply::status(status),
        };
        if let Some(root) = root.filter(|_| request.is_write()) {
            self.touch(root);
        }
        match (&command, root) {
            (TreeCommand::Create(_), Some(_)) => Reply::status(Status::NotDone),
            (&TreeCommand::Create(settings), None) => {
                match self.make(store, on, settings, &entry, |_, _, _| Ok(())) {
                    Ok(()) => Reply::status(Status::Ok),
                    Err(status) => Reply::status(status),
                }
            }
            (TreeCommand::Put(put), root) => self.put_object(store, (on, root), put, &entry),
            (TreeCommand::Remove { .. } | TreeCommand::Drop, None) => Reply::number(0),
            (TreeCommand::Drop, Some(_)) => store.del(on.key, on.hash, on.now),
            (TreeCommand::SearchAt { .. }, _) => Reply::status(Status::AskOwner),
            (&TreeCommand::Nearest { wanted, .. }, _) if wanted as usize > MAX_NEAREST => {
                Reply::status(Status::TooLarge)
            }
            (_, None) => Reply::status(Status::NoTree),
            (command, Some(root)) => self.on_tree(store, (on, root), command, &entry),
        }
    }

    fn begin_read(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Result<LongRead, Status> {
        let mut searching = Searching::new(&TreeCommand::of(request))?;
        let root = find_root(store, on, Kind::RTREE)?.ok_or(Status::NoTree)?;
        searching.enter(slot_of(&store.owner, root));
        Ok(LongRead::new(Kind::RTREE, Box::new(searching)))
    }

    fn read_turn(
        &self,
        store: &Store<J>,
        read: &mut LongRead,
        found: &mut Vec<u8>,
        now: Now,
    ) -> Result<Turn, Status> {
        let search = read.state.downcast_mut().expect("it began here");
        self.search_turn(store, search, found, now)
    }

    fn tidy(&self, found: &mut Vec<u8>) {
        *found = FoundObjects::of(found).without_doubles();
    }

    fn cut(&self, found: &mut Vec<u8>, most: usize) -> bool {
        if found.len() < most.saturating_mul(ENTRY_BYTES) {
            return false;
        }
        let objects = FoundObjects::of(found);
        let bytes = objects.bytes_of_first(most);
        let is_enough = objects.iter().take(most).count() == most;
        found.truncate(bytes);
        is_enough
    }

    fn release(&mut self, store: &mut Store<J>, root: u32, now: Now) -> bool {
        self.release_some(store, root, now)
    }

    fn bytes_of(&self, _store: &Store<J>, root: u32) -> u64 {
        let named = self.named(root);
        named.tree.bytes() + named.data_bytes + named.heap_bytes()
    }

    fn tick(&mut self, store: &mut Store<J>) {
        self.clear_stages(store);
        self.drop_idle_stages(store);
    }

    fn sweep(&mut self, store: &mut Store<J>, now: Now) -> bool {
        !self.due.is_empty() && self.sweep_due(store, now)
    }

    fn digest(&self, store: &Store<J>, slot: u32, content: &mut Content) -> bool {
        self.digest_tree(store, slot, content)
    }

    fn encoding(&self, _is_whole: bool) -> &'static str {
        "rtree"
    }

    fn head(&self, _store: &Store<J>, root: u32, head: &mut Vec<u8>) {
        self.dump_settings(root, head);
    }

    fn dump(&self, store: &Store<J>, root: u32, at: &mut DumpAt, piece: &mut Vec<u8>) -> bool {
        self.dump_objects(store, root, at, piece)
    }

    fn begin_load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        head: &[u8],
    ) -> Result<Slot, Status> {
        self.begin_load_tree(store, on, head)
    }

    fn load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        root: u32,
        piece: &[u8],
    ) -> Result<(), Status> {
        self.load_objects(store, (on, root), piece)
    }

    fn audit(&self, store: &Store<J>) -> Result<u64, String> {
        self.audit_stages(store)?;
        let mut expiring = 0;
        for (&root, named) in &self.by_root {
            expiring += named.with.expiry;
            if store.is_live(named.root) {
                let name = remora_index::hash::record_key(&store.owner, root);
                let told = |error| format!("tree {}: {error}", name.escape_ascii());
                named.audit(store).map_err(told)?;
            }
        }
        if store.graves.is_empty() && expiring != self.due.len() as u64 {
            return Err(format!("{expiring} objects expire, {} are due", self.due.len()));
        }
        Ok(self.totals.data_bytes)
    }

    fn heap_bytes(&mut self) -> u64 {
        while let Some(root) = self.touched.pop() {
            if let Some(named) = self.by_root.get_mut(&root) {
                let now = named.heap_bytes();
                self.counted_heap = self.counted_heap + now - named.counted_heap;
                named.counted_heap = now;
            }
        }
        self.counted_heap + self.due.len() as u64 * DUE_BYTES
    }

    fn count(&self, stats: &mut ShardStats) {
        stats.trees = self.totals.trees;
        stats.tree_objects = self.totals.objects;
        stats.objects_expired = self.totals.expired;
        stats.tree_bytes = self.totals.node_bytes + self.totals.data_bytes;
    }
}

impl Trees {
    /// An operation on a tree that is there.
    fn on_tree<'s, J: Journal>(
        &'s mut self,
        store: &'s mut Store<J>,
        (on, root): (On<'_>, u32),
        command: &TreeCommand<'_>,
        entry: &Command<'_>,
    ) -> Reply<'s> {
        match *command {
            TreeCommand::Remove { id } => self.remove_object(store, (on, root), id),
            TreeCommand::Get { id } => self.object(store, (on, root), id),
            TreeCommand::SetFields { id, fields } => {
                self.set_fields(store, (on, root), (id, fields), entry)
            }
            TreeCommand::GetFields { id, names } => self.get_fields(store, (on, root), (id, names)),
            TreeCommand::Search { .. }
            | TreeCommand::Count { .. }
            | TreeCommand::Refine { .. }
            | TreeCommand::CountRefined { .. }
            | TreeCommand::Nearest { .. }
            | TreeCommand::Resolve { .. } => self.whole_search(store, root, command, on.now),
            TreeCommand::Info => self.tree_info(root),
            TreeCommand::Stage { load, first, objects } => {
                self.stage(store, (on, root), (load, first), objects, entry)
            }
            TreeCommand::Build { load } => self.build_tree(store, (on, root), load, entry),
            TreeCommand::Create(_)
            | TreeCommand::Drop
            | TreeCommand::Put(_)
            | TreeCommand::SearchAt { .. } => {
                unreachable!("executed before")
            }
        }
    }

    /// A tree is about to change: what it takes on the heap is counted anew.
    fn touch(&mut self, root: u32) {
        if self.touched.last() != Some(&root) {
            self.touched.push(root);
        }
    }

    fn named(&self, root: u32) -> &Named {
        self.by_root.get(&root).expect("a root record has its tree")
    }

    fn named_mut(&mut self, root: u32) -> &mut Named {
        self.by_root.get_mut(&root).expect("a root record has its tree")
    }

    /// Plans a change of a tree; makes room if it is full and keys may go.
    fn plan_change<J: Journal, T>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        plan: impl Fn(&mut Tree, &mut Arena<'_, J>) -> Result<T, TreeError>,
    ) -> Result<T, Status> {
        let named = self.by_root.get_mut(&root).expect("a root record has its tree");
        let before = (named.tree.objects(), named.tree.bytes());
        let mut outcome = plan(&mut named.tree, &mut store.planned_arena());
        if matches!(outcome, Err(TreeError::Full(_))) {
            let run_bytes = named.tree.wanted_run_bytes();
            if store.policy.is_some() && store.make_free(run_bytes, 1, on.now) {
                outcome = plan(&mut named.tree, &mut store.planned_arena());
            }
        }
        self.totals.update(before, &named.tree);
        outcome.map_err(refusal)
    }

    /// Makes a tree of a key that is not there, and fills it aside; `fill` may
    /// refuse. It is one change.
    fn make<J: Journal>(
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
    fn keep_tree<J: Journal>(&mut self, store: &Store<J>, root: Slot, tree: Tree) {
        self.totals.trees += 1;
        self.totals.update((0, 0), &tree);
        let named = Named::new(tree, root, store.options.record_secret);
        self.by_root.insert(root.slot, named);
        self.touch(root.slot);
    }

    fn new_tree<J: Journal>(
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
        let mut made = Tree::create(&mut store.planned_arena(), home, at, options);
        if matches!(made, Err(TreeError::Full(_)))
            && store.policy.is_some()
            && store.make_free(8 * node_bytes(capacity), 1, on.now)
        {
            made = Tree::create(&mut store.planned_arena(), home, at, options);
        }
        made.map(|tree| (root, tree)).map_err(|error| {
            store.give_back(root, on.now);
            refusal(error)
        })
    }

    /// Publishes what was planned of a tree.
    fn publish<J: Journal>(&mut self, store: &mut Store<J>, root: u32) {
        self.publish_as(store, root, store.last_sequence());
    }

    fn tree_info(&mut self, root: u32) -> Reply<'_> {
        let named = self.by_root.get(&root).expect("a root record has its tree");
        let (tree, header) = (&named.tree, named.tree.header());
        let info = TreeInfo {
            at: tree.at(),
            kind: header.kind,
            capacity: header.capacity,
            height: header.height,
            objects: tree.objects(),
            nodes: tree.nodes(),
            node_bytes: tree.bytes(),
            index_bytes: tree.index_bytes(),
            with_data: named.with.data,
            with_geometry: named.with.geometry,
            with_fields: named.with.fields,
            with_expiry: named.with.expiry,
            with_surrogate: named.with.surrogate,
            staged: named.stage.as_ref().map_or(0, Stage::len),
            bounds: header.bounds,
        };
        let scratch = &mut self.scratch;
        scratch.clear();
        scratch.extend_from_slice(info.to_words().as_bytes());
        Reply { value: Some(scratch), ..Reply::status(Status::Ok) }
    }
}
