//! Searches by distance: a shard gives the documents of one ring around the place, in any order, and then those of
//! the next one. So each ring is sorted by itself, and a search that wants few documents ends early.

use crate::reply::CommandError;
use crate::writer::DocumentWriter;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{cstr, rawdoc};
use remora_document::{Filter, Near, SortKeys, Sorter, Variables};

/// The rings of a search.
pub(crate) struct Rings {
    near: Near,
    /// Where the present one begins.
    from: f64,
    /// Its end, once the shard has said it.
    to: Option<f64>,
    found: Sorter<RawDocumentBuf>,
    is_over: bool,
}

/// A sorter by the field `d`.
fn sorter(most: Option<u64>) -> Result<Sorter<RawDocumentBuf>, CommandError> {
    Ok(Sorter::new(SortKeys::parse(&rawdoc! { "d": 1 })?, 0, most))
}

/// The condition of a filter by which its documents are sorted. A filter that is wrong has none: the shard says so.
pub(crate) fn near_of(filter: &RawDocument, variables: Option<&RawDocument>) -> Option<Near> {
    const NAME: &[u8] = b"$near";
    // Most filters are not parsed twice.
    if !filter.as_bytes().windows(NAME.len()).any(|at| at == NAME) {
        return None;
    }
    let variables = Variables::parse(0, 0, variables).ok()?;
    Filter::parse_with(filter, &variables).ok()?.near().cloned()
}

/// Adds the ring from one distance up to another one to a request.
pub(crate) fn write_ring(fields: &mut DocumentWriter<'_>, from: f64, to: Option<f64>) {
    fields.document(cstr!("near"), |ring| {
        ring.f64(cstr!("from"), from);
        if let Some(to) = to {
            ring.f64(cstr!("to"), to);
        }
    });
}

impl Rings {
    /// Of a search that wants so many documents at most.
    ///
    /// # Errors
    /// None.
    pub fn new(near: Near, most: Option<u64>) -> Result<Self, CommandError> {
        Ok(Self { near, from: 0.0, to: None, found: sorter(most)?, is_over: false })
    }

    /// Adds the present one to a request.
    pub fn write(&self, fields: &mut DocumentWriter<'_>) {
        write_ring(fields, self.from, self.to);
    }

    /// Takes a document of the present ring.
    ///
    /// # Errors
    /// There is too much to be sorted.
    pub fn push(&mut self, document: RawDocumentBuf) -> Result<(), CommandError> {
        let distance = self.near.distance(&document).unwrap_or(f64::INFINITY);
        let bytes = document.as_bytes().len();
        Ok(self.found.push(&rawdoc! { "d": distance }, document, bytes)?)
    }

    /// Takes the end of the present ring. A shard that says none has given all.
    pub fn ends_at(&mut self, to: Option<f64>) {
        self.to = Some(to.unwrap_or(f64::INFINITY));
    }

    /// The documents of the present ring, which is complete, the nearest one first. The next one begins, and wants
    /// so many at most.
    ///
    /// # Errors
    /// None.
    pub fn turn(
        &mut self,
        most: impl FnOnce(u64) -> Option<u64>,
    ) -> Result<Vec<RawDocumentBuf>, CommandError> {
        let found: Vec<RawDocumentBuf> = std::iter::from_fn(|| self.found.take()).collect();
        self.found = sorter(most(found.len() as u64))?;
        self.from = self.to.take().unwrap_or(f64::INFINITY);
        self.is_over = self.from.is_infinite();
        Ok(found)
    }

    /// Whether there is no further ring.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Bytes that it keeps.
    pub fn bytes(&self) -> usize {
        self.found.bytes()
    }
}
