//! Documents that match a filter are changed or removed, some in each step: each is a change of its own. If none
//! matches, one may be made.
//!
//! Invariant: no document is changed twice by one request. An update goes over an index that has none of the
//! paths that it changes.

use super::change::Pending;
use super::entry::{ID, id_of};
use super::failure::{Failure, Refusal, code};
use super::find::limit_of;
use super::find::variables;
use super::held::Collections;
use super::insert::duplicate_id;
use super::plan::Wanted;
use super::scan::{Next, Place, Scan};
use super::settings::{malformed, parse_document};
use crate::store::{Now, Store};
use crate::types::object::On;
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document, RawDocumentBuf, doc};
use remora_arena::Journal;
use remora_document::{Filter, Update, UpdateContext};
use remora_layout::limits::{MAX_DOCUMENT_BYTES, WRITE_STEP_DOCUMENTS};
use remora_protocol::message::Status;

/// Which document is to be in the reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Give {
    Nothing,
    Before,
    After,
}

/// A request to change or remove documents.
struct WriteRequest<'r> {
    filter: Filter,
    /// None removes them.
    update: Option<Update>,
    /// Paths that the update changes.
    changes: Vec<String>,
    is_multi: bool,
    is_upsert: bool,
    new_id: Option<RawBsonRef<'r>>,
    hint: Option<RawBsonRef<'r>>,
    give: Give,
    at: Option<Place<'r>>,
}

/// What a step has come to.
#[derive(Default)]
struct Written {
    matched: i64,
    modified: i64,
    changes: usize,
    upserted: Option<Bson>,
    document: Option<Document>,
    error: Option<Failure>,
}

/// The fields that the operators of an update name.
fn changed_paths(update: &RawDocument) -> Vec<String> {
    let mut paths = Vec::new();
    for (name, fields) in update.iter().flatten() {
        let RawBsonRef::Document(fields) = fields else { continue };
        for (path, value) in fields.iter().flatten() {
            paths.push(path.as_str().to_owned());
            if let ("$rename", RawBsonRef::String(to)) = (name.as_str(), value) {
                paths.push(to.to_owned());
            }
        }
    }
    paths
}

impl<'r> WriteRequest<'r> {
    fn parse(request: &'r [u8], now: Now) -> Result<Self, Refusal> {
        let request = parse_document(request)?;
        let variables = variables(request, now)?;
        let mut parsed = Self {
            filter: Filter::parse(&RawDocumentBuf::new())?,
            update: None,
            changes: Vec::new(),
            is_multi: false,
            is_upsert: false,
            new_id: None,
            hint: None,
            give: Give::Nothing,
            at: None,
        };
        let (mut update, mut array_filters) = (None, Vec::new());
        for field in request {
            let (name, value) = field.map_err(malformed)?;
            match (name.as_str(), value) {
                ("q", RawBsonRef::Document(of)) => {
                    parsed.filter = Filter::parse_with(of, &variables)?;
                }
                ("u", RawBsonRef::Document(of)) => update = Some(of),
                ("u", RawBsonRef::Array(of)) => {
                    parsed.update = Some(Update::parse_pipeline(of, &variables)?);
                    // It may change any path.
                    parsed.changes = vec![String::new()];
                }
                ("multi", RawBsonRef::Boolean(of)) => parsed.is_multi = of,
                ("upsert", RawBsonRef::Boolean(of)) => parsed.is_upsert = of,
                ("_id", of) => parsed.new_id = Some(of),
                ("arrayFilters", RawBsonRef::Array(all)) => {
                    for filter in all {
                        match filter.map_err(malformed)? {
                            RawBsonRef::Document(of) => array_filters.push(of),
                            _ => {
                                let text = "arrayFilters has to have documents";
                                return Err(Failure::new(code::TYPE_MISMATCH, text).into());
                            }
                        }
                    }
                }
                ("hint", of) => parsed.hint = Some(of),
                ("give", RawBsonRef::String("before")) => parsed.give = Give::Before,
                ("give", RawBsonRef::String("after")) => parsed.give = Give::After,
                ("at", of) => parsed.at = Some(Place::parse(of)?),
                ("let", RawBsonRef::Document(_)) => {}
                _ => return Err(Status::Malformed.into()),
            }
        }
        if parsed.filter.near().is_some() {
            let text = "$near and $nearSphere are not there for updates and removals: find the documents first";
            return Err(Failure::new(code::BAD_VALUE, text).into());
        }
        if let Some(of) = update {
            parsed.update = Some(Update::parse(of, &array_filters)?);
            parsed.changes = changed_paths(of);
        }
        if parsed.is_multi && parsed.update.as_ref().is_some_and(Update::is_replacement) {
            let text = "multi update is not supported for replacement-style update";
            return Err(Failure::new(code::FAILED_TO_PARSE, text).into());
        }
        Ok(parsed)
    }

