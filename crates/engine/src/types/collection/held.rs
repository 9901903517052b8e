//! The collections of a shard by their root records, and how one is made and ends.
//!
//! Invariant: what a collection has and takes is counted where it changes ([`Collections::on`]). The record
//! that has the header of an index is pending while it is there: nothing but the B+tree's header in its state is
//! read, and it never moves.

use super::entry::ID_INDEX;
use super::places::{Places, geo_field};
use super::settings::Settings;
use super::spec::Spec;
use crate::store::{Now, Store};
use crate::types::arena::{logged_arena, planned_arena};
use crate::types::object::On;
use remora_arena::{ArenaFull, Journal, Slot, set_state_guardian};
use remora_document::GeoKind;
use remora_index::btree::{Options, Tree, TreeError};
use remora_index::hash::record_value;
use remora_index::rtree;
use remora_layout::btree::{KeyForm, ORDERED_ROOT_BYTES};
use remora_layout::collection::COLLECTION_PARTS_AT;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{
    INDEX_FAN_OUT, MAX_DOCUMENT_ID_BYTES, MAX_ORDERED_KEY_BYTES, RELEASE_RECORDS,
};
use remora_layout::node::{Home, NodeRef};
use remora_layout::record::State;
use remora_layout::tree::TREE_HEADER_BYTES;
use remora_protocol::Command;
use remora_protocol::message::Status;
use std::collections::{BTreeMap, BTreeSet};

/// A collection, and its state beside the arena.
pub(super) struct Collection {
    pub root: Slot,
    pub settings: Settings,
    /// Of all encoded `_id`s.
    pub ids: Tree,
    pub indexes: Vec<Index>,
    /// Bytes of all documents.
    pub size: u64,
    /// Of its indexes, as clients read it.
    pub version: u64,
}

/// An index beside that of the `_id`.
pub(super) struct Index {
    pub spec: Spec,
    /// The record with the header of its tree.
    pub header: Slot,
    pub tree: Tree,
    /// The rectangles of its documents, if it has geometries.
    pub places: Option<Places>,
    /// The fields, by their bits, of which a document has had several values.
    pub multikey: u32,
    /// Entries whose values may be cut.
    pub cut: u64,
    /// It has entries of some documents only.
    pub building: Option<Building>,
}

/// An index that is being built.
pub(super) struct Building {
    /// It has the documents up to this encoded `_id`.
    pub upto: Vec<u8>,
    /// The tick of its last step.
    pub touched_s: u64,
}

/// Where an insertion goes on that the shard carries out again, because it has made room. Until then it does nothing
/// else.
pub(super) struct Resumed {
    /// Of the collection's key.
    pub hash: KeyHash,
    /// The first document that is not added yet.
    pub first: usize,
    /// The failures before it, as documents.
    pub failures: Vec<u8>,
}

/// A tree whose header is dead.
enum Dropped {
    Keys(Tree),
    Places(rtree::Tree),
}

impl Dropped {
    /// Releases some memory; true once there is none.
    fn release_some<J: Journal>(&mut self, store: &mut Store<J>) -> bool {
        match self {
            Self::Keys(tree) => tree.release_some(&mut logged_arena(store)),
            Self::Places(tree) => tree.release_some(&mut logged_arena(store)),
        }
    }

    fn heap_bytes(&self) -> u64 {
        match self {
            Self::Keys(tree) => tree.heap_bytes(),
            Self::Places(tree) => tree.heap_bytes(),
        }
    }
}

/// The collections of one shard.
#[derive(Default)]
pub(crate) struct Collections {
    pub(super) by_root: BTreeMap<u32, Collection>,
    /// Trees of indexes that were removed, by the slots of their headers' records: they are released in turns.
    dropped: BTreeMap<u32, Dropped>,
    /// Root records of collections with an index whose documents expire, or that is being built.
    pub(super) timed: BTreeSet<u32>,
    /// Where the next turn goes on to look for documents that have expired.
    pub(super) expires_from: u32,
    /// An insertion that is carried out again.
    pub(super) resumed: Option<Resumed>,
    counts: Counts,
    /// The buffer in which all trees write their nodes.
    node: Vec<u8>,
    /// The value of a reply.
    pub(super) scratch: Vec<u8>,
}

