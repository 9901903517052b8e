//! What a filter says of the keys of an index: intervals of encoded values, by path.
//!
//! Invariant: a document that matches has, for each of these intervals, a key whose value at the path lies in it
//! ([`crate::document_keys`]). The values of several conditions may be those of several keys, if the path leads
//! through an array. What says nothing of keys, as `$ne`, has no intervals.

use super::Filter;
use super::expression::{Clause, Comparison, Predicate, Test};
use crate::error::DocumentError;
use crate::key::{Direction, encode};
use crate::number::Number;
use crate::order::Class;
use bson::RawBson;
use bson::raw::RawBsonRef;

const NOT_SINGLE_VALUE_FIELD: i32 = 54;

/// Encoded values from one up to another one, which is not among them. An empty end is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// The first one, or what the first ones begin with.
    pub from: Vec<u8>,
    /// The end.
    pub to: Vec<u8>,
    /// It has one value only, which is `from`.
    pub is_point: bool,
}

/// What one condition says of the values at its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// One value at least lies in one of these. In ascending order; no two of them meet.
    pub intervals: Vec<Interval>,
    /// A value in one of these meets the condition.
    pub is_exact: bool,
    /// A document without the field does not match.
    pub needs_value: bool,
}

/// The least bytes above all that begin with these; empty if there are none.
#[must_use]
pub fn behind(bytes: &[u8]) -> Vec<u8> {
    let kept = bytes.iter().rposition(|byte| *byte != u8::MAX);
    let Some(last) = kept else { return Vec::new() };
    let mut behind = bytes[..=last].to_vec();
    behind[last] += 1;
    behind
}

impl Interval {
    /// All values.
    pub const ALL: Self = Self { from: Vec::new(), to: Vec::new(), is_point: false };

    /// One encoded value.
    fn point(from: Vec<u8>) -> Self {
        Self { to: behind(&from), from, is_point: true }
    }

    fn between(from: Vec<u8>, to: Vec<u8>) -> Self {
        Self { from, to, is_point: false }
    }

    fn of_class(class: Class) -> Self {
        Self::between(vec![class as u8], vec![class as u8 + 1])
    }

    /// Whether it has no end.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.to.is_empty()
    }

    fn is_empty(&self) -> bool {
        !self.is_open() && self.from >= self.to
    }

    fn contains(&self, other: &Self) -> bool {
        self.from <= other.from && (self.is_open() || (!other.is_open() && other.to <= self.to))
    }

    fn and(&self, other: &Self) -> Option<Self> {
        if self.is_point || other.is_point {
            let (point, whole) = if self.is_point { (self, other) } else { (other, self) };
            return whole.contains(point).then(|| point.clone());
        }
        let to = match (self.is_open(), other.is_open()) {
            (true, _) => &other.to,
            (_, true) => &self.to,
            _ => (&self.to).min(&other.to),
        };
        let both = Self::between((&self.from).max(&other.from).clone(), to.clone());
        (!both.is_empty()).then_some(both)
    }
}

/// The values in both of two lists, each in ascending order.
#[must_use]
pub fn intersection(one: &[Interval], other: &[Interval]) -> Vec<Interval> {
    let (mut all, mut first) = (Vec::new(), 0);
    for of in one {
        // Those that end before this one begins meet none of the later ones either.
        while other.get(first).is_some_and(|with| !with.is_open() && with.to <= of.from) {
            first += 1;
        }
        let meets = |with: &&Interval| of.is_open() || with.from < of.to;
        all.extend(other[first..].iter().take_while(meets).filter_map(|with| of.and(with)));
    }
    all
}

impl Bounds {
    fn exact(intervals: Vec<Interval>) -> Self {
        Self { intervals, is_exact: true, needs_value: true }
    }

    fn covers(&self, other: &Self) -> bool {
        let is_covered = |of: &Interval| self.intervals.iter().any(|with| with.contains(of));
        other.intervals.iter().all(is_covered)
    }
}

