//! Reading raw documents without errors: each level ends at its first malformed element. Writing them with
//! names that may be wrong.

use crate::error::DocumentError;
use bson::raw::{CStr, RawArray, RawBsonRef, RawDbPointerRef, RawDocument, RawDocumentBuf, cstr};

/// The fields of a document.
pub(crate) fn fields(document: &RawDocument) -> impl Iterator<Item = (&str, RawBsonRef<'_>)> {
    document.iter_elements().map_while(|element| {
        let element = element.ok()?;
        Some((element.key().as_str(), element.value().ok()?))
    })
}

/// The elements of an array. The names that BSON stores with them have no meaning.
pub(crate) fn elements(array: &RawArray) -> impl Iterator<Item = RawBsonRef<'_>> {
    array.into_iter().map_while(Result::ok)
}

/// The array as a document with the names that BSON stores.
pub(crate) fn as_document(array: &RawArray) -> Option<&RawDocument> {
    RawDocument::from_bytes(array.as_bytes()).ok()
}

/// The namespace and the id of a DBPointer, without the length in front.
///
/// The crate `bson` shows its parts only as bytes, so this allocates. The type is deprecated.
pub(crate) fn db_pointer_bytes(pointer: RawDbPointerRef<'_>) -> Vec<u8> {
    /// The document's length, the type, an empty name, and the length of the namespace.
    const BEFORE: usize = 4 + 1 + 1 + 4;
    let mut document = RawDocumentBuf::new();
    document.append(cstr!(""), RawBsonRef::DbPointer(pointer));
    let bytes = document.as_bytes();
    bytes.get(BEFORE..bytes.len() - 1).unwrap_or_default().to_vec()
}

/// Appends a field.
///
/// # Errors
/// The name has a zero byte.
pub(crate) fn append(
    document: &mut RawDocumentBuf,
    name: &str,
    value: RawBsonRef<'_>,
) -> Result<(), DocumentError> {
    let name = <&CStr>::try_from(name)
        .map_err(|_| DocumentError::bad_value("a name of a field cannot contain a zero byte"))?;
    document.append(name, value);
    Ok(())
}
