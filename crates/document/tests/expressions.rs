//! Expressions, operator by operator: the examples of MongoDB's manual, and its errors.

use crate::pipelines::raw;
use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Document, Timestamp, bson, doc};
use remora_document::{DocumentError, Projection, Variables};

fn evaluated(expression: &Bson, document: &Document) -> Result<Option<Bson>, DocumentError> {
    let variables = Variables::parse(1_500_000_000_000, 1, None).expect("no variables");
    let projection = doc! { "_id": 0, "made": { "$let": { "vars": {}, "in": expression } } };
    let projection = Projection::parse_with(&raw(&projection), &variables)?;
    let made = projection.apply(&raw(document), None)?;
    Ok(Document::try_from(made).expect("a valid document").remove("made"))
}

fn sample() -> Document {
    doc! {
        "int": 7, "long": 8i64, "double": 2.5, "text": "Hello, World", "null": null,
        "array": [1, 2, 3], "docs": [{ "a": 1 }, { "a": [2, 3] }, 4], "inner": { "a": 1, "b": { "c": 2 } },
        "accents": "caféteria", "date": date(2017, 5, 8, 1_513_000),
        "id": ObjectId::parse_str("5ab9c3da31c2ab715d421285").expect("an id"),
    }
}

/// A date by its day and the milliseconds since midnight.
fn date(year: i64, month: i64, day: i64, millis: i64) -> Bson {
    let date = DateTime::builder()
        .year(i32::try_from(year).expect("a year"))
        .month(u8::try_from(month).expect("a month"))
        .day(u8::try_from(day).expect("a day"))
        .build()
        .expect("a date");
    Bson::DateTime(DateTime::from_millis(date.timestamp_millis() + millis))
}

/// Checks a table of expressions and their values. Texts tell the types of numbers.
#[track_caller]
fn gives(cases: Vec<(Bson, Bson)>) {
    for (expression, expected) in cases {
        let made = evaluated(&expression, &sample());
        let made = made.unwrap_or_else(|error| panic!("{expression}: {error}"));
        assert_eq!(format!("{made:?}"), format!("{:?}", Some(expected)), "{expression}");
    }
}

#[track_caller]
fn fails(cases: Vec<(Bson, i32, &str)>) {
    for (expression, code, text) in cases {
        let error = evaluated(&expression, &sample()).expect_err(&expression.to_string());
        assert_eq!(error.code(), code, "{expression}: {error}");
        assert!(error.message().contains(text), "{expression}: {error}");
    }
}

#[test]
fn paths_variables_and_literals() {
    gives(vec![
        (bson!("$int"), bson!(7)),
        (bson!("$inner.b.c"), bson!(2)),
        (bson!("$docs.a"), bson!([1, [2, 3]])),
        (bson!("$$ROOT.inner.a"), bson!(1)),
        (bson!("$$CURRENT.int"), bson!(7)),
        (bson!("$$NOW"), Bson::DateTime(DateTime::from_millis(1_500_000_000_000))),
        (bson!({ "$literal": "$int" }), bson!("$int")),
        (bson!(["$int", "$nothing", 1]), bson!([7, null, 1])),
        (
            bson!({ "a": "$int", "b": "$nothing", "c": { "d": "$text" } }),
            bson!({ "a": 7, "c": { "d": "Hello, World" } }),
        ),
        (
            bson!({ "$let": { "vars": { "x": "$int", "y": 2 }, "in": { "$multiply": ["$$x", "$$y"] } } }),
            bson!(14),
        ),
        (
            bson!({ "$let": { "vars": { "x": 1 }, "in": { "$let": { "vars": { "x": 2, "y": "$$x" }, "in": ["$$x", "$$y"] } } } }),
            bson!([2, 1]),
        ),
        (bson!({ "$let": { "vars": { "CURRENT": "$inner" }, "in": "$b.c" } }), bson!(2)),
        (bson!({ "$let": { "vars": { "o": "$inner" }, "in": "$$o.b.c" } }), bson!(2)),
    ]);
    for missing in [bson!("$nothing"), bson!("$$REMOVE"), bson!("$int.a")] {
        assert_eq!(evaluated(&missing, &sample()).expect("no error"), None, "{missing}");
    }
    fails(vec![
        (bson!("$$nope"), 17276, "Use of undefined variable: nope"),
        (bson!("$"), 16872, "'$' by itself is not a valid FieldPath"),
        (bson!("$a..b"), 15998, "may not be empty"),
        (bson!({ "$foo": 1 }), 168, "Unrecognized expression '$foo'"),
        (bson!({ "$add": 1, "$abs": 1 }), 15983, "must contain exactly one field"),
        (
            bson!({ "$eq": [1] }),
            16020,
            "Expression $eq takes exactly 2 arguments. 1 were passed in.",
        ),
        (
            bson!({ "$round": [1, 2, 3] }),
            28667,
            "Expression $round takes at least 1 arguments, and at most 2, but 3 were passed in.",
        ),
        (bson!({ "$let": { "vars": { "X": 1 }, "in": 1 } }), 9, "invalid character"),
    ]);
}

