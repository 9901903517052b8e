//! Trees of places: keys of type `rtree` (docs/decisions/0029).
//!
//! Invariant: a change of a tree is planned whole on images of the nodes that it touches, then
//! logged, then published under the sequence that the changed nodes carry (`changed_at`). An
//! object's payload lies in a record of its own, which no key leads to and which is removed with
//! the object. A search that has begun ends, or gets the answer that its tree is gone, whatever
//! happens meanwhile.

mod build;
mod digest;
mod expire;
mod named;
mod payload;
mod put;
mod record;
mod refine;
mod release;
mod search;
mod seek;
mod stage;
mod staging;
mod transfer;
mod trees;

pub(crate) use trees::Trees;

use super::content::Content;
use super::object::{DumpedPart, LongRead, On, Turn, Type, find_root};
use super::sought::{Seek, Sought};
use crate::keys;
use crate::store::{DumpAt, Now, ShardStats, Store};
use remora_arena::{Journal, Slot, slot_of};
use remora_layout::kind::Kind;
use remora_layout::limits::MAX_NEAREST;
use remora_layout::node::ENTRY_BYTES;
use remora_layout::tree::TreeInfo;
use remora_protocol::message::Status;
use remora_protocol::tree::{FoundObjects, TreeCommand};
use remora_protocol::{Command, Reply, Request};
use search::Searching;
use stage::Stage;
use trees::DUE_BYTES;
use zerocopy::IntoBytes;

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
            (TreeCommand::Drop, Some(_)) => keys::del(store, on),
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

    fn seek(&self, sought: &Sought<'_>) -> Option<Box<dyn Seek>> {
        seek::seek(sought)
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
        !self.due.is_empty() && store.may_expire() && self.sweep_due(store, now)
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

    fn is_unfinished(&self, root: u32) -> bool {
        self.named(root).stage.is_some()
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

    fn requests(&self, part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) -> bool {
        transfer::requests(part, each)
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
        if !store.has_graves() && expiring != self.due.len() as u64 {
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
    /// An operation on an existing tree.
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
            | TreeCommand::Resolve(_) => self.whole_search(store, root, command, on.now),
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
