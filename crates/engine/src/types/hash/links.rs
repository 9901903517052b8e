//! Fields that are links: their hints, and removing them alone.

use super::held::{Hashes, Held, field_of};
use crate::elements::packed_of;
use crate::store::{Found, Store};
use crate::types::object::On;
use remora_arena::{Journal, kind_of, set_hint};
use remora_index::hash::record_value;
use remora_layout::kind::Kind;
use remora_layout::link::{self, Linked, MAX_LINKS};
use remora_layout::packed::{self, Field};
use remora_layout::record::RECORD_HEADER_BYTES;
use remora_protocol::message::Status;
use remora_protocol::{Items, Reply};

/// Which of the links in its record a field of a hash that lies whole in it is.
fn number_in(packed: &[u8], name: &[u8]) -> Option<usize> {
    packed::fields(packed).filter(|(_, field)| field.is_link).position(|(other, _)| other == name)
}

/// A record's kind and value for packed fields of which some are links.
pub(super) fn with_hints<J: Journal>(
    store: &Store<J>,
    on: On<'_>,
    packed: &[u8],
) -> Option<(Kind, Vec<u8>)> {
    let links = packed::fields(packed).filter(|(_, field)| field.is_link);
    let hint = |(_, field): (&[u8], Field<'_>)| store.hint_of(on.hash.database(), field.value);
    let hints: Vec<u64> = links.map(hint).take(MAX_LINKS + 1).collect();
    // No command writes more links than that; a record that came with more has no hints.
    let mut value = Vec::new();
    (1..=MAX_LINKS).contains(&hints.len()).then(|| {
        link::make(&mut value, RECORD_HEADER_BYTES + on.key.len(), packed, &hints);
        (Kind::HASH.whole().linked(), value)
    })
}

/// The hint of a link in the record of a hash that lies whole in it; 0 without one to this key.
pub(super) fn hint_in<J: Journal>(
    store: &Store<J>,
    found: Found,
    name: &[u8],
    target: &[u8],
) -> u64 {
    if !kind_of(&store.owner, found.slot.slot).has_links() {
        return 0;
    }
    let packed = packed_of(store, found);
    let is_it = packed::find(packed, name) == Some(target);
    let number = number_in(packed, name).filter(|_| is_it);
    let linked = Linked::of(record_value(&store.owner, found.slot.slot));
    number.zip(linked).map_or(0, |(number, linked)| linked.hint(number))
}

/// Mends the hint of a link.
pub(super) fn mend<J: Journal>(
    store: &mut Store<J>,
    (on, held): (On<'_>, Option<Held>),
    name: &[u8],
) -> Reply<'static> {
    let Some(held) = held.filter(|_| store.may_mend(on.now)) else { return Reply::number(0) };
    let Some(field) = field_of(store, held, name).filter(|field| field.is_link) else {
        return Reply::number(0);
    };
    let target = field.value.to_vec();
    let (slot, number) = match held {
        Held::Whole(found) => {
            let number = number_in(packed_of(store, found), name);
            (found.slot.slot, number.expect("the field is a link"))
        }
        Held::Parts(root) => {
            let part = store.parts.of(root.slot.slot).find(&store.owner, name);
            (part.expect("the field is there").slot.slot, 0)
        }
    };
    if !kind_of(&store.owner, slot).has_links() {
        // Restored with more links than one value has room for.
        return Reply::number(0);
    }
    let hint = Linked::of(record_value(&store.owner, slot)).map_or(0, |of| of.hint(number));
    let Some(new) = store.mended(on.hash.database(), &target, hint) else {
        return Reply::number(0);
    };
    set_hint(&mut store.owner, slot, number, new);
    Reply::number(1)
}

impl Hashes {
    /// Removes those fields that are links.
    pub(super) fn remove_links<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        names: Items<'_>,
    ) -> Reply<'static> {
        let Some(held) = held else { return Reply::number(0) };
        let is_link = |name: &&[u8]| field_of(store, held, name).is_some_and(|of| of.is_link);
        let mut links = Vec::new();
        names.iter().flatten().filter(is_link).for_each(|name| Items::push(&mut links, name));
        match Items::parse(&links).filter(|_| !links.is_empty()) {
            Some(links) => self.remove(store, (on, Some(held)), links),
            None => Reply::status(Status::Ok),
        }
    }
}
