//! Documents are added, or removed by their `_id`s.

use super::change::{Edit, Pending};
use super::entry::{ID_INDEX, id_of};
use super::failure::{Failure, Refusal, code};
use super::held::{Collections, Resumed};
use super::settings::{Settings, bytes_of, parse_document};
use crate::store::Store;
use crate::types::object::On;
use bson::raw::RawDocument;
use bson::{Bson, doc};
use remora_arena::Journal;
use remora_layout::limits::{INSERT_GROUP_BYTES, INSERT_GROUP_DOCUMENTS};
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use remora_protocol::{Command, Items};
use std::collections::BTreeMap;

/// Documents that become one change.
#[derive(Default)]
struct Group {
    edits: Vec<Edit>,
    bytes: usize,
    pending: Pending,
    /// The place of the first one in its request.
    first: usize,
}

/// What an insertion has come to.
#[derive(Default)]
pub(super) struct Inserted {
    pub added: i64,
    /// Documents about those that were not added.
    pub failures: Vec<u8>,
    /// The shard makes room, and tries again from this one on.
    goes_on_at: Option<usize>,
}

impl Inserted {
    fn fail(&mut self, at: usize, failure: &Failure) {
        let mut document = doc! { "index": at as i32 };
        document.extend(failure.to_document());
        Items::push(&mut self.failures, &bytes_of(&document));
    }
}

impl Group {
    fn is_full(&self) -> bool {
        self.edits.len() >= INSERT_GROUP_DOCUMENTS || self.bytes >= INSERT_GROUP_BYTES
    }
}

/// The list of the documents of some edits, as the log has them.
fn listed(edits: &[Edit]) -> Vec<u8> {
    let mut list = Vec::new();
    edits.iter().filter_map(|edit| edit.new.as_ref()).for_each(|new| Items::push(&mut list, new));
    list
}

/// The failure that an `_id` is there already.
pub(super) fn duplicate_id(collection: &[u8], document: &RawDocument) -> Failure {
    let value = document.get("_id").ok().flatten().and_then(|value| Bson::try_from(value).ok());
    let values = vec![value.unwrap_or(Bson::Null)];
    Failure::duplicate(collection, ID_INDEX, &doc! { "_id": 1 }, values)
}

