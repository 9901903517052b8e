//! Operators on arrays.

use super::arguments::Arguments;
use super::counted::ArrayMaker;
use crate::error::DocumentError;
use crate::number::Number;
use crate::order::compare;
use crate::raw::elements;
use crate::sort::SortKeys;
use crate::value::{Value, byte_length};
use bson::raw::{RawArray, RawBsonRef};
use std::cmp::Ordering;

type Evaluated<'a> = Result<Value<'a>, DocumentError>;

fn fail<T>(code: i32, text: impl Into<String>) -> Result<T, DocumentError> {
    Err(DocumentError::new(code, text))
}

/// The elements of an array, counted as steps.
fn counted<'v>(
    arguments: &Arguments<'_, '_>,
    array: &'v RawArray,
) -> Result<Vec<RawBsonRef<'v>>, DocumentError> {
    let all: Vec<RawBsonRef<'v>> = elements(array).collect();
    arguments.env.spend(all.len())?;
    Ok(all)
}

/// `$size`.
pub(super) fn size<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let value = arguments.get(0);
    let Some(array) = value.as_array() else {
        let text = format!(
            "The argument to $size must be an array, but was of type: {}",
            value.type_name()
        );
        return fail(17124, text);
    };
    let count = elements(array).count();
    arguments.env.spend(count)?;
    Ok(Value::count(count))
}

/// `$isArray`.
pub(super) fn is_array<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    Ok(Value::bool(arguments.get(0).as_array().is_some()))
}

/// The element at a position, from the end if it is negative.
fn at<'a>(arguments: &mut Arguments<'a, '_>, from: Value<'a>, position: i64) -> Evaluated<'a> {
    let find = |array: &RawArray| -> usize {
        match usize::try_from(position) {
            Ok(position) => position,
            Err(_) => {
                let back = usize::try_from(position.unsigned_abs()).unwrap_or(usize::MAX);
                elements(array).count().checked_sub(back).unwrap_or(usize::MAX)
            }
        }
    };
    match from {
        Value::Raw(RawBsonRef::Array(array)) => {
            let position = find(array);
            arguments.env.spend(1 + position.min(array.as_bytes().len()))?;
            Ok(Value::of(elements(array).nth(position)))
        }
        from => {
            let Some(array) = from.as_array() else { return Ok(Value::Missing) };
            let position = find(array);
            arguments.env.spend(1 + position.min(array.as_bytes().len()))?;
            let found = elements(array).nth(position);
            Ok(found.map_or(Value::Missing, |value| Value::Owned(value.into())))
        }
    }
}

/// `$arrayElemAt`.
pub(super) fn element_at<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (array, position) = (arguments.take(0), arguments.take(1));
    if array.is_nullish() || position.is_nullish() {
        return Ok(Value::NULL);
    }
    if array.as_array().is_none() {
        let text =
            format!("$arrayElemAt's first argument must be an array, but is {}", array.type_name());
        return fail(28689, text);
    }
    if position.number().is_none() {
        let text = format!(
            "$arrayElemAt's second argument must be a numeric value, but is {}",
            position.type_name()
        );
        return fail(28690, text);
    }
    let Some(position) = position.as_int() else {
        let text = format!(
            "$arrayElemAt's second argument must be representable as a 32-bit integer: {}",
            crate::value::shown(position.or_null())
        );
        return fail(28691, text);
    };
    at(arguments, array, i64::from(position))
}

fn end<'a>(arguments: &mut Arguments<'a, '_>, position: i64) -> Evaluated<'a> {
    let array = arguments.take(0);
    if array.is_nullish() {
        return Ok(if array.is_missing() { Value::Missing } else { Value::NULL });
    }
    if array.as_array().is_none() {
        let text =
            format!("{}'s argument must be an array, but is {}", arguments.name, array.type_name());
        return fail(28689, text);
    }
    at(arguments, array, position)
}

/// `$first`.
pub(super) fn first<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    end(arguments, 0)
}

/// `$last`.
pub(super) fn last<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    end(arguments, -1)
}

