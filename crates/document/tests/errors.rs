//! Codes and texts of errors.

use crate::generate::regex;
use bson::{Bson, Document, RawDocumentBuf, bson, doc};
use remora_document::Filter;
use remora_layout::limits::{MAX_FILTER_CONDITIONS, MAX_FILTER_PATTERNS};

fn error(filter: &Document) -> (i32, String) {
    let raw = RawDocumentBuf::try_from(filter).expect("a valid document");
    let error = Filter::parse(&raw).expect_err(&filter.to_string());
    (error.code(), error.message().to_owned())
}

#[test]
fn unknown_operators() {
    let top = " If you have a field name that starts with a '$' symbol, consider using $getField or $setField.";
    assert_eq!(error(&doc! { "$foo": 1 }), (2, format!("unknown top level operator: $foo.{top}")));
    assert_eq!(error(&doc! { "a": { "$foo": 1 } }), (2, "unknown operator: $foo".into()));
    assert_eq!(error(&doc! { "a": { "$gt": 1, "b": 2 } }), (2, "unknown operator: b".into()));
    assert_eq!(
        error(&doc! { "a": { "$not": { "$or": [] } } }),
        (2, "unknown operator: $or".into())
    );
    for name in ["$where", "$text"] {
        let filter = Document::from_iter([(name.to_owned(), bson!({}))]);
        assert_eq!(error(&filter), (2, format!("{name} is not supported")));
    }
    let operators = doc! { "$geoNear": {} };
    assert_eq!(error(&doc! { "a": operators }), (2, "$geoNear is not supported".to_owned()));
}

#[test]
fn wrong_arguments() {
    let cases: Vec<(Bson, i32, &str)> = vec![
        (bson!({ "$in": 1 }), 2, "$in needs an array"),
        (bson!({ "$nin": 1 }), 2, "$nin needs an array"),
        (bson!({ "$in": [{ "$gt": 1 }] }), 2, "cannot nest $ under $in"),
        (bson!({ "$all": 1 }), 2, "$all needs an array"),
        (bson!({ "$all": [{ "$gt": 1 }] }), 2, "no $ expressions in $all"),
        (bson!({ "$all": [{ "$elemMatch": {} }, 1] }), 2, "$all/$elemMatch has to be consistent"),
        (bson!({ "$elemMatch": 1 }), 2, "$elemMatch needs an Object"),
        (bson!({ "$not": 1 }), 2, "$not needs a regex or a document"),
        (bson!({ "$not": {} }), 2, "$not cannot be empty"),
        (bson!({ "$eq": Bson::Undefined }), 2, "cannot compare to undefined"),
        (
            bson!({ "$gt": regex("a", "") }),
            2,
            "Can't have RegEx as arg to predicate over field 'a'.",
        ),
        (bson!({ "$ne": regex("a", "") }), 2, "Can't have regex as arg to $ne."),
        (bson!({ "$mod": 1 }), 2, "malformed mod, needs to be an array"),
        (bson!({ "$mod": [1] }), 2, "malformed mod, not enough elements"),
        (bson!({ "$mod": [1, 2, 3] }), 2, "malformed mod, too many elements"),
        (bson!({ "$mod": ["", 2] }), 2, "malformed mod, divisor not a number"),
        (bson!({ "$mod": [1, ""] }), 2, "malformed mod, remainder not a number"),
        (bson!({ "$mod": [0, 1] }), 2, "divisor cannot be 0"),
        (bson!({ "$type": "foo" }), 2, "Unknown type name alias: foo"),
        (bson!({ "$type": 20 }), 2, "Invalid numerical type code: 20"),
        (bson!({ "$type": true }), 14, "type must be represented as a number or a string"),
        (bson!({ "$type": [] }), 9, "$type must match at least one type"),
        (bson!({ "$options": "i" }), 2, "$options needs a $regex"),
        (bson!({ "$regex": 1 }), 2, "$regex has to be a string"),
        (bson!({ "$regex": "", "$options": 1 }), 2, "$options has to be a string"),
        (
            bson!({ "$regex": regex("a", "i"), "$options": "s" }),
            51075,
            "options set in both $regex and $options",
        ),
        (bson!({ "$regex": "a", "$options": "q" }), 51108, "invalid flag in regex options: q"),
        (bson!({ "$bitsAllSet": [-1] }), 2, "bit positions must be >= 0 but got: -1"),
        (bson!({ "$bitsAllSet": -1 }), 9, "Expected a non-negative number in: $bitsAllSet: -1"),
        (
            bson!({ "$size": -1 }),
            9,
            "Failed to parse $size. Expected a non-negative number in: $size: -1",
        ),
    ];
    for (condition, code, message) in cases {
        assert_eq!(error(&doc! { "a": condition }), (code, message.to_owned()));
    }
    let message = "$and/$or/$nor must be a nonempty array";
    assert_eq!(error(&doc! { "$or": [] }), (2, message.into()));
    assert_eq!(error(&doc! { "$or": 1 }), (2, "$or must be an array".into()));
    let message = "$or/$and/$nor entries need to be full objects";
    assert_eq!(error(&doc! { "$nor": [1] }), (2, message.into()));
}

#[test]
fn wrong_patterns() {
    for pattern in ["(", "(?=a)", r"(a)\1", "((a{100}){100}){100}"] {
        let (code, message) = error(&doc! { "a": { "$regex": pattern } });
        assert_eq!(code, 51091, "{pattern}");
        assert!(message.starts_with("Regular expression is invalid: "), "{message}");
        assert!(message.len() < 200, "{message}");
    }
}

#[test]
fn limits() {
    let many = |count: usize| vec![bson!({ "a": 1 }); count];
    let raw = |filter: Document| RawDocumentBuf::try_from(&filter).expect("a valid document");
    let fits = (MAX_FILTER_CONDITIONS - 1) / 2;
    assert!(Filter::parse(&raw(doc! { "$or": many(fits) })).is_ok());
    let (code, message) = error(&doc! { "$or": many(fits + 1) });
    assert_eq!((code, message.as_str()), (2, "a filter has more than 1024 conditions"));

    let patterns = |count: usize| vec![regex("a", ""); count];
    assert!(Filter::parse(&raw(doc! { "a": { "$in": patterns(MAX_FILTER_PATTERNS) } })).is_ok());
    let (code, message) = error(&doc! { "a": { "$in": patterns(MAX_FILTER_PATTERNS + 1) } });
    assert_eq!((code, message.as_str()), (2, "a filter has more than 64 regular expressions"));

    let mut deep = doc! { "a": 1 };
    for _ in 0..50 {
        deep = doc! { "$or": [deep] };
    }
    assert_eq!(error(&deep), (2, "exceeded maximum query tree depth".into()));

    let nested = doc! { "a": { "$elemMatch": { "0.b.1": { "$elemMatch": { "$gt": 1 } } } } };
    assert_eq!(error(&nested).0, 2);
    let positions: Vec<i32> = (0..5000).collect();
    assert_eq!(error(&doc! { "a": { "$bitsAllSet": positions } }).0, 2);
}
