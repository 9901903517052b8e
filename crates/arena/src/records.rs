//! Writing records: the stores, in the order that readers rely on.

use crate::journal::Journal;
use crate::owner::Owner;
use crate::slots::Slot;
use remora_layout::hash::checksum;
use remora_layout::limits::SLOT_UNIT_BYTES;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{
    CHECKED_FROM, Guardian, Lengths, Mutable, RECORD_HEADER_BYTES, State, checksum_seed,
};

/// What a new record holds.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// The key, at most `MAX_KEY_BYTES`.
    pub key: &'a [u8],
    /// The value, at most `MAX_VALUE_BYTES`.
    pub value: &'a [u8],
    /// What kind of record (0: a string).
    pub kind: u8,
    /// Unix ms; 0 for never.
    pub expires_at_ms: u64,
}

impl NewRecord<'_> {
    /// Bytes of the record with its header.
    pub fn record_bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.key.len() + self.value.len()
    }
}

#[inline(always)]
pub(crate) fn first_word(slot: u32) -> usize {
    slot as usize * (SLOT_UNIT_BYTES / 8)
}

/// Writes a record into a slot just allocated (whose guardian says pending)
/// and gives the pointer to it. No reader takes it for live yet. `secret` is
/// the arena's.
pub fn write_pending<J: Journal>(
    owner: &mut Owner<J>,
    secret: u64,
    region: u32,
    slot: Slot,
    record: &NewRecord<'_>,
) -> RemotePointer {
    let word = first_word(slot.slot);
    let byte = word * 8;
    let lengths = Lengths {
        key_bytes: record.key.len() as u32,
        kind: record.kind,
        value_bytes: record.value.len() as u32,
    };
    let mutable = Mutable { expires_at_ms: record.expires_at_ms, lease_end_s: 0, popularity: 0 };
    owner.store(word + 1, mutable.to_word());
    owner.store(word + 3, lengths.to_word());
    owner.store_pair(byte + RECORD_HEADER_BYTES, record.key, record.value);
    let length = lengths.record_bytes();
    let seed = checksum_seed(secret, region, slot.slot, slot.generation);
    let sum = checksum(owner.slice(byte + CHECKED_FROM, length - CHECKED_FROM), seed);
    owner.store(word + 2, sum);
    RemotePointer { region, slot: slot.slot, length: length as u32, generation: slot.generation }
}

/// As [`write_pending`], with the record of another slot of the owner: key,
/// value, kind and mutable word. `to` holds at least as many bytes.
pub fn copy_pending<J: Journal>(
    owner: &mut Owner<J>,
    secret: u64,
    region: u32,
    from: u32,
    to: Slot,
) -> RemotePointer {
    let (old, new) = (first_word(from), first_word(to.slot));
    let lengths = lengths_of(owner, from);
    let length = lengths.record_bytes();
    owner.store(new + 1, owner.word(old + 1));
    owner.copy_within(old * 8 + CHECKED_FROM, new * 8 + CHECKED_FROM, length - CHECKED_FROM);
    let seed = checksum_seed(secret, region, to.slot, to.generation);
    let sum = checksum(owner.slice(new * 8 + CHECKED_FROM, length - CHECKED_FROM), seed);
    owner.store(new + 2, sum);
    RemotePointer { region, slot: to.slot, length: length as u32, generation: to.generation }
}

/// Lengths of the record in `slot`, which the owner wrote.
#[inline(always)]
pub fn lengths_of<J: Journal>(owner: &Owner<J>, slot: u32) -> Lengths {
    Lengths::from_word(owner.word(first_word(slot) + 3)).expect("the owner wrote these lengths")
}

/// Whether a record that is published lies in `slot`.
pub fn is_live<J: Journal>(owner: &Owner<J>, slot: u32) -> bool {
    Guardian::from_word(owner.word(first_word(slot)))
        .is_some_and(|guardian| guardian.state == State::Live)
}

/// The slot that the record in it says it is.
pub fn slot_of<J: Journal>(owner: &Owner<J>, slot: u32) -> Slot {
    let guardian = Guardian::from_word(owner.word(first_word(slot)));
    let Guardian { generation, class, .. } = guardian.expect("the owner wrote this guardian");
    Slot { slot, generation, class }
}

/// Makes a pending record live: it is as durable as configured.
pub fn publish_live<J: Journal>(owner: &mut Owner<J>, slot: Slot) {
    let guardian = Guardian { generation: slot.generation, state: State::Live, class: slot.class };
    owner.store_release(first_word(slot.slot), guardian.to_word());
}

/// Flips the guardian of a record to dead (H22), before its successor becomes
/// reachable, and gives the slot back for the allocator.
pub fn flip_dead<J: Journal>(owner: &mut Owner<J>, slot: u32) -> Slot {
    let word = first_word(slot);
    let guardian = Guardian::from_word(owner.word(word)).expect("the owner wrote this guardian");
    let dead = Guardian { state: State::Dead, ..guardian };
    owner.store_release(word, dead.to_word());
    // The successor's stores come after the flip.
    owner.release();
    Slot { slot, generation: guardian.generation, class: guardian.class }
}

/// Replaces word 1 of a record: expiry, lease, popularity.
pub fn set_mutable<J: Journal>(owner: &mut Owner<J>, slot: u32, mutable: Mutable) {
    owner.store(first_word(slot) + 1, mutable.to_word());
}

/// Word 1 of a record: expiry, lease, popularity.
pub fn mutable_of<J: Journal>(owner: &Owner<J>, slot: u32) -> Mutable {
    Mutable::from_word(owner.word(first_word(slot) + 1))
}
