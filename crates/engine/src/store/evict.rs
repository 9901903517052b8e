//! Eviction: what the shard tells its policy, and what it does with a victim.
//!
//! What it keeps true: the policy knows exactly the strings that the table
//! leads to (objects of other types are never evicted); an evicted key is logged
//! as a DEL before its guardian is flipped, so that replicas and readers learn of
//! it as of any removal.
//!
//! Room is made in two steps. Records go in the policy's order, until one has
//! left a place that serves or enough is free in all; then a window of pages is
//! emptied, by moving its records to what came free, and by evicting those
//! that fit nowhere ([`super::defragment`]). The first step evicts about
//! as many bytes as the command wants to write, two spans' worth at least; the
//! second tries a few windows, of which the first serves unless something in it
//! is not published yet (limits `DEFRAGMENT_*`).

use super::{Found, Now, Store};
use crate::command::Command;
use crate::evict::{Eviction, Id, Policy, Verdict};
use remora_arena::{ArenaFull, Journal, Owner, Slot, class_bytes, kind_of};
use remora_index::hash::record_key;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    EVICTION_SLACK_BYTES, EVICTIONS_BEFORE_MOVES, SLOT_UNIT_BYTES, SMALL_SLOT_BYTES, SPAN_BYTES,
    WORD_BYTES,
};
use remora_layout::record::{Guardian, Mutable, State};

/// What is kept while a command makes room.
#[derive(Default)]
pub(crate) struct MakingRoom {
    /// The slot of a record that has to stay: it is being replaced.
    pub keep: Option<u32>,
    /// Chains that evicted keys stood in; they are shed when no place that
    /// was found before is needed any more.
    thinned: Vec<u64>,
}

/// The policy of a shard with an arena of this size.
pub(crate) fn policy(eviction: Eviction, region_bytes: usize) -> Option<Policy> {
    match eviction {
        Eviction::None => None,
        Eviction::S3Fifo => Some(Policy::new(region_bytes.div_ceil(SLOT_UNIT_BYTES))),
    }
}

/// Bytes of the slot of the record that an id names, if it is there. Some
/// record must start there: other words may hold anything.
fn current_bytes<J: Journal>(owner: &Owner<J>, id: Id) -> Option<usize> {
    let word = owner.word(id.slot as usize * (SLOT_UNIT_BYTES / WORD_BYTES));
    Guardian::from_word(word)
        .filter(|found| found.generation == id.generation && found.state != State::Dead)
        .map(|found| class_bytes(found.class))
}

impl<J: Journal> Store<J> {
    /// Evicts, then moves records until `take` gives something.
    pub(crate) fn make_room<T>(
        &mut self,
        bytes: usize,
        now: Now,
        take: impl Fn(&mut Self) -> Result<T, ArenaFull>,
    ) -> Option<T> {
        if bytes > SPAN_BYTES && !self.holds_window(bytes) {
            // Nothing is evicted in vain.
            return None;
        }
        let enough = bytes.max(SPAN_BYTES) as u64 + EVICTION_SLACK_BYTES;
        let mut hopes = if bytes > SMALL_SLOT_BYTES { 0 } else { EVICTIONS_BEFORE_MOVES };
        // Bounded: each turn frees a record, until enough is free.
        while (hopes > 0 || self.free_bytes() < enough) && self.evict_next(now) {
            if let Ok(taken) = take(self) {
                return Some(taken);
            }
            hopes = hopes.saturating_sub(1);
        }
        self.empty_windows(bytes, now, take)
    }

    /// A run of pages for the table.
    pub(crate) fn make_run(&mut self, bytes: usize, now: Now) -> Option<usize> {
        let free = self.slots.take_run(bytes).ok();
        free.or_else(|| self.make_room(bytes, now, |store| store.slots.take_run(bytes)))
    }

    /// Sees to it that so many runs are free.
    pub(crate) fn make_free(&mut self, bytes: usize, runs: usize, now: Now) -> bool {
        let made: Vec<usize> = (0..runs).map_while(|_| self.make_run(bytes, now)).collect();
        self.shed_thinned(now);
        made.iter().for_each(|&run| self.slots.give_run(run, bytes));
        made.len() == runs
    }

    /// Evicts the record that the policy chooses. False if there is none.
    fn evict_next(&mut self, now: Now) -> bool {
        if self.is_applying {
            // The log says what goes.
            return false;
        }
        let Some(policy) = self.policy.as_mut() else { return false };
        let (owner, pins, keep) = (&self.owner, &self.pins, self.making_room.keep);
        let victim = policy.victim(|id| match current_bytes(owner, id) {
            None => Verdict::Gone,
            // A pinned record's memory would not come free.
            Some(bytes) if keep == Some(id.slot) || pins.holds(id.slot) => Verdict::Spare { bytes },
            Some(bytes) => Verdict::Take { bytes },
        });
        let Some(victim) = victim else { return false };
        self.evict(victim.id.slot, victim.came_from_small, now);
        true
    }

