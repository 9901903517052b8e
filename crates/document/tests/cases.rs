//! Filters and documents with the answers that MongoDB gives.

use crate::generate::{decimal, regex};
use bson::{Bson, Document, RawDocumentBuf, doc};
use remora_document::Filter;

fn matches(filter: Document, document: &Document) -> bool {
    let raw = |document: &Document| RawDocumentBuf::try_from(document).expect("a valid document");
    let parsed = Filter::parse(&raw(&filter));
    parsed.unwrap_or_else(|error| panic!("{filter}: {error}")).matches(&raw(document))
}

/// Checks each filter on one document.
fn check(document: Document, filters: &[(Document, bool)]) {
    for (filter, expected) in filters {
        assert_eq!(matches(filter.clone(), &document), *expected, "{filter} on {document}");
    }
}

#[test]
fn equality() {
    check(
        doc! { "a": { "x": 1, "y": 2 }, "b": [1, 2], "n": null, "u": Bson::Undefined, "d": decimal("1.0") },
        &[
            (doc! {}, true),
            (doc! { "a": { "x": 1.0, "y": 2 } }, true),
            (doc! { "a": { "y": 2, "x": 1 } }, false),
            (doc! { "a.x": 1 }, true),
            (doc! { "b": 1 }, true),
            (doc! { "b": [1, 2] }, true),
            (doc! { "b": [2, 1] }, false),
            (doc! { "n": null }, true),
            (doc! { "m": null }, true),
            (doc! { "u": null }, false),
            (doc! { "a.z": null }, true),
            (doc! { "d": 1 }, true),
            (doc! { "$comment": "nothing", "d": { "$eq": 1.0 } }, true),
        ],
    );
}

#[test]
fn comparisons_stay_in_their_class() {
    check(
        doc! { "a": 5, "s": "m", "nan": f64::NAN, "e": [] },
        &[
            (doc! { "a": { "$gt": 4, "$lt": 6 } }, true),
            (doc! { "a": { "$gt": "" } }, false),
            (doc! { "a": { "$lt": "" } }, false),
            (doc! { "s": { "$gte": "m" } }, true),
            (doc! { "nan": { "$lt": 1 } }, false),
            (doc! { "nan": { "$lte": f64::NAN } }, true),
            (doc! { "m": { "$gte": null } }, true),
            (doc! { "m": { "$gt": null } }, false),
            (doc! { "a": { "$gt": Bson::MinKey } }, true),
            (doc! { "m": { "$lt": Bson::MaxKey } }, true),
            (doc! { "e": { "$gte": [] } }, true),
            (doc! { "a": { "$ne": 4 } }, true),
            (doc! { "m": { "$ne": null } }, false),
        ],
    );
}

#[test]
fn arrays() {
    check(
        doc! { "a": [{ "b": 1, "c": 9 }, { "b": 5, "c": 2 }], "n": [1, [2, 3], "x"] },
        &[
            (doc! { "a.b": { "$gt": 4 }, "a.c": { "$gt": 4 } }, true),
            (doc! { "a": { "$elemMatch": { "b": { "$gt": 4 }, "c": { "$gt": 4 } } } }, false),
            (doc! { "a": { "$elemMatch": { "b": 5, "c": 2 } } }, true),
            (doc! { "a": { "$elemMatch": { "$or": [{ "b": 7 }, { "c": 9 }] } } }, true),
            (doc! { "a.0.b": 1 }, true),
            (doc! { "a.1.b": 1 }, false),
            (doc! { "n": { "$elemMatch": { "$gt": 0, "$lt": 2 } } }, true),
            (doc! { "n": { "$elemMatch": { "$elemMatch": { "$gt": 2 } } } }, true),
            (doc! { "n": 2 }, false),
            (doc! { "n": [2, 3] }, true),
            (doc! { "n.1": 2 }, false),
            (doc! { "n.1": [2, 3] }, true),
            (doc! { "n": { "$size": 3 } }, true),
            (doc! { "n.1": { "$size": 2 } }, true),
            (doc! { "n": { "$all": [1, "x"] } }, true),
            (doc! { "n": { "$all": [[2, 3]] } }, true),
            (doc! { "n": { "$all": [] } }, false),
            (
                doc! { "a": { "$all": [{ "$elemMatch": { "b": 1 } }, { "$elemMatch": { "c": 2 } }] } },
                true,
            ),
            (doc! { "n": { "$not": { "$size": 3 } } }, false),
        ],
    );
}

