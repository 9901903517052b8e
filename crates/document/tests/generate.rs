//! Random values and documents that are often nearly equal.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Document, JavaScriptCodeWithScope, Regex, Timestamp};
use proptest::prelude::*;
use proptest::sample::select;

/// A decimal by its text.
pub fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse().expect("a decimal"))
}

pub fn regex(pattern: &str, options: &str) -> Bson {
    let text = |text: &str| text.try_into().expect("no zero byte");
    Bson::RegularExpression(Regex { pattern: text(pattern), options: text(options) })
}

/// Integers at which types lose precision or end.
fn base_integer() -> impl Strategy<Value = i64> {
    let bases = [0, 1, 3, 10, 1 << 31, 1 << 53, 1 << 60, i64::MAX - 2, 999_999_999_999_999_999];
    (select(bases.to_vec()), any::<bool>())
        .prop_map(|(base, is_negative)| if is_negative { -base } else { base })
}

/// An integer, or a number of another type that is equal to it or near.
fn near_integer(base: i64) -> impl Strategy<Value = Bson> {
    (-2i64..=2, 0..7).prop_map(move |(step, form)| {
        let value = base.saturating_add(step);
        let double = value as f64;
        match form {
            0 => Bson::Int64(value),
            1 => i32::try_from(value).map_or(Bson::Int64(value), Bson::Int32),
            2 => Bson::Double(double),
            3 => Bson::Double(double.next_up()),
            4 => decimal(&value.to_string()),
            5 => decimal(&format!("{value}.0000000001")),
            _ => decimal(&format!("{value}00E-2")),
        }
    })
}

fn base_double() -> impl Strategy<Value = f64> {
    let bases = vec![0.1, 0.5, 1.5, 1e-5, 1e16, 1e22, 1e23, 1e100, 5e-324, 2.2250738585072014e-308];
    (prop_oneof![select(bases), any::<f64>()], any::<bool>())
        .prop_map(|(base, is_negative)| if is_negative { -base } else { base })
}

/// A double, or a decimal that is equal to it or near.
fn near_double(base: f64) -> impl Strategy<Value = Bson> {
    (0..5).prop_map(move |form| match form {
        0 => Bson::Double(base),
        1 => Bson::Double(base.next_up()),
        _ if !base.is_finite() => Bson::Double(base),
        2 => decimal(&format!("{base:e}")),
        3 => decimal(&format!("{base:.33e}")),
        _ => decimal(&format!("{base:.20e}")),
    })
}

fn special_number() -> impl Strategy<Value = Bson> {
    let texts = [
        "NaN",
        "-NaN",
        "Infinity",
        "-Infinity",
        "0",
        "-0E+3",
        "1E-6176",
        "-1E-6176",
        "1E-324",
        "4.9E-324",
        "9.999999999999999999999999999999999E+6144",
        "1.7976931348623157E+308",
        "1.7976931348623158E+308",
        "-1.8E+308",
        "1E+308",
        "1E+309",
    ];
    let doubles = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MAX, f64::MIN];
    prop_oneof![
        select(texts.to_vec()).prop_map(decimal),
        select(doubles.to_vec()).prop_map(Bson::Double),
    ]
}

pub fn number() -> impl Strategy<Value = Bson> {
    prop_oneof![
        4 => base_integer().prop_flat_map(near_integer),
        3 => base_double().prop_flat_map(near_double),
        1 => special_number(),
    ]
}

/// Short texts with zero bytes and with prefixes of each other.
pub fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(select(vec!['\0', '\u{1}', 'a', 'b', 'é', '\u{10ffff}']), 0..4)
        .prop_map(|chars| chars.into_iter().collect())
}

/// The same without zero bytes.
fn name() -> BoxedStrategy<String> {
    text().prop_map(|text| text.replace('\0', "")).boxed()
}

fn other_scalar() -> impl Strategy<Value = Bson> {
    let bytes = proptest::collection::vec(select(vec![0u8, 1, 255]), 0..4);
    let subtypes = vec![BinarySubtype::Generic, BinarySubtype::BinaryOld, BinarySubtype::Uuid];
    prop_oneof![
        Just(Bson::MinKey),
        Just(Bson::MaxKey),
        Just(Bson::Null),
        Just(Bson::Undefined),
        any::<bool>().prop_map(Bson::Boolean),
        select(vec![i64::MIN, -1, 0, 1, i64::MAX])
            .prop_map(|millis| Bson::DateTime(DateTime::from_millis(millis))),
        (0u32..3, select(vec![0, 1, u32::MAX]))
            .prop_map(|(time, increment)| Bson::Timestamp(Timestamp { time, increment })),
        select(vec![0u8, 1, 255]).prop_map(|byte| Bson::ObjectId(ObjectId::from_bytes([byte; 12]))),
        (bytes, select(subtypes))
            .prop_map(|(bytes, subtype)| Bson::Binary(Binary { subtype, bytes })),
        (name(), select(vec!["", "i", "im"]))
            .prop_map(|(pattern, options)| regex(&pattern, options)),
        text().prop_map(Bson::JavaScriptCode),
        text().prop_map(Bson::Symbol),
    ]
}

