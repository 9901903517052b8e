//! Pipelines against a naive interpreter, and random expressions, projections and stages that must do no harm.

use crate::generate::{document, value};
use crate::pipelines::{raw, run, stages};
use bson::{Bson, Document, RawBson, RawDocumentBuf, bson, doc};
use proptest::prelude::*;
use proptest::sample::select;
use remora_document::{Distinct, Pipeline, Projection, Update, UpdateContext, Variables, compare};
use remora_layout::limits::MAX_DOCUMENT_DEPTH;
use std::cmp::Ordering;
use std::collections::HashMap;

fn order(one: &Bson, other: &Bson) -> Ordering {
    let raw = |value: &Bson| RawBson::try_from(value.clone()).expect("a value");
    compare(raw(one).as_raw_bson_ref(), raw(other).as_raw_bson_ref())
}

/// Few values, so that they meet.
fn small() -> impl Strategy<Value = Bson> {
    let scalar = prop_oneof![
        (0..4i32).prop_map(Bson::Int32),
        (0..4i64).prop_map(Bson::Int64),
        (0..4).prop_map(|value| Bson::Double(f64::from(value))),
        select(vec!["x", "y"]).prop_map(|text| Bson::String(text.to_owned())),
        Just(Bson::Null),
    ];
    let array = proptest::collection::vec(scalar.clone(), 0..4).prop_map(Bson::Array);
    prop_oneof![3 => scalar, 1 => array]
}

fn small_document() -> impl Strategy<Value = Document> {
    let name = select(vec!["a", "b", "c"]);
    proptest::collection::vec((name, small()), 0..4).prop_map(|fields| {
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    })
}

fn stage() -> impl Strategy<Value = Bson> {
    let field = || select(vec!["a", "b", "c"]);
    let direction = || select(vec![1, -1]);
    prop_oneof![
        (field(), direction(), field(), direction()).prop_map(|(one, up, other, down)| {
            let mut keys = doc! { one: up };
            keys.entry(other.to_owned()).or_insert(Bson::Int32(down));
            bson!({ "$sort": keys })
        }),
        (1..6).prop_map(|limit| bson!({ "$limit": limit })),
        (1..4).prop_map(|skip| bson!({ "$skip": skip })),
        (field(), any::<bool>()).prop_map(|(field, keeps)| {
            bson!({ "$unwind": { "path": format!("${field}"), "preserveNullAndEmptyArrays": keeps } })
        }),
        (field(), field()).prop_map(|(by, of)| {
            let of = format!("${of}");
            bson!({ "$group": {
                "_id": format!("${by}"), "a": { "$sum": &of }, "b": { "$push": &of },
                "c": { "$first": &of }, "least": { "$min": &of },
            } })
        }),
        (field(), field()).prop_map(|(to, from)| bson!({ "$set": { to: format!("${from}") } })),
    ]
}

/// The value by which a document is sorted.
fn sort_value(document: &Document, field: &str, is_descending: bool) -> Bson {
    match document.get(field) {
        None => Bson::Null,
        Some(Bson::Array(values)) if values.is_empty() => Bson::Undefined,
        Some(Bson::Array(values)) => {
            let mut values = values.clone();
            values.sort_by(order);
            if is_descending { values.pop().expect("not empty") } else { values.remove(0) }
        }
        Some(value) => value.clone(),
    }
}

fn sum(values: &[Bson]) -> Bson {
    let (mut integers, mut doubles) = (0i64, 0f64);
    let (mut has_long, mut has_double) = (false, false);
    for value in values {
        match value {
            Bson::Int32(value) => integers += i64::from(*value),
            Bson::Int64(value) => (integers, has_long) = (integers + value, true),
            Bson::Double(value) => (doubles, has_double) = (doubles + value, true),
            _ => {}
        }
    }
    match (has_double, has_long) {
        (true, _) => Bson::Double(doubles + integers as f64),
        (_, true) => Bson::Int64(integers),
        _ => Bson::Int32(i32::try_from(integers).expect("small")),
    }
}

