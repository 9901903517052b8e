//! Pipelines: what their stages make of documents. The expected results are those of MongoDB's manual.

use bson::raw::RawArrayBuf;
use bson::{Bson, Document, RawDocumentBuf, bson, doc};
use remora_document::{
    DocumentError, Filter, GeoNear, Pipeline, Query, Sink, SortKeys, Sorter, Step, Variables,
    WhenMatched, WhenNotMatched,
};
use std::collections::HashMap;

pub fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("a valid document")
}

/// An array of stages.
pub fn stages(stages: &Bson) -> RawArrayBuf {
    let mut made = RawArrayBuf::new();
    for stage in stages.as_array().expect("an array") {
        match stage {
            Bson::Document(stage) => made.push(raw(stage)),
            other => made.push(bson::RawBson::try_from(other.clone()).expect("a value")),
        }
    }
    made
}

/// The documents of each collection.
pub type Collections = HashMap<&'static str, Vec<Document>>;

/// What a search finds.
fn search(
    documents: &[Document],
    filter: &RawDocumentBuf,
    sort: Option<&RawDocumentBuf>,
    skip: u64,
    limit: Option<u64>,
) -> Vec<RawDocumentBuf> {
    let filter = Filter::parse(filter).expect("a filter");
    let found = documents.iter().map(raw).filter(|document| filter.matches(document));
    let mut found: Vec<RawDocumentBuf> = match sort {
        Some(keys) => {
            let keys = SortKeys::parse(keys).expect("sort keys");
            let mut sorter = Sorter::new(keys, skip, limit);
            found.for_each(|document| sorter.push_document(document).expect("there is room"));
            std::iter::from_fn(|| sorter.take()).collect()
        }
        None => found.skip(usize::try_from(skip).expect("a small number")).collect(),
    };
    found.truncate(limit.map_or(usize::MAX, |limit| usize::try_from(limit).expect("small")));
    found
}

/// Runs a pipeline over the documents of the collection `own`.
pub fn run(
    pipeline: &Bson,
    collections: &Collections,
    variables: &Variables,
) -> Result<Vec<Document>, DocumentError> {
    let mut pipeline = Pipeline::parse(&stages(pipeline), variables)?;
    let source = pipeline.source().clone();
    let none = Vec::new();
    let own = collections.get("own").unwrap_or(&none);
    let own = if source.reads_collection { own } else { &none };
    let sort = source.sort.as_ref();
    let mut input = search(own, &source.filter, sort, source.skip, source.limit).into_iter();
    let (mut made, mut searches) = (Vec::new(), Vec::new());
    // No pipeline here takes so many steps.
    for _ in 0..100_000 {
        match pipeline.step()? {
            Step::Wants => match input.next() {
                Some(document) => pipeline.push(document),
                None => pipeline.end(),
            },
            Step::Gives(document) => made.push(Document::try_from(document).expect("valid")),
            Step::Asks(Query { collection, filter, sort, skip, limit }) => {
                let documents = collections.get(collection.as_str()).unwrap_or(&none);
                let mut found = search(documents, &filter, sort.as_ref(), skip, limit);
                found.reverse();
                searches.push(found);
            }
            Step::Awaits => {
                // An answer comes in parts of one document.
                let search = searches.last_mut().expect("a search");
                let part: Vec<RawDocumentBuf> = search.pop().into_iter().collect();
                let is_last = search.is_empty();
                pipeline.answer(part, is_last);
                if is_last {
                    searches.pop();
                }
            }
            Step::Continues => {}
            Step::Done => return Ok(made),
        }
    }
    panic!("{pipeline:?} does not end")
}

/// Checks the result of a pipeline, by the texts of documents: they tell types and the order of fields.
#[track_caller]
pub fn makes(pipeline: Bson, documents: &[Document], expected: &[Document]) {
    makes_with(pipeline, &HashMap::from([("own", documents.to_vec())]), expected);
}

#[track_caller]
fn makes_with(pipeline: Bson, collections: &Collections, expected: &[Document]) {
    let made = run(&pipeline, collections, &Variables::default());
    let made = made.unwrap_or_else(|error| panic!("{pipeline}: {error}"));
    let text = |all: &[Document]| format!("{all:#?}");
    assert_eq!(text(&made), text(expected), "{pipeline}");
}

