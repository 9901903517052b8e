//! Operators on strings. Positions count bytes or code points, as the operator's name says.

use super::arguments::Arguments;
use super::arrays::search_range;
use super::convert::to_text;
use super::counted::ArrayMaker;
use crate::error::DocumentError;
use crate::value::Value;
use bson::raw::RawBsonRef;

type Evaluated<'a> = Result<Value<'a>, DocumentError>;

fn fail<T>(code: i32, text: impl Into<String>) -> Result<T, DocumentError> {
    Err(DocumentError::new(code, text))
}

/// A string that was made.
fn made<'a>(arguments: &Arguments<'_, '_>, text: String) -> Evaluated<'a> {
    arguments.env.spend_bytes(text.len())?;
    Ok(Value::string(text))
}

/// A string argument, or why it is none.
fn string<'s>(
    arguments: &'s Arguments<'_, '_>,
    at: usize,
    code: i32,
    text: &str,
) -> Result<&'s str, DocumentError> {
    let value = arguments.get(at);
    let found = value.as_str();
    let text = found.ok_or_else(|| {
        DocumentError::new(code, format!("{} {text}, found: {}", arguments.name, value.type_name()))
    })?;
    arguments.env.spend(text.len() / 64)?;
    Ok(text)
}

/// An argument as text: strings, numbers, dates and timestamps; null is empty.
fn coerced(arguments: &Arguments<'_, '_>, at: usize) -> Result<String, DocumentError> {
    let value = arguments.get(at);
    let text = match value.get() {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => Some(String::new()),
        Some(RawBsonRef::Boolean(_) | RawBsonRef::ObjectId(_)) => None,
        Some(value) => to_text(value),
    };
    let text = text.ok_or_else(|| {
        let text = format!("can't convert from BSON type {} to String", value.type_name());
        DocumentError::new(16007, text)
    })?;
    arguments.env.spend(text.len() / 64)?;
    Ok(text)
}

/// `$concat`.
pub(super) fn concat<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let mut text = String::new();
    for value in &arguments.values {
        match value.get() {
            None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => return Ok(Value::NULL),
            Some(RawBsonRef::String(part)) => {
                arguments.env.spend_bytes(text.len() + part.len())?;
                text.push_str(part);
            }
            _ => {
                let text = format!("$concat only supports strings, not {}", value.type_name());
                return fail(16702, text);
            }
        }
    }
    made(arguments, text)
}

/// `$toLower`: ASCII only, as MongoDB.
pub(super) fn to_lower<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let text = coerced(arguments, 0)?.to_ascii_lowercase();
    made(arguments, text)
}

/// `$toUpper`: ASCII only, as MongoDB.
pub(super) fn to_upper<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let text = coerced(arguments, 0)?.to_ascii_uppercase();
    made(arguments, text)
}

/// `$strcasecmp`.
pub(super) fn compare_cases<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let one = coerced(arguments, 0)?.to_ascii_uppercase();
    let other = coerced(arguments, 1)?.to_ascii_uppercase();
    Ok(Value::int(one.cmp(&other) as i32))
}

/// `$strLenBytes`.
pub(super) fn length_bytes<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    Ok(Value::count(string(arguments, 0, 34473, "requires a string argument")?.len()))
}

/// `$strLenCP`.
pub(super) fn length_code_points<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    Ok(Value::count(string(arguments, 0, 34471, "requires a string argument")?.chars().count()))
}

/// `$binarySize`.
pub(super) fn binary_size<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    match arguments.get(0).get() {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => Ok(Value::NULL),
        Some(RawBsonRef::String(text)) => Ok(Value::count(text.len())),
        Some(RawBsonRef::Binary(binary)) => Ok(Value::count(binary.bytes.len())),
        _ => {
            let text = format!(
                "$binarySize requires a string or BinData argument, found: {}",
                arguments.get(0).type_name()
            );
            fail(51276, text)
        }
    }
}

/// `$split`.
pub(super) fn split<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    if arguments.values.iter().any(Value::is_nullish) {
        return Ok(Value::NULL);
    }
    let text = string(
        arguments,
        0,
        40085,
        "requires an expression that evaluates to a string as a first argument",
    )?;
    let by = string(
        arguments,
        1,
        40086,
        "requires an expression that evaluates to a string as a second argument",
    )?;
    if by.is_empty() {
        return fail(40087, "$split requires a non-empty separator");
    }
    let mut parts = ArrayMaker::new(arguments.env);
    text.split(by).try_for_each(|part| parts.push(RawBsonRef::String(part)))?;
    Ok(parts.done())
}

/// `$trim`, `$ltrim` and `$rtrim`.
pub(super) fn trim<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    /// White space, as MongoDB lists it.
    const WHITE: &[char] = &[
        '\0', ' ', '\t', '\n', '\u{b}', '\u{c}', '\r', '\u{a0}', '\u{1680}', '\u{2000}',
        '\u{2001}', '\u{2002}', '\u{2003}', '\u{2004}', '\u{2005}', '\u{2006}', '\u{2007}',
        '\u{2008}', '\u{2009}', '\u{200a}',
    ];
    if arguments.get(0).is_nullish() {
        return Ok(Value::NULL);
    }
    let text = string(arguments, 0, 50699, "requires its input to be a string")?;
    let given: Vec<char> = match arguments.get(1) {
        Value::Missing => WHITE.to_vec(),
        chars if chars.is_nullish() => return Ok(Value::NULL),
        _ => string(arguments, 1, 50700, "requires 'chars' to be a string")?.chars().collect(),
    };
    arguments.env.spend(given.len().saturating_mul(text.len()) / 64)?;
    let is_cut = |c: char| given.contains(&c);
    let text = match arguments.name {
        "$ltrim" => text.trim_start_matches(is_cut),
        "$rtrim" => text.trim_end_matches(is_cut),
        _ => text.trim_matches(is_cut),
    };
    made(arguments, text.to_owned())
}