fn group(documents: &[Document], by: &str, of: &str) -> Vec<Document> {
    let mut groups: Vec<(Bson, Vec<&Document>)> = Vec::new();
    for document in documents {
        let id = document.get(by).cloned().unwrap_or(Bson::Null);
        match groups.iter_mut().find(|(known, _)| order(known, &id).is_eq()) {
            Some((_, all)) => all.push(document),
            None => groups.push((id, vec![document])),
        }
    }
    let made = |(id, all): (Bson, Vec<&Document>)| {
        let values: Vec<Bson> =
            all.iter().filter_map(|document| document.get(of)).cloned().collect();
        let present = values.iter().filter(|value| **value != Bson::Null).cloned();
        let least = present.min_by(order).unwrap_or(Bson::Null);
        let first = all[0].get(of).cloned().unwrap_or(Bson::Null);
        doc! { "_id": id, "a": sum(&values), "b": values, "c": first, "least": least }
    };
    groups.into_iter().map(made).collect()
}

fn unwind(documents: &[Document], field: &str, keeps: bool) -> Vec<Document> {
    let mut made = Vec::new();
    for document in documents {
        match document.get(field) {
            Some(Bson::Array(values)) if !values.is_empty() => {
                for value in values {
                    let mut document = document.clone();
                    document.insert(field, value.clone());
                    made.push(document);
                }
            }
            Some(Bson::Array(_)) if keeps => {
                let mut document = document.clone();
                document.remove(field);
                made.push(document);
            }
            None | Some(Bson::Null) if keeps => made.push(document.clone()),
            None | Some(Bson::Null | Bson::Array(_)) => {}
            Some(_) => made.push(document.clone()),
        }
    }
    made
}

/// What a stage makes of all documents.
fn naive(stage: &Document, mut documents: Vec<Document>) -> Vec<Document> {
    let (name, argument) = stage.iter().next().expect("a stage");
    match (name.as_str(), argument) {
        ("$limit", Bson::Int32(limit)) => documents.truncate(*limit as usize),
        ("$skip", Bson::Int32(skip)) => {
            documents.drain(..(*skip as usize).min(documents.len()));
        }
        ("$sort", Bson::Document(keys)) => documents.sort_by(|one, other| {
            let orders = keys.iter().map(|(field, direction)| {
                let is_descending = *direction == Bson::Int32(-1);
                let value = |document| sort_value(document, field, is_descending);
                let order = order(&value(one), &value(other));
                if is_descending { order.reverse() } else { order }
            });
            orders.fold(Ordering::Equal, Ordering::then)
        }),
        ("$unwind", Bson::Document(argument)) => {
            let field = argument.get_str("path").expect("a path")[1..].to_owned();
            let keeps = argument.get_bool("preserveNullAndEmptyArrays").expect("a flag");
            return unwind(&documents, &field, keeps);
        }
        ("$group", Bson::Document(argument)) => {
            let by = argument.get_str("_id").expect("a path");
            let of = argument.get_document("a").and_then(|of| of.get_str("$sum")).expect("a path");
            return group(&documents, &by[1..], &of[1..]);
        }
        ("$set", Bson::Document(argument)) => {
            let (to, from) = argument.iter().next().expect("a field");
            let from = from.as_str().expect("a path")[1..].to_owned();
            for document in &mut documents {
                match document.get(&from).cloned() {
                    Some(value) => {
                        document.insert(to.clone(), value);
                    }
                    None => {
                        document.remove(to);
                    }
                }
            }
        }
        _ => unreachable!("{stage}"),
    }
    documents
}

const OPERATORS: &[&str] = &[
    "$abs",
    "$add",
    "$allElementsTrue",
    "$and",
    "$arrayElemAt",
    "$arrayToObject",
    "$avg",
    "$bitAnd",
    "$bitNot",
    "$bsonSize",
    "$ceil",
    "$cmp",
    "$concat",
    "$concatArrays",
    "$cond",
    "$dayOfYear",
    "$divide",
    "$eq",
    "$exp",
    "$first",
    "$floor",
    "$getField",
    "$gt",
    "$hour",
    "$ifNull",
    "$in",
    "$indexOfArray",
    "$indexOfBytes",
    "$indexOfCP",
    "$isArray",
    "$isoWeek",
    "$isoWeekYear",
    "$last",
    "$literal",
    "$ln",
    "$log",
    "$max",
    "$mergeObjects",
    "$min",
    "$mod",
    "$multiply",
    "$not",
    "$objectToArray",
    "$or",
    "$pow",
    "$range",
    "$reverseArray",
    "$round",
    "$setDifference",
    "$setEquals",
    "$setIntersection",
    "$setIsSubset",
    "$setUnion",
    "$size",
    "$slice",
    "$split",
    "$sqrt",
    "$stdDevPop",
    "$strLenBytes",
    "$strLenCP",
    "$strcasecmp",
    "$substrBytes",
    "$substrCP",
    "$subtract",
    "$sum",
    "$toBool",
    "$toDate",
    "$toDecimal",
    "$toDouble",
    "$toInt",
    "$toLong",
    "$toLower",
    "$toObjectId",
    "$toString",
    "$toUpper",
    "$trunc",
    "$type",
    "$week",
    "$year",
];