#[track_caller]
fn fails(pipeline: Bson, code: i32, text: &str) {
    let documents = vec![doc! { "_id": 1, "a": "x" }];
    let made = run(&pipeline, &HashMap::from([("own", documents)]), &Variables::default());
    let error = made.expect_err(&pipeline.to_string());
    assert_eq!(error.code(), code, "{pipeline}: {error}");
    assert!(error.message().contains(text), "{error}");
}

fn articles() -> Vec<Document> {
    vec![
        doc! { "_id": 1, "author": "dave", "score": 80, "views": 100 },
        doc! { "_id": 2, "author": "dave", "score": 85, "views": 521 },
        doc! { "_id": 3, "author": "ahn", "score": 60, "views": 1000 },
        doc! { "_id": 4, "author": "li", "score": 55, "views": 5000 },
        doc! { "_id": 5, "author": "annT", "score": 60, "views": 50 },
        doc! { "_id": 6, "author": "li", "score": 94, "views": 999 },
        doc! { "_id": 7, "author": "ty", "score": 95, "views": 1000 },
    ]
}

#[test]
fn matches_and_counts() {
    makes(
        bson!([
            { "$match": { "$or": [{ "score": { "$gt": 70, "$lt": 90 } }, { "views": { "$gte": 1000 } }] } },
            { "$group": { "_id": null, "count": { "$sum": 1 } } },
        ]),
        &articles(),
        &[doc! { "_id": null, "count": 5 }],
    );
    makes(
        bson!([{ "$match": { "score": { "$gt": 80 } } }, { "$count": "passing" }]),
        &articles(),
        &[doc! { "passing": 3 }],
    );
    makes(bson!([{ "$match": { "score": 1 } }, { "$count": "none" }]), &articles(), &[]);
    makes(
        bson!([{ "$sort": { "score": -1, "_id": 1 } }, { "$skip": 1 }, { "$limit": 2 }, { "$project": { "_id": 1 } }]),
        &articles(),
        &[doc! { "_id": 6 }, doc! { "_id": 2 }],
    );
    makes(
        bson!([{ "$set": { "x": 1 } }, { "$sort": { "views": 1 } }, { "$limit": 3 }, { "$skip": 1 }, { "$unset": ["x", "score", "author"] }]),
        &articles(),
        &[doc! { "_id": 1, "views": 100 }, doc! { "_id": 2, "views": 521 }],
    );
    makes(
        bson!([{ "$sortByCount": "$author" }, { "$limit": 2 }]),
        &articles(),
        &[doc! { "_id": "dave", "count": 2 }, doc! { "_id": "li", "count": 2 }],
    );
}

#[test]
fn the_source_does_the_beginning() {
    let source = |pipeline: Bson| {
        let parsed = Pipeline::parse(&stages(&pipeline), &Variables::default());
        parsed.expect("a pipeline").source().clone()
    };
    let found = source(bson!([
        { "$match": { "a": 1 } }, { "$match": { "b": 2 } }, { "$sort": { "c": 1 } },
        { "$limit": 10 }, { "$skip": 3 }, { "$limit": 20 }, { "$match": { "d": 1 } }, { "$limit": 1 },
    ]));
    assert_eq!(found.filter, raw(&doc! { "$and": [{ "a": 1 }, { "b": 2 }] }));
    assert_eq!(found.sort, Some(raw(&doc! { "c": 1 })));
    assert_eq!((found.skip, found.limit), (3, Some(7)));
    let found = source(bson!([{ "$limit": 5 }, { "$sort": { "a": 1 } }]));
    assert_eq!((found.sort, found.limit), (None, Some(5)));
    let near = doc! { "near": [0, 0], "distanceField": "a" };
    let found = source(bson!([{ "$geoNear": near.clone() }, { "$match": { "a": 1 } }]));
    assert_eq!(found.geo_near, Some(GeoNear::parse(&raw(&near)).unwrap()));
    assert!(found.filter.is_empty(), "what follows sees the distance");
    assert!(!source(bson!([{ "$documents": [] }])).reads_collection);
}