    fn wanted(&self) -> Wanted<'_> {
        let limit = if self.is_multi { None } else { limit_of(RawBsonRef::Int32(1)) };
        // One document is met once in any case.
        let changes = if self.is_multi { &self.changes[..] } else { &[] };
        Wanted { filter: &self.filter, ring: None, order: None, limit, changes }
    }
}

/// A document as its bytes, if it is not too long.
fn raw(document: &Document) -> Result<RawDocumentBuf, Failure> {
    let raw = RawDocumentBuf::try_from(document).map_err(malformed)?;
    if raw.as_bytes().len() > MAX_DOCUMENT_BYTES {
        let text = format!("Resulting document after update is larger than {MAX_DOCUMENT_BYTES}");
        return Err(Failure::new(code::BSON_OBJECT_TOO_LARGE, text));
    }
    super::settings::parse_document(raw.as_bytes())?;
    Ok(raw)
}

impl Collections {
    /// Changes or removes some documents. Gives the number of those that matched, and what else is told.
    pub(super) fn write<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, Option<u32>),
        request: &[u8],
    ) -> Result<(i64, Document), Refusal> {
        let request = WriteRequest::parse(request, on.now)?;
        let mut written = Written::default();
        let Some(root) = root else {
            if let Some(place) = &request.at {
                return Err(place.killed().into());
            }
            if request.is_upsert {
                self.upsert(store, (on, None), &request, &mut written)?;
            }
            return Ok((0, told(&written, None)));
        };
        let (collection, wanted) = (self.named(root), request.wanted());
        let mut scan = match (&request.at, request.hint) {
            (Some(place), _) => Scan::resumed(store, collection, place, &wanted)?,
            (None, Some(hint)) => {
                let hinted = collection.hinted(store, hint, &wanted)?;
                Scan::new(collection.unless_changed(store, hinted, &wanted))
            }
            (None, None) => Scan::new(collection.plans(store, &wanted)?.swap_remove(0)),
        };
        let has_matched = request.at.as_ref().is_some_and(|at| at.has_matched);
        let ended = self.write_some(store, (on, root), (&request, &mut scan), &mut written)?;
        let has_matched = has_matched || written.matched > 0;
        if ended && request.is_upsert && !has_matched && written.error.is_none() {
            self.upsert(store, (on, Some(root)), &request, &mut written)?;
        }
        let mut reply = told(&written, Some(&scan));
        if !ended && written.error.is_none() {
            reply.insert("at", scan.place(self.named(root), has_matched));
        }
        Ok((written.matched, reply))
    }

    /// The documents of one step. True if there are no more.
    fn write_some<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        (request, scan): (&WriteRequest<'_>, &mut Scan),
        written: &mut Written,
    ) -> Result<bool, Refusal> {
        // Bounded by what a step examines and changes.
        while written.changes < WRITE_STEP_DOCUMENTS {
            let before = scan.position.clone();
            let (id, old) = match scan.next(store, self.named(root), &request.filter) {
                Next::End => return Ok(true),
                Next::Spent => return Ok(false),
                Next::Failed(error) => {
                    written.error = Some(error.into());
                    return Ok(false);
                }
                Next::Match(id, document) => (id, document.to_owned()),
            };
            match self.write_one(store, (on, root), (request, &id, &old), written) {
                Ok(()) => {}
                Err(Refusal::Failure(failure)) => {
                    // It has matched, and was not changed.
                    written.matched += 1;
                    written.error = Some(*failure);
                    return Ok(false);
                }
                Err(Refusal::Status(_) | Refusal::Full(_)) if written.changes > 0 => {
                    // The next step begins with it.
                    scan.position = before;
                    return Ok(false);
                }
                Err(refusal) => return Err(refusal),
            }
            written.matched += 1;
            if !request.is_multi {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn write_one<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        (request, id, old): (&WriteRequest<'_>, &[u8], &RawDocument),
        written: &mut Written,
    ) -> Result<(), Refusal> {
        let own = |document: &RawDocument| Document::try_from(document).map_err(malformed);
        let Some(update) = &request.update else {
            let edit = self.named(root).edit(store, (id, None), None)?;
            self.remove_these(store, (on, root), &[edit])?;
            written.changes += 1;
            written.modified += 1;
            if request.give != Give::Nothing {
                written.document = Some(own(old)?);
            }
            return Ok(());
        };
        let before = own(old)?;
        let mut after = before.clone();
        let now_ms = on.now.unix_ms as i64;
        let found = request.filter.position(old);
        let changed =
            update.apply(&mut after, &UpdateContext { now_ms, found, is_insert: false })?;
        if changed {
            let new = raw(&after)?;
            let collection = self.named(root);
            collection.settings.check(&new, Some(old))?;
            let checks = Some((&mut Pending::default(), on.key));
            let edit = collection.edit(store, (id, Some(&new)), checks)?;
            self.add_new(store, (on, Some(root)), &[edit])?;
            written.changes += 1;
            written.modified += 1;
        }
        match request.give {
            Give::Nothing => {}
            Give::Before => written.document = Some(before),
            Give::After => written.document = Some(after),
        }
        Ok(())
    }

    /// Makes the document of a request that none matches.
    fn upsert<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, Option<u32>),
        request: &WriteRequest<'_>,
        written: &mut Written,
    ) -> Result<(), Refusal> {
        match self.try_upsert(store, (on, root), request) {
            Ok(document) => {
                written.upserted = document.get(ID).cloned();
                if request.give == Give::After {
                    written.document = Some(document);
                }
                Ok(())
            }
            Err(Refusal::Failure(failure)) => {
                written.error = Some(*failure);
                Ok(())
            }
            Err(refusal) => Err(refusal),
        }
    }

    fn try_upsert<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, Option<u32>),
        request: &WriteRequest<'_>,
    ) -> Result<Document, Refusal> {
        let Some(update) = &request.update else { return Err(Status::Malformed.into()) };
        let document = made(update, request, on.now.unix_ms as i64)?;
        let new = raw(&document)?;
        let id = id_of(&new)?;
        let edit = match root.map(|root| self.named(root)) {
            None => super::change::Edit::of_new(id, &new),
            Some(collection) => {
                if collection.document(store, &id).is_some() {
                    return Err(duplicate_id(on.key, &new).into());
                }
                collection.settings.check(&new, None)?;
                let checks = Some((&mut Pending::default(), on.key));
                collection.edit(store, (&id, Some(&new)), checks)?
            }
        };
        self.add_new(store, (on, root), &[edit])?;
        Ok(document)
    }
}