/// Operators with named arguments.
const NAMED: &[(&str, &[&str])] = &[
    ("$dateAdd", &["startDate", "unit", "amount", "timezone"]),
    ("$dateDiff", &["startDate", "endDate", "unit", "startOfWeek"]),
    ("$dateFromParts", &["year", "month", "day", "hour", "minute", "second", "millisecond"]),
    ("$dateFromString", &["dateString", "format", "onError"]),
    ("$dateToParts", &["date", "iso8601"]),
    ("$dateToString", &["date", "format"]),
    ("$dateTrunc", &["date", "unit", "binSize"]),
    ("$filter", &["input", "cond", "limit"]),
    ("$firstN", &["input", "n"]),
    ("$map", &["input", "in"]),
    ("$maxN", &["input", "n"]),
    ("$reduce", &["input", "initialValue", "in"]),
    ("$regexFindAll", &["input", "regex"]),
    ("$replaceAll", &["input", "find", "replacement"]),
    ("$setField", &["field", "input", "value"]),
    ("$sortArray", &["input", "sortBy"]),
    ("$trim", &["input", "chars"]),
    ("$zip", &["inputs", "useLongestLength"]),
];

fn expression() -> impl Strategy<Value = Bson> {
    let texts = vec![
        "$a",
        "$b",
        "$c.a",
        "$$ROOT",
        "$$NOW",
        "$$this",
        "$$value",
        "day",
        "month",
        "week",
        "%Y-%m-%d",
        "2020-02-30",
        "12",
        "é",
        "",
        "a.0",
        "sun",
        "+0130",
    ];
    let leaf = prop_oneof![
        4 => select(texts).prop_map(|text| Bson::String(text.to_owned())),
        2 => value(),
        2 => (-3..20i32).prop_map(Bson::Int32),
        1 => select(vec![i64::MIN, i64::MAX, -1, 1 << 40]).prop_map(Bson::Int64),
        1 => select(vec![i64::MIN, i64::MAX, 0, 1 << 50])
            .prop_map(|millis| Bson::DateTime(bson::DateTime::from_millis(millis))),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let arguments = proptest::collection::vec(inner.clone(), 0..4);
        let call = (select(OPERATORS.to_vec()), arguments.clone())
            .prop_map(|(name, arguments)| bson!({ name: arguments }));
        let one = (select(OPERATORS.to_vec()), inner.clone())
            .prop_map(|(name, argument)| bson!({ name: argument }));
        let named = (select(NAMED.to_vec()), proptest::collection::vec(inner.clone(), 7)).prop_map(
            |((name, names), arguments)| {
                let arguments: Document =
                    names.iter().map(|name| (*name).to_owned()).zip(arguments).collect();
                bson!({ name: arguments })
            },
        );
        prop_oneof![3 => call, 3 => one, 3 => named, 1 => arguments.prop_map(Bson::Array)]
    })
}