/// What collections have and take.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Counts {
    /// On the heap, about, bytes.
    pub heap_bytes: u64,
    pub documents: u64,
    /// Bytes of all documents.
    pub document_bytes: u64,
    /// Those beside the `_id`s', also while they are built.
    pub indexes: u64,
    /// Bytes of the arena that the nodes of all trees take.
    pub node_bytes: u64,
}

impl Counts {
    /// One part of these counts has changed.
    fn exchange(&mut self, before: Self, after: Self) {
        let changed = |all: u64, before: u64, after: u64| all + after - before;
        *self = Self {
            heap_bytes: changed(self.heap_bytes, before.heap_bytes, after.heap_bytes),
            documents: changed(self.documents, before.documents, after.documents),
            document_bytes: changed(
                self.document_bytes,
                before.document_bytes,
                after.document_bytes,
            ),
            indexes: changed(self.indexes, before.indexes, after.indexes),
            node_bytes: changed(self.node_bytes, before.node_bytes, after.node_bytes),
        };
    }

    /// Adds what one collection has.
    pub fn add(&mut self, of: Self) {
        self.exchange(Self::default(), of);
    }
}

impl Index {
    /// Whether searches may use it.
    pub fn is_ready(&self) -> bool {
        self.building.is_none()
    }

    /// The records with the headers of its trees.
    pub fn headers(&self) -> impl Iterator<Item = Slot> {
        std::iter::once(self.header).chain(self.places.as_ref().map(|places| places.header))
    }

    /// Bytes of the nodes of its trees.
    fn node_bytes(&self) -> u64 {
        self.tree.bytes() + self.places.as_ref().map_or(0, |places| places.tree.bytes())
    }

    /// Bytes on the heap, about.
    fn heap_bytes(&self) -> u64 {
        let places = self.places.as_ref().map_or(0, |places| places.tree.heap_bytes());
        self.spec.heap_bytes() + self.tree.heap_bytes() + places
    }
}

impl Collection {
    /// Bytes that it takes on the heap, about.
    pub fn heap_bytes(&self) -> u64 {
        let indexes: u64 = self.indexes.iter().map(Index::heap_bytes).sum();
        self.ids.heap_bytes() + indexes + self.settings.heap_bytes() + size_of::<Self>() as u64
    }

    /// Bytes of the nodes of all its trees.
    pub fn node_bytes(&self) -> u64 {
        self.ids.bytes() + self.indexes.iter().map(Index::node_bytes).sum::<u64>()
    }

    /// What it has and takes.
    pub fn counts(&self) -> Counts {
        Counts {
            heap_bytes: self.heap_bytes(),
            documents: self.ids.keys(),
            document_bytes: self.size,
            indexes: self.indexes.len() as u64,
            node_bytes: self.node_bytes(),
        }
    }

    /// The index of this name.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.indexes.iter().position(|index| index.spec.name == name)
    }

    /// The indexes that are complete, each with the bytes of its nodes.
    pub fn ready(&self) -> impl Iterator<Item = (&str, u64)> {
        let others = self.indexes.iter().filter(|index| index.is_ready());
        let others = others.map(|index| (index.spec.name.as_str(), index.node_bytes()));
        std::iter::once((ID_INDEX, self.ids.bytes())).chain(others)
    }

    /// The document of this encoded `_id`.
    pub fn document<'s, J: Journal>(&self, store: &'s Store<J>, id: &[u8]) -> Option<&'s [u8]> {
        let found = store.parts.of(self.root.slot).find(&store.owner, id)?;
        Some(record_value(&store.owner, found.slot.slot))
    }
}

/// Works on a tree with a buffer for its nodes.
pub(super) fn with_node<R>(
    tree: &mut Tree,
    node: &mut Vec<u8>,
    work: impl FnOnce(&mut Tree) -> R,
) -> R {
    tree.swap_scratch(node);
    let done = work(tree);
    tree.swap_scratch(node);
    done
}

