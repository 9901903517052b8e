//! The order of BSON values, as MongoDB compares and sorts them.

use crate::number::Number;
use crate::raw::{db_pointer_bytes, elements, fields};
use bson::Bson;
use bson::raw::{RawArray, RawBinaryRef, RawBson, RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use remora_layout::limits::MAX_DOCUMENT_DEPTH;
use std::cmp::Ordering;

/// Types that compare with each other by value, in the order of the classes.
///
/// The numbers are the first bytes of [`crate::encode`]. They leave room between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Below all other values.
    MinKey = 0x01,
    /// The deprecated type. A missing field is not undefined: it sorts as null.
    Undefined = 0x08,
    /// Null, and a field that is not there.
    Null = 0x10,
    /// int32, int64, double and Decimal128, by value. NaN is below all other numbers.
    Number = 0x18,
    /// Strings and symbols, by their bytes.
    String = 0x20,
    /// Documents, field by field: class, name, value.
    Document = 0x28,
    /// Arrays, element by element.
    Array = 0x30,
    /// Binary data: length, subtype, bytes.
    Binary = 0x38,
    /// Object ids, by their bytes.
    ObjectId = 0x40,
    /// False before true.
    Boolean = 0x48,
    /// Dates, by their signed milliseconds.
    DateTime = 0x50,
    /// Timestamps: seconds, then increment.
    Timestamp = 0x58,
    /// Regular expressions: pattern, then options.
    Regex = 0x60,
    /// The deprecated type: length, namespace, id.
    DbPointer = 0x68,
    /// JavaScript code.
    Code = 0x70,
    /// JavaScript code, then its scope.
    CodeWithScope = 0x78,
    /// Above all other values.
    MaxKey = 0xf0,
}

impl Class {
    /// The class of a value.
    #[must_use]
    pub fn of(value: RawBsonRef<'_>) -> Class {
        match value {
            RawBsonRef::MinKey => Class::MinKey,
            RawBsonRef::Undefined => Class::Undefined,
            RawBsonRef::Null => Class::Null,
            RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Double(_)
            | RawBsonRef::Decimal128(_) => Class::Number,
            RawBsonRef::String(_) | RawBsonRef::Symbol(_) => Class::String,
            RawBsonRef::Document(_) => Class::Document,
            RawBsonRef::Array(_) => Class::Array,
            RawBsonRef::Binary(_) => Class::Binary,
            RawBsonRef::ObjectId(_) => Class::ObjectId,
            RawBsonRef::Boolean(_) => Class::Boolean,
            RawBsonRef::DateTime(_) => Class::DateTime,
            RawBsonRef::Timestamp(_) => Class::Timestamp,
            RawBsonRef::RegularExpression(_) => Class::Regex,
            RawBsonRef::DbPointer(_) => Class::DbPointer,
            RawBsonRef::JavaScriptCode(_) => Class::Code,
            RawBsonRef::JavaScriptCodeWithScope(_) => Class::CodeWithScope,
            RawBsonRef::MaxKey => Class::MaxKey,
        }
    }
}

/// Compares two values: first their classes, then the values. It allocates only for the deprecated
/// DBPointer.
///
/// ```
/// use bson::raw::RawBsonRef;
/// use remora_document::compare;
/// use std::cmp::Ordering;
///
/// assert_eq!(compare(RawBsonRef::Int32(1), RawBsonRef::Double(1.0)), Ordering::Equal);
/// assert_eq!(compare(RawBsonRef::Int64(i64::MAX), RawBsonRef::Double(9.3e18)), Ordering::Less);
/// assert_eq!(compare(RawBsonRef::Null, RawBsonRef::String("")), Ordering::Less);
/// ```
#[must_use]
pub fn compare(left: RawBsonRef<'_>, right: RawBsonRef<'_>) -> Ordering {
    Class::of(left).cmp(&Class::of(right)).then_with(|| same_class(left, right, 0))
}

/// Compares two documents field by field: the class of the value, then the name, then the value. A
/// document is below those that continue it.
#[must_use]
pub fn compare_documents(left: &RawDocument, right: &RawDocument) -> Ordering {
    documents(left, right, 1)
}

