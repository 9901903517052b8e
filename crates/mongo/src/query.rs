//! Queries: which documents they have found so far, and where they go on.
//!
//! A shard answers a question with some documents and a place. The next question begins there: so the shard
//! keeps nothing, and a query may wait for its client as long as it likes.

use crate::limits::MAX_DOCUMENT_BYTES;
use crate::reply::{CommandError, ErrorCode};
use crate::running::{Step, ask};
use crate::writer::{ArrayWriter, DocumentWriter, write_document};
use bson::raw::RawBsonRef;
use bson::{RawDocument, RawDocumentBuf, cstr};
use remora_document::SortKeys;
use remora_frontend::OwnedReply;
use remora_layout::limits::MAX_SORT_BYTES;
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
}

/// See the module's text.
pub struct Query {
    wanted: Wanted,
    keys: Option<SortKeys>,
    /// Where the next question begins.
    at: Option<Vec<u8>>,
    has_more: bool,
    /// What is to be sorted, once it is all there.
    unsorted: Vec<RawDocumentBuf>,
    unsorted_bytes: usize,
    /// The next documents.
    ready: VecDeque<RawDocumentBuf>,
    ready_bytes: usize,
    /// Documents that were left out at the beginning, and those that have gone into batches or are ready.
    skipped: u64,
    given: u64,
}

impl Query {
    /// A query that has asked nothing yet.
    ///
    /// # Errors
    /// The order is none.
    pub fn new(wanted: Wanted) -> Result<Self, CommandError> {
        let keys = wanted.sort.as_deref().map(SortKeys::parse).transpose()?;
        Ok(Self {
            wanted,
            keys,
            at: None,
            has_more: true,
            unsorted: Vec::new(),
            unsorted_bytes: 0,
            ready: VecDeque::new(),
            ready_bytes: 0,
            skipped: 0,
            given: 0,
        })
    }

    /// The collection's key.
    pub fn namespace(&self) -> &[u8] {
        &self.wanted.namespace
    }

    /// Bytes that it keeps between two batches.
    pub fn kept_bytes(&self) -> usize {
        self.ready_bytes + self.wanted.filter.as_bytes().len() + size_of::<Self>()
    }

    /// Whether there are no more documents.
    pub fn is_over(&self) -> bool {
        self.ready.is_empty() && !self.has_more
    }

    /// The next question.
    pub fn question(&self) -> Step {
        let mut request = Vec::new();
        let Wanted { namespace, filter, sort, hint, skip, limit } = &self.wanted;
        write_document(&mut request, |fields| {
            fields.raw_document(cstr!("filter"), filter);
            if let Some(sort) = sort {
                fields.raw_document(cstr!("sort"), sort);
            }
            write_hint(fields, hint.as_deref());
            if let Some(limit) = limit.filter(|_| sort.is_none()) {
                let left = (limit + skip).saturating_sub(self.given + self.skipped);
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
        let is_sorted = self.keys.is_none() || head.get_bool("sorted").unwrap_or(false);
        for document in items {
            let document =
                RawDocumentBuf::from_bytes(document.to_vec()).map_err(|_| senseless())?;
            match is_sorted {
                true => self.add(document),
                false => self.add_unsorted(document)?,
            }
        }
        if !self.has_more && !self.unsorted.is_empty() {
            self.sort();
        }
        self.has_more &= self.wanted.limit.is_none_or(|limit| self.given < limit);
        Ok(())
    }

    fn add(&mut self, document: RawDocumentBuf) {
        if self.skipped < self.wanted.skip {
            self.skipped += 1;
        } else if self.wanted.limit.is_none_or(|limit| self.given < limit) {
            self.given += 1;
            self.ready_bytes += document.as_bytes().len();
            self.ready.push_back(document);
        }
    }

    fn add_unsorted(&mut self, document: RawDocumentBuf) -> Result<(), CommandError> {
        self.unsorted_bytes += document.as_bytes().len();
        if self.unsorted_bytes > MAX_SORT_BYTES {
            let text = format!(
                "Sort exceeded memory limit of {MAX_SORT_BYTES} bytes, but did not opt in to external sorting."
            );
            return Err(CommandError::new(ErrorCode::QueryExceededMemoryLimit, text));
        }
        self.unsorted.push(document);
        Ok(())
    }

    fn sort(&mut self) {
        let mut all = std::mem::take(&mut self.unsorted);
        if let Some(keys) = &self.keys {
            all.sort_by(|one, other| keys.compare(one, other));
        }
        self.unsorted_bytes = 0;
        all.into_iter().for_each(|document| self.add(document));
    }

    /// It begins as if it had asked nothing.
    pub(crate) fn begin_anew(&mut self) {
        (self.at, self.has_more) = (None, true);
        (self.skipped, self.given, self.ready_bytes, self.unsorted_bytes) = (0, 0, 0, 0);
        self.ready.clear();
        self.unsorted.clear();
    }

    /// The next document, if one is ready.
    pub(crate) fn next_ready(&mut self) -> Option<RawDocumentBuf> {
        self.next(usize::MAX)
    }

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

    /// Takes what is ready. True once nothing more fits, or there is nothing more.
    pub fn fill(&mut self, query: &mut Query) -> bool {
        while self.documents.len() < self.most {
            let room = if self.documents.is_empty() {
                usize::MAX
            } else {
                MAX_DOCUMENT_BYTES - self.bytes
            };
            match query.next(room.saturating_sub(AROUND_BYTES)) {
                Some(document) => {
                    self.bytes += document.as_bytes().len() + AROUND_BYTES;
                    self.documents.push(document);
                }
                None => return query.is_over() || !query.ready.is_empty(),
            }
        }
        true
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