/// Makes an array of some values.
fn array_of<'a, 'v>(
    arguments: &Arguments<'_, '_>,
    values: impl IntoIterator<Item = RawBsonRef<'v>>,
) -> Evaluated<'a> {
    let mut made = ArrayMaker::new(arguments.env);
    for value in values {
        made.push(value)?;
    }
    Ok(made.done())
}

/// `$concatArrays`.
pub(super) fn concat<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let mut made = ArrayMaker::new(arguments.env);
    for value in &arguments.values {
        if value.is_nullish() {
            return Ok(Value::NULL);
        }
        let Some(array) = value.as_array() else {
            let text = format!("$concatArrays only supports arrays, not {}", value.type_name());
            return fail(28664, text);
        };
        elements(array).try_for_each(|value| made.push(value))?;
    }
    Ok(made.done())
}

/// `$reverseArray`.
pub(super) fn reverse<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let value = arguments.get(0);
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(array) = value.as_array() else {
        let text = format!(
            "The argument to $reverseArray must be an array, but was of type: {}",
            value.type_name()
        );
        return fail(34435, text);
    };
    array_of(arguments, counted(arguments, array)?.into_iter().rev())
}

/// `$in`.
pub(super) fn contains<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (wanted, value) = (arguments.get(0), arguments.get(1));
    let Some(array) = value.as_array() else {
        let text =
            format!("$in requires an array as a second argument, found: {}", value.type_name());
        return fail(40081, text);
    };
    let wanted = wanted.or_undefined();
    let mut found = false;
    for element in elements(array) {
        arguments.env.spend(1 + byte_length(element).min(byte_length(wanted)) / 64)?;
        found = compare(element, wanted).is_eq();
        if found {
            break;
        }
    }
    Ok(Value::bool(found))
}

/// Positions from which and before which an operator searches.
pub(super) fn search_range(
    arguments: &Arguments<'_, '_>,
    length: usize,
) -> Result<Option<(usize, usize)>, DocumentError> {
    let bound = |at: usize, name: &str, otherwise: usize| match arguments.values.get(at) {
        None => Ok(otherwise),
        Some(value) => match value.as_int() {
            Some(bound) if bound >= 0 => Ok(bound as usize),
            Some(bound) => fail(
                40097,
                format!("{} requires a nonnegative {name} index, found: {bound}", arguments.name),
            ),
            None => fail(
                40096,
                format!(
                    "{} requires an integral {name} index, found a value of type: {}, with value: {}",
                    arguments.name,
                    value.type_name(),
                    crate::value::shown(value.or_null())
                ),
            ),
        },
    };
    let (start, end) = (bound(2, "starting", 0)?, bound(3, "ending", length)?.min(length));
    Ok((start <= end).then_some((start, end)))
}

/// `$indexOfArray`.
pub(super) fn index_of<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let value = arguments.get(0);
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(array) = value.as_array() else {
        let text = format!(
            "$indexOfArray requires an array as a first argument, found: {}",
            value.type_name()
        );
        return fail(40090, text);
    };
    let all = counted(arguments, array)?;
    let Some((start, end)) = search_range(arguments, all.len())? else {
        return Ok(Value::int(-1));
    };
    let wanted = arguments.get(1).or_undefined();
    for (at, element) in all[..end].iter().enumerate().skip(start) {
        arguments.env.spend(byte_length(*element).min(byte_length(wanted)) / 64)?;
        if compare(*element, wanted).is_eq() {
            return Ok(Value::count(at));
        }
    }
    Ok(Value::int(-1))
}

