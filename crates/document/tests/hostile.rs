//! Bytes that are no documents, or have no good shape.

use crate::generate::{document, filter, value};
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, RawDocumentBuf, bson, rawdoc};
use proptest::prelude::*;
use remora_document::{
    Direction, Filter, Invalid, Leaves, Path, compare_documents, encode, validate,
};
use std::ops::ControlFlow;

/// Calls everything. There is no answer to check.
fn call_all(bytes: &[u8], filters: &[Filter]) {
    let Ok(document) = RawDocument::from_bytes(bytes) else { return };
    let is_valid = validate(document).is_ok();
    let _ = compare_documents(document, document);
    let key = encode(RawBsonRef::Document(document), Direction::Ascending, &mut Vec::new());
    assert_eq!(key.is_ok(), is_valid);
    assert!(is_valid || Filter::parse(document).is_err());
    for filter in filters {
        let _ = filter.matches(document);
    }
    let path = Path::parse("a.0.b").expect("a short path");
    let _ = path.visit(document, Leaves::Elements, &mut |_| ControlFlow::<()>::Continue(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn changed_bytes_do_no_harm(
        value in value(),
        document in document(),
        filter in filter(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let filter = Filter::parse(&RawDocumentBuf::try_from(&filter).expect("a valid document"));
        let filters: Vec<Filter> = filter.into_iter().collect();
        let mut document = document;
        document.insert("a", value);
        let mut bytes = RawDocumentBuf::try_from(&document).expect("a document").into_bytes();
        for (at, byte) in changes {
            // The length and the last byte stay, so that the bytes get in.
            let at = 4 + at.index(bytes.len() - 4);
            if at + 1 < bytes.len() {
                bytes[at] = byte;
            }
        }
        call_all(&bytes, &filters);
    }

    #[test]
    fn random_bytes_do_no_harm(mut bytes in proptest::collection::vec(any::<u8>(), 5..64)) {
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[length as usize - 1] = 0;
        call_all(&bytes, &[]);
    }
}

/// A document of so many levels, without the recursion of an owned one.
fn deep(levels: usize) -> RawDocumentBuf {
    let mut document = rawdoc! { "a": 1 };
    for _ in 1..levels {
        document = rawdoc! { "a": document };
    }
    document
}

#[test]
fn depth_has_a_limit() {
    assert_eq!(validate(&deep(100)), Ok(()));
    assert_eq!(validate(&deep(101)), Err(Invalid::TooDeep));
    let deepest = deep(50_000);
    assert_eq!(validate(&deepest), Err(Invalid::TooDeep));
    assert!(compare_documents(&deepest, &deepest).is_eq());
    let filter = Filter::parse(&rawdoc! { "a.a.a": 1, "a": { "b": 1 } }).expect("a filter");
    assert!(!filter.matches(&deepest));
    assert_eq!(Filter::parse(&deepest).expect_err("too deep").code(), 2);
}

#[test]
fn long_lists_are_searched_in_order() {
    let wanted: Vec<i32> = (0..100_000).collect();
    let filter = RawDocumentBuf::try_from(&bson::doc! { "a": { "$in": wanted } });
    let filter = Filter::parse(&filter.expect("a document")).expect("a filter");
    let values: Vec<Bson> = (0..100_000).map(|at| bson!(-1 - at)).collect();
    let document = RawDocumentBuf::try_from(&bson::doc! { "a": values }).expect("a document");
    assert!(!filter.matches(&document));
}