/// Any value, with up to three levels.
pub fn value() -> impl Strategy<Value = Bson> {
    let scalar =
        prop_oneof![3 => number(), 2 => text().prop_map(Bson::String), 2 => other_scalar()];
    scalar.prop_recursive(3, 24, 4, |inner| {
        let fields = proptest::collection::vec((name(), inner.clone()), 0..4);
        prop_oneof![
            3 => fields.clone().prop_map(|fields| Bson::Document(fields.into_iter().collect())),
            3 => proptest::collection::vec(inner, 0..4).prop_map(Bson::Array),
            1 => (text(), fields).prop_map(|(code, fields)| {
                let scope = fields.into_iter().collect();
                Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code, scope })
            }),
        ]
    })
}

/// Two values, of which the second is often the first with a small change.
pub fn pair() -> impl Strategy<Value = (Bson, Bson)> {
    prop_oneof![
        (value(), value()),
        (number(), number()),
        base_integer().prop_flat_map(|base| (near_integer(base), near_integer(base))),
        base_double().prop_flat_map(|base| (near_double(base), near_double(base))),
        (text(), text()).prop_map(|(left, right)| (left.into(), right.into())),
        (value(), value()).prop_map(|(left, other)| {
            let right = changed(&left, &other);
            (left, right)
        }),
    ]
}

/// The value with another one at its last place.
fn changed(value: &Bson, other: &Bson) -> Bson {
    match value {
        Bson::Array(values) => {
            let mut values = values.clone();
            match values.pop() {
                Some(last) if values.len() % 2 == 0 => values.push(changed(&last, other)),
                _ => values.push(other.clone()),
            }
            Bson::Array(values)
        }
        Bson::Document(fields) => {
            let mut fields = fields.clone();
            let last = fields.keys().last().cloned();
            if let Some(last) = last {
                let before = fields.get(&last).cloned().unwrap_or(Bson::Null);
                fields.insert(last, changed(&before, other));
            }
            Bson::Document(fields)
        }
        Bson::Int32(value) => Bson::Double(f64::from(*value)),
        Bson::String(text) => Bson::String(format!("{text}\0")),
        _ => other.clone(),
    }
}

/// Few values, so that filters find them.
fn common() -> impl Strategy<Value = Bson> {
    let scalars = vec![
        Bson::Int32(0),
        Bson::Int32(1),
        Bson::Int64(2),
        Bson::Int64(-1),
        Bson::Double(1.0),
        Bson::Double(1.5),
        Bson::Double(f64::NAN),
        decimal("2.0"),
        Bson::String("x".into()),
        Bson::String("xy".into()),
        Bson::Symbol("x".into()),
        Bson::Null,
        Bson::Undefined,
        Bson::Boolean(true),
        Bson::MinKey,
        Bson::MaxKey,
        regex("^x", ""),
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![5, 128] }),
    ];
    let scalar = select(scalars);
    let nested = scalar.clone().prop_recursive(3, 16, 3, |inner| {
        let fields = proptest::collection::vec((select(vec!["a", "b", "0"]), inner.clone()), 0..3);
        prop_oneof![
            2 => fields.prop_map(collected),
            3 => proptest::collection::vec(inner, 0..3).prop_map(Bson::Array),
        ]
    });
    prop_oneof![scalar, nested]
}

