//! `$group`: documents with equal ids become one.

use super::accumulator::{Accumulator, State};
use super::step::memory;
use crate::error::DocumentError;
use crate::expression::Expression;
use crate::key::{Direction, encode};
use crate::raw::{append, fields};
use crate::value::{Value, byte_length};
use crate::variables::{Env, Variables};
use bson::RawBson;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use std::collections::HashMap;
use std::sync::Arc;

/// The groups so far, in the order of their first documents.
#[derive(Debug, Clone)]
pub(super) struct Group {
    id: Expression,
    accumulators: Arc<[(String, Accumulator)]>,
    /// Positions by the encoded id: equal values have equal encodings.
    positions: HashMap<Box<[u8]>, usize>,
    groups: Vec<(RawBson, Vec<State>)>,
    /// The next group to give.
    given: usize,
    bytes: usize,
    /// The key of the current document: memory that is used again.
    key: Vec<u8>,
}

/// Bytes of a group beside its key, its id and what its accumulators keep.
const OVERHEAD: usize = 96;

fn fail<T>(code: i32, text: impl Into<String>) -> Result<T, DocumentError> {
    Err(DocumentError::new(code, text))
}

impl Group {
    pub(super) fn parse(
        argument: RawBsonRef<'_>,
        variables: &Variables,
    ) -> Result<Group, DocumentError> {
        let RawBsonRef::Document(argument) = argument else {
            return fail(15947, "a group's fields must be specified in an object");
        };
        let (mut id, mut accumulators) = (None, Vec::new());
        for (name, value) in fields(argument) {
            if name == "_id" {
                id = Some(Expression::parse(value, variables)?);
                continue;
            }
            if name.contains('.') {
                return fail(40235, format!("The field name '{name}' cannot contain '.'"));
            }
            if name.starts_with('$') {
                return fail(40236, format!("The field name '{name}' cannot be an operator name"));
            }
            let RawBsonRef::Document(value) = value else {
                return fail(40234, format!("The field '{name}' must be an accumulator object"));
            };
            let mut parts = fields(value);
            let (Some((operator, input)), None) = (parts.next(), parts.next()) else {
                return fail(40238, format!("The field '{name}' must specify one accumulator"));
            };
            let accumulator = Accumulator::parse(operator, input, variables)?;
            accumulators.push((name.to_owned(), accumulator));
        }
        match id {
            Some(id) => Ok(Group {
                id,
                accumulators: accumulators.into(),
                positions: HashMap::new(),
                groups: Vec::new(),
                given: 0,
                bytes: 0,
                key: Vec::new(),
            }),
            None => fail(15955, "a group specification must include an _id"),
        }
    }

    pub(super) fn push(
        &mut self,
        document: &RawDocument,
        env: &Env<'_>,
    ) -> Result<(), DocumentError> {
        let id = self.id.evaluate(document, env)?;
        self.key.clear();
        encode(id.or_null(), Direction::Ascending, &mut self.key)
            .map_err(DocumentError::malformed)?;
        let at = match self.positions.get(self.key.as_slice()) {
            Some(at) => *at,
            None => {
                self.bytes += self.key.len() + byte_length(id.or_null()) + OVERHEAD;
                self.bytes += self.accumulators.len() * size_of::<State>();
                let at = self.groups.len();
                self.positions.insert(self.key.as_slice().into(), at);
                let states = self.accumulators.iter().map(|(_, of)| of.start()).collect();
                self.groups.push((id.into_raw().unwrap_or(RawBson::Null), states));
                at
            }
        };
        let (_, states) = &mut self.groups[at];
        for ((_, accumulator), state) in self.accumulators.iter().zip(states) {
            self.bytes += accumulator.add(state, document, env)?;
        }
        memory("$group", self.bytes)
    }

    /// Bytes of the documents that it keeps, about.
    pub(super) fn kept_bytes(&self) -> usize {
        self.bytes
    }

    /// The next group.
    pub(super) fn take(&mut self) -> Result<Option<RawDocumentBuf>, DocumentError> {
        let Some((id, states)) = self.groups.get_mut(self.given) else { return Ok(None) };
        self.given += 1;
        let (id, states) = (std::mem::replace(id, RawBson::Null), std::mem::take(states));
        let mut made = RawDocumentBuf::new();
        made.append(cstr!("_id"), id.as_raw_bson_ref());
        for ((name, accumulator), state) in self.accumulators.iter().zip(states) {
            let value = accumulator.result(state)?;
            append(&mut made, name, Value::of_owned(&value).or_null())?;
        }
        super::step::check(&made)?;
        Ok(Some(made))
    }
}
