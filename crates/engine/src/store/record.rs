//! Records as commands meet them: found, about to be a key's, or dead.

use remora_arena::{Journal, Owner, Slot, database_of};
use remora_index::hash::{SlotIndex, record_key};
use remora_layout::bucket::BucketSlot;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::record::Mutable;

/// A key that was found: the place of its slot word, the word, and word 1.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub place: SlotIndex,
    pub slot: BucketSlot,
    pub mutable: Mutable,
}

/// The new value of a key.
#[derive(Clone, Copy)]
pub(crate) struct New<'a> {
    pub key: &'a [u8],
    pub hash: KeyHash,
    /// The record's kind: a string, or a whole object.
    pub kind: Kind,
    pub value: &'a [u8],
    /// Unix ms; 0 for never.
    pub expires_at_ms: u64,
}

/// A record that is written, but that no path leads to yet.
pub(crate) struct Prepared {
    pub hash: KeyHash,
    pub slot: Slot,
    pub expires_at_ms: u64,
}

/// Whether readers may read a new record, or ask.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readable {
    /// The record is whole.
    Yes,
    /// The record is ask-only.
    AskOnly,
}

/// An object that no key leads to any longer.
#[derive(Clone, Copy)]
pub(crate) struct Grave {
    /// Its type.
    pub kind: Kind,
    /// Its root record's slot, dead.
    pub root: Slot,
    pub lease_end_s: Option<u64>,
}

/// The word of a bucket that leads to a record.
pub(crate) fn word_to(slot: Slot, hash: KeyHash) -> BucketSlot {
    BucketSlot {
        slot: slot.slot,
        class: slot.class,
        generation_low: slot.generation as u8,
        signature: hash.signature(),
    }
}

/// The hash of the key whose record lies in a slot.
pub(crate) fn hash_in<J: Journal>(owner: &Owner<J>, slot: u32, seed: u64) -> KeyHash {
    KeyHash::within(database_of(owner, slot), record_key(owner, slot), seed)
}
