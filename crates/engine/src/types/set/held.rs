//! A set that was found, packed or of parts, and the questions that both answer.

use super::members::Members;
use crate::elements::bins::{self, Buffers};
use crate::elements::{self, Held, packed_of};
use crate::store::{Found, Store};
use crate::types::object::On;
use remora_arena::{Journal, slot_of};
use remora_layout::packed_set;
use remora_layout::part::root_word;
use remora_protocol::Reply;
use remora_protocol::message::Status;
use remora_protocol::set::packs;

/// The sets of one shard.
#[derive(Default)]
pub(crate) struct Sets {
    /// Buffer for a changed set, or a reply's value.
    pub(super) scratch: Vec<u8>,
    /// Buffers for bins.
    pub(super) buffers: Buffers,
    /// How many random numbers were drawn.
    pub(super) drawn: u64,
}

impl Sets {
    /// The set of a key; none if there is no such key.
    pub(super) fn find<J: Journal>(
        store: &mut Store<J>,
        on: On<'_>,
    ) -> Result<Option<Held>, Status> {
        elements::find::<Members, J>(store, on)
    }

    /// The record that holds a member.
    fn holder<J: Journal>(store: &Store<J>, held: Held, member: &[u8]) -> Option<Found> {
        match held {
            Held::Whole(found) => packs(packed_of(store, found), member).then_some(found),
            Held::Parts(root) => bins::find::<Members, J>(store, root.slot.slot, member),
        }
    }

    /// Whether a set has a member.
    pub(super) fn has<J: Journal>(store: &Store<J>, held: Held, member: &[u8]) -> bool {
        match held {
            Held::Whole(found) => packs(packed_of(store, found), member),
            Held::Parts(root) => bins::has::<Members, J>(store, root.slot.slot, member),
        }
    }

    /// Members of a set.
    pub(super) fn length<J: Journal>(store: &Store<J>, held: Held) -> u64 {
        match held {
            Held::Whole(found) => packed_set::count(packed_of(store, found)) as u64,
            Held::Parts(root) => store.parts.of(root.slot.slot).bins().members(),
        }
    }

    /// Whether a member is there, with a pointer to the record that says so, and a lease.
    pub(super) fn contains<J: Journal>(
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        member: &[u8],
    ) -> Reply<'static> {
        let Some(held) = held else { return Reply::status(Status::NotFound) };
        let holder = Self::holder(store, held, member);
        let status = if holder.is_some() { Status::Ok } else { Status::NotFound };
        let (record, root) = match held {
            Held::Whole(found) => (Some(found), 0),
            Held::Parts(root) => {
                let at = slot_of(&store.owner, root.slot.slot);
                (holder, root_word(at.slot, at.generation) as i64)
            }
        };
        let Some(record) = record else { return Reply::status(status) };
        let lease_ms = store.extend_lease(record, on.now);
        let pointer = store.pointer(record.slot.slot);
        Reply { number: root, pointer, lease_ms, ..Reply::status(status) }
    }
}
