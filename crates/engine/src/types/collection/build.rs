//! Indexes are made, some documents in each step, and removed.
//!
//! Invariant: while an index is built, it has the entries of all documents up to the last one that was looked at,
//! also of those that change; no search uses it. The log has one entry, for the index that is complete. A shard
//! that applies a log, or fills a copy, builds it at once: the next entry may need it, and a copy that takes over
//! has to find the duplicates that the original would have found.

use super::entry::ID_INDEX;
use super::failure::{Failure, Refusal, code};
use super::held::{Building, Collections, Index};
use super::plan::id_field;
use super::settings::{Settings, bytes_of, malformed, parse_document};
use super::spec::Spec;
use crate::store::Store;
use crate::types::object::On;
use bson::raw::RawBsonRef;
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use remora_arena::Journal;
use remora_index::btree::Range;
use remora_layout::limits::{INDEX_STEP_BYTES, INDEX_STEP_DOCUMENTS, MAX_INDEXES};
use remora_protocol::Command;
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use std::ops::Bound;

/// The request of an index, as the log and backups have it.
pub(super) fn request_of(spec: &Document) -> Vec<u8> {
    bytes_of(&doc! { "spec": spec.clone() })
}

fn parse(request: &[u8]) -> Result<Spec, Refusal> {
    let request = parse_document(request)?;
    let mut spec = None;
    for field in request {
        let (name, value) = field.map_err(malformed)?;
        match (name.as_str(), value) {
            ("spec", RawBsonRef::Document(of)) => spec = Some(Spec::parse(of)?),
            // An index under construction knows how far it is.
            ("at", _) => {}
            _ => return Err(Status::Malformed.into()),
        }
    }
    spec.ok_or_else(|| Status::Malformed.into())
}

