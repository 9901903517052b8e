//! Operators on documents.

use super::arguments::Arguments;
use super::counted::{ArrayMaker, counted_fields, field};
use crate::error::DocumentError;
use crate::raw::{append, elements, fields};
use crate::value::Value;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use std::collections::HashMap;

type Evaluated<'a> = Result<Value<'a>, DocumentError>;

fn fail<T>(code: i32, text: impl Into<String>) -> Result<T, DocumentError> {
    Err(DocumentError::new(code, text))
}

/// Fields in the order in which their names came first, each with its last value.
#[derive(Default)]
pub(crate) struct Fields<'v> {
    positions: HashMap<&'v str, usize>,
    fields: Vec<(&'v str, RawBsonRef<'v>)>,
}

impl<'v> Fields<'v> {
    pub(crate) fn set(&mut self, name: &'v str, value: RawBsonRef<'v>) {
        match self.positions.get(name) {
            Some(at) => self.fields[*at].1 = value,
            None => {
                self.positions.insert(name, self.fields.len());
                self.fields.push((name, value));
            }
        }
    }

    pub(crate) fn document(&self) -> Result<RawDocumentBuf, DocumentError> {
        let mut made = RawDocumentBuf::new();
        for (name, value) in &self.fields {
            append(&mut made, name, *value)?;
            crate::value::fits(made.as_bytes().len())?;
        }
        Ok(made)
    }
}

/// `$mergeObjects`.
pub(super) fn merge<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let mut all = Fields::default();
    for value in &arguments.values {
        if value.is_nullish() {
            continue;
        }
        let mut merge_in = |document| -> Result<(), DocumentError> {
            counted_fields(document, arguments.env)?.for_each(|(name, value)| all.set(name, value));
            Ok(())
        };
        match value.get() {
            Some(RawBsonRef::Document(document)) => merge_in(document)?,
            // One argument may be an array of documents.
            Some(RawBsonRef::Array(array)) if arguments.values.len() == 1 => {
                for element in elements(array) {
                    match element {
                        RawBsonRef::Document(document) => merge_in(document)?,
                        RawBsonRef::Null | RawBsonRef::Undefined => {}
                        _ => return not_an_object(&Value::Raw(element)),
                    }
                }
            }
            _ => return not_an_object(value),
        }
    }
    let made = all.document()?;
    arguments.env.spend_bytes(made.as_bytes().len())?;
    Ok(Value::document(made))
}

fn not_an_object<T>(value: &Value<'_>) -> Result<T, DocumentError> {
    fail(
        40400,
        format!(
            "$mergeObjects requires object inputs, but input {} is of type {}",
            crate::value::shown(value.or_null()),
            value.type_name()
        ),
    )
}

/// `$objectToArray`.
pub(super) fn object_to_array<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let value = arguments.get(0);
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(document) = value.as_document() else {
        let text =
            format!("$objectToArray requires a document input, found: {}", value.type_name());
        return fail(40390, text);
    };
    let mut made = ArrayMaker::new(arguments.env);
    for (name, value) in fields(document) {
        let mut pair = RawDocumentBuf::new();
        pair.append(cstr!("k"), name);
        pair.append(cstr!("v"), value);
        made.push(RawBsonRef::Document(&pair))?;
    }
    Ok(made.done())
}

/// `$arrayToObject`.
pub(super) fn array_to_object<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let value = arguments.get(0);
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(array) = value.as_array() else {
        let text = format!("$arrayToObject requires an array input, found: {}", value.type_name());
        return fail(40386, text);
    };
    arguments.env.spend(array.as_bytes().len() / 16)?;
    let mut all = Fields::default();
    for element in elements(array) {
        let (name, value) = match element {
            RawBsonRef::Document(pair) => name_and_value_of(pair)?,
            RawBsonRef::Array(pair) => {
                let mut pair = elements(pair);
                let (Some(name), Some(value), None) = (pair.next(), pair.next(), pair.next())
                else {
                    return fail(40397, "$arrayToObject requires an array of size 2 arrays");
                };
                (name, value)
            }
            _ => {
                let text = format!(
                    "Unrecognised input type format for $arrayToObject: {}",
                    Value::Raw(element).type_name()
                );
                return fail(40398, text);
            }
        };
        let RawBsonRef::String(name) = name else {
            let text = format!(
                "$arrayToObject requires an array of key-value pairs, where the key must be of type string. Found key type: {}",
                Value::Raw(name).type_name()
            );
            return fail(40395, text);
        };
        if name.contains('\0') {
            return fail(4_940_400, "Key field cannot contain an embedded null byte");
        }
        all.set(name, value);
    }
    let made = all.document()?;
    arguments.env.spend_bytes(made.as_bytes().len())?;
    Ok(Value::document(made))
}

