//! Memory for a change: taken, and made where there is none.
//!
//! Invariant: an evicted key is logged as a DEL before its guardian is flipped, so that replicas
//! and readers see it as any removal; the records that the present command works on stay. A record
//! is moved as if it were overwritten by itself: the copy is complete before the old guardian is
//! dead, and the old guardian is dead before the copy is reachable. Readers of the old record ask
//! the shard. A move changes no key, so it is not logged.
//!
//! Without eviction the shard moves records until pages are free ([`super::defragment`], decision
//! 0011). With eviction it makes room in two steps. First it evicts keys in the policy's order,
//! until one has left a suitable place or enough bytes are free in total. Then it empties a window
//! of pages: it moves the window's records to free places, and evicts those that fit nowhere. The
//! first step evicts about as many bytes as the command wants to write, at least two spans' worth;
//! the second step tries a few windows, and the first one serves unless a record in it is not
//! published yet (limits `DEFRAGMENT_*`).
//!
//! An object of parts is hidden at once, and its memory is released in turns, which belong to the
//! shard, not to the store. So after the eviction of such an object there is no room yet: the plan
//! fails, the shard runs as many turns as the command needs bytes, and executes the command again
//! (`shard/room.rs`).

use super::Store;
use super::clock::Now;
use super::defragment::{Room, free_bytes};
use super::download::{Download, Pins};
use super::heap::SetAside;
use super::making_room::MakingRoom;
use super::moves::Moves;
use super::options::ShardOptions;
use super::parts::root_of;
use super::record::{Found, hash_in, word_to};
use crate::types::object::On;
use remora_arena::{
    ArenaFull, Journal, Owner, Slot, Window, copy_pending, flip_dead, is_live, kind_of, lengths_of,
    mutable_of,
};
use remora_index::hash::record_key;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    COVER_TURN_RUNS, DEFRAGMENT_MOVED_WINDOWS, DEFRAGMENT_WINDOWS, EVICTION_SLACK_BYTES,
    EVICTIONS_BEFORE_MOVES, LENT_TURN_BYTES, PAGE_BYTES, SMALL_SLOT_BYTES, SPAN_BYTES,
};
use remora_layout::record::Mutable;
use remora_protocol::Command;

impl<J: Journal> Store<J> {
    /// A slot; if need be, records are evicted or moved so that there is one.
    #[inline]
    pub(crate) fn allocate(&mut self, room: Room, now: Now) -> Result<Slot, ArenaFull> {
        match self.take_slot(room, now) {
            Err(_) if self.evictor.is_on() => {
                let made = self.make_room(room.bytes(), now, |store| store.take_slot(room, now));
                made.map_or_else(|| self.take_larger(room), Ok)
            }
            Err(_) if self.defragmenter.may_try(&self.slots, room.bytes()) => {
                self.allocate_by_moving(room, now)
            }
            taken => taken,
        }
    }

    /// A slot, if there is one without further ado.
    pub(crate) fn take_slot(&mut self, room: Room, now: Now) -> Result<Slot, ArenaFull> {
        let now_s = now.since_start_s;
        match room {
            Room::Record { bytes } => self.slots.allocate(&mut self.owner, bytes, now_s),
            Room::Bucket => self.slots.allocate_bucket(&mut self.owner, now_s),
        }
    }

    /// The last resort: room that is larger than it needs to be.
    fn take_larger(&mut self, room: Room) -> Result<Slot, ArenaFull> {
        let bytes = room.bytes();
        let at_most = if matches!(room, Room::Bucket) { 0 } else { SPAN_BYTES };
        self.slots.allocate_larger(&mut self.owner, bytes, at_most)
    }

    #[cold]
    fn allocate_by_moving(&mut self, room: Room, now: Now) -> Result<Slot, ArenaFull> {
        let moved = self.empty_windows(room.bytes(), now, |store| store.take_slot(room, now));
        let slot = moved.map_or_else(|| self.take_larger(room), Ok);
        if slot.is_err() {
            self.defragmenter.note_failure(&self.slots, room.bytes());
        }
        slot
    }

