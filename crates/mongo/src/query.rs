//! Queries: which documents they have found so far, and where they go on.
//!
//! A shard answers a question with some documents and a place. The next question begins there: so the shard
//! keeps nothing, and a query may wait for its client as long as it likes.

use crate::limits::MAX_DOCUMENT_BYTES;
use crate::reply::{CommandError, ErrorCode};
use crate::rings::{Rings, near_of, write_ring};
use crate::step::{Step, ask, done};
use crate::writer::{ArrayWriter, DocumentWriter, write_document};
use bson::raw::RawBsonRef;
use bson::{RawDocument, RawDocumentBuf, cstr};
use remora_document::{
    Filter, Located, Pipeline, Projection, SortKeys, Sorter, Step as Next, Variables,
};
use remora_frontend::OwnedReply;
use remora_protocol::Items;
use remora_protocol::collection::CollectionCommand;
use std::collections::VecDeque;

/// What is wanted of a collection.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The collection's key.
    pub namespace: Vec<u8>,
    /// The filter.
    pub filter: RawDocumentBuf,
    /// The order, if one is wanted.
    pub sort: Option<RawDocumentBuf>,
    /// The index that is to be used, as a document with the field `hint`.
    pub hint: Option<RawDocumentBuf>,
    /// Documents that are left out at the beginning.
    pub skip: u64,
    /// Documents at most.
    pub limit: Option<u64>,
    /// The variables that its expressions see, as the document `let`.
    pub variables: Option<RawDocumentBuf>,
    /// Sets the distances of documents, which the filter sorts by.
    pub geo_near: Option<Located>,
    /// The order does not matter.
    pub any_order: bool,
}

impl Wanted {
    /// Bytes of its documents.
    fn kept_bytes(&self) -> usize {
        let Self { namespace, filter, sort, hint, variables, geo_near, .. } = self;
        let further = [sort, hint, variables].into_iter().flatten();
        let further = further.map(|of| of.as_bytes().len()).sum::<usize>();
        let near = geo_near.as_ref().map_or(0, |near| near.filter().as_bytes().len());
        namespace.len() + filter.as_bytes().len() + further + near
    }

    fn sorter(&self) -> Result<Option<Sorter<RawDocumentBuf>>, CommandError> {
        let Some(sort) = &self.sort else { return Ok(None) };
        Ok(Some(Sorter::new(SortKeys::parse(sort)?, self.skip, self.limit)))
    }
}

/// A search in one collection: filter, order, bounds.
pub struct Search {
    wanted: Wanted,
    sorter: Option<Sorter<RawDocumentBuf>>,
    /// The search is sorted by distance.
    rings: Option<Rings>,
    /// The filter has distances, which do not matter for the order.
    has_near: bool,
    /// Where the next question begins.
    at: Option<Vec<u8>>,
    has_more: bool,
    /// Whether documents have come in another order than the wanted one.
    is_unsorted: bool,
    /// The next documents.
    ready: VecDeque<RawDocumentBuf>,
    ready_bytes: usize,
    /// Documents that were left out at the beginning, and those that are ready or were taken.
    skipped: u64,
    given: u64,
}

impl Search {
    /// One that has asked nothing yet.
    ///
    /// # Errors
    /// The order is none.
    pub fn new(wanted: Wanted) -> Result<Self, CommandError> {
        let sorter = wanted.sorter()?;
        let near = near_of(&wanted.filter, wanted.variables.as_deref());
        let (has_near, is_sorted) = (near.is_some(), sorter.is_some() || wanted.any_order);
        let most = wanted.limit.map(|limit| limit.saturating_add(wanted.skip));
        let rings = near.filter(|_| !is_sorted).map(|near| Rings::new(near, most)).transpose()?;
        Ok(Self {
            wanted,
            sorter,
            rings,
            has_near,
            at: None,
            has_more: true,
            is_unsorted: false,
            ready: VecDeque::new(),
            ready_bytes: 0,
            skipped: 0,
            given: 0,
        })
    }

    /// It begins as if it had asked nothing.
    ///
    /// # Errors
    /// None: the order was one before.
    pub(crate) fn begin_anew(&mut self) -> Result<(), CommandError> {
        *self = Self::new(std::mem::take(&mut self.wanted))?;
        Ok(())
    }

    /// Bytes that it keeps.
    pub fn kept_bytes(&self) -> usize {
        let sorted = self.sorter.as_ref().map_or(0, Sorter::bytes)
            + self.rings.as_ref().map_or(0, Rings::bytes);
        self.ready_bytes + sorted + self.wanted.kept_bytes() + size_of::<Self>()
    }

    /// Whether there are no more documents.
    pub fn is_over(&self) -> bool {
        self.ready.is_empty() && !self.has_more
    }