fn name_and_value_of(
    pair: &RawDocument,
) -> Result<(RawBsonRef<'_>, RawBsonRef<'_>), DocumentError> {
    let (mut name, mut value, mut count) = (None, None, 0);
    for (key, part) in fields(pair).take(3) {
        count += 1;
        match key {
            "k" => name = Some(part),
            "v" => value = Some(part),
            _ => {}
        }
    }
    match (name, value, count) {
        (Some(name), Some(value), 2) => Ok((name, value)),
        _ => fail(
            40392,
            "$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of keys or other names",
        ),
    }
}

/// The name of a field that an operator is about.
fn name_of<'s>(arguments: &'s Arguments<'_, '_>, code: i32) -> Result<&'s str, DocumentError> {
    let name = arguments.get(0);
    name.as_str().ok_or_else(|| {
        let text = format!(
            "{} requires 'field' to evaluate to type String, but got {}",
            arguments.name,
            name.type_name()
        );
        DocumentError::new(code, text)
    })
}

/// `$getField`.
pub(super) fn get_field<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let from = arguments.take(1);
    let name = name_of(arguments, 3_041_704)?;
    match from {
        Value::Raw(RawBsonRef::Document(document)) => {
            Ok(Value::of(field(document, name, arguments.env)?))
        }
        from => match from.as_document() {
            Some(document) => {
                let found = field(document, name, arguments.env)?;
                Ok(found.map_or(Value::Missing, |value| Value::Owned(value.into())))
            }
            None if from.is_nullish() && !from.is_missing() => Ok(Value::NULL),
            None => Ok(Value::Missing),
        },
    }
}

/// A document with another value of a field, or without it.
fn with_field<'a>(
    arguments: &Arguments<'a, '_>,
    value: Option<RawBsonRef<'_>>,
    codes: (i32, i32),
) -> Evaluated<'a> {
    let name = name_of(arguments, codes.0)?;
    let from = arguments.get(1);
    if from.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(document) = from.as_document() else {
        let text = format!("{} requires 'input' to evaluate to type Object", arguments.name);
        return fail(codes.1, text);
    };
    arguments.env.spend_bytes(document.as_bytes().len())?;
    let (mut made, mut is_new) = (RawDocumentBuf::new(), true);
    for (known, old) in counted_fields(document, arguments.env)? {
        if known != name {
            append(&mut made, known, old)?;
        } else if let Some(value) = value.filter(|_| is_new) {
            append(&mut made, known, value)?;
            is_new = false;
        }
    }
    if let Some(value) = value.filter(|_| is_new) {
        append(&mut made, name, value)?;
    }
    arguments.env.spend_bytes(made.as_bytes().len())?;
    Ok(Value::document(made))
}

/// `$setField`.
pub(super) fn set_field<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    with_field(arguments, arguments.get(2).get(), (4_161_107, 4_161_105))
}

/// `$unsetField`.
pub(super) fn unset_field<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    with_field(arguments, None, (4_161_107, 4_161_105))
}

/// `$bsonSize`.
pub(super) fn bson_size<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let value = arguments.get(0);
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    match value.as_document() {
        Some(document) => Ok(Value::count(document.as_bytes().len())),
        None => fail(
            31393,
            format!("$bsonSize requires a document input, found: {}", value.type_name()),
        ),
    }
}
