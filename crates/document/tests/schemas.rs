//! `$jsonSchema`, `$expr` and `let` in filters.

use crate::pipelines::raw;
use bson::{Bson, Document, bson, doc};
use remora_document::{Filter, Variables};

#[track_caller]
fn follows(schema: Document, right: &[Document], wrong: &[Document]) {
    let filter = doc! { "$jsonSchema": &schema };
    let filter = Filter::parse(&raw(&filter)).unwrap_or_else(|error| panic!("{schema}: {error}"));
    for (documents, expected) in [(right, true), (wrong, false)] {
        for document in documents {
            assert_eq!(filter.matches(&raw(document)), expected, "{schema} of {document}");
        }
    }
}

#[test]
fn types_and_values() {
    follows(
        doc! { "required": ["name", "year"], "properties": {
            "name": { "bsonType": "string", "description": "must be a string" },
            "year": { "bsonType": "int", "minimum": 2017, "maximum": 3017 },
            "major": { "enum": ["Math", "English", null] },
            "gpa": { "bsonType": ["double", "int"] },
        } },
        &[
            doc! { "name": "a", "year": 2017 },
            doc! { "name": "a", "year": 3017, "major": null, "gpa": 3, "other": [] },
        ],
        &[
            doc! { "name": 1, "year": 2017 },
            doc! { "name": "a" },
            doc! { "name": "a", "year": 2016 },
            doc! { "name": "a", "year": 2017i64 },
            doc! { "name": "a", "year": 2017, "major": "History" },
            doc! { "name": "a", "year": 2017, "gpa": "3" },
        ],
    );
    follows(
        doc! { "properties": { "a": { "type": "number", "exclusiveMinimum": true, "minimum": 1, "multipleOf": 0.5 } } },
        &[doc! { "a": 1.5 }, doc! { "a": 2i64 }, doc! {}],
        &[doc! { "a": 1 }, doc! { "a": 1.25 }, doc! { "a": "x" }],
    );
    follows(
        doc! { "properties": { "a": { "minLength": 2, "maxLength": 3, "pattern": "^é" } } },
        &[doc! { "a": "éa" }, doc! { "a": 1 }],
        &[doc! { "a": "é" }, doc! { "a": "éabc" }, doc! { "a": "aé" }],
    );
}

#[test]
fn objects_and_arrays() {
    follows(
        doc! { "additionalProperties": false, "properties": { "_id": {} }, "patternProperties": { "^x": { "type": "string" } } },
        &[doc! { "_id": 1, "x1": "a" }],
        &[doc! { "_id": 1, "y": 1 }, doc! { "x": 1 }],
    );
    follows(
        doc! { "minProperties": 1, "maxProperties": 2, "dependencies": { "a": ["b"], "c": { "properties": { "d": { "type": "null" } } } } },
        &[doc! { "a": 1, "b": 1 }, doc! { "c": 1, "d": null }],
        &[doc! {}, doc! { "a": 1 }, doc! { "c": 1, "d": 1 }, doc! { "x": 1, "y": 1, "z": 1 }],
    );
    follows(
        doc! { "properties": { "a": { "minItems": 1, "maxItems": 3, "uniqueItems": true, "items": { "bsonType": "int" } } } },
        &[doc! { "a": [1, 2] }, doc! { "a": 1 }],
        &[doc! { "a": [] }, doc! { "a": [1, 1] }, doc! { "a": ["x"] }, doc! { "a": [1, 2, 3, 4] }],
    );
    follows(
        doc! { "properties": { "a": { "items": [{ "type": "string" }], "additionalItems": { "type": "boolean" } } } },
        &[doc! { "a": ["x", true] }, doc! { "a": [] }],
        &[doc! { "a": [1] }, doc! { "a": ["x", 1] }],
    );
    follows(
        doc! { "properties": { "a": { "items": [{}], "additionalItems": false } } },
        &[doc! { "a": [1] }],
        &[doc! { "a": [1, 2] }],
    );
}

#[test]
fn combinations() {
    let (string, a) =
        (doc! { "properties": { "a": { "type": "string" } } }, doc! { "required": ["a"] });
    follows(doc! { "allOf": [&string, &a] }, &[doc! { "a": "x" }], &[doc! {}, doc! { "a": 1 }]);
    follows(doc! { "anyOf": [&string, &a] }, &[doc! { "a": 1 }, doc! {}], &[]);
    follows(doc! { "oneOf": [&string, &a] }, &[doc! { "a": 1 }, doc! {}], &[doc! { "a": "x" }]);
    follows(doc! { "not": &a }, &[doc! {}], &[doc! { "a": 1 }]);
}