#[test]
fn arithmetic() {
    gives(vec![
        (bson!({ "$add": ["$int", 1] }), bson!(8)),
        (bson!({ "$add": ["$int", "$long"] }), bson!(15i64)),
        (bson!({ "$add": ["$int", "$double"] }), bson!(9.5)),
        (bson!({ "$add": [i32::MAX, 1] }), bson!(i64::from(i32::MAX) + 1)),
        (bson!({ "$add": [i64::MAX, 1] }), bson!(9.223372036854776e18)),
        (bson!({ "$add": [1, null] }), Bson::Null),
        (bson!({ "$add": ["$date", 1000] }), date(2017, 5, 8, 1_514_000)),
        (bson!({ "$add": [] }), bson!(0)),
        (bson!({ "$subtract": ["$int", 2.5] }), bson!(4.5)),
        (bson!({ "$subtract": ["$date", "$date"] }), bson!(0i64)),
        (bson!({ "$subtract": ["$date", 1000] }), date(2017, 5, 8, 1_512_000)),
        (bson!({ "$multiply": ["$int", "$long"] }), bson!(56i64)),
        (bson!({ "$multiply": [i64::MAX, 2] }), bson!(i64::MAX as f64 * 2.0)),
        (bson!({ "$divide": [80, 8] }), bson!(10.0)),
        (bson!({ "$mod": [80, 7] }), bson!(3)),
        (bson!({ "$mod": [-5.5, 2] }), bson!(-1.5)),
        (bson!({ "$mod": [i64::MIN, -1i64] }), bson!(0i64)),
        (bson!({ "$abs": -5 }), bson!(5)),
        (bson!({ "$abs": i32::MIN }), bson!(2_147_483_648i64)),
        (bson!({ "$ceil": 7.8 }), bson!(8.0)),
        (bson!({ "$floor": -2.8 }), bson!(-3.0)),
        (bson!({ "$floor": 3 }), bson!(3)),
        (bson!({ "$round": [19.25, 1] }), bson!(19.2)),
        (bson!({ "$round": [28.73, 1] }), bson!(28.7)),
        (bson!({ "$round": 2.5 }), bson!(2.0)),
        (bson!({ "$round": [1155, -1] }), bson!(1160)),
        (bson!({ "$round": [1145, -1] }), bson!(1140)),
        (bson!({ "$trunc": [-7.8, 0] }), bson!(-7.0)),
        (bson!({ "$trunc": [1199, -2] }), bson!(1100)),
    ]);
}

#[test]
fn functions_of_numbers() {
    gives(vec![
        (bson!({ "$pow": [5, 2] }), bson!(25)),
        (bson!({ "$pow": [5, 0.5] }), bson!(5f64.powf(0.5))),
        (bson!({ "$pow": [2, 40] }), bson!(1i64 << 40)),
        (bson!({ "$sqrt": 25 }), bson!(5.0)),
        (bson!({ "$exp": 0 }), bson!(1.0)),
        (bson!({ "$ln": 1 }), bson!(0.0)),
        (bson!({ "$log": [100, 10] }), bson!(2.0)),
        (bson!({ "$log10": 1000 }), bson!(3.0)),
        (bson!({ "$sin": 0 }), bson!(0.0)),
        (bson!({ "$atan2": [0, 1] }), bson!(0.0)),
        (bson!({ "$degreesToRadians": 180 }), bson!(std::f64::consts::PI)),
        (bson!({ "$bitAnd": [6, 3] }), bson!(2)),
        (bson!({ "$bitOr": [6, 1i64] }), bson!(7i64)),
        (bson!({ "$bitXor": [6, 3] }), bson!(5)),
        (bson!({ "$bitNot": 0 }), bson!(-1)),
        (bson!({ "$sum": "$array" }), bson!(6)),
        (bson!({ "$sum": ["$int", "x", 1] }), bson!(8)),
        (bson!({ "$avg": "$array" }), bson!(2.0)),
        (bson!({ "$avg": [] }), Bson::Null),
        (bson!({ "$min": ["$int", "$null", 3] }), bson!(3)),
        (bson!({ "$max": "$array" }), bson!(3)),
        (bson!({ "$stdDevPop": [1, 3] }), bson!(1.0)),
        (bson!({ "$stdDevSamp": [1] }), Bson::Null),
    ]);
    fails(vec![
        (
            bson!({ "$add": ["$text", 1] }),
            14,
            "$add only supports numeric or date types, not string",
        ),
        (bson!({ "$add": ["$date", "$date"] }), 16612, "only one date allowed"),
        (bson!({ "$subtract": [1, "$text"] }), 14, "can't $subtract string from int"),
        (bson!({ "$multiply": [1, "x"] }), 14, "$multiply only supports numeric types, not string"),
        (bson!({ "$divide": [1, 0] }), 2, "can't $divide by zero"),
        (
            bson!({ "$divide": ["x", 1] }),
            14,
            "$divide only supports numeric types, not string and int",
        ),
        (bson!({ "$mod": [1, 0] }), 16610, "can't $mod by zero"),
        (bson!({ "$abs": "x" }), 28765, "$abs only supports numeric types, not string"),
        (bson!({ "$sqrt": -1 }), 28714, "greater than or equal to 0"),
        (bson!({ "$ln": 0 }), 28766, "a positive number"),
        (bson!({ "$pow": [0, -1] }), 28764, "base of 0 and a negative exponent"),
        (bson!({ "$round": [1, 101] }), 51083, "precision"),
    ]);
}

