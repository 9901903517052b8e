//! Projections: which fields of a document a result has, and which are computed.
//!
//! A projection is a tree of fields, as its paths divide it:
//!
//! ```text
//!   {"a.b": 1, "a.c": "$x"}   -->   a --+-- b: included
//!                                      '-- c: computed
//! ```
//! The fields of a result stand in the order of the document; computed ones that are new follow in the order of
//! the projection. An array on the way is entered: each of its documents is projected.

mod apply;
mod find;
mod parse;
mod shape;

use crate::error::DocumentError;
use crate::variables::Variables;
use bson::raw::{RawDocument, RawDocumentBuf};
use find::Operators;
pub(crate) use shape::Shape;
use std::sync::Arc;

/// A projection of `find`, parsed.
///
/// ```
/// use bson::rawdoc;
/// use remora_document::Projection;
///
/// let projection = Projection::parse(&rawdoc! { "_id": 0, "size.h": 1, "area": { "$multiply": ["$size.h", "$size.w"] } })?;
/// let document = rawdoc! { "_id": 1, "item": "paper", "size": { "h": 8, "w": 11 } };
/// let made = projection.apply(&document, None)?;
/// assert_eq!(made, rawdoc! { "size": { "h": 8 }, "area": 88 });
/// # Ok::<(), remora_document::DocumentError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Projection {
    shape: Shape,
    operators: Operators,
    variables: Arc<Variables>,
}

impl Projection {
    /// Parses a projection of `find`.
    ///
    /// # Errors
    /// As MongoDB: inclusions mixed with exclusions, paths that collide, a wrong path or expression.
    pub fn parse(projection: &RawDocument) -> Result<Projection, DocumentError> {
        Projection::parse_with(projection, &Variables::default())
    }

    /// The same with variables, which its expressions see.
    ///
    /// # Errors
    /// As [`Projection::parse`].
    pub fn parse_with(
        projection: &RawDocument,
        variables: &Variables,
    ) -> Result<Projection, DocumentError> {
        let (shape, operators) = find::parse(projection, variables)?;
        Ok(Projection { shape, operators, variables: Arc::new(variables.clone()) })
    }

    /// Whether it has the positional operator, so that [`Projection::apply`] needs a position.
    #[must_use]
    pub fn is_positional(&self) -> bool {
        self.operators.is_positional()
    }

    /// The fields of a document that the projection leaves, and those that it computes. `found` is the
    /// position of the array's element that met the filter, for the positional operator `$`.
    ///
    /// # Errors
    /// As MongoDB: an expression fails; `$` is there, and no element was found.
    pub fn apply(
        &self,
        document: &RawDocument,
        found: Option<usize>,
    ) -> Result<RawDocumentBuf, DocumentError> {
        let env = self.variables.env();
        let made = self.shape.apply(document, &env)?;
        self.operators.apply(made, found)
    }
}
