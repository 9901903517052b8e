//! `$graphLookup`: the documents that are reached from a value, level by level.

use super::source::{Query, both};
use super::step::{Poll, check, memory, one_of, text};
use crate::error::{DocumentError, FAILED_TO_PARSE};
use crate::expression::{Expression, parse_path, path_value};
use crate::filter::Filter;
use crate::key::{Direction, encode};
use crate::number::Number;
use crate::raw::{elements, fields};
use crate::set_path::set_path;
use crate::variables::{Env, Variables};
use bson::RawBson;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};
use std::collections::HashSet;
use std::sync::Arc;

/// The stage, and the document that it is at.
#[derive(Debug, Clone)]
pub(super) struct GraphLookup {
    spec: Arc<Spec>,
    current: Option<Current>,
}

#[derive(Debug)]
struct Spec {
    from: String,
    start: Expression,
    connect_from: Vec<String>,
    connect_to: String,
    into: Vec<String>,
    most: Option<u64>,
    depth_field: Option<Vec<String>>,
    restriction: RawDocumentBuf,
}

#[derive(Debug, Clone)]
struct Current {
    document: RawDocumentBuf,
    level: u64,
    /// Encoded values that were searched for, or will be.
    known: HashSet<Vec<u8>>,
    /// Values of the next level.
    frontier: Vec<RawBson>,
    /// Encoded ids of the documents that were found.
    visited: HashSet<Vec<u8>>,
    found: RawArrayBuf,
    /// Documents of the answer that were not looked at yet.
    answer: std::collections::VecDeque<RawDocumentBuf>,
    is_waiting: bool,
    bytes: usize,
}

fn fail<T>(code: i32, text: impl Into<String>) -> Result<T, DocumentError> {
    Err(DocumentError::new(code, text))
}

impl GraphLookup {
    pub(super) fn parse(
        argument: RawBsonRef<'_>,
        variables: &Variables,
    ) -> Result<GraphLookup, DocumentError> {
        let RawBsonRef::Document(argument) = argument else {
            let text = "the $graphLookup stage specification must be an object";
            return fail(FAILED_TO_PARSE, text);
        };
        let stage = "$graphLookup";
        let (mut from, mut into, mut start) = (None, None, None);
        let (mut connect_from, mut connect_to) = (None, None);
        let (mut most, mut depth_field, mut restriction) = (None, None, RawDocumentBuf::new());
        for (name, value) in fields(argument) {
            match name {
                "from" => from = Some(text(stage, name, value)?),
                "as" => into = Some(parse_path(text(stage, name, value)?)?),
                "startWith" => start = Some(Expression::parse(value, variables)?),
                "connectFromField" => connect_from = Some(parse_path(text(stage, name, value)?)?),
                "connectToField" => {
                    let path = text(stage, name, value)?;
                    parse_path(path)?;
                    connect_to = Some(path.to_owned());
                }
                "depthField" => depth_field = Some(parse_path(text(stage, name, value)?)?),
                "maxDepth" => match Number::of(value).and_then(Number::whole) {
                    Some(depth @ 0..) => most = Some(depth.unsigned_abs()),
                    Some(_) => {
                        return fail(40101, "maxDepth requires a nonnegative argument");
                    }
                    None => return fail(40100, "maxDepth requires numeric argument"),
                },
                "restrictSearchWithMatch" => match value {
                    RawBsonRef::Document(filter) => {
                        Filter::parse_with(filter, variables)?;
                        restriction = filter.to_owned();
                    }
                    _ => return fail(40185, "restrictSearchWithMatch must be an object"),
                },
                _ => return fail(40104, format!("Unknown argument to $graphLookup: {name}")),
            }
        }
        let (Some(from), Some(into), Some(start), Some(connect_from), Some(connect_to)) =
            (from, into, start, connect_from, connect_to)
        else {
            return fail(
                40105,
                "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField' to be specified.",
            );
        };
        let from = from.to_owned();
        let spec =
            Spec { from, start, connect_from, connect_to, into, most, depth_field, restriction };
        Ok(GraphLookup { spec: Arc::new(spec), current: None })
    }

    pub(super) fn collection(&self) -> &str {
        &self.spec.from
    }

    pub(super) fn answer(&mut self, documents: Vec<RawDocumentBuf>, is_last: bool) {
        if let Some(current) = &mut self.current {
            current.answer.extend(documents);
            current.is_waiting = !is_last;
        }
    }

