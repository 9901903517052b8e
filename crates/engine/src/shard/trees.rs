//! Trees of places: by name, beside the keys (docs/decisions/0023).
//!
//! What it keeps true: a change of a tree is made whole or not at all, and
//! logged if it was made, under the position that the changed nodes carry
//! (`changed_at`); what an object carries lies in a record of its own, that no
//! key leads to, and goes with the object; a search that has begun ends, or is told
//! that its tree has gone, whatever happens meanwhile.

mod build;
mod carried;
mod refine;
mod search;

pub use search::TreeSearch;

use super::{Now, Shard};
use crate::command::{Command, Reply, TreeCommand, TreeRequest, TreeSettings};
use remora_arena::Journal;
use remora_index::rtree::{Arena, Tree, TreeError, TreeOptions};
use remora_layout::limits::{MAX_TREES, NODE_RUN_BYTES};
use remora_layout::message::Status;
use remora_layout::node::{Home, node_bytes};
use remora_layout::plant::{Plant, planted};
use remora_layout::rect::Rect;
use remora_layout::tree::TreeInfo;
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// One tree, and what belongs to its objects.
struct Named {
    tree: Tree,
    /// No two trees of a shard ever have the same.
    serial: u64,
    /// Slots of what the objects carry.
    records: BTreeMap<u64, u32>,
    /// Objects that have bytes, and those that have a geometry.
    with_data: u64,
    with_geometry: u64,
    /// What it is to be built of.
    staged: Vec<(u64, Rect)>,
    /// Which load that is.
    load: u64,
}

/// The trees of one shard.
#[derive(Default)]
pub(super) struct Trees {
    by_name: BTreeMap<Box<[u8]>, Named>,
    last_serial: u64,
    totals: Totals,
    /// What a reply's value is made in.
    scratch: Vec<u8>,
}

/// What all trees of a shard have.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    pub objects: u64,
    /// Bytes of the arena for nodes.
    pub node_bytes: u64,
    /// Bytes of the arena for objects' bytes.
    pub data_bytes: u64,
}

impl Trees {
    /// Number of trees.
    pub fn len(&self) -> u64 {
        self.by_name.len() as u64
    }

