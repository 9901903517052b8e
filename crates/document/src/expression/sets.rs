//! Operators on arrays as sets: the order and repetitions of elements have no meaning.

use super::arguments::Arguments;
use super::counted::ArrayMaker;
use crate::error::DocumentError;
use crate::order::compare;
use crate::raw::elements;
use crate::value::{Value, is_true};
use bson::raw::RawBsonRef;

type Evaluated<'a> = Result<Value<'a>, DocumentError>;

fn fail<T>(code: i32, text: String) -> Result<T, DocumentError> {
    Err(DocumentError::new(code, text))
}

/// The elements of an argument in their order, each once.
fn set<'s>(
    arguments: &'s Arguments<'_, '_>,
    at: usize,
    code: i32,
) -> Result<Vec<RawBsonRef<'s>>, DocumentError> {
    let value = arguments.get(at);
    let Some(array) = value.as_array() else {
        let text = format!(
            "All operands of {} must be arrays. One argument is of type: {}",
            arguments.name,
            value.type_name()
        );
        return fail(code, text);
    };
    let mut all: Vec<RawBsonRef<'s>> = elements(array).collect();
    let bytes = array.as_bytes().len() / 64 + all.len();
    arguments.env.spend(bytes * (all.len().max(1).ilog2() as usize + 1))?;
    all.sort_by(|one, other| compare(*one, *other));
    all.dedup_by(|one, other| compare(*one, *other).is_eq());
    Ok(all)
}

fn has(all: &[RawBsonRef<'_>], wanted: RawBsonRef<'_>) -> bool {
    all.binary_search_by(|probe| compare(*probe, wanted)).is_ok()
}

fn array_of<'a>(arguments: &Arguments<'_, '_>, all: &[RawBsonRef<'_>]) -> Evaluated<'a> {
    let mut made = ArrayMaker::new(arguments.env);
    all.iter().try_for_each(|value| made.push(*value))?;
    Ok(made.done())
}

/// `$setUnion`.
pub(super) fn union<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    if arguments.values.iter().any(Value::is_nullish) {
        return Ok(Value::NULL);
    }
    let mut all = Vec::new();
    for at in 0..arguments.values.len() {
        all.extend(set(arguments, at, 17043)?);
    }
    arguments.env.spend(all.len())?;
    all.sort_by(|one, other| compare(*one, *other));
    all.dedup_by(|one, other| compare(*one, *other).is_eq());
    array_of(arguments, &all)
}

/// `$setIntersection`.
pub(super) fn intersection<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    if arguments.values.iter().any(Value::is_nullish) {
        return Ok(Value::NULL);
    }
    let mut all = match arguments.values.len() {
        0 => Vec::new(),
        _ => set(arguments, 0, 17047)?,
    };
    for at in 1..arguments.values.len() {
        let other = set(arguments, at, 17047)?;
        all.retain(|value| has(&other, *value));
    }
    array_of(arguments, &all)
}

/// `$setDifference`: in the order of the first array.
pub(super) fn difference<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    if arguments.values.iter().any(Value::is_nullish) {
        return Ok(Value::NULL);
    }
    for (at, (place, code)) in [("First", 17048), ("Second", 17049)].into_iter().enumerate() {
        let value = arguments.get(at);
        if value.as_array().is_none() {
            let text = format!(
                "both operands of $setDifference must be arrays. {place} argument is of type: {}",
                value.type_name()
            );
            return fail(code, text);
        }
    }
    let (mut own, other) = (set(arguments, 0, 17048)?, set(arguments, 1, 17049)?);
    own.retain(|value| !has(&other, *value));
    let mut seen = vec![false; own.len()];
    let mut made = ArrayMaker::new(arguments.env);
    for value in arguments.get(0).as_array().into_iter().flat_map(elements) {
        if let Ok(at) = own.binary_search_by(|probe| compare(*probe, value))
            && !std::mem::replace(&mut seen[at], true)
        {
            made.push(value)?;
        }
    }
    Ok(made.done())
}

/// `$setEquals`.
pub(super) fn equals<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    if arguments.values.len() < 2 {
        let text =
            format!("$setEquals needs at least two arguments had: {}", arguments.values.len());
        return fail(17045, text);
    }
    let first = set(arguments, 0, 17044)?;
    for at in 1..arguments.values.len() {
        let other = set(arguments, at, 17044)?;
        let is_same = first.len() == other.len()
            && first.iter().zip(&other).all(|(one, other)| compare(*one, *other).is_eq());
        if !is_same {
            return Ok(Value::bool(false));
        }
    }
    Ok(Value::bool(true))
}

/// `$setIsSubset`.
pub(super) fn is_subset<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (own, other) = (set(arguments, 0, 17046)?, set(arguments, 1, 17042)?);
    Ok(Value::bool(own.iter().all(|value| has(&other, *value))))
}

/// The elements of the one argument that count as true, and of all.
fn counts(arguments: &Arguments<'_, '_>, code: i32) -> Result<(usize, usize), DocumentError> {
    let value = arguments.get(0);
    let Some(array) = value.as_array() else {
        let text =
            format!("{}'s argument must be an array, but is {}", arguments.name, value.type_name());
        return fail(code, text);
    };
    let (mut true_ones, mut all) = (0, 0);
    for value in elements(array) {
        all += 1;
        true_ones += usize::from(is_true(value));
    }
    arguments.env.spend(all)?;
    Ok((true_ones, all))
}

/// `$allElementsTrue`.
pub(super) fn all_elements_true<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (true_ones, all) = counts(arguments, 17040)?;
    Ok(Value::bool(true_ones == all))
}

/// `$anyElementTrue`.
pub(super) fn any_element_true<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (true_ones, _) = counts(arguments, 17041)?;
    Ok(Value::bool(true_ones > 0))
}
