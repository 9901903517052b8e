//! Edits of long values, in the record's slot or in a larger one. `store/ask_only.rs` says which
//! records are ask-only, and what readers may conclude.
//!
//! Invariant: only slots with pages of their own are changed in place, and none that a download has
//! pinned. A record that outgrows its slot moves to another one, with slack if it grew, so that n
//! bytes appended in small parts cost O(n) copied bytes.

use crate::store::{Found, Now, Prepared, Readable, Room, Store};
use crate::string_edit::Edit;
use remora_arena::{
    ArenaFull, Journal, Slot, begin_pending, lengths_of, set_value_bytes, slot_of, state_in,
    withhold,
};
use remora_index::hash::record_value;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{ASK_ONLY_SLACK_SHARE, MAX_VALUE_BYTES, SLOT_UNIT_BYTES};
use remora_layout::record::{RECORD_HEADER_BYTES, State};
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply};

/// One edit of one key.
pub(crate) struct Change<'a> {
    pub key: &'a [u8],
    pub hash: KeyHash,
    pub found: Option<Found>,
    pub edit: Edit,
    pub written: &'a [u8],
    /// The log's entry.
    pub entry: Command<'a>,
    /// The reply's number if it is done.
    pub number: i64,
}

/// Carries out an edit whose result is long, without rewriting unchanged bytes. The reply has no
/// pointer: readers ask.
pub(crate) fn change_in_place<J: Journal>(
    store: &mut Store<J>,
    change: &Change<'_>,
    now: Now,
) -> Reply<'static> {
    let bytes = RECORD_HEADER_BYTES + change.key.len() + change.edit.new_bytes;
    let fits = |found: &Found| {
        let slot = slot_of(&store.owner, found.slot.slot);
        store.slots.room(slot) >= bytes && !store.pins.holds(slot.slot)
    };
    let done = match change.found.filter(fits) {
        Some(found) => {
            edit_slot(store, change, found.slot.slot, now);
            Ok(())
        }
        None => {
            store.making_room.keep = change.found.map(|found| found.slot.slot);
            let put = edit_elsewhere(store, change, bytes, now);
            store.settle(&put, now);
            put.map(|_| ())
        }
    };
    match done {
        Ok(()) => Reply::number(change.number),
        Err(ArenaFull { .. }) => Reply::status(Status::OutOfMemory),
    }
}

/// In the record's own slot.
fn edit_slot<J: Journal>(store: &mut Store<J>, change: &Change<'_>, slot: u32, now: Now) {
    store.commit(change.hash.database(), &change.entry, |store| {
        if state_in(&store.owner, slot) != State::AskOnly {
            let slot = slot_of(&store.owner, slot);
            withhold(&mut store.owner, slot, State::AskOnly);
        }
        store.ask_only.touch(slot, change.hash, now);
        set_value_bytes(&mut store.owner, slot, change.edit.new_bytes);
        let value_at = value_offset(slot, change.key);
        write_edit(store, change, value_at);
    });
}

/// In a new slot, which the key names from then on.
fn edit_elsewhere<J: Journal>(
    store: &mut Store<J>,
    change: &Change<'_>,
    bytes: usize,
    now: Now,
) -> Result<Option<Found>, ArenaFull> {
    let &Change { key, hash, mut found, edit, ref entry, .. } = change;
    let moved = store.stats.moved;
    let old_bytes = found.map(|found| record_value(&store.owner, found.slot.slot).len());
    let grows = old_bytes.is_some_and(|old| edit.new_bytes > old);
    let slot = allocate_to_grow(store, bytes, edit.new_bytes, grows, now)?;
    if store.stats.moved != moved && found.is_some() {
        found = store.found(key, hash);
    }
    let expires_at_ms = found.map_or(0, |found| found.mutable.expires_at_ms);
    let named = (hash.database(), key);
    let value_at = begin_pending(&mut store.owner, slot, named, edit.new_bytes, expires_at_ms);
    if let Some(found) = found {
        let body = |slot: u32| slot as usize * SLOT_UNIT_BYTES + RECORD_HEADER_BYTES;
        let old = lengths_of(&store.owner, found.slot.slot).record_bytes() - RECORD_HEADER_BYTES;
        store.owner.copy_within(body(found.slot.slot), body(slot.slot), old);
    }
    write_edit(store, change, value_at);
    let new = Prepared { hash, slot, expires_at_ms };
    store.enter(key, &new, found, (entry.into(), Readable::AskOnly), now)
}

/// A slot for a record of this many bytes; with slack if the record grows and enough memory is free
/// without making room.
fn allocate_to_grow<J: Journal>(
    store: &mut Store<J>,
    bytes: usize,
    value_bytes: usize,
    grows: bool,
    now: Now,
) -> Result<Slot, ArenaFull> {
    if grows {
        let slack = (value_bytes / ASK_ONLY_SLACK_SHARE).min(MAX_VALUE_BYTES - value_bytes);
        if let Ok(slot) = store.take_slot(Room::Record { bytes: bytes + slack }, now) {
            return Ok(slot);
        }
    }
    store.allocate(Room::Record { bytes }, now)
}

/// Stores the bytes of a value that an edit changes.
fn write_edit<J: Journal>(store: &mut Store<J>, change: &Change<'_>, value_at: usize) {
    let edit = change.edit;
    let zeros_at = value_at + edit.write_at - edit.zero_bytes;
    store.owner.store_zeros(zeros_at, edit.zero_bytes);
    store.owner.store_within(value_at + edit.write_at, change.written);
}

/// Byte offset of a value in the region.
fn value_offset(slot: u32, key: &[u8]) -> usize {
    slot as usize * SLOT_UNIT_BYTES + RECORD_HEADER_BYTES + key.len()
}