#[test]
fn lists_types_and_existence() {
    check(
        doc! { "a": 1, "s": "text", "l": [1i64, "x"], "n": null },
        &[
            (doc! { "a": { "$in": [3, 1.0] } }, true),
            (doc! { "a": { "$nin": [3, 1.0] } }, false),
            (doc! { "s": { "$in": [regex("^T", "i")] } }, true),
            (doc! { "m": { "$in": [null] } }, true),
            (doc! { "m": { "$nin": [null] } }, false),
            (doc! { "n": { "$exists": true } }, true),
            (doc! { "m": { "$exists": true } }, false),
            (doc! { "m": { "$exists": 0 } }, true),
            (doc! { "l": { "$type": "array" } }, true),
            (doc! { "l": { "$type": 18.0 } }, true),
            (doc! { "l": { "$type": ["int", "bool"] } }, false),
            (doc! { "a": { "$type": "number" } }, true),
            (doc! { "m": { "$type": "null" } }, false),
        ],
    );
}

#[test]
fn numbers_and_bits() {
    check(
        doc! { "a": 20, "f": 7.9, "neg": -3, "big": 1e30, "min": i64::MIN, "d": decimal("20.5") },
        &[
            (doc! { "a": { "$mod": [6, 2] } }, true),
            (doc! { "f": { "$mod": [4, 3] } }, true),
            (doc! { "d": { "$mod": [6, 2] } }, true),
            (doc! { "neg": { "$mod": [2, -1] } }, true),
            (doc! { "big": { "$mod": [2, 0] } }, false),
            (doc! { "min": { "$mod": [-1, 0] } }, true),
            (doc! { "a": { "$bitsAllSet": [2, 4] } }, true),
            (doc! { "a": { "$bitsAllSet": 21 } }, false),
            (doc! { "a": { "$bitsAnySet": 21 } }, true),
            (doc! { "a": { "$bitsAllClear": [0, 1] } }, true),
            (doc! { "a": { "$bitsAnyClear": [2, 4] } }, false),
            (doc! { "neg": { "$bitsAllSet": [200] } }, true),
            (doc! { "f": { "$bitsAllClear": [] } }, false),
        ],
    );
}

#[test]
fn patterns() {
    check(
        doc! { "s": "Line one\nline two", "l": ["ab", regex("q", "i")] },
        &[
            (doc! { "s": { "$regex": "^line" } }, false),
            (doc! { "s": { "$regex": "^line two", "$options": "m" } }, true),
            (doc! { "s": { "$options": "is", "$regex": "LINE.*TWO" } }, true),
            (doc! { "s": regex("one.line", "s") }, true),
            (doc! { "s": { "$not": regex("three", "") } }, true),
            (doc! { "s": { "$regex": r"^\w+ (\w|\s)+$" } }, true),
            (doc! { "s": regex(r"^\w+([-+.']\w+)*@\w+([-.]\w+)*\.\w+([-.]\w+)*$", "i") }, false),
            (doc! { "l": regex("^a", "") }, true),
            (doc! { "l": regex("q", "i") }, true),
            (doc! { "l": { "$eq": regex("q", "i") } }, true),
            (doc! { "l": { "$eq": regex("^a", "") } }, false),
        ],
    );
}

#[test]
fn logic() {
    check(
        doc! { "a": 1, "b": 2 },
        &[
            (doc! { "$and": [{ "a": 1 }, { "b": 3 }] }, false),
            (doc! { "$or": [{ "a": 1 }, { "b": 3 }] }, true),
            (doc! { "$nor": [{ "a": 2 }, { "b": 3 }] }, true),
            (doc! { "a": { "$not": { "$gt": 1 } } }, true),
            (doc! { "c": { "$not": { "$gt": 1 } } }, true),
        ],
    );
}

#[test]
fn references_are_values() {
    check(
        doc! { "r": { "$ref": "c", "$id": 1 }, "l": [{ "$ref": "c", "$id": 2 }] },
        &[
            (doc! { "r": { "$ref": "c", "$id": 1 } }, true),
            (doc! { "r.$id": 1 }, true),
            (doc! { "l": { "$elemMatch": { "$id": 2 } } }, true),
        ],
    );
}
