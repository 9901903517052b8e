//! A change of documents and of all their entries, as one: planned with all its memory, logged, published.
//!
//! Invariant: each document has its entries in each index, and no others, before a change and behind it. New
//! entries come before old ones go, so that a reader of one tree meets the document under one key at least.

use super::entry::{NOTHING, cut, entry, id_of, may_be_cut, split};
use super::failure::{Failure, code};
use super::held::{Collection, Collections, Index, full, with_node};
use super::places::{geo_entry, geo_field};
use crate::store::{Now, PartValue, PlannedParts, Store};
use crate::types::arena::{arena_at, planned_arena};
use crate::types::object::On;
use bson::raw::RawDocument;
use remora_arena::Journal;
use remora_document::{behind, document_keys, key_values};
use remora_index::btree::{Range, Tree, TreeError};
use remora_layout::limits::MAX_INDEX_RANGES;
use remora_layout::rect::Rect;
use remora_protocol::Command;
use remora_protocol::message::Status;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Entries with the same first bytes that a check of uniqueness compares, at most.
const MOST_COMPARED: usize = MAX_INDEX_RANGES;

/// What a document becomes.
pub(super) struct Edit {
    pub id: Vec<u8>,
    /// Its bytes; none if it goes.
    pub new: Option<Vec<u8>>,
    /// Bytes of the document that is there.
    old_bytes: Option<usize>,
    indexes: Vec<IndexEdit>,
}

/// What of that concerns one index.
struct IndexEdit {
    at: usize,
    adds: Vec<Vec<u8>>,
    gone: Vec<Vec<u8>>,
    multikey: u32,
    /// The rectangle that its geometries get, or none any more; if that changes.
    rect: Option<Option<Rect>>,
}

/// The unique keys of documents that become one change.
#[derive(Default)]
pub(super) struct Pending {
    ids: BTreeSet<Vec<u8>>,
    /// By the index's place.
    keys: BTreeSet<(usize, Vec<u8>)>,
}

/// What an index has of one document.
struct Entries {
    /// The encoded values, whole.
    values: Vec<Vec<u8>>,
    /// In ascending order, each once.
    entries: Vec<Vec<u8>>,
    multikey: u32,
    /// Around its geometries.
    rect: Option<Rect>,
}

impl Entries {
    const NONE: Self = Self { values: Vec::new(), entries: Vec::new(), multikey: 0, rect: None };
}

impl Index {
    /// The entries of a document, as far as the index has it.
    fn entries_of(&self, document: &RawDocument, id: &[u8]) -> Result<Entries, Failure> {
        let is_covered = self.building.as_ref().is_none_or(|building| id <= &building.upto[..]);
        let is_part = self.spec.partial.as_ref().is_none_or(|filter| filter.matches(document));
        if !is_covered || !is_part {
            return Ok(Entries::NONE);
        }
        self.all_entries_of(document, id)
    }

    /// The rectangle around the geometries of a document, as far as the index has it.
    pub fn rect(&self, document: &RawDocument, id: &[u8]) -> Result<Option<Rect>, Failure> {
        self.entries_of(document, id).map(|of| of.rect)
    }

    fn all_entries_of(&self, document: &RawDocument, id: &[u8]) -> Result<Entries, Failure> {
        if let Some((field, _)) = geo_field(&self.spec.fields) {
            let rect = field.rect(document)?;
            let entries = rect.iter().map(|_| geo_entry(id)).collect();
            return Ok(Entries { entries, rect, ..Entries::NONE });
        }
        let keys = document_keys(&self.spec.fields, document, self.spec.is_sparse)?;
        let mut entries: Vec<Vec<u8>> = keys.keys.iter().map(|key| entry(key, id)).collect();
        // Values that differ behind their first bytes have one entry.
        entries.dedup();
        Ok(Entries { values: keys.keys, entries, multikey: keys.multikey, rect: None })
    }

    /// The entries of a document in ascending order.
    pub fn entries(&self, document: &RawDocument, id: &[u8]) -> Vec<Vec<u8>> {
        self.entries_of(document, id).map(|of| of.entries).unwrap_or_default()
    }
}

