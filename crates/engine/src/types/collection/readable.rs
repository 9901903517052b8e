//! The description of a collection's indexes for clients that read them.
//!
//! Invariant: the version in the root record's state grows before an index is ready, and before an entry of a
//! document that is the first one with several values in a field. A client that finds the version that it knows
//! behind the nodes of an index has searched it in the right ranges.

use super::entry::ID_INDEX;
use super::held::{Collection, Collections, Index};
use crate::store::Store;
use bson::{Bson, Document, doc};
use remora_arena::{Journal, Slot};
use remora_layout::collection::COLLECTION_VERSION_AT;
use remora_layout::limits::WORD_BYTES;

impl Collection {
    /// Shows clients that what they know of the indexes no longer holds.
    pub(super) fn raise_version<J: Journal>(&mut self, store: &mut Store<J>) {
        self.version += 1;
        let word = (store.state_of(self.root).offset() + COLLECTION_VERSION_AT) / WORD_BYTES;
        store.owner.store_release(word, self.version);
        store.owner.release();
    }
}

/// Where the tree lies whose header is in the state of this record, and what it has keys of.
fn told<J: Journal>(store: &Store<J>, root: Slot, spec: &Document, multikey: u32) -> Bson {
    let at = store.state_of(root);
    Bson::Document(doc! {
        "spec": spec.clone(),
        "multikey": i64::from(multikey),
        "record": i64::from(root.slot),
        "at": i64::from(at.slot),
        "generation": i64::from(at.generation),
    })
}

impl Collections {
    /// The version of the indexes, and what a client needs to read them.
    pub(super) fn tell_indexes<J: Journal>(&self, store: &Store<J>, root: u32) -> (u64, Document) {
        let collection = self.named(root);
        let id = doc! { "v": 2, "key": { "_id": 1 }, "name": ID_INDEX };
        let mut indexes = vec![told(store, collection.root, &id, 0)];
        let is_usable =
            |index: &&Index| index.is_ready() && !index.spec.is_hidden && index.places.is_none();
        let usable = collection.indexes.iter().filter(is_usable);
        indexes.extend(
            usable.map(|index| told(store, index.header, &index.spec.document, index.multikey)),
        );
        (collection.version, doc! { "indexes": indexes })
    }
}
