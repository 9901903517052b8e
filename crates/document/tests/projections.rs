//! Projections of `find`: the examples of MongoDB's manual, and its errors.

use bson::{Bson, Document, RawDocumentBuf, bson, doc};
use remora_document::Projection;

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("a valid document")
}

fn projected(projection: &Document, document: &Document, found: Option<usize>) -> Document {
    let projection = Projection::parse(&raw(projection));
    let projection = projection.expect("a projection");
    let made = projection.apply(&raw(document), found).expect("it is projected");
    Document::try_from(made).expect("a valid document")
}

#[track_caller]
fn makes(projection: Document, document: &Document, expected: Document) {
    let made = projected(&projection, document, None);
    // The texts tell the order of fields and the types of numbers.
    assert_eq!(format!("{made:?}"), format!("{expected:?}"), "{projection}");
}

#[track_caller]
fn fails(projection: Document, code: i32, text: &str) {
    let error = Projection::parse(&raw(&projection)).expect_err(&projection.to_string());
    assert_eq!((error.code(), error.message()), (code, text));
}

fn inventory() -> Document {
    doc! {
        "_id": 1, "item": "journal", "status": "A",
        "size": { "h": 14, "w": 21, "uom": "cm" },
        "instock": [{ "warehouse": "A", "qty": 5 }, { "warehouse": "B", "qty": 15 }, 7],
        "tags": ["red", "blue", "green"],
    }
}

#[test]
fn inclusions() {
    let document = &inventory();
    makes(
        doc! { "status": 1, "item": true },
        document,
        doc! { "_id": 1, "item": "journal", "status": "A" },
    );
    makes(doc! { "item": 1, "_id": 0 }, document, doc! { "item": "journal" });
    makes(doc! { "_id": 1 }, document, doc! { "_id": 1 });
    makes(doc! { "size.uom": 1 }, document, doc! { "_id": 1, "size": { "uom": "cm" } });
    makes(doc! { "size": { "uom": 1 } }, document, doc! { "_id": 1, "size": { "uom": "cm" } });
    makes(
        doc! { "instock.qty": 1 },
        document,
        doc! { "_id": 1, "instock": [{ "qty": 5 }, { "qty": 15 }] },
    );
    makes(doc! { "item.x": 1 }, document, doc! { "_id": 1 });
    makes(
        doc! { "_id": 0, "size.h": 1, "size.w": 1 },
        document,
        doc! { "size": { "h": 14, "w": 21 } },
    );
}

#[test]
fn exclusions() {
    let document =
        &doc! { "_id": 1, "a": 1, "b": { "c": 1, "d": 2 }, "e": [{ "f": 1, "g": 2 }, 3] };
    makes(doc! {}, document, document.clone());
    makes(doc! { "_id": 0, "b": 0, "e": 0 }, document, doc! { "a": 1 });
    makes(
        doc! { "b.c": 0, "e.f": false, "a.x": 0 },
        document,
        doc! { "_id": 1, "a": 1, "b": { "d": 2 }, "e": [{ "g": 2 }, 3] },
    );
    makes(
        doc! { "_id": 0 },
        document,
        doc! { "a": 1, "b": { "c": 1, "d": 2 }, "e": [{ "f": 1, "g": 2 }, 3] },
    );
    makes(doc! { "_id": 1, "b": 0, "e": 0 }, document, doc! { "_id": 1, "a": 1 });
}

#[test]
fn computed_fields() {
    let document = &inventory();
    makes(
        doc! { "_id": 0, "item": 1, "area": { "$multiply": ["$size.h", "$size.w"] }, "text": "x" },
        document,
        doc! { "item": "journal", "area": 294, "text": "x" },
    );
    makes(doc! { "_id": 0, "status": "$item" }, document, doc! { "status": "journal" });
    makes(doc! { "_id": 0, "size.area": "$size.h" }, document, doc! { "size": { "area": 14 } });
    makes(doc! { "_id": 0, "new.a": "$item" }, document, doc! { "new": { "a": "journal" } });
    makes(
        doc! { "_id": 0, "instock.all": "$tags" },
        &doc! { "instock": [{ "a": 1 }, 2], "tags": [1] },
        doc! { "instock": [{ "all": [1] }, { "all": [1] }] },
    );
}

