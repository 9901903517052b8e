//! Filters against the naive implementation.

use crate::generate::{document, filter};
use crate::naive;
use bson::{Bson, Document, RawDocumentBuf};
use proptest::prelude::*;
use remora_document::Filter;
use std::cell::Cell;

fn raw(document: &Document) -> RawDocumentBuf {
    document.try_into().expect("a valid document")
}

/// The one error that a random filter can have.
const NESTED: &str = "$elemMatch in $elemMatch: the path has more than one number";

/// The number of matches shows that the cases say something.
#[test]
fn random_filters_match_as_the_naive_ones() {
    let config = ProptestConfig::with_cases(8192);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let (matched, all) = (Cell::new(0), Cell::new(0));
    let result = runner.run(&(filter(), document()), |(filter, document)| {
        let parsed = match Filter::parse(&raw(&filter)) {
            Ok(parsed) => parsed,
            Err(error) if error.message() == NESTED => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(format!("{filter}: {error}"))),
        };
        let found = parsed.matches(&raw(&document));
        let expected = naive::matches(&filter, &Bson::Document(document.clone()));
        prop_assert_eq!(found, expected, "{} on {}", filter, document);
        matched.set(matched.get() + u32::from(found));
        all.set(all.get() + 1);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let share = f64::from(matched.get()) / f64::from(all.get());
    assert!((0.1..0.9).contains(&share), "{share} of all match");
}