fn collected(fields: Vec<(&str, Bson)>) -> Bson {
    Bson::Document(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// A document for filters: deeper than [`common`] values, with the same names.
pub fn document() -> impl Strategy<Value = Document> {
    let fields = proptest::collection::vec((select(vec!["a", "b", "0"]), common()), 0..4);
    fields.prop_map(|fields| match collected(fields) {
        Bson::Document(document) => document,
        _ => Document::new(),
    })
}

fn operand() -> impl Strategy<Value = Bson> {
    common().prop_filter("no operand", |value| {
        !matches!(value, Bson::Undefined | Bson::RegularExpression(_))
    })
}

/// One operator with its argument, without operators inside.
fn simple() -> impl Strategy<Value = (String, Bson)> {
    let types =
        vec!["number", "string", "array", "object", "null", "undefined", "decimal", "regex"];
    let types = select(types).prop_map(|name| Bson::String(name.into()));
    let bits = select(vec!["$bitsAllSet", "$bitsAnySet", "$bitsAllClear", "$bitsAnyClear"]);
    let masks = prop_oneof![
        (0..6i32).prop_map(Bson::Int32),
        proptest::collection::vec((0..70i32).prop_map(Bson::Int32), 0..3).prop_map(Bson::Array),
    ];
    let lists = proptest::collection::vec(
        common().prop_filter("no operand", |value| *value != Bson::Undefined),
        0..4,
    )
    .boxed();
    let owned = |(name, value): (&str, Bson)| (name.to_owned(), value);
    prop_oneof![
        4 => (select(vec!["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"]), operand()).prop_map(owned),
        2 => (select(vec!["$in", "$nin"]), lists.clone())
            .prop_map(move |(name, values)| owned((name, Bson::Array(values)))),
        1 => any::<bool>().prop_map(|exists| ("$exists".to_owned(), Bson::Boolean(exists))),
        1 => types.prop_map(|types| ("$type".to_owned(), types)),
        1 => (1..3i32, -1..2i32)
            .prop_map(|(divisor, rest)| ("$mod".to_owned(), Bson::Array(vec![divisor.into(), rest.into()]))),
        1 => (0..3i32).prop_map(|size| ("$size".to_owned(), Bson::Int32(size))),
        1 => (bits, masks).prop_map(owned),
        1 => select(vec!["^x", "y"]).prop_map(|text| ("$regex".to_owned(), Bson::String(text.into()))),
        1 => lists.prop_map(|values| ("$all".to_owned(), Bson::Array(values))),
    ]
}

/// `{ path: { operators } }`, `{ path: value }` and logical operators.
pub fn filter() -> impl Strategy<Value = Document> {
    let paths = vec!["a", "b", "0", "a.b", "a.0", "a.0.b", "b.a.1", "0.0", "0.0.0", "a.a.a"];
    let operators = operators();
    let path = select(paths).prop_map(str::to_owned);
    let fields = prop_oneof![
        3 => (path.clone(), operators).prop_map(|(path, tests)| (path, Bson::Document(tests))),
        1 => (path, common().prop_filter("no operand", |value| *value != Bson::Undefined)),
    ];
    let leaf = proptest::collection::vec(fields, 1..3).prop_map(|all| all.into_iter().collect());
    leaf.prop_recursive(2, 8, 3, |inner| {
        let entries = proptest::collection::vec(inner.clone(), 1..3);
        let inside = (inner, select(vec!["a", "b"])).prop_map(|(inner, path)| {
            Document::from_iter([(path.to_owned(), bson::bson!({ "$elemMatch": inner }))])
        });
        prop_oneof![
            (select(vec!["$and", "$or", "$nor"]), entries).prop_map(|(name, entries)| {
                let entries = entries.into_iter().map(Bson::Document).collect();
                Document::from_iter([(name.to_owned(), Bson::Array(entries))])
            }),
            inside,
        ]
    })
}

fn operators() -> impl Strategy<Value = Document> {
    let simple = proptest::collection::vec(simple(), 1..3)
        .prop_map(|tests| tests.into_iter().collect::<Document>());
    simple.prop_recursive(2, 6, 2, |inner| {
        let name = select(vec!["$not", "$elemMatch"]);
        let all = inner.clone().prop_map(|inner| {
            let inner = bson::bson!({ "$elemMatch": inner });
            Document::from_iter([("$all".to_owned(), Bson::Array(vec![inner]))])
        });
        prop_oneof![
            3 => (name, inner)
                .prop_map(|(name, inner)| Document::from_iter([(name.to_owned(), inner.into())])),
            1 => all,
        ]
    })
}

/// A filter, and a document that often has some of its values at their paths.
pub fn filter_and_near() -> impl Strategy<Value = (Document, Document)> {
    let places = proptest::collection::vec(proptest::bool::weighted(0.8), 8);
    (filter(), document(), places).prop_map(|(filter, mut document, places)| {
        let mut values = Vec::new();
        collect_values(&filter, "", &mut values);
        let chosen = values.into_iter().zip(places.into_iter().cycle());
        for ((path, value), _) in chosen.filter(|(_, is_chosen)| *is_chosen) {
            put_at(&mut document, &path, value);
        }
        (filter, document)
    })
}

/// Operands of a filter, each with the path that it is compared with.
fn collect_values(filter: &Document, path: &str, values: &mut Vec<(String, Bson)>) {
    for (name, operand) in filter {
        let at = match (name.starts_with('$'), path) {
            (true, _) => path.to_owned(),
            (false, "") => name.clone(),
            (false, _) => format!("{path}.{name}"),
        };
        match operand {
            Bson::Document(inner) if inner.keys().all(|name| name.starts_with('$')) => {
                collect_values(inner, &at, values);
            }
            Bson::Document(inner) if name == "$elemMatch" => collect_values(inner, &at, values),
            Bson::Array(all) if name.starts_with('$') => {
                for one in all {
                    match one {
                        Bson::Document(inner) => collect_values(inner, &at, values),
                        _ if at.is_empty() => {}
                        _ => values.push((at.clone(), one.clone())),
                    }
                }
            }
            _ if at.is_empty() => {}
            _ => values.push((at, operand.clone())),
        }
    }
}

/// Writes a value at a path; what lies on its way and is no document becomes one.
fn put_at(document: &mut Document, path: &str, value: Bson) {
    let Some((name, rest)) = path.split_once('.') else {
        document.insert(path, value);
        return;
    };
    let mut inner = match document.remove(name) {
        Some(Bson::Document(inner)) => inner,
        _ => Document::new(),
    };
    put_at(&mut inner, rest, value);
    document.insert(name, inner);
}