    /// Frees a slot that no path ever led to.
    pub(crate) fn give_back(&mut self, slot: Slot, now: Now) {
        let dead = flip_dead(&mut self.owner, slot.slot);
        self.lag.forget(slot.slot);
        self.slots.release(&mut self.owner, dead, None, now.since_start_s);
    }

    /// Gives the slot of a record that is dead back, now or with its last pin.
    pub(super) fn release(&mut self, dead: Slot, lease_end_s: Option<u64>, now: Now) {
        self.ask_only.forget(dead.slot);
        self.lag.forget(dead.slot);
        if !self.pins.defer(dead, lease_end_s) {
            self.slots.release(&mut self.owner, dead, lease_end_s, now.since_start_s);
        }
    }

    /// Ends a download of this shard, at its end or before.
    pub(crate) fn end_download(&mut self, download: Download, now: Now) {
        if let Some((dead, lease_end_s)) = self.pins.unpin(download) {
            self.slots.release(&mut self.owner, dead, lease_end_s, now.since_start_s);
        }
    }

    // Eviction.

    /// Evicts, then moves records until `take` gives something.
    fn make_room<T>(
        &mut self,
        bytes: usize,
        now: Now,
        take: impl Fn(&mut Self) -> Result<T, ArenaFull>,
    ) -> Option<T> {
        self.making_room.want(bytes as u64);
        if bytes > SPAN_BYTES && !self.defragmenter.has_window(&self.slots, bytes) {
            // Nothing is evicted without a result.
            return None;
        }
        let enough = bytes.max(SPAN_BYTES) as u64 + EVICTION_SLACK_BYTES;
        let has_hope = bytes <= SMALL_SLOT_BYTES && !self.has_graves();
        let mut hopes = if has_hope { EVICTIONS_BEFORE_MOVES } else { 0 };
        // Bounded: each turn frees a key's memory, or lets it come, until that is enough.
        while (hopes > 0 || free_bytes(&self.slots) + self.evictor.coming_bytes() < enough)
            && self.evict_next(now)
        {
            if let Ok(taken) = take(self) {
                return Some(taken);
            }
            // An object of parts leaves no place before its turns.
            hopes = if self.has_graves() { 0 } else { hopes.saturating_sub(1) };
        }
        if self.has_graves() && free_bytes(&self.slots) < enough {
            return None;
        }
        self.empty_windows(bytes, now, take)
    }

    /// Evicts until this many bytes are free, or will be released.
    pub(crate) fn evict_bytes(&mut self, bytes: u64, now: Now) {
        // Bounded: each turn evicts a key.
        while free_bytes(&self.slots) + self.evictor.coming_bytes() < bytes && self.evict_next(now)
        {
        }
    }

    /// Whether there are objects whose memory is released in turns, or removed ones among them.
    pub(crate) fn has_objects(&self) -> bool {
        self.evictor.roots() > 0 || self.has_graves()
    }

    /// Whether the shard may evict any object whose memory is released in turns, and may free this
    /// many bytes by it.
    pub(crate) fn may_evict_objects(&self, bytes: u64) -> bool {
        let evictor = &self.evictor;
        let may_be = evictor.is_on() && evictor.roots() > 0 && !self.is_applying;
        let within = free_bytes(&self.slots) + evictor.coming_bytes();
        let is_possible = bytes < self.slots.limit_bytes();
        may_be && is_possible && within + evictor.weight_of_all() >= bytes
    }

    /// A run of pages.
    pub(crate) fn make_run(&mut self, bytes: usize, now: Now) -> Option<usize> {
        let free = self.slots.take_run(bytes).ok();
        free.or_else(|| self.make_room(bytes, now, |store| store.slots.take_run(bytes)))
    }

    /// Makes a run of this many bytes free, if keys may be evicted.
    pub(crate) fn make_free(&mut self, bytes: usize, now: Now) -> bool {
        if !self.evictor.is_on() {
            return false;
        }
        let made = self.make_run(bytes, now);
        self.shed_thinned(now);
        if let Some(run) = made {
            self.slots.give_run(run, bytes);
        }
        made.is_some()
    }

