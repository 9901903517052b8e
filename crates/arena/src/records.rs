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
fn first_word(slot: u32) -> usize {
    slot as usize * (SLOT_UNIT_BYTES / 8)
}

/// Writes a record into a slot just allocated (whose guardian says pending)
/// and gives the pointer to it. No reader takes it for live yet.
pub fn write_pending<J: Journal>(
    owner: &mut Owner<J>,
    region: u32,
    slot: Slot,
    record: &NewRecord<'_>,
) -> RemotePointer {
    let word = first_word(slot.slot);
    let byte = word * 8;
    let lengths = Lengths {
        key_bytes: record.key.len() as u16,
        kind: record.kind,
        value_bytes: record.value.len() as u32,
    };
    let mutable = Mutable { expires_at_ms: record.expires_at_ms, lease_end_s: 0, popularity: 0 };
    owner.store(word + 1, mutable.to_word());
    owner.store(word + 3, lengths.to_word());
    owner.store_pair(byte + RECORD_HEADER_BYTES, record.key, record.value);
    let length = lengths.record_bytes();
    let seed = checksum_seed(region, slot.slot, slot.generation);
    let sum = checksum(owner.slice(byte + CHECKED_FROM, length - CHECKED_FROM), seed);
    owner.store(word + 2, sum);
    RemotePointer { region, slot: slot.slot, length: length as u32, generation: slot.generation }
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
