//! Gives a key's value to another key: RENAME, COPY and MOVE.
//!
//! Invariant: the new key is complete before the old one is removed, so that a failure leaves the
//! old one; the old one does not change in between. In the log these are two changes, each of one
//! key: at replay the keys may belong to different shards.
//!
//! Objects of parts go in pieces (`shard/moves.rs`).

use super::remove;
use crate::store::{New, Now, Store};
use crate::types::object::{On, Types};
use remora_arena::{ArenaFull, Journal};
use remora_index::hash::record_field;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::MAX_KEY_BYTES;
use remora_protocol::message::Status;
use remora_protocol::{Command, Dumped, Reply};

/// The target of a RENAME, COPY or MOVE.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub to: &'a [u8],
    pub database: Database,
    /// Another key of that name is replaced.
    pub replaces: bool,
    /// The key stays.
    pub keeps: bool,
}

pub(crate) fn transfer<J: Journal>(
    (store, types): (&mut Store<J>, &Types<J>),
    (key, hash): (&[u8], KeyHash),
    target: Target<'_>,
    now: Now,
) -> Reply<'static> {
    let Target { to, database, replaces, keeps } = target;
    let mut dumped = Vec::new();
    let is_elsewhere = to != key || database != hash.database();
    let status = dump_into(store, (key, hash), 0, &mut dumped, now);
    let given = match status {
        // Source and target are the same key: there is nothing to do.
        Status::Ok | Status::InPieces if !is_elsewhere => Ok(replaces),
        Status::Ok => {
            let parsed = Dumped::parse(&dumped).expect("just made");
            store.making_room.source = store.found(key, hash).map(|found| found.slot.slot);
            let to = (to, store.hash(database, to));
            let given = give((store, types), to, parsed, replaces, now);
            store.making_room.source = None;
            given
        }
        status => Err(status),
    };
    match given {
        Ok(true) if !keeps && is_elsewhere => {
            // Making room may have moved it.
            let found = store.found(key, hash);
            if let Some(found) = found {
                remove(store, On { key, hash, now }, found);
            }
            Reply::number(1)
        }
        Ok(done) => Reply::number(done.into()),
        Err(status) => Reply::status(status),
    }
}

/// The value of a key whose object lies in one record; with the number of its dump, if there is
/// one.
pub(crate) fn dump<'s, J: Journal>(
    store: &'s mut Store<J>,
    named: (&[u8], KeyHash),
    number: u64,
    now: Now,
) -> Reply<'s> {
    let mut dumped = Vec::new();
    let status = dump_into(store, named, number, &mut dumped, now);
    store.listed = dumped;
    let value = (status == Status::Ok).then_some(&store.listed[..]);
    Reply { value, ..Reply::status(status) }
}

fn dump_into<J: Journal>(
    store: &mut Store<J>,
    (key, hash): (&[u8], KeyHash),
    number: u64,
    dumped: &mut Vec<u8>,
    now: Now,
) -> Status {
    let Some(found) = store.lookup(key, hash, now) else { return Status::NotFound };
    let kind = store.kind(found);
    if kind.is_root() {
        return Status::InPieces;
    }
    let value = record_field(&store.owner, found.slot.slot).value;
    Dumped::push(dumped, kind.plain(), found.mutable.expires_at_ms, number, value);
    Status::Ok
}

pub(crate) fn restore<J: Journal>(
    at: (&mut Store<J>, &Types<J>),
    (key, hash): (&[u8], KeyHash),
    dumped: Dumped<'_>,
    replaces: bool,
    now: Now,
) -> Reply<'static> {
    match give(at, (key, hash), dumped, replaces, now) {
        Ok(done) => Reply::number(done.into()),
        Err(status) => Reply::status(status),
    }
}

/// Stores a dumped value at a key. Returns whether it did: it replaces a key only if that is
/// allowed.
fn give<J: Journal>(
    (store, types): (&mut Store<J>, &Types<J>),
    (key, hash): (&[u8], KeyHash),
    dumped: Dumped<'_>,
    replaces: bool,
    now: Now,
) -> Result<bool, Status> {
    if key.len() > MAX_KEY_BYTES {
        return Err(Status::TooLarge);
    }
    let found = store.lookup(key, hash, now);
    if found.is_some() && !replaces {
        return Ok(false);
    }
    let Dumped { kind, value, expires_at_ms, .. } = dumped;
    let of = types.get(kind.of_type());
    let with_hints = of.and_then(|of| of.with_hints(store, On { key, hash, now }, value));
    let (kind, value) = with_hints.as_ref().map_or((kind, value), |(kind, value)| (*kind, value));
    let new = New { key, hash, kind, value, expires_at_ms };
    let entry = Command::Restore { key, dumped, replaces: true };
    match store.put_as(new, found, &entry, now) {
        Ok(_) => Ok(true),
        Err(ArenaFull { .. }) => Err(Status::OutOfMemory),
    }
}

/// Ends a dump, and removes its key. Does nothing if the dump is no longer under way: the key may
/// have changed since.
pub(crate) fn del_dumped<J: Journal>(
    store: &mut Store<J>,
    (key, hash): (&[u8], KeyHash),
    number: u64,
    now: Now,
) -> Reply<'static> {
    // The other shard has it.
    store.listed = Vec::new();
    // An expired key is removed, and its dump with it.
    let found = store.lookup(key, hash, now);
    let Some(found) = found.filter(|_| store.moves.end_dump(hash, number)) else {
        return Reply::number(0);
    };
    remove(store, On { key, hash, now }, found);
    Reply::number(1)
}
