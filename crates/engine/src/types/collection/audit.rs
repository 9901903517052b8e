//! Documents, `_id`s and entries of indexes are compared with each other.

use super::entry::{id_of, may_be_cut, split};
use super::held::{Collection, Collections, Counts, Index};
use crate::store::Store;
use bson::raw::RawDocument;
use remora_arena::Journal;
use remora_index::btree::{Range, Tree};
use remora_layout::kind::Kind;
use std::collections::BTreeSet;

impl Collections {
    /// Compares all collections. Bytes of the slots of their documents and of the headers of indexes.
    ///
    /// # Errors
    /// A description of the first mismatch.
    pub(super) fn audit_all<J: Journal>(&self, store: &Store<J>) -> Result<u64, String> {
        let parts = store.parts.audit(&store.owner, &store.slots, Kind::DOCUMENT)?;
        let (mut headers, mut counts) = (0, Counts::default());
        for collection in self.by_root.values() {
            let slots = collection.indexes.iter().flat_map(Index::headers);
            headers += slots.map(|header| store.slots.bytes_of(header)).sum::<u64>();
            counts.add(collection.counts());
            if store.is_live(collection.root) {
                collection.audit(store)?;
            }
        }
        match self.counts() {
            known if known == counts => Ok(parts + headers),
            known => Err(format!("collections have {counts:?}, not {known:?}")),
        }
    }
}

fn keys_of<J: Journal>(store: &Store<J>, tree: &Tree) -> Result<BTreeSet<Vec<u8>>, String> {
    tree.check(&store.owner).map_err(|broken| broken.to_string())?;
    let mut keys = BTreeSet::new();
    tree.range(&store.owner, Range::ALL, |key, _| {
        keys.insert(key.to_vec());
    });
    Ok(keys)
}

impl Collection {
    fn audit<J: Journal>(&self, store: &Store<J>) -> Result<(), String> {
        let ids = keys_of(store, &self.ids)?;
        let mut bytes = 0;
        let mut documents = Vec::new();
        for id in &ids {
            let document = self.document(store, id).ok_or("an _id has no document")?;
            bytes += document.len() as u64;
            let document = RawDocument::from_bytes(document).map_err(|error| error.to_string())?;
            if id_of(document).as_ref() != Ok(id) {
                return Err("a document has another _id than its name".to_owned());
            }
            documents.push((id, document));
        }
        let parts = store.parts.of(self.root.slot).count();
        if (parts, bytes) != (ids.len() as u64, self.size) {
            return Err(format!("{} _ids of {parts} documents: {bytes}, {}", ids.len(), self.size));
        }
        self.indexes.iter().try_for_each(|index| index.audit(store, &documents))
    }
}

impl Index {
    fn audit<J: Journal>(
        &self,
        store: &Store<J>,
        documents: &[(&Vec<u8>, &RawDocument)],
    ) -> Result<(), String> {
        let found = keys_of(store, &self.tree)?;
        let all = documents.iter().flat_map(|(id, document)| self.entries(document, id));
        let wanted: BTreeSet<Vec<u8>> = all.collect();
        let name = &self.spec.name;
        if let Some(entry) = found.symmetric_difference(&wanted).next() {
            let which = if found.contains(entry) { "has an entry without" } else { "lacks one of" };
            return Err(format!("{name} {which} its document: {}", entry.escape_ascii()));
        }
        let cut = found.iter().filter(|entry| may_be_cut(split(entry).0)).count() as u64;
        if cut != self.cut {
            return Err(format!("{name} has {cut} entries that may be cut, not {}", self.cut));
        }
        let Some(places) = &self.places else { return Ok(()) };
        let rects = documents
            .iter()
            .filter_map(|(id, document)| Some((&id[..], self.rect(document, id).ok().flatten()?)));
        places.audit(store, rects).map_err(|error| format!("{name}: {error}"))
    }
}
