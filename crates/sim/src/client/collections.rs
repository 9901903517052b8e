//! A simulated client's operations on collections: each document is judged as a key. So is each document that a
//! search of one step covers, whether the search shows it or not.

use super::{MS, SimClient};
use crate::check::keys::{If, KeyOp, Value};
use crate::collections::{
    self, CollectionSwarm, FILLERS, INDEXES, filler, filter_of, id_of, number_in, numbers_of,
    record_name, register_found,
};
use crate::hashes::JUDGED_EXPIRY;
use crate::history::Begun;
use crate::probes::Probe;
use crate::values::{HashName, Register};
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, cstr, doc, rawdoc};
use remora_client_core::{Error, OpenCollection, Path, Session};
use remora_protocol::Items;
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// MongoDB's code of a document whose `_id` is there.
const DUPLICATE_KEY: i32 = 11000;
/// That of a document for which there is no memory.
const NO_MEMORY: i32 = 146;
/// That of a search whose index was dropped between two steps.
const PLAN_KILLED: i32 = 175;
/// Documents that one step of a search may give: all of them fit a message.
const MOST_FOUND: i64 = 60;
/// Documents beside the judged ones that are added at once.
const FILLED_AT_ONCE: u64 = 200;

/// A collection and how the world uses it.
type Of = (HashName, CollectionSwarm);

/// A place where a step of a search or of an index ended.
fn place_of(told: &RawDocument) -> Option<Binary> {
    let bytes = told.get_binary("at").ok()?.bytes.to_vec();
    Some(Binary { subtype: BinarySubtype::Generic, bytes })
}

/// What one step of a search gave.
struct Step {
    at: Option<Binary>,
    index: String,
    documents: Vec<RawDocumentBuf>,
}

impl Step {
    fn parse(list: &[u8]) -> Option<Self> {
        let mut items = Items::parse(list)?.iter().flatten();
        let head = RawDocument::from_bytes(items.next()?).ok()?;
        let index = head.get_str("index").unwrap_or_default().to_owned();
        let documents = items.map(|item| Some(RawDocument::from_bytes(item).ok()?.to_owned()));
        Some(Self { at: place_of(head), index, documents: documents.collect::<Option<_>>()? })
    }
}

/// The codes of the documents that an insertion has not added, by their places.
fn failures_of(list: &[u8]) -> Option<BTreeMap<usize, i32>> {
    let failures = Items::parse(list)?;
    let told = failures.iter().flatten().map(|item| {
        let failure = RawDocument::from_bytes(item).ok()?;
        let index = usize::try_from(failure.get_i32("index").ok()?).ok()?;
        Some((index, failure.get_i32("code").ok()?))
    });
    told.collect()
}

/// An update of a document, or an upsert.
fn write_request(of: Register, update: Option<RawDocumentBuf>, is_upsert: bool) -> RawDocumentBuf {
    let mut request = rawdoc! { "q": { "_id": id_of(of) } };
    if let Some(update) = update {
        request.append(cstr!("u"), update);
        request.append(cstr!("upsert"), is_upsert);
    }
    request
}

impl SimClient {
    /// Operates on a collection.
    pub(super) fn use_collection(
        &mut self,
        session: &mut Session,
        swarm: CollectionSwarm,
    ) -> Result<(), Error> {
        let collection = HashName::Collection(self.draw(swarm.collections.into()) as u8);
        if self.draw(1_000) < swarm.ends {
            return match self.draw(2) {
                0 => self.drop_hash(session, collection),
                _ => self.expire_hash(session, collection),
            };
        }
        let known = self.views.collections.remove(&collection);
        let mut view = known.map_or_else(|| session.open_collection(&collection.key()), Ok)?;
        let of = (collection, swarm);
        let adds = (self.now_ns() / swarm.tide_ns).is_multiple_of(2);
        let done = match self.draw(100) {
            drawn if drawn < swarm.indexing_percent => self.change_index(session, &view),
            drawn if drawn >= 98 => self.fill(session, &view),
            drawn if drawn < 40 => self.get_document(session, self.document(of), &mut view),
            drawn if drawn < 60 => self.search_documents(session, of, &view),
            drawn if drawn < 65 => self.remove_group(session, of, &view),
            drawn if drawn < 80 => self.update_document(session, of, &view),
            drawn if drawn < 84 => self.insert_documents(session, of, &view),
            drawn if drawn < 88 => self.remove_document(session, of, &view),
            _ if adds => self.insert_documents(session, of, &view),
            _ => self.remove_document(session, of, &view),
        };
        self.views.collections.insert(collection, view);
        done
    }

