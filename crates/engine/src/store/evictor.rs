//! The eviction policy's input, and the weights of objects.
//!
//! Invariant: the policy has exactly the records that the table leads to. An object of parts is
//! there as its root record, with the bytes of the whole object.

use super::record::Found;
use crate::evict::{Eviction, Id, Policy, Verdict, Victim};
use remora_arena::{Journal, Owner, Slot, class_bytes, kind_of, slot_of};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{SLOT_UNIT_BYTES, WORD_BYTES};
use remora_layout::record::{Guardian, State};
use std::collections::BTreeMap;

/// Heap bytes for an object's weight: an entry of a map whose nodes are half full.
const WEIGHT_BYTES: usize = 24;

/// The policy of a shard, and the weights of its records.
pub(crate) struct Evictor {
    /// Chooses the records to evict; `None` if nothing is evicted.
    policy: Option<Policy>,
    /// The weight of each object of parts, by the slot of its root record: objects that the policy
    /// has, and removed ones whose memory is not released yet.
    weights: BTreeMap<u32, usize>,
    /// The weight of the removed ones.
    coming_bytes: u64,
    /// Keys that lead to root records.
    roots: u64,
}

/// The class of the record that an id names, if it exists. Some record must start there: other
/// words may hold anything.
fn current_class<J: Journal>(owner: &Owner<J>, id: Id) -> Option<u8> {
    let word = owner.word(id.slot as usize * (SLOT_UNIT_BYTES / WORD_BYTES));
    Guardian::from_word(word)
        .filter(|found| found.generation == id.generation && found.state != State::Dead)
        .map(|found| found.class)
}

/// The weight of a record, with all that it leads to.
fn weight<J: Journal>(
    weights: &BTreeMap<u32, usize>,
    owner: &Owner<J>,
    (slot, class): (u32, u8),
) -> usize {
    match kind_of(owner, slot).is_root() {
        true => weights.get(&slot).copied().unwrap_or(0),
        false => class_bytes(class),
    }
}

impl Evictor {
    /// That of a shard with an arena of this size.
    pub fn new(eviction: Eviction, region_bytes: usize) -> Self {
        let policy = match eviction {
            Eviction::None => None,
            Eviction::S3Fifo => Some(Policy::new(region_bytes.div_ceil(SLOT_UNIT_BYTES))),
        };
        Self { policy, weights: BTreeMap::new(), coming_bytes: 0, roots: 0 }
    }