    /// Evicts the record in a slot, if there is one that may go.
    pub(crate) fn evict_slot(&mut self, slot: u32, now: Now) -> bool {
        let policy = self.policy.as_ref().filter(|policy| policy.tracks(slot));
        let is_kept = self.making_room.keep == Some(slot) || self.pins.holds(slot);
        let may_go = !is_kept && !self.is_applying;
        let Some(policy) = policy.filter(|_| may_go) else {
            return false;
        };
        self.evict(slot, policy.is_small(slot), now);
        true
    }

    fn evict(&mut self, slot: u32, remember: bool, now: Now) {
        let key = record_key(&self.owner, slot).to_vec();
        let hash = self.hash_in(slot);
        if let Some(policy) = self.policy.as_mut().filter(|_| remember) {
            policy.remember(hash.0);
        }
        let found = self.found(&key, hash).expect("the policy knows what the table leads to");
        assert_eq!(found.slot.slot, slot, "one record a key");
        self.evict_found(&key, hash, found, now);
    }

    fn evict_found(&mut self, key: &[u8], hash: KeyHash, found: Found, now: Now) {
        // Without the lease: a late reader is told by guardian and generation.
        let unleased = Mutable { lease_end_s: 0, popularity: 0, ..found.mutable };
        let found = Found { mutable: unleased, ..found };
        self.commit(hash.database(), &Command::Del { key }, |store| store.take_out(found, now));
        self.note_taken_out(self.table.bucket(hash), hash.database());
        self.stats.evicted += 1;
        self.making_room.thinned.push(self.table.bucket(hash));
    }

    /// Removes the least touched record of a key's chain of buckets, where
    /// there is no memory for another bucket. False if nothing is evicted here.
    pub(crate) fn evict_from_chain(&mut self, hash: KeyHash, now: Now) -> bool {
        let Some(policy) = &self.policy else { return false };
        let places = self.table.places(&self.owner, self.table.bucket(hash));
        let least = places.into_iter().min_by_key(|(_, slot)| policy.touches(slot.slot));
        least.is_some_and(|(_, slot)| self.evict_slot(slot.slot, now))
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

    /// The table leads to this record now, in the place of the one found.
    pub(crate) fn note_linked(&mut self, new: Slot, hash: KeyHash, found: Option<Found>) {
        let is_root = kind_of(&self.owner, new.slot).is_root();
        self.roots += is_root as u64;
        let found = found.filter(|old| {
            let was_root = kind_of(&self.owner, old.slot.slot).is_root();
            self.roots -= was_root as u64;
            !was_root
        });
        let Some(policy) = &mut self.policy else { return };
        let id = Id { slot: new.slot, generation: new.generation };
        match found {
            Some(old) if is_root => policy.removed(old.slot.slot, class_bytes(old.slot.class)),
            None if is_root => {}
            Some(old) => {
                let old_bytes = class_bytes(old.slot.class);
                policy.replaced(old.slot.slot, old_bytes, id, class_bytes(new.class));
                policy.tidy(|id| current_bytes(&self.owner, id).is_some());
            }
            None => policy.inserted(id, class_bytes(new.class), hash.0),
        }
    }

    /// The record of one slot stands in another now.
    pub(crate) fn note_moved(&mut self, old: Slot, new: Slot) {
        if self.making_room.keep == Some(old.slot) {
            self.making_room.keep = Some(new.slot);
        }
        if let Some(policy) = &mut self.policy {
            let id = Id { slot: new.slot, generation: new.generation };
            policy.moved(old.slot, class_bytes(old.class), id, class_bytes(new.class));
            policy.tidy(|id| current_bytes(&self.owner, id).is_some());
        }
    }

    /// How often a key was touched, as far as the policy counts that.
    pub(crate) fn touches(&self, found: Found) -> Option<u8> {
        let policy = self.policy.as_ref().filter(|policy| policy.tracks(found.slot.slot));
        policy.map(|policy| policy.touches(found.slot.slot))
    }

    /// A key was asked for.
    #[inline]
    pub(crate) fn note_touched(&mut self, found: Found) {
        if let Some(policy) = &mut self.policy {
            policy.touched(found.slot.slot);
        }
    }

    /// The table leads to the record in this slot no more.
    pub(crate) fn note_removed(&mut self, slot: Slot) {
        if kind_of(&self.owner, slot.slot).is_root() {
            self.roots -= 1;
            return;
        }
        if let Some(policy) = &mut self.policy {
            policy.removed(slot.slot, class_bytes(slot.class));
            policy.tidy(|id| current_bytes(&self.owner, id).is_some());
        }
    }

    /// Another thread of the server has read this record: a hint, which may
    /// be late, of use to the eviction policy only.
    pub fn hint_touched(&mut self, id: Id) {
        let is_slot = (id.slot as usize + 1) * SLOT_UNIT_BYTES <= self.owner.region_bytes();
        if let Some(policy) =
            self.policy.as_mut().filter(|policy| is_slot && policy.tracks(id.slot))
            && current_bytes(&self.owner, id).is_some()
        {
            policy.touched(id.slot);
        }
    }
}
