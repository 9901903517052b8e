//! What a schema demands: its keywords, and whether a value follows them.

use crate::filter::{Pattern, TypeSet};
use crate::number::Number;
use crate::order::compare;
use crate::raw::{elements, fields};
use bson::RawBson;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use std::cmp::Ordering;

/// A schema, parsed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schema {
    pub(super) keywords: Vec<Keyword>,
}

#[derive(Debug, Clone)]
pub(super) enum Keyword {
    Type(TypeSet),
    Enum(Vec<RawBson>),
    AllOf(Vec<Schema>),
    AnyOf(Vec<Schema>),
    OneOf(Vec<Schema>),
    Not(Box<Schema>),
    /// Which orders of a value against the bound are right.
    Bound {
        bound: RawBson,
        allowed: [bool; 3],
    },
    MultipleOf(RawBson),
    /// Least and greatest count of characters, elements or fields.
    Length(usize, usize),
    Items(usize, usize),
    Fields(usize, usize),
    Pattern(Pattern),
    UniqueItems,
    Required(Vec<String>),
    /// If the first is there, the others must be.
    Dependency(String, Dependent),
    Object(Box<Object>),
    Array(Box<Elements>),
}

#[derive(Debug, Clone)]
pub(super) enum Dependent {
    Fields(Vec<String>),
    Schema(Schema),
}

/// What is said of the fields of a document.
#[derive(Debug, Clone, Default)]
pub(super) struct Object {
    pub(super) properties: std::collections::HashMap<String, Schema>,
    pub(super) patterns: Vec<(Pattern, Schema)>,
    pub(super) others: Others,
}

/// What is said of the elements of an array.
#[derive(Debug, Clone, Default)]
pub(super) struct Elements {
    /// Of the elements at these positions.
    pub(super) each: Vec<Schema>,
    pub(super) others: Others,
}

/// What is said of all that has no schema of its own.
#[derive(Debug, Clone, Default)]
pub(super) enum Others {
    #[default]
    Allowed,
    Refused,
    Schema(Schema),
}

impl Others {
    fn holds(&self, value: RawBsonRef<'_>) -> bool {
        match self {
            Others::Allowed => true,
            Others::Refused => false,
            Others::Schema(schema) => schema.holds(value),
        }
    }
}

impl Schema {
    /// Whether a document follows the schema.
    pub(crate) fn matches(&self, document: &RawDocument) -> bool {
        self.holds(RawBsonRef::Document(document))
    }

    /// The same for a value. The depth of the schema bounds the recursion.
    fn holds(&self, value: RawBsonRef<'_>) -> bool {
        self.keywords.iter().all(|keyword| keyword.holds(value))
    }
}

impl Keyword {
    fn holds(&self, value: RawBsonRef<'_>) -> bool {
        match self {
            Keyword::Type(types) => types.contains(value.element_type()),
            Keyword::Enum(values) => {
                values.iter().any(|known| compare(known.as_raw_bson_ref(), value).is_eq())
            }
            Keyword::AllOf(all) => all.iter().all(|schema| schema.holds(value)),
            Keyword::AnyOf(all) => all.iter().any(|schema| schema.holds(value)),
            Keyword::OneOf(all) => {
                all.iter().filter(|schema| schema.holds(value)).take(2).count() == 1
            }
            Keyword::Not(schema) => !schema.holds(value),
            Keyword::Bound { bound, allowed } => Number::of(value).is_none_or(|_| {
                let order = compare(value, bound.as_raw_bson_ref());
                allowed[(order as i8 + 1) as usize]
            }),
            Keyword::MultipleOf(unit) => is_multiple(value, unit.as_raw_bson_ref()),
            Keyword::Length(least, most) => match value {
                RawBsonRef::String(text) => (*least..=*most).contains(&text.chars().count()),
                _ => true,
            },
            Keyword::Pattern(pattern) => match value {
                RawBsonRef::String(text) => pattern.regex().is_match(text),
                _ => true,
            },
            Keyword::Items(..) | Keyword::UniqueItems | Keyword::Array(_) => match value {
                RawBsonRef::Array(array) => self.holds_array(array),
                _ => true,
            },
            _ => match value {
                RawBsonRef::Document(document) => self.holds_document(document),
                _ => true,
            },
        }
    }

    fn holds_array(&self, array: &RawArray) -> bool {
        match self {
            Keyword::Items(least, most) => (*least..=*most).contains(&elements(array).count()),
            Keyword::UniqueItems => {
                let mut all: Vec<RawBsonRef<'_>> = elements(array).collect();
                all.sort_unstable_by(|one, other| compare(*one, *other));
                all.windows(2).all(|pair| compare(pair[0], pair[1]) != Ordering::Equal)
            }
            Keyword::Array(rules) => {
                elements(array).enumerate().all(|(at, value)| match rules.each.get(at) {
                    Some(schema) => schema.holds(value),
                    None => rules.others.holds(value),
                })
            }
            _ => true,
        }
    }

    fn holds_document(&self, document: &RawDocument) -> bool {
        let has = |wanted: &str| fields(document).any(|(name, _)| name == wanted);
        match self {
            Keyword::Fields(least, most) => (*least..=*most).contains(&fields(document).count()),
            Keyword::Required(names) => names.iter().all(|name| has(name)),
            Keyword::Dependency(name, dependent) => {
                !has(name)
                    || match dependent {
                        Dependent::Fields(names) => names.iter().all(|name| has(name)),
                        Dependent::Schema(schema) => schema.matches(document),
                    }
            }
            Keyword::Object(rules) => fields(document).all(|(name, value)| {
                let own = rules.properties.get(name);
                if own.is_some_and(|schema| !schema.holds(value)) {
                    return false;
                }
                let mut is_known = own.is_some();
                for (pattern, schema) in &rules.patterns {
                    if pattern.regex().is_match(name) {
                        is_known = true;
                        if !schema.holds(value) {
                            return false;
                        }
                    }
                }
                is_known || rules.others.holds(value)
            }),
            _ => true,
        }
    }
}

/// Whether a number is a multiple of another one; values that are none are.
fn is_multiple(value: RawBsonRef<'_>, unit: RawBsonRef<'_>) -> bool {
    let Some(number) = Number::of(value) else { return true };
    let whole = |value| Number::of(value).and_then(Number::whole);
    if let (Some(value), Some(unit)) = (number.whole(), whole(unit)) {
        return value.checked_rem(unit).is_none_or(|rest| rest == 0);
    }
    match (crate::value::to_double(value), crate::value::to_double(unit)) {
        (Some(value), Some(unit)) => value % unit == 0.0,
        _ => false,
    }
}
