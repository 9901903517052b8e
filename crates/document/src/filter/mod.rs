//! Filters: parsing a filter document, and matching documents with it.
//!
//! The semantics, the error codes and the error texts are those of MongoDB 8. What differs:
//!
//! * Regular expressions are those of the crate `regex`, with matches in linear time. Look-around
//!   and back-references are errors. `\d`, `\s`, `\w` and `\b` know all of Unicode, and `$` without the
//!   option `m` matches at the end of the text only, not in front of a last line break.
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
mod error;
mod matching;
mod parse;
mod pattern;
mod predicate;
mod types;

pub use error::FilterError;

use crate::path::Path;
use bson::raw::RawDocument;
use predicate::Predicate;

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
/// # Ok::<(), remora_document::FilterError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Filter {
    clauses: Vec<Clause>,
}

/// One part of a filter document.
#[derive(Debug, Clone)]
enum Clause {
    And(Vec<Clause>),
    Or(Vec<Clause>),
    Nor(Vec<Clause>),
    Field(Path, Vec<Test>),
}

/// What a field must satisfy.
#[derive(Debug, Clone)]
enum Test {
    /// A value at the path satisfies the predicate.
    Any(Predicate),
    /// Not all of the tests hold.
    Not(Vec<Test>),
    /// Nothing matches: `$all` without elements.
    Never,
}

impl Filter {
    /// Parses a filter document.
    ///
    /// # Errors
    ///
    /// With the code and the text of MongoDB: see [`FilterError`].
    pub fn parse(document: &RawDocument) -> Result<Filter, FilterError> {
        parse::filter(document).map(|clauses| Filter { clauses })
    }

    /// Whether a document matches.
    #[must_use]
    pub fn matches(&self, document: &RawDocument) -> bool {
        matching::all(&self.clauses, matching::Root::Document(document))
    }
}
