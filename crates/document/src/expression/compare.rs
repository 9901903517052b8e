//! Comparisons, `$not`, and types of values.

use super::arguments::Arguments;
use crate::error::DocumentError;
use crate::order::compare;
use crate::value::Value;
use std::cmp::Ordering;

type Evaluated<'a> = Result<Value<'a>, DocumentError>;

fn order(arguments: &Arguments<'_, '_>) -> Result<Ordering, DocumentError> {
    let [one, other] = [&arguments.values[0], &arguments.values[1]];
    arguments.env.spend(one.bytes().min(other.bytes()) / 64)?;
    // A missing field is below all that is there but MinKey: as undefined.
    Ok(compare(one.or_undefined(), other.or_undefined()))
}

macro_rules! comparisons {
    ($($name:ident $test:ident;)*) => {
        $(pub(super) fn $name<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
            Ok(Value::bool(order(arguments)?.$test()))
        })*
    };
}

comparisons! {
    eq is_eq;
    ne is_ne;
    lt is_lt;
    lte is_le;
    gt is_gt;
    gte is_ge;
}

/// `$cmp`.
pub(super) fn cmp<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    Ok(Value::int(order(arguments)? as i32))
}

/// `$not`.
pub(super) fn not<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    Ok(Value::bool(!arguments.values[0].is_true()))
}

/// `$type`.
pub(super) fn type_of<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    Ok(Value::Raw(bson::raw::RawBsonRef::String(arguments.values[0].type_name())))
}

/// `$isNumber`.
pub(super) fn is_number<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    Ok(Value::bool(arguments.values[0].number().is_some()))
}
