//! Accumulators of `$group`: what they are, and what they keep of a group.

use crate::error::{COMMAND_NOT_SUPPORTED, DocumentError};
use crate::expression::{Deviation, Expression, Fields, Sum, count_of};
use crate::key::{Direction, encode};
use crate::order::compare;
use crate::raw::fields;
use crate::sort::SortKeys;
use crate::value::{Value, byte_length};
use crate::variables::{Env, Variables};
use bson::RawBson;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet, VecDeque};

type Made<T> = Result<T, DocumentError>;

fn fail<T>(code: i32, text: impl Into<String>) -> Made<T> {
    Err(DocumentError::new(code, text))
}

/// An accumulator with its argument.
#[derive(Debug, Clone)]
pub(super) struct Accumulator {
    kind: Kind,
    input: Expression,
}

#[derive(Debug, Clone)]
enum Kind {
    Sum,
    Avg,
    /// The least or the greatest value.
    Extreme(Ordering),
    First,
    Last,
    Push,
    AddToSet,
    Count,
    MergeObjects,
    Deviation {
        is_sample: bool,
    },
    FirstN(usize),
    LastN(usize),
    /// So many least or greatest values.
    ExtremeN(usize, Direction),
    /// So many values, by the order of their documents; `single` gives the one value without an array.
    Ranked {
        keys: SortKeys,
        count: usize,
        is_top: bool,
        is_single: bool,
    },
}

impl Accumulator {
    /// Parses `{$sum: "$a"}`.
    pub(super) fn parse(
        name: &str,
        argument: RawBsonRef<'_>,
        variables: &Variables,
    ) -> Made<Accumulator> {
        let kind = match name {
            "$sum" => Kind::Sum,
            "$avg" => Kind::Avg,
            "$min" => Kind::Extreme(Ordering::Less),
            "$max" => Kind::Extreme(Ordering::Greater),
            "$first" => Kind::First,
            "$last" => Kind::Last,
            "$push" => Kind::Push,
            "$addToSet" => Kind::AddToSet,
            "$mergeObjects" => Kind::MergeObjects,
            "$stdDevPop" => Kind::Deviation { is_sample: false },
            "$stdDevSamp" => Kind::Deviation { is_sample: true },
            "$count" => match argument {
                RawBsonRef::Document(document) if document.is_empty() => Kind::Count,
                _ => return fail(9, "$count takes no arguments, i.e. $count:{}"),
            },
            "$firstN" | "$lastN" | "$minN" | "$maxN" => {
                return Accumulator::many(name, argument, variables);
            }
            "$top" | "$bottom" | "$topN" | "$bottomN" => {
                return Accumulator::ranked(name, argument, variables);
            }
            "$accumulator" | "$median" | "$percentile" => {
                return fail(COMMAND_NOT_SUPPORTED, format!("{name} is not supported"));
            }
            _ => return fail(15952, format!("unknown group operator '{name}'")),
        };
        if let RawBsonRef::Array(array) = argument {
            // An accumulator has one argument; an array of one is that one.
            let mut all = crate::raw::elements(array);
            return match (all.next(), all.next()) {
                (Some(one), None) => {
                    Ok(Accumulator { kind, input: Expression::parse(one, variables)? })
                }
                _ => fail(40237, format!("The {name} accumulator is a unary operator")),
            };
        }
        Ok(Accumulator { kind, input: Expression::parse(argument, variables)? })
    }

    fn many(name: &str, argument: RawBsonRef<'_>, variables: &Variables) -> Made<Accumulator> {
        let [input, count] = parts(name, argument, ["input", "n"])?;
        let count = constant_count(count, variables)?;
        let kind = match name {
            "$firstN" => Kind::FirstN(count),
            "$lastN" => Kind::LastN(count),
            "$minN" => Kind::ExtremeN(count, Direction::Ascending),
            _ => Kind::ExtremeN(count, Direction::Descending),
        };
        Ok(Accumulator { kind, input: Expression::parse(input, variables)? })
    }

    fn ranked(name: &str, argument: RawBsonRef<'_>, variables: &Variables) -> Made<Accumulator> {
        let is_single = !name.ends_with('N');
        let (output, sort, count) = if is_single {
            let [output, sort] = parts(name, argument, ["output", "sortBy"])?;
            (output, sort, 1)
        } else {
            let [output, sort, count] = parts(name, argument, ["output", "sortBy", "n"])?;
            (output, sort, constant_count(count, variables)?)
        };
        let RawBsonRef::Document(keys) = sort else {
            return fail(10065, "invalid parameter: expected an object (sortBy)");
        };
        let is_top = name.starts_with("$top");
        let kind = Kind::Ranked { keys: SortKeys::parse(keys)?, count, is_top, is_single };
        Ok(Accumulator { kind, input: Expression::parse(output, variables)? })
    }

