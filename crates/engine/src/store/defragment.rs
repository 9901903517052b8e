//! Room for a record when memory is free, but in pieces: records are moved
//! until pages come free (decision 0011).
//!
//! What it keeps true: a record is moved as it would be overwritten by itself:
//! the copy is complete before the old guardian is dead, and that is dead
//! before the copy is reachable. Readers of the old one ask. A move changes no
//! key, so that it is not logged. What a call may cost is bounded (limits
//! `DEFRAGMENT_*`), and a call that failed is not repeated before about as
//! much was freed as it had wanted.

use super::{Found, Now, Store};
use remora_arena::{
    ArenaFull, BUCKET_CLASS, Journal, Leave, Slot, Window, class_bytes, copy_pending, flip_dead,
    is_live, lengths_of, mutable_of, slot_of,
};
use remora_index::hash::record_key;
use remora_layout::bucket::BucketSlot;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    DEFRAGMENT_MOVED_WINDOWS, DEFRAGMENT_SCANS, DEFRAGMENT_WINDOWS, SPAN_BYTES,
};
use remora_layout::plant::{Plant, planted};

/// What room is wanted for.
#[derive(Clone, Copy)]
pub(crate) enum Room {
    /// A record of so many bytes, header included.
    Record { bytes: usize },
    /// An overflow bucket.
    Bucket,
}

impl Room {
    fn bytes(self) -> usize {
        match self {
            Room::Record { bytes } => bytes,
            Room::Bucket => class_bytes(BUCKET_CLASS),
        }
    }
}

/// Where defragmenting stands.
#[derive(Default)]
pub(crate) struct Progress {
    /// Where the next search for a window goes on.
    cursor: u32,
    /// After a failure: bytes that must have been freed before the next try.
    not_before_freed_bytes: u64,
}

impl<J: Journal> Store<J> {
    /// A slot; if need be, records are moved so that there is one.
    #[inline]
    pub(crate) fn allocate(&mut self, room: Room, now: Now) -> Result<Slot, ArenaFull> {
        match self.take_slot(room, now) {
            Err(_) if self.policy.is_some() => {
                let made = self.make_room(room.bytes(), now, |store| store.take_slot(room, now));
                made.map_or_else(|| self.take_larger(room), Ok)
            }
            Err(_) if self.may_defragment(room.bytes()) => self.allocate_by_moving(room, now),
            taken => taken,
        }
    }

    pub(crate) fn take_slot(&mut self, room: Room, now: Now) -> Result<Slot, ArenaFull> {
        let now_s = now.since_start_s;
        match room {
            Room::Record { bytes } => self.slots.allocate(&mut self.owner, bytes, now_s),
            Room::Bucket => self.slots.allocate_bucket(&mut self.owner, now_s),
        }
    }

    /// Whether enough is free, if only it lay together, and anything has
    /// changed since it was tried in vain.
    fn may_defragment(&self, bytes: usize) -> bool {
        self.free_bytes() >= bytes as u64
            && self.slots.freed_bytes() >= self.defragment.not_before_freed_bytes
    }

    /// Bytes that are free, in whatever pieces.
    pub(crate) fn free_bytes(&self) -> u64 {
        let stats = self.slots.stats();
        stats.free_bytes + stats.uncarved_bytes
    }

    #[cold]
    fn allocate_by_moving(&mut self, room: Room, now: Now) -> Result<Slot, ArenaFull> {
        let moved = self.empty_windows(room.bytes(), now, |store| store.take_slot(room, now));
        let slot = moved.map_or_else(|| self.take_larger(room), Ok);
        if slot.is_err() {
            let wanted = room.bytes().max(SPAN_BYTES) as u64;
            self.defragment.not_before_freed_bytes = self.slots.freed_bytes() + wanted;
        }
        slot
    }

    /// The last resort: room that is larger than it needs to be.
    fn take_larger(&mut self, room: Room) -> Result<Slot, ArenaFull> {
        let bytes = room.bytes();
        let at_most = if matches!(room, Room::Bucket) { 0 } else { SPAN_BYTES };
        self.slots.allocate_larger(&mut self.owner, bytes, at_most)
    }

    /// Empties windows until `take` gives something.
    pub(crate) fn empty_windows<T>(
        &mut self,
        bytes: usize,
        now: Now,
        take: impl Fn(&mut Self) -> Result<T, ArenaFull>,
    ) -> Option<T> {
        let wanted = bytes.max(SPAN_BYTES) as u64;
        let mut budget = DEFRAGMENT_MOVED_WINDOWS * wanted;
        let mut tried: Vec<Window> = Vec::with_capacity(DEFRAGMENT_WINDOWS);
        while tried.len() < DEFRAGMENT_WINDOWS {
            let Some(window) = self.next_window(bytes, &tried) else { break };
            tried.push(window);
            self.empty(window, &mut budget, now);
            if let Ok(taken) = take(self) {
                return Some(taken);
            }
        }
        None
    }