fn create<J: Journal>(
    store: &mut Store<J>,
    (at, key_bytes): (NodeRef, usize),
    now: Now,
) -> Result<Tree, Status> {
    let home = Home { secret: store.options.record_secret, region: store.options.region };
    let options = Options::of(KeyForm::Bytes, INDEX_FAN_OUT, key_bytes, 0);
    let mut made = Tree::create(&mut planned_arena(store), home, at, options);
    if matches!(made, Err(TreeError::Full(_))) && store.make_free(8 * options.node_bytes, now) {
        made = Tree::create(&mut planned_arena(store), home, at, options);
    }
    made.map_err(|error| match error {
        TreeError::Full(_) => Status::OutOfMemory,
        error => unreachable!("the settings are within the limits: {error}"),
    })
}

/// An empty R-tree for geometries of this kind.
fn begin_places<J: Journal>(
    store: &mut Store<J>,
    (on, name, kind): (On<'_>, &str, GeoKind),
) -> Result<Places, Status> {
    let named = (name.as_bytes(), on.hash);
    let header = store.new_root(named, Kind::COLLECTION, TREE_HEADER_BYTES, 0, on.now);
    let header = header.map_err(full)?;
    Places::create(store, header, kind, on.now).inspect_err(|_| store.give_back(header, on.now))
}

pub(super) fn full(_: ArenaFull) -> Status {
    Status::OutOfMemory
}

impl Collections {
    /// A collection that is there.
    pub(super) fn named(&self, root: u32) -> &Collection {
        self.by_root.get(&root).expect("a root record has its collection")
    }

    /// Works on a collection that is there, with a buffer for the nodes of its trees.
    pub(super) fn on<R>(
        &mut self,
        root: u32,
        work: impl FnOnce(&mut Collection, &mut Vec<u8>) -> R,
    ) -> R {
        let named = self.by_root.get_mut(&root).expect("a root record has its collection");
        let before = named.counts();
        let done = work(named, &mut self.node);
        self.counts.exchange(before, named.counts());
        done
    }

    /// What all collections have and take, by the books.
    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes on the heap for all collections.
    pub(super) fn all_heap_bytes(&self) -> u64 {
        let dropped: u64 = self.dropped.values().map(Dropped::heap_bytes).sum();
        self.counts.heap_bytes + dropped
    }

    /// An empty collection that no key leads to.
    pub(super) fn begin<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        settings: Settings,
    ) -> Result<Slot, Status> {
        let kinds = (Kind::COLLECTION, Kind::DOCUMENT, |_: &[u8]| None);
        let of = (kinds.0, kinds.1, kinds.2 as crate::store::NumberOf, COLLECTION_PARTS_AT);
        let root = store.new_parts((on.key, on.hash), of, 0, on.now).map_err(full)?;
        let at = (store.state_of(root), MAX_DOCUMENT_ID_BYTES);
        match create(store, at, on.now) {
            Ok(ids) => {
                let (indexes, size, version) = (Vec::new(), 0, 0);
                let made = Collection { root, settings, ids, indexes, size, version };
                self.counts.add(made.counts());
                self.by_root.insert(root.slot, made);
                Ok(root)
            }
            Err(status) => {
                store.forget_parts(root.slot, on.now);
                store.give_back(root, on.now);
                Err(status)
            }
        }
    }

    /// Makes a collection of a key that is not there, which `fill` fills or refuses. It is one change.
    pub(super) fn make<J: Journal, E: From<Status>>(
        &mut self,
        store: &mut Store<J>,
        (on, settings): (On<'_>, Settings),
        entry: &Command<'_>,
        fill: impl FnOnce(&mut Self, &mut Store<J>, u32) -> Result<(), E>,
    ) -> Result<u32, E> {
        let root = self.begin(store, on, settings)?;
        if let Err(refused) = fill(self, store, root.slot) {
            self.abandon(store, root, on.now);
            return Err(refused);
        }
        let named = (on.key, on.hash);
        if store.enter_parts(named, (root, 0), entry, on.now).is_err() {
            self.forget(store, root, on.now);
            return Err(Status::OutOfMemory.into());
        }
        Ok(root.slot)
    }

    /// Gives up a collection that no key has led to.
    pub(super) fn abandon<J: Journal>(&mut self, store: &mut Store<J>, root: Slot, now: Now) {
        self.forget(store, root, now);
        store.give_back(root, now);
    }

    /// Frees all of a collection that no key has led to, but its root record.
    fn forget<J: Journal>(&mut self, store: &mut Store<J>, root: Slot, now: Now) {
        // Bounded by what was made for one command.
        while !self.release_some(store, root.slot, now) {}
        set_state_guardian(&mut store.owner, root, State::Dead);
    }

    /// An empty index, which is not one of the collection's yet.
    pub(super) fn begin_index<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        spec: Spec,
    ) -> Result<Index, Status> {
        let named = (spec.name.as_bytes(), on.hash);
        let header = store.new_root(named, Kind::COLLECTION, ORDERED_ROOT_BYTES, 0, on.now);
        let header = header.map_err(full)?;
        let at = (store.state_of(header), MAX_ORDERED_KEY_BYTES);
        let tree = match create(store, at, on.now) {
            Ok(tree) => tree,
            Err(status) => {
                store.give_back(header, on.now);
                return Err(status);
            }
        };
        let mut index =
            Index { spec, header, tree, places: None, multikey: 0, cut: 0, building: None };
        if let Some((_, kind)) = geo_field(&index.spec.fields) {
            match begin_places(store, (on, &index.spec.name, kind)) {
                Ok(places) => index.places = Some(places),
                Err(status) => {
                    self.bury(store, index);
                    return Err(status);
                }
            }
        }
        Ok(index)
    }

    /// Adds an index to a collection.
    pub(super) fn add_index<J: Journal>(&mut self, store: &mut Store<J>, root: u32, index: Index) {
        self.on(root, |collection, _| {
            collection.indexes.push(index);
            collection.raise_version(store);
        });
        self.note_time(store, root);
    }

    /// Takes an index out of a collection; its memory is released in turns.
    pub(super) fn bury_index<J: Journal>(&mut self, store: &mut Store<J>, root: u32, at: usize) {
        let index = self.on(root, |collection, _| collection.indexes.remove(at));
        self.bury(store, index);
        self.note_time(store, root);
    }

    /// Leaves the memory of an index to be released in turns.
    fn bury<J: Journal>(&mut self, store: &mut Store<J>, index: Index) {
        let places = index.places.map(|of| (of.header, Dropped::Places(of.tree)));
        let all = std::iter::once((index.header, Dropped::Keys(index.tree))).chain(places);
        for (header, tree) in all {
            let dead = store.flip_dead(header.slot);
            self.dropped.insert(dead.slot, tree);
            store.bury_rest(Kind::COLLECTION, dead);
        }
    }

    /// Notes whether a collection has something to do at some time.
    pub(super) fn note_time<J: Journal>(&mut self, store: &mut Store<J>, root: u32) {
        let has_time = self.by_root.get(&root).is_some_and(|collection| {
            let is_timed =
                |index: &Index| !index.is_ready() || index.spec.expires_after_s.is_some();
            collection.indexes.iter().any(is_timed)
        });
        match has_time {
            true => self.timed.insert(root),
            false => self.timed.remove(&root),
        };
        store.timed_objects = self.timed.len() as u64;
    }

    /// Releases some memory of a collection that no key leads to any more, or of an index that was removed. True
    /// once none is left.
    pub(super) fn release_some<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        now: Now,
    ) -> bool {
        if let Some(tree) = self.dropped.get_mut(&root) {
            let ended = tree.release_some(store);
            if ended {
                self.dropped.remove(&root);
            }
            return ended;
        }
        if !store.release_parts(root, RELEASE_RECORDS, now) {
            return false;
        }
        if !self.by_root.contains_key(&root) {
            return true;
        }
        let ended = self.on(root, |collection, _| {
            let Some(index) = collection.indexes.last_mut() else {
                return collection.ids.release_some(&mut logged_arena(store));
            };
            let arena = &mut logged_arena(store);
            let header = if let Some(places) = &mut index.places {
                let ended = places.tree.release_some(arena);
                index.places.take_if(|_| ended).map(|places| places.header)
            } else {
                let ended = index.tree.release_some(arena);
                collection.indexes.pop_if(|_| ended).map(|index| index.header)
            };
            if let Some(header) = header {
                set_state_guardian(&mut store.owner, header, State::Dead);
                store.give_back(header, now);
            }
            false
        });
        if ended && let Some(gone) = self.by_root.remove(&root) {
            self.counts.exchange(gone.counts(), Counts::default());
            self.note_time(store, root);
        }
        ended
    }
}