    /// What a new group keeps.
    pub(super) fn start(&self) -> State {
        match &self.kind {
            Kind::Sum | Kind::Avg => State::Sum(Sum::default()),
            Kind::Extreme(_) | Kind::First | Kind::Last => State::Value(None),
            Kind::Push => State::Values(RawArrayBuf::new()),
            Kind::AddToSet => State::Set(HashSet::new(), RawArrayBuf::new()),
            Kind::Count => State::Count(0),
            Kind::MergeObjects => State::Document(RawDocumentBuf::new()),
            Kind::Deviation { .. } => State::Deviation(Deviation::default()),
            Kind::FirstN(_) | Kind::LastN(_) => State::Queue(VecDeque::new()),
            Kind::ExtremeN(..) | Kind::Ranked { .. } => State::Ranked(BTreeMap::new(), 0),
        }
    }

    /// Adds a document to what a group keeps; how many bytes that takes.
    pub(super) fn add(
        &self,
        state: &mut State,
        document: &RawDocument,
        env: &Env<'_>,
    ) -> Made<usize> {
        if let State::Count(count) = state {
            *count += 1;
            return Ok(0);
        }
        let value = self.input.evaluate(document, env)?;
        match (&self.kind, state) {
            (Kind::Extreme(wanted), State::Value(kept)) => {
                if value.is_nullish() {
                    return Ok(0);
                }
                let is_better = kept
                    .as_ref()
                    .is_none_or(|kept| compare(value.or_null(), kept.as_raw_bson_ref()) == *wanted);
                if is_better { Ok(replace(kept, value)) } else { Ok(0) }
            }
            (Kind::First, State::Value(Some(_))) => Ok(0),
            (Kind::First | Kind::Last, State::Value(kept)) => Ok(replace(kept, value)),
            (Kind::FirstN(count), State::Queue(queue)) if queue.len() < *count => {
                queue.push_back(value.or_null().into());
                Ok(value.bytes() + PLACE)
            }
            (Kind::LastN(count), State::Queue(queue)) => {
                queue.push_back(value.or_null().into());
                let dropped = if queue.len() > *count { queue.pop_front() } else { None };
                let dropped =
                    dropped.map_or(0, |value| byte_length(value.as_raw_bson_ref()) + PLACE);
                Ok((value.bytes() + PLACE).saturating_sub(dropped))
            }
            (Kind::ExtremeN(count, direction), State::Ranked(kept, arrivals)) => {
                if value.is_nullish() {
                    return Ok(0);
                }
                let mut key = Vec::new();
                encode(value.or_null(), *direction, &mut key).map_err(DocumentError::malformed)?;
                Ok(rank(kept, arrivals, key, value, *count, true))
            }
            (Kind::Ranked { keys, count, is_top, .. }, State::Ranked(kept, arrivals)) => {
                let mut key = Vec::new();
                keys.encode(document, &mut key)?;
                Ok(rank(kept, arrivals, key, value, *count, *is_top))
            }
            (_, state) => state.add(&value),
        }
    }

    /// The value of a group.
    pub(super) fn result(&self, state: State) -> Made<RawBson> {
        let array = |values: &mut dyn Iterator<Item = RawBson>| {
            let mut made = RawArrayBuf::new();
            values.for_each(|value| made.push(value));
            RawBson::Array(made)
        };
        let made = match (state, &self.kind) {
            (State::Sum(sum), Kind::Avg) if sum.count == 0 => Value::NULL,
            (State::Sum(sum), Kind::Avg) => Value::double(sum.double() / sum.count as f64),
            (State::Sum(sum), _) => sum.total(),
            (State::Deviation(deviation), Kind::Deviation { is_sample }) => {
                deviation.total(*is_sample)
            }
            (State::Deviation(_), _) => Value::NULL,
            (State::Count(count), _) => Value::count(count),
            (State::Value(kept), _) => return Ok(kept.unwrap_or(RawBson::Null)),
            (State::Values(values) | State::Set(_, values), _) => {
                return Ok(RawBson::Array(values));
            }
            (State::Document(document), _) => return Ok(RawBson::Document(document)),
            (State::Queue(queue), _) => return Ok(array(&mut queue.into_iter())),
            (State::Ranked(mut kept, _), Kind::Ranked { is_single: true, .. }) => {
                return Ok(kept.pop_first().map_or(RawBson::Null, |(_, value)| value));
            }
            (State::Ranked(kept, _), _) => return Ok(array(&mut kept.into_values())),
        };
        Ok(made.into_raw().unwrap_or(RawBson::Null))
    }
}

/// Bytes that a value takes beside itself.
const PLACE: usize = 32;

/// Keeps another value; how many bytes more it takes.
fn replace(kept: &mut Option<RawBson>, value: Value<'_>) -> usize {
    let before = kept.as_ref().map_or(0, |kept| byte_length(kept.as_raw_bson_ref()));
    let bytes = value.bytes();
    *kept = Some(value.into_raw().unwrap_or(RawBson::Null));
    bytes.saturating_sub(before)
}

