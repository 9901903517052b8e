//! Arguments of `$in`, `$nin`, `$mod` and `$size`.

use super::expression::{InList, Predicate};
use super::names::is_expression;
use super::pattern::Pattern;
use crate::error::{DocumentError, FAILED_TO_PARSE};
use crate::number::Number;
use crate::order::compare;
use crate::raw::elements;
use bson::RawBson;
use bson::raw::RawBsonRef;

/// `$in` and `$nin`. `compile` makes a pattern, and counts it.
pub(super) fn in_list(
    name: &str,
    value: RawBsonRef<'_>,
    compile: &mut dyn FnMut(&str, &str) -> Result<Pattern, DocumentError>,
) -> Result<Predicate, DocumentError> {
    let RawBsonRef::Array(array) = value else {
        return Err(DocumentError::bad_value(format!("{name} needs an array")));
    };
    let (mut values, mut patterns) = (Vec::new(), Vec::new());
    for value in elements(array) {
        match value {
            RawBsonRef::Document(document) if is_expression(document, false) => {
                return Err(DocumentError::bad_value("cannot nest $ under $in"));
            }
            RawBsonRef::Undefined => {
                let message = "InMatchExpression equality cannot be undefined";
                return Err(DocumentError::bad_value(message));
            }
            RawBsonRef::RegularExpression(regex) => {
                patterns.push(compile(regex.pattern.as_str(), regex.options.as_str())?);
            }
            _ => values.push(value),
        }
    }
    values.sort_unstable_by(|left, right| compare(*left, *right));
    let values: Vec<RawBson> = values.into_iter().map(RawBson::from).collect();
    let has_null = values.iter().any(|value| matches!(value, RawBson::Null));
    Ok(Predicate::In(InList { values, has_null, patterns }))
}

/// `$mod`.
pub(super) fn modulus(value: RawBsonRef<'_>) -> Result<Predicate, DocumentError> {
    let RawBsonRef::Array(array) = value else { return Err(malformed("needs to be an array")) };
    let mut values = elements(array);
    let (Some(divisor), Some(remainder)) = (values.next(), values.next()) else {
        return Err(malformed("not enough elements"));
    };
    if values.next().is_some() {
        return Err(malformed("too many elements"));
    }
    let divisor = modulus_part(divisor, "divisor")?;
    let remainder = modulus_part(remainder, "remainder")?;
    if divisor == 0 {
        return Err(DocumentError::bad_value("divisor cannot be 0"));
    }
    Ok(Predicate::Mod { divisor, remainder })
}

/// The integer part of the divisor or of the remainder.
fn modulus_part(value: RawBsonRef<'_>, name: &str) -> Result<i64, DocumentError> {
    let number = Number::of(value).ok_or_else(|| malformed(&format!("{name} not a number")))?;
    let part = number.integer_part();
    part.map(|(whole, _)| whole).ok_or_else(|| malformed(&format!("{name} value is invalid")))
}

fn malformed(what: &str) -> DocumentError {
    DocumentError::bad_value(format!("malformed mod, {what}"))
}

/// `$size`.
pub(super) fn size(value: RawBsonRef<'_>) -> Result<usize, DocumentError> {
    let error = |message: String| {
        DocumentError::new(FAILED_TO_PARSE, format!("Failed to parse $size. {message}"))
    };
    let number =
        Number::of(value).ok_or_else(|| error("Expected a number in: $size".to_owned()))?;
    let size = number.whole().ok_or_else(|| error("Expected an integer: $size".to_owned()))?;
    usize::try_from(size)
        .map_err(|_| error(format!("Expected a non-negative number in: $size: {size}")))
}
