//! Whether an update has made a difference.

use bson::{Bson, Document};

/// Whether two values are the same in type and bytes, with fields in the same order.
pub(super) fn is_identical(one: &Bson, other: &Bson) -> bool {
    match (one, other) {
        (Bson::Document(one), Bson::Document(other)) => is_identical_document(one, other),
        (Bson::Array(one), Bson::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| is_identical(a, b))
        }
        (Bson::Double(one), Bson::Double(other)) => one.to_bits() == other.to_bits(),
        // Its scope may hold a NaN, which is not equal to itself.
        (Bson::JavaScriptCodeWithScope(one), Bson::JavaScriptCodeWithScope(other)) => {
            one.code == other.code && is_identical_document(&one.scope, &other.scope)
        }
        _ => one == other,
    }
}

pub(super) fn is_identical_document(one: &Document, other: &Document) -> bool {
    let is_same =
        |((a, x), (b, y)): ((&String, &Bson), (&String, &Bson))| a == b && is_identical(x, y);
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}