impl Filter {
    /// The bounds that the filter's conditions have of the values at a path: each condition by itself.
    ///
    /// ```
    /// use bson::rawdoc;
    /// use remora_document::Filter;
    ///
    /// let filter = Filter::parse(&rawdoc! { "a": { "$in": [3, 1] }, "b": { "$ne": 2 } })?;
    /// assert_eq!(filter.bounds("a")[0].intervals.len(), 2);
    /// assert!(filter.bounds("b").is_empty());
    /// # Ok::<(), remora_document::DocumentError>(())
    /// ```
    #[must_use]
    pub fn bounds(&self, path: &str) -> Vec<Bounds> {
        let mut all = Vec::new();
        each_test(&self.clauses, &mut |of, test| of_test(of, test, path, &mut all));
        all
    }

    /// How many conditions all have to hold; what is no condition on one field counts as one.
    #[must_use]
    pub fn conditions(&self) -> usize {
        conditions(&self.clauses)
    }

    /// Whether each document that matches this filter matches the other one, too. If that is false, it is not
    /// known.
    #[must_use]
    pub fn implies(&self, other: &Filter) -> bool {
        let mut implied = 0;
        each_test(&other.clauses, &mut |path, test| {
            let Test::Any(predicate) = test else { return };
            let own = self.bounds(path.as_str());
            let is_implied = match predicate {
                Predicate::Exists => own.iter().any(|of| of.needs_value),
                _ => of_predicate(predicate, path.indexes() > 0)
                    .filter(|bounds| bounds.is_exact)
                    .is_some_and(|bounds| own.iter().any(|of| bounds.covers(of))),
            };
            implied += usize::from(is_implied);
        });
        implied == other.conditions()
    }

    /// The values that fields must be equal to, which a document has that is made because none matches.
    ///
    /// # Errors
    /// One field must be equal to two values.
    pub fn equalities(&self) -> Result<Vec<(&str, &RawBson)>, DocumentError> {
        let mut all: Vec<(&str, &RawBson)> = Vec::new();
        let mut twice = None;
        each_test(&self.clauses, &mut |path, test| {
            let value = match test {
                Test::Any(Predicate::Compare(Comparison::Equal, value)) => value,
                Test::Any(Predicate::In(list))
                    if list.values.len() == 1 && list.patterns.is_empty() =>
                {
                    &list.values[0]
                }
                _ => return,
            };
            if all.iter().any(|(of, _)| *of == path.as_str()) {
                twice = Some(path.as_str());
            }
            all.push((path.as_str(), value));
        });
        let Some(path) = twice else { return Ok(all) };
        let text = format!("cannot infer query fields to set, path '{path}' is matched twice");
        Err(DocumentError::new(NOT_SINGLE_VALUE_FIELD, text))
    }
}

/// Hands over the tests that all have to hold. The depth of the filter bounds the recursion.
fn each_test<'f>(clauses: &'f [Clause], each: &mut dyn FnMut(&'f crate::Path, &'f Test)) {
    for clause in clauses {
        match clause {
            Clause::And(inner) => each_test(inner, each),
            Clause::Field(path, tests) => tests.iter().for_each(|test| each(path, test)),
            _ => {}
        }
    }
}

fn conditions(clauses: &[Clause]) -> usize {
    let count = |clause: &Clause| match clause {
        Clause::And(inner) => conditions(inner),
        Clause::Field(_, tests) => tests.len(),
        _ => 1,
    };
    clauses.iter().map(count).sum()
}

