//! How the elements of an object lie in its records.

use crate::store::{Found, Store};
use remora_arena::Journal;
use remora_index::hash::record_field;
use remora_layout::kind::Kind;
use remora_layout::packed::Field;
use remora_protocol::Items;
use remora_protocol::elements::Told;

/// How the records of a type hold its elements: names with values, which may be empty, and may be links.
pub(crate) trait Elements {
    /// The kind of the type's root records.
    const KIND: Kind;
    /// The kind of its parts.
    const PART: Kind;
    /// Where the table of parts begins in the root record's state: a byte at which a slot could begin.
    const PARTS_AT: usize = 0;
    /// Elements in a chain of buckets that lots are drawn among, at least: so many that longer
    /// chains are rare.
    const LOT_PLACES: u64;

    /// Hands over the elements of an object that lies whole in its record, whose value is this.
    fn of_whole(value: &[u8], each: impl FnMut(&[u8], Field<'_>));

    /// Hands over the elements of a part of this name and value.
    fn of_part(name: &[u8], value: Field<'_>, each: impl FnMut(&[u8], Field<'_>));

    /// The number of a part of this name, if its name is one. The numbers of an object are dense.
    fn number_of(_name: &[u8]) -> Option<u32> {
        None
    }

    /// How many they are.
    fn in_part(name: &[u8], value: &[u8]) -> u64;

    /// Appends what a reply has of an element, in the form of the type's lists.
    fn tell(told: Told, name: &[u8], value: Field<'_>, list: &mut Vec<u8>) {
        push(told, name, value, list);
    }

    /// Items in the list for each element.
    fn items_each(told: Told) -> u64 {
        if matches!(told, Told::Both) { 2 } else { 1 }
    }
}

/// Appends what a reply has of an element, as [`Items`].
pub(crate) fn push(told: Told, name: &[u8], value: Field<'_>, list: &mut Vec<u8>) {
    match told {
        Told::Names => Items::push(list, name),
        Told::Values => Items::push_field(list, value),
        Told::Both => {
            Items::push(list, name);
            Items::push_field(list, value);
        }
    }
}

/// An object that was found.
#[derive(Clone, Copy)]
pub(crate) enum Held {
    /// Whole in its record.
    Whole(Found),
    /// A root record with parts.
    Parts(Found),
}

/// The value of the record of an object that lies whole in it, without hints.
pub(crate) fn packed_of<J: Journal>(store: &Store<J>, found: Found) -> &[u8] {
    record_field(&store.owner, found.slot.slot).value
}
