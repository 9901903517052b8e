//! Documents that plans take: asked for. Only their owner knows what a filter in a plan means.

use crate::core::Core;
use crate::error::Error;
use crate::large::ask_any_size;
use remora_plan::{Bytes, Given, Value, Want};
use remora_protocol::collection::{CollectionCommand, split_rows};
use remora_protocol::message::Status;
use remora_protocol::{Command, Items};

/// Asks for documents. `None`: it is no want for documents.
pub(super) fn ask(core: &mut Core, want: &Want) -> Result<Option<Given>, Error> {
    let Want::Documents { place, filter, count, next } = want else { return Ok(None) };
    let at = next.as_deref().unwrap_or_default();
    let rows = CollectionCommand::Rows { filter, at, count: *count };
    let answer = match ask_any_size(core, &Command::Of { key: &place.key, request: rows.request() })
    {
        Err(Error::Refused(Status::WrongType)) => return Ok(Some(Given::OtherType)),
        answer => answer?,
    };
    if answer.status != Status::Ok {
        return Ok(Some(Given::Gone));
    }
    let value = answer.value.map_or(&[][..], |range| core.in_reply(range));
    match given_of(value) {
        Some(given) => Ok(Some(given)),
        None => Err(core.asker.endpoint.end(Error::Protocol("documents that cannot be"))),
    }
}

fn given_of(value: &[u8]) -> Option<Given> {
    let (next, documents) = split_rows(value)?;
    let next = (!next.is_empty()).then(|| Bytes::from(next));
    let documents = documents.map(fields_of).collect::<Option<_>>()?;
    Some(Given::Documents { documents, next })
}

fn fields_of(fields: Items<'_>) -> Option<Vec<(Bytes, Value)>> {
    let mut fields = fields.iter();
    let mut pairs = Vec::new();
    while let Some(name) = fields.next() {
        pairs.push((name?.into(), Value::Plain(fields.next()??.into())));
    }
    Some(pairs)
}