#[test]
fn comparisons_and_conditions() {
    gives(vec![
        (bson!({ "$eq": ["$int", 7.0] }), bson!(true)),
        (bson!({ "$eq": ["$nothing", null] }), bson!(false)),
        (bson!({ "$lt": ["$nothing", null] }), bson!(true)),
        (bson!({ "$gt": ["x", 5] }), bson!(true)),
        (bson!({ "$cmp": ["$int", "$long"] }), bson!(-1)),
        (bson!({ "$ne": [1, 2] }), bson!(true)),
        (bson!({ "$lte": [2, 2] }), bson!(true)),
        (bson!({ "$gte": [1, 2] }), bson!(false)),
        (bson!({ "$and": [1, "x", "$array"] }), bson!(true)),
        (bson!({ "$and": [] }), bson!(true)),
        (bson!({ "$and": [1, "$null"] }), bson!(false)),
        (bson!({ "$or": [null, 0, false] }), bson!(false)),
        (bson!({ "$or": [0, 1] }), bson!(true)),
        (bson!({ "$not": [[false]] }), bson!(false)),
        (bson!({ "$not": "$nothing" }), bson!(true)),
        (bson!({ "$cond": [{ "$gte": ["$int", 5] }, "a", "b"] }), bson!("a")),
        (bson!({ "$cond": { "if": false, "then": 1, "else": { "$divide": [1, 1] } } }), bson!(1.0)),
        (bson!({ "$cond": [true, 1, { "$divide": [1, 0] }] }), bson!(1)),
        (bson!({ "$ifNull": ["$nothing", "$null", "x"] }), bson!("x")),
        (
            bson!({ "$switch": { "branches": [{ "case": { "$eq": [1, 2] }, "then": 1 }, { "case": true, "then": 2 }] } }),
            bson!(2),
        ),
        (
            bson!({ "$switch": { "branches": [{ "case": false, "then": 1 }], "default": 3 } }),
            bson!(3),
        ),
        (bson!({ "$type": "$double" }), bson!("double")),
        (bson!({ "$type": "$nothing" }), bson!("missing")),
        (bson!({ "$type": [[1]] }), bson!("array")),
        (bson!({ "$isNumber": "$long" }), bson!(true)),
        (bson!({ "$isNumber": "x" }), bson!(false)),
    ]);
    fails(vec![
        (bson!({ "$cond": [1, 2] }), 16020, "exactly 3 arguments. 2 were passed in."),
        (bson!({ "$cond": { "if": 1, "then": 2 } }), 17082, "Missing 'else' parameter to $cond"),
        (bson!({ "$ifNull": ["$a"] }), 1257300, "$ifNull needs at least two arguments, had: 1"),
        (
            bson!({ "$switch": { "branches": [{ "case": false, "then": 1 }] } }),
            40066,
            "no default was specified",
        ),
        (bson!({ "$switch": { "branches": [] } }), 40068, "at least one branch"),
    ]);
}