#[test]
fn the_source_does_a_range_directly_behind_geo_near() {
    let parsed = |behind: Vec<Document>| {
        let mut all = vec![doc! { "$geoNear": { "near": [0, 0], "distanceField": "a" } }];
        all.extend(behind);
        Pipeline::parse(&stages(&all.into()), &Variables::default()).expect("a pipeline")
    };
    let range = |pipeline: &Pipeline| (pipeline.source().skip, pipeline.source().limit);
    let (skip, limit) = (doc! { "$skip": 2 }, doc! { "$limit": 5 });
    assert_eq!(range(&parsed(vec![limit.clone()])), (0, Some(5)));
    assert_eq!(range(&parsed(vec![skip.clone(), limit.clone()])), (2, Some(5)));
    assert_eq!(range(&parsed(vec![limit.clone(), skip.clone()])), (2, Some(3)));
    for stage in [doc! { "$match": { "b": 1 } }, doc! { "$sort": { "b": 1 } }] {
        let pipeline = parsed(vec![stage.clone(), skip.clone(), limit.clone()]);
        assert_eq!(range(&pipeline), (0, None), "{stage}");
        assert_eq!(pipeline.source().sort, None);
        let pipeline = parsed(vec![limit.clone(), stage.clone(), doc! { "$limit": 1 }]);
        assert_eq!(range(&pipeline), (0, Some(5)), "{stage}");
    }
}

#[test]
fn a_limit_satisfies() {
    let pipeline = bson!([{ "$set": { "b": 1 } }, { "$limit": 1 }]);
    let mut pipeline = Pipeline::parse(&stages(&pipeline), &Variables::default()).expect("valid");
    assert_eq!(pipeline.step().expect("no error"), Step::Wants);
    assert!(!pipeline.is_satisfied());
    pipeline.push(raw(&doc! { "a": 1 }));
    assert_eq!(pipeline.step().expect("no error"), Step::Gives(raw(&doc! { "a": 1, "b": 1 })));
    assert!(pipeline.is_satisfied());
    assert_eq!(pipeline.step().expect("no error"), Step::Done);
}

#[test]
fn groups() {
    let sales = [
        doc! { "_id": 1, "item": "abc", "price": 10, "quantity": 2, "tags": ["x"] },
        doc! { "_id": 2, "item": "jkl", "price": 20, "quantity": 1 },
        doc! { "_id": 3, "item": "xyz", "price": 5, "quantity": 10 },
        doc! { "_id": 4, "item": "xyz", "price": 5.5, "quantity": 20, "tags": ["y", "z"] },
        doc! { "_id": 5, "item": "abc", "price": 10, "quantity": 10 },
    ];
    makes(
        bson!([{ "$group": {
            "_id": "$item",
            "total": { "$sum": { "$multiply": ["$price", "$quantity"] } },
            "average": { "$avg": "$quantity" },
            "least": { "$min": "$price" }, "most": { "$max": "$price" },
            "first": { "$first": "$_id" }, "last": { "$last": "$_id" },
            "count": { "$count": {} },
        } }]),
        &sales,
        &[
            doc! { "_id": "abc", "total": 120, "average": 6.0, "least": 10, "most": 10, "first": 1, "last": 5, "count": 2 },
            doc! { "_id": "jkl", "total": 20, "average": 1.0, "least": 20, "most": 20, "first": 2, "last": 2, "count": 1 },
            doc! { "_id": "xyz", "total": 160.0, "average": 15.0, "least": 5, "most": 5.5, "first": 3, "last": 4, "count": 2 },
        ],
    );
    makes(
        bson!([{ "$group": {
            "_id": null,
            "tags": { "$push": "$tags" }, "items": { "$addToSet": "$item" },
            "dev": { "$stdDevPop": { "$literal": 3 } },
            "two": { "$firstN": { "input": "$_id", "n": 2 } }, "ends": { "$lastN": { "input": "$_id", "n": 2 } },
            "low": { "$minN": { "input": "$quantity", "n": 2 } }, "high": { "$maxN": { "input": "$quantity", "n": 2 } },
            "top": { "$top": { "output": ["$_id"], "sortBy": { "quantity": -1 } } },
            "bottom": { "$bottomN": { "n": 2, "output": "$_id", "sortBy": { "quantity": -1, "_id": 1 } } },
            "merged": { "$mergeObjects": { "a": "$item" } },
        } }]),
        &sales,
        &[doc! {
            "_id": null, "tags": [["x"], ["y", "z"]], "items": ["abc", "jkl", "xyz"], "dev": 0.0,
            "two": [1, 2], "ends": [4, 5], "low": [1, 2], "high": [20, 10],
            "top": [4], "bottom": [1, 2], "merged": { "a": "abc" },
        }],
    );
    makes(
        bson!([{ "$group": { "_id": { "a": "$a" } } }]),
        &[doc! { "a": 1 }, doc! { "a": 1.0 }, doc! { "b": 1 }, doc! { "a": null }],
        &[doc! { "_id": { "a": 1 } }, doc! { "_id": {} }, doc! { "_id": { "a": null } }],
    );
    makes(
        bson!([{ "$group": { "_id": "$a" } }]),
        &[doc! { "b": 1 }, doc! { "a": null }],
        &[doc! { "_id": null }],
    );
}

