//! GET, and the first question of every command on strings.

use crate::store::{Found, Now, Store};
use remora_arena::Journal;
use remora_index::hash::record_value;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_protocol::Reply;
use remora_protocol::message::Status;

/// The value with a remote pointer and a lease on it (H19).
#[inline]
pub(crate) fn get<'s, J: Journal>(
    store: &'s mut Store<J>,
    key: &[u8],
    hash: KeyHash,
    now: Now,
) -> Reply<'s> {
    match find(store, key, hash, now) {
        Ok(found) => answer(store, found, now),
        Err(reply) => reply,
    }
}

/// The reply to a GET that found this.
#[inline]
pub(crate) fn answer<'s, J: Journal>(
    store: &'s mut Store<J>,
    found: Option<Found>,
    now: Now,
) -> Reply<'s> {
    let Some(found) = found else {
        store.stats.misses += 1;
        return Reply::status(Status::NotFound);
    };
    store.stats.hits += 1;
    store.evictor.note_touched(found);
    if store.ask_only.holds(found.slot.slot) {
        // No pointer: a reader that followed it would have to ask.
        let value = Some(record_value(&store.owner, found.slot.slot));
        return Reply { value, ..Reply::status(Status::Ok) };
    }
    let lease_ms = store.extend_lease(found, now);
    Reply {
        status: Status::Ok,
        number: 0,
        value: Some(record_value(&store.owner, found.slot.slot)),
        pointer: store.pointer(found.slot.slot),
        lease_ms,
        wait: 0,
    }
}

/// A key's string. An error is the reply for a key of another type.
#[inline]
pub(crate) fn find<J: Journal>(
    store: &mut Store<J>,
    key: &[u8],
    hash: KeyHash,
    now: Now,
) -> Result<Option<Found>, Reply<'static>> {
    let found = store.lookup(key, hash, now);
    match holds_other_type(store, found) {
        false => Ok(found),
        true => Err(Reply::status(Status::WrongType)),
    }
}

/// Whether the found object is not a string.
#[inline]
pub(crate) fn holds_other_type<J: Journal>(store: &Store<J>, found: Option<Found>) -> bool {
    found.is_some_and(|found| store.kind(found) != Kind::STRING)
}