#[test]
fn strings() {
    gives(vec![
        (bson!({ "$concat": ["a", "$text", "!"] }), bson!("aHello, World!")),
        (bson!({ "$concat": ["a", "$null"] }), Bson::Null),
        (bson!({ "$toLower": "$text" }), bson!("hello, world")),
        (bson!({ "$toUpper": "$accents" }), bson!("CAFéTERIA")),
        (bson!({ "$toUpper": "$null" }), bson!("")),
        (bson!({ "$strcasecmp": ["HELLO", "hello"] }), bson!(0)),
        (bson!({ "$strLenCP": "$accents" }), bson!(9)),
        (bson!({ "$strLenBytes": "$accents" }), bson!(10)),
        (bson!({ "$split": ["June-15-2013", "-"] }), bson!(["June", "15", "2013"])),
        (bson!({ "$split": ["banana split", "a"] }), bson!(["b", "n", "n", " split"])),
        (bson!({ "$trim": { "input": "  \n good  bye \t " } }), bson!("good  bye")),
        (bson!({ "$trim": { "input": " ggggoodbyeeeee", "chars": " ge" } }), bson!("oodby")),
        (bson!({ "$ltrim": { "input": "  a " } }), bson!("a ")),
        (bson!({ "$rtrim": { "input": "  a " } }), bson!("  a")),
        (bson!({ "$indexOfCP": ["$accents", "t"] }), bson!(4)),
        (bson!({ "$indexOfBytes": ["$accents", "t"] }), bson!(5)),
        (bson!({ "$indexOfCP": ["abcb", "b", 2] }), bson!(3)),
        (bson!({ "$indexOfCP": ["abc", "c", 0, 2] }), bson!(-1)),
        (bson!({ "$indexOfBytes": ["vanilla", "nilla", 3] }), bson!(-1)),
        (bson!({ "$indexOfCP": ["$null", "b"] }), Bson::Null),
        (bson!({ "$substrCP": ["$accents", 3, 2] }), bson!("ét")),
        (bson!({ "$substrBytes": ["hello", 1, -1] }), bson!("ello")),
        (bson!({ "$substr": ["hello", 1, 2] }), bson!("el")),
        (bson!({ "$substrBytes": [123, 0, 2] }), bson!("12")),
        (
            bson!({ "$replaceOne": { "input": "blue paint blue", "find": "blue", "replacement": "red" } }),
            bson!("red paint blue"),
        ),
        (
            bson!({ "$replaceAll": { "input": "blue paint blue", "find": "blue", "replacement": "red" } }),
            bson!("red paint red"),
        ),
        (bson!({ "$replaceAll": { "input": null, "find": "b", "replacement": "r" } }), Bson::Null),
        (
            bson!({ "$regexMatch": { "input": "$text", "regex": "^hello", "options": "i" } }),
            bson!(true),
        ),
        (bson!({ "$regexMatch": { "input": "$nothing", "regex": "a" } }), bson!(false)),
        (
            bson!({ "$regexFind": { "input": "Cafe: caffé", "regex": "(f+)(x)?" } }),
            bson!({ "match": "f", "idx": 2, "captures": ["f", null] }),
        ),
        (
            bson!({ "$regexFindAll": { "input": "éaéa", "regex": "a" } }),
            bson!([{ "match": "a", "idx": 1, "captures": [] }, { "match": "a", "idx": 3, "captures": [] }]),
        ),
        (bson!({ "$regexFind": { "input": "abc", "regex": "x" } }), Bson::Null),
        (
            bson!({ "$binarySize": Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2] } }),
            bson!(2),
        ),
    ]);
    fails(vec![
        (bson!({ "$concat": ["a", 1] }), 16702, "$concat only supports strings, not int"),
        (bson!({ "$strLenCP": 1 }), 34471, "$strLenCP requires a string argument, found: int"),
        (bson!({ "$split": ["a", ""] }), 40087, "non-empty separator"),
        (bson!({ "$toLower": [[1]] }), 16007, "can't convert from BSON type array to String"),
        (bson!({ "$trim": { "input": 1 } }), 50699, "string"),
        (bson!({ "$trim": { "input": "a", "x": 1 } }), 9, "unknown argument: x"),
        (bson!({ "$indexOfCP": ["a", "b", -1] }), 40097, "nonnegative"),
        (bson!({ "$substrBytes": ["é", 1, 1] }), 28656, "continuation byte"),
        (bson!({ "$substrCP": ["a", -1, 1] }), 34455, "nonnegative"),
        (bson!({ "$regexMatch": { "input": 1, "regex": "a" } }), 51104, "to be of type string"),
        (
            bson!({ "$regexMatch": { "input": "a", "regex": "(" } }),
            51091,
            "Regular expression is invalid",
        ),
    ]);
}

#[test]
fn arrays() {
    gives(vec![
        (bson!({ "$arrayElemAt": ["$array", -1] }), bson!(3)),
        (bson!({ "$arrayElemAt": ["$array", 0] }), bson!(1)),
        (bson!({ "$arrayElemAt": ["$null", 0] }), Bson::Null),
        (bson!({ "$concatArrays": ["$array", [4]] }), bson!([1, 2, 3, 4])),
        (bson!({ "$concatArrays": ["$array", null] }), Bson::Null),
        (
            bson!({ "$filter": { "input": "$array", "as": "n", "cond": { "$gt": ["$$n", 1] } } }),
            bson!([2, 3]),
        ),
        (
            bson!({ "$filter": { "input": "$array", "cond": { "$gt": ["$$this", 1] }, "limit": 1 } }),
            bson!([2]),
        ),
        (
            bson!({ "$map": { "input": "$array", "as": "n", "in": { "$add": ["$$n", "$int"] } } }),
            bson!([8, 9, 10]),
        ),
        (bson!({ "$map": { "input": "$docs", "in": "$$this.a" } }), bson!([1, [2, 3], null])),
        (
            bson!({ "$reduce": { "input": ["a", "b", "c"], "initialValue": "", "in": { "$concat": ["$$value", "$$this"] } } }),
            bson!("abc"),
        ),
        (
            bson!({ "$reduce": { "input": [1, 2, 3, 4], "initialValue": { "sum": 5, "product": 2 }, "in": {
                "sum": { "$add": ["$$value.sum", "$$this"] }, "product": { "$multiply": ["$$value.product", "$$this"] },
            } } }),
            bson!({ "sum": 15, "product": 48 }),
        ),
    ]);
}