#[test]
fn unwinds() {
    let clothing = [
        doc! { "_id": 1, "sizes": ["S", "M"] },
        doc! { "_id": 2, "sizes": [] },
        doc! { "_id": 3, "sizes": "M" },
        doc! { "_id": 4 },
        doc! { "_id": 5, "sizes": null },
    ];
    makes(
        bson!([{ "$unwind": "$sizes" }]),
        &clothing,
        &[
            doc! { "_id": 1, "sizes": "S" },
            doc! { "_id": 1, "sizes": "M" },
            doc! { "_id": 3, "sizes": "M" },
        ],
    );
    makes(
        bson!([{ "$unwind": { "path": "$sizes", "includeArrayIndex": "at", "preserveNullAndEmptyArrays": true } }]),
        &clothing,
        &[
            doc! { "_id": 1, "sizes": "S", "at": 0i64 },
            doc! { "_id": 1, "sizes": "M", "at": 1i64 },
            doc! { "_id": 2, "at": null },
            doc! { "_id": 3, "sizes": "M", "at": null },
            doc! { "_id": 4, "at": null },
            doc! { "_id": 5, "sizes": null, "at": null },
        ],
    );
    makes(
        bson!([{ "$unwind": "$a.b" }]),
        &[doc! { "a": { "x": 1, "b": [1, 2], "y": 2 }, "z": 3 }],
        &[
            doc! { "a": { "x": 1, "b": 1, "y": 2 }, "z": 3 },
            doc! { "a": { "x": 1, "b": 2, "y": 2 }, "z": 3 },
        ],
    );
}

#[test]
fn fields_are_added_and_replaced() {
    makes(
        bson!([
            { "$addFields": { "total": { "$sum": "$homework" }, "specs.fuel": "unleaded", "a": "$$REMOVE" } },
            { "$set": { "total": { "$add": ["$total", 1] } } },
        ]),
        &[doc! { "_id": 1, "a": 1, "homework": [10, 5, 10], "specs": { "doors": 4 } }],
        &[
            doc! { "_id": 1, "homework": [10, 5, 10], "specs": { "doors": 4, "fuel": "unleaded" }, "total": 26 },
        ],
    );
    makes(
        bson!([{ "$replaceRoot": { "newRoot": "$name" } }]),
        &[doc! { "_id": 1, "name": { "first": "Dave" } }],
        &[doc! { "first": "Dave" }],
    );
    makes(
        bson!([{ "$replaceWith": { "$mergeObjects": [{ "a": 0, "b": 0 }, "$$ROOT"] } }]),
        &[doc! { "b": 5 }],
        &[doc! { "a": 0, "b": 5 }],
    );
}

#[test]
fn buckets_and_facets() {
    let artwork = [
        doc! { "_id": 1, "year": 1926, "price": 199.99 },
        doc! { "_id": 2, "year": 1902, "price": 280.0 },
        doc! { "_id": 3, "year": 1925, "price": 76.04 },
        doc! { "_id": 4 },
    ];
    let bucket = bson!({ "$bucket": {
        "groupBy": "$year", "boundaries": [1900, 1920, 1930], "default": "Other",
        "output": { "count": { "$sum": 1 }, "ids": { "$push": "$_id" } },
    } });
    let expected = [
        doc! { "_id": 1900, "count": 1, "ids": [2] },
        doc! { "_id": 1920, "count": 2, "ids": [1, 3] },
        doc! { "_id": "Other", "count": 1, "ids": [4] },
    ];
    makes(bson!([bucket.clone()]), &artwork, &expected);
    makes(
        bson!([{ "$facet": { "years": [bucket], "first": [{ "$limit": 1 }, { "$project": { "year": 1 } }], "all": [{ "$count": "n" }] } }]),
        &artwork,
        &[
            doc! { "years": expected.to_vec(), "first": [{ "_id": 1, "year": 1926 }], "all": [{ "n": 4 }] },
        ],
    );
}

