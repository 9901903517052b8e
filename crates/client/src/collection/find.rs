//! Finding documents by a filter: by READs of an index and of the documents, or asked in steps.

use super::CollectionKey;
use super::replies::{SENSELESS, at_place, parse, place_of};
use super::view::CollectionView;
use crate::error::Error;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::rawdoc;
use remora_client_core as core;
use remora_client_core::{Counts, IndexRead, IndexSearch, Path, ServedBy};
use remora_document::{Filter, KeyRange};
use remora_protocol::Items;
use remora_protocol::collection::CollectionCommand;

/// Most documents that one step of a search may give.
const MOST_IN_STEP: usize = 1024;

/// How often a search asks what the indexes are.
const TRIES: usize = 3;

/// Documents that were found, and how they were fetched.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct FoundDocuments {
    /// The documents.
    pub documents: Vec<RawDocumentBuf>,
    /// How they were fetched.
    pub served_by: ServedBy,
    /// What it cost. Asking what the indexes are is a part of it.
    pub counts: Counts,
}

impl IntoIterator for FoundDocuments {
    type Item = RawDocumentBuf;
    type IntoIter = std::vec::IntoIter<RawDocumentBuf>;

    fn into_iter(self) -> Self::IntoIter {
        self.documents.into_iter()
    }
}

/// A search that has begun, or is about to.
struct Begun {
    limit: usize,
    /// What the session had cost before.
    before: Counts,
    turn: Option<core::FindTurn>,
    /// The index by which it goes.
    index: Option<usize>,
}

/// A filter that a client may evaluate. An expression can fail, and sees the owner's clock; places are sorted.
fn readable(filter: &RawDocument) -> Option<Filter> {
    let filter = Filter::parse(filter).ok()?;
    (!filter.has_expression() && filter.near().is_none()).then_some(filter)
}

impl CollectionKey<'_> {
    /// Documents that match a filter, as in MongoDB, so many at most, in no order. If an index has bounds for
    /// the filter, its keys and the documents may be read, and the filter is evaluated here. Otherwise the
    /// owner is asked, in several steps if need be. A document that others change meanwhile may be missed, or
    /// be there twice.
    ///
    /// # Errors
    /// See [`Error`]: [`Error::Documents`] if the filter is none.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use remora_client::bson::rawdoc;
    ///
    /// let cheap = rawdoc! { "price": { "$lt": 50 } };
    /// let found = session.collection("shop", "items")?.find(&cheap, 100)?;
    /// println!("{:?}, {} round trips", found.served_by, found.counts.round_trips);
    /// for item in found {
    ///     println!("{}", item.get_str("kind")?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn find(&mut self, filter: &RawDocument, limit: usize) -> Result<FoundDocuments, Error> {
        let before = self.core.totals();
        let mut begun = Begun { limit, before, turn: None, index: None };
        let by_reads = match limit > 0 && self.core.may_read(self.path) {
            true => self.find_by_reads(filter, &mut begun)?,
            false => None,
        };
        let is_read = by_reads.is_some();
        let documents = match by_reads {
            Some(documents) => documents,
            None => self.find_by_asking(filter, &mut begun)?,
        };
        let Begun { turn, index, .. } = begun;
        let turn = turn.expect("each way begins a search");
        let all = self.view.indexes.as_mut().map(|known| &mut known.all);
        let index = index.and_then(|at| Some(&mut all?.get_mut(at)?.open));
        let (served_by, counts) = self.core.end_find(index, (turn, limit, is_read))?;
        Ok(FoundDocuments { documents, served_by, counts })
    }

    /// Finds documents by READs. `None`: no index has bounds for the filter, asking is better, or only the owner
    /// knows.
    fn find_by_reads(
        &mut self,
        filter: &RawDocument,
        begun: &mut Begun,
    ) -> Result<Option<Vec<RawDocumentBuf>>, Error> {
        let Some(filter) = readable(filter) else { return Ok(None) };
        // Bounded: each try asks what the indexes are.
        for _ in 0..TRIES {
            match self.read_once(&filter, begun)? {
                IndexRead::Found(documents) => {
                    let documents = documents.into_iter().map(RawDocumentBuf::from_bytes);
                    let documents = documents.collect::<Result<_, _>>();
                    return Ok(Some(documents.map_err(|_| SENSELESS)?));
                }
                IndexRead::Changed => {
                    // What is learned next stands in another order.
                    begun.index = None;
                    let known = self.view.indexes.iter_mut();
                    known.for_each(|known| known.is_old = true);
                }
                IndexRead::Ask => break,
            }
        }
        Ok(None)
    }

    /// Finds documents by READs of the indexes that are known, or that the owner tells.
    fn read_once(&mut self, filter: &Filter, begun: &mut Begun) -> Result<IndexRead, Error> {
        self.view.learn_indexes(self.core)?;
        let CollectionView { open, indexes } = &mut *self.view;
        let Some(known) = indexes else { return Ok(IndexRead::Ask) };
        let Some((at, ranges)) = known.choose(filter) else { return Ok(IndexRead::Ask) };
        let (root, version, limit) = (known.root, known.version, begun.limit);
        let index = &mut known.all[at].open;
        begun.index = Some(at);
        let turn = match &begun.turn {
            Some(turn) => turn,
            None => {
                let turn = self.core.begin_find(Some(index), (limit, self.path), begun.before)?;
                begun.turn.insert(turn)
            }
        };
        if !turn.reads() {
            return Ok(IndexRead::Ask);
        }
        let ranges: Vec<_> = ranges.iter().map(KeyRange::bounds).collect();
        let wanted = IndexSearch { root, version, ranges: &ranges, limit };
        let mut matches = |bytes: &[u8]| {
            let document = RawDocument::from_bytes(bytes).ok()?;
            filter.try_matches(document).ok()
        };
        Ok(self.core.find_by_index((open, index), &wanted, &mut matches)?)
    }

    /// Asks for documents, in several steps if need be.
    fn find_by_asking(
        &mut self,
        filter: &RawDocument,
        begun: &mut Begun,
    ) -> Result<Vec<RawDocumentBuf>, Error> {
        let limit = begun.limit;
        if begun.turn.is_none() {
            begun.turn = Some(self.core.begin_find(None, (limit, Path::Ask), begun.before)?);
        }
        let mut found = Vec::new();
        let mut at = None;
        // Bounded: each step goes on behind the last one.
        while found.len() < limit {
            let left = MOST_IN_STEP.min(limit - found.len());
            let request = rawdoc! { "filter": filter.to_owned(), "limit": left as i64 };
            let request = at_place(request, at.as_ref());
            let command = CollectionCommand::Find { request: request.as_bytes() };
            let reply = self.core.document_ask(&self.view.open, &command)?;
            let list = Items::parse(reply.value.unwrap_or_default()).ok_or(SENSELESS)?;
            let mut items = list.iter().flatten();
            at = place_of(parse(items.next().ok_or(SENSELESS)?)?);
            for document in items {
                found.push(parse(document)?.to_owned());
            }
            if at.is_none() {
                break;
            }
        }
        Ok(found)
    }
}