impl Collection {
    /// What it takes to give a document its new bytes, or to remove it. `checks`: no other document may have
    /// its unique keys; the others are those of the collection, and those pending.
    ///
    /// # Errors
    /// One has, or the document cannot have keys in an index.
    pub fn edit<J: Journal>(
        &self,
        store: &Store<J>,
        (id, new): (&[u8], Option<&RawDocument>),
        checks: Option<(&mut Pending, &[u8])>,
    ) -> Result<Edit, Failure> {
        let old = self.document(store, id);
        let old_document = old.and_then(|old| RawDocument::from_bytes(old).ok());
        let mut indexes = Vec::new();
        let mut unique = Vec::new();
        for (at, index) in self.indexes.iter().enumerate() {
            let of = |document: Option<&RawDocument>| match document {
                Some(document) => index.entries_of(document, id).map(Some),
                None => Ok(None),
            };
            let (was, is) = (of(old_document)?, of(new)?);
            let entries = |of: &Option<Entries>| -> BTreeSet<Vec<u8>> {
                of.iter().flat_map(|of| of.entries.iter().cloned()).collect()
            };
            let (before, after) = (entries(&was), entries(&is));
            let adds: Vec<Vec<u8>> = after.difference(&before).cloned().collect();
            let gone: Vec<Vec<u8>> = before.difference(&after).cloned().collect();
            let rect = |of: &Option<Entries>| of.as_ref().and_then(|of| of.rect);
            let rect = Some(rect(&is)).filter(|is| *is != rect(&was));
            if let (Some((_, name)), Some(is)) = (&checks, &is)
                && index.spec.is_unique
            {
                let had = was.map(|was| was.values).unwrap_or_default();
                let document = new.expect("it has entries");
                for values in is.values.iter().filter(|values| !had.contains(values)) {
                    if index.has_other(store, self, (values, id))? {
                        return Err(index.duplicate(name, document, values));
                    }
                    unique.push((at, values.clone()));
                }
            }
            if !adds.is_empty() || !gone.is_empty() || rect.is_some() {
                let multikey = is.map_or(0, |is| is.multikey);
                indexes.push(IndexEdit { at, adds, gone, multikey, rect });
            }
        }
        if let (Some((pending, name)), Some(new)) = (checks, new) {
            pending.take(self, (id, new), unique, name)?;
        }
        let (new, old_bytes) = (new.map(|new| new.as_bytes().to_vec()), old.map(<[u8]>::len));
        Ok(Edit { id: id.to_vec(), new, old_bytes, indexes })
    }

    /// Publishes the keys of edits: all that come, then all that go. Nodes are reserved for insertions before which
    /// no key goes.
    fn publish_keys<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (edits, changed_at): (&[Edit], u64),
        node: &mut Vec<u8>,
    ) {
        let (mut ids, mut gone_ids) = (Vec::new(), Vec::new());
        for edit in edits {
            let bytes = |of: Option<usize>| of.unwrap_or(0) as u64;
            self.size = self.size + bytes(edit.new.as_ref().map(Vec::len)) - bytes(edit.old_bytes);
            match (edit.old_bytes, &edit.new) {
                (None, Some(_)) => ids.push(&edit.id),
                (Some(_), None) => gone_ids.push(&edit.id),
                _ => {}
            }
        }
        publish(store, (&mut self.ids, node), (&ids, &gone_ids), changed_at);
        let mut all = edits.iter().flat_map(|edit| &edit.indexes);
        if all.any(|of| of.multikey & !self.indexes[of.at].multikey != 0) {
            // Before the entries.
            self.raise_version(store);
        }
        for (at, index) in self.indexes.iter_mut().enumerate() {
            let (mut adds, mut gone) = (Vec::new(), Vec::new());
            for of in edits.iter().flat_map(|edit| &edit.indexes).filter(|of| of.at == at) {
                adds.extend(&of.adds);
                gone.extend(&of.gone);
                index.multikey |= of.multikey;
            }
            index.cut = index.cut + cut_entries(&adds) - cut_entries(&gone);
            publish(store, (&mut index.tree, node), (&adds, &gone), changed_at);
            let Some(places) = &mut index.places else { continue };
            for edit in edits {
                let of = edit.indexes.iter().find(|of| of.at == at);
                if let Some(rect) = of.and_then(|of| of.rect) {
                    places.publish(store, &index.tree, (&edit.id, rect), changed_at);
                }
            }
        }
    }
}

/// How many entries may be cut.
fn cut_entries(entries: &[&Vec<u8>]) -> u64 {
    entries.iter().filter(|entry| may_be_cut(split(entry).0)).count() as u64
}

