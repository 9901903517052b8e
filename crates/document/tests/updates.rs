//! Updates: what they make of documents, and which are wrong. The expected outcomes are those of MongoDB's
//! manual.

use crate::generate::{document, filter, value};
use bson::{Bson, Document, RawDocumentBuf, doc};
use proptest::prelude::*;
use proptest::sample::select;
use remora_document::{DocumentError, Update, UpdateContext};

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn parse(update: &Document, filters: &[Document]) -> Result<Update, DocumentError> {
    let filters: Vec<_> = filters.iter().map(raw).collect();
    let filters: Vec<_> = filters.iter().map(AsRef::as_ref).collect();
    Update::parse(&raw(update), &filters)
}

const CONTEXT: UpdateContext = UpdateContext { now_ms: 86_400_000, found: None, is_insert: false };

fn applied(update: &Document, before: &Document) -> Result<(Document, bool), DocumentError> {
    applied_with(update, &[], before, &CONTEXT)
}

fn applied_with(
    update: &Document,
    filters: &[Document],
    before: &Document,
    context: &UpdateContext,
) -> Result<(Document, bool), DocumentError> {
    let mut document = before.clone();
    let changed = parse(update, filters)?.apply(&mut document, context)?;
    Ok((document, changed))
}

#[track_caller]
fn makes(update: Document, before: Document, after: Document) {
    let (made, changed) =
        applied(&update, &before).unwrap_or_else(|error| panic!("{update}: {error}"));
    // Their texts tell the order of fields and the types of numbers apart.
    let [made, after, before] = [&made, &after, &before].map(|of| format!("{of:?}"));
    assert_eq!(made, after, "{update} of {before}");
    assert_eq!(changed, made != before, "{update} of {before}");
}

#[track_caller]
fn fails(update: Document, before: Document, code: i32, text: &str) {
    let error = applied(&update, &before).map(|(made, _)| made).expect_err("it is wrong");
    assert_eq!(error.code(), code, "{error}");
    assert!(error.message().contains(text), "{error}");
}

#[test]
fn fields_are_set_made_and_removed() {
    makes(doc! {"$set": {"a": 2}}, doc! {"_id": 1, "a": 1}, doc! {"_id": 1, "a": 2});
    makes(doc! {"$set": {"a": 1}}, doc! {"_id": 1, "a": 1}, doc! {"_id": 1, "a": 1});
    // Another type is a change, as the order of fields is.
    makes(doc! {"$set": {"a": 1.0}}, doc! {"_id": 1, "a": 1}, doc! {"_id": 1, "a": 1.0});
    makes(
        doc! {"$set": {"a": {"x": 1, "y": 2}}},
        doc! {"a": {"y": 2, "x": 1}},
        doc! {"a": {"x": 1, "y": 2}},
    );
    // New fields come in the order of their names, numbers first and as numbers.
    makes(
        doc! {"$set": {"z": 1, "b": 2, "10": 3, "9": 4}},
        doc! {"m": 0},
        doc! {"m": 0, "9": 4, "10": 3, "b": 2, "z": 1},
    );
    makes(doc! {"$set": {"a.b.c": 1}}, doc! {}, doc! {"a": {"b": {"c": 1}}});
    makes(
        doc! {"$set": {"a.1.b": 1}},
        doc! {"a": [{"b": 0}, {"b": 0}]},
        doc! {"a": [{"b": 0}, {"b": 1}]},
    );
    makes(doc! {"$set": {"a.3": 1}}, doc! {"a": [0]}, doc! {"a": [0, Bson::Null, Bson::Null, 1]});
    makes(doc! {"$unset": {"a": "", "x.y": 1}}, doc! {"a": 1, "b": 2}, doc! {"b": 2});
    makes(doc! {"$unset": {"a.0": ""}}, doc! {"a": [1, 2]}, doc! {"a": [Bson::Null, 2]});
    makes(doc! {"$unset": {"a.b.c": ""}}, doc! {"a": 5}, doc! {"a": 5});
    makes(doc! {"$set": {}}, doc! {"a": 5}, doc! {"a": 5});
}

