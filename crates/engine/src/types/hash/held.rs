//! A hash that was found, packed or of parts, and the questions that both answer.

use crate::store::{Found, Store};
use crate::types::object::{On, find as find_key};
use remora_arena::Journal;
use remora_index::hash::record_value;
use remora_layout::kind::Kind;
use remora_layout::packed;
use remora_protocol::message::Status;

/// The hashes of one shard: their content lies in the arena.
#[derive(Default)]
pub(crate) struct Hashes {
    /// Buffer for a changed hash, or a reply's value.
    pub(super) scratch: Vec<u8>,
    /// How many random numbers were drawn.
    pub(super) drawn: u64,
}

/// A hash that was found.
#[derive(Clone, Copy)]
pub(super) enum Held {
    /// Whole in its record.
    Whole(Found),
    /// A root record with parts.
    Parts(Found),
}

/// The hash of a key; none if there is no such key.
pub(super) fn find<J: Journal>(store: &mut Store<J>, on: On<'_>) -> Result<Option<Held>, Status> {
    Ok(find_key(store, on, Kind::HASH)?.map(|found| match store.kind(found).is_root() {
        true => Held::Parts(found),
        false => Held::Whole(found),
    }))
}

/// The fields of a hash that lies whole in its record.
pub(super) fn packed_of<J: Journal>(store: &Store<J>, found: Found) -> &[u8] {
    record_value(&store.owner, found.slot.slot)
}

/// The value of a field.
pub(super) fn value_of<'s, J: Journal>(
    store: &'s Store<J>,
    held: Held,
    name: &[u8],
) -> Option<&'s [u8]> {
    match held {
        Held::Whole(found) => packed::find(packed_of(store, found), name),
        Held::Parts(root) => {
            let part = store.parts.of(root.slot.slot).find(&store.owner, name)?;
            Some(record_value(&store.owner, part.slot.slot))
        }
    }
}

/// Fields of a hash.
pub(super) fn length<J: Journal>(store: &Store<J>, held: Held) -> u64 {
    match held {
        Held::Whole(found) => packed::pairs(packed_of(store, found)).count() as u64,
        Held::Parts(root) => store.parts.of(root.slot.slot).count(),
    }
}
