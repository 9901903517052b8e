//! Ranges of ordered trees that plans take: read, or asked for.

use super::views::PlanTrees;
use crate::core::Core;
use crate::error::Error;
use crate::ordered::{OpenOrdered, OrderedValue};
use crate::path::Path;
use remora_plan::{Bytes, Given, Value, Want};
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedRange};

/// Reads a range by READs, or asks for it if they do not conclude. `None`: ask for the whole plan.
pub(super) fn range(
    core: &mut Core,
    open: &mut PlanTrees,
    want: &Want,
) -> Result<Option<Given>, Error> {
    let Want::Entries { place, range, count } = want else { return Ok(None) };
    let key = &place.key;
    if !open.ordered.has(key) {
        let view = OpenOrdered::new(&core.directory, key)?;
        open.ordered.keep(key.clone(), view);
    }
    let view = open.ordered.get_mut(key).expect("it was just put there");
    let from = range.from.as_ref().map(|key| &**key);
    let bounds = OrderedRange { from, to: range.to.as_ref().map(|key| &**key) };
    let of = (range.is_reverse, u64::from(*count));
    let found = match view.range(core, bounds, of, Path::Read) {
        Err(Error::Refused(Status::WrongType)) => {
            open.ordered.forget(key);
            return Ok(Some(Given::OtherType));
        }
        found => found?,
    };
    if found.entries.is_empty() && !found.served_by.is_read() && !is_there(core, key)? {
        return Ok(Some(Given::Gone));
    }
    let goes_on = found.entries.len() >= *count as usize;
    let entries = found.entries.into_iter().map(|(key, value)| (key.into(), value_of(value)));
    Ok(Some(Given::Entries { entries: entries.collect(), goes_on }))
}

/// Whether a key holds a tree, if a range of it has no entries. Only its owner says so.
fn is_there(core: &mut Core, key: &Bytes) -> Result<bool, Error> {
    let info = Command::Of { key, request: OrderedCommand::Info.request() };
    match core.ask(&info) {
        Err(Error::Refused(Status::WrongType)) => Ok(false),
        answer => Ok(answer?.status != Status::NotFound),
    }
}

/// Links of trees have no hints.
fn value_of(of: OrderedValue) -> Value {
    match of.is_link {
        true => Value::Link { key: of.value.into(), hint: None },
        false => Value::Plain(of.value.into()),
    }
}