#[test]
fn numbers_and_extremes() {
    makes(doc! {"$inc": {"a": 2, "b": -1}}, doc! {"a": 1}, doc! {"a": 3, "b": -1});
    makes(doc! {"$inc": {"a": 1_i64}}, doc! {"a": 1}, doc! {"a": 2_i64});
    makes(doc! {"$mul": {"a": 2.5, "b": 3_i64}}, doc! {"a": 2}, doc! {"a": 5.0, "b": 0_i64});
    makes(doc! {"$min": {"a": 5, "b": 1}}, doc! {"a": 7}, doc! {"a": 5, "b": 1});
    makes(doc! {"$min": {"a": 9}}, doc! {"a": 7}, doc! {"a": 7});
    // Types are compared by their order: a string is above numbers.
    makes(doc! {"$max": {"a": "x"}}, doc! {"a": 7}, doc! {"a": "x"});
    makes(doc! {"$bit": {"a": {"and": 10}}}, doc! {"a": 13}, doc! {"a": 8});
    makes(doc! {"$bit": {"a": {"or": 5_i64}}}, doc! {"a": 3}, doc! {"a": 7_i64});
    makes(doc! {"$bit": {"a": {"xor": 5}}}, doc! {}, doc! {"a": 5});
    fails(doc! {"$inc": {"a": "x"}}, doc! {}, 14, "Cannot increment with non-numeric argument");
    fails(doc! {"$inc": {"a": 1}}, doc! {"_id": 1, "a": "x"}, 14, "non-numeric type string");
    fails(doc! {"$inc": {"a": 1}}, doc! {"_id": 1, "a": i64::MAX}, 2, "Failed to apply $inc");
    for (factor, zero) in [("1.5", "0.0"), ("-1.25", "-0.00"), ("2E3", "0E3"), ("Infinity", "NaN")]
    {
        let of = |text: &str| Bson::Decimal128(text.parse().unwrap());
        makes(doc! {"$mul": {"a": of(factor)}}, doc! {}, doc! {"a": of(zero)});
    }
    fails(doc! {"$bit": {"a": {"not": 1}}}, doc! {}, 2, "only supports 'and', 'or', and 'xor'");
    fails(doc! {"$bit": {"a": {"or": 1}}}, doc! {"a": 1.5}, 2, "non-integral");
}

#[test]
fn times_inserts_and_names() {
    let date = Bson::DateTime(bson::DateTime::from_millis(86_400_000));
    makes(doc! {"$currentDate": {"a": true}}, doc! {}, doc! {"a": date.clone()});
    makes(doc! {"$currentDate": {"a": {"$type": "date"}}}, doc! {"a": 1}, doc! {"a": date});
    let time = bson::Timestamp { time: 86_400, increment: 1 };
    makes(doc! {"$currentDate": {"a": {"$type": "timestamp"}}}, doc! {}, doc! {"a": time});
    fails(doc! {"$currentDate": {"a": 1}}, doc! {}, 2, "is not valid type for $currentDate");

    let update = doc! {"$setOnInsert": {"a": 1}, "$set": {"b": 2}};
    makes(update.clone(), doc! {}, doc! {"b": 2});
    let context = UpdateContext { is_insert: true, ..CONTEXT };
    let (made, _) = applied_with(&update, &[], &doc! {}, &context).unwrap();
    assert_eq!(made, doc! {"a": 1, "b": 2});

    makes(doc! {"$rename": {"a": "b"}}, doc! {"a": 1, "c": 2}, doc! {"c": 2, "b": 1});
    makes(doc! {"$rename": {"a.b": "c.d"}}, doc! {"a": {"b": 1}}, doc! {"a": {}, "c": {"d": 1}});
    makes(doc! {"$rename": {"x": "y"}}, doc! {"a": 1}, doc! {"a": 1});
    fails(doc! {"$rename": {"a": "a"}}, doc! {}, 2, "must differ");
    makes(doc! {"$rename": {"a.1": "b"}}, doc! {"a": [1]}, doc! {"a": [1]});
    fails(doc! {"$rename": {"a.b.c": "d"}}, doc! {"a": false}, 28, "Cannot use the part (b)");
    fails(doc! {"$rename": {"a.b": "d"}}, doc! {"a": [1]}, 28, "Cannot use the part (b)");
    fails(doc! {"$rename": {"a.0": "b"}}, doc! {"a": [1]}, 2, "cannot be an array element");
    fails(doc! {"$rename": {"a": "b"}, "$set": {"b": 1}}, doc! {}, 40, "conflict at 'b'");
    fails(doc! {"$rename": {"a": "b\0"}}, doc! {"a": 1}, 2, "null byte");
}