#[test]
fn positions_in_arrays() {
    gives(vec![
        (bson!({ "$in": [2, "$array"] }), bson!(true)),
        (bson!({ "$in": ["x", "$array"] }), bson!(false)),
        (bson!({ "$indexOfArray": ["$array", 2] }), bson!(1)),
        (bson!({ "$indexOfArray": [["a", "b", "a"], "a", 1] }), bson!(2)),
        (bson!({ "$indexOfArray": ["$array", 3, 0, 2] }), bson!(-1)),
        (bson!({ "$isArray": "$array" }), bson!(true)),
        (bson!({ "$range": [0, 10, 2] }), bson!([0, 2, 4, 6, 8])),
        (bson!({ "$range": [3, 0, -1] }), bson!([3, 2, 1])),
        (bson!({ "$range": [0, 10, -1] }), bson!([])),
        (bson!({ "$reverseArray": "$array" }), bson!([3, 2, 1])),
        (bson!({ "$size": "$array" }), bson!(3)),
        (bson!({ "$slice": ["$array", 2] }), bson!([1, 2])),
        (bson!({ "$slice": ["$array", -2] }), bson!([2, 3])),
        (bson!({ "$slice": ["$array", 1, 3] }), bson!([2, 3])),
        (bson!({ "$slice": ["$array", 15, 2] }), bson!([])),
        (bson!({ "$slice": ["$array", -15, 2] }), bson!([1, 2])),
        (bson!({ "$zip": { "inputs": [["a"], ["b", "c"]] } }), bson!([["a", "b"]])),
    ]);
}

#[test]
fn arrays_from_arrays() {
    gives(vec![
        (
            bson!({ "$zip": { "inputs": [["a"], ["b", "c"]], "useLongestLength": true, "defaults": ["x", "y"] } }),
            bson!([["a", "b"], ["x", "c"]]),
        ),
        (bson!({ "$first": "$array" }), bson!(1)),
        (bson!({ "$last": "$array" }), bson!(3)),
        (bson!({ "$firstN": { "input": "$array", "n": 2 } }), bson!([1, 2])),
        (bson!({ "$lastN": { "input": "$array", "n": 2 } }), bson!([2, 3])),
        (bson!({ "$maxN": { "input": "$array", "n": 2 } }), bson!([3, 2])),
        (bson!({ "$minN": { "input": "$array", "n": 2 } }), bson!([1, 2])),
        (bson!({ "$sortArray": { "input": [3, 1, 2], "sortBy": 1 } }), bson!([1, 2, 3])),
        (bson!({ "$sortArray": { "input": [3, 1, 2], "sortBy": -1 } }), bson!([3, 2, 1])),
        (
            bson!({ "$sortArray": { "input": [{ "a": 1, "b": 2 }, { "a": 1, "b": 1 }], "sortBy": { "a": -1, "b": 1 } } }),
            bson!([{ "a": 1, "b": 1 }, { "a": 1, "b": 2 }]),
        ),
        (bson!({ "$setUnion": [["b", "a"], ["a", "c"]] }), bson!(["a", "b", "c"])),
        (bson!({ "$setIntersection": [[1, 2, 2], [2.0, 3]] }), bson!([2])),
        (bson!({ "$setDifference": [["b", "a", "b"], ["a"]] }), bson!(["b"])),
        (bson!({ "$setEquals": [["a", "b", "a"], ["b", "a"]] }), bson!(true)),
        (bson!({ "$setIsSubset": [["a"], ["b", "a"]] }), bson!(true)),
        (bson!({ "$allElementsTrue": [[true, 1, "x"]] }), bson!(true)),
        (bson!({ "$anyElementTrue": [[null, 0, false]] }), bson!(false)),
    ]);
    assert_eq!(
        evaluated(&bson!({ "$arrayElemAt": ["$array", 9] }), &sample()).expect("no error"),
        None
    );
    fails(vec![
        (
            bson!({ "$size": "$int" }),
            17124,
            "The argument to $size must be an array, but was of type: int",
        ),
        (
            bson!({ "$arrayElemAt": ["x", 0] }),
            28689,
            "first argument must be an array, but is string",
        ),
        (bson!({ "$in": [1, 2] }), 40081, "$in requires an array as a second argument, found: int"),
        (
            bson!({ "$map": { "input": 1, "in": 1 } }),
            16883,
            "input to $map must be an array not int",
        ),
        (
            bson!({ "$filter": { "input": 1, "cond": 1 } }),
            28651,
            "input to $filter must be an array not int",
        ),
        (bson!({ "$reduce": { "input": 1, "initialValue": 1, "in": 1 } }), 40080, "found: int"),
        (bson!({ "$range": ["x", 1] }), 34443, "found value of type: string"),
        (bson!({ "$range": [0, 1, 0] }), 34449, "non-zero step"),
        (bson!({ "$slice": ["$array", 1, 0] }), 28729, "must be positive"),
        (
            bson!({ "$concatArrays": ["$array", 1] }),
            28664,
            "$concatArrays only supports arrays, not int",
        ),
        (bson!({ "$setUnion": [[1], 1] }), 17043, "of type: int"),
    ]);
}

