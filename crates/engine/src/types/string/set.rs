//! SET, INCR, several at once.

use super::read::{find, holds_other_type};
use crate::store::{Found, New, Now, Prepared, Room, Store};
use crate::types::object::On;
use remora_arena::{ArenaFull, Journal, Slot};
use remora_index::hash::record_value;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use remora_layout::record::MAX_EXPIRES_AT_MS;
use remora_protocol::integer;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry, Pairs, Reply};

/// The parts of a SET.
pub(crate) struct Set<'a> {
    pub key: &'a [u8],
    pub hash: KeyHash,
    pub value: &'a [u8],
    pub condition: Condition,
    pub expiry: Expiry,
    pub get: bool,
}

/// Expiry of a key after a SET, Unix ms, 0 for never; `None` if it makes no
/// sense.
pub(crate) fn expiry_of(expiry: Expiry, found: Option<Found>) -> Option<u64> {
    match expiry {
        Expiry::Never => Some(0),
        Expiry::Keep => Some(found.map_or(0, |found| found.mutable.expires_at_ms)),
        Expiry::At(at_ms) if at_ms == 0 || at_ms > MAX_EXPIRES_AT_MS => None,
        Expiry::At(at_ms) => Some(at_ms),
    }
}

/// Whether a SET takes effect.
pub(crate) fn is_allowed(condition: Condition, found: Option<Found>) -> bool {
    match condition {
        Condition::Always => true,
        Condition::IfAbsent => found.is_none(),
        Condition::IfPresent => found.is_some(),
    }
}

pub(crate) fn set<'s, J: Journal>(store: &'s mut Store<J>, set: Set<'_>, now: Now) -> Reply<'s> {
    if set.key.len() > MAX_KEY_BYTES || set.value.len() > MAX_VALUE_BYTES {
        return Reply::status(Status::TooLarge);
    }
    let mut found = store.lookup(set.key, set.hash, now);
    if set.get && holds_other_type(store, found) {
        return Reply::status(Status::WrongType);
    }
    let Some(expires_at_ms) = expiry_of(set.expiry, found) else {
        return Reply::status(Status::InvalidExpiry);
    };
    let allowed = is_allowed(set.condition, found);
    let mut status = if allowed { Status::Ok } else { Status::NotDone };
    if allowed {
        let Set { key, hash, value, .. } = set;
        let new = New { key, hash, kind: Kind::STRING, value, expires_at_ms };
        match store.put(new, found, now) {
            Ok(old) => found = old,
            Err(ArenaFull { .. }) => status = Status::OutOfMemory,
        }
    }
    let mut reply = Reply::status(status);
    if status == Status::Ok {
        reply.pointer = store.last_put;
    }
    if let Some(found) = found.filter(|_| set.get && status != Status::OutOfMemory) {
        // The old record is dead now, but its bytes stay until its slot is
        // taken again, which no command can do while the reply borrows us.
        reply.value = Some(record_value(&store.owner, found.slot.slot));
    }
    reply
}

pub(crate) fn incr<J: Journal>(store: &mut Store<J>, on: On<'_>, by: i64) -> Reply<'static> {
    let On { key, hash, now } = on;
    let found = match find(store, key, hash, now) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let before = match found {
        None => 0,
        Some(found) => match integer::parse(record_value(&store.owner, found.slot.slot)) {
            Some(value) => value,
            None => return Reply::status(Status::NotAnInteger),
        },
    };
    let Some(after) = before.checked_add(by) else {
        return Reply::status(Status::Overflow);
    };
    let expires_at_ms = found.map_or(0, |found| found.mutable.expires_at_ms);
    let mut text = itoa::Buffer::new();
    let value = text.format(after).as_bytes();
    let new = New { key, hash, kind: Kind::STRING, value, expires_at_ms };
    match store.put(new, found, now) {
        Ok(_) => Reply::number(after),
        Err(ArenaFull { .. }) => Reply::status(Status::OutOfMemory),
    }
}

/// Sets several keys as one change: all records are written, then all old guardians flipped, then
/// all new ones published (design, "Writing"). A key that occurs twice ends with its last value.
pub(crate) fn multi_set<J: Journal>(
    store: &mut Store<J>,
    database: Database,
    pairs: Pairs<'_>,
    now: Now,
) -> Reply<'static> {
    store.sweep_before_all(database, pairs, now);
    // Of equal keys only the last is set.
    let mut last = std::collections::BTreeMap::new();
    for (at, (key, _)) in pairs.iter().enumerate() {
        last.insert(key, at);
    }
    let chosen = |at: usize, key: &[u8]| last.get(key) == Some(&at);
    let mut prepared: Vec<Prepared> = Vec::new();
    let mut spares: Vec<Slot> = Vec::new();
    let mut full = false;
    for (at, (key, value)) in pairs.iter().enumerate() {
        if !chosen(at, key) {
            continue;
        }
        let hash = store.hash(database, key);
        match store.write((Kind::STRING, key, hash), value, 0, now) {
            Ok(slot) => prepared.push(Prepared { hash, slot, expires_at_ms: 0 }),
            Err(ArenaFull { .. }) => full = true,
        }
        // Several new keys may meet in one bucket: one spare for each.
        if store.table.find(&store.owner, key, hash).is_none() {
            match store.allocate(Room::Bucket, now) {
                Ok(spare) => spares.push(spare),
                Err(ArenaFull { .. }) => full = true,
            }
        }
        if full {
            break;
        }
    }
    if full {
        for slot in prepared.into_iter().map(|new| new.slot).chain(spares) {
            store.give_back(slot, now);
        }
        store.shed_thinned(now);
        return Reply::status(Status::OutOfMemory);
    }
    let keys = || pairs.iter().enumerate().filter(|(at, (key, _))| chosen(*at, key));
    let added = store.commit(database, &Command::MultiSet { pairs }, |store| {
        let mut found: Vec<Option<Found>> = Vec::with_capacity(prepared.len());
        for (new, (_, (key, _))) in prepared.iter().zip(keys()) {
            let old = store.found(key, new.hash);
            if let Some(old) = old {
                store.kill(old, now);
            }
            found.push(old);
        }
        let added = found.iter().filter(|old| old.is_none()).count();
        for (new, old) in prepared.iter().zip(found) {
            store.show(new.slot);
            let mut spare = spares.pop();
            store.link(new, old, &mut spare);
            spares.extend(spare);
        }
        added
    });
    for spare in spares {
        store.give_back(spare, now);
    }
    for _ in 0..added {
        store.grow(now);
    }
    store.shed_thinned(now);
    Reply::status(Status::Ok)
}