#[test]
fn arrays_are_pushed_to_and_pulled_from() {
    makes(doc! {"$push": {"a": 2}}, doc! {"a": [1]}, doc! {"a": [1, 2]});
    makes(doc! {"$push": {"a": [2]}}, doc! {}, doc! {"a": [[2]]});
    makes(
        doc! {"$push": {"a": {"$each": [2, 3], "$position": 0}}},
        doc! {"a": [1]},
        doc! {"a": [2, 3, 1]},
    );
    makes(
        doc! {"$push": {"a": {"$each": [9], "$position": -1}}},
        doc! {"a": [1, 2]},
        doc! {"a": [1, 9, 2]},
    );
    makes(
        doc! {"$push": {"a": {"$each": [4, 2], "$sort": 1, "$slice": -2}}},
        doc! {"a": [3, 1]},
        doc! {"a": [3, 4]},
    );
    makes(
        doc! {"$push": {"a": {"$each": [{"n": 1, "s": 5}], "$sort": {"s": -1, "n": 1}, "$slice": 2}}},
        doc! {"a": [{"n": 2, "s": 5}, {"n": 3, "s": 1}]},
        doc! {"a": [{"n": 1, "s": 5}, {"n": 2, "s": 5}]},
    );
    makes(doc! {"$addToSet": {"a": 1}}, doc! {"a": [1.0]}, doc! {"a": [1.0]});
    makes(doc! {"$addToSet": {"a": {"$each": [1, 2, 2]}}}, doc! {"a": [1]}, doc! {"a": [1, 2]});
    makes(doc! {"$addToSet": {"a": [1]}}, doc! {}, doc! {"a": [[1]]});
    makes(doc! {"$pop": {"a": 1}}, doc! {"a": [1, 2]}, doc! {"a": [1]});
    makes(doc! {"$pop": {"a": -1, "b": 1}}, doc! {"a": [1, 2]}, doc! {"a": [2]});
    makes(doc! {"$pull": {"a": {"$gte": 2}}}, doc! {"a": [1, 2, 3]}, doc! {"a": [1]});
    makes(
        doc! {"$pull": {"a": {"s": 8, "i": "B"}}},
        doc! {"a": [{"i": "A", "s": 8}, {"i": "B", "s": 8}, {"i": "B", "s": 4}]},
        doc! {"a": [{"i": "A", "s": 8}, {"i": "B", "s": 4}]},
    );
    makes(doc! {"$pull": {"a": 1}}, doc! {"a": [1, 2, 1.0]}, doc! {"a": [2]});
    makes(doc! {"$pullAll": {"a": [1, 3]}}, doc! {"a": [1, 2, 3]}, doc! {"a": [2]});
    fails(
        doc! {"$push": {"a": 1}},
        doc! {"_id": 1, "a": 5},
        2,
        "must be an array but is of type int",
    );
    fails(doc! {"$push": {"a": {"$each": 1}}}, doc! {}, 2, "must be an array");
    fails(doc! {"$push": {"a": {"$each": [], "$foo": 1}}}, doc! {}, 2, "Unrecognized clause");
    fails(doc! {"$pop": {"a": 1}}, doc! {"a": 1}, 14, "non-array type 'int'");
    fails(doc! {"$pop": {"a.b": 1}}, doc! {"a": 1}, 28, "Cannot use the part (b)");
    fails(doc! {"$pull": {"a.b": 1}}, doc! {"a": Bson::Null}, 28, "Cannot use the part (b)");
    fails(doc! {"$pull": {"a": 1}}, doc! {"a": "x"}, 2, "Cannot apply $pull to a non-array");
    fails(doc! {"$addToSet": {"a": 1}}, doc! {"a": {}}, 2, "Cannot apply $addToSet to non-array");
    makes(doc! {"$unset": {"a.b": 1}}, doc! {"a": 1}, doc! {"a": 1});
    fails(doc! {"$pop": {"a": 2}}, doc! {}, 9, "$pop expects 1 or -1");
    fails(doc! {"$pullAll": {"a": 1}}, doc! {}, 2, "requires an array");
}