#[test]
fn slices() {
    let document =
        &doc! { "_id": 1, "a": [1, 2, 3, 4, 5], "b": 2, "c": [{ "d": [1, 2] }, { "d": 5 }] };
    let of = |a: Bson| doc! { "_id": 1, "a": a, "b": 2, "c": [{ "d": [1, 2] }, { "d": 5 }] };
    makes(doc! { "a": { "$slice": 2 } }, document, of(bson!([1, 2])));
    makes(doc! { "a": { "$slice": -2 } }, document, of(bson!([4, 5])));
    makes(doc! { "a": { "$slice": [1, 2] } }, document, of(bson!([2, 3])));
    makes(doc! { "a": { "$slice": [-4, 2] } }, document, of(bson!([2, 3])));
    makes(doc! { "a": { "$slice": [10, 2] } }, document, of(bson!([])));
    makes(doc! { "a": { "$slice": 0 } }, document, of(bson!([])));
    makes(doc! { "b": 1, "a": { "$slice": 1 } }, document, doc! { "_id": 1, "a": [1], "b": 2 });
    makes(
        doc! { "b": 0, "c.d": { "$slice": 1 }, "a": 0 },
        document,
        doc! { "_id": 1, "c": [{ "d": [1] }, { "d": 5 }] },
    );
    makes(doc! { "_id": 0, "last": { "$slice": ["$a", -1] } }, document, doc! { "last": [5] });
}

#[test]
fn elements_that_match() {
    let document = &doc! {
        "_id": 1, "zipcode": "63109",
        "students": [{ "name": "john", "school": 102 }, { "name": "jess", "school": 102 }, 5],
    };
    makes(
        doc! { "students": { "$elemMatch": { "school": 102 } } },
        document,
        doc! { "_id": 1, "students": [{ "name": "john", "school": 102 }] },
    );
    makes(
        doc! { "zipcode": 1, "students": { "$elemMatch": { "$gt": 4 } } },
        document,
        doc! { "_id": 1, "zipcode": "63109", "students": [5] },
    );
    makes(doc! { "students": { "$elemMatch": { "school": 1 } } }, document, doc! { "_id": 1 });
    makes(doc! { "zipcode": { "$elemMatch": { "$gt": 1 } } }, document, doc! { "_id": 1 });
}

#[test]
fn the_element_that_was_found() {
    let document = &doc! { "_id": 1, "a": [1, 2, 3], "b": [{ "c": 1 }, { "c": 2 }] };
    let parsed = Projection::parse(&raw(&doc! { "a.$": 1 })).expect("a projection");
    assert!(parsed.is_positional());
    assert_eq!(projected(&doc! { "a.$": 1 }, document, Some(1)), doc! { "_id": 1, "a": [2] });
    assert_eq!(
        projected(&doc! { "_id": 0, "b.c.$": 1 }, document, Some(1)),
        doc! { "b": [{ "c": 2 }] }
    );
    assert_eq!(parsed.apply(&raw(document), None).expect_err("nothing found").code(), 51246);
    assert_eq!(parsed.apply(&raw(document), Some(9)).expect_err("too far").code(), 51247);
}

#[test]
fn errors() {
    fails(doc! { "a": 1, "b": 0 }, 31254, "Cannot do exclusion on field b in inclusion projection");
    fails(doc! { "a": 0, "b": 1 }, 31253, "Cannot do inclusion on field b in exclusion projection");
    fails(
        doc! { "a": 0, "b": { "$add": [1, 2] } },
        31252,
        "Cannot use expression other than $meta in exclusion projection",
    );
    fails(doc! { "a.b": 1, "a": 1 }, 31250, "Path collision at a");
    fails(doc! { "a": 1, "a.b.c": 1 }, 31249, "Path collision at a.b.c remaining portion b.c");
    fails(doc! { "a.": 1 }, 40353, "FieldPath must not end with a '.'.");
    fails(doc! { "": 1 }, 40352, "FieldPath cannot be constructed with empty string");
    fails(doc! { ".a": 1 }, 15998, "FieldPath field names may not be empty strings.");
    fails(
        doc! { "$a": 1 },
        16410,
        "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
    );
    fails(
        doc! { "a": {} },
        51270,
        "An empty sub-projection is not a valid value. Found empty object at path a",
    );
    fails(doc! { "a": { "$foo": 1 } }, 168, "Unrecognized expression '$foo'");
    fails(
        doc! { "a.$": 1, "b": { "$elemMatch": { "c": 1 } } },
        31255,
        "Cannot specify positional operator and $elemMatch.",
    );
    fails(
        doc! { "a.$": 1, "b.$": 1 },
        31276,
        "Cannot specify more than one positional projection per query.",
    );
    fails(doc! { "a.$": 1, "b": 0 }, 31395, "positional projection cannot be used with exclusion");
    fails(
        doc! { "a.b": { "$elemMatch": { "c": 1 } } },
        31275,
        "Cannot use $elemMatch projection on a nested field.",
    );
    fails(
        doc! { "a": { "$elemMatch": 1 } },
        31274,
        "elemMatch: Invalid argument, object required, but got int",
    );
    assert_eq!(
        Projection::parse(&raw(&doc! { "a": { "$meta": "textScore" } })).unwrap_err().code(),
        115
    );
    assert_eq!(
        Projection::parse(&raw(&doc! { "a": { "$slice": [1, 0] } })).unwrap_err().code(),
        28667
    );
}