impl Index {
    /// Whether a document of another `_id` has these values.
    fn has_other<J: Journal>(
        &self,
        store: &Store<J>,
        collection: &Collection,
        (values, id): (&[u8], &[u8]),
    ) -> Result<bool, Failure> {
        let (first, is_cut) = (cut(values), may_be_cut(values));
        let end = behind(first);
        let range = Range {
            from: Bound::Included(first),
            to: if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(&end) },
            limit: if is_cut { MOST_COMPARED } else { 2 },
            ..Range::ALL
        };
        let mut has_other = false;
        let found = self.tree.range(&store.owner, range, |entry, _| {
            let (_, of) = split(entry);
            if of != id && !has_other {
                has_other = !is_cut || self.has_values(store, collection, (of, values));
            }
        });
        if is_cut && !has_other && found == MOST_COMPARED {
            let text = format!(
                "KeyTooLong: {MOST_COMPARED} long keys of the unique index {} begin with the same bytes",
                self.spec.name
            );
            return Err(Failure::new(code::KEY_TOO_LONG, text));
        }
        Ok(has_other)
    }

    /// Whether a document has these values, whole.
    fn has_values<J: Journal>(
        &self,
        store: &Store<J>,
        collection: &Collection,
        (id, values): (&[u8], &[u8]),
    ) -> bool {
        let document = collection.document(store, id);
        let document = document.and_then(|document| RawDocument::from_bytes(document).ok());
        let keys = document.and_then(|of| document_keys(&self.spec.fields, of, false).ok());
        keys.is_some_and(|keys| keys.keys.iter().any(|key| key == values))
    }

    fn duplicate(&self, collection: &[u8], document: &RawDocument, values: &[u8]) -> Failure {
        let told = key_values(&self.spec.fields, document, values).unwrap_or_default();
        Failure::duplicate(collection, &self.spec.name, &self.spec.key, told)
    }
}

impl Pending {
    /// A document becomes a part of the change.
    fn take(
        &mut self,
        collection: &Collection,
        (id, document): (&[u8], &RawDocument),
        unique: Vec<(usize, Vec<u8>)>,
        name: &[u8],
    ) -> Result<(), Failure> {
        // A document's own keys differ.
        if let Some((at, values)) = unique.iter().find(|key| self.keys.contains(*key)) {
            return Err(collection.indexes[*at].duplicate(name, document, values));
        }
        self.keys.extend(unique);
        self.ids.insert(id.to_vec());
        Ok(())
    }

    /// Whether a document of this `_id` is a part of the change.
    pub fn has(&self, id: &[u8]) -> bool {
        self.ids.contains(id)
    }

    /// Notes a document of a collection that is not there yet.
    pub fn note(&mut self, id: &[u8]) {
        self.ids.insert(id.to_vec());
    }
}

impl Edit {
    /// A new document of a collection that is not there yet.
    pub fn of_new(id: Vec<u8>, new: &RawDocument) -> Self {
        Self { id, new: Some(new.as_bytes().to_vec()), old_bytes: None, indexes: Vec::new() }
    }

    /// Whether it removes a document that is there, or gives one its bytes.
    pub fn changes(&self) -> bool {
        self.new.is_some() || self.old_bytes.is_some()
    }
}

/// Brings keys into a tree that has nodes for them, and takes others out of it.
fn publish<J: Journal>(
    store: &mut Store<J>,
    (tree, node): (&mut Tree, &mut Vec<u8>),
    (adds, gone): (&[&Vec<u8>], &[&Vec<u8>]),
    changed_at: u64,
) {
    if adds.is_empty() && gone.is_empty() {
        return;
    }
    with_node(tree, node, |tree| {
        let arena = &mut arena_at(store, changed_at);
        for key in adds {
            let (change, _) = tree.plan_set(arena, key, NOTHING).expect("its nodes are reserved");
            tree.publish(arena, change);
        }
        for key in gone {
            if let Some(change) = tree.plan_delete(arena, key) {
                tree.publish(arena, change);
            }
        }
    });
}

/// Takes nodes for keys that come; if memory does not suffice, after some was made free.
pub(super) fn reserve<J: Journal>(
    store: &mut Store<J>,
    tree: &mut Tree,
    keys: &[&Vec<u8>],
    now: Now,
) -> Result<(), Status> {
    if keys.is_empty() {
        return Ok(());
    }
    let mut reserved = tree.reserve_insertions(&mut planned_arena(store), keys);
    if matches!(reserved, Err(TreeError::Full(_))) && store.make_free(tree.wanted_run_bytes(), now)
    {
        reserved = tree.reserve_insertions(&mut planned_arena(store), keys);
    }
    reserved.map_err(|_| Status::OutOfMemory)
}

