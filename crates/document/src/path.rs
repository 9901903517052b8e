//! The values at a dotted path, through arrays, as MongoDB finds them.
//!
//! A name leads into the field of a document. An array on the way is entered: the rest of the path is
//! looked up in each of its documents, and a name that is a number also leads to the element at that
//! index. Arrays directly inside arrays are entered by index only.
//!
//! A name such as `0` can be both an index and a field, so several positions of the path can be
//! current in one document. All of them are looked up at once, as a set. So each document and each
//! array is visited once, whatever the path.

use crate::raw::{as_document, elements};
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use remora_layout::limits::{MAX_DOCUMENT_DEPTH, MAX_PATH_PARTS};
use std::ops::ControlFlow;
use thiserror::Error;

/// A dotted path, divided into its names.
///
/// ```
/// use bson::{raw::RawBsonRef, rawdoc};
/// use remora_document::{Found, Leaves, Path};
/// use std::ops::ControlFlow;
///
/// let path = Path::parse("a.b")?;
/// let document = rawdoc! { "a": [{ "b": 1 }, { "b": [2, 3] }, { "c": 4 }, 5] };
/// let mut found = Vec::new();
/// let _ = path.visit(&document, Leaves::Elements, &mut |value| {
///     found.push(match value {
///         Found::Value(value) => value.as_i32(),
///         Found::Missing => None,
///     });
///     ControlFlow::<()>::Continue(())
/// });
/// assert_eq!(found, [Some(1), Some(2), Some(3), None]);
/// # Ok::<(), remora_document::PathTooLong>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    name: String,
    /// The index that the name is, if it is a decimal number without leading zeros.
    index: Option<u32>,
}

/// A path has more than [`MAX_PATH_PARTS`] names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a path has more than {MAX_PATH_PARTS} names")]
pub struct PathTooLong;

/// What a visit passes on if a path ends at an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// The array.
    Whole,
    /// Its elements, then the array: for comparisons of filters.
    ElementsAndWhole,
    /// Its elements, or undefined if it has none: for the keys of indexes.
    Elements,
}

/// What a visit finds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found<'d> {
    /// A value.
    Value(RawBsonRef<'d>),
    /// A document on the way has no such field. Filters and indexes take it as null.
    Missing,
}

impl<'d> Found<'d> {
    /// The value, if there is one.
    #[must_use]
    pub fn value(self) -> Option<RawBsonRef<'d>> {
        match self {
            Found::Value(value) => Some(value),
            Found::Missing => None,
        }
    }
}

impl Path {
    /// Divides a path at its dots.
    ///
    /// # Errors
    ///
    /// If it has more than [`MAX_PATH_PARTS`] names.
    pub fn parse(text: &str) -> Result<Path, PathTooLong> {
        if text.split('.').nth(MAX_PATH_PARTS).is_some() {
            return Err(PathTooLong);
        }
        let part = |name: &str| Part { name: name.to_owned(), index: index(name) };
        Ok(Path { text: text.to_owned(), parts: text.split('.').map(part).collect() })
    }

    /// The path as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How many of its names are numbers, and so can be indexes.
    pub(crate) fn indexes(&self) -> usize {
        self.parts.iter().filter(|part| part.index.is_some()).count()
    }

    /// Passes what lies at the path in `document` to `see`, until it breaks. The order of the values is
    /// that of the document.
    ///
    /// Nothing is found where the path leads into an array without documents.
    pub fn visit<'d, B>(
        &self,
        document: &'d RawDocument,
        leaves: Leaves,
        see: &mut dyn FnMut(Found<'d>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        Visit { parts: &self.parts, leaves, see }.document(document, Positions::FIRST, 1)
    }

    /// The same in an array, whose elements are the fields of a document with the names of BSON.
    pub(crate) fn visit_array<'d, B>(
        &self,
        array: &'d RawArray,
        leaves: Leaves,
        see: &mut dyn FnMut(Found<'d>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match as_document(array) {
            Some(document) => self.visit(document, leaves, see),
            None => see(Found::Missing),
        }
    }
}

fn index(name: &str) -> Option<u32> {
    let is_number =
        name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
    // An empty name is no number.
    is_number.then(|| name.parse().ok()).flatten()
}

