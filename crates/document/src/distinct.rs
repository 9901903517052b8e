//! The values of a field that differ.

use crate::error::DocumentError;
use crate::key::{Direction, encode};
use crate::path::{Leaves, Path};
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument};
use remora_layout::limits::MAX_DOCUMENT_BYTES;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Collects the different values at a path: of arrays their elements. Equal are values that
/// [`crate::compare`] says are equal; the first of them stays.
///
/// ```
/// use bson::rawdoc;
/// use remora_document::Distinct;
///
/// let mut distinct = Distinct::new("tags")?;
/// distinct.push(&rawdoc! { "tags": ["red", "blue"] })?;
/// distinct.push(&rawdoc! { "tags": "red" })?;
/// assert_eq!(distinct.values().into_iter().count(), 2);
/// # Ok::<(), remora_document::DocumentError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Distinct {
    path: Path,
    seen: HashSet<Box<[u8]>>,
    values: RawArrayBuf,
    bytes: usize,
}

impl Distinct {
    /// Collects at a path.
    ///
    /// # Errors
    /// The path is too long.
    pub fn new(path: &str) -> Result<Distinct, DocumentError> {
        let path =
            Path::parse(path).map_err(|error| DocumentError::bad_value(error.to_string()))?;
        Ok(Distinct { path, seen: HashSet::new(), values: RawArrayBuf::new(), bytes: 0 })
    }

    /// Adds the values of a document.
    ///
    /// # Errors
    /// The values do not fit into one document: code 17217.
    pub fn push(&mut self, document: &RawDocument) -> Result<(), DocumentError> {
        let (seen, values, bytes) = (&mut self.seen, &mut self.values, &mut self.bytes);
        let mut add = |value: RawBsonRef<'_>| -> Result<(), DocumentError> {
            let mut key = Vec::new();
            encode(value, Direction::Ascending, &mut key).map_err(DocumentError::malformed)?;
            if seen.insert(key.into()) {
                *bytes += crate::value::byte_length(value) + 8;
                if *bytes > MAX_DOCUMENT_BYTES {
                    return Err(DocumentError::new(17217, "distinct too big, 16mb cap"));
                }
                values.push(value);
            }
            Ok(())
        };
        let found = self.path.visit(document, Leaves::Whole, &mut |found| {
            let made = match found.value() {
                None => Ok(()),
                Some(RawBsonRef::Array(array)) => {
                    crate::raw::elements(array).try_for_each(&mut add)
                }
                Some(value) => add(value),
            };
            made.map_or_else(ControlFlow::Break, ControlFlow::Continue)
        });
        match found {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    /// The values so far, in the order of their first documents.
    #[must_use]
    pub fn values(&self) -> &RawArrayBuf {
        &self.values
    }
}
