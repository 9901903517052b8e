//! Order and filters over owned values: slow, and written from the documentation of MongoDB, with no
//! code of the crate.

use bson::{Bson, Document};
use std::cmp::Ordering;

/// A number as sign and exact decimal digits.
#[derive(Debug, PartialEq)]
enum Exact {
    Nan,
    Finite(i32, i64, String),
    Infinite(i32),
}

fn exact_text(text: &str) -> Exact {
    let lower = text.to_lowercase();
    let (sign, rest) = lower.strip_prefix('-').map_or((1, lower.as_str()), |rest| (-1, rest));
    if rest.starts_with("nan") {
        return Exact::Nan;
    }
    if rest.starts_with("inf") {
        return Exact::Infinite(sign);
    }
    let (mantissa, exponent) = rest.split_once('e').unwrap_or((rest, "0"));
    let exponent: i64 = exponent.trim_start_matches('+').parse().expect("an exponent");
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    if digits.is_empty() {
        return Exact::Finite(0, 0, String::new());
    }
    let leading = (all.len() - digits.len()) as i64;
    let point = whole.len() as i64 + exponent - leading;
    Exact::Finite(sign, point, digits.trim_end_matches('0').to_owned())
}

fn exact(value: &Bson) -> Option<Exact> {
    Some(exact_text(&match value {
        Bson::Int32(value) => value.to_string(),
        Bson::Int64(value) => value.to_string(),
        Bson::Double(value) if value.is_finite() => format!("{value:.1100}"),
        Bson::Double(value) => value.to_string(),
        Bson::Decimal128(value) => value.to_string(),
        _ => return None,
    }))
}