/// `$range`.
pub(super) fn range<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let names = [("starting", 34443), ("ending", 34445), ("step", 34447)];
    let mut bounds = [0, 0, 1i64];
    for ((value, (name, code)), bound) in arguments.values.iter().zip(names).zip(&mut bounds) {
        if value.number().is_none() {
            let text = format!(
                "$range requires a numeric {name} value, found value of type: {}",
                value.type_name()
            );
            return fail(code, text);
        }
        let Some(value) = value.as_int() else {
            let text = format!(
                "$range requires a {name} value that can be represented as a 32-bit integer, found value: {}",
                crate::value::shown(value.or_null())
            );
            return fail(code + 1, text);
        };
        *bound = i64::from(value);
    }
    let [start, end, step] = bounds;
    if step == 0 {
        return fail(34449, "$range requires a non-zero step value");
    }
    let mut made = ArrayMaker::new(arguments.env);
    let mut at = start;
    while if step > 0 { at < end } else { at > end } {
        made.push(RawBsonRef::Int32(i32::try_from(at).unwrap_or_default()))?;
        at += step;
    }
    Ok(made.done())
}

/// `$slice`.
pub(super) fn slice<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    if arguments.values.iter().any(Value::is_nullish) {
        return Ok(Value::NULL);
    }
    let value = arguments.get(0);
    let Some(array) = value.as_array() else {
        let text = format!(
            "First argument to $slice must be an array, but is of type: {}",
            value.type_name()
        );
        return fail(28724, text);
    };
    let mut numbers = [0i64; 2];
    for (at, value) in arguments.values[1..].iter().enumerate() {
        let (name, code) = [("Second", 28725), ("Third", 28727)][at.min(1)];
        if value.number().is_none() {
            let text = format!(
                "{name} argument to $slice must be numeric, but is of type: {}",
                value.type_name()
            );
            return fail(code, text);
        }
        let Some(value) = value.as_int() else {
            let text =
                format!("{name} argument to $slice can't be represented as a 32-bit integer");
            return fail(code + 1, text);
        };
        numbers[at.min(1)] = i64::from(value);
    }
    let all = counted(arguments, array)?;
    let limits = match arguments.values.len() {
        2 => (None, numbers[0]),
        _ if numbers[1] <= 0 => {
            return fail(
                28729,
                format!("Third argument to $slice must be positive: {}", numbers[1]),
            );
        }
        _ => (Some(numbers[0]), numbers[1]),
    };
    array_of(arguments, all[slice_range(all.len(), limits.0, limits.1)].iter().copied())
}

/// The positions that `$slice` takes: after `skip` (from the end if it is negative) so many; without it, the
/// first ones, or the last ones if the count is negative.
pub(crate) fn slice_range(length: usize, skip: Option<i64>, count: i64) -> std::ops::Range<usize> {
    let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let from_end = |back: usize| length.saturating_sub(back);
    let start = match skip {
        Some(skip) => {
            let distance = usize::try_from(skip.unsigned_abs()).unwrap_or(usize::MAX);
            if skip < 0 { from_end(distance) } else { distance.min(length) }
        }
        None if count < 0 => from_end(size),
        None => 0,
    };
    start..start.saturating_add(size).min(length)
}

/// `$zip`.
pub(super) fn zip<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (inputs, longest, defaults) = (arguments.get(0), arguments.get(1), arguments.get(2));
    if inputs.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(inputs) = inputs.as_array() else {
        return fail(
            34461,
            format!("inputs must be an array of expressions, found {}", inputs.type_name()),
        );
    };
    let is_longest = longest.is_true();
    let defaults: Vec<RawBsonRef<'_>> = match defaults.as_array() {
        Some(array) => elements(array).collect(),
        None if defaults.is_nullish() => Vec::new(),
        None => return fail(34462, "defaults must be an array of expressions"),
    };
    if !defaults.is_empty() && !is_longest {
        return fail(34466, "cannot specify defaults unless useLongestLength is true");
    }
    let mut all = Vec::new();
    for input in elements(inputs) {
        match input {
            RawBsonRef::Array(array) => all.push(counted(arguments, array)?),
            RawBsonRef::Null | RawBsonRef::Undefined => return Ok(Value::NULL),
            _ => return fail(34468, "$zip found a non-array expression in input"),
        }
    }
    if all.is_empty() {
        return fail(34465, "$zip requires at least one input array");
    }
    if !defaults.is_empty() && defaults.len() != all.len() {
        return fail(34467, "defaults and inputs must have the same length");
    }
    let lengths = all.iter().map(Vec::len);
    let length = if is_longest { lengths.max() } else { lengths.min() }.unwrap_or(0);
    let mut made = ArrayMaker::new(arguments.env);
    for at in 0..length {
        let mut tuple = ArrayMaker::new(arguments.env);
        for (which, input) in all.iter().enumerate() {
            let default = defaults.get(which).copied().unwrap_or(RawBsonRef::Null);
            tuple.push(input.get(at).copied().unwrap_or(default))?;
        }
        made.push(tuple.done().or_null())?;
    }
    Ok(made.done())
}

