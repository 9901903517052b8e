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

use crate::error::DocumentError;
use crate::variables::{Env, Variables};
use bson::raw::{RawDocument, RawDocumentBuf};
use find::Operators;
use std::collections::HashMap;
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

/// What happens to fields that a projection does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They are left out: of inclusions.
    Drop,
    /// They stay: of exclusions, and of `$addFields`.
    Keep,
}

/// A tree of fields.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    mode: Mode,
    root: Branch,
    computes: bool,
}

/// The fields that a projection names in one document.
#[derive(Debug, Clone, Default)]
struct Branch {
    children: Vec<(String, Child)>,
    /// Positions by name, if there are many.
    positions: HashMap<String, usize>,
    /// Whether something below is computed.
    computes: bool,
}

#[derive(Debug, Clone)]
enum Child {
    Include,
    Exclude,
    Compute(crate::expression::Expression),
    Below(Branch),
}

/// So many children are searched one by one.
const FEW: usize = 8;

impl Branch {
    fn position(&self, name: &str) -> Option<usize> {
        match self.children.len() > FEW {
            true => self.positions.get(name).copied(),
            false => self.children.iter().position(|(known, _)| known == name),
        }
    }

    fn push(&mut self, name: &str, child: Child) -> usize {
        let at = self.children.len();
        self.children.push((name.to_owned(), child));
        self.positions.insert(name.to_owned(), at);
        at
    }
}

impl Shape {
    /// Parses the argument of `$project`.
    pub(crate) fn project(
        argument: &RawDocument,
        variables: &Variables,
    ) -> Result<Shape, DocumentError> {
        parse::project(argument, variables)
    }

    /// Parses the argument of `$addFields`.
    pub(crate) fn add_fields(
        argument: &RawDocument,
        variables: &Variables,
    ) -> Result<Shape, DocumentError> {
        parse::add_fields(argument, variables)
    }

    /// The projection that leaves out fields, as `$unset` does.
    pub(crate) fn unset(paths: &[&str]) -> Result<Shape, DocumentError> {
        parse::unset(paths)
    }

    /// Whether it computes something, so that a result can be larger than its document.
    pub(crate) fn computes(&self) -> bool {
        self.computes
    }

    pub(crate) fn apply(
        &self,
        document: &RawDocument,
        env: &Env<'_>,
    ) -> Result<RawDocumentBuf, DocumentError> {
        apply::apply(self, document, env)
    }
}