fn compare_exact(left: &Exact, right: &Exact) -> Ordering {
    let rank = |value: &Exact| match value {
        Exact::Nan => -3,
        Exact::Infinite(sign) => sign * 2,
        Exact::Finite(sign, ..) => *sign,
    };
    match (left, right) {
        (Exact::Finite(sign, point, digits), Exact::Finite(other_sign, other_point, others))
            if sign == other_sign =>
        {
            let order = (point, digits).cmp(&(other_point, others));
            if *sign < 0 { order.reverse() } else { order }
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

pub fn class(value: &Bson) -> u8 {
    match value {
        Bson::MinKey => 0,
        Bson::Undefined => 1,
        Bson::Null => 2,
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => 3,
        Bson::String(_) | Bson::Symbol(_) => 4,
        Bson::Document(_) => 5,
        Bson::Array(_) => 6,
        Bson::Binary(_) => 7,
        Bson::ObjectId(_) => 8,
        Bson::Boolean(_) => 9,
        Bson::DateTime(_) => 10,
        Bson::Timestamp(_) => 11,
        Bson::RegularExpression(_) => 12,
        Bson::DbPointer(_) => 13,
        Bson::JavaScriptCode(_) => 14,
        Bson::JavaScriptCodeWithScope(_) => 15,
        Bson::MaxKey => 16,
    }
}

pub fn compare(left: &Bson, right: &Bson) -> Ordering {
    let classes = class(left).cmp(&class(right));
    if classes.is_ne() {
        return classes;
    }
    if let (Some(left), Some(right)) = (exact(left), exact(right)) {
        return compare_exact(&left, &right);
    }
    let text = |value: &Bson| match value {
        Bson::String(text) | Bson::Symbol(text) | Bson::JavaScriptCode(text) => {
            text.clone().into_bytes()
        }
        Bson::ObjectId(id) => id.bytes().to_vec(),
        Bson::RegularExpression(regex) => {
            format!("{}\0{}", regex.pattern.as_str(), regex.options.as_str()).into_bytes()
        }
        _ => Vec::new(),
    };
    match (left, right) {
        (Bson::Document(left), Bson::Document(right)) => compare_documents(left, right),
        (Bson::Array(left), Bson::Array(right)) => {
            let pairs = left.iter().zip(right).map(|(left, right)| compare(left, right));
            let differs = pairs.into_iter().find(|order| order.is_ne());
            differs.unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (Bson::Binary(left), Bson::Binary(right)) => {
            let length = |binary: &bson::Binary| {
                binary.bytes.len() + if u8::from(binary.subtype) == 2 { 4 } else { 0 }
            };
            length(left)
                .cmp(&length(right))
                .then(u8::from(left.subtype).cmp(&u8::from(right.subtype)))
                .then_with(|| left.bytes.cmp(&right.bytes))
        }
        (Bson::Boolean(left), Bson::Boolean(right)) => left.cmp(right),
        (Bson::DateTime(left), Bson::DateTime(right)) => left.cmp(right),
        (Bson::Timestamp(left), Bson::Timestamp(right)) => {
            let number =
                |time: &bson::Timestamp| (u64::from(time.time) << 32) + u64::from(time.increment);
            number(left).cmp(&number(right))
        }
        (Bson::JavaScriptCodeWithScope(left), Bson::JavaScriptCodeWithScope(right)) => {
            left.code.cmp(&right.code).then_with(|| compare_documents(&left.scope, &right.scope))
        }
        _ => text(left).cmp(&text(right)),
    }
}

fn compare_documents(left: &Document, right: &Document) -> Ordering {
    let fields = |document: &Document| -> Vec<(String, Bson)> {
        document.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let (left, right) = (fields(left), fields(right));
    for ((name, value), (other_name, other)) in left.iter().zip(&right) {
        let order = class(value)
            .cmp(&class(other))
            .then_with(|| name.cmp(other_name))
            .then_with(|| compare(value, other));
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len())
}

/// A value that a path leads to, and whether an index led there last.
struct Hit {
    value: Option<Bson>,
    by_index: bool,
}

fn in_document(fields: &[(String, Bson)], parts: &[&str]) -> Vec<Hit> {
    let missing = || vec![Hit { value: None, by_index: false }];
    let Some((_, value)) = fields.iter().find(|(name, _)| name == parts[0]) else {
        return missing();
    };
    if parts.len() == 1 {
        return vec![Hit { value: Some(value.clone()), by_index: false }];
    }
    match value {
        Bson::Document(_) => in_document(&fields_of(value), &parts[1..]),
        Bson::Array(values) => in_array(values, &parts[1..]),
        _ => missing(),
    }
}

fn in_array(values: &[Bson], parts: &[&str]) -> Vec<Hit> {
    let mut hits = Vec::new();
    for (index, value) in values.iter().enumerate() {
        if let Bson::Document(_) = value {
            hits.extend(in_document(&fields_of(value), parts));
        }
        if parts[0] == index.to_string() {
            match value {
                _ if parts.len() == 1 => {
                    hits.push(Hit { value: Some(value.clone()), by_index: true });
                }
                Bson::Document(_) => hits.extend(in_document(&fields_of(value), &parts[1..])),
                Bson::Array(inner) => hits.extend(in_array(inner, &parts[1..])),
                _ => {}
            }
        }
    }
    hits
}

/// The fields of a document, or an array as one.
fn fields_of(value: &Bson) -> Vec<(String, Bson)> {
    match value {
        Bson::Document(document) => {
            document.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
        }
        Bson::Array(values) => values
            .iter()
            .enumerate()
            .map(|(index, value)| (index.to_string(), value.clone()))
            .collect(),
        _ => Vec::new(),
    }
}

/// Whether a document, or an array as one, matches a filter.
pub fn matches(filter: &Document, root: &Bson) -> bool {
    filter.iter().all(|(name, condition)| {
        let entries = || {
            let entries = condition.as_array().expect("an array").iter();
            entries.map(|entry| matches(entry.as_document().expect("a document"), root))
        };
        match name.as_str() {
            "$and" => entries().all(|holds| holds),
            "$or" => entries().any(|holds| holds),
            "$nor" => entries().all(|holds| !holds),
            _ => {
                let parts: Vec<&str> = name.split('.').collect();
                let hits = in_document(&fields_of(root), &parts);
                field(condition, &hits)
            }
        }
    })
}

fn is_operators(condition: &Bson) -> Option<&Document> {
    let document = condition.as_document()?;
    document.keys().next().is_some_and(|name| name.starts_with('$')).then_some(document)
}

fn field(condition: &Bson, hits: &[Hit]) -> bool {
    match is_operators(condition) {
        Some(operators) => operators.iter().all(|(name, argument)| operator(name, argument, hits)),
        None => {
            let name =
                if matches!(condition, Bson::RegularExpression(_)) { "$regex" } else { "$eq" };
            operator(name, condition, hits)
        }
    }
}

fn operator(name: &str, argument: &Bson, hits: &[Hit]) -> bool {
    match name {
        "$ne" => !operator("$eq", argument, hits),
        "$nin" => !operator("$in", argument, hits),
        "$not" => !field(argument, hits),
        "$all" => {
            let all = argument.as_array().expect("an array");
            !all.is_empty() && all.iter().all(|wanted| field(wanted, hits))
        }
        "$exists" => {
            hits.iter().any(|hit| hit.value.is_some()) == (*argument == Bson::Boolean(true))
        }
        "$size" | "$elemMatch" => hits.iter().any(|hit| single(name, argument, hit.value.as_ref())),
        _ => hits.iter().any(|hit| {
            let elements = match &hit.value {
                Some(Bson::Array(values)) if !hit.by_index => values.as_slice(),
                _ => &[],
            };
            single(name, argument, hit.value.as_ref())
                || elements.iter().any(|element| single(name, argument, Some(element)))
        }),
    }
}

fn single(name: &str, argument: &Bson, value: Option<&Bson>) -> bool {
    match name {
        "$eq" | "$gt" | "$gte" | "$lt" | "$lte" => comparison(name, argument, value),
        "$in" => argument.as_array().expect("an array").iter().any(|wanted| {
            let is_regex = matches!(wanted, Bson::RegularExpression(_));
            single(if is_regex { "$regex" } else { "$eq" }, wanted, value)
        }),
        "$regex" => pattern(argument, value),
        "$type" => value.is_some_and(|value| match argument.as_str().expect("a name") {
            "number" => class(value) == 3,
            "string" => matches!(value, Bson::String(_)),
            "array" => matches!(value, Bson::Array(_)),
            "object" => matches!(value, Bson::Document(_)),
            "null" => matches!(value, Bson::Null),
            "undefined" => matches!(value, Bson::Undefined),
            "decimal" => matches!(value, Bson::Decimal128(_)),
            "regex" => matches!(value, Bson::RegularExpression(_)),
            other => panic!("no type {other}"),
        }),
        "$mod" => {
            let part = |at: usize| argument.as_array().expect("an array")[at].as_i32();
            let (divisor, remainder) = (part(0).expect("a number"), part(1).expect("a number"));
            let number = value.and_then(float);
            number.is_some_and(|number| number.trunc() % f64::from(divisor) == f64::from(remainder))
        }
        "$size" => {
            let size = argument.as_i32().expect("a number");
            matches!(value, Some(Bson::Array(values)) if values.len() as i32 == size)
        }
        "$elemMatch" => {
            let condition = argument.as_document().expect("a document");
            let Some(Bson::Array(values)) = value else { return false };
            let first = condition.keys().next().map_or("", String::as_str);
            let is_value = first.starts_with('$') && !["$and", "$or", "$nor"].contains(&first);
            values.iter().any(|element| {
                if is_value {
                    condition.iter().all(|(name, argument)| element_holds(name, argument, element))
                } else {
                    matches!(element, Bson::Document(_) | Bson::Array(_))
                        && matches(condition, element)
                }
            })
        }
        _ => bits(name, argument, value),
    }
}

/// An operator inside `$elemMatch`, on an element as it is.
fn element_holds(name: &str, argument: &Bson, element: &Bson) -> bool {
    // An index led to the element, so its own elements do not count.
    operator(name, argument, &[Hit { value: Some(element.clone()), by_index: true }])
}

fn comparison(name: &str, argument: &Bson, value: Option<&Bson>) -> bool {
    let allows = |order: Ordering| match name {
        "$eq" => order.is_eq(),
        "$gt" => order.is_gt(),
        "$gte" => order.is_ge(),
        "$lt" => order.is_lt(),
        _ => order.is_le(),
    };
    let or_equal = !["$gt", "$lt"].contains(&name);
    let Some(value) = value else {
        return match argument {
            Bson::Null => or_equal,
            Bson::MinKey => name.starts_with("$gt"),
            Bson::MaxKey => name.starts_with("$lt"),
            _ => false,
        };
    };
    let nan = |value: &Bson| exact(value) == Some(Exact::Nan);
    if nan(value) || nan(argument) {
        let are_both = nan(value) && nan(argument);
        let is_end = matches!(argument, Bson::MinKey | Bson::MaxKey);
        return are_both && or_equal || is_end && allows(compare(value, argument));
    }
    let may_compare =
        class(value) == class(argument) || matches!(argument, Bson::MinKey | Bson::MaxKey);
    may_compare && allows(compare(value, argument))
}

fn pattern(argument: &Bson, value: Option<&Bson>) -> bool {
    let pattern = match argument {
        Bson::String(text) => text.as_str(),
        Bson::RegularExpression(regex) => regex.pattern.as_str(),
        other => panic!("no pattern {other}"),
    };
    match value {
        Some(Bson::String(text) | Bson::Symbol(text)) => match pattern.strip_prefix('^') {
            Some(start) => text.starts_with(start),
            None => text.contains(pattern),
        },
        Some(Bson::RegularExpression(regex)) => {
            regex.pattern.as_str() == pattern && regex.options.is_empty()
        }
        _ => false,
    }
}

fn float(value: &Bson) -> Option<f64> {
    let float = match value {
        Bson::Int32(value) => f64::from(*value),
        Bson::Int64(value) => *value as f64,
        Bson::Double(value) => *value,
        Bson::Decimal128(value) => value.to_string().parse().expect("a number"),
        _ => return None,
    };
    float.is_finite().then_some(float)
}

fn bits(name: &str, argument: &Bson, value: Option<&Bson>) -> bool {
    let positions: Vec<i32> = match argument {
        Bson::Int32(mask) => (0..32).filter(|bit| mask & (1 << bit) != 0).collect(),
        Bson::Array(all) => all.iter().filter_map(Bson::as_i32).collect(),
        other => panic!("no bits {other}"),
    };
    let is_set = |position: i32| -> Option<bool> {
        if let Some(Bson::Binary(binary)) = value {
            let byte = binary.bytes.get(position as usize / 8).copied().unwrap_or(0);
            return Some(byte & (1 << (position % 8)) != 0);
        }
        let number = value.and_then(float).filter(|number| number.fract() == 0.0)?;
        Some(if position > 62 { number < 0.0 } else { (number as i64) & (1 << position) != 0 })
    };
    if is_set(0).is_none() {
        return false;
    }
    let mut set = positions.iter().map(|position| is_set(*position) == Some(true));
    match name {
        "$bitsAllSet" => set.all(|set| set),
        "$bitsAnySet" => set.any(|set| set),
        "$bitsAllClear" => set.all(|set| !set),
        "$bitsAnyClear" => set.any(|set| !set),
        other => panic!("no operator {other}"),
    }
}