fn collections() -> Collections {
    HashMap::from([
        (
            "own",
            vec![
                doc! { "_id": 1, "item": "almonds", "ordered": 2 },
                doc! { "_id": 2, "item": ["pecans", "none"], "ordered": 90 },
                doc! { "_id": 3 },
            ],
        ),
        (
            "stock",
            vec![
                doc! { "_id": 1, "sku": "almonds", "instock": 120 },
                doc! { "_id": 2, "sku": "pecans", "instock": 80 },
                doc! { "_id": 3, "sku": null },
                doc! { "_id": 4 },
            ],
        ),
        (
            "people",
            vec![
                doc! { "_id": 1, "name": "Dev" },
                doc! { "_id": 2, "name": "Eliot", "boss": "Dev" },
                doc! { "_id": 3, "name": "Ron", "boss": "Eliot" },
                doc! { "_id": 4, "name": "Dan", "boss": ["Ron", "Dan"] },
            ],
        ),
    ])
}

#[test]
fn lookups() {
    makes_with(
        bson!([
            { "$lookup": { "from": "stock", "localField": "item", "foreignField": "sku", "as": "docs" } },
            { "$project": { "docs._id": 1 } },
        ]),
        &collections(),
        &[
            doc! { "_id": 1, "docs": [{ "_id": 1 }] },
            doc! { "_id": 2, "docs": [{ "_id": 2 }] },
            doc! { "_id": 3, "docs": [{ "_id": 3 }, { "_id": 4 }] },
        ],
    );
    makes_with(
        bson!([
            { "$match": { "ordered": { "$gt": 0 } } },
            { "$lookup": {
                "from": "stock", "let": { "wanted": "$ordered", "item": "$item" },
                "pipeline": [
                    { "$match": { "instock": { "$exists": true }, "$expr": { "$and": [
                        { "$eq": ["$sku", "$$item"] }, { "$gte": ["$instock", "$$wanted"] },
                    ] } } },
                    { "$project": { "_id": 0, "left": { "$subtract": ["$instock", "$$wanted"] } } },
                ],
                "as": "found",
            } },
            { "$project": { "found": 1 } },
        ]),
        &collections(),
        &[doc! { "_id": 1, "found": [{ "left": 118 }] }, doc! { "_id": 2, "found": [] }],
    );
    // A search inside a search.
    makes_with(
        bson!([
            { "$limit": 1 },
            { "$lookup": { "from": "people", "as": "p", "pipeline": [
                { "$sort": { "_id": -1 } }, { "$limit": 2 },
                { "$lookup": { "from": "stock", "localField": "_id", "foreignField": "_id", "as": "s" } },
                { "$project": { "n": { "$size": "$s" } } },
            ] } },
        ]),
        &collections(),
        &[
            doc! { "_id": 1, "item": "almonds", "ordered": 2, "p": [{ "_id": 4, "n": 1 }, { "_id": 3, "n": 1 }] },
        ],
    );
}

#[test]
fn unions_and_graphs() {
    makes_with(
        bson!([
            { "$project": { "_id": 1 } },
            { "$unionWith": { "coll": "stock", "pipeline": [{ "$match": { "instock": { "$gt": 1 } } }, { "$project": { "sku": 1, "_id": 0 } }] } },
            { "$unionWith": "nowhere" },
        ]),
        &collections(),
        &[
            doc! { "_id": 1 },
            doc! { "_id": 2 },
            doc! { "_id": 3 },
            doc! { "sku": "almonds" },
            doc! { "sku": "pecans" },
        ],
    );
    makes_with(
        bson!([
            { "$limit": 1 },
            { "$project": { "_id": 1 } },
            { "$graphLookup": {
                "from": "people", "startWith": "Dan", "connectFromField": "boss", "connectToField": "name",
                "as": "chain", "depthField": "depth", "maxDepth": 2,
            } },
            { "$project": { "chain.name": 1, "chain.depth": 1 } },
        ]),
        &collections(),
        &[doc! { "_id": 1, "chain": [
            { "name": "Dan", "depth": 0i64 }, { "name": "Ron", "depth": 1i64 }, { "name": "Eliot", "depth": 2i64 },
        ] }],
    );
    makes(
        bson!([{ "$documents": [{ "x": 1 }, { "x": 2 }] }, { "$match": { "x": 2 } }]),
        &[],
        &[doc! { "x": 2 }],
    );
}

