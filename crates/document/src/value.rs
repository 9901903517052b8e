//! Values of expressions: a part of a document, one that an expression made, or none.
//!
//! Invariant: a value that an expression passes on unchanged is never copied before a document is made of it.

use crate::error::DocumentError;
use crate::filter::name_of_type;
use crate::number::Number;
use bson::RawBson;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

/// What an expression gives.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    /// A field that is not there.
    Missing,
    /// A part of a document, or of the expression.
    Raw(RawBsonRef<'a>),
    /// What an operator has made.
    Owned(RawBson),
}

impl<'a> Value<'a> {
    pub(crate) const NULL: Value<'static> = Value::Raw(RawBsonRef::Null);

    pub(crate) fn of(value: Option<RawBsonRef<'a>>) -> Value<'a> {
        value.map_or(Value::Missing, Value::Raw)
    }

    pub(crate) fn of_owned(value: &'a RawBson) -> Value<'a> {
        Value::Raw(value.as_raw_bson_ref())
    }

    pub(crate) fn string(text: impl Into<String>) -> Value<'a> {
        Value::Owned(RawBson::String(text.into()))
    }

    pub(crate) fn bool(value: bool) -> Value<'a> {
        Value::Raw(RawBsonRef::Boolean(value))
    }

    pub(crate) fn int(value: i32) -> Value<'a> {
        Value::Raw(RawBsonRef::Int32(value))
    }

    pub(crate) fn long(value: i64) -> Value<'a> {
        Value::Raw(RawBsonRef::Int64(value))
    }

    pub(crate) fn double(value: f64) -> Value<'a> {
        Value::Raw(RawBsonRef::Double(value))
    }

    pub(crate) fn array(values: RawArrayBuf) -> Value<'a> {
        Value::Owned(RawBson::Array(values))
    }

    pub(crate) fn document(document: RawDocumentBuf) -> Value<'a> {
        Value::Owned(RawBson::Document(document))
    }

    /// A count: 32 bits if they hold it.
    pub(crate) fn count(value: usize) -> Value<'a> {
        match i32::try_from(value) {
            Ok(value) => Value::int(value),
            Err(_) => Value::long(value as i64),
        }
    }

    /// The value, if it is there.
    pub(crate) fn get(&self) -> Option<RawBsonRef<'_>> {
        match self {
            Value::Missing => None,
            Value::Raw(value) => Some(*value),
            Value::Owned(value) => Some(value.as_raw_bson_ref()),
        }
    }

    /// The value; null stands for one that is missing.
    pub(crate) fn or_null(&self) -> RawBsonRef<'_> {
        self.get().unwrap_or(RawBsonRef::Null)
    }

    /// The value; undefined, which is below null, stands for one that is missing: so expressions compare.
    pub(crate) fn or_undefined(&self) -> RawBsonRef<'_> {
        self.get().unwrap_or(RawBsonRef::Undefined)
    }

    pub(crate) fn into_raw(self) -> Option<RawBson> {
        match self {
            Value::Missing => None,
            Value::Raw(value) => Some(value.into()),
            Value::Owned(value) => Some(value),
        }
    }

    /// The value without a borrow of what it is a part of.
    pub(crate) fn detach<'b>(self) -> Value<'b> {
        self.into_raw().map_or(Value::Missing, Value::Owned)
    }

    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Value::Missing)
    }

    /// Whether it is missing, null or undefined.
    pub(crate) fn is_nullish(&self) -> bool {
        matches!(self.get(), None | Some(RawBsonRef::Null | RawBsonRef::Undefined))
    }

    /// Whether it counts as true.
    pub(crate) fn is_true(&self) -> bool {
        self.get().is_some_and(is_true)
    }

    pub(crate) fn as_array(&self) -> Option<&RawArray> {
        self.get().and_then(RawBsonRef::as_array)
    }

    pub(crate) fn as_document(&self) -> Option<&RawDocument> {
        self.get().and_then(RawBsonRef::as_document)
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self.get() {
            Some(RawBsonRef::String(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn number(&self) -> Option<Number> {
        self.get().and_then(Number::of)
    }

    /// The whole number of 32 bits that it equals.
    pub(crate) fn as_int(&self) -> Option<i32> {
        self.number().and_then(Number::whole).and_then(|value| i32::try_from(value).ok())
    }

    /// MongoDB's name of its type.
    pub(crate) fn type_name(&self) -> &'static str {
        self.get().map_or("missing", |value| name_of_type(value.element_type()))
    }

    /// Bytes that it takes in a document.
    pub(crate) fn bytes(&self) -> usize {
        self.get().map_or(0, byte_length)
    }
}

/// Whether a value counts as true.
pub(crate) fn is_true(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(value) => value,
        RawBsonRef::Null | RawBsonRef::Undefined => false,
        _ => !matches!(Number::of(value), Some(Number::Zero)),
    }
}

/// Bytes of a value in a document, about.
pub(crate) fn byte_length(value: RawBsonRef<'_>) -> usize {
    match value {
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) | RawBsonRef::JavaScriptCode(text) => {
            text.len() + 5
        }
        RawBsonRef::Document(inner) => inner.as_bytes().len(),
        RawBsonRef::Array(inner) => inner.as_bytes().len(),
        RawBsonRef::Binary(binary) => binary.bytes.len() + 5,
        RawBsonRef::RegularExpression(regex) => {
            regex.pattern.as_str().len() + regex.options.as_str().len() + 2
        }
        RawBsonRef::JavaScriptCodeWithScope(code) => {
            code.code.len() + code.scope.as_bytes().len() + 9
        }
        RawBsonRef::Null | RawBsonRef::Undefined => 0,
        RawBsonRef::Boolean(_) => 1,
        RawBsonRef::Int32(_) => 4,
        RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::DateTime(_) => 8,
        _ => 16,
    }
}

/// The double next to a number.
pub(crate) fn to_double(value: RawBsonRef<'_>) -> Option<f64> {
    match value {
        RawBsonRef::Int32(value) => Some(f64::from(value)),
        RawBsonRef::Int64(value) => Some(value as f64),
        RawBsonRef::Double(value) => Some(value),
        RawBsonRef::Decimal128(value) => value.to_string().parse().ok(),
        _ => None,
    }
}

/// A value for the text of an error, at most so long that the text stays readable.
pub(crate) fn shown(value: RawBsonRef<'_>) -> String {
    const LONGEST: usize = 200;
    if byte_length(value) > LONGEST {
        return format!("a {} of many bytes", name_of_type(value.element_type()));
    }
    match value {
        RawBsonRef::String(text) => format!("{text:?}"),
        RawBsonRef::ObjectId(id) => format!("ObjectId('{id}')"),
        value => match bson::Bson::try_from(value) {
            Ok(value) => value.to_string(),
            Err(_) => name_of_type(value.element_type()).to_owned(),
        },
    }
}

/// Checks that a value is not longer than a document.
pub(crate) fn fits(bytes: usize) -> Result<(), DocumentError> {
    let limit = remora_layout::limits::MAX_EXPRESSION_BYTES;
    if bytes <= limit {
        return Ok(());
    }
    let text = format!("BSONObj size: {bytes} is invalid. Size must be between 0 and {limit}");
    Err(DocumentError::new(crate::error::OBJECT_TOO_LARGE, text))
}