/// `$sortArray`: by the values, or by fields of documents.
pub(super) fn sort<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (value, by) = (arguments.get(0), arguments.get(1));
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(array) = value.as_array() else {
        let text = format!(
            "The input argument to $sortArray must be an array, but was of type: {}",
            value.type_name()
        );
        return fail(2_942_504, text);
    };
    let mut all = counted(arguments, array)?;
    // A comparison looks at both values.
    let bytes = array.as_bytes().len() / 64 + all.len();
    arguments.env.spend(bytes * (all.len().max(1).ilog2() as usize + 1))?;
    match by.or_null() {
        RawBsonRef::Document(keys) => {
            let keys = SortKeys::parse(keys)?;
            all.sort_by(|one, other| match (one, other) {
                (RawBsonRef::Document(one), RawBsonRef::Document(other)) => {
                    keys.compare(one, other)
                }
                _ => compare(*one, *other),
            });
        }
        direction => match Number::of(direction).and_then(Number::whole) {
            Some(1) => all.sort_by(|one, other| compare(*one, *other)),
            Some(-1) => all.sort_by(|one, other| compare(*other, *one)),
            _ => return fail(2_942_507, "The $sort element value must be either 1 or -1"),
        },
    }
    array_of(arguments, all)
}

/// The array and the count of `$firstN` and its kin.
fn array_and_count<'s>(
    arguments: &'s Arguments<'_, '_>,
) -> Result<(Vec<RawBsonRef<'s>>, usize), DocumentError> {
    let Some(array) = arguments.get(0).as_array() else {
        let text = format!("Input must be an array for {}", arguments.name);
        return fail(5_788_200, text);
    };
    let count = count_of(arguments.get(1).or_null())?;
    Ok((counted(arguments, array)?, count))
}

/// The `n` of `$firstN` and its kin.
pub(crate) fn count_of(value: RawBsonRef<'_>) -> Result<usize, DocumentError> {
    match Number::of(value).and_then(Number::whole) {
        Some(count @ 1..) => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
        Some(count) => fail(5_787_908, format!("'n' must be greater than 0, found {count}")),
        None => fail(
            5_787_902,
            format!(
                "Value for 'n' must be of integral type, but found {}",
                crate::value::shown(value)
            ),
        ),
    }
}

pub(super) fn first_n<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (all, count) = array_and_count(arguments)?;
    array_of(arguments, all.into_iter().take(count))
}

pub(super) fn last_n<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (all, count) = array_and_count(arguments)?;
    let start = all.len().saturating_sub(count);
    array_of(arguments, all[start..].iter().copied())
}

fn extreme_n<'a>(arguments: &Arguments<'a, '_>, is_max: bool) -> Evaluated<'a> {
    let (mut all, count) = array_and_count(arguments)?;
    all.retain(|value| !matches!(value, RawBsonRef::Null | RawBsonRef::Undefined));
    let bytes: usize = all.iter().map(|value| 1 + byte_length(*value) / 64).sum();
    arguments.env.spend(bytes * (all.len().max(1).ilog2() as usize + 1))?;
    all.sort_by(|one, other| {
        let order: Ordering = compare(*one, *other);
        if is_max { order.reverse() } else { order }
    });
    array_of(arguments, all.into_iter().take(count))
}

pub(super) fn min_n<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    extreme_n(arguments, false)
}

pub(super) fn max_n<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    extreme_n(arguments, true)
}
