//! What the model of documents refuses: MongoDB's codes and texts.

use bson::{Binary, Bson, Document, doc};
use remora_document::DocumentError;
use remora_protocol::message::Status;
use std::fmt::Write as _;

/// Codes of MongoDB's errors.
pub(super) mod code {
    pub const BAD_VALUE: i32 = 2;
    pub const FAILED_TO_PARSE: i32 = 9;
    pub const TYPE_MISMATCH: i32 = 14;
    pub const INVALID_BSON: i32 = 22;
    pub const INVALID_ID_FIELD: i32 = 53;
    pub const CANNOT_CREATE_INDEX: i32 = 67;
    pub const INVALID_OPTIONS: i32 = 72;
    pub const INDEX_OPTIONS_CONFLICT: i32 = 85;
    pub const INDEX_KEY_SPECS_CONFLICT: i32 = 86;
    pub const DOCUMENT_VALIDATION_FAILURE: i32 = 121;
    pub const EXCEEDED_MEMORY_LIMIT: i32 = 146;
    pub const QUERY_PLAN_KILLED: i32 = 175;
    pub const INVALID_INDEX_SPECIFICATION_OPTION: i32 = 197;
    pub const NO_QUERY_EXECUTION_PLANS: i32 = 291;
    pub const BSON_OBJECT_TOO_LARGE: i32 = 10334;
    pub const DUPLICATE_KEY: i32 = 11000;
    pub const HASHED_IS_NOT_UNIQUE: i32 = 16764;
    pub const KEY_TOO_LONG: i32 = 17280;
    pub const TWO_HASHED_FIELDS: i32 = 31303;
}

/// One failure, as MongoDB's drivers know it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    pub code: i32,
    pub text: String,
    /// Further fields of the reply, such as `keyPattern`.
    pub fields: Option<Box<Document>>,
}

/// Why a request is not carried out.
#[derive(Debug, PartialEq)]
pub(super) enum Refusal {
    /// As any type refuses it.
    Status(Status),
    /// Memory is full; so many documents are there already, and count no more if it is tried again.
    Full(i64),
    /// As the model refuses it.
    Failure(Box<Failure>),
}

impl Failure {
    pub fn new(code: i32, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), fields: None }
    }

    /// A second document has the key of a unique index.
    pub fn duplicate(
        collection: &[u8],
        index: &str,
        pattern: &Document,
        values: Vec<Bson>,
    ) -> Self {
        let values: Document = pattern.keys().cloned().zip(values).collect();
        let text = format!(
            "E11000 duplicate key error collection: {} index: {index} dup key: {}",
            String::from_utf8_lossy(collection),
            text_of_document(&values)
        );
        let fields = Some(Box::new(doc! { "keyPattern": pattern.clone(), "keyValue": values }));
        Self { code: code::DUPLICATE_KEY, text, fields }
    }

    /// As a document of a reply.
    pub fn to_document(&self) -> Document {
        let mut document = doc! { "code": self.code, "errmsg": self.text.as_str() };
        document.extend(self.fields.as_deref().cloned().unwrap_or_default());
        document
    }
}

impl From<DocumentError> for Failure {
    fn from(error: DocumentError) -> Self {
        Self::new(error.code(), error.message())
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Failure(Box::new(failure))
    }
}

impl From<DocumentError> for Refusal {
    fn from(error: DocumentError) -> Self {
        Failure::from(error).into()
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// A document as MongoDB's shell writes it.
pub(super) fn text_of_document(document: &Document) -> String {
    let mut text = String::new();
    push_document(document, &mut text);
    text
}

/// The depth of a document bounds the recursion.
fn push_document(document: &Document, text: &mut String) {
    if document.is_empty() {
        text.push_str("{}");
        return;
    }
    for (at, (name, value)) in document.iter().enumerate() {
        text.push_str(if at == 0 { "{ " } else { ", " });
        text.push_str(name);
        text.push_str(": ");
        push_value(value, text);
    }
    text.push_str(" }");
}

fn push_value(value: &Bson, text: &mut String) {
    // Writing to a string does not fail.
    let _ = match value {
        Bson::Document(document) => {
            push_document(document, text);
            Ok(())
        }
        Bson::Array(array) => {
            for (at, value) in array.iter().enumerate() {
                text.push_str(if at == 0 { "[ " } else { ", " });
                push_value(value, text);
            }
            text.push_str(if array.is_empty() { "[]" } else { " ]" });
            Ok(())
        }
        Bson::String(of) | Bson::Symbol(of) => write!(text, "{of:?}"),
        Bson::ObjectId(of) => write!(text, "ObjectId('{of}')"),
        Bson::Double(of) if of.is_finite() && of.fract() == 0.0 && of.abs() < 1e15 => {
            write!(text, "{of:.1}")
        }
        Bson::Double(of) => write!(text, "{of}"),
        Bson::DateTime(of) => write!(text, "new Date({})", of.timestamp_millis()),
        Bson::Timestamp(of) => write!(text, "Timestamp({}, {})", of.time, of.increment),
        Bson::Decimal128(of) => write!(text, "NumberDecimal(\"{of}\")"),
        Bson::RegularExpression(of) => {
            write!(text, "/{}/{}", of.pattern.as_str(), of.options.as_str())
        }
        Bson::Binary(of) => push_binary(of, text),
        Bson::Null => write!(text, "null"),
        Bson::Undefined => write!(text, "undefined"),
        Bson::MinKey => write!(text, "MinKey"),
        Bson::MaxKey => write!(text, "MaxKey"),
        other => write!(text, "{other}"),
    };
}

fn push_binary(binary: &Binary, text: &mut String) -> std::fmt::Result {
    write!(text, "BinData({}, ", u8::from(binary.subtype))?;
    binary.bytes.iter().try_for_each(|byte| write!(text, "{byte:02X}"))?;
    text.push(')');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_is_told_as_mongodb_tells_it() {
        let pattern = doc! { "a": 1, "b": -1 };
        let values = vec![Bson::Int32(1), Bson::String("x".to_owned())];
        let failure = Failure::duplicate(b"db.coll", "a_1_b_-1", &pattern, values);
        assert_eq!(
            failure.text,
            "E11000 duplicate key error collection: db.coll index: a_1_b_-1 dup key: { a: 1, b: \"x\" }"
        );
        let document = failure.to_document();
        assert_eq!(document.get_document("keyPattern").ok(), Some(&pattern));
        assert_eq!(document.get_document("keyValue").ok(), Some(&doc! { "a": 1, "b": "x" }));
    }
}