#[test]
fn elements_are_named_by_position_all_or_filter() {
    let before = doc! {"_id": 1, "a": [{"n": 1}, {"n": 5}, {"n": 9}]};
    let update = doc! {"$set": {"a.$.n": 0}};
    let context = UpdateContext { found: Some(1), ..CONTEXT };
    let (made, _) = applied_with(&update, &[], &before, &context).unwrap();
    assert_eq!(made, doc! {"_id": 1, "a": [{"n": 1}, {"n": 0}, {"n": 9}]});
    fails(update, before.clone(), 2, "did not find the match needed");
    makes(
        doc! {"$inc": {"a.$[].n": 1}},
        doc! {"a": [{"n": 1}, {"n": 5}]},
        doc! {"a": [{"n": 2}, {"n": 6}]},
    );
    let update = doc! {"$set": {"a.$[e].n": 100}};
    let (made, _) = applied_with(&update, &[doc! {"e.n": {"$gte": 5}}], &before, &CONTEXT).unwrap();
    assert_eq!(made, doc! {"_id": 1, "a": [{"n": 1}, {"n": 100}, {"n": 100}]});
    fails(update.clone(), before.clone(), 2, "No array filter found for identifier 'e'");
    let unused = parse(&doc! {"$set": {"b": 1}}, &[doc! {"e": 1}]).expect_err("unused");
    assert!(unused.code() == 9 && unused.message().contains("was not used"), "{unused}");
    for (filter, text) in [
        (doc! {}, "without a top-level field name"),
        (doc! {"e": 1, "f": 2}, "Expected a single top-level field name"),
        (doc! {"E": 1}, "beginning with a lowercase letter"),
        (doc! {"$or": [{"e": 1}, {"f": 1}]}, "Expected a single"),
    ] {
        let error = parse(&update, &[filter]).expect_err(text);
        assert!(error.message().contains(text), "{error}");
    }
    fails(doc! {"$set": {"a.$[].n": 1}}, doc! {"a": 1}, 2, "non-array element");
    fails(doc! {"$set": {"a.$[].n": 1}}, doc! {}, 2, "must exist in the document");
}

#[test]
fn what_is_wrong_is_said() {
    fails(doc! {"$foo": {"a": 1}}, doc! {}, 9, "Unknown modifier: $foo");
    fails(doc! {"$set": 1}, doc! {}, 9, "Modifiers operate on fields");
    fails(doc! {"$set": {"a": 1}, "$inc": {"a": 1}}, doc! {}, 40, "conflict at 'a'");
    fails(doc! {"$set": {"a": 1, "a.b": 1}}, doc! {}, 40, "would create a conflict at 'a'");
    fails(doc! {"$set": {"a.b": 1, "a": 1}}, doc! {}, 40, "would create a conflict at 'a'");
    fails(
        doc! {"$set": {"a.b": 1}},
        doc! {"a": 5},
        28,
        "Cannot create field 'b' in element {a: 5}",
    );
    fails(doc! {"$set": {"a.b": 1}}, doc! {"a": [1]}, 28, "Cannot create field 'b'");
    fails(doc! {"$set": {"": 1}}, doc! {}, 56, "empty");
    fails(doc! {"$set": {"a..b": 1}}, doc! {}, 56, "empty field name");
    fails(doc! {"$set": {"$a": 1}}, doc! {}, 52, "dollar");
    fails(doc! {"$set": {"a.$.b.$": 1}}, doc! {}, 2, "Too many positional");
    fails(doc! {"$set": {"_id": 2}}, doc! {"_id": 1}, 66, "immutable field '_id'");
    fails(doc! {"$set": {"a.9999999": 1}}, doc! {"a": []}, 2, "backfill");
    makes(doc! {"$set": {"_id": 1}}, doc! {"_id": 1}, doc! {"_id": 1});
}

