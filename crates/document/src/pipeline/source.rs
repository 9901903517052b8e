//! What the caller's searches do for a pipeline.

use crate::error::DocumentError;
use crate::geo::GeoNear;
use crate::raw::append;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

/// The beginning of a pipeline, which the caller's search does: filter, then sort, then skip, then limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// A filter document. It may have `$expr` with variables of the command.
    pub filter: RawDocumentBuf,
    /// The keys to sort by.
    pub sort: Option<RawDocumentBuf>,
    /// Documents to leave out, after sorting.
    pub skip: u64,
    /// Documents to give at most, after skipping.
    pub limit: Option<u64>,
    /// `$geoNear`, which the search does first: it finds documents by their distance, and sets it.
    pub geo_near: Option<GeoNear>,
    /// Whether the documents come from the collection; else the pipeline makes its own, as `$documents` does,
    /// and wants none.
    pub reads_collection: bool,
}

impl Default for Source {
    fn default() -> Source {
        Source {
            filter: RawDocumentBuf::new(),
            sort: None,
            skip: 0,
            limit: None,
            geo_near: None,
            reads_collection: true,
        }
    }
}

/// A search in another collection, for a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// The collection, of the same database.
    pub collection: String,
    /// A filter without variables.
    pub filter: RawDocumentBuf,
    /// The keys to sort by.
    pub sort: Option<RawDocumentBuf>,
    /// Documents to leave out, after sorting.
    pub skip: u64,
    /// Documents to give at most, after skipping.
    pub limit: Option<u64>,
}

impl Query {
    /// The search that a pipeline begins with, in a collection, with another condition.
    pub(super) fn of(
        collection: &str,
        condition: Option<&RawDocument>,
        source: &Source,
    ) -> Result<Query, DocumentError> {
        let filter = match condition {
            Some(condition) => both(condition, &source.filter)?,
            None => source.filter.clone(),
        };
        Ok(Query {
            collection: collection.to_owned(),
            filter,
            sort: source.sort.clone(),
            skip: source.skip,
            limit: source.limit,
        })
    }
}

/// The filter of what matches two filters.
pub(super) fn both(
    one: &RawDocument,
    other: &RawDocument,
) -> Result<RawDocumentBuf, DocumentError> {
    if one.is_empty() || other.is_empty() {
        return Ok(if one.is_empty() { other } else { one }.to_owned());
    }
    let mut all = RawArrayBuf::new();
    all.push(one);
    all.push(other);
    let mut filter = RawDocumentBuf::new();
    filter.append(cstr!("$and"), all);
    Ok(filter)
}

/// `{path: {operator: value}}`.
pub(super) fn condition(
    path: &str,
    operator: &str,
    value: RawBsonRef<'_>,
) -> Result<RawDocumentBuf, DocumentError> {
    let mut test = RawDocumentBuf::new();
    append(&mut test, operator, value)?;
    let mut filter = RawDocumentBuf::new();
    append(&mut filter, path, RawBsonRef::Document(&test))?;
    Ok(filter)
}
