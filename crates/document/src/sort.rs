//! Sorting documents by some of their fields.

use crate::error::{BAD_VALUE, DocumentError, INVALID_BSON};
use crate::key::{Direction, encode};
use crate::order::compare;
use crate::path::{Leaves, Path};
use bson::raw::{RawBsonRef, RawDocument};
use remora_layout::limits::MAX_SORT_KEYS;
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// By what documents are sorted: paths, ascending or descending. Of an array counts its least element where
/// it is ascending, and its greatest one where it is descending. A field that is not there is null.
///
/// ```
/// use bson::rawdoc;
/// use remora_document::SortKeys;
/// use std::cmp::Ordering;
///
/// let keys = SortKeys::parse(&rawdoc! { "a": 1, "b": -1 })?;
/// let one = rawdoc! { "a": 1, "b": 2 };
/// assert_eq!(keys.compare(&one, &rawdoc! { "a": 1, "b": [0, 3] }), Ordering::Greater);
/// assert_eq!(keys.compare(&one, &rawdoc! { "b": 2 }), Ordering::Greater);
/// # Ok::<(), remora_document::DocumentError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SortKeys(Vec<(Path, bool)>);

impl SortKeys {
    /// Parses `{path: 1 or -1, ...}`.
    ///
    /// # Errors
    /// As MongoDB: another value, no path, too many of them, or one twice.
    pub fn parse(document: &RawDocument) -> Result<SortKeys, DocumentError> {
        let bad = |text: String| DocumentError::new(BAD_VALUE, text);
        let mut keys: Vec<(Path, bool)> = Vec::new();
        for field in document {
            let (name, value) = field.map_err(DocumentError::malformed)?;
            let name = name.as_str();
            let direction = match value {
                RawBsonRef::Int32(of) => f64::from(of),
                RawBsonRef::Int64(of) => of as f64,
                RawBsonRef::Double(of) => of,
                _ => {
                    return Err(bad(format!(
                        "Illegal key in $sort specification: {name}: {value:?}"
                    )));
                }
            };
            let is_descending = match direction {
                1.0 => false,
                -1.0 => true,
                _ => {
                    return Err(bad(
                        "$sort key ordering must be 1 (for ascending) or -1 (for descending)"
                            .to_owned(),
                    ));
                }
            };
            let is_field = !name.is_empty()
                && name.split('.').all(|part| !part.is_empty() && !part.starts_with('$'));
            if !is_field {
                return Err(bad(format!("'{name}' is no path of a field to sort by")));
            }
            if keys.len() == MAX_SORT_KEYS {
                return Err(bad(format!("too many compound keys: more than {MAX_SORT_KEYS}")));
            }
            if keys.iter().any(|(path, _)| path.as_str() == name) {
                return Err(bad(format!("'{name}' is there twice")));
            }
            let path = Path::parse(name).map_err(|error| bad(error.to_string()))?;
            keys.push((path, is_descending));
        }
        match keys.is_empty() {
            true => {
                Err(DocumentError::new(INVALID_BSON, "$sort stage must have at least one sort key"))
            }
            false => Ok(SortKeys(keys)),
        }
    }

    /// Appends the key of a document: bytes that compare as [`SortKeys::compare`] does.
    pub(crate) fn encode(
        &self,
        document: &RawDocument,
        out: &mut Vec<u8>,
    ) -> Result<(), DocumentError> {
        for (path, is_descending) in &self.0 {
            let direction =
                if *is_descending { Direction::Descending } else { Direction::Ascending };
            encode(extreme(path, *is_descending, document), direction, out)
                .map_err(DocumentError::malformed)?;
        }
        Ok(())
    }

    /// Compares two documents.
    #[must_use]
    pub fn compare(&self, one: &RawDocument, other: &RawDocument) -> Ordering {
        let mut orders = self.0.iter().map(|(path, is_descending)| {
            let order =
                compare(extreme(path, *is_descending, one), extreme(path, *is_descending, other));
            if *is_descending { order.reverse() } else { order }
        });
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

/// The value at a path by which a document is sorted.
fn extreme<'d>(path: &Path, is_descending: bool, document: &'d RawDocument) -> RawBsonRef<'d> {
    let mut extreme: Option<RawBsonRef<'d>> = None;
    let wanted = if is_descending { Ordering::Greater } else { Ordering::Less };
    let _ = path.visit(document, Leaves::Elements, &mut |found| {
        let value = found.value().unwrap_or(RawBsonRef::Null);
        if extreme.is_none_or(|of| compare(value, of) == wanted) {
            extreme = Some(value);
        }
        ControlFlow::<()>::Continue(())
    });
    extreme.unwrap_or(RawBsonRef::Null)
}