    /// Bytes of the documents that it keeps, about.
    pub(super) fn kept_bytes(&self) -> usize {
        self.current.as_ref().map_or(0, |current| {
            let answer = current.answer.iter().map(|document| document.as_bytes().len());
            let found = current.document.as_bytes().len() + current.found.as_bytes().len();
            found + current.bytes + answer.sum::<usize>()
        })
    }

    pub(super) fn poll(
        &mut self,
        input: Option<RawDocumentBuf>,
        has_ended: bool,
        env: &Env<'_>,
    ) -> Result<Poll, DocumentError> {
        if let Some(document) = input {
            self.current = Some(Current::begin(document, &self.spec, env)?);
            return Ok(Poll::Moved);
        }
        let Some(current) = &mut self.current else {
            return Ok(if has_ended { Poll::Done } else { Poll::Wants });
        };
        if let Some(document) = current.answer.pop_front() {
            current.visit(document, &self.spec, env)?;
            return Ok(Poll::Moved);
        }
        if current.is_waiting {
            return Ok(Poll::Awaits);
        }
        let is_deep = self.spec.most.is_some_and(|most| current.level > most);
        if !current.frontier.is_empty() && !is_deep {
            return current.ask(&self.spec).map(Poll::Asks);
        }
        let Some(current) = self.current.take() else { return Ok(Poll::Moved) };
        crate::value::fits(current.found.as_bytes().len())?;
        let found = Some(RawBsonRef::Array(&current.found));
        let made = set_path(&current.document, &self.spec.into, found)?;
        check(&made)?;
        Ok(Poll::Ready(made))
    }
}

impl Current {
    fn begin(
        document: RawDocumentBuf,
        spec: &Spec,
        env: &Env<'_>,
    ) -> Result<Current, DocumentError> {
        let value = spec.start.evaluate(&document, env)?.into_raw();
        let mut current = Current {
            document,
            level: 0,
            known: HashSet::new(),
            frontier: Vec::new(),
            visited: HashSet::new(),
            found: RawArrayBuf::new(),
            answer: std::collections::VecDeque::new(),
            is_waiting: false,
            bytes: 0,
        };
        match value.as_ref().map(RawBson::as_raw_bson_ref) {
            Some(RawBsonRef::Array(array)) => {
                elements(array).try_for_each(|value| current.reach(value))?;
            }
            Some(value) => current.reach(value)?,
            None => current.reach(RawBsonRef::Null)?,
        }
        Ok(current)
    }

    /// Notes a value to search for, if it is new.
    fn reach(&mut self, value: RawBsonRef<'_>) -> Result<(), DocumentError> {
        let mut key = Vec::new();
        encode(value, Direction::Ascending, &mut key).map_err(DocumentError::malformed)?;
        let bytes = key.len() + crate::value::byte_length(value);
        if self.known.insert(key) {
            self.bytes += bytes;
            self.frontier.push(value.into());
        }
        memory("$graphLookup", self.bytes)
    }

    fn ask(&mut self, spec: &Spec) -> Result<Query, DocumentError> {
        let frontier = std::mem::take(&mut self.frontier);
        let values = frontier.iter().map(RawBson::as_raw_bson_ref);
        let filter = both(&one_of(&spec.connect_to, values)?, &spec.restriction)?;
        self.level += 1;
        self.is_waiting = true;
        Ok(Query { collection: spec.from.clone(), filter, sort: None, skip: 0, limit: None })
    }

    /// Looks at a document that was found.
    fn visit(
        &mut self,
        document: RawDocumentBuf,
        spec: &Spec,
        env: &Env<'_>,
    ) -> Result<(), DocumentError> {
        let mut key = Vec::new();
        let id = fields(&document).find(|(name, _)| *name == "_id").map(|(_, id)| id);
        encode(id.unwrap_or(RawBsonRef::Null), Direction::Ascending, &mut key)
            .map_err(DocumentError::malformed)?;
        self.bytes += key.len() + document.as_bytes().len();
        if !self.visited.insert(key) {
            return Ok(());
        }
        let next = path_value(RawBsonRef::Document(&document), &spec.connect_from, env)?;
        match next.get() {
            Some(RawBsonRef::Array(array)) => {
                elements(array).try_for_each(|value| self.reach(value))?;
            }
            Some(value) => self.reach(value)?,
            None => {}
        }
        let level = i64::try_from(self.level - 1).unwrap_or(i64::MAX);
        match &spec.depth_field {
            Some(path) => {
                let made = set_path(&document, path, Some(RawBsonRef::Int64(level)))?;
                self.found.push(&made);
            }
            None => self.found.push(&document),
        }
        memory("$graphLookup", self.bytes)
    }
}