/// The texts of `$replaceOne` and `$replaceAll`, unless one is null.
fn texts<'s>(arguments: &'s Arguments<'_, '_>) -> Result<Option<[&'s str; 3]>, DocumentError> {
    let names = [("input", 51746), ("find", 51745), ("replacement", 51744)];
    let (mut texts, mut is_null) = ([""; 3], false);
    for (at, (name, code)) in names.into_iter().enumerate() {
        if arguments.get(at).is_nullish() {
            is_null = true;
            continue;
        }
        texts[at] = string(arguments, at, code, &format!("requires that '{name}' be a string"))?;
    }
    Ok((!is_null).then_some(texts))
}

/// `$replaceOne`.
pub(super) fn replace_one<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    match texts(arguments)? {
        Some([text, find, with]) => made(arguments, text.replacen(find, with, 1)),
        None => Ok(Value::NULL),
    }
}

/// `$replaceAll`.
pub(super) fn replace_all<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let Some([text, find, with]) = texts(arguments)? else { return Ok(Value::NULL) };
    // The length is known before the memory is taken.
    let count = text.matches(find).count();
    let grown = with.len().saturating_sub(find.len()).saturating_mul(count);
    arguments.env.spend_bytes(text.len().saturating_add(grown))?;
    made(arguments, text.replace(find, with))
}

/// `$indexOfBytes`.
pub(super) fn index_of_bytes<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    if arguments.get(0).is_nullish() {
        return Ok(Value::NULL);
    }
    let text = string(arguments, 0, 40091, "requires a string as the first argument")?;
    let wanted = string(arguments, 1, 40092, "requires a string as the second argument")?;
    let Some((start, end)) = search_range(arguments, text.len())? else {
        return Ok(Value::int(-1));
    };
    let at = text.get(start..end).and_then(|part| part.find(wanted));
    Ok(at.map_or(Value::int(-1), |at| Value::count(start + at)))
}

/// `$indexOfCP`.
pub(super) fn index_of_code_points<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    if arguments.get(0).is_nullish() {
        return Ok(Value::NULL);
    }
    let text = string(arguments, 0, 40093, "requires a string as the first argument")?;
    let wanted = string(arguments, 1, 40094, "requires a string as the second argument")?;
    let length = text.chars().count();
    let Some((start, end)) = search_range(arguments, length)? else {
        return Ok(Value::int(-1));
    };
    let byte = |position: usize| text.char_indices().nth(position).map_or(text.len(), |(at, _)| at);
    let (from, to) = (byte(start), byte(end));
    let at = text.get(from..to).and_then(|part| part.find(wanted));
    let at = at.map(|at| start + text[from..from + at].chars().count());
    Ok(at.map_or(Value::int(-1), Value::count))
}

/// Start and length of a substring.
fn bounds(arguments: &Arguments<'_, '_>) -> Result<(i64, i64), DocumentError> {
    let number = |at: usize, name: &str, code: i32| {
        let value = arguments.get(at);
        match value.number().and_then(crate::number::Number::integer_part) {
            Some((number, _)) => Ok(number),
            None => fail(
                code,
                format!(
                    "{}:  {name} must be a numeric type (is BSON type {})",
                    arguments.name,
                    value.type_name()
                ),
            ),
        }
    };
    Ok((number(1, "starting index", 34450)?, number(2, "length", 34452)?))
}

/// `$substrBytes`: a negative length takes all that follows.
pub(super) fn substring_bytes<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (start, length) = bounds(arguments)?;
    let text = coerced(arguments, 0)?;
    let Ok(start) = usize::try_from(start) else {
        let text =
            format!("{}: starting index must be non-negative (got: {start})", arguments.name);
        return fail(50752, text);
    };
    if start >= text.len() {
        return made(arguments, String::new());
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let end = start.saturating_add(length).min(text.len());
    if !text.is_char_boundary(start) {
        let text = format!(
            "{}:  Invalid range, starting index is a UTF-8 continuation byte.",
            arguments.name
        );
        return fail(28656, text);
    }
    if !text.is_char_boundary(end) {
        let text = format!(
            "{}:  Invalid range, ending index is in the middle of a UTF-8 character.",
            arguments.name
        );
        return fail(28657, text);
    }
    made(arguments, text[start..end].to_owned())
}

/// `$substrCP`.
pub(super) fn substring_code_points<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (start, length) = bounds(arguments)?;
    let text = coerced(arguments, 0)?;
    let Ok(start) = usize::try_from(start) else {
        return fail(34455, "$substrCP: the starting index must be nonnegative integer.");
    };
    let Ok(length) = usize::try_from(length) else {
        return fail(34454, "$substrCP: length must be a nonnegative integer.");
    };
    made(arguments, text.chars().skip(start).take(length).collect())
}