    /// Whether a step may end after as many documents as are still wanted.
    ///
    /// The first step of a sorted search has the limit too, as the shard's plan depends on it. If the shard's
    /// answer says that it is not sorted, further steps go on behind it without a limit, to the end.
    fn ends_at_limit(&self) -> bool {
        self.rings.is_none() && !self.is_unsorted
    }

    /// The next question.
    pub fn question(&self) -> Step {
        let mut request = Vec::new();
        let Wanted { namespace, filter, sort, hint, skip, limit, variables, .. } = &self.wanted;
        write_document(&mut request, |fields| {
            fields.raw_document(cstr!("filter"), filter);
            if let Some(sort) = sort {
                fields.raw_document(cstr!("sort"), sort);
            }
            write_hint(fields, hint.as_deref());
            if let Some(variables) = variables {
                fields.raw_document(cstr!("let"), variables);
            }
            match &self.rings {
                Some(rings) => rings.write(fields),
                // Where the order does not matter, all lies in one ring.
                None if self.has_near && sort.is_none() => {
                    write_ring(fields, 0.0, Some(f64::INFINITY))
                }
                None => {}
            }
            if let Some(limit) = limit.filter(|_| self.ends_at_limit()) {
                let left = limit.saturating_add(*skip).saturating_sub(self.given + self.skipped);
                fields.i64(cstr!("limit"), i64::try_from(left).unwrap_or(i64::MAX));
            }
            if let Some(at) = &self.at {
                fields.binary(cstr!("at"), at);
            }
        });
        ask(namespace, CollectionCommand::Find { request: &request })
    }

    /// Takes the answer to the last question.
    ///
    /// # Errors
    /// There is too much to be sorted.
    pub fn take(&mut self, answer: &OwnedReply) -> Result<(), CommandError> {
        let items =
            Items::parse(answer.value.as_deref().unwrap_or_default()).ok_or_else(senseless)?;
        let mut items = items.iter().flatten();
        let head = items.next().and_then(|head| RawDocument::from_bytes(head).ok());
        let head = head.ok_or_else(senseless)?;
        self.at = head.get_binary("at").ok().map(|at| at.bytes.to_vec());
        self.has_more = self.at.is_some();
        let is_sorted = self.sorter.is_none() || head.get_bool("sorted").unwrap_or(false);
        self.is_unsorted |= !is_sorted;
        for document in items {
            let document =
                RawDocumentBuf::from_bytes(document.to_vec()).map_err(|_| senseless())?;
            match (&mut self.sorter, &mut self.rings) {
                (Some(sorter), _) if !is_sorted => sorter.push_document(document)?,
                (_, Some(rings)) => rings.push(document)?,
                _ => self.add(document)?,
            }
        }
        self.turn_ring(head.get_f64("to").ok())?;
        if !self.has_more && self.is_unsorted {
            // It has left out what is to be left out.
            while let Some(document) = self.sorter.as_mut().and_then(Sorter::take) {
                self.put(document);
            }
        }
        self.has_more &= self.wanted.limit.is_none_or(|limit| self.given < limit);
        Ok(())
    }

    /// Goes on to the next ring if the present one, which ends there, is complete.
    fn turn_ring(&mut self, to: Option<f64>) -> Result<(), CommandError> {
        let Some(rings) = &mut self.rings else { return Ok(()) };
        rings.ends_at(to);
        if self.has_more {
            return Ok(());
        }
        let left = self.wanted.limit.map(|limit| limit.saturating_add(self.wanted.skip));
        let given = self.given + self.skipped;
        let found = rings.turn(|found| left.map(|left| left.saturating_sub(given + found)))?;
        self.has_more = !rings.is_over();
        found.into_iter().try_for_each(|document| self.add(document))
    }

    fn add(&mut self, document: RawDocumentBuf) -> Result<(), CommandError> {
        if self.skipped < self.wanted.skip {
            self.skipped += 1;
        } else if self.wanted.limit.is_none_or(|limit| self.given < limit) {
            self.given += 1;
            match &self.wanted.geo_near {
                Some(geo_near) => self.put(geo_near.apply(&document)?),
                None => self.put(document),
            }
        }
        Ok(())
    }

    fn put(&mut self, document: RawDocumentBuf) {
        self.ready_bytes += document.as_bytes().len();
        self.ready.push_back(document);
    }

    /// The next document, if one is ready.
    pub(crate) fn next(&mut self) -> Option<RawDocumentBuf> {
        let document = self.ready.pop_front()?;
        self.ready_bytes -= document.as_bytes().len();
        Some(document)
    }
}

/// What becomes of the documents that a search finds.
enum Shape {
    /// They are given, by a projection if there is one. The filter says which element `$` means.
    Find(Option<(Projection, Option<Filter>)>),
    /// They go through a pipeline.
    Pipeline(Box<Pipeline>),
}