#[test]
fn redacts() {
    makes(
        bson!([{ "$redact": { "$cond": {
            "if": { "$gt": [{ "$size": { "$setIntersection": ["$tags", ["G"]] } }, 0] },
            "then": "$$DESCEND", "else": "$$PRUNE",
        } } }]),
        &[doc! {
            "_id": 1, "tags": ["G", "SI"],
            "subsections": [{ "tags": ["SI"], "t": 1 }, { "tags": ["G"], "t": 2 }],
        }],
        &[doc! { "_id": 1, "tags": ["G", "SI"], "subsections": [{ "tags": ["G"], "t": 2 }] }],
    );
}

#[test]
fn samples_follow_the_seed() {
    let documents: Vec<Document> = (0..100).map(|at| doc! { "_id": at }).collect();
    let collections = HashMap::from([("own", documents)]);
    let run = |seed: u64| {
        let variables = Variables::parse(0, seed, None).expect("no variables");
        run(&bson!([{ "$sample": { "size": 5 } }]), &collections, &variables).expect("a sample")
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert_eq!(run(3).len(), 5);
}

#[test]
fn sinks() {
    let sink = |stage: Bson| {
        let parsed = Pipeline::parse(&stages(&bson!([stage])), &Variables::default());
        parsed.expect("a pipeline").sink().expect("a sink").clone()
    };
    let out = Sink::Out { database: None, collection: "c".into() };
    assert_eq!(sink(bson!({ "$out": "c" })), out);
    let out = Sink::Out { database: Some("d".into()), collection: "c".into() };
    assert_eq!(sink(bson!({ "$out": { "db": "d", "coll": "c" } })), out);
    let Sink::Merge(merge) = sink(bson!({ "$merge": {
        "into": "c", "on": ["a", "b"], "whenMatched": "replace", "whenNotMatched": "discard",
    } })) else {
        panic!("no merge")
    };
    assert_eq!(merge.on, ["a", "b"]);
    assert_eq!(merge.when_matched, WhenMatched::Replace);
    assert_eq!(merge.when_not_matched, WhenNotMatched::Discard);
    let Sink::Merge(merge) = sink(bson!({ "$merge": {
        "into": "c", "whenMatched": [{ "$set": { "a": "$$new.a" } }],
    } })) else {
        panic!("no merge")
    };
    assert!(matches!(merge.when_matched, WhenMatched::Pipeline { .. }));
}

#[test]
fn errors() {
    fails(bson!([{ "$foo": 1 }]), 40324, "Unrecognized pipeline stage name: '$foo'");
    fails(bson!([{}]), 40323, "exactly one field");
    fails(bson!([1]), 14, "must be an object");
    fails(bson!([{ "$limit": 0 }]), 15958, "the limit must be positive");
    fails(bson!([{ "$limit": -1 }]), 5107201, "Expected a non-negative number in: $limit: -1");
    fails(bson!([{ "$skip": "x" }]), 5107200, "Expected a number in: $skip: \"x\"");
    fails(bson!([{ "$match": 1 }]), 15959, "must be an expression in an object");
    fails(bson!([{ "$project": {} }]), 51272, "at least one field");
    fails(bson!([{ "$group": {} }]), 15955, "must include an _id");
    fails(
        bson!([{ "$group": { "_id": 1, "a": { "$foo": 1 } } }]),
        15952,
        "unknown group operator '$foo'",
    );
    fails(bson!([{ "$group": { "_id": 1, "a": 1 } }]), 40234, "must be an accumulator object");
    fails(bson!([{ "$unwind": "a" }]), 28818, "should be prefixed with a '$'");
    fails(bson!([{ "$count": "$a" }]), 40158, "$-prefixed");
    fails(bson!([{ "$out": "c" }, { "$limit": 1 }]), 40601, "$out can only be the final stage");
    fails(bson!([{ "$limit": 1 }, { "$geoNear": {} }]), 40602, "only valid as the first stage");
    fails(bson!([{ "$indexStats": {} }]), 115, "$indexStats is not supported");
    fails(bson!([{ "$facet": { "a": [{ "$out": "c" }] } }]), 40600, "within a $facet");
    fails(bson!([{ "$replaceWith": "$a" }]), 40228, "must evaluate to an object");
    fails(
        bson!([{ "$project": { "b": { "$add": ["$a", 1] } } }]),
        14,
        "$add only supports numeric or date types, not string",
    );
    fails(bson!([{ "$set": { "b": "$$nope" } }]), 17276, "Use of undefined variable: nope");
    let mut deep = bson!([]);
    for _ in 0..21 {
        deep = bson!([{ "$lookup": { "from": "c", "as": "a", "pipeline": deep } }]);
    }
    fails(deep, 232, "Maximum number of nested sub-pipelines");
}

#[test]
fn memory_is_bounded() {
    let text = "x".repeat(1 << 20);
    let documents: Vec<Document> = (0..110).map(|at| doc! { "_id": at, "text": &text }).collect();
    let collections = HashMap::from([("own", documents)]);
    for stage in [
        bson!({ "$sort": { "_id": 1 } }),
        bson!({ "$group": { "_id": "$_id", "all": { "$push": "$text" } } }),
        bson!({ "$facet": { "a": [] } }),
    ] {
        let pipeline = bson!([{ "$set": { "a": 1 } }, stage]);
        let error = run(&pipeline, &collections, &Variables::default()).expect_err("too much");
        assert_eq!(error.code(), 292, "{error}");
        assert_eq!(error.code_name(), "QueryExceededMemoryLimitNoDiskUseAllowed");
    }
    let pipeline = bson!([{ "$set": { "a": 1 } }, { "$sort": { "_id": -1 } }, { "$limit": 2 }, { "$project": { "_id": 1 } }]);
    let made = run(&pipeline, &collections, &Variables::default()).expect("only two are kept");
    assert_eq!(made, [doc! { "_id": 109 }, doc! { "_id": 108 }]);
}

/// The tests of the drivers' specification "CRUD" about `aggregate` that a server without sessions can keep:
/// `aggregate`, `aggregate-let`, `aggregate-out` and `aggregate-merge`.
#[test]
fn the_drivers_specifications() {
    let documents =
        [doc! { "_id": 1, "x": 11 }, doc! { "_id": 2, "x": 22 }, doc! { "_id": 3, "x": 33 }];
    let pipeline = bson!([{ "$sort": { "x": 1 } }, { "$match": { "_id": { "$gt": 1 } } }]);
    makes(pipeline.clone(), &documents, &documents[1..]);
    for sink in [
        bson!({ "$out": "other_test_collection" }),
        bson!({ "$merge": { "into": "other_test_collection" } }),
    ] {
        let mut pipeline = pipeline.as_array().expect("stages").clone();
        pipeline.push(sink);
        makes(Bson::Array(pipeline), &documents, &documents[1..]);
    }
    let values = doc! { "id": 1, "x": "foo", "y": { "$literal": "$bar" }, "rand": { "$rand": {} } };
    let variables = Variables::parse(0, 7, Some(&raw(&values))).expect("variables");
    let pipeline = bson!([
        { "$match": { "$expr": { "$eq": ["$_id", "$$id"] } } },
        { "$project": { "_id": 0, "x": "$$x", "y": "$$y", "rand": "$$rand" } },
    ]);
    let mut parsed = Pipeline::parse(&stages(&pipeline), &variables).expect("a pipeline");
    let filter = Filter::parse_with(&parsed.source().filter, &variables).expect("a filter");
    assert!(filter.matches(&raw(&doc! { "_id": 1 })));
    assert!(!filter.matches(&raw(&doc! { "_id": 2 })));
    parsed.push(raw(&doc! { "_id": 1 }));
    let Step::Gives(made) = parsed.step().expect("no error") else { panic!("no document") };
    let mut made = Document::try_from(made).expect("a document");
    assert!(
        matches!(made.remove("rand"), Some(Bson::Double(value)) if (0.0..1.0).contains(&value))
    );
    assert_eq!(made, doc! { "x": "foo", "y": "$bar" });
}