#[test]
fn a_replacement_keeps_the_id_and_puts_it_first() {
    makes(doc! {"b": 2}, doc! {"_id": 1, "a": 1}, doc! {"_id": 1, "b": 2});
    makes(doc! {"b": 2, "_id": 1}, doc! {"_id": 1, "a": 1}, doc! {"_id": 1, "b": 2});
    makes(doc! {}, doc! {"_id": 1, "a": 1}, doc! {"_id": 1});
    fails(doc! {"_id": 2}, doc! {"_id": 1}, 66, "altered");
    fails(doc! {"a": 1, "$set": {"b": 1}}, doc! {}, 52, "not allowed");
    assert!(parse(&doc! {"a": 1}, &[]).unwrap().is_replacement());
    assert_eq!(parse(&doc! {"a": 1}, &[doc! {"e": 1}]).expect_err("no operators").code(), 9);
}

/// Operators whose second application makes no difference.
const IDEMPOTENT: [&str; 6] = ["$set", "$unset", "$min", "$max", "$addToSet", "$pull"];
const OTHERS: [&str; 9] = [
    "$inc",
    "$mul",
    "$push",
    "$pop",
    "$pullAll",
    "$bit",
    "$rename",
    "$currentDate",
    "$setOnInsert",
];
const PATHS: [&str; 12] =
    ["a", "b", "a.b", "a.0", "a.1.b", "c.$[]", "a.$[e].b", "a.$", "_id", "b.x", "", "$c"];

fn argument() -> impl Strategy<Value = Bson> {
    prop_oneof![
        4 => value(),
        1 => filter().prop_map(Bson::Document),
        1 => proptest::collection::vec(value(), 0..4).prop_map(|items| {
            Bson::Document(doc! {"$each": items, "$slice": -3, "$sort": 1})
        }),
        1 => select(vec![Bson::Int32(1), Bson::Int32(-1), Bson::String("b".into())]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn any_update_of_any_document_is_made_or_refused(
        operators in proptest::collection::vec(
            (select([&IDEMPOTENT[..], &OTHERS].concat()), select(PATHS.to_vec()), argument()),
            1..4,
        ),
        before in document(),
        found in proptest::option::of(0..3usize),
    ) {
        let is_idempotent = operators.iter().all(|(name, ..)| IDEMPOTENT.contains(name));
        let mut update = Document::new();
        for (name, path, argument) in operators {
            if let Bson::Document(of) = update.entry(name).or_insert_with(|| doc! {}.into()) {
                of.insert(path, argument);
            }
        }
        let filters = [doc! {"e": {"$exists": true}}];
        let names_filter = update.to_string().contains("$[e]");
        let Ok(parsed) = parse(&update, &filters[..names_filter as usize]) else { return Ok(()) };
        let context = UpdateContext { found, ..CONTEXT };
        let mut made = before.clone();
        let Ok(changed) = parsed.apply(&mut made, &context) else { return Ok(()) };
        prop_assert_eq!(changed, format!("{made:?}") != format!("{before:?}"));
        prop_assert!(RawDocumentBuf::try_from(&made).is_ok());
        if let Some(id) = before.get("_id") {
            prop_assert_eq!(made.get("_id").map(|of| format!("{of:?}")), Some(format!("{id:?}")));
        }
        if is_idempotent {
            let mut again = made.clone();
            // What it made first may be no place for it, as a null before a position in an array.
            let changed = parsed.apply(&mut again, &context).unwrap_or(false);
            prop_assert!(!changed, "{} of {}", update, made);
        }
    }
}
