//! Names of operators.

use super::expression::Comparison;
use crate::raw::fields;
use bson::raw::RawDocument;

/// Operators of MongoDB at the top of a filter that are errors here.
pub(super) const UNSUPPORTED_AT_TOP: &[&str] = &["$sampleRate", "$text", "$where"];
/// Operators at the top that are parsed by themselves.
const AT_TOP: &[&str] = &["$alwaysFalse", "$alwaysTrue", "$expr", "$jsonSchema"];
/// Operators of MongoDB on a field that are errors here.
pub(super) const UNSUPPORTED: &[&str] = &["$geoNear"];
/// Operators at the top that have no field.
const LOGICAL: &[&str] = &["$and", "$comment", "$nor", "$or"];
/// Fields of a reference to a document of another collection.
pub(super) const REFERENCE: &[&str] = &["$db", "$id", "$ref"];

/// Whether an operator stands where a field's name could: not under a field.
pub(super) fn has_no_field(name: &str) -> bool {
    [LOGICAL, UNSUPPORTED_AT_TOP, AT_TOP, REFERENCE].iter().any(|names| names.contains(&name))
}

/// Whether a field can have the operator.
pub(super) fn is_operator(name: &str) -> bool {
    const OTHERS: &[&str] = &[
        "$all",
        "$bitsAllClear",
        "$bitsAllSet",
        "$bitsAnyClear",
        "$bitsAnySet",
        "$elemMatch",
        "$exists",
        "$geoIntersects",
        "$geoWithin",
        "$in",
        "$maxDistance",
        "$minDistance",
        "$mod",
        "$ne",
        "$near",
        "$nearSphere",
        "$nin",
        "$not",
        "$options",
        "$regex",
        "$size",
        "$type",
        "$within",
    ];
    Comparison::of(name).is_some() || [OTHERS, UNSUPPORTED].iter().any(|all| all.contains(&name))
}

/// Whether a document has operators, and is no value to compare with. A reference is a value: it has
/// `$ref` and `$id`, or one of its fields if `is_part_enough`.
pub(super) fn is_expression(document: &RawDocument, is_part_enough: bool) -> bool {
    if !fields(document).next().is_some_and(|(name, _)| name.starts_with('$')) {
        return false;
    }
    let has = |wanted: &str| fields(document).any(|(name, _)| name == wanted);
    let is_reference = if is_part_enough {
        REFERENCE.iter().any(|name| has(name))
    } else {
        has("$ref") && has("$id")
    };
    !is_reference
}
