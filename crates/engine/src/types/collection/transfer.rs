//! A collection on its way to another key: the head has the options and the descriptions of its indexes, a piece
//! is a list of documents. The indexes are built again of them.

use super::build::request_of;
use super::entry::id_of;
use super::failure::{Failure, Refusal};
use super::held::Collections;
use super::settings::{Settings, bytes_of, malformed, parse_document};
use super::spec::Spec;
use crate::store::{DumpAt, Store};
use crate::types::content::Content;
use crate::types::object::{DumpedPart, On, resume};
use crate::types::tree_range::{OwnFrom, range_some};
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document, doc};
use remora_arena::{Journal, Slot};
use remora_index::btree::Direction;
use remora_layout::limits::{
    DUMP_PIECE_BYTES, DUMP_PIECE_PARTS, RANGE_TURN_BYTES, RANGE_TURN_KEYS,
};
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use remora_protocol::{Items, Request};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A head, taken apart.
fn parse_head(head: &[u8]) -> Result<(&RawDocument, Vec<&RawDocument>), Failure> {
    let head = parse_document(head)?;
    let options = head.get_document("options").map_err(malformed)?;
    let mut specs = Vec::new();
    for spec in head.get_array("indexes").map_err(malformed)? {
        if let RawBsonRef::Document(of) = spec.map_err(malformed)? {
            specs.push(of);
        }
    }
    Ok((options, specs))
}

fn status_of(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Status(status) => status,
        Refusal::Full(_) => Status::OutOfMemory,
        Refusal::Failure(_) => Status::Malformed,
    }
}

impl Collections {
    /// The options and the indexes of a collection, as a dump begins.
    pub(super) fn write_head(&self, root: u32, head: &mut Vec<u8>) {
        let collection = self.named(root);
        let options = Document::try_from(&collection.settings.document).unwrap_or_default();
        let ready = collection.indexes.iter().filter(|index| index.is_ready());
        let specs: Vec<Bson> =
            ready.map(|index| Bson::Document(index.spec.document.clone())).collect();
        head.extend_from_slice(&bytes_of(&doc! { "options": options, "indexes": specs }));
    }

    /// Appends some documents in the order of their `_id`s; true once there are no more.
    pub(super) fn dump_documents<J: Journal>(
        &self,
        store: &Store<J>,
        root: u32,
        at: &mut DumpAt,
        piece: &mut Vec<u8>,
    ) -> bool {
        let collection = self.named(root);
        let mut from: Box<OwnFrom> = resume(at);
        let (begins, mut parts) = (piece.len(), 0);
        // Bounded: each turn takes a document.
        let ended = loop {
            let bounds = (&mut from.0, &mut Bound::Unbounded, Direction::Ascending);
            let some = range_some(store, &collection.ids, bounds, 1, |id, _| {
                Items::push(piece, collection.document(store, id).unwrap_or_default());
                id.len()
            });
            parts += some;
            if some == 0 {
                break true;
            }
            if parts >= DUMP_PIECE_PARTS || piece.len() - begins >= DUMP_PIECE_BYTES {
                break false;
            }
        };
        *at = Some(from);
        ended
    }

    /// An empty collection like the one with this head, which no key leads to.
    pub(super) fn begin_load_of<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        head: &[u8],
    ) -> Result<Slot, Status> {
        let malformed = |_| Status::Malformed;
        let (options, specs) = parse_head(head).map_err(malformed)?;
        let settings = Settings::parse(options.as_bytes()).map_err(malformed)?;
        let specs: Result<Vec<Spec>, Failure> = specs.into_iter().map(Spec::parse).collect();
        let specs = specs.map_err(malformed)?;
        let root = self.begin(store, on, settings)?;
        for spec in specs {
            match self.begin_index(store, on, spec) {
                Ok(index) => self.add_index(store, root.slot, index),
                Err(status) => {
                    self.abandon(store, root, on.now);
                    return Err(status);
                }
            }
        }
        Ok(root)
    }

    /// Puts the documents of a piece in.
    pub(super) fn load_documents<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        piece: &[u8],
    ) -> Result<(), Status> {
        let items = Items::parse(piece).ok_or(Status::Malformed)?;
        if !self.by_root.contains_key(&root) {
            return Err(Status::Malformed);
        }
        let mut all: BTreeMap<Vec<u8>, &RawDocument> = BTreeMap::new();
        for bytes in items.iter() {
            let document = parse_document(bytes.ok_or(Status::Malformed)?);
            let document = document.map_err(|_| Status::Malformed)?;
            all.insert(id_of(document).map_err(|_| Status::Malformed)?, document);
        }
        let mut edits = Vec::with_capacity(all.len());
        for document in all.values() {
            let edit = self.unchecked(store, root, document);
            edits.push(edit.map_err(|failure| status_of(failure.into()))?);
        }
        self.edit_unlogged(store, (root, on.now), &edits)
    }

    /// Adds some of a collection to the sum of its content.
    pub(super) fn digest_documents<J: Journal>(
        &self,
        store: &Store<J>,
        root: u32,
        content: &mut Content,
    ) -> bool {
        let collection = self.named(root);
        if content.at.is_none() {
            content.add(&[b"options", collection.settings.document.as_bytes()]);
            for index in collection.indexes.iter().filter(|index| index.is_ready()) {
                content.add(&[b"index", b"", &bytes_of(&index.spec.document)]);
            }
        }
        let mut from: Box<OwnFrom> = resume(&mut content.at);
        let bounds = (&mut from.0, &mut Bound::Unbounded, Direction::Ascending);
        let mut bytes = 0;
        let some = range_some(store, &collection.ids, bounds, RANGE_TURN_KEYS, |id, _| {
            let document = collection.document(store, id).unwrap_or_default();
            content.add(&[b"document", b"", b"", document]);
            bytes += id.len() + document.len();
            id.len() + document.len()
        });
        content.at = Some(from);
        some < RANGE_TURN_KEYS && bytes < RANGE_TURN_BYTES
    }
}

/// The requests that make a collection, its indexes and its documents.
pub(super) fn requests(part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) -> bool {
    match part {
        DumpedPart::Whole(_) => false,
        DumpedPart::Head(head) => {
            let Ok((options, specs)) = parse_head(head) else { return false };
            each(CollectionCommand::Create { options: options.as_bytes() }.request());
            for spec in specs {
                let Ok(spec) = Document::try_from(spec) else { return false };
                each(CollectionCommand::CreateIndex { request: &request_of(&spec) }.request());
            }
            true
        }
        DumpedPart::Piece(piece) => {
            if let Some(documents) = Items::parse(piece).filter(|_| !piece.is_empty()) {
                each(CollectionCommand::Put { documents }.request());
            }
            true
        }
    }
}