impl Collections {
    /// Carries edits out, as one change. An error leaves no trace.
    pub(super) fn commit_edits<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        edits: &[Edit],
        entry: &Command<'_>,
    ) -> Result<(), Status> {
        let mut planned = self.plan_edits(store, root, edits, on.now)?;
        store.commit(on.hash.database(), entry, |store| {
            let changed_at = store.last_sequence();
            self.publish_edits(store, (root, changed_at), (edits, &mut planned), on.now);
        });
        store.settle_parts(root, planned, on.now);
        Ok(())
    }

    /// The same in a collection that is being filled: the entry comes next.
    pub(super) fn edit_unlogged<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (root, now): (u32, Now),
        edits: &[Edit],
    ) -> Result<(), Status> {
        let mut planned = self.plan_edits(store, root, edits, now)?;
        let changed_at = store.last_sequence() + 1;
        self.publish_edits(store, (root, changed_at), (edits, &mut planned), now);
        store.settle_parts(root, planned, now);
        Ok(())
    }

    /// Takes all memory that edits need, each of another document.
    fn plan_edits<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        edits: &[Edit],
        now: Now,
    ) -> Result<PlannedParts, Status> {
        let parts = edits
            .iter()
            .filter_map(|edit| Some((&edit.id[..], PartValue::Plain(edit.new.as_deref()?))));
        let planned = store.plan_parts(root, parts, now).map_err(full)?;
        let reserved = self.on(root, |collection, _| {
            let is_new = |edit: &&Edit| edit.new.is_some() && edit.old_bytes.is_none();
            let ids: Vec<&Vec<u8>> = edits.iter().filter(is_new).map(|edit| &edit.id).collect();
            reserve(store, &mut collection.ids, &ids, now)?;
            for (at, index) in collection.indexes.iter_mut().enumerate() {
                let of_index = edits.iter().flat_map(|edit| &edit.indexes);
                let of_index = of_index.filter(|of| of.at == at);
                let keys: Vec<&Vec<u8>> = of_index.clone().flat_map(|of| &of.adds).collect();
                reserve(store, &mut index.tree, &keys, now)?;
                if let Some(places) = &mut index.places {
                    let puts = of_index.filter(|of| matches!(of.rect, Some(Some(_)))).count();
                    places.reserve(store, puts, now)?;
                }
            }
            Ok(())
        });
        match reserved {
            Ok(()) => Ok(planned),
            Err(status) => {
                store.drop_planned(planned, now);
                Err(status)
            }
        }
    }

    fn publish_edits<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (root, changed_at): (u32, u64),
        (edits, planned): (&[Edit], &mut PlannedParts),
        now: Now,
    ) {
        store.publish_parts(root, planned, now);
        let gone = edits.iter().filter(|edit| edit.new.is_none()).map(|edit| &edit.id[..]);
        store.remove_parts(root, gone, now);
        self.on(root, |collection, node| {
            collection.publish_keys(store, (edits, changed_at), node);
        });
    }

    /// Adds the entries of a document to an index, for which it had none: as a step of building it, or of a
    /// copy.
    ///
    /// # Errors
    /// As of [`Collection::edit`], or there is no memory.
    pub(super) fn add_entries<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root, at): (On<'_>, u32, usize),
        id: &[u8],
    ) -> Result<(), super::failure::Refusal> {
        let collection = self.named(root);
        let index = &collection.indexes[at];
        let Some(bytes) = collection.document(store, id) else { return Ok(()) };
        let document = RawDocument::from_bytes(bytes).map_err(super::settings::malformed)?;
        let is_part = index.spec.partial.as_ref().is_none_or(|filter| filter.matches(document));
        if !is_part {
            return Ok(());
        }
        let Entries { values, entries, multikey, rect } = index.all_entries_of(document, id)?;
        if index.spec.is_unique && !store.is_applying {
            for values in &values {
                if index.has_other(store, collection, (values, id))? {
                    return Err(index.duplicate(on.key, document, values).into());
                }
            }
        }
        let (changed_at, keys) = (store.last_sequence() + 1, entries.iter().collect::<Vec<_>>());
        self.on(root, |collection, node| {
            let index = &mut collection.indexes[at];
            reserve(store, &mut index.tree, &keys, on.now)?;
            if let Some(places) = &mut index.places {
                places.reserve(store, usize::from(rect.is_some()), on.now)?;
            }
            // Clients do not read it before it is ready.
            index.multikey |= multikey;
            index.cut += cut_entries(&keys);
            publish(store, (&mut index.tree, node), (&keys, &[]), changed_at);
            if let (Some(places), Some(rect)) = (&mut index.places, rect) {
                places.publish(store, &index.tree, (id, Some(rect)), changed_at);
            }
            Ok::<(), Status>(())
        })?;
        Ok(())
    }

    /// The edit that gives a document of a collection these bytes, without checks.
    pub(super) fn unchecked<J: Journal>(
        &self,
        store: &Store<J>,
        root: u32,
        document: &RawDocument,
    ) -> Result<Edit, Failure> {
        let id = id_of(document)?;
        self.named(root).edit(store, (&id, Some(document)), None)
    }
}