    fn document(&self, (collection, swarm): Of) -> Register {
        let number = self.draw(swarm.documents.into()) as u32;
        Register { database: self.database(), hash: Some(collection), number }
    }

    /// A number that no document had.
    fn new_document_number(&self, swarm: CollectionSwarm) -> i64 {
        number_in(self.draw(swarm.groups), self.world.next_number())
    }

    fn violate_collection(&self, promise: &'static str, seen: String) {
        let seen = format!("client {}: {seen}", self.number);
        self.world.history.borrow_mut().violate(promise, seen);
    }

    /// The number that a found document stands for.
    fn number_of_document(&self, of: Register, found: &RawDocument) -> Option<i64> {
        let lengths = self.world.swarm.lengths_of(of);
        let number = collections::number_of(of, found, lengths);
        if number.is_none() {
            let promise = "a document is one that was written under its _id";
            self.violate_collection(promise, format!("{of}: {found:?}"));
        }
        number
    }

    fn get_document(
        &self,
        session: &mut Session,
        of: Register,
        view: &mut OpenCollection,
    ) -> Result<(), Error> {
        self.get_document_by(session, (of, self.path()), view)
    }

    fn get_document_by(
        &self,
        session: &mut Session,
        (of, path): (Register, Path),
        view: &mut OpenCollection,
    ) -> Result<(), Error> {
        let id = id_of(of);
        let begun = self.begin(of, KeyOp::Nothing);
        let request = || {
            rawdoc! { "filter": { "_id": { "$eq": id } }, "hint": "_id_", "limit": 1 }.into_bytes()
        };
        match session.document_get(view, Some(&record_name(id)), path, request) {
            Ok(got) => {
                let is_read = got.served_by.is_read() && got.value.is_some();
                self.world.probes.borrow_mut().add(Probe::DocumentRead, is_read.into());
                let found = got.value.map(RawDocument::from_bytes);
                if found.as_ref().is_some_and(Result::is_err) {
                    self.violate_collection("a document is BSON", format!("{of}"));
                }
                let found = found.and_then(Result::ok);
                let found = found.and_then(|found| self.number_of_document(of, found));
                self.end(begun, KeyOp::Get { found });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    fn insert_documents(
        &self,
        session: &mut Session,
        of: Of,
        view: &OpenCollection,
    ) -> Result<(), Error> {
        let (first, count) = (self.document(of), 1 + self.draw(of.1.most_at_once) as u32);
        let numbers = first.number..(first.number + count).min(of.1.documents);
        let documents: Vec<(Register, i64)> = numbers
            .map(|number| (Register { number, ..first }, self.new_document_number(of.1)))
            .collect();
        let set = |number, condition, done| {
            let value = Value { number, expiry: None };
            KeyOp::Set { value, condition, done }
        };
        let calls = documents.iter().map(|&(of, number)| (of, set(number, If::Absent, None), None));
        let begun = self.world.history.borrow_mut().begin_all(self.number, self.now_ns(), calls);
        let mut list = Vec::new();
        for &(document, number) in &documents {
            let bytes = collections::document(document, number, of.1.lengths);
            Items::push(&mut list, bytes.as_bytes());
        }
        let list = Items::parse(&list).expect("it was just made");
        let ordered = self.draw(2) == 0;
        let command = CollectionCommand::Insert { documents: list, ordered };
        let told = session.document_ask(view, &command).map(|reply| {
            let failures = failures_of(reply.value.unwrap_or_default());
            (reply.number, failures)
        });
        let (added, failures) = match told {
            Ok((added, Some(failures))) => (added, failures),
            Ok((_, None)) => {
                self.violate_collection("failures of an insertion are documents", String::new());
                return Ok(());
            }
            Err(error) => return self.fields_failed(&begun, error),
        };
        let mut done = 0;
        let mut ends = false;
        for (place, (&begun, &(_, number))) in begun.iter().zip(&documents).enumerate() {
            match failures.get(&place) {
                _ if ends => self.failed(begun, Error::Refused(Status::OutOfMemory))?,
                None => {
                    done += 1;
                    self.end(begun, set(number, If::Absent, Some(true)));
                }
                Some(&DUPLICATE_KEY) => {
                    self.end(begun, set(number, If::Absent, Some(false)));
                    ends = ordered;
                }
                Some(&NO_MEMORY) => {
                    self.failed(begun, Error::Refused(Status::OutOfMemory))?;
                    ends = true;
                }
                Some(code) => self.failed(begun, Error::DocumentRefused { code: *code })?,
            }
        }
        if done != added {
            let promise = "an insertion counts the documents that it adds";
            self.violate_collection(promise, format!("{added} of {documents:?}: {failures:?}"));
        }
        Ok(())
    }

    /// Sends a change of one document. Gives how many matched, and whether one was made.
    fn ask_write(
        &self,
        session: &mut Session,
        view: &OpenCollection,
        request: &RawDocumentBuf,
    ) -> Result<(i64, bool, bool), Error> {
        let command = CollectionCommand::Write { request: request.as_bytes() };
        let reply = session.document_ask(view, &command)?;
        let told = RawDocument::from_bytes(reply.value.unwrap_or_default());
        let number = reply.number;
        let Ok(told) = told else {
            self.violate_collection("a change is answered by a document", format!("{request:?}"));
            return Ok((number, false, true));
        };
        if let Ok(error) = told.get_document("error") {
            self.violate_collection("no change of a document fails", format!("{error:?}"));
        }
        let is_made = matches!(told.get("upserted"), Ok(Some(_)));
        Ok((number, is_made, place_of(told).is_none()))
    }

    fn update_document(
        &self,
        session: &mut Session,
        of: Of,
        view: &OpenCollection,
    ) -> Result<(), Error> {
        let (document, number) = (self.document(of), self.new_document_number(of.1));
        let value = Value { number, expiry: None };
        let is_upsert = self.draw(3) == 0;
        let condition = if is_upsert { If::Always } else { If::Present };
        let begun = self.begin(document, KeyOp::Set { value, condition, done: None });
        let fields = collections::fields(document, number, of.1.lengths);
        // By operators, or by a whole document.
        let update = if self.draw(2) == 0 {
            rawdoc! { "$set": fields }
        } else {
            fields
        };
        let request = write_request(document, Some(update), is_upsert);
        match self.ask_write(session, view, &request) {
            Ok((matched, is_made, _)) => {
                let condition = if matched > 0 || !is_upsert { If::Present } else { If::Absent };
                let done = Some(matched > 0 || is_made);
                self.end(begun, KeyOp::Set { value, condition, done });
                if matched > 1 || (is_upsert && i64::from(is_made) + matched != 1) {
                    let seen = format!("{document}: {matched} matched, made: {is_made}");
                    self.violate_collection("an update of an _id changes one document", seen);
                }
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    fn remove_document(
        &self,
        session: &mut Session,
        of: Of,
        view: &OpenCollection,
    ) -> Result<(), Error> {
        let document = self.document(of);
        if self.are_unsettled(&[document]) {
            return Ok(());
        }
        let begun = self.begin(document, KeyOp::Del { removed: None });
        match self.ask_write(session, view, &write_request(document, None, false)) {
            Ok((matched, ..)) => {
                self.end(begun, KeyOp::Del { removed: Some(matched > 0) });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    fn drawn_groups(&self, swarm: CollectionSwarm) -> RangeInclusive<u64> {
        let first = self.draw(swarm.groups);
        match self.draw(4) {
            0 => first..=(first + self.draw(swarm.groups)).min(swarm.groups - 1),
            1 => 0..=swarm.groups - 1,
            _ => first..=first,
        }
    }

    /// Removes all documents of a group by one request. What a request of several steps removes is not known.
    fn remove_group(
        &self,
        session: &mut Session,
        of: Of,
        view: &OpenCollection,
    ) -> Result<(), Error> {
        let documents = self.all_fields(of.0);
        if self.are_unsettled(&documents) {
            return self.search_documents(session, of, view);
        }
        let group = self.draw(of.1.groups);
        let groups = group..=group;
        let (from, to) = numbers_of(&groups).into_inner();
        let begun = self.begin_fields(&documents, KeyOp::DelWithin { from, to });
        let filter = filter_of(&groups, self.draw(2) == 0);
        let request = rawdoc! { "q": filter, "multi": true };
        match self.ask_write(session, view, &request) {
            Ok((0, _, true)) => self.end_fields(&begun, KeyOp::Outside { from, to }),
            Ok((removed, _, true)) => {
                self.world.probes.borrow_mut().add(Probe::DocumentsRemoved, removed as u64);
                self.end_fields(&begun, KeyOp::DelWithin { from, to })
            }
            Ok((.., false)) => Ok(()),
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    /// Searches for documents of some groups, in several steps if need be.
    fn search_documents(
        &self,
        session: &mut Session,
        of: Of,
        view: &OpenCollection,
    ) -> Result<(), Error> {
        let groups = self.drawn_groups(of.1);
        let filter = filter_of(&groups, self.draw(2) == 0);
        let limit = [1, 5, MOST_FOUND, MOST_FOUND][self.draw(4) as usize];
        let mut at: Option<Binary> = None;
        // Bounded: each step goes on behind the last one.
        loop {
            let mut request = rawdoc! { "filter": filter.clone(), "limit": limit };
            let is_first = at.is_none();
            if let Some(at) = at {
                request.append(cstr!("at"), at);
            }
            let begun = self.begin_fields(&self.all_fields(of.0), KeyOp::Nothing);
            let command = CollectionCommand::Find { request: request.as_bytes() };
            let told = session.document_ask(view, &command);
            let step = match told.map(|reply| Step::parse(reply.value.unwrap_or_default())) {
                Ok(Some(step)) => step,
                Ok(None) => {
                    self.violate_collection("a search gives documents", format!("{request:?}"));
                    return Ok(());
                }
                Err(Error::DocumentRefused { code: PLAN_KILLED }) if !is_first => {
                    return self.end_fields(&begun, KeyOp::Nothing);
                }
                Err(error) => return self.fields_failed(&begun, error),
            };
            self.saw_documents(of, (&groups, is_first), &begun, &step);
            at = step.at;
            if at.is_none() {
                return Ok(());
            }
        }
    }

    /// One step of a search. It says something of all documents if it is the only one.
    fn saw_documents(
        &self,
        (collection, swarm): Of,
        (groups, is_first): (&RangeInclusive<u64>, bool),
        begun: &[Begun],
        step: &Step,
    ) {
        let numbers = numbers_of(groups);
        let mut found = BTreeMap::new();
        for document in &step.documents {
            let database = self.database();
            let register = register_found(database, collection, document, swarm.documents);
            let number = register.and_then(|of| self.number_of_document(of, document));
            let seen = || format!("{collection}, groups {groups:?}: {document:?}");
            match register.zip(number) {
                Some((_, number)) if !numbers.contains(&number) => {
                    self.violate_collection("a search finds what matches", seen());
                }
                Some((of, number)) if found.insert(of, number).is_some() => {
                    self.violate_collection("a step finds each document once", seen());
                }
                Some(_) => {}
                None => self.violate_collection("a search finds documents that were added", seen()),
            }
        }
        if INDEXES.iter().any(|(name, ..)| *name == step.index) {
            self.world.probes.borrow_mut().add(Probe::DocumentsByIndex, found.len() as u64);
        }
        let is_all = is_first && step.at.is_none();
        for &begun in begun {
            let op = match found.get(&begun.key) {
                Some(&number) => KeyOp::Get { found: Some(number) },
                None if is_all => KeyOp::Outside { from: *numbers.start(), to: *numbers.end() },
                None => KeyOp::Nothing,
            };
            self.end(begun, op);
        }
    }

    /// Makes an index, or drops it. Every search has to find the same with it and without.
    fn change_index(&self, session: &mut Session, view: &OpenCollection) -> Result<(), Error> {
        let (name, field, is_unique) = INDEXES[self.draw(INDEXES.len() as u64) as usize];
        if self.draw(3) == 0 {
            let command = CollectionCommand::DropIndex { name: name.as_bytes() };
            return match session.document_ask(view, &command).map(drop) {
                Err(Error::Refused(Status::NotFound)) => Ok(()),
                dropped => self.unjudged(dropped).map(drop),
            };
        }
        let key = RawDocumentBuf::try_from(&doc! { field: 1 }).expect("the name has no zero byte");
        let mut spec = rawdoc! { "key": key, "name": name };
        if is_unique {
            spec.append(cstr!("unique"), true);
        }
        let mut at: Option<Binary> = None;
        // Bounded: each step goes on behind the last one.
        loop {
            let mut request = rawdoc! { "spec": spec.clone() };
            if let Some(at) = at.take() {
                request.append(cstr!("at"), at);
            }
            let command = CollectionCommand::CreateIndex { request: request.as_bytes() };
            let told = session.document_ask(view, &command).map(|reply| {
                place_of(RawDocument::from_bytes(reply.value.unwrap_or_default()).ok()?)
            });
            at = self.unjudged(told)?.flatten();
            if at.is_none() {
                return Ok(());
            }
            self.world.probes.borrow_mut().add(Probe::IndexInSteps, 1);
        }
    }

    /// Adds documents that no search is to find: with them an index takes several steps.
    fn fill(&self, session: &mut Session, view: &OpenCollection) -> Result<(), Error> {
        let mut list = Vec::new();
        let first = self.draw(FILLERS);
        for number in first..first + FILLED_AT_ONCE {
            Items::push(&mut list, filler(number % FILLERS).as_bytes());
        }
        let documents = Items::parse(&list).expect("it was just made");
        let command = CollectionCommand::Insert { documents, ordered: false };
        self.unjudged(session.document_ask(view, &command).map(drop)).map(drop)
    }

    /// Reads documents around the time when their collection expires.
    pub(super) fn read_expired_documents(
        &mut self,
        session: &mut Session,
        collection: HashName,
        at_ms: u64,
    ) -> Result<(), Error> {
        let Some(mut view) = self.views.collections.remove(&collection) else { return Ok(()) };
        let left_ms = at_ms.saturating_sub(self.world.node.borrow().unix_ms());
        let (database, hash) = (self.database(), Some(collection));
        let done = [0, left_ms + 2].into_iter().try_for_each(|waits_ms| {
            self.pause((waits_ms + self.draw(8)) * MS);
            JUDGED_EXPIRY.into_iter().try_for_each(|number| {
                let document = Register { database, hash, number };
                self.get_document_by(session, (document, Path::Read), &mut view)
            })
        });
        self.views.collections.insert(collection, view);
        done
    }
}
