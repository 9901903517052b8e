//! What one value must satisfy.

use super::bits::Bits;
use super::matching::{self, Root};
use super::pattern::Pattern;
use super::types::TypeSet;
use super::{Clause, Test};
use crate::number::Number;
use crate::order::{Class, compare};
use crate::path::Leaves;
use crate::raw::elements;
use bson::RawBson;
use bson::raw::RawBsonRef;
use std::cmp::Ordering;

/// An operator that compares with a value of the same class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub(super) fn of(name: &str) -> Option<Comparison> {
        Some(match name {
            "$eq" => Comparison::Equal,
            "$lt" => Comparison::Less,
            "$lte" => Comparison::LessOrEqual,
            "$gt" => Comparison::Greater,
            "$gte" => Comparison::GreaterOrEqual,
            _ => return None,
        })
    }

    fn allows(self, order: Ordering) -> bool {
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// What one value must satisfy.
#[derive(Debug, Clone)]
pub(super) enum Predicate {
    Compare(Comparison, RawBson),
    In(InList),
    Exists,
    Type(TypeSet),
    Mod { divisor: i64, remainder: i64 },
    Pattern(Pattern),
    Size(usize),
    Bits(Bits),
    ElemMatchDocument(Vec<Clause>),
    ElemMatchValue(Vec<Test>),
}

/// The argument of `$in`.
#[derive(Debug, Clone)]
pub(super) struct InList {
    /// In the order of [`compare`].
    pub(super) values: Vec<RawBson>,
    pub(super) has_null: bool,
    pub(super) patterns: Vec<Pattern>,
}

impl Predicate {
    /// What of an array at the end of a path it looks at.
    pub(super) fn leaves(&self) -> Leaves {
        match self {
            Predicate::Size(_)
            | Predicate::ElemMatchDocument(_)
            | Predicate::ElemMatchValue(_)
            | Predicate::Exists => Leaves::Whole,
            _ => Leaves::ElementsAndWhole,
        }
    }

    /// Whether a value satisfies it, or a missing field.
    pub(super) fn holds(&self, value: Option<RawBsonRef<'_>>) -> bool {
        let Some(value) = value else { return self.holds_missing() };
        match self {
            Predicate::Compare(comparison, with) => {
                compares(*comparison, value, with.as_raw_bson_ref())
            }
            Predicate::In(list) => list.contains(value),
            Predicate::Exists => true,
            Predicate::Type(types) => types.contains(value.element_type()),
            Predicate::Mod { divisor, remainder } => {
                let whole = Number::of(value).and_then(Number::integer_part);
                // The remainder by -1 is 0, also that of the least integer.
                whole.is_some_and(|(whole, _)| whole.wrapping_rem(*divisor) == *remainder)
            }
            Predicate::Pattern(pattern) => pattern.matches(value),
            Predicate::Bits(bits) => bits.matches(value),
            Predicate::Size(size) => value
                .as_array()
                .is_some_and(|array| elements(array).take(size.saturating_add(1)).count() == *size),
            Predicate::ElemMatchDocument(clauses) => value.as_array().is_some_and(|array| {
                elements(array).any(|element| match element {
                    RawBsonRef::Document(inner) => matching::all(clauses, Root::Document(inner)),
                    RawBsonRef::Array(inner) => matching::all(clauses, Root::Array(inner)),
                    _ => false,
                })
            }),
            Predicate::ElemMatchValue(tests) => value.as_array().is_some_and(|array| {
                elements(array).any(|element| tests.iter().all(|test| test.holds(element)))
            }),
        }
    }

    fn holds_missing(&self) -> bool {
        match self {
            Predicate::Compare(comparison, RawBson::Null) => comparison.allows(Ordering::Equal),
            Predicate::Compare(comparison, RawBson::MinKey) => comparison.allows(Ordering::Greater),
            Predicate::Compare(comparison, RawBson::MaxKey) => comparison.allows(Ordering::Less),
            Predicate::In(list) => list.has_null,
            _ => false,
        }
    }
}

impl InList {
    fn contains(&self, value: RawBsonRef<'_>) -> bool {
        let is_equal =
            self.values.binary_search_by(|probe| compare(probe.as_raw_bson_ref(), value)).is_ok();
        is_equal || self.patterns.iter().any(|pattern| pattern.matches(value))
    }
}

fn compares(comparison: Comparison, value: RawBsonRef<'_>, with: RawBsonRef<'_>) -> bool {
    let class = Class::of(with);
    if Class::of(value) != class {
        // Only the ends of the order compare with other classes.
        let is_end = matches!(class, Class::MinKey | Class::MaxKey);
        return is_end && comparison.allows(compare(value, with));
    }
    let is_nan = |value| Number::of(value).is_some_and(Number::is_nan);
    if is_nan(value) != is_nan(with) {
        return false;
    }
    comparison.allows(compare(value, with))
}
