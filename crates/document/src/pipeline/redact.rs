//! `$redact`: documents inside documents stay, go, or are looked into.

use crate::error::DocumentError;
use crate::expression::Expression;
use crate::raw::{append, elements, fields};
use crate::value::Value;
use crate::variables::{Env, Variables};
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use remora_layout::limits::MAX_DOCUMENT_DEPTH;

/// The variables that the expression sees; their values are their names.
const NAMES: [&str; 4] = ["CURRENT", "DESCEND", "PRUNE", "KEEP"];

/// The stage.
#[derive(Debug, Clone)]
pub(super) struct Redact(Expression);

impl Redact {
    pub(super) fn parse(
        argument: RawBsonRef<'_>,
        variables: &Variables,
    ) -> Result<Redact, DocumentError> {
        Expression::parse_with(argument, variables, &NAMES).map(Redact)
    }

    pub(super) fn apply(
        &self,
        document: &RawDocument,
        env: &Env<'_>,
    ) -> Result<Option<RawDocumentBuf>, DocumentError> {
        self.level(document, document, env, 1)
    }

    fn level(
        &self,
        root: &RawDocument,
        document: &RawDocument,
        env: &Env<'_>,
        depth: usize,
    ) -> Result<Option<RawDocumentBuf>, DocumentError> {
        if depth > MAX_DOCUMENT_DEPTH {
            return Ok(None);
        }
        let [_, descend, prune, keep] = NAMES;
        let constant = |name: &'static str| Value::Raw(RawBsonRef::String(name));
        let values = [
            Value::Raw(RawBsonRef::Document(document)),
            constant(descend),
            constant(prune),
            constant(keep),
        ];
        match self.0.evaluate_with(root, env, &values)?.as_str() {
            Some(made) if made == keep => Ok(Some(document.to_owned())),
            Some(made) if made == prune => Ok(None),
            Some(made) if made == descend => {
                let mut made = RawDocumentBuf::new();
                for (name, value) in fields(document) {
                    self.value(root, value, env, depth, &mut |value| {
                        append(&mut made, name, value)
                    })?;
                }
                Ok(Some(made))
            }
            _ => Err(DocumentError::new(
                17053,
                "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and $$PRUNE",
            )),
        }
    }

    fn value(
        &self,
        root: &RawDocument,
        value: RawBsonRef<'_>,
        env: &Env<'_>,
        depth: usize,
        see: &mut dyn FnMut(RawBsonRef<'_>) -> Result<(), DocumentError>,
    ) -> Result<(), DocumentError> {
        match value {
            RawBsonRef::Document(inner) => match self.level(root, inner, env, depth + 1)? {
                Some(made) => see(RawBsonRef::Document(&made)),
                None => Ok(()),
            },
            RawBsonRef::Array(inner) => {
                see(RawBsonRef::Array(&self.array(root, inner, env, depth + 1)?))
            }
            _ => see(value),
        }
    }

    fn array(
        &self,
        root: &RawDocument,
        array: &RawArray,
        env: &Env<'_>,
        depth: usize,
    ) -> Result<RawArrayBuf, DocumentError> {
        let mut made = RawArrayBuf::new();
        if depth <= MAX_DOCUMENT_DEPTH {
            for value in elements(array) {
                self.value(root, value, env, depth, &mut |value| {
                    made.push(value);
                    Ok(())
                })?;
            }
        }
        Ok(made)
    }
}
