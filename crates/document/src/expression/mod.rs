//! Expressions of MongoDB's aggregation: parsed once, evaluated on raw documents.
//!
//! ```text
//!   {$add: ["$price", {$multiply: ["$$rate", 2]}]}
//!
//!   Call $add --+-- Variable of the document, path price
//!               '-- Call $multiply --+-- Variable of the command
//!                                    '-- Literal 2
//! ```
//! Invariants: an evaluation counts its steps and the bytes that it makes (see [`Env`]), so no expression
//! runs without end; no value is larger than a document; the levels of an expression are bounded when it is
//! parsed. Values that pass through are not copied.

mod arguments;
mod arithmetic;
mod arrays;
mod calendar;
mod compare;
mod convert;
mod counted;
mod dates;
mod evaluate;
mod field_path;
mod node;
mod objects;
mod operators;
mod parse;
mod regexes;
mod sets;
mod strings;
mod time_format;

pub(crate) use arithmetic::{Deviation, Sum};
pub(crate) use arrays::{count_of, slice_range};
pub(crate) use evaluate::{Scope, path_value};
pub(crate) use objects::Fields;
pub(crate) use parse::parse_path;

use crate::error::DocumentError;
use crate::value::Value;
use crate::variables::{Env, Variables};
use bson::raw::{RawBsonRef, RawDocument};
use node::Node;
use std::sync::Arc;

/// An expression that was parsed. A clone shares it.
#[derive(Debug, Clone)]
pub(crate) struct Expression(Arc<Node>);

impl Expression {
    /// Parses an expression, in which the variables may occur.
    ///
    /// # Errors
    /// As MongoDB: an unknown operator or variable, a wrong number of arguments, a wrong path.
    pub(crate) fn parse(
        value: RawBsonRef<'_>,
        variables: &Variables,
    ) -> Result<Expression, DocumentError> {
        parse::expression(value, variables, &[]).map(|node| Expression(Arc::new(node)))
    }

    /// The same with more variables, which the caller hands to [`Expression::evaluate_with`].
    pub(crate) fn parse_with(
        value: RawBsonRef<'_>,
        variables: &Variables,
        more: &[&str],
    ) -> Result<Expression, DocumentError> {
        parse::expression(value, variables, more).map(|node| Expression(Arc::new(node)))
    }

    /// The value for a document.
    ///
    /// # Errors
    /// As MongoDB: an operator gets a value of a wrong type; too many steps or bytes.
    pub(crate) fn evaluate<'a>(
        &'a self,
        root: &'a RawDocument,
        env: &'a Env<'a>,
    ) -> Result<Value<'a>, DocumentError> {
        self.0.evaluate(Scope::new(root, env))
    }

    /// The value for a document and the variables of [`Expression::parse_with`].
    pub(crate) fn evaluate_with<'a>(
        &'a self,
        root: &'a RawDocument,
        env: &'a Env<'a>,
        more: &'a [Value<'a>],
    ) -> Result<Value<'a>, DocumentError> {
        let frame = evaluate::Frame::new(more, None);
        let value = self.0.evaluate(Scope::new(root, env).within(&frame))?;
        Ok(value.detach())
    }

    /// Whether it reads the document.
    pub(crate) fn reads_document(&self) -> bool {
        self.0.reads_document()
    }
}