    /// What they have.
    pub fn totals(&self) -> Totals {
        self.totals
    }
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

impl<J: Journal> Shard<J> {
    /// Executes a command about a tree, a search to its end.
    pub(super) fn tree(&mut self, name: &[u8], request: TreeRequest<'_>, now: Now) -> Reply<'_> {
        let command = request.command();
        let entry = Command::Tree { name, request };
        match command {
            TreeCommand::Create(settings) => self.create_tree(name, settings, &entry, now),
            TreeCommand::Drop => self.drop_tree(name, &entry, now),
            TreeCommand::Put { id, rect, data, geometry } => {
                self.put_object(name, (id, rect), (data, geometry), &entry, now)
            }
            TreeCommand::Remove { id } => self.remove_object(name, id, &entry, now),
            TreeCommand::Get { id } => self.object(name, id),
            TreeCommand::Search { .. } | TreeCommand::Count { .. } => {
                self.whole_search(name, command)
            }
            TreeCommand::Refine { .. } | TreeCommand::CountRefined { .. } => {
                self.whole_refine(name, request)
            }
            TreeCommand::SearchAt { .. } => Reply::status(Status::AskOwner),
            TreeCommand::Nearest { x, y, wanted } => self.nearest(name, (x, y), wanted as usize),
            TreeCommand::Info => self.tree_info(name),
            TreeCommand::Stage { load, first, objects } => {
                self.stage(name, (load, first), objects, &entry)
            }
            TreeCommand::Build { load } => self.build_tree(name, load, &entry, now),
        }
    }

    /// Changes a tree; makes room if it is full and something may go.
    fn change_tree<T>(
        &mut self,
        name: &[u8],
        now: Now,
        change: impl Fn(&mut Tree, &mut Arena<'_, J>) -> Result<T, TreeError>,
    ) -> Result<T, Status> {
        let try_once = |shard: &mut Self| {
            let named = shard.trees.by_name.get_mut(name).ok_or(None)?;
            let changed_at = shard.log.last_sequence() + 1;
            let (owner, slots) = (&mut shard.owner, &mut shard.slots);
            let before = (named.tree.objects(), named.tree.bytes());
            let changed = change(&mut named.tree, &mut Arena { owner, slots, changed_at });
            shard.trees.totals.update(before, &named.tree);
            changed.map_err(Some)
        };
        let mut outcome = try_once(self);
        if matches!(outcome, Err(Some(TreeError::Full(_)))) && self.make_node_room(name, now) {
            outcome = try_once(self);
        }
        outcome.map_err(|error| error.map_or(Status::NoTree, refusal))
    }

    /// Lets keys go until a run for a tree's nodes is free, where keys may go.
    fn make_node_room(&mut self, name: &[u8], now: Now) -> bool {
        let Some(named) = self.trees.by_name.get(name) else { return false };
        let node = node_bytes(named.tree.header().capacity as usize);
        self.policy.is_some() && self.make_free(NODE_RUN_BYTES.max(8 * node), 1, now)
    }

    /// Sees to it that so many runs are free.
    pub(super) fn make_free(&mut self, bytes: usize, runs: usize, now: Now) -> bool {
        let made: Vec<usize> = (0..runs).map_while(|_| self.make_run(bytes, now)).collect();
        self.shed_thinned(now);
        made.iter().for_each(|&run| self.slots.give_run(run, bytes));
        made.len() == runs
    }

    fn create_tree(
        &mut self,
        name: &[u8],
        settings: TreeSettings,
        entry: &Command<'_>,
        now: Now,
    ) -> Reply<'_> {
        if self.trees.by_name.contains_key(name) {
            return Reply::status(Status::NotDone);
        }
        match self.new_tree(name, settings, now) {
            Ok(()) => {
                self.log.append(entry);
                Reply::status(Status::Ok)
            }
            Err(status) => Reply::status(status),
        }
    }

    fn new_tree(&mut self, name: &[u8], settings: TreeSettings, now: Now) -> Result<(), Status> {
        if self.trees.by_name.len() >= MAX_TREES {
            return Err(Status::TooManyTrees);
        }
        let TreeSettings { kind, capacity, bounds } = settings;
        let options = TreeOptions { kind, capacity, bounds };
        let home = Home { secret: self.options.record_secret, region: self.options.region };
        let make = |shard: &mut Self| {
            let changed_at = shard.log.last_sequence() + 1;
            let (owner, slots) = (&mut shard.owner, &mut shard.slots);
            Tree::create(&mut Arena { owner, slots, changed_at }, home, options)
        };
        let mut made = make(self);
        if matches!(made, Err(TreeError::Full(_)))
            && self.policy.is_some()
            && self.make_free(NODE_RUN_BYTES.max(8 * node_bytes(capacity)), 1, now)
        {
            made = make(self);
        }
        let tree = made.map_err(refusal)?;
        self.trees.totals.update((0, 0), &tree);
        self.trees.last_serial += 1;
        let serial = self.trees.last_serial;
        let named = Named {
            tree,
            serial,
            records: BTreeMap::new(),
            with_data: 0,
            with_geometry: 0,
            staged: Vec::new(),
            load: 0,
        };
        self.trees.by_name.insert(name.into(), named);
        Ok(())
    }

    fn drop_tree(&mut self, name: &[u8], entry: &Command<'_>, now: Now) -> Reply<'_> {
        let Some(named) = self.trees.by_name.remove(name) else { return Reply::number(0) };
        self.log.append(entry);
        self.end_tree(named, now);
        Reply::number(1)
    }

    fn end_tree(&mut self, named: Named, now: Now) {
        for slot in named.records.into_values() {
            self.drop_record(slot, now);
        }
        self.trees.totals.objects -= named.tree.objects();
        self.trees.totals.node_bytes -= named.tree.bytes();
        let changed_at = self.log.last_sequence();
        let (owner, slots) = (&mut self.owner, &mut self.slots);
        named.tree.destroy(&mut Arena { owner, slots, changed_at });
    }

    /// Ends all trees: a flush.
    pub(super) fn drop_all_trees(&mut self, now: Now) {
        for (_, named) in std::mem::take(&mut self.trees.by_name) {
            self.end_tree(named, now);
        }
    }

    /// An object was refused: a tree made for it goes again.
    fn not_put(&mut self, name: &[u8], is_made: bool, status: Status, now: Now) -> Reply<'_> {
        if is_made && let Some(named) = self.trees.by_name.remove(name) {
            self.end_tree(named, now);
        }
        Reply::status(status)
    }

    fn remove_object(&mut self, name: &[u8], id: u64, entry: &Command<'_>, now: Now) -> Reply<'_> {
        let hidden = self.hide_record(name, id);
        match self.change_tree(name, now, |tree, arena| tree.remove(arena, id)) {
            Ok(true) => {
                self.log.append(entry);
                if !planted(Plant::DataOutlivesObject) {
                    self.set_record(name, id, None, now);
                }
                Reply::number(1)
            }
            Ok(false) | Err(Status::NoTree) => Reply::number(0),
            Err(status) => {
                self.show_record(hidden);
                Reply::status(status)
            }
        }
    }

    fn tree_info(&mut self, name: &[u8]) -> Reply<'_> {
        let Some(named) = self.trees.by_name.get(name) else {
            return Reply::status(Status::NoTree);
        };
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
            with_data: named.with_data,
            with_geometry: named.with_geometry,
            staged: named.staged.len() as u64,
            bounds: header.bounds,
        };
        let scratch = &mut self.trees.scratch;
        scratch.clear();
        scratch.extend_from_slice(info.to_words().as_bytes());
        Reply { value: Some(scratch), ..Reply::status(Status::Ok) }
    }
}
