//! Filters: parsing a filter document, and matching documents with it.
//!
//! The semantics, the error codes and the error texts are those of MongoDB 8. What differs:
//!
//! * Regular expressions are those of the crate `regex`, with matches in linear time. Look-around,
//!   back-references and possessive quantifiers are errors. `\B` knows all of Unicode. `$` takes a last
//!   line break with it, so `$\n` never matches. A flag inside a pattern, such as `(?m)`, counts for
//!   `$` in all that follows it.
//! * `$expr`, `$where`, `$text`, `$jsonSchema`, `$sampleRate`, `$alwaysTrue`, `$alwaysFalse`, and the
//!   operators for geometries, are errors.
//! * A comparison of a double with a decimal is exact.
//! * A filter has limits: conditions, regular expressions, bit positions. In an `$elemMatch` inside
//!   another one, the path of the inner one has one number at most.
//!
//! What a match costs: each condition reads the document once at most, but for `$elemMatch`
//! conditions whose path has several numbers, which can read a part of it once for each number.

mod arguments;
mod bits;
mod bounds;
mod expression;
mod names;
mod parse;
mod pattern;
mod pattern_syntax;
mod position;
mod types;

pub use bounds::{Bounds, Interval, behind, intersection};
pub(crate) use types::name_of_type;

use crate::error::DocumentError;
use bson::raw::RawDocument;
use expression::{Clause, Root};

/// A filter, parsed. It keeps nothing of the document that it was parsed from.
///
/// ```
/// use bson::rawdoc;
/// use remora_document::Filter;
///
/// let filter = Filter::parse(&rawdoc! { "$or": [{ "a": { "$gt": 1 } }, { "b": null }] })?;
/// assert!(filter.matches(&rawdoc! { "a": 0 }));
/// assert!(!filter.matches(&rawdoc! { "a": 1, "b": 2 }));
///
/// let error = Filter::parse(&rawdoc! { "a": { "$foo": 1 } }).unwrap_err();
/// assert_eq!((error.code(), error.message()), (2, "unknown operator: $foo"));
/// # Ok::<(), remora_document::DocumentError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Filter {
    clauses: Vec<Clause>,
}

impl Filter {
    /// Parses a filter document.
    ///
    /// # Errors
    ///
    /// With the code and the text of MongoDB: see [`DocumentError`].
    pub fn parse(document: &RawDocument) -> Result<Filter, DocumentError> {
        parse::filter(document).map(|clauses| Filter { clauses })
    }

    /// Whether a document matches.
    #[must_use]
    pub fn matches(&self, document: &RawDocument) -> bool {
        expression::all(&self.clauses, Root::Document(document))
    }
}
