//! Setting one field of a raw document.

use crate::error::DocumentError;
use crate::raw::{append, fields};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

/// A copy of a document with another value at a path, or without one. What is no document on the way makes room
/// for one. The number of names bounds the recursion.
pub(crate) fn set_path(
    document: &RawDocument,
    path: &[String],
    value: Option<RawBsonRef<'_>>,
) -> Result<RawDocumentBuf, DocumentError> {
    let [name, rest @ ..] = path else { return Ok(document.to_owned()) };
    let (mut made, mut is_done) = (RawDocumentBuf::new(), false);
    for (known, old) in fields(document) {
        if known != name || is_done {
            append(&mut made, known, old)?;
            continue;
        }
        is_done = true;
        set(&mut made, name, rest, Some(old), value)?;
    }
    if !is_done && value.is_some() {
        set(&mut made, name, rest, None, value)?;
    }
    Ok(made)
}

fn set(
    made: &mut RawDocumentBuf,
    name: &str,
    rest: &[String],
    old: Option<RawBsonRef<'_>>,
    value: Option<RawBsonRef<'_>>,
) -> Result<(), DocumentError> {
    match (rest.is_empty(), old, value) {
        (true, _, Some(value)) => append(made, name, value),
        (true, _, None) => Ok(()),
        (false, Some(RawBsonRef::Document(old)), _) => {
            let inner = set_path(old, rest, value)?;
            append(made, name, RawBsonRef::Document(&inner))
        }
        (false, Some(old), None) => append(made, name, old),
        (false, None, None) => Ok(()),
        (false, _, Some(_)) => {
            let inner = set_path(&RawDocumentBuf::new(), rest, value)?;
            append(made, name, RawBsonRef::Document(&inner))
        }
    }
}

/// The value at a path through documents only.
pub(crate) fn get_path<'d>(document: &'d RawDocument, path: &[String]) -> Option<RawBsonRef<'d>> {
    let [name, rest @ ..] = path else { return None };
    let (_, value) = fields(document).find(|(known, _)| known == name)?;
    match (rest.is_empty(), value) {
        (true, value) => Some(value),
        (false, RawBsonRef::Document(inner)) => get_path(inner, rest),
        (false, _) => None,
    }
}
