//! Filters: parsing a filter document, and matching documents with it.
//!
//! The semantics, the error codes and the error texts are those of MongoDB 8. What differs:
//!
//! * Regular expressions are those of the crate `regex`, with matches in linear time. Look-around,
//!   back-references and possessive quantifiers are errors. `\B` knows all of Unicode. `$` takes a last
//!   line break with it, so `$\n` never matches. A flag inside a pattern, such as `(?m)`, counts for
//!   `$` in all that follows it.
//! * `$where`, `$text` and `$sampleRate` are errors.
//! * Geometries: see the module `geo`. `$near` does not sort here: see [`Filter::near`].
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
pub(crate) use pattern::Pattern;
pub(crate) use types::{TypeSet, name_of_type};

use crate::error::DocumentError;
use crate::geo::Near;
use crate::variables::{Env, Variables};
use bson::raw::RawDocument;
use expression::{Clause, Evaluation, Root};
use remora_layout::rect::Rect;
use std::cell::RefCell;
use std::sync::Arc;

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
    /// What `$expr` sees, if there is one.
    variables: Option<Arc<Variables>>,
}

impl Filter {
    /// Parses a filter document.
    ///
    /// # Errors
    ///
    /// With the code and the text of MongoDB: see [`DocumentError`].
    pub fn parse(document: &RawDocument) -> Result<Filter, DocumentError> {
        Filter::parse_with(document, &Variables::default())
    }

    /// The same with variables, which the expressions of `$expr` see.
    ///
    /// # Errors
    ///
    /// As [`Filter::parse`].
    pub fn parse_with(
        document: &RawDocument,
        variables: &Variables,
    ) -> Result<Filter, DocumentError> {
        let (clauses, has_expression) = parse::filter(document, variables)?;
        let variables = has_expression.then(|| Arc::new(variables.clone()));
        Ok(Filter { clauses, variables })
    }

    /// Whether it has `$expr`, so that a match can fail.
    #[must_use]
    pub fn has_expression(&self) -> bool {
        self.variables.is_some()
    }

    /// Its `$near` or `$nearSphere`, by which the results of a query are sorted.
    #[must_use]
    pub fn near(&self) -> Option<&Near> {
        expression::near(&self.clauses)
    }

    /// Rectangles, if it has `$geoWithin` or `$geoIntersects` at this path: the one around the geometries of a
    /// document that matches ([`crate::GeoKind::rect`]) shares a point with one of them.
    #[must_use]
    pub fn windows(&self, path: &str) -> Option<Vec<Rect>> {
        expression::windows(&self.clauses, path)
    }

    /// Whether a document matches. One for which `$expr` fails does not: see [`Filter::try_matches`].
    #[must_use]
    pub fn matches(&self, document: &RawDocument) -> bool {
        self.try_matches(document).unwrap_or(false)
    }

    /// The same for filters with `$expr`, whose expressions can fail.
    ///
    /// # Errors
    ///
    /// That of the expression.
    pub fn try_matches(&self, document: &RawDocument) -> Result<bool, DocumentError> {
        match &self.variables {
            None => self.holds_without(document),
            Some(variables) => self.holds(document, &variables.env()),
        }
    }

    /// The same with other values of the variables.
    pub(crate) fn holds(
        &self,
        document: &RawDocument,
        env: &Env<'_>,
    ) -> Result<bool, DocumentError> {
        if self.variables.is_none() {
            return self.holds_without(document);
        }
        let evaluation = Evaluation { env, error: RefCell::new(None) };
        let holds =
            expression::all_with(&self.clauses, Root::Document(document), Some(&evaluation));
        match evaluation.error.into_inner() {
            Some(error) => Err(error),
            None => self.unless_given_up(holds),
        }
    }

    fn holds_without(&self, document: &RawDocument) -> Result<bool, DocumentError> {
        self.unless_given_up(expression::all(&self.clauses, Root::Document(document)))
    }

    fn unless_given_up(&self, holds: bool) -> Result<bool, DocumentError> {
        if !expression::has_given_up(&self.clauses) {
            return Ok(holds);
        }
        let text = format!(
            "comparing the geometries of one document with that of the filter takes more than {} steps",
            remora_layout::limits::MAX_EXPRESSION_STEPS
        );
        Err(DocumentError::new(crate::error::OPERATION_FAILED, text))
    }
}