    /// The window to empty next: for up to one span the sparsest, else the one
    /// with the least in it. Where records may be evicted, one will do that
    /// cannot be emptied by moving alone.
    fn next_window(&mut self, bytes: usize, tried: &[Window]) -> Option<Window> {
        let sparsest = self.slots.sparsest_span();
        let sparsest = sparsest.filter(|span| bytes <= SPAN_BYTES && !tried.contains(span));
        sparsest.or_else(|| self.cheapest(bytes, tried, Leave::ByMove)).or_else(|| {
            self.policy.as_ref()?;
            self.cheapest(bytes, tried, Leave::Anyhow)
        })
    }

    /// Whether there are so many neighbouring pages without anything that has
    /// to stay, as the table has.
    pub(crate) fn holds_window(&mut self, bytes: usize) -> bool {
        self.cheapest(bytes, &[], Leave::Anyhow).is_some()
    }

    fn cheapest(&mut self, bytes: usize, tried: &[Window], leave: Leave) -> Option<Window> {
        let cursor = &mut self.defragment.cursor;
        (0..DEFRAGMENT_SCANS).find_map(|_| self.slots.cheapest_window(bytes, tried, leave, cursor))
    }

    /// Moves the records out of a window, as far as there is room elsewhere;
    /// the others are evicted, if any are.
    fn empty(&mut self, window: Window, budget: &mut u64, now: Now) {
        if self.roots > 0 && !self.may_leave(&self.slots.slots_in(&self.owner, window)) {
            return;
        }
        self.slots.begin_emptying(window);
        'window: for span in window.spans() {
            for slot in self.slots.slots_in(&self.owner, span) {
                match self.move_record(slot, *budget, now) {
                    Some(bytes) => *budget -= bytes,
                    None if self.evict_slot(slot, now) => {}
                    None => break 'window,
                }
            }
        }
        self.slots.end_emptying();
    }

    /// Moves one record; gives its bytes. `None` if it must stay: it has no
    /// room elsewhere, is over the budget, is being uploaded or downloaded. An
    /// ask-only record is whole, and readable again, where it arrives.
    fn move_record(&mut self, slot: u32, budget: u64, now: Now) -> Option<u64> {
        let is_withheld = self.lag.as_ref().is_some_and(|lag| lag.withholds(slot));
        let movable = is_live(&self.owner, slot) || self.ask_only.holds(slot) || is_withheld;
        if !movable || self.pins.holds(slot) {
            return None;
        }
        let lengths = lengths_of(&self.owner, slot);
        let bytes = lengths.record_bytes();
        // An object's parts know where its root record lies.
        if lengths.kind.is_root() || bytes as u64 > budget {
            return None;
        }
        if lengths.kind.is_part() {
            return self.move_part(slot, now).then_some(bytes as u64);
        }
        let key = record_key(&self.owner, slot);
        let hash = self.hash_in(slot);
        let found = self.found(key, hash).filter(|found| found.slot.slot == slot)?;
        let to = self.room_elsewhere(bytes, now)?;
        self.move_to(found, to, hash, now);
        Some(bytes as u64)
    }

    /// A slot for a record that is moved.
    pub(super) fn room_elsewhere(&mut self, bytes: usize, now: Now) -> Option<Slot> {
        let taken = self.slots.allocate(&mut self.owner, bytes, now.since_start_s);
        taken.or_else(|_| self.slots.allocate_larger(&mut self.owner, bytes, 2 * bytes)).ok()
    }

    fn move_to(&mut self, found: Found, to: Slot, hash: KeyHash, now: Now) {
        let (secret, region) = (self.options.record_secret, self.options.region);
        copy_pending(&mut self.owner, secret, region, found.slot.slot, to);
        self.show_again(to, hash);
        let dead = match planted(Plant::MovedStaysLive) {
            true => slot_of(&self.owner, found.slot.slot),
            false => flip_dead(&mut self.owner, found.slot.slot),
        };
        let word = BucketSlot {
            slot: to.slot,
            class: to.class,
            generation_low: to.generation as u8,
            signature: hash.signature(),
        };
        self.table.replace(&mut self.owner, found.place, word);
        self.note_moved(dead, to);
        self.note_dump_moved(hash, dead, to);
        let lease_end_s = self.lease_end_s(found.mutable, now);
        self.release(dead, lease_end_s, now);
        self.stats.moved += 1;
    }

    /// Where a key stands, expired or not.
    #[inline]
    pub(crate) fn found(&self, key: &[u8], hash: KeyHash) -> Option<Found> {
        let (place, slot) = self.table.find(&self.owner, key, hash)?;
        Some(Found { place, slot, mutable: mutable_of(&self.owner, slot.slot) })
    }
}