/// Keeps the first or the last values by key; how many bytes more that takes.
fn rank(
    kept: &mut BTreeMap<(Box<[u8]>, u64), RawBson>,
    arrivals: &mut u64,
    key: Vec<u8>,
    value: Value<'_>,
    count: usize,
    is_first: bool,
) -> usize {
    *arrivals += 1;
    let bytes = |key: &[u8], value: RawBsonRef<'_>| key.len() + byte_length(value) + PLACE;
    let added = bytes(&key, value.or_null());
    kept.insert((key.into(), *arrivals), value.into_raw().unwrap_or(RawBson::Null));
    if kept.len() <= count {
        return added;
    }
    let dropped = if is_first { kept.pop_last() } else { kept.pop_first() };
    let dropped = dropped.map_or(0, |((key, _), value)| bytes(&key, value.as_raw_bson_ref()));
    added.saturating_sub(dropped)
}

/// The named arguments of an accumulator.
fn parts<'d, const N: usize>(
    name: &str,
    argument: RawBsonRef<'d>,
    names: [&str; N],
) -> Made<[RawBsonRef<'d>; N]> {
    let RawBsonRef::Document(document) = argument else {
        return fail(5_787_900, format!("specification must be an object; found {name}"));
    };
    let mut parts = [None; N];
    for (known, value) in fields(document) {
        match names.iter().position(|of| *of == known) {
            Some(at) => parts[at] = Some(value),
            None => {
                return fail(5_787_901, format!("Unknown argument for '{name}' operator: {known}"));
            }
        }
    }
    let mut all = [RawBsonRef::Null; N];
    for ((part, place), wanted) in parts.into_iter().zip(&mut all).zip(names) {
        match part {
            Some(part) => *place = part,
            None => return fail(5_787_907, format!("Missing value for '{wanted}'")),
        }
    }
    Ok(all)
}

/// An `n` that is the same for all documents.
fn constant_count(value: RawBsonRef<'_>, variables: &Variables) -> Made<usize> {
    let expression = Expression::parse(value, variables)?;
    if expression.reads_document() {
        return fail(COMMAND_NOT_SUPPORTED, "an 'n' that differs between groups is not supported");
    }
    let (empty, env) = (RawDocumentBuf::new(), variables.env());
    let value = expression.evaluate(&empty, &env)?;
    count_of(value.or_null())
}

/// What an accumulator keeps of a group.
#[derive(Debug, Clone)]
pub(super) enum State {
    Sum(Sum),
    Value(Option<RawBson>),
    Values(RawArrayBuf),
    /// Encoded values, and the values.
    Set(HashSet<Box<[u8]>>, RawArrayBuf),
    Count(usize),
    Document(RawDocumentBuf),
    Deviation(Deviation),
    Queue(VecDeque<RawBson>),
    /// Values by key and arrival, and the number of arrivals.
    Ranked(BTreeMap<(Box<[u8]>, u64), RawBson>, u64),
}

impl State {
    /// Adds a value; how many bytes that takes.
    fn add(&mut self, value: &Value<'_>) -> Made<usize> {
        let Some(value) = value.get() else { return Ok(0) };
        match self {
            State::Sum(sum) => {
                sum.add(value, "$sum")?;
                Ok(0)
            }
            State::Deviation(deviation) => {
                deviation.add(value);
                Ok(0)
            }
            State::Values(values) => {
                values.push(value);
                Ok(byte_length(value) + 8)
            }
            State::Set(seen, values) => {
                let mut key = Vec::new();
                encode(value, Direction::Ascending, &mut key).map_err(DocumentError::malformed)?;
                let bytes = key.len() + PLACE + byte_length(value) + 8;
                if !seen.insert(key.into()) {
                    return Ok(0);
                }
                values.push(value);
                Ok(bytes)
            }
            State::Document(kept) => merge(kept, value),
            _ => Ok(0),
        }
    }
}

/// `$mergeObjects`.
fn merge(kept: &mut RawDocumentBuf, value: RawBsonRef<'_>) -> Made<usize> {
    let document = match value {
        RawBsonRef::Null | RawBsonRef::Undefined => return Ok(0),
        RawBsonRef::Document(document) => document,
        _ => {
            let text = format!(
                "$mergeObjects requires object inputs, but input {} is of type {}",
                crate::value::shown(value),
                Value::Raw(value).type_name()
            );
            return fail(40400, text);
        }
    };
    let before = kept.as_bytes().len();
    let made = {
        let mut all = Fields::default();
        fields(kept).chain(fields(document)).for_each(|(name, value)| all.set(name, value));
        all.document()?
    };
    *kept = made;
    Ok(kept.as_bytes().len().saturating_sub(before))
}
