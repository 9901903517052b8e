//! APPEND, SETRANGE, SETBIT and the reads that go with them; GETDEL, GETEX.
//!
//! Invariant: an edit keeps the key's expiry, and is logged as the edit itself, so that one bit of
//! a long value costs the log a few bytes. Replayed in order on the same state it gives the same
//! value. An expired key is removed by its own entry, before any edit that made the key anew; so a
//! replay must not let its own clock remove anything.

use super::in_place::{Change, change_in_place};
use super::read::{find, get};
use crate::keys;
use crate::store::{Found, New, Now, Store};
use crate::string_edit::{self, BitPlace, TooLong};
use crate::types::object::On;
use remora_arena::Journal;
use remora_index::hash::record_value;
use remora_layout::kind::Kind;
use remora_layout::limits::ASK_ONLY_BYTES;
use remora_layout::record::MAX_EXPIRES_AT_MS;
use remora_protocol::message::Status;
use remora_protocol::{Command, ExpireCondition, Reply};

/// The value that was found; empty without one.
fn old_value<J: Journal>(store: &Store<J>, found: Option<Found>) -> &[u8] {
    found.map_or(&[], |found| record_value(&store.owner, found.slot.slot))
}

/// Carries one edit out: a long value is changed in place, another one is
/// written anew, and the reply points to it as that of SET does.
fn change<'s, J: Journal>(store: &'s mut Store<J>, change: Change<'_>, now: Now) -> Reply<'s> {
    if change.edit.new_bytes > ASK_ONLY_BYTES {
        return change_in_place(store, &change, now);
    }
    let Change { key, hash, found, edit, written, entry, number } = change;
    // Taken out of the shard while it is in use.
    let mut value = std::mem::take(&mut store.edited);
    value.clear();
    value.extend_from_slice(old_value(store, found));
    edit.apply(&mut value, written);
    let expires_at_ms = found.map_or(0, |found| found.mutable.expires_at_ms);
    let new = New { key, hash, kind: Kind::STRING, value: &value, expires_at_ms };
    let put = store.put_as(new, found, &entry, now);
    store.edited = value;
    match put {
        Ok(_) => Reply { pointer: store.last_put, ..Reply::number(number) },
        Err(_) => Reply::status(Status::OutOfMemory),
    }
}

pub(crate) fn append<'s, J: Journal>(
    store: &'s mut Store<J>,
    on: On<'_>,
    value: &[u8],
) -> Reply<'s> {
    let On { key, hash, now } = on;
    let found = match find(store, key, hash, now) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let old_bytes = found.map(|_| old_value(store, found).len());
    let edit = match string_edit::append(old_bytes, value.len()) {
        Ok(Some(edit)) => edit,
        Ok(None) => return Reply::number(old_bytes.unwrap_or(0) as i64),
        Err(TooLong) => return Reply::status(Status::TooLarge),
    };
    let (entry, number) = (Command::Append { key, value }, edit.new_bytes as i64);
    change(store, Change { key, hash, found, edit, written: value, entry, number }, now)
}

pub(crate) fn set_range<'s, J: Journal>(
    store: &'s mut Store<J>,
    on: On<'_>,
    offset: u64,
    value: &[u8],
) -> Reply<'s> {
    let On { key, hash, now } = on;
    let found = match find(store, key, hash, now) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let old_bytes = old_value(store, found).len();
    let edit = match string_edit::set_range(old_bytes, offset, value.len()) {
        Ok(Some(edit)) => edit,
        Ok(None) => return Reply::number(old_bytes as i64),
        Err(TooLong) => return Reply::status(Status::TooLarge),
    };
    let (entry, number) = (Command::SetRange { key, offset, value }, edit.new_bytes as i64);
    change(store, Change { key, hash, found, edit, written: value, entry, number }, now)
}

pub(crate) fn set_bit<'s, J: Journal>(
    store: &'s mut Store<J>,
    on: On<'_>,
    offset: u32,
    bit: bool,
) -> Reply<'s> {
    let On { key, hash, now } = on;
    let found = match find(store, key, hash, now) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let Ok(planned) = string_edit::set_bit(old_value(store, found), offset, bit) else {
        return Reply::status(Status::TooLarge);
    };
    let number = planned.before as i64;
    let Some(edit) = planned.edit else { return Reply::number(number) };
    let (entry, written) = (Command::SetBit { key, offset, bit }, &[planned.byte][..]);
    change(store, Change { key, hash, found, edit, written, entry, number }, now)
}

/// The record of a key that is read; the eviction policy counts the read.
fn asked_for<J: Journal>(
    store: &mut Store<J>,
    on: On<'_>,
) -> Result<Option<Found>, Reply<'static>> {
    let On { key, hash, now } = on;
    let found = find(store, key, hash, now)?;
    found.into_iter().for_each(|found| store.evictor.note_touched(found));
    Ok(found)
}

pub(crate) fn get_range<'s, J: Journal>(
    store: &'s mut Store<J>,
    on: On<'_>,
    start: i32,
    end: i32,
) -> Reply<'s> {
    let found = match asked_for(store, on) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let value = old_value(store, found);
    let range = string_edit::range(value.len(), start.into(), end.into());
    Reply { value: Some(&value[range]), ..Reply::status(Status::Ok) }
}

pub(crate) fn get_bit<J: Journal>(store: &mut Store<J>, on: On<'_>, offset: u32) -> Reply<'static> {
    let found = match asked_for(store, on) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    Reply::number(BitPlace::of(offset).is_set(old_value(store, found)) as i64)
}

pub(crate) fn strlen<J: Journal>(store: &mut Store<J>, on: On<'_>) -> Reply<'static> {
    let On { key, hash, now } = on;
    let found = match find(store, key, hash, now) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    Reply::number(old_value(store, found).len() as i64)
}

pub(crate) fn get_del<'s, J: Journal>(store: &'s mut Store<J>, on: On<'_>) -> Reply<'s> {
    let On { key, hash, now } = on;
    let found = match find(store, key, hash, now) {
        Ok(Some(found)) => found,
        Ok(None) => {
            store.stats.misses += 1;
            return Reply::status(Status::NotFound);
        }
        Err(reply) => return reply,
    };
    store.stats.hits += 1;
    keys::remove(store, on, found);
    last_bytes_of(store, found)
}

pub(crate) fn get_ex<'s, J: Journal>(
    store: &'s mut Store<J>,
    on: On<'_>,
    at_ms: Option<u64>,
) -> Reply<'s> {
    let On { key, hash, now } = on;
    if at_ms.is_some_and(|at_ms| at_ms > MAX_EXPIRES_AT_MS) {
        return Reply::status(Status::InvalidExpiry);
    }
    if let Err(reply) = find(store, key, hash, now) {
        return reply;
    }
    match at_ms {
        Some(at_ms) if at_ms <= now.unix_ms => return get_del(store, on),
        Some(at_ms) => {
            keys::expire(store, on, at_ms, ExpireCondition::Always);
        }
        None => {
            keys::persist(store, on);
        }
    }
    get(store, key, hash, now)
}

/// The value of a record that was just taken out: its bytes stay until its
/// slot is taken again, which no command can do while the reply borrows us.
fn last_bytes_of<J: Journal>(store: &Store<J>, found: Found) -> Reply<'_> {
    let value = record_value(&store.owner, found.slot.slot);
    Reply { value: Some(value), ..Reply::status(Status::Ok) }
}
