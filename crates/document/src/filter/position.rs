//! The element of an array by which a document matches: what `$` means in the path of an update.

use super::Filter;
use super::expression::{Clause, Predicate, Root, Test, all};
use crate::path::Path;
use crate::raw::{elements, fields};
use bson::raw::{RawBsonRef, RawDocument};

impl Filter {
    /// The position of the first element that meets a condition on an array; of the last such condition, as in
    /// MongoDB. `None` if no condition is about an array.
    ///
    /// ```
    /// use bson::rawdoc;
    /// use remora_document::Filter;
    ///
    /// let filter = Filter::parse(&rawdoc! { "a.b": { "$gt": 1 } })?;
    /// assert_eq!(filter.position(&rawdoc! { "a": [{ "b": 1 }, { "b": 2 }] }), Some(1));
    /// assert_eq!(filter.position(&rawdoc! { "a": { "b": 2 } }), None);
    /// # Ok::<(), remora_document::DocumentError>(())
    /// ```
    #[must_use]
    pub fn position(&self, document: &RawDocument) -> Option<usize> {
        of_clauses(&self.clauses, document)
    }
}

/// The depth of the filter bounds the recursion.
fn of_clauses(clauses: &[Clause], document: &RawDocument) -> Option<usize> {
    let mut found = None;
    for clause in clauses {
        let of_this = match clause {
            Clause::And(inner) => of_clauses(inner, document),
            Clause::Field(path, tests) => {
                tests.iter().filter_map(|test| of_test(path, test, document)).next_back()
            }
            _ => None,
        };
        found = of_this.or(found);
    }
    found
}

fn of_test(path: &Path, test: &Test, document: &RawDocument) -> Option<usize> {
    let Test::Any(predicate) = test else { return None };
    let (mut at, mut names) = (document, path.as_str());
    // Bounded by the path: each turn takes a name off it.
    loop {
        let (name, rest) = names.split_once('.').unwrap_or((names, ""));
        match fields(at).find(|(of, _)| *of == name)?.1 {
            RawBsonRef::Document(inner) if !rest.is_empty() => (at, names) = (inner, rest),
            RawBsonRef::Array(array) => {
                let rest = (!rest.is_empty()).then(|| Path::parse(rest).ok()).flatten();
                return elements(array)
                    .position(|element| holds_in(predicate, test, rest.as_ref(), element));
            }
            _ => return None,
        }
    }
}

/// Whether an element of an array meets a test, whose path goes on in it.
fn holds_in(
    predicate: &Predicate,
    test: &Test,
    rest: Option<&Path>,
    element: RawBsonRef<'_>,
) -> bool {
    match (rest, predicate, element) {
        (Some(rest), _, RawBsonRef::Document(inner)) => test.holds_at(rest, Root::Document(inner)),
        (Some(_), ..) => false,
        (None, Predicate::ElemMatchDocument(clauses), RawBsonRef::Document(inner)) => {
            all(clauses, Root::Document(inner))
        }
        (None, Predicate::ElemMatchValue(tests), _) => tests.iter().all(|test| test.holds(element)),
        (None, ..) => test.holds(element),
    }
}
