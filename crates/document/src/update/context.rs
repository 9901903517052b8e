//! What an application of an update looks at beside the document.

use crate::error::DocumentError;
use crate::filter::Filter;
use bson::{Bson, Document, RawDocumentBuf};
use std::collections::BTreeMap;

/// What differs from one application of an update to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UpdateContext {
    /// The time, Unix ms.
    pub now_ms: i64,
    /// The position of the element that `$` names: the one that met the filter.
    pub found: Option<usize>,
    /// The document is one that an upsert makes.
    pub is_insert: bool,
}

/// The context, and the filters of array elements by their identifiers.
pub(super) type Beside<'a> = (&'a UpdateContext, &'a BTreeMap<String, Filter>);

/// Whether a value meets a filter about a field of this name.
pub(super) fn matches_value(
    filter: &Filter,
    name: &str,
    value: &Bson,
) -> Result<bool, DocumentError> {
    let mut document = Document::new();
    document.insert(name, value.clone());
    let raw = RawDocumentBuf::try_from(&document).map_err(DocumentError::malformed)?;
    Ok(filter.matches(&raw))
}
