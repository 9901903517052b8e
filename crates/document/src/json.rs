//! Documents as text: MongoDB's Extended JSON, version 2.

use crate::error::{DocumentError, FAILED_TO_PARSE};
use bson::{Bson, Document, RawDocument, RawDocumentBuf};
use remora_layout::limits::MAX_DOCUMENT_BYTES;
use serde_json::Value;

/// The document that a text of Extended JSON is, canonical or relaxed.
///
/// ```
/// use remora_document::{from_json, to_json};
///
/// let document = from_json(r#"{"_id": {"$oid": "0123456789abcdef01234567"}, "size": 3}"#)?;
/// assert_eq!(document.get_i32("size").ok(), Some(3));
/// assert_eq!(to_json(&document)?, r#"{"_id":{"$oid":"0123456789abcdef01234567"},"size":3}"#);
/// # Ok::<(), remora_document::DocumentError>(())
/// ```
///
/// # Errors
/// It is no JSON, no object, or a longer document than may be.
pub fn from_json(text: &str) -> Result<RawDocumentBuf, DocumentError> {
    let fail = |text: String| DocumentError::new(FAILED_TO_PARSE, text);
    let value: Value = serde_json::from_str(text)
        .map_err(|error| fail(format!("the document is no JSON: {error}")))?;
    from_json_value(value)
}

/// The same of a value of JSON that was read.
///
/// # Errors
/// It is no object, or a longer document than may be.
pub fn from_json_value(value: Value) -> Result<RawDocumentBuf, DocumentError> {
    let fail = |text: String| DocumentError::new(FAILED_TO_PARSE, text);
    let value = Bson::try_from(value)
        .map_err(|error| fail(format!("the document is no Extended JSON: {error}")))?;
    let Bson::Document(document) = value else {
        return Err(fail("a document is a JSON object, {...}".to_owned()));
    };
    raw(&document)
}

fn raw(document: &Document) -> Result<RawDocumentBuf, DocumentError> {
    let raw = RawDocumentBuf::try_from(document).map_err(DocumentError::malformed)?;
    match raw.as_bytes().len() {
        bytes if bytes > MAX_DOCUMENT_BYTES => {
            let text = format!("a document of {bytes} bytes: it has {MAX_DOCUMENT_BYTES} at most");
            Err(DocumentError::new(FAILED_TO_PARSE, text))
        }
        _ => Ok(raw),
    }
}

/// The relaxed Extended JSON of a document, in one line.
///
/// # Errors
/// It is no valid BSON.
pub fn to_json(document: &RawDocument) -> Result<String, DocumentError> {
    let document = Document::try_from(document).map_err(DocumentError::malformed)?;
    Ok(Bson::Document(document).into_relaxed_extjson().to_string())
}

/// The canonical Extended JSON of a document, in one line: it says the type of each number, so that the same
/// document comes back.
///
/// # Errors
/// It is no valid BSON.
pub fn to_canonical_json(document: &RawDocument) -> Result<String, DocumentError> {
    let document = Document::try_from(document).map_err(DocumentError::malformed)?;
    Ok(Bson::Document(document).into_canonical_extjson().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn canonical_text_gives_the_same_document_back() {
        let document = rawdoc! {
            "i": 1, "l": 1i64, "d": 1.0, "s": "x", "n": null, "a": [1i64, { "b": true }],
            "t": bson::DateTime::from_millis(1), "o": bson::oid::ObjectId::from_bytes([7; 12]),
        };
        let text = to_canonical_json(&document).unwrap();
        assert_eq!(from_json(&text).unwrap(), document);
        assert!(to_json(&document).unwrap().starts_with(r#"{"i":1,"l":1,"d":1.0,"#));
    }

    #[test]
    fn what_is_no_document_says_so() {
        for (text, why) in [("{", "no JSON"), ("[1]", "JSON object"), (r#"{"$oid": "z"}"#, "")] {
            let error = from_json(text).unwrap_err();
            assert!(error.code() == 9 && error.message().contains(why), "{text}: {error}");
        }
    }
}
