//! A parsed filter, and whether a document matches it.

use super::bits::Bits;
use super::pattern::Pattern;
use super::types::TypeSet;
use crate::error::DocumentError;
use crate::expression::Expression;
use crate::geo::{Near, Region};
use crate::number::Number;
use crate::order::{Class, compare};
use crate::path::{Found, Leaves, Path};
use crate::raw::elements;
use crate::schema::Schema;
use crate::variables::Env;
use bson::RawBson;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use remora_layout::rect::Rect;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

/// One part of a filter document.
#[derive(Debug, Clone)]
pub(super) enum Clause {
    And(Vec<Clause>),
    Or(Vec<Clause>),
    Nor(Vec<Clause>),
    Field(Path, Vec<Test>),
    /// `$expr`: at the top of a filter only.
    Expression(Expression),
    /// `$jsonSchema`.
    Schema(Arc<Schema>),
    /// Whether all documents match.
    Always(bool),
}

/// What the expressions of a filter see, and the first error of one.
pub(super) struct Evaluation<'e> {
    pub(super) env: &'e Env<'e>,
    pub(super) error: RefCell<Option<DocumentError>>,
}

impl Evaluation<'_> {
    /// Whether an expression counts as true for a document. After an error nothing matches.
    fn holds(&self, expression: &Expression, document: &RawDocument) -> bool {
        if self.error.borrow().is_some() {
            return false;
        }
        match expression.evaluate(document, self.env) {
            Ok(value) => value.is_true(),
            Err(error) => {
                *self.error.borrow_mut() = Some(error);
                false
            }
        }
    }
}

/// What a field must satisfy.
#[derive(Debug, Clone)]
pub(super) enum Test {
    /// A value at the path satisfies the predicate.
    Any(Predicate),
    /// Not all of the tests hold.
    Not(Vec<Test>),
    /// Nothing matches: `$all` without elements.
    Never,
}

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
    Mod {
        divisor: i64,
        remainder: i64,
    },
    Pattern(Pattern),
    Size(usize),
    Bits(Bits),
    ElemMatchDocument(Vec<Clause>),
    ElemMatchValue(Vec<Test>),
    /// `$geoWithin` and `$geoIntersects`.
    Region(Arc<Region>),
    /// `$near` and `$nearSphere`.
    Near(Near),
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
    /// Which parts it looks at of an array at the end of a path.
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
            Predicate::Region(region) => region.holds(value),
            Predicate::Near(near) => near.holds(value),
            Predicate::Size(size) => value
                .as_array()
                .is_some_and(|array| elements(array).take(size.saturating_add(1)).count() == *size),
            Predicate::ElemMatchDocument(clauses) => value.as_array().is_some_and(|array| {
                elements(array).any(|element| match element {
                    RawBsonRef::Document(inner) => all(clauses, Root::Document(inner)),
                    RawBsonRef::Array(inner) => all(clauses, Root::Array(inner)),
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

/// What the paths of clauses begin at: a document, or an array as `$elemMatch` sees one in an array.
#[derive(Clone, Copy)]
pub(super) enum Root<'d> {
    Document(&'d RawDocument),
    Array(&'d RawArray),
}

/// Whether all clauses hold. The depth of the filter bounds the recursion.
pub(super) fn all(clauses: &[Clause], root: Root<'_>) -> bool {
    all_with(clauses, root, None)
}

/// The same with what the clauses' expressions see.
pub(super) fn all_with(
    clauses: &[Clause],
    root: Root<'_>,
    evaluation: Option<&Evaluation<'_>>,
) -> bool {
    clauses.iter().all(|clause| clause.holds(root, evaluation))
}

impl Clause {
    fn holds(&self, root: Root<'_>, evaluation: Option<&Evaluation<'_>>) -> bool {
        match self {
            Clause::And(clauses) => all_with(clauses, root, evaluation),
            Clause::Or(clauses) => clauses.iter().any(|clause| clause.holds(root, evaluation)),
            Clause::Nor(clauses) => !clauses.iter().any(|clause| clause.holds(root, evaluation)),
            Clause::Always(holds) => *holds,
            Clause::Expression(expression) => match (root, evaluation) {
                (Root::Document(document), Some(evaluation)) => {
                    evaluation.holds(expression, document)
                }
                _ => false,
            },
            Clause::Schema(schema) => match root {
                Root::Document(document) => schema.matches(document),
                Root::Array(_) => false,
            },
            Clause::Field(path, tests) => tests.iter().all(|test| test.holds_at(path, root)),
        }
    }
}

impl Test {
    /// Whether it holds for the values at a path.
    pub(super) fn holds_at(&self, path: &Path, root: Root<'_>) -> bool {
        match self {
            Test::Any(predicate) => {
                let leaves = predicate.leaves();
                let see = &mut |found: Found<'_>| {
                    if predicate.holds(found.value()) {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                };
                match root {
                    Root::Document(document) => path.visit(document, leaves, see).is_break(),
                    Root::Array(array) => path.visit_array(array, leaves, see).is_break(),
                }
            }
            Test::Not(tests) => !tests.iter().all(|test| test.holds_at(path, root)),
            Test::Never => false,
        }
    }

    /// Whether it holds for one value, which is an element of an array.
    pub(super) fn holds(&self, value: RawBsonRef<'_>) -> bool {
        match self {
            Test::Any(predicate) => predicate.holds(Some(value)),
            Test::Not(tests) => !tests.iter().all(|test| test.holds(value)),
            Test::Never => false,
        }
    }
}

/// The first `$near` that all matching documents must satisfy. The depth of the filter bounds the recursion.
pub(super) fn near(clauses: &[Clause]) -> Option<&Near> {
    clauses.iter().find_map(|clause| match clause {
        Clause::And(inner) => near(inner),
        Clause::Field(_, tests) => tests.iter().find_map(|test| match test {
            Test::Any(Predicate::Near(near)) => Some(near),
            _ => None,
        }),
        _ => None,
    })
}

/// Rectangles of a region at a path that all matching documents must satisfy. The depth of the filter bounds the
/// recursion.
pub(super) fn windows(clauses: &[Clause], path: &str) -> Option<Vec<Rect>> {
    clauses.iter().find_map(|clause| match clause {
        Clause::And(inner) => windows(inner, path),
        Clause::Field(of, tests) if of.as_str() == path => {
            tests.iter().find_map(|test| match test {
                Test::Any(Predicate::Region(region)) => Some(region.windows()),
                _ => None,
            })
        }
        _ => None,
    })
}

/// Whether a region has given up on the document that was looked at; all of them begin anew.
pub(super) fn has_given_up(clauses: &[Clause]) -> bool {
    // All are asked: each begins anew.
    clauses.iter().fold(false, |before, clause| {
        before
            | match clause {
                Clause::And(inner) | Clause::Or(inner) | Clause::Nor(inner) => has_given_up(inner),
                Clause::Field(_, tests) => tests_have_given_up(tests),
                Clause::Expression(_) | Clause::Schema(_) | Clause::Always(_) => false,
            }
    })
}

fn tests_have_given_up(tests: &[Test]) -> bool {
    tests.iter().fold(false, |before, test| {
        before
            | match test {
                Test::Not(inner) | Test::Any(Predicate::ElemMatchValue(inner)) => {
                    tests_have_given_up(inner)
                }
                Test::Any(Predicate::ElemMatchDocument(inner)) => has_given_up(inner),
                Test::Any(Predicate::Region(region)) => region.has_given_up(),
                Test::Any(_) | Test::Never => false,
            }
    })
}
