//! Commands about any key, whatever its type.

mod scan;
mod transfer;

pub(crate) use scan::{random_key, scan};
pub(crate) use transfer::{Target, del_dumped, dump, restore, transfer};

use crate::store::{Found, Store, is_allowed, with_expiry};
use crate::types::object::On;
use remora_arena::{Journal, database_of, set_mutable};
use remora_layout::record::MAX_EXPIRES_AT_MS;
use remora_protocol::message::Status;
use remora_protocol::{Command, ExpireCondition, Reply};

pub(crate) fn del<J: Journal>(store: &mut Store<J>, on: On<'_>) -> Reply<'static> {
    let Some(found) = store.lookup(on.key, on.hash, on.now) else { return Reply::number(0) };
    remove(store, on, found);
    Reply::number(1)
}

/// Removes a key that was found, as a change of its own.
pub(crate) fn remove<J: Journal>(store: &mut Store<J>, on: On<'_>, found: Found) {
    let On { key, hash, now } = on;
    store.commit(hash.database(), &Command::Del { key }, |store| store.remove(found, hash, now));
}

pub(crate) fn exists<J: Journal>(store: &mut Store<J>, on: On<'_>) -> Reply<'static> {
    Reply::number(store.lookup(on.key, on.hash, on.now).is_some() as i64)
}

pub(crate) fn touch<J: Journal>(store: &mut Store<J>, on: On<'_>) -> Reply<'static> {
    let found = store.lookup(on.key, on.hash, on.now);
    if let Some(found) = found {
        store.evictor.note_touched(found);
    }
    Reply::number(found.is_some() as i64)
}

pub(crate) fn ttl<J: Journal>(store: &mut Store<J>, on: On<'_>) -> Reply<'static> {
    Reply::number(match store.lookup(on.key, on.hash, on.now) {
        None => -2,
        Some(found) if found.mutable.expires_at_ms == 0 => -1,
        Some(found) => (found.mutable.expires_at_ms - on.now.unix_ms) as i64,
    })
}

pub(crate) fn expire_time<J: Journal>(store: &mut Store<J>, on: On<'_>) -> Reply<'static> {
    Reply::number(match store.lookup(on.key, on.hash, on.now) {
        None => -2,
        Some(found) if found.mutable.expires_at_ms == 0 => -1,
        Some(found) => found.mutable.expires_at_ms as i64,
    })
}

/// Takes a key's expiry away, if it has one.
pub(crate) fn persist<J: Journal>(store: &mut Store<J>, on: On<'_>) -> Reply<'static> {
    let On { key, hash, now } = on;
    let found = store.lookup(key, hash, now);
    let Some(found) = found.filter(|found| found.mutable.expires_at_ms != 0) else {
        return Reply::number(0);
    };
    let mutable = with_expiry(found.mutable, 0);
    store.commit(hash.database(), &Command::Persist { key }, |store| {
        store.withhold_mutable(found.slot.slot);
        set_mutable(&mut store.owner, found.slot.slot, mutable);
    });
    store.stats.count(hash.database(), 0, -1);
    Reply::number(1)
}

pub(crate) fn type_of<J: Journal>(store: &mut Store<J>, on: On<'_>) -> Reply<'static> {
    match store.lookup(on.key, on.hash, on.now) {
        None => Reply::status(Status::NotFound),
        Some(found) => Reply::number(store.kind(found).of_type().0.into()),
    }
}

pub(crate) fn expire<J: Journal>(
    store: &mut Store<J>,
    on: On<'_>,
    at_ms: u64,
    condition: ExpireCondition,
) -> Reply<'static> {
    if at_ms > MAX_EXPIRES_AT_MS {
        return Reply::status(Status::InvalidExpiry);
    }
    let Some(found) = store.lookup(on.key, on.hash, on.now) else { return Reply::number(0) };
    let present = found.mutable.expires_at_ms;
    if !is_allowed(condition, present, at_ms) {
        return Reply::number(0);
    }
    if at_ms <= on.now.unix_ms {
        remove(store, on, found);
    } else {
        set_expiry(store, on.key, found, at_ms);
    }
    Reply::number(1)
}

/// Sets an expiry in the record's mutable word.
fn set_expiry<J: Journal>(store: &mut Store<J>, key: &[u8], found: Found, at_ms: u64) {
    let condition = ExpireCondition::Always;
    let mutable = with_expiry(found.mutable, at_ms);
    let database = database_of(&store.owner, found.slot.slot);
    store.commit(database, &Command::Expire { key, at_ms, condition }, |store| {
        store.withhold_mutable(found.slot.slot);
        set_mutable(&mut store.owner, found.slot.slot, mutable);
    });
    let (had, has) = (found.mutable.expires_at_ms != 0, at_ms != 0);
    store.stats.count(database, 0, has as i64 - had as i64);
}
