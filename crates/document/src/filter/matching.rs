//! Matching documents with clauses.

use super::{Clause, Test};
use crate::path::Path;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use std::ops::ControlFlow;

/// What the paths of clauses begin at: a document, or an array as `$elemMatch` sees one in an array.
#[derive(Clone, Copy)]
pub(super) enum Root<'d> {
    Document(&'d RawDocument),
    Array(&'d RawArray),
}

/// Whether all clauses hold. The depth of the filter bounds the recursion.
pub(super) fn all(clauses: &[Clause], root: Root<'_>) -> bool {
    clauses.iter().all(|clause| clause.holds(root))
}

impl Clause {
    fn holds(&self, root: Root<'_>) -> bool {
        match self {
            Clause::And(clauses) => all(clauses, root),
            Clause::Or(clauses) => clauses.iter().any(|clause| clause.holds(root)),
            Clause::Nor(clauses) => !clauses.iter().any(|clause| clause.holds(root)),
            Clause::Field(path, tests) => tests.iter().all(|test| test.holds_at(path, root)),
        }
    }
}

impl Test {
    /// Whether it holds for the values at a path.
    fn holds_at(&self, path: &Path, root: Root<'_>) -> bool {
        match self {
            Test::Any(predicate) => {
                let leaves = predicate.leaves();
                let see = &mut |found: crate::path::Found<'_>| {
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