    /// A command works on two keys' records: from now on it plans a change of the first one.
    /// Neither is evicted before its end.
    pub(crate) fn keep_both(&mut self, changed: On<'_>, other: On<'_>) {
        if self.evictor.is_on() {
            let slot_of = |on: On<'_>| self.found(on.key, on.hash).map(|found| found.slot.slot);
            let both = (slot_of(changed), slot_of(other));
            (self.making_room.keep, self.making_room.source) = both;
        }
    }

    fn must_stay(&self, slot: u32) -> bool {
        let parts = (&self.making_room, &self.pins, &self.moves);
        must_stay(&self.owner, parts, &self.options, slot)
    }

    /// Evicts the policy's next choice. False if there is none.
    fn evict_next(&mut self, now: Now) -> bool {
        if self.is_applying || !self.may_log_evictions() {
            // In apply mode the log's entries do the evictions.
            return false;
        }
        let Self { owner, evictor, making_room, pins, moves, options, .. } = self;
        let must_stay = |slot| must_stay(owner, (making_room, pins, moves), options, slot);
        let Some(victim) = evictor.victim(owner, must_stay) else { return false };
        self.evict(victim.id.slot, victim.came_from_small, now);
        true
    }

    /// Evicts the key whose record lies in this slot, if it may be evicted.
    fn evict_slot(&mut self, slot: u32, now: Now) -> bool {
        let may_evict = !self.is_applying && self.may_log_evictions();
        let may_go = may_evict && !self.must_stay(slot) && self.evictor.tracks(slot);
        if may_go {
            self.evict(slot, self.evictor.is_small(slot), now);
        }
        may_go
    }

    fn evict(&mut self, slot: u32, remember: bool, now: Now) {
        let key = record_key(&self.owner, slot).to_vec();
        let hash = self.hash_in(slot);
        if remember {
            self.evictor.remember(hash);
        }
        let found = self.found(&key, hash).expect("the policy knows what the table leads to");
        assert_eq!(found.slot.slot, slot, "one record a key");
        self.evict_found(&key, hash, found, now);
    }

    fn evict_found(&mut self, key: &[u8], hash: KeyHash, found: Found, now: Now) {
        // Without the lease: guardian and generation show a late reader that the record is dead.
        let unleased = Mutable { lease_end_s: 0, popularity: 0, ..found.mutable };
        let found = Found { mutable: unleased, ..found };
        let bucket = self.table.bucket(hash);
        if self.flushes.include(bucket, hash.database(), key) {
            // The flush's entry covers this removal.
            self.take_out(found, now);
        } else {
            let is_object = self.kind(found).is_root();
            self.commit(hash.database(), &Command::Del { key }, |store| store.take_out(found, now));
            self.stats.evicted += 1;
            self.stats.objects_evicted += is_object as u64;
        }
        self.flushes.note_taken_out(bucket, hash.database());
        self.making_room.thinned.push(bucket);
    }

    /// Removes the least touched record of a key's chain of buckets, where
    /// there is no memory for another bucket. False if nothing is evicted here.
    pub(super) fn evict_from_chain(&mut self, hash: KeyHash, now: Now) -> bool {
        if !self.evictor.is_on() {
            return false;
        }
        let places = self.table.places(&self.owner, self.table.bucket(hash));
        let slots = places.into_iter().map(|(_, slot)| slot.slot);
        let least = self.evictor.least_touched(slots.filter(|slot| !self.must_stay(*slot)));
        least.is_some_and(|slot| self.evict_slot(slot, now))
    }

    /// Merges overflow buckets of the chains that evicted keys stood in.
    /// Places that were found before are void.
    pub(crate) fn shed_thinned(&mut self, now: Now) {
        let mut thinned = std::mem::take(&mut self.making_room.thinned);
        for bucket in thinned.drain(..) {
            self.shed(bucket, now);
        }
        self.making_room.thinned = thinned;
    }

    // Moves.