/// The document that an update makes of a filter's equalities.
fn made(update: &Update, request: &WriteRequest<'_>, now_ms: i64) -> Result<Document, Failure> {
    let context = UpdateContext { now_ms, found: None, is_insert: true };
    let mut document = Document::new();
    for (path, value) in request.filter.equalities()? {
        if update.is_replacement() && path != ID {
            continue;
        }
        let value = Bson::try_from(value.clone()).map_err(malformed)?;
        let set = RawDocumentBuf::try_from(doc! { "$set": { path: value } }).map_err(malformed)?;
        Update::parse(&set, &[])?.apply(&mut document, &context)?;
    }
    update.apply(&mut document, &context)?;
    let given = || request.new_id.and_then(|id| Bson::try_from(id).ok());
    let id = document.remove(ID).or_else(given).ok_or_else(|| {
        Failure::new(code::INVALID_ID_FIELD, "the request gives a new document no '_id'")
    })?;
    let mut whole = doc! { ID: id };
    whole.extend(document);
    Ok(whole)
}

/// What a reply tells.
fn told(written: &Written, scan: Option<&Scan>) -> Document {
    let mut told = doc! { "modified": written.modified };
    if let Some(id) = &written.upserted {
        told.insert("upserted", id.clone());
    }
    if let Some(document) = &written.document {
        told.insert("document", document.clone());
    }
    if let Some(failure) = &written.error {
        told.insert("error", failure.to_document());
    }
    let examined = scan.map_or((0, 0), |scan| (scan.keys as i64, scan.documents as i64));
    told.insert("keys", examined.0);
    told.insert("documents", examined.1);
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn the_paths_of_an_update_are_those_of_its_operators() {
        let update = rawdoc! { "$set": { "a.b": 1 }, "$rename": { "c": "d" } };
        assert_eq!(changed_paths(&update), ["a.b", "c", "d"]);
    }
}
