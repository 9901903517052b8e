//! Whether a document is well formed and not too deep.

use bson::raw::{RawBsonRef, RawDocument};
use remora_layout::limits::MAX_DOCUMENT_DEPTH;
use thiserror::Error;

/// Why a document is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Invalid {
    /// An element does not follow the BSON specification.
    #[error("the document is not valid BSON")]
    Malformed,
    /// It has more than [`MAX_DOCUMENT_DEPTH`] levels.
    #[error("the document has more than {MAX_DOCUMENT_DEPTH} levels")]
    TooDeep,
}

/// Checks all elements of a document on all levels.
///
/// # Errors
///
/// The first element that is malformed, or too deep.
///
/// ```
/// use bson::rawdoc;
/// assert_eq!(remora_document::validate(&rawdoc! { "a": [1, { "b": 2 }] }), Ok(()));
/// ```
pub fn validate(document: &RawDocument) -> Result<(), Invalid> {
    document_at(document, 1)
}

/// The same for a value that lies `depth` levels deep.
pub(crate) fn value_at(value: RawBsonRef<'_>, depth: usize) -> Result<(), Invalid> {
    match value {
        RawBsonRef::Document(inner) => document_at(inner, depth + 1),
        RawBsonRef::Array(inner) => {
            deeper(depth + 1)?;
            for value in inner {
                value_at(value.map_err(|_| Invalid::Malformed)?, depth + 1)?;
            }
            Ok(())
        }
        RawBsonRef::JavaScriptCodeWithScope(code) => document_at(code.scope, depth + 1),
        _ => Ok(()),
    }
}

fn document_at(document: &RawDocument, depth: usize) -> Result<(), Invalid> {
    deeper(depth)?;
    for element in document.iter_elements() {
        let value = element.and_then(|element| element.value()).map_err(|_| Invalid::Malformed)?;
        value_at(value, depth)?;
    }
    Ok(())
}

/// Checks the number of a level.
pub(crate) fn deeper(depth: usize) -> Result<(), Invalid> {
    if depth > MAX_DOCUMENT_DEPTH { Err(Invalid::TooDeep) } else { Ok(()) }
}