/// Adds what a test at a path says of the values at another one.
fn of_test(of: &crate::Path, test: &Test, path: &str, all: &mut Vec<Bounds>) {
    let Test::Any(predicate) = test else { return };
    if of.as_str() == path {
        all.extend(of_predicate(predicate, of.indexes() > 0));
        return;
    }
    let below = path.strip_prefix(of.as_str()).and_then(|rest| rest.strip_prefix('.'));
    let (Predicate::ElemMatchDocument(clauses), Some(below)) = (predicate, below) else { return };
    if below.split('.').any(|name| name.starts_with(|first: char| first.is_ascii_digit())) {
        // A position in the array that is matched is not one of an array in it.
        return;
    }
    let before = all.len();
    each_test(clauses, &mut |of, test| of_test(of, test, below, all));
    // They are about one element: a key of another one may lie in them, too.
    all[before..].iter_mut().for_each(|bounds| bounds.is_exact = false);
}

/// What a predicate says of the value that meets it. `is_positional`: the path has numbers, so that a field may
/// be missing beside others that the index has.
fn of_predicate(predicate: &Predicate, is_positional: bool) -> Option<Bounds> {
    let bounds = match predicate {
        Predicate::Compare(comparison, value) => {
            Bounds::exact(of_comparison(*comparison, value.as_raw_bson_ref())?)
        }
        Predicate::In(list) if list.patterns.is_empty() => {
            let points = list
                .values
                .iter()
                .map(|value| of_comparison(Comparison::Equal, value.as_raw_bson_ref()));
            let mut all: Vec<Interval> = points.collect::<Option<Vec<_>>>()?.concat();
            all.sort_unstable_by(|one, other| one.from.cmp(&other.from));
            all.dedup();
            Bounds::exact(all)
        }
        Predicate::Exists => Bounds::exact(vec![Interval::ALL]),
        Predicate::ElemMatchValue(tests) => {
            let mut all = vec![Interval::ALL];
            for test in tests {
                // Others are about what is in an element.
                let Test::Any(predicate @ (Predicate::Compare(..) | Predicate::In(_))) = test
                else {
                    continue;
                };
                if let Some(bounds) = of_predicate(predicate, false) {
                    all = intersection(&all, &bounds.intervals);
                }
            }
            return Some(Bounds { intervals: all, is_exact: false, needs_value: true });
        }
        _ => return None,
    };
    if !predicate.holds(None) {
        return Some(bounds);
    }
    // A missing field is as null.
    let has_null = bounds.intervals.iter().any(|of| of.from == [Class::Null as u8]);
    let inexact = Bounds { is_exact: false, needs_value: false, ..bounds };
    (has_null && !is_positional).then_some(inexact)
}

/// The values of which a comparison holds; `None` if their keys are not known.
fn of_comparison(comparison: Comparison, with: RawBsonRef<'_>) -> Option<Vec<Interval>> {
    let class = Class::of(with);
    if matches!(class, Class::Array | Class::MinKey | Class::MaxKey | Class::Undefined) {
        // Of an array the index has the elements. The ends compare with all classes.
        return None;
    }
    let mut key = Vec::new();
    encode(with, Direction::Ascending, &mut key).ok()?;
    let is_nan = Number::of(with).is_some_and(Number::is_nan);
    if comparison == Comparison::Equal {
        return Some(vec![Interval::point(key)]);
    }
    if is_nan {
        // It is equal to itself, and neither below nor above anything.
        let has_equal = matches!(comparison, Comparison::LessOrEqual | Comparison::GreaterOrEqual);
        return Some(if has_equal { vec![Interval::point(key)] } else { Vec::new() });
    }
    let of_class = Interval::of_class(class);
    let first = match class {
        Class::Number => {
            // Behind NaN, which is no number to compare with.
            let mut least = Vec::new();
            let infinity = RawBsonRef::Double(f64::NEG_INFINITY);
            encode(infinity, Direction::Ascending, &mut least).ok()?;
            least
        }
        _ => of_class.from,
    };
    let interval = match comparison {
        Comparison::Less => Interval::between(first, key),
        Comparison::LessOrEqual => Interval::between(first, behind(&key)),
        Comparison::Greater => Interval::between(behind(&key), of_class.to),
        _ => Interval::between(key, of_class.to),
    };
    Some(if interval.is_empty() { Vec::new() } else { vec![interval] })
}