/// The same of values that are not raw. One that cannot be written as BSON, as a name with a zero byte, is as
/// null.
pub(crate) fn compare_owned(left: &Bson, right: &Bson) -> Ordering {
    let raw = |value: &Bson| RawBson::try_from(value.clone()).unwrap_or(RawBson::Null);
    compare(raw(left).as_raw_bson_ref(), raw(right).as_raw_bson_ref())
}

/// Compares values of one class that lie `depth` levels deep.
fn same_class(left: RawBsonRef<'_>, right: RawBsonRef<'_>, depth: usize) -> Ordering {
    use RawBsonRef as V;
    if let (Some(left), Some(right)) = (Number::of(left), Number::of(right)) {
        return left.compare(right);
    }
    match (left, right) {
        (V::String(left) | V::Symbol(left), V::String(right) | V::Symbol(right))
        | (V::JavaScriptCode(left), V::JavaScriptCode(right)) => left.cmp(right),
        (V::Document(left), V::Document(right)) => documents(left, right, depth + 1),
        (V::Array(left), V::Array(right)) => arrays(left, right, depth + 1),
        (V::Binary(left), V::Binary(right)) => binary_key(&left).cmp(&binary_key(&right)),
        (V::ObjectId(left), V::ObjectId(right)) => left.bytes().cmp(&right.bytes()),
        (V::Boolean(left), V::Boolean(right)) => left.cmp(&right),
        (V::DateTime(left), V::DateTime(right)) => {
            left.timestamp_millis().cmp(&right.timestamp_millis())
        }
        (V::Timestamp(left), V::Timestamp(right)) => {
            (left.time, left.increment).cmp(&(right.time, right.increment))
        }
        (V::RegularExpression(left), V::RegularExpression(right)) => {
            let patterns = left.pattern.as_str().cmp(right.pattern.as_str());
            patterns.then_with(|| left.options.as_str().cmp(right.options.as_str()))
        }
        (V::DbPointer(left), V::DbPointer(right)) => {
            let (left, right) = (db_pointer_bytes(left), db_pointer_bytes(right));
            (left.len(), left).cmp(&(right.len(), right))
        }
        (V::JavaScriptCodeWithScope(left), V::JavaScriptCodeWithScope(right)) => {
            left.code.cmp(right.code).then_with(|| documents(left.scope, right.scope, depth + 1))
        }
        // The other classes have one value each.
        _ => Ordering::Equal,
    }
}

/// What binary data is compared by. The length of the old subtype counts the length inside it.
pub(crate) fn binary_key<'a>(binary: &RawBinaryRef<'a>) -> (usize, u8, &'a [u8]) {
    let inner = if binary.subtype == BinarySubtype::BinaryOld { 4 } else { 0 };
    (binary.bytes.len() + inner, binary.subtype.into(), binary.bytes)
}

fn documents(left: &RawDocument, right: &RawDocument, depth: usize) -> Ordering {
    let fields = |document| fields(document).map(|(name, value)| (Some(name), value));
    sequences(fields(left), fields(right), depth)
}

fn arrays(left: &RawArray, right: &RawArray, depth: usize) -> Ordering {
    let elements = |array| elements(array).map(|value| (None, value));
    sequences(elements(left), elements(right), depth)
}

fn sequences<'a>(
    left: impl Iterator<Item = (Option<&'a str>, RawBsonRef<'a>)>,
    mut right: impl Iterator<Item = (Option<&'a str>, RawBsonRef<'a>)>,
    depth: usize,
) -> Ordering {
    if depth > MAX_DOCUMENT_DEPTH {
        return Ordering::Equal;
    }
    for (left_name, left) in left {
        let Some((right_name, right)) = right.next() else { return Ordering::Greater };
        let order = Class::of(left)
            .cmp(&Class::of(right))
            .then_with(|| left_name.cmp(&right_name))
            .then_with(|| same_class(left, right, depth));
        if order != Ordering::Equal {
            return order;
        }
    }
    if right.next().is_some() { Ordering::Less } else { Ordering::Equal }
}
