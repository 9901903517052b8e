//! Lists of plans: whole in their record, in chunks, or asked for.

use crate::core::Core;
use crate::error::Error;
use crate::links::values_of;
use crate::list::OpenList;
pub(super) use remora_index::chain::ChainRef as Chain;
use remora_layout::chain::{encoded, join_hints};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::link::Linked;
use remora_layout::record::RECORD_HEADER_BYTES;
use remora_plan::{Given, Value, Want};
use remora_protocol::list::{ListCommand, range};
use remora_protocol::message::Status;
use remora_protocol::{Command, Items};

/// The range that a want names, of a list of so many elements, as indexes of its first and last element.
fn bounds(want: &Want, total: u64) -> (i64, i64) {
    let Want::List { from, count, .. } = want else { return (0, -1) };
    let start = if *from < 0 { from.saturating_add_unsigned(total).max(0) } else { *from };
    (start, start.saturating_add(i64::from(*count) - 1))
}

/// What a record says of a list that is wanted; `None` if it is the root of one with chunks.
pub(super) fn given_of(
    (kind, key_bytes): (Kind, usize),
    record: &[u8],
    want: &Want,
) -> Option<Given> {
    if kind == Kind::LIST {
        return None;
    }
    if kind.plain() != Kind::LIST.whole() {
        return Some(Given::OtherType);
    }
    let value = &record[RECORD_HEADER_BYTES + key_bytes..];
    let linked = kind.has_links().then(|| Linked::of(value)).flatten();
    let joined = linked.map(join_hints);
    let entries = joined.as_deref().unwrap_or(value);
    let total = encoded(entries).count() as u64;
    let (start, stop) = bounds(want, total);
    let (from, count) = range(total, start, stop).unwrap_or((0, 0));
    let some = encoded(entries).skip(from as usize).take(count as usize);
    let some: Vec<u8> = some.flatten().copied().collect();
    Some(Given::List { elements: values_of(&some), total })
}

/// Reads a list of chunks whose root record has been found. `None` if that does not conclude.
pub(super) fn read_chain(
    core: &mut Core,
    at: (KeyHash, usize),
    chain: Chain,
    want: &Want,
) -> Result<Option<Given>, Error> {
    let known = chain.state.length;
    let mut list = OpenList::of_chain(want.key(), at, chain);
    let read = list.entries_read(core, bounds(want, known))?;
    let is_from_end = matches!(want, Want::List { from, .. } if *from < 0);
    // Counted from the end of a list of another length it is another range.
    let read = read.filter(|(_, total)| !is_from_end || *total == known);
    Ok(read.map(|(entries, total)| Given::List { elements: values_of(&entries), total }))
}

/// Asks for elements of a list. `None`: not even that tells both the elements and their number.
pub(super) fn ask(core: &mut Core, want: &Want) -> Result<Option<Given>, Error> {
    let Want::List { place, from, count } = want else { return Ok(None) };
    let key = &*place.key;
    let length = Command::Of { key, request: ListCommand::Length.request() };
    let before = match core.ask(&length) {
        Err(Error::Refused(Status::WrongType)) => return Ok(Some(Given::OtherType)),
        answer => answer?.number as u64,
    };
    if before == 0 {
        return Ok(Some(Given::Gone));
    }
    let Ok(first) = u64::try_from(*from) else { return Ok(None) };
    let (start, stop) = bounds(want, before);
    let (_, shard) = core.directory.locate(key)?;
    let list = match core.ask_list(shard, key, ListCommand::Range { start, stop }.request()) {
        Err(Error::Refused(Status::WrongType)) => return Ok(Some(Given::OtherType)),
        list => list?.0,
    };
    let fields = Items::parse(&list).into_iter().flat_map(Items::fields).flatten();
    let value = |field: remora_layout::packed::Field<'_>| match field.is_link {
        true => Value::Link { key: field.value.into(), hint: None },
        false => Value::Plain(field.value.into()),
    };
    let elements: Vec<Value> = fields.map(value).collect();
    // The length is of an earlier moment: these elements say more.
    let end = first + elements.len() as u64;
    let is_end = (elements.len() as u64) < u64::from(*count);
    let total = if is_end { end } else { before.max(end) };
    Ok(Some(Given::List { elements, total }))
}