/// Why a query waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// For its own search.
    Search,
    /// For the search of one of its stages.
    Lookup,
    /// It has worked enough for now.
    Turn,
}

/// See the module's text.
pub struct Query {
    namespace: Vec<u8>,
    search: Option<Search>,
    /// Searches of stages, each begun while the one before it was not over.
    lookups: Vec<Search>,
    shape: Shape,
    waits: Waits,
    is_over: bool,
    /// The next documents.
    ready: VecDeque<RawDocumentBuf>,
    ready_bytes: usize,
}

/// Steps of a pipeline before others have their turn.
const STEPS_AT_ONCE: usize = 64;

impl Query {
    /// The documents of a search, by a projection.
    ///
    /// # Errors
    /// The order or the projection is none.
    pub fn find(
        wanted: Wanted,
        projection: Option<&RawDocument>,
        variables: &Variables,
    ) -> Result<Self, CommandError> {
        let shape = match projection.filter(|of| of.iter_elements().next().is_some()) {
            None => None,
            Some(of) => {
                let projection = Projection::parse_with(of, variables)?;
                let filter = match projection.is_positional() {
                    true => Some(Filter::parse_with(&wanted.filter, variables)?),
                    false => None,
                };
                Some((projection, filter))
            }
        };
        Self::new(wanted, Shape::Find(shape))
    }

    /// The documents that a pipeline makes; `wanted` has what its beginning asks of the collection.
    ///
    /// # Errors
    /// The order is none.
    pub fn pipeline(wanted: Wanted, pipeline: Pipeline) -> Result<Self, CommandError> {
        let reads = pipeline.source().reads_collection;
        let query = Self::new(wanted, Shape::Pipeline(Box::new(pipeline)))?;
        Ok(Self { search: query.search.filter(|_| reads), ..query })
    }

    fn new(wanted: Wanted, shape: Shape) -> Result<Self, CommandError> {
        // An empty filter that is wrong is refused at once, not with the first answer.
        Ok(Self {
            namespace: wanted.namespace.clone(),
            search: Some(Search::new(wanted)?),
            lookups: Vec::new(),
            shape,
            waits: Waits::Search,
            is_over: false,
            ready: VecDeque::new(),
            ready_bytes: 0,
        })
    }

    /// The collection's key.
    pub fn namespace(&self) -> &[u8] {
        &self.namespace
    }

    /// Bytes that it keeps between two batches.
    pub fn kept_bytes(&self) -> usize {
        let searches = self.search.iter().chain(&self.lookups).map(Search::kept_bytes);
        let stages = match &self.shape {
            Shape::Find(_) => 0,
            Shape::Pipeline(pipeline) => pipeline.kept_bytes(),
        };
        self.ready_bytes + searches.sum::<usize>() + stages + size_of::<Self>()
    }

    /// Whether there are no more documents.
    pub fn is_over(&self) -> bool {
        self.ready.is_empty() && self.is_over
    }

    /// What is to be asked, as it needs an answer to go on.
    pub fn question(&self) -> Step {
        match (self.waits, &self.search, self.lookups.last()) {
            (Waits::Search, Some(search), _) | (Waits::Lookup, _, Some(search)) => {
                search.question()
            }
            _ => Step::Yield,
        }
    }

    /// Takes the answer to the last question.
    ///
    /// # Errors
    /// It is a refusal, or too much is to be kept.
    pub fn take(&mut self, answer: Option<OwnedReply>) -> Result<(), CommandError> {
        match (self.waits, &mut self.search, self.lookups.last_mut()) {
            (Waits::Search, Some(search), _) | (Waits::Lookup, _, Some(search)) => {
                search.take(&done(answer)?)
            }
            _ => Ok(()),
        }
    }

    /// Makes documents ready, until so many bytes of them are, or an answer is needed. False if one is.
    ///
    /// # Errors
    /// As MongoDB: an expression fails, or a stage needs too much memory.
    fn produce(&mut self, bytes: usize) -> Result<bool, CommandError> {
        for _ in 0..STEPS_AT_ONCE {
            if self.is_over || self.ready_bytes >= bytes {
                return Ok(true);
            }
            let waits = match &mut self.shape {
                Shape::Find(_) => self.find_one()?,
                Shape::Pipeline(_) => self.pipeline_step()?,
            };
            if let Some(waits) = waits {
                self.waits = waits;
                return Ok(false);
            }
        }
        self.waits = Waits::Turn;
        Ok(false)
    }