#[test]
fn objects() {
    gives(vec![
        (
            bson!({ "$mergeObjects": ["$inner", { "a": 2 }, null] }),
            bson!({ "a": 2, "b": { "c": 2 } }),
        ),
        (bson!({ "$mergeObjects": [[{ "a": 1 }, { "b": 2 }]] }), bson!({ "a": 1, "b": 2 })),
        (
            bson!({ "$objectToArray": { "a": 1, "b": 2 } }),
            bson!([{ "k": "a", "v": 1 }, { "k": "b", "v": 2 }]),
        ),
        (
            bson!({ "$arrayToObject": { "$literal": [{ "k": "a", "v": 1 }, { "k": "a", "v": 2 }] } }),
            bson!({ "a": 2 }),
        ),
        (bson!({ "$arrayToObject": [[["a", 1], ["b", "$int"]]] }), bson!({ "a": 1, "b": 7 })),
        (bson!({ "$getField": "int" }), bson!(7)),
        (bson!({ "$getField": { "field": "a", "input": "$inner" } }), bson!(1)),
        (
            bson!({ "$getField": { "field": { "$literal": "a.b" }, "input": { "$setField": { "field": "a.b", "input": {}, "value": 1 } } } }),
            bson!(1),
        ),
        (
            bson!({ "$setField": { "field": "a", "input": "$inner", "value": 5 } }),
            bson!({ "a": 5, "b": { "c": 2 } }),
        ),
        (bson!({ "$unsetField": { "field": "a", "input": "$inner" } }), bson!({ "b": { "c": 2 } })),
        (bson!({ "$bsonSize": { "a": 1 } }), bson!(12)),
    ]);
    fails(vec![
        (bson!({ "$mergeObjects": ["$int", {}] }), 40400, "is of type int"),
        (bson!({ "$objectToArray": 1 }), 40390, "found: int"),
        (bson!({ "$arrayToObject": { "$literal": [1] } }), 40398, "int"),
        (bson!({ "$arrayToObject": [[["a\0", 1]]] }), 4940400, "null byte"),
    ]);
}

#[test]
fn conversions() {
    let decimal = |text: &str| Bson::Decimal128(text.parse().expect("a decimal"));
    gives(vec![
        (bson!({ "$toInt": "7" }), bson!(7)),
        (bson!({ "$toInt": 5.9 }), bson!(5)),
        (bson!({ "$toInt": true }), bson!(1)),
        (bson!({ "$toLong": "$date" }), bson!(1_494_201_600_000i64 + 1_513_000)),
        (bson!({ "$toDouble": "2.5" }), bson!(2.5)),
        (bson!({ "$toDecimal": 7 }), decimal("7")),
        (bson!({ "$toDecimal": 2.5 }), decimal("2.50000000000000")),
        (bson!({ "$toBool": "" }), bson!(true)),
        (bson!({ "$toBool": 0 }), bson!(false)),
        (bson!({ "$toString": 2.5 }), bson!("2.5")),
        (bson!({ "$toString": true }), bson!("true")),
        (bson!({ "$toString": "$id" }), bson!("5ab9c3da31c2ab715d421285")),
        (bson!({ "$toString": "$date" }), bson!("2017-05-08T00:25:13.000Z")),
        (
            bson!({ "$toObjectId": "5ab9c3da31c2ab715d421285" }),
            Bson::ObjectId(ObjectId::parse_str("5ab9c3da31c2ab715d421285").expect("an id")),
        ),
        (bson!({ "$toDate": "2018-03-20" }), date(2018, 3, 20, 0)),
        (
            bson!({ "$toDate": "2018-03-20 11:00:06 +0500" }),
            date(2018, 3, 20, (6 * 3600 + 6) * 1000),
        ),
        (bson!({ "$toDate": 0i64 }), date(1970, 1, 1, 0)),
        (bson!({ "$toDate": "$id" }), date(2018, 3, 27, (4 * 3600 + 8 * 60 + 58) * 1000)),
        (bson!({ "$toInt": "$null" }), Bson::Null),
        (bson!({ "$convert": { "input": "x", "to": "int", "onError": "bad" } }), bson!("bad")),
        (bson!({ "$convert": { "input": null, "to": "int", "onNull": 0 } }), bson!(0)),
        (bson!({ "$convert": { "input": 1, "to": 8 } }), bson!(true)),
    ]);
    fails(vec![
        (
            bson!({ "$toInt": "x" }),
            241,
            "Failed to parse number 'x' in $convert with no onError value",
        ),
        (bson!({ "$toInt": 3e10 }), 241, "Conversion would overflow target type"),
        (bson!({ "$toInt": f64::NAN }), 241, "NaN"),
        (bson!({ "$toInt": [[1]] }), 241, "Unsupported conversion from array to int"),
        (bson!({ "$convert": { "input": 1, "to": "foo" } }), 2, "Unknown type name: foo"),
        (bson!({ "$toDate": "Friday" }), 241, "Error parsing date string 'Friday'"),
        (bson!({ "$toObjectId": "abc" }), 241, "Failed to parse objectId"),
    ]);
}

