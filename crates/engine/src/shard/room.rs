//! Room for a command where memory is full: what removed objects have held comes back
//! in turns, and where keys may go, objects of parts go, too.
//!
//! What it keeps true: a command pays for its own room, and for no more than is in
//! proportion to it. Objects of parts are evicted as wholes; they are hidden at once, as
//! by DEL. A command whose plan finds no room, because what was evicted for it still
//! holds memory, is executed again, once that is free: a plan that fails leaves no
//! trace, and what a command has done before it failed it does not do twice.

use super::{Shard, given_bytes};
use crate::store::Now;
use remora_arena::{Journal, kind_of};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    EVICTION_SLACK_BYTES, RELEASE_ROOM_BYTES, RELEASE_TURNS, ROOM_TRIES, SPAN_BYTES,
};
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply};

impl<J: Journal> Shard<J> {
    /// Executes a change where keys may go.
    #[cold]
    pub(super) fn execute_evicting(
        &mut self,
        command: &Command<'_>,
        hash: KeyHash,
        now: Now,
    ) -> Reply<'_> {
        let (mut tries, mut counted) = (self.begin_making_room(), 0);
        let region = self.store.owner.addresses();
        loop {
            let mut written = Vec::new();
            let Reply { status, number, value, pointer, lease_ms, wait } =
                self.execute_once(command, hash, now);
            // It lies in the arena, where it can be long, or is short.
            let value = value.map(|value| {
                let at = value.as_ptr().addr();
                if !region.contains(&at) {
                    written.extend_from_slice(value);
                    return None;
                }
                Some((at - region.start, value.len()))
            });
            let number = number + counted;
            self.weigh();
            if status == Status::OutOfMemory
                && self.make_more_room(&mut tries, given_bytes(command), now)
            {
                counted = number;
                continue;
            }
            self.end_making_room();
            self.written_value = written;
            let value = value.map(|place| match place {
                Some((at, bytes)) => self.store.owner.slice(at, bytes),
                None => &self.written_value[..],
            });
            return Reply { status, number, value, pointer, lease_ms, wait };
        }
    }

    /// A command begins that may be executed again.
    pub(super) fn begin_making_room(&mut self) -> Tries {
        let tries_again = self.store.policy.is_some() && self.store.has_objects();
        self.end_making_room();
        self.store.making_room.tries_again = tries_again;
        Tries(0)
    }

    /// It has been executed.
    pub(super) fn end_making_room(&mut self) {
        let room = &mut self.store.making_room;
        (room.keep, room.wanted_bytes, room.tries_again, room.done) = (None, 0, false, 0);
    }

    /// A command has found no room: evicts, and takes back what was evicted. Whether the
    /// command is to be executed again, for the last time if there is no more to be had.
    pub(super) fn make_more_room(&mut self, tries: &mut Tries, bytes: usize, now: Now) -> bool {
        let wanted = self.store.making_room.wanted_bytes.max(bytes as u64);
        if !self.store.making_room.tries_again {
            return false;
        }
        let each = wanted.max(bytes as u64 + SPAN_BYTES as u64) + EVICTION_SLACK_BYTES;
        let room = each << tries.0;
        tries.0 += 1;
        let before = self.store.free_bytes();
        if self.store.may_evict_objects(wanted) {
            self.store.evict_bytes(before + room, now);
        }
        // Bounded: each turn releases something.
        while self.store.has_graves() && self.store.free_bytes() < before + room {
            self.release_turn(now);
        }
        self.store.shed_thinned(now);
        self.cover_heap(now);
        let has_more = self.store.free_bytes() > before && tries.0 < ROOM_TRIES;
        self.store.making_room.tries_again = has_more;
        true
    }

    /// The object that a command has changed weighs what it takes now.
    fn weigh(&mut self) {
        let Some(root) = self.store.making_room.keep else { return };
        let kind = kind_of(&self.store.owner, root);
        if !kind.is_root() || !self.store.is_weighed(root) {
            return;
        }
        if let Some(of) = self.types.iter().find(|of| of.id() == kind) {
            let bytes = of.bytes_of(&self.store, root);
            self.store.weigh(root, bytes);
        }
    }

    /// A command that changes something pays for its room, as long as removed
    /// objects hold memory: a bounded part, or as much as memory is short of.
    #[cold]
    pub(super) fn make_room(&mut self, bytes: usize, now: Now) {
        let room = 2 * bytes as u64 + RELEASE_ROOM_BYTES;
        self.release_graves(now);
        // Bounded: each turn releases something.
        while self.wants_room() && self.store.free_bytes() < room {
            self.release_turn(now);
        }
    }

    /// Whether memory is still to come back from what was removed.
    #[inline]
    pub(super) fn wants_room(&self) -> bool {
        self.store.has_graves() || self.store.is_flushing()
    }

    /// A turn of all that gives memory back and changes nothing.
    pub(super) fn release_turn(&mut self, now: Now) {
        self.store.show_some();
        if self.store.is_flushing() {
            self.store.flush_turn(now);
            self.store.end_flushes();
        }
        self.release_graves(now);
    }

    pub(super) fn release_graves(&mut self, now: Now) {
        for _ in 0..RELEASE_TURNS {
            let Some(grave) = self.store.graves.front().copied() else { return };
            let Some((of, store)) = self.of(grave.kind) else { return };
            if of.release(store, grave.root.slot, now) {
                self.store.graves.pop_front();
                self.store.end_grave(grave, now);
            }
        }
    }
}

/// Whether a key may lead to an object of parts after this command that did not before.
pub(super) fn may_make_object(command: &Command<'_>) -> bool {
    use Command::{Load, Of, Restore, Transfer};
    matches!(command, Of { .. } | Load { .. } | Restore { .. } | Transfer { .. })
}

/// How often room was made for a command.
pub(super) struct Tries(u32);
