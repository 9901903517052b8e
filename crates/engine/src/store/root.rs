//! Root records: what the key of an object leads to, whatever its type.
//!
//! What it keeps true: a root record keeps its slot and its generation while
//! the object lives, and is dead, its state block's guardian first, before any
//! of the object's memory can hold something else.

use super::commit::Entry;
use super::{Found, Now, Prepared, Readable, Room, Store};
use remora_arena::{
    ArenaFull, Journal, Slot, flip_dead, kind_of, lengths_of, set_state_guardian, write_root,
};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::SLOT_UNIT_BYTES;
use remora_layout::node::NodeRef;
use remora_layout::record::{State, Wanted, state_offset};
use remora_protocol::Command;

impl<J: Journal> Store<J> {
    /// Takes a root record of a type for a key: pending, with a state block of
    /// zeros. Nothing leads to it yet.
    pub(crate) fn new_root(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        kind: Kind,
        state_bytes: usize,
        expires_at_ms: u64,
        now: Now,
    ) -> Result<Slot, ArenaFull> {
        let bytes = state_offset(key.len()) + state_bytes;
        let slot = self.allocate(Room::Record { bytes }, now);
        self.shed_thinned(now);
        let slot = slot?;
        let (secret, region) = (self.options.record_secret, self.options.region);
        let what = Wanted { kind, database: hash.database() };
        write_root(&mut self.owner, secret, region, slot, (what, key), state_bytes, expires_at_ms);
        Ok(slot)
    }

    /// Where readers find the state block of a root record.
    pub(crate) fn state_of(&self, root: Slot) -> NodeRef {
        let key_bytes = lengths_of(&self.owner, root.slot).key_bytes as usize;
        let units = (state_offset(key_bytes) / SLOT_UNIT_BYTES) as u32;
        NodeRef { slot: root.slot + units, generation: root.generation }
    }

    /// Lets a key lead to an object that is made, in the place of what was found.
    /// One change: it is logged, and its root record is live, or it fails for
    /// want of memory, and the root record is given back.
    pub(crate) fn enter_root(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        (root, expires_at_ms): (Slot, u64),
        found: Option<Found>,
        entry: Entry<'_>,
        now: Now,
    ) -> Result<(), ArenaFull> {
        self.making_room.keep = found.map(|found| found.slot.slot);
        let new = Prepared { hash, slot: root, expires_at_ms };
        let put = self.enter(key, &new, found, (entry, Readable::Yes), now);
        self.settle(&put, now);
        put.map(drop)
    }

    /// Lets a key lead to an object that is filled, in the place of what was found. An
    /// error leaves all as it was.
    pub(crate) fn enter_loaded(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        (root, expires_at_ms): (Slot, u64),
        mut found: Option<Found>,
        entry: &Command<'_>,
        now: Now,
    ) -> Result<(), ArenaFull> {
        self.making_room.keep = found.map(|found| found.slot.slot);
        let overflow = self.room_in_chain((key, hash), &mut found, now);
        if let Ok(overflow) = overflow {
            let new = Prepared { hash, slot: root, expires_at_ms };
            self.enter_with(&new, found, overflow, (entry.into(), Readable::Yes), now);
        }
        let entered = overflow.map(|_| found);
        self.settle(&entered, now);
        entered.map(drop)
    }

    /// Whether a root record is still that of its object, seen by readers or not.
    pub(crate) fn is_live(&self, root: Slot) -> bool {
        remora_arena::slot_of(&self.owner, root.slot).generation == root.generation
            && remora_arena::state_in(&self.owner, root.slot) != State::Dead
    }

    /// Flips the guardian of a record to dead, and that of its state block first
    /// if it is an object's.
    pub(crate) fn flip_dead(&mut self, slot: u32) -> Slot {
        if kind_of(&self.owner, slot).is_root() {
            let root = remora_arena::slot_of(&self.owner, slot);
            set_state_guardian(&mut self.owner, root, State::Dead);
        }
        flip_dead(&mut self.owner, slot)
    }
}