#[test]
fn wrong_schemas() {
    for (schema, code, text) in [
        (doc! { "foo": 1 }, 9, "Unknown $jsonSchema keyword: foo"),
        (doc! { "$ref": "x" }, 9, "$jsonSchema keyword '$ref' is not currently supported"),
        (doc! { "type": "integer" }, 9, "$jsonSchema type 'integer' is not currently supported."),
        (doc! { "type": "foo" }, 2, "Unknown type name alias: foo"),
        (doc! { "bsonType": 1 }, 14, "must be either a string or an array of strings"),
        (doc! { "type": "string", "bsonType": "string" }, 9, "Cannot specify both"),
        (doc! { "required": [] }, 9, "must be a non-empty array"),
        (doc! { "required": ["a", "a"] }, 9, "duplicate"),
        (doc! { "minimum": "x" }, 14, "must be a number"),
        (doc! { "exclusiveMinimum": true }, 9, "must be a present"),
        (doc! { "multipleOf": 0 }, 9, "positive"),
        (doc! { "properties": 1 }, 14, "must be an object"),
        (doc! { "minLength": -1 }, 9, "non-negative"),
    ] {
        let error = Filter::parse(&raw(&doc! { "$jsonSchema": &schema })).expect_err("it is wrong");
        assert_eq!(error.code(), code, "{schema}: {error}");
        assert!(error.message().contains(text), "{schema}: {error}");
    }
    let error = Filter::parse(&raw(&doc! { "$jsonSchema": 1 })).expect_err("no schema");
    assert_eq!((error.code(), error.message()), (14, "$jsonSchema must be an object"));
}

#[test]
fn expressions_in_filters() {
    let filter = |filter: Document| Filter::parse(&raw(&filter)).expect("a filter");
    let over = filter(doc! { "$expr": { "$gt": ["$spent", "$budget"] } });
    assert!(over.has_expression());
    assert!(over.matches(&raw(&doc! { "spent": 5, "budget": 3 })));
    assert!(!over.matches(&raw(&doc! { "spent": 3, "budget": 3 })));
    let either = filter(doc! { "$or": [{ "a": 1 }, { "$expr": { "$eq": ["$b", "$c"] } }] });
    assert!(either.matches(&raw(&doc! { "a": 1 })));
    assert!(either.matches(&raw(&doc! { "b": 2, "c": 2 })));
    assert!(!either.matches(&raw(&doc! { "b": 2 })));
    let failing = filter(doc! { "$nor": [{ "$expr": { "$divide": [1, "$a"] } }] });
    assert_eq!(failing.try_matches(&raw(&doc! { "a": 0 })).expect_err("by zero").code(), 2);
    assert!(!failing.matches(&raw(&doc! { "a": 0 })));
    let nested = doc! { "a": { "$elemMatch": { "$expr": true } } };
    let error = Filter::parse(&raw(&nested)).expect_err("not at the top");
    assert_eq!(error.message(), "$expr can only be applied to the top-level document");
    assert!(filter(doc! { "$alwaysTrue": 1 }).matches(&raw(&doc! {})));
    assert!(!filter(doc! { "$alwaysFalse": 1 }).matches(&raw(&doc! {})));
}

#[test]
fn variables_of_a_command() {
    let values = doc! { "least": { "$add": [1, 2] }, "a_b": [1] };
    let variables = Variables::parse(0, 0, Some(&raw(&values))).expect("variables");
    let filter = doc! { "$expr": { "$gte": ["$a", "$$least"] } };
    let filter = Filter::parse_with(&raw(&filter), &variables).expect("a filter");
    assert!(filter.matches(&raw(&doc! { "a": 3 })));
    assert!(!filter.matches(&raw(&doc! { "a": 2 })));
    for (values, code) in [
        (doc! { "A": 1 }, 9),
        (doc! { "a-b": 1 }, 9),
        (doc! { "": 1 }, 9),
        (doc! { "a": "$b" }, 4890500),
    ] {
        let error = Variables::parse(0, 0, Some(&raw(&values))).expect_err(&values.to_string());
        assert_eq!(error.code(), code);
    }
    let unknown: Bson = bson!({ "$expr": "$$other" });
    let unknown = raw(unknown.as_document().expect("a document"));
    assert_eq!(Filter::parse_with(&unknown, &variables).expect_err("unknown").code(), 17276);
}