    /// Empties windows until `take` gives something.
    fn empty_windows<T>(
        &mut self,
        bytes: usize,
        now: Now,
        take: impl Fn(&mut Self) -> Result<T, ArenaFull>,
    ) -> Option<T> {
        let wanted = bytes.max(SPAN_BYTES) as u64;
        let mut budget = DEFRAGMENT_MOVED_WINDOWS * wanted;
        let mut tried: Vec<Window> = Vec::with_capacity(DEFRAGMENT_WINDOWS);
        while tried.len() < DEFRAGMENT_WINDOWS {
            let may_evict = self.evictor.is_on();
            let window = self.defragmenter.next_window(&self.slots, bytes, &tried, may_evict);
            let Some(window) = window else { break };
            tried.push(window);
            self.empty(window, &mut budget, now);
            if let Ok(taken) = take(self) {
                return Some(taken);
            }
        }
        None
    }

    /// Moves the records out of a window, as far as there is room elsewhere;
    /// the others are evicted, if any are.
    fn empty(&mut self, window: Window, budget: &mut u64, now: Now) {
        if self.evictor.roots() > 0 && !self.may_leave(&self.slots.slots_in(&self.owner, window)) {
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

    /// Whether all records in these slots can leave them, by a move or by eviction. Parts in one of
    /// the store's tables may move; root records stay, because a whole object is too much to evict
    /// for the place of its root.
    fn may_leave(&self, slots: &[u32]) -> bool {
        !self.evictor.is_on()
            || slots.iter().all(|&slot| match kind_of(&self.owner, slot) {
                kind if kind.is_part() => self.parts.contain(&self.owner, slot),
                kind => !kind.is_root() && self.evictor.tracks(slot) && !self.pins.holds(slot),
            })
    }

    /// Moves one record; gives its bytes. `None` if it must stay: it has no
    /// room elsewhere, is over the budget, is being uploaded or downloaded. An
    /// ask-only record is whole, and readable again, where it arrives.
    fn move_record(&mut self, slot: u32, budget: u64, now: Now) -> Option<u64> {
        let movable =
            is_live(&self.owner, slot) || self.ask_only.holds(slot) || self.lag.withholds(slot);
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
    fn room_elsewhere(&mut self, bytes: usize, now: Now) -> Option<Slot> {
        let taken = self.slots.allocate(&mut self.owner, bytes, now.since_start_s);
        taken.or_else(|_| self.slots.allocate_larger(&mut self.owner, bytes, 2 * bytes)).ok()
    }

    fn move_to(&mut self, found: Found, to: Slot, hash: KeyHash, now: Now) {
        let (secret, region) = (self.options.record_secret, self.options.region);
        copy_pending(&mut self.owner, secret, region, found.slot.slot, to);
        self.show_again(to, hash);
        let dead = flip_dead(&mut self.owner, found.slot.slot);
        self.table.replace(&mut self.owner, found.place, word_to(to, hash));
        self.note_moved(dead, to, hash);
        let lease_end_s = self.lease_end_s(found.mutable, now);
        self.release(dead, lease_end_s, now);
        self.stats.moved += 1;
    }

    /// The record of a key has moved to another slot, or to another generation.
    pub(super) fn note_moved(&mut self, old: Slot, new: Slot, hash: KeyHash) {
        self.making_room.note_moved(old, new);
        self.evictor.note_moved(&self.owner, old, new);
        self.moves.note_moved(hash, old, new);
    }

    /// Moves a live part of an object to another slot. False if it must stay: it is in no table, or
    /// has no room elsewhere.
    fn move_part(&mut self, slot: u32, now: Now) -> bool {
        if !is_live(&self.owner, slot) {
            return false;
        }
        let Some(found) = self.parts.find_in(&self.owner, slot) else { return false };
        let bytes = lengths_of(&self.owner, slot).record_bytes();
        let Some(to) = self.room_elsewhere(bytes, now) else { return false };
        let (region, root) = (self.options.region, root_of(&self.owner, slot));
        let dead = self.parts.move_to((&mut self.owner, &self.slots), found, to, region);
        let (before, after) = (self.slots.bytes_of(dead), self.slots.bytes_of(to));
        self.evictor.reweigh(root, before, after);
        self.release_part(dead, now);
        self.stats.moved += 1;
        true
    }

    /// Gives back the slot of a dead part, once its lease has ended.
    pub(super) fn release_part(&mut self, dead: Slot, now: Now) {
        let mutable = mutable_of(&self.owner, dead.slot);
        let lease_end_s = self.lease_end_s(mutable, now);
        self.lag.forget(dead.slot);
        self.slots.release(&mut self.owner, dead, lease_end_s, now.since_start_s);
    }

    /// Makes pages free until what is in use is at most the shard's memory: some in each call. A
    /// shard that evicts, and has applied a log before, thus refuses nothing for long.
    pub(super) fn give_back_lent(&mut self, now: Now) {
        let over = self.slots.over_bytes();
        if over == 0 || self.is_applying || !self.evictor.is_on() {
            return;
        }
        let goal = over.saturating_sub(LENT_TURN_BYTES);
        let enough = LENT_TURN_BYTES + EVICTION_SLACK_BYTES;
        // Bounded: each turn frees a key's memory, or lets it come.
        while self.slots.over_bytes() > goal
            && free_bytes(&self.slots) + self.evictor.coming_bytes() < enough
            && self.evict_next(now)
        {}
        self.shed_thinned(now);
        if self.slots.over_bytes() <= goal || self.has_graves() {
            return;
        }
        self.empty_windows(SPAN_BYTES, now, |store| match store.slots.over_bytes() {
            over if over <= goal => Ok(()),
            over => Err(ArenaFull { bytes: over as usize, limit_bytes: store.slots.limit_bytes() }),
        });
        self.shed_thinned(now);
    }

    // The heap's bytes.

    /// Reserves pages until they are this many bytes. False if there are not enough: the pages
    /// found stay reserved.
    pub(crate) fn set_aside(&mut self, aside: &mut SetAside, bytes: u64, now: Now) -> bool {
        let mut missing = bytes.saturating_sub(aside.bytes()) as usize;
        // Bounded: each turn sets pages aside.
        while missing > 0 {
            let run_bytes = missing.min(SPAN_BYTES).next_multiple_of(PAGE_BYTES);
            let Some(run) = self.run_for_heap(run_bytes, now) else { return false };
            self.cover.add_aside(aside, run, run_bytes);
            missing = missing.saturating_sub(run_bytes);
        }
        true
    }

    /// Frees the reservation.
    pub(crate) fn give_aside(&mut self, aside: &mut SetAside) {
        self.cover.give_aside(&mut self.slots, aside);
    }

    /// Reserves pages for this many bytes on the heap, or frees some: some in each call. It ignores
    /// differences of less than a span. False if there are no more.
    pub(crate) fn cover_heap(&mut self, heap_bytes: u64, now: Now) -> bool {
        self.cover.set_heap_bytes(heap_bytes);
        for _ in 0..COVER_TURN_RUNS {
            if heap_bytes < self.cover.bytes() {
                self.cover.give_one(&mut self.slots);
                continue;
            }
            if heap_bytes - self.cover.bytes() < SPAN_BYTES as u64 {
                return true;
            }
            let Some(run) = self.run_for_heap(SPAN_BYTES, now) else { return false };
            self.cover.add(run);
        }
        true
    }

    fn run_for_heap(&mut self, bytes: usize, now: Now) -> Option<usize> {
        let may_be = self.evictor.is_on() || free_bytes(&self.slots) >= bytes as u64;
        let run = may_be.then(|| self.make_run(bytes, now)).flatten();
        self.shed_thinned(now);
        run
    }
}

/// Whether the key of a record has to stay. A pinned record's memory would not come free.
fn must_stay<J: Journal>(
    owner: &Owner<J>,
    (making_room, pins, moves): (&MakingRoom, &Pins, &Moves),
    options: &ShardOptions,
    slot: u32,
) -> bool {
    making_room.needs(slot)
        || pins.holds(slot)
        || moves.is_dumped(slot, || hash_in(owner, slot, options.hash_seed))
}
