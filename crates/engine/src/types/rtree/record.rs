//! The content of an object's record. Objects with a payload beside their rectangles have one; its
//! key is the object's word.

use crate::store::{Now, Store};
use remora_arena::{Journal, lengths_of, mutable_of, slot_of};
use remora_index::hash::{record_key, record_value};
use remora_layout::object::Payload;
use remora_layout::pointer::RemotePointer;

/// The content of the record in this slot.
pub(super) fn carried_in<J: Journal>(store: &Store<J>, slot: u32) -> Payload<'_> {
    Payload::parse(record_value(&store.owner, slot)).unwrap_or_default()
}

/// The place of an object's record for a reader.
pub(super) fn record_pointer<J: Journal>(store: &Store<J>, slot: u32) -> RemotePointer {
    RemotePointer {
        region: store.options.region,
        slot,
        length: lengths_of(&store.owner, slot).record_bytes() as u32,
        generation: slot_of(&store.owner, slot).generation,
    }
}

/// The word of the object whose record lies in a slot.
pub(super) fn word_in<J: Journal>(store: &Store<J>, slot: u32) -> u64 {
    let key = record_key(&store.owner, slot).first_chunk().expect("a word has eight bytes");
    u64::from_le_bytes(*key)
}

/// The expiry of the object whose record lies in this slot; 0 for never.
pub(super) fn expires_at_ms<J: Journal>(store: &Store<J>, slot: u32) -> u64 {
    mutable_of(&store.owner, slot).expires_at_ms
}

/// Whether the object whose record lies in this slot has expired.
pub(super) fn has_expired<J: Journal>(store: &Store<J>, slot: u32, now: Now) -> bool {
    let at_ms = expires_at_ms(store, slot);
    at_ms != 0 && at_ms <= now.unix_ms
}

/// Bytes of the slot of a record.
pub(super) fn bytes_of<J: Journal>(store: &Store<J>, slot: u32) -> u64 {
    store.slots.bytes_of(slot_of(&store.owner, slot))
}
