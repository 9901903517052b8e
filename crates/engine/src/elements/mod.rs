//! Objects that have named elements: the fields of a hash, the members of a set. A small object
//! lies whole in its record; a larger one has a root record and parts that hold its elements
//! (`crate::store`, `parts`). What such types have in common is here.
//!
//! Invariant: an object has elements. One that has become large stays large until it is removed, as
//! in Redis.

pub(crate) mod bins;
pub(crate) mod combine;
mod draw;
mod dump;
mod kept;
mod reading;
#[cfg(test)]
mod tests;

pub(crate) use draw::{Random, draw_different};
pub(crate) use dump::dump_parts;
pub(crate) use kept::{Elements, Held, packed_of};
pub(crate) use reading::{Reading, ScanOptions, with_drawn};

use crate::store::{Found, New, Now, NumberOf, Store};
use crate::types::content::Content;
use crate::types::object::{LongRead, On, Turn, find as find_key, resume};
use remora_arena::{ArenaFull, Journal, Slot, kind_of};
use remora_index::hash::{record_field, record_key};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::PARTS_TURN_BYTES;
use remora_layout::packed::Field;
use remora_protocol::Command;
use remora_protocol::message::Status;

/// Buckets of a table of parts that one step of a digest adds up.
const DIGEST_BUCKETS: u64 = 64;

/// The object of a key; none if there is no such key.
///
/// # Errors
/// The key is of another type.
pub(crate) fn find<E: Elements, J: Journal>(
    store: &mut Store<J>,
    on: On<'_>,
) -> Result<Option<Held>, Status> {
    Ok(find_key(store, on, E::KIND)?.map(|found| match store.kind(found).is_root() {
        true => Held::Parts(found),
        false => Held::Whole(found),
    }))
}

/// Whether a snapshot is filling the object: it may be empty meanwhile.
pub(crate) fn is_filling<J: Journal>(store: &Store<J>, held: Held) -> bool {
    matches!(held, Held::Parts(found) if store.moves.is_filling(found.slot.slot))
}

/// Lets a key hold an object that lies whole in a new record.
pub(crate) fn put_whole<E: Elements, J: Journal>(
    store: &mut Store<J>,
    (on, found): (On<'_>, Option<Found>),
    (packed, expires_at_ms): (&[u8], u64),
    entry: &Command<'_>,
) -> Result<(), ArenaFull> {
    put_as_whole(store, (on, found), (E::KIND.whole(), packed, expires_at_ms), entry)
}

/// The same, as a record of this kind.
pub(crate) fn put_as_whole<J: Journal>(
    store: &mut Store<J>,
    (on, found): (On<'_>, Option<Found>),
    (kind, packed, expires_at_ms): (Kind, &[u8], u64),
    entry: &Command<'_>,
) -> Result<(), ArenaFull> {
    let new = New { key: on.key, hash: on.hash, kind, value: packed, expires_at_ms };
    store.put_as(new, found, entry, on.now).map(drop)
}

/// Lets a key hold an object of parts, which `fill` makes for this root record.
pub(crate) fn make_parts<E: Elements, J: Journal>(
    store: &mut Store<J>,
    (on, expires_at_ms): (On<'_>, u64),
    fill: impl FnOnce(&mut Store<J>, u32) -> Result<(), ArenaFull>,
    entry: &Command<'_>,
) -> Result<(), ArenaFull> {
    let named = (on.key, on.hash);
    let root = new_parts::<E, J>(store, named, expires_at_ms, on.now)?;
    if let Err(full) = fill(store, root.slot) {
        store.forget_parts(root.slot, on.now);
        store.give_back(root, on.now);
        return Err(full);
    }
    store.enter_parts(named, (root, expires_at_ms), entry, on.now)
}

/// A root record without parts for a key, to which nothing leads.
pub(crate) fn new_parts<E: Elements, J: Journal>(
    store: &mut Store<J>,
    named: (&[u8], KeyHash),
    expires_at_ms: u64,
    now: Now,
) -> Result<Slot, ArenaFull> {
    let number_of: NumberOf = E::number_of;
    store.new_parts(named, (E::KIND, E::PART, number_of, E::PARTS_AT), expires_at_ms, now)
}

/// Hands over all elements of an object of parts, in one turn.
pub(crate) fn each<E: Elements, J: Journal>(
    store: &Store<J>,
    root: u32,
    mut each: impl FnMut(&[u8], Field<'_>),
) {
    let parts = store.parts.of(root);
    for slot in (0..parts.buckets()).flat_map(|bucket| parts.in_bucket(&store.owner, bucket)) {
        let (name, value) = (record_key(&store.owner, slot), record_field(&store.owner, slot));
        E::of_part(name, value, &mut each);
    }
}

/// Adds some more of an object's elements to the sum of its content ([`crate::types::object::Type::digest`]).
pub(crate) fn digest<E: Elements, J: Journal>(
    store: &Store<J>,
    slot: u32,
    content: &mut Content,
) -> bool {
    digest_by::<E, J>(store, slot, content, add)
}

/// The same, where `add` adds an element.
pub(crate) fn digest_by<E: Elements, J: Journal>(
    store: &Store<J>,
    slot: u32,
    content: &mut Content,
    add: fn(&mut Content, &[u8], Field<'_>),
) -> bool {
    if kind_of(&store.owner, slot) != E::KIND {
        let packed = record_field(&store.owner, slot).value;
        E::of_whole(packed, |name, field| add(content, name, field));
        return true;
    }
    let parts = store.parts.of(slot);
    let from = *resume::<u64>(&mut content.at);
    let to = parts.buckets().min(from + DIGEST_BUCKETS);
    for slot in (from..to).flat_map(|bucket| parts.in_bucket(&store.owner, bucket)) {
        let (name, value) = (record_key(&store.owner, slot), record_field(&store.owner, slot));
        E::of_part(name, value, |name, field| add(content, name, field));
    }
    content.at = Some(Box::new(to));
    to == parts.buckets()
}

/// Adds an element to the sum of a content: a link is not the same as its key's text.
fn add(content: &mut Content, name: &[u8], Field { value, is_link }: Field<'_>) {
    match is_link {
        true => content.add(&[name, value, b"link"]),
        false => content.add(&[name, value]),
    }
}

/// Continues a [`Reading`] for one turn ([`crate::types::object::Type::read_turn`]).
pub(crate) fn read_turn<E: Elements, J: Journal>(
    store: &Store<J>,
    read: &mut LongRead,
    found: &mut Vec<u8>,
) -> Result<Turn, Status> {
    let reading: &mut Reading = read.state.downcast_mut().expect("it began here");
    let ended = reading.turn::<E, J>(store, found, found.len() + PARTS_TURN_BYTES)?;
    let (number, is_counted) = (reading.items(), reading.is_counted());
    Ok(Turn { ended, number, is_counted, gives_value: true, has_doubles: false })
}