impl Collections {
    /// Adds documents, some in each change. What follows one that there is no memory for is not added. If the
    /// shard makes room and tries again, the next call goes on with that one.
    ///
    /// # Errors
    /// There is no memory for the first one, or the shard tries again.
    pub(super) fn insert<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, Option<u32>),
        (documents, is_ordered): (Items<'_>, bool),
    ) -> Result<Inserted, Refusal> {
        let resumed = self.resumed.take().filter(|resumed| resumed.hash == on.hash);
        let (first, failures) = resumed.map_or((0, Vec::new()), |of| (of.first, of.failures));
        let mut inserted = Inserted { failures, ..Inserted::default() };
        let from = (first, is_ordered);
        self.insert_from(store, (on, root), (documents, from), &mut inserted)?;
        if let Some(first) = inserted.goes_on_at {
            let failures = std::mem::take(&mut inserted.failures);
            self.resumed = Some(Resumed { hash: on.hash, first, failures });
            return Err(Refusal::Full(inserted.added));
        }
        Ok(inserted)
    }

    fn insert_from<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, mut root): (On<'_>, Option<u32>),
        (documents, (from, is_ordered)): (Items<'_>, (usize, bool)),
        inserted: &mut Inserted,
    ) -> Result<(), Status> {
        let mut group = Group::default();
        for (at, bytes) in documents.iter().flatten().enumerate().skip(from) {
            if group.is_full() && !self.add_group(store, (on, &mut root), &mut group, inserted)? {
                return Ok(());
            }
            if group.edits.is_empty() {
                group.first = at;
            }
            match self.new_document(store, (on, root), bytes, &mut group.pending) {
                Ok(edit) => {
                    group.bytes += bytes.len();
                    group.edits.push(edit);
                }
                Err(failure) => {
                    if !self.add_group(store, (on, &mut root), &mut group, inserted)? {
                        return Ok(());
                    }
                    inserted.fail(at, &failure);
                    if is_ordered {
                        return Ok(());
                    }
                }
            }
        }
        self.add_group(store, (on, &mut root), &mut group, inserted)?;
        Ok(())
    }

    /// Checks a document that is to be added.
    fn new_document<J: Journal>(
        &self,
        store: &Store<J>,
        (on, root): (On<'_>, Option<u32>),
        bytes: &[u8],
        pending: &mut Pending,
    ) -> Result<Edit, Failure> {
        let document = parse_document(bytes)?;
        let id = id_of(document)?;
        let collection = root.map(|root| self.named(root));
        let is_there = collection.is_some_and(|of| of.document(store, &id).is_some());
        if is_there || pending.has(&id) {
            return Err(duplicate_id(on.key, document));
        }
        let Some(collection) = collection else {
            pending.note(&id);
            return Ok(Edit::of_new(id, document));
        };
        collection.settings.check(document, None)?;
        collection.edit(store, (&id, Some(document)), Some((pending, on.key)))
    }

    /// Adds a group of documents, as one change. False if there is no memory for it, which is told.
    fn add_group<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, &mut Option<u32>),
        group: &mut Group,
        inserted: &mut Inserted,
    ) -> Result<bool, Status> {
        let Group { edits, first, .. } = std::mem::take(group);
        if edits.is_empty() {
            return Ok(true);
        }
        match self.add_new(store, (on, *root), &edits) {
            Ok(of) => *root = Some(of),
            Err(_) if store.making_room.tries_again => {
                inserted.goes_on_at = Some(first);
                return Ok(false);
            }
            Err(status) if inserted.added == 0 && inserted.failures.is_empty() => {
                return Err(status);
            }
            Err(_) => {
                let text = "the server has no memory for the document";
                inserted.fail(first, &Failure::new(code::EXCEEDED_MEMORY_LIMIT, text));
                return Ok(false);
            }
        }
        inserted.added += edits.len() as i64;
        Ok(true)
    }

    /// Adds documents that are checked, as one change; if need be to a new collection. Gives its root record.
    pub(super) fn add_new<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, Option<u32>),
        edits: &[Edit],
    ) -> Result<u32, Status> {
        let list = listed(edits);
        let documents = Items::parse(&list).expect("just made");
        let request = CollectionCommand::Put { documents }.request();
        let entry = Command::Of { key: on.key, request };
        match root {
            Some(root) => self.commit_edits(store, (on, root), edits, &entry).map(|()| root),
            None => {
                let new = (on, Settings::default());
                self.make(store, new, &entry, |own, store, root| {
                    own.edit_unlogged(store, (root, on.now), edits)
                })
            }
        }
    }

    /// Adds documents, or replaces those with the same `_id`, without checks. An entry of a log is one change.
    pub(super) fn put<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, mut root): (On<'_>, Option<u32>),
        documents: Items<'_>,
    ) -> Result<i64, Refusal> {
        // The last one of an `_id` counts.
        let mut all: BTreeMap<Vec<u8>, &RawDocument> = BTreeMap::new();
        for bytes in documents.iter().flatten() {
            let document = parse_document(bytes)?;
            all.insert(id_of(document)?, document);
        }
        let number = all.len() as i64;
        let mut left = all.into_iter().peekable();
        // Bounded by the documents: each turn takes some.
        while left.peek().is_some() {
            let (mut edits, mut bytes) = (Vec::new(), 0);
            while (store.is_applying
                || (edits.len() < INSERT_GROUP_DOCUMENTS && bytes < INSERT_GROUP_BYTES))
                && let Some((id, document)) = left.next()
            {
                bytes += document.as_bytes().len();
                edits.push(match root {
                    None => Edit::of_new(id, document),
                    Some(root) => self.named(root).edit(store, (&id, Some(document)), None)?,
                });
            }
            root = Some(self.add_new(store, (on, root), &edits)?);
        }
        Ok(number)
    }

    /// Removes documents, as one change, which needs no memory.
    pub(super) fn remove<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        ids: Items<'_>,
    ) -> Result<i64, Refusal> {
        let mut all: Vec<&[u8]> = ids.iter().flatten().collect();
        all.sort_unstable();
        all.dedup();
        let collection = self.named(root);
        let edits: Result<Vec<Edit>, Failure> =
            all.into_iter().map(|id| collection.edit(store, (id, None), None)).collect();
        let edits: Vec<Edit> = edits?.into_iter().filter(Edit::changes).collect();
        self.remove_these(store, (on, root), &edits)?;
        Ok(edits.len() as i64)
    }

    /// Removes documents that are there.
    pub(super) fn remove_these<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        edits: &[Edit],
    ) -> Result<(), Status> {
        if edits.is_empty() {
            return Ok(());
        }
        let mut list = Vec::new();
        edits.iter().for_each(|edit| Items::push(&mut list, &edit.id));
        let ids = Items::parse(&list).expect("just made");
        let request = CollectionCommand::Remove { ids }.request();
        self.commit_edits(store, (on, root), edits, &Command::Of { key: on.key, request })
    }
}
