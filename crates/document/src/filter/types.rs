//! The argument of `$type`.

use crate::error::{DocumentError, FAILED_TO_PARSE, TYPE_MISMATCH};
use crate::number::Number;
use crate::raw::elements;
use bson::raw::RawBsonRef;
use bson::spec::ElementType;

/// The types of BSON by MongoDB's names and numbers.
const TYPES: &[(&str, i64, ElementType)] = &[
    ("double", 1, ElementType::Double),
    ("string", 2, ElementType::String),
    ("object", 3, ElementType::EmbeddedDocument),
    ("array", 4, ElementType::Array),
    ("binData", 5, ElementType::Binary),
    ("undefined", 6, ElementType::Undefined),
    ("objectId", 7, ElementType::ObjectId),
    ("bool", 8, ElementType::Boolean),
    ("date", 9, ElementType::DateTime),
    ("null", 10, ElementType::Null),
    ("regex", 11, ElementType::RegularExpression),
    ("dbPointer", 12, ElementType::DbPointer),
    ("javascript", 13, ElementType::JavaScriptCode),
    ("symbol", 14, ElementType::Symbol),
    ("javascriptWithScope", 15, ElementType::JavaScriptCodeWithScope),
    ("int", 16, ElementType::Int32),
    ("timestamp", 17, ElementType::Timestamp),
    ("long", 18, ElementType::Int64),
    ("decimal", 19, ElementType::Decimal128),
    ("minKey", -1, ElementType::MinKey),
    ("maxKey", 127, ElementType::MaxKey),
];

/// MongoDB's name of a type.
pub(crate) fn name_of_type(kind: ElementType) -> &'static str {
    let known = TYPES.iter().find(|(.., of)| *of == kind);
    known.map_or("unknown", |(name, ..)| name)
}

/// The name of all types of numbers.
const NUMBER: &str = "number";
const NUMBERS: [ElementType; 4] =
    [ElementType::Double, ElementType::Int32, ElementType::Int64, ElementType::Decimal128];

/// A set of types, a bit for each line of [`TYPES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TypeSet(u32);

impl TypeSet {
    pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<TypeSet, DocumentError> {
        let mut types = TypeSet(0);
        match value {
            RawBsonRef::Array(array) => {
                elements(array).try_for_each(|value| types.insert(value))?;
            }
            _ => types.insert(value)?,
        }
        if types == TypeSet(0) {
            let message = "$type must match at least one type";
            return Err(DocumentError::new(FAILED_TO_PARSE, message));
        }
        Ok(types)
    }

    pub(crate) fn contains(self, kind: ElementType) -> bool {
        self.0 & bit(kind) != 0
    }

    fn insert(&mut self, value: RawBsonRef<'_>) -> Result<(), DocumentError> {
        match (value, Number::of(value)) {
            (RawBsonRef::String(NUMBER), _) => {
                self.0 |= NUMBERS.iter().map(|kind| bit(*kind)).sum::<u32>();
                Ok(())
            }
            (RawBsonRef::String(name), _) => {
                let known = TYPES.iter().find(|(known, ..)| *known == name);
                let (.., kind) = known.ok_or_else(|| unknown_name(name))?;
                self.0 |= bit(*kind);
                Ok(())
            }
            (_, Some(number)) => {
                let code = number.whole();
                let known = TYPES.iter().find(|(_, known, _)| code == Some(*known));
                let (.., kind) = known.ok_or_else(|| unknown_code(code))?;
                self.0 |= bit(*kind);
                Ok(())
            }
            _ => {
                let message = "type must be represented as a number or a string";
                Err(DocumentError::new(TYPE_MISMATCH, message))
            }
        }
    }
}

fn bit(kind: ElementType) -> u32 {
    TYPES.iter().position(|(.., known)| *known == kind).map_or(0, |at| 1 << at)
}

fn unknown_name(name: &str) -> DocumentError {
    if name == "missing" {
        return DocumentError::bad_value(
            "'missing' is not a legal type name. To query for non-existence of a field, use {$exists:false}.",
        );
    }
    DocumentError::bad_value(format!("Unknown type name alias: {name}"))
}

fn unknown_code(code: Option<i64>) -> DocumentError {
    let text = "Invalid numerical type code";
    DocumentError::bad_value(match code {
        None => text.to_owned(),
        Some(0) => format!("{text}: 0. Instead use {{$exists:false}}."),
        Some(code) => format!("{text}: {code}"),
    })
}
