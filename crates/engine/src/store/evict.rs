//! Eviction: what the shard tells its policy, and what it does with a victim.
//!
//! What it keeps true: the policy knows exactly the records that the table leads to,
//! an object of parts as its root record, with the bytes of all that it has; an
//! evicted key is logged as a DEL before its guardian is flipped, so that replicas and
//! readers learn of it as of any removal; what the present command works on stays.
//!
//! Room is made in two steps. Keys go in the policy's order, until one has
//! left a place that serves or enough is free in all; then a window of pages is
//! emptied, by moving its records to what came free, and by evicting those
//! that fit nowhere ([`super::defragment`]). The first step evicts about
//! as many bytes as the command wants to write, two spans' worth at least; the
//! second tries a few windows, of which the first serves unless something in it
//! is not published yet (limits `DEFRAGMENT_*`).
//!
//! An object of parts is hidden at once, and its memory comes back in turns, which
//! are the shard's, not the store's. So where one was evicted there is no room yet:
//! the plan fails, the shard carries out as many turns as the command wants bytes, and
//! executes the command again (`shard/room.rs`).

use super::{Found, Now, Store};
use crate::evict::{Eviction, Id, Policy, Verdict};
use remora_arena::{ArenaFull, Journal, Owner, Slot, class_bytes, kind_of, slot_of};
use remora_index::hash::record_key;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    EVICTION_SLACK_BYTES, EVICTIONS_BEFORE_MOVES, SLOT_UNIT_BYTES, SMALL_SLOT_BYTES, SPAN_BYTES,
    WORD_BYTES,
};
use remora_layout::record::{Guardian, Mutable, State};
use remora_protocol::Command;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of the heap for an object's weight: an entry of a map whose nodes are half
/// full.
const WEIGHT_BYTES: usize = 24;

/// What is kept while a command makes room.
#[derive(Default)]
pub(crate) struct MakingRoom {
    /// The slot of a record that has to stay: the present command works on it.
    pub keep: Option<u32>,
    /// The slot of a record that is given to another key.
    pub source: Option<u32>,
    /// Items of the command that an execution before has done.
    pub done: usize,
    /// Slots of root records that have to stay until they are taken out of here: a
    /// client is about to bring more for these objects.
    pub held: BTreeSet<u32>,
    /// What each object of parts weighs, by the slot of its root record: those that the
    /// policy knows, and removed ones whose memory is still to come back.
    weights: BTreeMap<u32, usize>,
    /// What the latter weighed.
    coming_bytes: u64,
    /// The most bytes that the command has wanted without a result.
    pub wanted_bytes: u64,
    /// If memory does not suffice for the command, more is made, and the command is
    /// executed again: what it was given before is to be kept.
    pub tries_again: bool,
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

/// The class of the record that an id names, if it is there. Some record must start
/// there: other words may hold anything.
fn current_class<J: Journal>(owner: &Owner<J>, id: Id) -> Option<u8> {
    let word = owner.word(id.slot as usize * (SLOT_UNIT_BYTES / WORD_BYTES));
    Guardian::from_word(word)
        .filter(|found| found.generation == id.generation && found.state != State::Dead)
        .map(|found| found.class)
}

impl<J: Journal> Store<J> {
    /// Evicts, then moves records until `take` gives something.
    pub(crate) fn make_room<T>(
        &mut self,
        bytes: usize,
        now: Now,
        take: impl Fn(&mut Self) -> Result<T, ArenaFull>,
    ) -> Option<T> {
        self.making_room.wanted_bytes = self.making_room.wanted_bytes.max(bytes as u64);
        if bytes > SPAN_BYTES && !self.holds_window(bytes) {
            // Nothing is evicted in vain.
            return None;
        }
        let enough = bytes.max(SPAN_BYTES) as u64 + EVICTION_SLACK_BYTES;
        let has_hope = bytes <= SMALL_SLOT_BYTES && !self.has_graves();
        let mut hopes = if has_hope { EVICTIONS_BEFORE_MOVES } else { 0 };
        // Bounded: each turn frees a key's memory, or lets it come, until that is enough.
        while (hopes > 0 || self.free_bytes() + self.making_room.coming_bytes < enough)
            && self.evict_next(now)
        {
            if let Ok(taken) = take(self) {
                return Some(taken);
            }
            // An object of parts leaves no place before its turns.
            hopes = if self.has_graves() { 0 } else { hopes.saturating_sub(1) };
        }
        if self.has_graves() && self.free_bytes() < enough {
            return None;
        }
        self.empty_windows(bytes, now, take)
    }