    /// Whether keys may go.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.policy.is_some()
    }

    /// Records that the policy knows, if there is one.
    pub fn records(&self) -> Option<u64> {
        self.policy.as_ref().map(Policy::records)
    }

    /// Keys that lead to root records.
    pub fn roots(&self) -> u64 {
        self.roots
    }

    /// Bytes that removed objects still hold.
    pub fn coming_bytes(&self) -> u64 {
        self.coming_bytes
    }

    /// The weight of all records that the policy has.
    pub fn weight_of_all(&self) -> u64 {
        self.policy.as_ref().map_or(0, Policy::bytes)
    }

    /// Whether this is the root record of an object that the policy weighs.
    pub fn is_weighed(&self, root: u32) -> bool {
        self.weights.contains_key(&root) && self.tracks(root)
    }

    /// The objects that the policy has, by the slots of their root records, and their weights.
    pub fn weights(&self) -> impl Iterator<Item = (u32, usize)> {
        let weights = self.weights.iter().map(|(&root, &weight)| (root, weight));
        weights.filter(|&(root, _)| self.tracks(root))
    }

    /// Sets the bytes that the object with this root record takes besides the record.
    pub fn weigh<J: Journal>(&mut self, owner: &Owner<J>, root: u32, bytes: u64) {
        let Some(policy) = self.policy.as_mut().filter(|policy| policy.tracks(root)) else {
            return;
        };
        let now = class_bytes(slot_of(owner, root).class) + bytes as usize;
        if let Some(before) = self.weights.insert(root, now) {
            policy.weighs(root, before, now);
        }
    }

    /// A part of the object with this root record has moved from so many bytes to others.
    pub fn reweigh(&mut self, root: u32, from: u64, to: u64) {
        let Some(policy) = self.policy.as_mut().filter(|policy| policy.tracks(root)) else {
            return;
        };
        if let Some(weight) = self.weights.get_mut(&root) {
            let before = *weight;
            *weight = before + to as usize - from as usize;
            policy.weighs(root, before, *weight);
        }
    }

    /// The memory of the object with this root record comes back in turns from now on.
    pub fn note_buried(&mut self, root: u32) {
        let weight = self.weights.get(&root);
        self.coming_bytes += weight.map_or(0, |&weight| weight as u64);
    }

    /// All of it has come back.
    pub fn note_released(&mut self, root: u32) {
        let weight = self.weights.remove(&root);
        self.coming_bytes -= weight.map_or(0, |weight| weight as u64);
    }

    /// Chooses the next record to evict among those that need not stay; the policy forgets it.
    pub fn victim<J: Journal>(
        &mut self,
        owner: &Owner<J>,
        must_stay: impl Fn(u32) -> bool,
    ) -> Option<Victim> {
        let Self { policy, weights, .. } = self;
        policy.as_mut()?.victim(|id| match current_class(owner, id) {
            None => Verdict::Gone,
            Some(class) => {
                let bytes = weight(weights, owner, (id.slot, class));
                match must_stay(id.slot) {
                    true => Verdict::Spare { bytes },
                    false => Verdict::Take { bytes },
                }
            }
        })
    }

    /// Whether the policy knows a record that starts exactly here.
    pub fn tracks(&self, slot: u32) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.tracks(slot))
    }

    /// Whether the ghost will remember the key of the record in this slot if it is evicted.
    pub fn is_small(&self, slot: u32) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.is_small(slot))
    }

    /// Remembers an evicted key.
    pub fn remember(&mut self, hash: KeyHash) {
        if let Some(policy) = &mut self.policy {
            policy.remember(hash.0);
        }
    }

    /// The table leads to this record now, in the place of the one found.
    pub fn note_linked<J: Journal>(
        &mut self,
        owner: &Owner<J>,
        (new, hash): (Slot, KeyHash),
        found: Option<Found>,
    ) {
        let is_root = |slot: u32| kind_of(owner, slot).is_root();
        let (is_object, was_object) =
            (is_root(new.slot), found.is_some_and(|old| is_root(old.slot.slot)));
        self.roots = self.roots + is_object as u64 - was_object as u64;
        let Self { policy: Some(policy), weights, .. } = self else { return };
        if is_object {
            // The rest of its weight is counted at the end of the command.
            weights.insert(new.slot, class_bytes(new.class));
        }
        let id = Id { slot: new.slot, generation: new.generation };
        match found.map(|old| (old.slot.slot, old.slot.class)) {
            Some(old) => {
                let old_bytes = weight(weights, owner, old);
                policy.replaced(old.0, old_bytes, id, class_bytes(new.class));
                policy.tidy(|id| current_class(owner, id).is_some());
            }
            None => policy.inserted(id, class_bytes(new.class), hash.0),
        }
    }

    /// The record of one slot has moved to another.
    pub fn note_moved<J: Journal>(&mut self, owner: &Owner<J>, old: Slot, new: Slot) {
        if let Some(policy) = &mut self.policy {
            let id = Id { slot: new.slot, generation: new.generation };
            policy.moved(old.slot, class_bytes(old.class), id, class_bytes(new.class));
            policy.tidy(|id| current_class(owner, id).is_some());
        }
    }

    /// The table leads to the record in this slot no more.
    pub fn note_removed<J: Journal>(&mut self, owner: &Owner<J>, slot: Slot) {
        self.roots -= kind_of(owner, slot.slot).is_root() as u64;
        let weight = weight(&self.weights, owner, (slot.slot, slot.class));
        if let Some(policy) = &mut self.policy {
            policy.removed(slot.slot, weight);
            policy.tidy(|id| current_class(owner, id).is_some());
        }
    }

    /// How often a key was touched, as far as the policy counts that.
    pub fn touches(&self, slot: u32) -> Option<u8> {
        let policy = self.policy.as_ref().filter(|policy| policy.tracks(slot));
        policy.map(|policy| policy.touches(slot))
    }

    /// A key was asked for.
    #[inline]
    pub fn note_touched(&mut self, found: Found) {
        if let Some(policy) = &mut self.policy {
            policy.touched(found.slot.slot);
        }
    }

    /// Another thread of the server has read this record: a hint for the eviction policy, which may
    /// be late.
    pub fn hint_touched<J: Journal>(&mut self, owner: &Owner<J>, id: Id) {
        let is_slot = (id.slot as usize + 1) * SLOT_UNIT_BYTES <= owner.region_bytes();
        if let Some(policy) =
            self.policy.as_mut().filter(|policy| is_slot && policy.tracks(id.slot))
            && current_class(owner, id).is_some()
        {
            policy.touched(id.slot);
        }
    }

    /// The least touched record among these slots.
    pub fn least_touched(&self, slots: impl Iterator<Item = u32>) -> Option<u32> {
        let policy = self.policy.as_ref()?;
        slots.min_by_key(|slot| policy.touches(*slot))
    }

    /// Bytes that eviction takes on the heap.
    pub fn heap_bytes(&self) -> u64 {
        let weights = self.weights.len() * WEIGHT_BYTES;
        self.policy.as_ref().map_or(0, |policy| (policy.heap_bytes() + weights) as u64)
    }

    /// Whether the policy's weights are right: the bytes of keys' records, and the objects of parts
    /// among them.
    ///
    /// # Errors
    /// A description of the first mismatch.
    pub fn audit<J: Journal>(
        &self,
        owner: &Owner<J>,
        records: &[Slot],
        has_graves: bool,
    ) -> Result<(), String> {
        let Some(policy) = &self.policy else { return Ok(()) };
        let weights =
            records.iter().map(|slot| weight(&self.weights, owner, (slot.slot, slot.class)) as u64);
        let (weight, coming) = (weights.sum::<u64>(), self.coming_bytes);
        if weight != policy.bytes() || (!has_graves && coming != 0) {
            let books = policy.bytes();
            return Err(format!("keys weigh {weight}, the policy says {books}; {coming} to come"));
        }
        Ok(())
    }
}