impl Collections {
    /// Makes an index, or some more of it. Gives 1 once it is made, 0 if it was there; and where to go on.
    pub(super) fn create_index<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, Option<u32>),
        request: &[u8],
    ) -> Result<(i64, Document), Refusal> {
        let spec = parse(request)?;
        if spec.fields == [id_field()] {
            return Ok((0, Document::new()));
        }
        let Some(root) = root else {
            self.create_both(store, on, spec)?;
            return Ok((1, Document::new()));
        };
        let mut present = None;
        for (at, index) in self.named(root).indexes.iter().enumerate() {
            if spec.is_there(&index.spec)? {
                present = Some((at, index.is_ready()));
            }
        }
        let at = match present {
            Some((_, true)) => return Ok((0, Document::new())),
            Some((at, false)) => at,
            None => self.begin_building(store, (on, root), spec)?,
        };
        // Bounded: each step takes some documents; without a log to apply it is one step.
        while !self.build_some(store, (on, root), at)? {
            if !store.is_applying {
                // The unfinished index knows where it goes on.
                let bytes = self.named(root).indexes[at].spec.name.clone().into_bytes();
                return Ok((0, doc! { "at": Binary { subtype: BinarySubtype::Generic, bytes } }));
            }
        }
        let request = request_of(&self.named(root).indexes[at].spec.document);
        let request = CollectionCommand::CreateIndex { request: &request }.request();
        let entry = Command::Of { key: on.key, request };
        store.commit(on.hash.database(), &entry, |store| {
            self.on(root, |collection, _| {
                collection.indexes[at].building = None;
                collection.raise_version(store);
            });
            self.note_time(store, root);
        });
        Ok((1, Document::new()))
    }

    /// Makes a collection that has an index.
    fn create_both<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        spec: Spec,
    ) -> Result<(), Refusal> {
        let request = request_of(&spec.document);
        let request = CollectionCommand::CreateIndex { request: &request }.request();
        let entry = Command::Of { key: on.key, request };
        let fill = |own: &mut Self, store: &mut Store<J>, root: u32| {
            let index = own.begin_index(store, on, spec)?;
            own.add_index(store, root, index);
            Ok::<(), Status>(())
        };
        self.make(store, (on, Settings::default()), &entry, fill)?;
        Ok(())
    }

    fn begin_building<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        spec: Spec,
    ) -> Result<usize, Refusal> {
        let collection = self.named(root);
        if collection.indexes.len() + 1 >= MAX_INDEXES {
            let name = String::from_utf8_lossy(on.key);
            let text = format!("add index fails, too many indexes for {name} key:{}", spec.name);
            return Err(Failure::new(code::CANNOT_CREATE_INDEX, text).into());
        }
        let index = self.begin_index(store, on, spec)?;
        let building = Building { upto: Vec::new(), touched_s: store.ticked.get() };
        self.add_index(store, root, Index { building: Some(building), ..index });
        Ok(self.named(root).indexes.len() - 1)
    }

    /// Adds the entries of some documents. True if all are there. A document that cannot be in the index ends it.
    fn build_some<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        at: usize,
    ) -> Result<bool, Refusal> {
        let (upto, now_s) = (self.upto(root, at).to_vec(), store.ticked.get());
        let from = if upto.is_empty() { Bound::Unbounded } else { Bound::Excluded(&upto[..]) };
        let (mut ids, mut bytes) = (Vec::new(), 0);
        let range = Range { from, limit: INDEX_STEP_DOCUMENTS, ..Range::ALL };
        let found = self.named(root).ids.range(&store.owner, range, |id, _| ids.push(id.to_vec()));
        for id in &ids {
            bytes += self.named(root).document(store, id).map_or(0, <[u8]>::len);
            match self.add_entries(store, (on, root, at), id) {
                Ok(()) => {}
                Err(Refusal::Failure(failure)) => {
                    self.bury_index(store, root, at);
                    return Err(Refusal::Failure(failure));
                }
                Err(Refusal::Status(_) | Refusal::Full(_)) if self.upto(root, at) != upto => {
                    return Ok(false);
                }
                Err(refusal) => return Err(refusal),
            }
            self.on(root, |collection, _| {
                let building = Building { upto: id.clone(), touched_s: now_s };
                collection.indexes[at].building = Some(building);
            });
            if bytes >= INDEX_STEP_BYTES {
                return Ok(false);
            }
        }
        Ok(found < INDEX_STEP_DOCUMENTS)
    }

    /// The last document that an index has which is being built.
    fn upto(&self, root: u32, at: usize) -> &[u8] {
        let building = &self.named(root).indexes[at].building;
        building.as_ref().map_or(&[], |building| &building.upto)
    }

    /// Removes an index.
    pub(super) fn drop_index<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, Option<u32>),
        name: &[u8],
    ) -> Result<(), Refusal> {
        if name == ID_INDEX.as_bytes() {
            return Err(Failure::new(code::INVALID_OPTIONS, "cannot drop _id index").into());
        }
        let named = std::str::from_utf8(name).ok();
        let at = root.zip(named).and_then(|(root, name)| self.named(root).index(name));
        let (Some(root), Some(at)) = (root, at) else { return Err(Status::NotFound.into()) };
        if !self.named(root).indexes[at].is_ready() {
            // No log has it.
            self.bury_index(store, root, at);
            return Ok(());
        }
        let request = CollectionCommand::DropIndex { name }.request();
        let entry = Command::Of { key: on.key, request };
        store.commit(on.hash.database(), &entry, |store| self.bury_index(store, root, at));
        Ok(())
    }

    /// Ends indexes that nothing has gone on with for too long.
    pub(super) fn end_idle_builds<J: Journal>(&mut self, store: &mut Store<J>) {
        let (now_s, idle_s) = (store.ticked.get(), store.options.upload_idle_s);
        let is_idle = |index: &Index| {
            let building = index.building.as_ref();
            building.is_some_and(|of| now_s.saturating_sub(of.touched_s) > idle_s)
        };
        let timed: Vec<u32> = self.timed.iter().copied().collect();
        for root in timed {
            // Bounded: each turn takes an index away.
            while let Some(at) = self.named(root).indexes.iter().position(is_idle) {
                self.bury_index(store, root, at);
            }
            self.weigh(store, root);
        }
    }

    /// Tells the policy of eviction what a collection takes, where no command does.
    pub(super) fn weigh<J: Journal>(&self, store: &mut Store<J>, root: u32) {
        if store.evictor.is_weighed(root) {
            let bytes = self.weight(store, root);
            store.evictor.weigh(&store.owner, root, bytes);
        }
    }
}