    /// Evicts until so many bytes are free, or are to come back.
    pub(crate) fn evict_bytes(&mut self, bytes: u64, now: Now) {
        // Bounded: each turn evicts a key.
        while self.free_bytes() + self.making_room.coming_bytes < bytes && self.evict_next(now) {}
    }

    /// Whether there are objects whose memory comes back in turns, or some that were
    /// removed.
    pub(crate) fn has_objects(&self) -> bool {
        self.roots > 0 || self.has_graves()
    }

    /// Whether anything may be evicted at all whose memory comes back in turns, and so
    /// many bytes may come free.
    pub(crate) fn may_evict_objects(&self, bytes: u64) -> bool {
        let policy = self.policy.as_ref().filter(|_| self.roots > 0 && !self.is_applying);
        let within = self.free_bytes() + self.making_room.coming_bytes;
        let is_possible = bytes < self.slots.range_bytes();
        policy.is_some_and(|policy| is_possible && within + policy.bytes() >= bytes)
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

    /// Whether what a record's key names has to stay.
    fn must_stay(&self, slot: u32) -> bool {
        // A pinned record's memory would not come free.
        self.making_room.keep == Some(slot)
            || self.making_room.source == Some(slot)
            || self.pins.holds(slot)
            || self.making_room.held.contains(&slot)
            || self.is_dumped(slot)
    }

    /// What a record weighs, with all that it leads to.
    fn weight(&self, slot: u32, class: u8) -> usize {
        match kind_of(&self.owner, slot).is_root() {
            true => self.making_room.weights.get(&slot).copied().unwrap_or(0),
            false => class_bytes(class),
        }
    }

    /// Whether this is the root record of an object that the policy weighs.
    pub(crate) fn is_weighed(&self, root: u32) -> bool {
        self.making_room.weights.contains_key(&root)
            && self.policy.as_ref().is_some_and(|policy| policy.tracks(root))
    }

    /// The object with this root record takes so many bytes beside that.
    pub(crate) fn weigh(&mut self, root: u32, bytes: u64) {
        let Some(policy) = self.policy.as_mut().filter(|policy| policy.tracks(root)) else {
            return;
        };
        let now = class_bytes(slot_of(&self.owner, root).class) + bytes as usize;
        if let Some(before) = self.making_room.weights.insert(root, now) {
            policy.weighs(root, before, now);
        }
    }

    /// The memory of the object with this root record comes back in turns from now on.
    pub(super) fn note_buried(&mut self, root: u32) {
        let weight = self.making_room.weights.get(&root);
        self.making_room.coming_bytes += weight.map_or(0, |&weight| weight as u64);
    }

    /// All of it has come back.
    pub(super) fn note_released(&mut self, root: u32) {
        let weight = self.making_room.weights.remove(&root);
        self.making_room.coming_bytes -= weight.map_or(0, |weight| weight as u64);
    }

    /// Evicts what the policy chooses. False if there is nothing.
    fn evict_next(&mut self, now: Now) -> bool {
        if self.is_applying {
            // The log says what goes.
            return false;
        }
        let Some(mut policy) = self.policy.take() else { return false };
        let victim = policy.victim(|id| match current_class(&self.owner, id) {
            None => Verdict::Gone,
            Some(class) => {
                let bytes = self.weight(id.slot, class);
                match self.must_stay(id.slot) {
                    true => Verdict::Spare { bytes },
                    false => Verdict::Take { bytes },
                }
            }
        });
        self.policy = Some(policy);
        let Some(victim) = victim else { return false };
        self.evict(victim.id.slot, victim.came_from_small, now);
        true
    }

    /// Evicts the key whose record lies in a slot, if there is one that may go.
    pub(crate) fn evict_slot(&mut self, slot: u32, now: Now) -> bool {
        let policy = self.policy.as_ref().filter(|policy| policy.tracks(slot));
        let may_go = !self.must_stay(slot) && !self.is_applying;
        let Some(policy) = policy.filter(|_| may_go) else {
            return false;
        };
        self.evict(slot, policy.is_small(slot), now);
        true
    }

    /// Whether all that lies in these slots can leave them, by a move or by eviction.
    /// Parts may move that stand in a table of the store's; root records stay, as a
    /// whole object is too much for the place that one takes.
    pub(super) fn may_leave(&self, slots: &[u32]) -> bool {
        let Some(policy) = &self.policy else { return true };
        slots.iter().all(|&slot| match kind_of(&self.owner, slot) {
            kind if kind.is_part() => self.is_in_parts(slot),
            kind => !kind.is_root() && policy.tracks(slot) && !self.pins.holds(slot),
        })
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
        let bucket = self.table.bucket(hash);
        if self.is_flushing() && self.is_flushed(bucket, hash.database()) {
            // The flush's entry has told of it.
            self.take_out(found, now);
        } else {
            let is_object = self.kind(found).is_root();
            self.commit(hash.database(), &Command::Del { key }, |store| store.take_out(found, now));
            self.stats.evicted += 1;
            self.stats.objects_evicted += is_object as u64;
        }
        self.note_taken_out(bucket, hash.database());
        self.making_room.thinned.push(bucket);
    }

    /// Removes the least touched record of a key's chain of buckets, where
    /// there is no memory for another bucket. False if nothing is evicted here.
    pub(crate) fn evict_from_chain(&mut self, hash: KeyHash, now: Now) -> bool {
        let Some(policy) = &self.policy else { return false };
        let places = self.table.places(&self.owner, self.table.bucket(hash));
        let may_go = places.into_iter().filter(|(_, slot)| !self.must_stay(slot.slot));
        let least = may_go.min_by_key(|(_, slot)| policy.touches(slot.slot));
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
        let is_root = |slot: u32| kind_of(&self.owner, slot).is_root();
        let (is_object, was_object) =
            (is_root(new.slot), found.is_some_and(|old| is_root(old.slot.slot)));
        self.roots = self.roots + is_object as u64 - was_object as u64;
        if self.policy.is_none() {
            return;
        }
        if is_object {
            // What it has beside is weighed at the end of the command.
            self.making_room.weights.insert(new.slot, class_bytes(new.class));
        }
        let old = found.map(|old| (old.slot.slot, self.weight(old.slot.slot, old.slot.class)));
        let Some(policy) = &mut self.policy else { return };
        let id = Id { slot: new.slot, generation: new.generation };
        match old {
            Some((old, old_bytes)) => {
                policy.replaced(old, old_bytes, id, class_bytes(new.class));
                policy.tidy(|id| current_class(&self.owner, id).is_some());
            }
            None => policy.inserted(id, class_bytes(new.class), hash.0),
        }
    }

    /// The record of one slot stands in another now.
    pub(crate) fn note_moved(&mut self, old: Slot, new: Slot) {
        let room = &mut self.making_room;
        for kept in [&mut room.keep, &mut room.source] {
            if *kept == Some(old.slot) {
                *kept = Some(new.slot);
            }
        }
        if let Some(policy) = &mut self.policy {
            let id = Id { slot: new.slot, generation: new.generation };
            policy.moved(old.slot, class_bytes(old.class), id, class_bytes(new.class));
            policy.tidy(|id| current_class(&self.owner, id).is_some());
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
        self.roots -= kind_of(&self.owner, slot.slot).is_root() as u64;
        let weight = self.weight(slot.slot, slot.class);
        if let Some(policy) = &mut self.policy {
            policy.removed(slot.slot, weight);
            policy.tidy(|id| current_class(&self.owner, id).is_some());
        }
    }

    /// Bytes that eviction takes on the heap.
    pub(super) fn eviction_bytes(&self) -> u64 {
        let weights = self.making_room.weights.len() * WEIGHT_BYTES;
        self.policy.as_ref().map_or(0, |policy| (policy.heap_bytes() + weights) as u64)
    }

    /// Whether the policy weighs what there is: so many bytes of keys' records, and the
    /// objects of parts among them.
    pub(super) fn audit_weights(&self, records: &[Slot]) -> Result<(), String> {
        let Some(policy) = &self.policy else { return Ok(()) };
        let weights = records.iter().map(|slot| self.weight(slot.slot, slot.class) as u64);
        let (weight, coming) = (weights.sum::<u64>(), self.making_room.coming_bytes);
        if weight != policy.bytes() || (self.graves.is_empty() && coming != 0) {
            let books = policy.bytes();
            return Err(format!("keys weigh {weight}, the policy says {books}; {coming} to come"));
        }
        Ok(())
    }

    /// Another thread of the server has read this record: a hint, which may
    /// be late, of use to the eviction policy only.
    pub fn hint_touched(&mut self, id: Id) {
        let is_slot = (id.slot as usize + 1) * SLOT_UNIT_BYTES <= self.owner.region_bytes();
        if let Some(policy) =
            self.policy.as_mut().filter(|policy| is_slot && policy.tracks(id.slot))
            && current_class(&self.owner, id).is_some()
        {
            policy.touched(id.slot);
        }
    }
}
