//! Room for a command when memory is full: the shard releases the memory of removed objects in
//! turns, and with eviction it evicts objects of parts, too.
//!
//! Invariant: a command pays for its own room, and for no more than is in proportion to it. Objects
//! of parts are evicted as wholes; they are hidden at once, as by DEL. If a command's plan finds no
//! room because evicted objects still hold memory, the shard frees that memory and executes the
//! command again: a plan that fails leaves no trace, and work that a command did before it failed
//! is not repeated.

use crate::store::{Now, Store, free_bytes};
use crate::types::object::Types;
use remora_arena::{Journal, kind_of, slot_of};
use remora_layout::limits::{
    EVICTION_SLACK_BYTES, RELEASE_ROOM_BYTES, RELEASE_TURNS, ROOM_TRIES, SPAN_BYTES,
};
use remora_protocol::Command;

/// How often room was made for a command.
pub(super) struct Tries(u32);

impl Tries {
    /// A command begins that may be executed again.
    pub fn begin<J: Journal>(store: &mut Store<J>) -> Self {
        let tries_again = store.evictor.is_on() && store.has_objects();
        store.making_room.end();
        store.making_room.tries_again = tries_again;
        Self(0)
    }

    /// Handles a command that has found no room: evicts, and releases the memory of what was
    /// evicted. Returns whether to execute the command again; if no more room can be made, that is
    /// the last time.
    pub fn make_more_room<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        types: &mut Types<J>,
        bytes: usize,
        now: Now,
    ) -> bool {
        let wanted = store.making_room.wanted_bytes.max(bytes as u64);
        if !store.making_room.tries_again {
            return false;
        }
        let each = wanted.max(bytes as u64 + SPAN_BYTES as u64) + EVICTION_SLACK_BYTES;
        let room = each << self.0;
        self.0 += 1;
        let before = free_bytes(&store.slots);
        if store.may_evict_objects(wanted) {
            store.evict_bytes(before + room, now);
        }
        // Bounded: each turn releases something.
        while store.has_graves() && free_bytes(&store.slots) < before + room {
            release_turn(store, types, now);
        }
        store.shed_thinned(now);
        cover_heap(store, types, now);
        let has_more = free_bytes(&store.slots) > before && self.0 < ROOM_TRIES;
        store.making_room.tries_again = has_more;
        true
    }
}

/// Updates the weights of the objects that a command has changed: two, if it moves something.
pub(super) fn weigh<J: Journal>(store: &mut Store<J>, types: &Types<J>) {
    for root in [store.making_room.keep, store.making_room.source].into_iter().flatten() {
        let kind = kind_of(&store.owner, root);
        if !kind.is_root() || !store.evictor.is_weighed(root) {
            continue;
        }
        if let Some(of) = types.get(kind) {
            let bytes = of.bytes_of(store, root);
            store.evictor.weigh(&store.owner, root, bytes);
        }
    }
}

/// Compares the weights of objects with the bytes that their types report.
///
/// # Errors
/// A description of the first mismatch.
pub(super) fn audit_weights<J: Journal>(store: &Store<J>, types: &Types<J>) -> Result<(), String> {
    for (root, weight) in store.evictor.weights() {
        let kind = kind_of(&store.owner, root);
        let Some(of) = types.get(kind).filter(|_| kind.is_root()) else { continue };
        let own = store.slots.bytes_of(slot_of(&store.owner, root));
        let bytes = own + of.bytes_of(store, root);
        if weight as u64 != bytes {
            return Err(format!("an object of {bytes} bytes weighs {weight}: root {root}"));
        }
    }
    Ok(())
}

/// A command that changes something pays for its room, as long as removed
/// objects hold memory: a bounded part, or as much as memory is short of.
#[cold]
pub(super) fn make_room<J: Journal>(
    store: &mut Store<J>,
    types: &mut Types<J>,
    bytes: usize,
    now: Now,
) {
    let room = 2 * bytes as u64 + RELEASE_ROOM_BYTES;
    release_graves(store, types, now);
    // Bounded: each turn releases something.
    while wants_room(store) && free_bytes(&store.slots) < room {
        release_turn(store, types, now);
    }
}

/// Whether removed objects still hold memory.
#[inline]
pub(super) fn wants_room<J: Journal>(store: &Store<J>) -> bool {
    store.has_graves() || store.flushes.are_under_way()
}

/// A turn of all that gives memory back and changes nothing.
pub(super) fn release_turn<J: Journal>(store: &mut Store<J>, types: &mut Types<J>, now: Now) {
    store.lag.show_some(&mut store.owner);
    if store.flushes.are_under_way() {
        store.flush_turn(now);
        store.flushes.end_swept();
    }
    release_graves(store, types, now);
}

fn release_graves<J: Journal>(store: &mut Store<J>, types: &mut Types<J>, now: Now) {
    for _ in 0..RELEASE_TURNS {
        let Some(grave) = store.graves.front().copied() else { return };
        let Some(of) = types.get_mut(grave.kind) else { return };
        if of.release(store, grave.root.slot, now) {
            store.graves.pop_front();
            store.end_grave(grave, now);
        }
    }
}

/// Counts the heap bytes of types, and of waiting requests, in the shard's memory. False if that is full.
pub(super) fn cover_heap<J: Journal>(store: &mut Store<J>, types: &mut Types<J>, now: Now) -> bool {
    let heap_bytes = types.heap_bytes() + store.parts.heap_bytes() + store.watched.heap_bytes;
    // A copy takes as much as the original.
    store.cover_heap(heap_bytes, now) || store.is_applying
}

/// Whether a key may lead to an object of parts after this command that did not before.
pub(super) fn may_make_object(command: &Command<'_>) -> bool {
    use Command::{Load, Of, Restore, Transfer};
    matches!(command, Of { .. } | Load { .. } | Restore { .. } | Transfer { .. })
}

/// Bytes of the key and the value that a command brings.
pub(super) fn given_bytes(command: &Command<'_>) -> usize {
    let mut scratch = Vec::new();
    let (_, key, value) = command.encode(0, &mut scratch);
    key.len() + value.len()
}