/// A set of positions in a path.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Positions(u128);

impl Positions {
    const NONE: Positions = Positions(0);
    const FIRST: Positions = Positions(1);

    fn insert(&mut self, at: usize) {
        self.0 |= 1 << at;
    }

    fn union(self, other: Positions) -> Positions {
        Positions(self.0 | other.0)
    }

    fn without(self, other: Positions) -> Positions {
        Positions(self.0 & !other.0)
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let at = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(at)
        })
    }
}

struct Visit<'v, 'd, B> {
    parts: &'v [Part],
    leaves: Leaves,
    see: &'v mut dyn FnMut(Found<'d>) -> ControlFlow<B>,
}

/// Positions that one name matches, the positions behind them, and whether it ends the path.
struct Step {
    matched: Positions,
    behind: Positions,
    is_leaf: bool,
}

impl<'d, B> Visit<'_, 'd, B> {
    fn step(&self, at: Positions, is_match: impl Fn(&Part) -> bool) -> Step {
        let mut step = Step { matched: Positions::NONE, behind: Positions::NONE, is_leaf: false };
        for position in at.iter().filter(|position| is_match(&self.parts[*position])) {
            step.matched.insert(position);
            if position + 1 == self.parts.len() {
                step.is_leaf = true;
            } else {
                step.behind.insert(position + 1);
            }
        }
        step
    }

    fn document(
        &mut self,
        document: &'d RawDocument,
        mut at: Positions,
        depth: usize,
    ) -> ControlFlow<B> {
        if depth > MAX_DOCUMENT_DEPTH {
            return ControlFlow::Continue(());
        }
        for element in document.iter_elements() {
            let Ok(element) = element else { break };
            let name = element.key().as_str();
            let step = self.step(at, |part| part.name == name);
            if step.matched.is_empty() {
                continue;
            }
            let Ok(value) = element.value() else { break };
            // The first of several fields with one name counts.
            at = at.without(step.matched);
            if step.is_leaf {
                self.leaf(value)?;
            }
            if !step.behind.is_empty() {
                match value {
                    RawBsonRef::Document(inner) => self.document(inner, step.behind, depth + 1)?,
                    RawBsonRef::Array(inner) => self.array(inner, step.behind, depth + 1)?,
                    _ => (self.see)(Found::Missing)?,
                }
            }
            if at.is_empty() {
                return ControlFlow::Continue(());
            }
        }
        (self.see)(Found::Missing)
    }

    fn array(&mut self, array: &'d RawArray, at: Positions, depth: usize) -> ControlFlow<B> {
        if depth > MAX_DOCUMENT_DEPTH {
            return ControlFlow::Continue(());
        }
        let has_index = at.iter().any(|position| self.parts[position].index.is_some());
        for (index, value) in (0u32..).zip(elements(array)) {
            let step = if has_index {
                self.step(at, |part| part.index == Some(index))
            } else {
                Step { matched: Positions::NONE, behind: Positions::NONE, is_leaf: false }
            };
            if step.is_leaf {
                self.element(value)?;
            }
            match value {
                RawBsonRef::Document(inner) => {
                    self.document(inner, at.union(step.behind), depth + 1)?;
                }
                RawBsonRef::Array(inner) if !step.behind.is_empty() => {
                    self.array(inner, step.behind, depth + 1)?;
                }
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// A value at the end of the path.
    fn leaf(&mut self, value: RawBsonRef<'d>) -> ControlFlow<B> {
        let RawBsonRef::Array(array) = value else { return (self.see)(Found::Value(value)) };
        if self.leaves != Leaves::Whole {
            for element in elements(array) {
                (self.see)(Found::Value(element))?;
            }
        }
        match self.leaves {
            Leaves::Elements if !array.is_empty() => ControlFlow::Continue(()),
            Leaves::Elements => (self.see)(Found::Value(RawBsonRef::Undefined)),
            _ => (self.see)(Found::Value(value)),
        }
    }

    /// An element that an index leads to at the end of the path. Comparisons see it as it is; an index
    /// has the elements of an array.
    fn element(&mut self, value: RawBsonRef<'d>) -> ControlFlow<B> {
        match self.leaves {
            Leaves::Elements => self.leaf(value),
            _ => (self.see)(Found::Value(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, RawDocumentBuf, bson, rawdoc};

    fn found(document: &RawDocumentBuf, path: &str, leaves: Leaves) -> Vec<Option<Bson>> {
        let mut all = Vec::new();
        let path = Path::parse(path).expect("a short path");
        let _ = path.visit(document, leaves, &mut |found| {
            all.push(found.value().map(|value| value.try_into().expect("valid BSON")));
            ControlFlow::<()>::Continue(())
        });
        all
    }

    fn values(document: &RawDocumentBuf, path: &str) -> Vec<Option<Bson>> {
        found(document, path, Leaves::ElementsAndWhole)
    }

    #[test]
    fn fields_of_documents() {
        let document = rawdoc! { "a": { "b": 1, "": 2 }, "c": 3 };
        assert_eq!(values(&document, "a.b"), [Some(bson!(1))]);
        assert_eq!(values(&document, "a."), [Some(bson!(2))]);
        assert_eq!(values(&document, "a.x"), [None]);
        assert_eq!(values(&document, "c.x"), [None]);
        assert_eq!(values(&document, "x.y"), [None]);
    }

    #[test]
    fn arrays_at_the_end() {
        let document = rawdoc! { "a": [1, [2]], "e": [] };
        let all = [Some(bson!(1)), Some(bson!([2])), Some(bson!([1, [2]]))];
        assert_eq!(values(&document, "a"), all);
        assert_eq!(found(&document, "a", Leaves::Whole), all[2..]);
        assert_eq!(found(&document, "a", Leaves::Elements), all[..2]);
        assert_eq!(values(&document, "e"), [Some(bson!([]))]);
        assert_eq!(found(&document, "e", Leaves::Elements), [Some(Bson::Undefined)]);
    }

    #[test]
    fn arrays_on_the_way() {
        let document = rawdoc! { "a": [{ "b": 1 }, 7, [{ "b": 2 }], { "c": 3 }], "e": [] };
        assert_eq!(values(&document, "a.b"), [Some(bson!(1)), None]);
        assert_eq!(values(&document, "a.2.b"), [None, Some(bson!(2)), None]);
        assert_eq!(values(&document, "e.b"), []);
        assert_eq!(values(&document, "a.1.b"), [None, None]);
    }

    #[test]
    fn a_name_that_is_a_number_is_index_and_field() {
        let document = rawdoc! { "a": [5, { "1": 4 }], "b": [[1, 2]], "c": { "0": 9 } };
        assert_eq!(values(&document, "a.1"), [Some(bson!({ "1": 4 })), Some(bson!(4))]);
        assert_eq!(values(&document, "a.01"), [None]);
        assert_eq!(values(&document, "b.0"), [Some(bson!([1, 2]))]);
        assert_eq!(found(&document, "b.0", Leaves::Elements), [Some(bson!(1)), Some(bson!(2))]);
        assert_eq!(values(&document, "b.0.1"), [Some(bson!(2))]);
        assert_eq!(values(&document, "c.0"), [Some(bson!(9))]);
    }

    #[test]
    fn the_first_of_equal_names_counts() {
        let mut document = rawdoc! { "a": 1 };
        document.append(bson::raw::cstr!("a"), 2);
        assert_eq!(values(&document, "a"), [Some(bson!(1))]);
    }

    /// Index and field at each level: the number of ways through grows as Fibonacci's.
    #[test]
    fn many_ways_through_one_document_are_one_visit() {
        let mut value = bson!(1);
        for _ in 0..49 {
            value = bson!([{ "0": value }]);
        }
        let document = rawdoc! { "0": bson::RawBson::try_from(value).expect("valid BSON") };
        let path = vec!["0"; 75].join(".");
        assert!(values(&document, &path).len() < 100);
    }

    #[test]
    fn a_path_has_a_limit() {
        assert!(Path::parse(&vec!["a"; 100].join(".")).is_ok());
        assert_eq!(Path::parse(&vec!["a"; 101].join(".")), Err(PathTooLong));
    }
}