#[test]
fn parts_of_dates() {
    gives(vec![
        (bson!({ "$year": "$date" }), bson!(2017)),
        (bson!({ "$month": "$date" }), bson!(5)),
        (bson!({ "$dayOfMonth": { "date": "$date", "timezone": "-0100" } }), bson!(7)),
        (bson!({ "$hour": { "date": "$date", "timezone": "+05:30" } }), bson!(5)),
        (bson!({ "$minute": "$date" }), bson!(25)),
        (bson!({ "$second": "$date" }), bson!(13)),
        (bson!({ "$millisecond": "$date" }), bson!(0)),
        (bson!({ "$dayOfWeek": "$date" }), bson!(2)),
        (bson!({ "$isoDayOfWeek": "$date" }), bson!(1)),
        (bson!({ "$dayOfYear": "$date" }), bson!(128)),
        (bson!({ "$week": "$date" }), bson!(19)),
        (bson!({ "$isoWeek": "$date" }), bson!(19)),
        (bson!({ "$isoWeekYear": date(2017, 1, 1, 0) }), bson!(2016i64)),
        (bson!({ "$year": "$null" }), Bson::Null),
        (
            bson!({ "$dateToParts": { "date": "$date" } }),
            bson!({ "year": 2017, "month": 5, "day": 8, "hour": 0, "minute": 25, "second": 13, "millisecond": 0 }),
        ),
        (
            bson!({ "$dateToParts": { "date": "$date", "iso8601": true } }),
            bson!({ "isoWeekYear": 2017, "isoWeek": 19, "isoDayOfWeek": 1, "hour": 0, "minute": 25, "second": 13, "millisecond": 0 }),
        ),
        (
            bson!({ "$dateFromParts": { "year": 2017, "month": 2, "day": 8, "hour": 12 } }),
            date(2017, 2, 8, 12 * 3_600_000),
        ),
        (bson!({ "$dateFromParts": { "year": 2017, "month": 14 } }), date(2018, 2, 1, 0)),
        (
            bson!({ "$dateFromParts": { "isoWeekYear": 2017, "isoWeek": 6, "isoDayOfWeek": 3 } }),
            date(2017, 2, 8, 0),
        ),
        (bson!({ "$tsSecond": Timestamp { time: 5, increment: 6 } }), bson!(5i64)),
        (bson!({ "$tsIncrement": Timestamp { time: 5, increment: 6 } }), bson!(6i64)),
    ]);
    fails(vec![
        (bson!({ "$year": "$text" }), 16006, "can't convert from BSON type string to Date"),
        (
            bson!({ "$hour": { "date": "$date", "timezone": "Europe/Paris" } }),
            40485,
            "unrecognized time zone identifier",
        ),
        (bson!({ "$dateFromParts": { "month": 1 } }), 40516, "'year' or 'isoWeekYear'"),
    ]);
}

#[test]
fn texts_of_dates() {
    gives(vec![
        (bson!({ "$dateToString": { "date": "$date" } }), bson!("2017-05-08T00:25:13.000Z")),
        (
            bson!({ "$dateToString": { "date": "$date", "format": "%H:%M:%S:%L%z %Z", "timezone": "+04:30" } }),
            bson!("04:55:13:000+0430 +270"),
        ),
        (
            bson!({ "$dateToString": { "date": "$date", "format": "%d.%m.%Y %G-%V-%u %j %U %w %b %B %%" } }),
            bson!("08.05.2017 2017-19-1 128 19 2 May May %"),
        ),
        (bson!({ "$dateToString": { "date": null, "onNull": "none" } }), bson!("none")),
        (
            bson!({ "$dateFromString": { "dateString": "2017-02-08T12:10:40.787" } }),
            date(2017, 2, 8, 43_840_787),
        ),
        (
            bson!({ "$dateFromString": { "dateString": "2017-02-08T12:10:40.787", "timezone": "+0200" } }),
            date(2017, 2, 8, 36_640_787),
        ),
        (
            bson!({ "$dateFromString": { "dateString": "06-15-2018", "format": "%m-%d-%Y" } }),
            date(2018, 6, 15, 0),
        ),
        (bson!({ "$dateFromString": { "dateString": "x", "onError": 1 } }), bson!(1)),
        (bson!({ "$dateFromString": { "dateString": null, "onNull": 1 } }), bson!(1)),
    ]);
    fails(vec![
        (
            bson!({ "$dateToString": { "date": "$date", "format": "%q" } }),
            18536,
            "Invalid format character '%q'",
        ),
        (
            bson!({ "$dateFromString": { "dateString": "2017-13-01" } }),
            241,
            "Error parsing date string",
        ),
        (bson!({ "$dateToString": {} }), 9, "Missing 'date' parameter to $dateToString"),
    ]);
}

