//! The `_id` of a document as a key: the name of the document within its collection.

use crate::error::{DOLLAR_PREFIXED_FIELD_NAME, INVALID_BSON, INVALID_ID_FIELD, KEY_TOO_LONG};
use crate::{Direction, DocumentError, encode};
use bson::raw::RawBsonRef;
use remora_layout::limits::MAX_DOCUMENT_ID_BYTES;

fn is_operator(name: &&str) -> bool {
    name.starts_with('$')
}

/// The encoding of an `_id`. The server names a document's record by it, and a client that reads memory
/// finds the record by it.
///
/// # Errors
/// MongoDB takes no such `_id`, or it is longer than names of records and entries of indexes have room for.
///
/// ```
/// use remora_document::encode_id;
///
/// assert_eq!(encode_id(7_i32.into())?, encode_id(7.0.into())?);
/// assert_eq!(encode_id("a".repeat(510).as_str().into()).unwrap_err().code(), 17280);
/// # Ok::<(), remora_document::DocumentError>(())
/// ```
pub fn encode_id(value: RawBsonRef<'_>) -> Result<Vec<u8>, DocumentError> {
    let of_type = match value {
        RawBsonRef::Array(_) => "array",
        RawBsonRef::RegularExpression(_) => "regex",
        RawBsonRef::Undefined => "undefined",
        _ => "",
    };
    if !of_type.is_empty() {
        let text = format!("The '_id' value cannot be of type {of_type}");
        return Err(DocumentError::new(INVALID_ID_FIELD, text));
    }
    if let RawBsonRef::Document(of) = value
        && let Some(name) = of.iter().flatten().map(|(name, _)| name.as_str()).find(is_operator)
    {
        let text = format!(
            "_id fields may not contain '$'-prefixed fields: {name} is not valid for storage."
        );
        return Err(DocumentError::new(DOLLAR_PREFIXED_FIELD_NAME, text));
    }
    let mut id = Vec::new();
    encode(value, Direction::Ascending, &mut id)
        .map_err(|error| DocumentError::new(INVALID_BSON, error.to_string()))?;
    if id.len() > MAX_DOCUMENT_ID_BYTES {
        let text = format!(
            "KeyTooLong: the '_id' takes {} bytes as a key, and the limit is {MAX_DOCUMENT_ID_BYTES}",
            id.len()
        );
        return Err(DocumentError::new(KEY_TOO_LONG, text));
    }
    Ok(id)
}
