//! What filters say of the keys of indexes, and the keys that documents have.

use crate::generate::{document, filter, filter_and_near};
use bson::{Document, RawDocumentBuf};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use remora_document::{Direction, Filter, IndexField, Interval, Path, document_keys};
use std::cell::Cell;

const PATHS: [&str; 10] = ["a", "b", "0", "a.b", "a.0", "a.0.b", "b.a.1", "0.0", "0.0.0", "a.a.a"];
const MORE: [&str; 4] = ["a.a", "b.a", "a.b.b", "b.0"];

fn raw(document: &Document) -> RawDocumentBuf {
    document.try_into().expect("a valid document")
}

fn field(path: &str) -> [IndexField; 1] {
    [IndexField::new(Path::parse(path).expect("a short path"), Direction::Ascending)]
}

fn lies_in(intervals: &[Interval], key: &[u8]) -> bool {
    intervals.iter().any(|of| &of.from[..] <= key && (of.to.is_empty() || key < &of.to[..]))
}

/// A document that matches has a key in each of the bounds; one without two keys that has, matches.
#[test]
fn keys_of_documents_that_match_lie_in_the_bounds() {
    let cases = ProptestConfig::default().cases.max(8192);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases));
    let (bounded, met) = (Cell::new(0), Cell::new(0));
    let result = runner.run(&filter_and_near(), |(filter, document)| {
        let Ok(parsed) = Filter::parse(&raw(&filter)) else { return Ok(()) };
        let (document, matches) = (raw(&document), parsed.matches(&raw(&document)));
        for path in PATHS.iter().chain(&MORE) {
            let of = field(path);
            let Ok(keys) = document_keys(&of, &document, false) else { continue };
            let sparse = document_keys(&of, &document, true).expect("it has keys");
            let all = parsed.bounds(path);
            let mut is_met = true;
            for bounds in &all {
                let ascend = |two: &[Interval]| two[0].to <= two[1].from;
                prop_assert!(bounds.intervals.windows(2).all(ascend), "{} at {}", filter, path);
                let has_key = keys.keys.iter().any(|key| lies_in(&bounds.intervals, key));
                is_met &= has_key;
                bounded.set(bounded.get() + 1);
                if matches {
                    prop_assert!(has_key, "{} at {} has no key of {:?}", filter, path, document);
                    let is_sparse = bounds.needs_value && sparse.keys.is_empty();
                    prop_assert!(!is_sparse, "{} at {} of {:?}", filter, path, document);
                    met.set(met.get() + 1);
                }
            }
            let are_exact = all.iter().all(|bounds| bounds.is_exact);
            if !all.is_empty()
                && all.len() == parsed.conditions()
                && are_exact
                && keys.multikey == 0
            {
                let has_value = all.iter().all(|of| !of.needs_value) || !sparse.keys.is_empty();
                prop_assert_eq!(is_met && has_value, matches, "{} of {:?}", filter, document);
            }
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    assert!(bounded.get() > 1_000 && met.get() > 50, "{} of {}", met.get(), bounded.get());
}

proptest! {
    /// What is said to follow from a filter does.
    #[test]
    fn what_follows_from_a_filter_matches(one in filter(), other in filter(), document in document()) {
        let both = Document::from_iter([("$and".to_owned(), bson::bson!([one.clone(), other.clone()]))]);
        for (filter, of) in [(&one, &other), (&both, &one), (&one, &one)] {
            let (Ok(filter), Ok(of)) = (Filter::parse(&raw(filter)), Filter::parse(&raw(of))) else { continue };
            if filter.implies(&of) && filter.matches(&raw(&document)) {
                prop_assert!(of.matches(&raw(&document)));
            }
        }
    }

    /// A position is one of the array, and looking for it does not fail.
    #[test]
    fn a_position_is_found_or_not(filter in filter(), document in document()) {
        if let Ok(filter) = Filter::parse(&raw(&filter)) {
            prop_assert!(filter.position(&raw(&document)).is_none_or(|at| at < 100));
        }
    }
}

#[test]
fn what_a_condition_implies() {
    let parse = |of: Document| Filter::parse(&raw(&of)).expect("a filter");
    for (one, other, wanted) in [
        (bson::doc! { "a": 5 }, bson::doc! { "a": { "$gt": 3 } }, true),
        (bson::doc! { "a": { "$gt": 5 } }, bson::doc! { "a": { "$gte": 3 } }, true),
        (bson::doc! { "a": { "$gt": 3 } }, bson::doc! { "a": { "$gt": 5 } }, false),
        (bson::doc! { "a": { "$in": [4, 5] } }, bson::doc! { "a": { "$gt": 3 } }, true),
        (bson::doc! { "a": 5, "b": 1 }, bson::doc! { "a": { "$exists": true } }, true),
        (bson::doc! { "a": null }, bson::doc! { "a": { "$exists": true } }, false),
        (bson::doc! { "a": "x" }, bson::doc! { "a": { "$gt": 3 } }, false),
        (bson::doc! { "a": 5 }, bson::doc! { "a": { "$gt": 3 }, "b": 1 }, false),
        (bson::doc! { "a": 5 }, bson::doc! {}, true),
    ] {
        assert_eq!(parse(one.clone()).implies(&parse(other.clone())), wanted, "{one}, {other}");
    }
}
