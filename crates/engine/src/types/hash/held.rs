//! A hash that was found, packed or of parts, and the questions that both answer.

use crate::elements::{self, Elements, packed_of};
use crate::store::Store;
use crate::types::object::On;
use remora_arena::Journal;
use remora_index::hash::record_field;
use remora_layout::kind::Kind;
use remora_layout::packed::{self, Field};
use remora_protocol::message::Status;

pub(super) use crate::elements::Held;

/// The hashes of one shard: their content lies in the arena.
#[derive(Default)]
pub(crate) struct Hashes {
    /// Buffer for a changed hash, or a reply's value.
    pub(super) scratch: Vec<u8>,
    /// Buffer for values with links.
    pub(super) linked: Vec<u8>,
    /// How many random numbers were drawn.
    pub(super) drawn: u64,
}

/// The fields of hashes: each part is one.
pub(super) struct Fields;

impl Elements for Fields {
    const KIND: Kind = Kind::HASH;
    const PART: Kind = Kind::HASH_FIELD;
    /// Those of three buckets.
    const LOT_PLACES: u64 = 21;

    fn of_whole(value: &[u8], mut each: impl FnMut(&[u8], Field<'_>)) {
        packed::fields(value).for_each(|(name, value)| each(name, value));
    }

    fn of_part(name: &[u8], value: Field<'_>, mut each: impl FnMut(&[u8], Field<'_>)) {
        each(name, value);
    }

    fn in_part(_name: &[u8], _value: &[u8]) -> u64 {
        1
    }
}

/// The hash of a key; none if there is no such key.
pub(super) fn find<J: Journal>(store: &mut Store<J>, on: On<'_>) -> Result<Option<Held>, Status> {
    elements::find::<Fields, J>(store, on)
}

/// A field.
pub(super) fn field_of<'s, J: Journal>(
    store: &'s Store<J>,
    held: Held,
    name: &[u8],
) -> Option<Field<'s>> {
    match held {
        Held::Whole(found) => {
            let mut all = packed::fields(packed_of(store, found));
            all.find(|(other, _)| *other == name).map(|(_, field)| field)
        }
        Held::Parts(root) => {
            let part = store.parts.of(root.slot.slot).find(&store.owner, name)?;
            Some(record_field(&store.owner, part.slot.slot))
        }
    }
}

/// The value of a field.
pub(super) fn value_of<'s, J: Journal>(
    store: &'s Store<J>,
    held: Held,
    name: &[u8],
) -> Option<&'s [u8]> {
    field_of(store, held, name).map(|field| field.value)
}

/// Fields of a hash.
pub(super) fn length<J: Journal>(store: &Store<J>, held: Held) -> u64 {
    match held {
        Held::Whole(found) => packed::pairs(packed_of(store, found)).count() as u64,
        Held::Parts(root) => store.parts.of(root.slot.slot).count(),
    }
}