#[test]
fn arithmetic_of_dates() {
    let day = |day: i64| date(2021, 1, day, 0);
    gives(vec![
        (
            bson!({ "$dateAdd": { "startDate": day(31), "unit": "month", "amount": 1 } }),
            date(2021, 2, 28, 0),
        ),
        (bson!({ "$dateAdd": { "startDate": day(1), "unit": "week", "amount": 2 } }), day(15)),
        (bson!({ "$dateSubtract": { "startDate": day(2), "unit": "hour", "amount": 24 } }), day(1)),
        (
            bson!({ "$dateSubtract": { "startDate": day(1), "unit": "quarter", "amount": 1 } }),
            date(2020, 10, 1, 0),
        ),
        (
            bson!({ "$dateDiff": { "startDate": date(2020, 12, 31, 0), "endDate": day(1), "unit": "year" } }),
            bson!(1i64),
        ),
        (
            bson!({ "$dateDiff": { "startDate": day(1), "endDate": day(31), "unit": "month" } }),
            bson!(0i64),
        ),
        (
            bson!({ "$dateDiff": { "startDate": day(1), "endDate": day(3), "unit": "week" } }),
            bson!(1i64),
        ),
        (
            bson!({ "$dateDiff": { "startDate": day(1), "endDate": day(3), "unit": "week", "startOfWeek": "monday" } }),
            bson!(0i64),
        ),
        (
            bson!({ "$dateDiff": { "startDate": day(3), "endDate": day(1), "unit": "day" } }),
            bson!(-2i64),
        ),
        (
            bson!({ "$dateTrunc": { "date": date(2021, 3, 20, 40_510_000), "unit": "hour", "binSize": 2 } }),
            date(2021, 3, 20, 36_000_000),
        ),
        (
            bson!({ "$dateTrunc": { "date": date(2021, 3, 20, 1), "unit": "week", "startOfWeek": "monday" } }),
            date(2021, 3, 15, 0),
        ),
        (
            bson!({ "$dateTrunc": { "date": date(2021, 3, 20, 1), "unit": "quarter" } }),
            date(2021, 1, 1, 0),
        ),
        (
            bson!({ "$dateTrunc": { "date": date(1999, 3, 20, 1), "unit": "month", "binSize": 5 } }),
            date(1999, 3, 1, 0),
        ),
        (bson!({ "$dateAdd": { "startDate": null, "unit": "day", "amount": 1 } }), Bson::Null),
    ]);
    fails(vec![
        (
            bson!({ "$dateAdd": { "startDate": day(1), "unit": "foo", "amount": 1 } }),
            9,
            "cannot be recognized as a time unit: foo",
        ),
        (
            bson!({ "$dateAdd": { "startDate": day(1), "unit": "year", "amount": i64::MAX } }),
            5166406,
            "overflowed",
        ),
        (
            bson!({ "$dateTrunc": { "date": day(1), "unit": "day", "binSize": 0 } }),
            5439018,
            "greater than 0",
        ),
    ]);
}

/// An expression that makes much of little ends with an error.
#[test]
fn evaluations_are_bounded() {
    let range = bson!({ "$range": [0, 900_000] });
    let nested =
        bson!({ "$map": { "input": range.clone(), "as": "a", "in": { "$size": range.clone() } } });
    let doubled = bson!({ "$reduce": {
        "input": { "$range": [0, 1000] }, "initialValue": "xxxxxxxx",
        "in": { "$concat": ["$$value", "$$value"] },
    } });
    let replaced = bson!({ "$reduce": {
        "input": { "$range": [0, 1000] }, "initialValue": "xxxxxxxx",
        "in": { "$replaceAll": { "input": "$$value", "find": "", "replacement": "$$value" } },
    } });
    fails(vec![
        (bson!({ "$range": [0, i32::MAX] }), 10334, "is invalid"),
        (nested, 96, "steps"),
        (doubled, 10334, "is invalid"),
        (replaced, 10334, "is invalid"),
    ]);
    let mut deep = bson!({ "$abs": "$int" });
    for _ in 0..60 {
        deep = bson!({ "$abs": [deep] });
    }
    // Three levels for each: the document that holds it is too deep before.
    assert_eq!(evaluated(&deep, &sample()).expect_err("too deep").code(), 22);
}

/// The deepest expressions fit into a small stack: 8 KiB for each level, as the limit says.
#[test]
fn deep_expressions_need_little_stack() {
    let levels = 90;
    let mut single = bson!("$int");
    for _ in 0..levels {
        single = bson!({ "$abs": single });
    }
    let mut mapped = bson!("$$this");
    for _ in 0..levels / 2 {
        mapped = bson!({ "$map": { "input": [7], "in": mapped } });
    }
    let documents = [single, mapped].map(|made| raw(&doc! { "_id": 0, "made": made }));
    let evaluate = move || {
        for projection in &documents {
            let projection = Projection::parse(projection).expect("not too deep");
            projection.apply(&raw(&doc! { "int": 7 }), None).expect("it has a value");
        }
    };
    let thread = std::thread::Builder::new().stack_size(100 * (8 << 10));
    thread.spawn(evaluate).expect("a thread").join().expect("no overflow");
}
