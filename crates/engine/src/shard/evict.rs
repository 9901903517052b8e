//! Eviction: what the shard tells its policy, and what it does with a victim.
//!
//! What it keeps true: the policy knows exactly the records that the table
//! leads to; an evicted key is logged as a DEL before its guardian is flipped,
//! so that replicas and readers learn of it as of any removal.

use super::{Found, Now, Shard};
use crate::command::Command;
use crate::evict::{Eviction, Id, Policy, Verdict, Victim};
use remora_arena::{ArenaFull, CLASSES, Journal, Owner, Slot, mutable_of};
use remora_index::hash::record_key;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{EVICTIONS_PER_ALLOCATION, SLOT_UNIT_BYTES, WORD_BYTES};
use remora_layout::record::{Guardian, Mutable, State};

/// The policy of a shard with an arena of this size.
pub(super) fn policy(eviction: Eviction, region_bytes: usize) -> Option<Policy> {
    match eviction {
        Eviction::None => None,
        Eviction::S3Fifo => Some(Policy::new(region_bytes.div_ceil(SLOT_UNIT_BYTES), CLASSES)),
    }
}

/// Whether a slot still holds the record that an id names.
fn is_current<J: Journal>(owner: &Owner<J>, id: Id) -> bool {
    let word = owner.word(id.slot as usize * (SLOT_UNIT_BYTES / WORD_BYTES));
    Guardian::from_word(word)
        .is_some_and(|found| found.generation == id.generation && found.state != State::Dead)
}

impl<J: Journal> Shard<J> {
    /// Takes a slot of `class`, or of a larger one where memory is full and a
    /// record of that class can go. The record in `keep` stays.
    pub(super) fn allocate(
        &mut self,
        class: u8,
        keep: Option<u32>,
        now: Now,
    ) -> Result<Slot, ArenaFull> {
        let full = match self.slots.allocate(&mut self.owner, class, now.since_start_s) {
            Ok(slot) => return Ok(slot),
            Err(full) => full,
        };
        for _ in 0..EVICTIONS_PER_ALLOCATION {
            let Some((victim, class)) = self.choose(class, keep) else { return Err(full) };
            self.evict(victim, now);
            if let Ok(slot) = self.slots.allocate(&mut self.owner, class, now.since_start_s) {
                return Ok(slot);
            }
        }
        Err(full)
    }

    /// A victim of `class`, or of the next larger one that has any.
    fn choose(&mut self, class: u8, keep: Option<u32>) -> Option<(Victim, u8)> {
        let (policy, owner) = (self.policy.as_mut()?, &self.owner);
        let judge = |id: Id| match is_current(owner, id) {
            false => Verdict::Gone,
            true if keep == Some(id.slot) => Verdict::Spare,
            true => Verdict::Take,
        };
        (class..CLASSES as u8).find_map(|class| Some((policy.victim(class, judge)?, class)))
    }

    fn evict(&mut self, victim: Victim, now: Now) {
        let key = record_key(&self.owner, victim.id.slot).to_vec();
        let hash = self.hash(&key);
        if let Some(policy) = self.policy.as_mut().filter(|_| victim.came_from_small) {
            policy.remember(hash.0);
        }
        let found = self.find(&key, hash).expect("the policy knows what the table leads to");
        assert_eq!(found.slot.slot, victim.id.slot, "one record a key");
        self.evict_found(&key, found, now);
    }

    fn evict_found(&mut self, key: &[u8], found: Found, now: Now) {
        self.log.append(&Command::Del { key });
        // Without the lease: a late reader is told by guardian and generation.
        let unleased = Mutable { lease_end_s: 0, popularity: 0, ..found.mutable };
        self.take_out(Found { mutable: unleased, ..found }, now);
        self.stats.evicted += 1;
    }

    /// Removes the least touched record of a key's chain of buckets, where
    /// there is no memory for another bucket. False if nothing is evicted here.
    pub(super) fn evict_from_chain(&mut self, hash: KeyHash, now: Now) -> bool {
        let Some(policy) = &self.policy else { return false };
        let places = self.table.places(&self.owner, hash.bucket(self.table.buckets()));
        let least = places.into_iter().min_by_key(|(_, slot)| policy.touches(slot.slot));
        let Some((place, slot)) = least else { return false };
        let key = record_key(&self.owner, slot.slot).to_vec();
        let mutable = mutable_of(&self.owner, slot.slot);
        self.evict_found(&key, Found { place, slot, mutable }, now);
        true
    }

    /// The record of a key, expired or not.
    pub(super) fn find(&self, key: &[u8], hash: KeyHash) -> Option<Found> {
        let (place, slot) = self.table.find(&self.owner, key, hash)?;
        Some(Found { place, slot, mutable: mutable_of(&self.owner, slot.slot) })
    }

    /// The table leads to this record now, in the place of the one found.
    pub(super) fn note_linked(&mut self, new: Slot, hash: KeyHash, found: Option<Found>) {
        let Some(policy) = &mut self.policy else { return };
        let id = Id { slot: new.slot, generation: new.generation };
        match found {
            Some(old) => {
                policy.replaced(old.slot.slot, old.slot.class, id, new.class);
                policy.tidy(old.slot.class, |id| is_current(&self.owner, id));
            }
            None => policy.inserted(id, new.class, hash.0),
        }
    }

    /// A key was asked for.
    #[inline]
    pub(super) fn note_touched(&mut self, found: Found) {
        if let Some(policy) = &mut self.policy {
            policy.touched(found.slot.slot);
        }
    }

    /// The table leads to the record in this slot no more.
    pub(super) fn note_removed(&mut self, slot: Slot) {
        if let Some(policy) = &mut self.policy {
            policy.removed(slot.slot, slot.class);
            policy.tidy(slot.class, |id| is_current(&self.owner, id));
        }
    }

    /// Every key is about to be removed.
    pub(super) fn note_flushed(&mut self) {
        if let Some(policy) = &mut self.policy {
            policy.clear();
        }
    }

    /// Another thread of the server has read this record: a hint, which may
    /// be late, of use to the eviction policy only.
    pub fn hint_touched(&mut self, id: Id) {
        let is_slot = (id.slot as usize + 1) * SLOT_UNIT_BYTES <= self.owner.region_bytes();
        if let Some(policy) = self.policy.as_mut().filter(|_| is_slot)
            && is_current(&self.owner, id)
        {
            policy.touched(id.slot);
        }
    }
}