    fn find_one(&mut self) -> Result<Option<Waits>, CommandError> {
        let Shape::Find(shape) = &self.shape else { return Ok(None) };
        let Some(search) = &mut self.search else {
            self.is_over = true;
            return Ok(None);
        };
        // Documents that are ready cost nothing but their projection.
        for _ in 0..STEPS_AT_ONCE {
            let Some(document) = search.next() else {
                self.is_over = search.is_over();
                return Ok((!self.is_over).then_some(Waits::Search));
            };
            let document = match shape {
                None => document,
                Some((projection, filter)) => {
                    let found = filter.as_ref().and_then(|filter| filter.position(&document));
                    projection.apply(&document, found)?
                }
            };
            self.ready_bytes += document.as_bytes().len();
            self.ready.push_back(document);
        }
        Ok(None)
    }

    fn pipeline_step(&mut self) -> Result<Option<Waits>, CommandError> {
        let Shape::Pipeline(pipeline) = &mut self.shape else { return Ok(None) };
        match pipeline.step()? {
            Next::Done => self.is_over = true,
            Next::Gives(document) => {
                self.ready_bytes += document.as_bytes().len();
                self.ready.push_back(document);
            }
            Next::Continues => return Ok(Some(Waits::Turn)),
            Next::Wants => match &mut self.search {
                None => pipeline.end(),
                Some(_) if pipeline.is_satisfied() => pipeline.end(),
                Some(search) => match search.next() {
                    Some(document) => pipeline.push(document),
                    None if search.is_over() => pipeline.end(),
                    None => return Ok(Some(Waits::Search)),
                },
            },
            Next::Asks(query) => {
                let dot = self.namespace.iter().position(|&byte| byte == b'.').unwrap_or_default();
                let namespace = [&self.namespace[..=dot], query.collection.as_bytes()].concat();
                self.lookups.push(Search::new(Wanted {
                    namespace,
                    filter: query.filter,
                    sort: query.sort,
                    skip: query.skip,
                    limit: query.limit,
                    ..Wanted::default()
                })?);
                return Ok(Some(Waits::Lookup));
            }
            Next::Awaits => {
                let Some(lookup) = self.lookups.last_mut() else { return Err(senseless()) };
                let documents: Vec<RawDocumentBuf> = std::iter::from_fn(|| lookup.next()).collect();
                let is_last = lookup.is_over();
                if documents.is_empty() && !is_last {
                    return Ok(Some(Waits::Lookup));
                }
                pipeline.answer(documents, is_last);
                if is_last {
                    self.lookups.pop();
                }
            }
        }
        Ok(None)
    }

    /// The next document, if one is ready that has so many bytes at most.
    fn next(&mut self, most_bytes: usize) -> Option<RawDocumentBuf> {
        let bytes = self.ready.front()?.as_bytes().len();
        if bytes > most_bytes {
            return None;
        }
        self.ready_bytes -= bytes;
        self.ready.pop_front()
    }
}

/// A batch that is being made.
pub struct Batch {
    most: usize,
    documents: Vec<RawDocumentBuf>,
    bytes: usize,
}

/// Bytes of what stands around documents in a batch: type, number and length of each, for as many as there may be.
const AROUND_BYTES: usize = 12;

impl Batch {
    /// An empty one, of this many documents at most.
    pub const fn new(most: usize) -> Self {
        Self { most, documents: Vec::new(), bytes: 0 }
    }

    /// Takes what a query makes. True once nothing more fits, or there is nothing more; else the query needs an
    /// answer.
    ///
    /// # Errors
    /// As MongoDB: an expression fails, or a stage needs too much memory.
    pub fn fill(&mut self, query: &mut Query) -> Result<bool, CommandError> {
        while self.documents.len() < self.most {
            let room = match self.documents.is_empty() {
                true => usize::MAX,
                false => MAX_DOCUMENT_BYTES.saturating_sub(self.bytes + AROUND_BYTES),
            };
            if let Some(document) = query.next(room) {
                self.bytes += document.as_bytes().len() + AROUND_BYTES;
                self.documents.push(document);
            } else if query.is_over() || !query.ready.is_empty() {
                return Ok(true);
            } else if !query.produce(MAX_DOCUMENT_BYTES.saturating_sub(self.bytes))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes the documents out, so that there is room for others.
    pub(crate) fn take(&mut self) -> Vec<RawDocumentBuf> {
        self.bytes = 0;
        std::mem::take(&mut self.documents)
    }

    /// The documents.
    pub fn write(&self, to: &mut ArrayWriter<'_>) {
        self.documents.iter().for_each(|document| to.raw_document(document));
    }
}

/// Adds a hint to a request.
pub(crate) fn write_hint(fields: &mut DocumentWriter<'_>, hint: Option<&RawDocument>) {
    match hint.and_then(|hint| hint.get("hint").ok().flatten()) {
        Some(RawBsonRef::String(name)) => fields.str(cstr!("hint"), name),
        Some(RawBsonRef::Document(keys)) => fields.raw_document(cstr!("hint"), keys),
        _ => {}
    }
}

fn senseless() -> CommandError {
    CommandError::new(ErrorCode::InternalError, "a shard's answer makes no sense")
}