fn depth(value: &Bson) -> usize {
    match value {
        Bson::Document(of) => 1 + of.values().map(depth).max().unwrap_or(0),
        Bson::Array(of) => 1 + of.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn pipelines_make_what_the_naive_interpreter_makes(
        pipeline in proptest::collection::vec(stage(), 0..5),
        documents in proptest::collection::vec(small_document(), 0..8),
    ) {
        // The last of several sorts decides: what is equal for it may come in any order.
        let mut pipeline = pipeline;
        let is_sort = |stage: &Bson| stage.as_document().is_some_and(|of| of.contains_key("$sort"));
        pipeline.reverse();
        pipeline.dedup_by(|earlier, later| is_sort(earlier) && is_sort(later));
        pipeline.reverse();
        let mut expected = documents.clone();
        for stage in &pipeline {
            expected = naive(stage.as_document().expect("a stage"), expected);
        }
        let collections = HashMap::from([("own", documents)]);
        let pipeline = Bson::Array(pipeline);
        let made = run(&pipeline, &collections, &Variables::default());
        let made = made.unwrap_or_else(|error| panic!("{pipeline}: {error}"));
        prop_assert_eq!(format!("{made:?}"), format!("{expected:?}"), "{}", pipeline);
    }

    #[test]
    fn expressions_have_a_value_or_an_error(
        expression in expression(),
        document in document(),
        other in value(),
    ) {
        let mut document = document;
        document.insert("b", other);
        let projection = doc! { "made": { "$map": {
            "input": ["$a", "$b"], "in": { "$let": { "vars": { "value": 1 }, "in": expression } },
        } } };
        let Ok(projection) = RawDocumentBuf::try_from(&projection) else { return Ok(()) };
        let Ok(projection) = Projection::parse(&projection) else { return Ok(()) };
        let Ok(made) = projection.apply(&raw(&document), None) else { return Ok(()) };
        let made = Document::try_from(made);
        prop_assert!(made.is_ok());
        prop_assert!(depth(&Bson::Document(made.expect("checked"))) <= MAX_DOCUMENT_DEPTH);
    }

    #[test]
    fn any_stages_do_no_harm(
        names in proptest::collection::vec(select(vec![
            "$match", "$project", "$set", "$unset", "$group", "$sort", "$limit", "$skip", "$unwind", "$count",
            "$sample", "$replaceWith", "$redact", "$bucket", "$facet", "$lookup", "$graphLookup",
            "$unionWith", "$merge", "$out", "$documents", "$sortByCount",
        ]), 1..4),
        arguments in proptest::collection::vec(prop_oneof![expression(), value()], 4),
        document in document(),
    ) {
        let all = names.iter().zip(&arguments).map(|(name, argument)| bson!({ *name: argument.clone() }));
        let all = Bson::Array(all.collect());
        if RawBson::try_from(all.clone()).is_err() {
            return Ok(());
        }
        let _ = Pipeline::parse(&stages(&all), &Variables::default());
        let collections = HashMap::from([("own", vec![document.clone(), document.clone()])]);
        let _ = run(&all, &collections, &Variables::default());
        if let Ok(update) = Update::parse_pipeline(&stages(&all), &Variables::default()) {
            let mut document = document;
            let _ = update.apply(&mut document, &UpdateContext::default());
        }
    }

    #[test]
    fn any_projection_is_applied_or_refused(
        fields in proptest::collection::vec((
            select(vec!["a", "b", "a.b", "a.0", "_id", "a.$", "c.a.b", "", "$a"]),
            prop_oneof![
                3 => select(vec![Bson::Int32(0), Bson::Int32(1), Bson::Boolean(true)]),
                1 => expression(),
                1 => (-3..3i32, 0..3i32).prop_map(|(skip, count)| bson!({ "$slice": [skip, count] })),
                1 => (-3..3i32).prop_map(|count| bson!({ "$slice": count })),
                1 => value().prop_map(|value| bson!({ "$elemMatch": { "$gt": value } })),
            ],
        ), 0..4),
        document in document(),
        found in proptest::option::of(0..3usize),
    ) {
        let projection: Document =
            fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let Ok(projection) = RawDocumentBuf::try_from(&projection) else { return Ok(()) };
        let Ok(projection) = Projection::parse(&projection) else { return Ok(()) };
        if let Ok(made) = projection.apply(&raw(&document), found) {
            prop_assert!(Document::try_from(made).is_ok());
        }
    }

    #[test]
    fn distinct_values_differ(documents in proptest::collection::vec(small_document(), 0..8)) {
        let mut distinct = Distinct::new("a").expect("a path");
        let mut expected: Vec<Bson> = Vec::new();
        for document in &documents {
            distinct.push(&raw(document)).expect("they are few");
            let values = match document.get("a") {
                Some(Bson::Array(values)) => values.clone(),
                value => value.cloned().into_iter().collect(),
            };
            for value in values {
                if !expected.iter().any(|known| order(known, &value).is_eq()) {
                    expected.push(value);
                }
            }
        }
        let made = Bson::try_from(RawBson::Array(distinct.values().clone())).expect("values");
        prop_assert_eq!(format!("{made:?}"), format!("{:?}", Bson::Array(expected)));
    }
}
