//! Writes records: the stores, in the order that readers rely on.

use crate::journal::Journal;
use crate::owner::Owner;
use crate::slot::Slot;
use remora_layout::database::Database;
use remora_layout::hash::checksum;
use remora_layout::kind::Kind;
use remora_layout::limits::SLOT_UNIT_BYTES;
use remora_layout::link::hint_bytes;
use remora_layout::node;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{
    CHECKED_FROM, Guardian, Lengths, Mutable, RECORD_HEADER_BYTES, State, Wanted,
    checked_value_bytes, checksum_seed, state_offset,
};

/// Where a record's checksum stands.
const CHECKSUM_WORD: usize = 2;

/// What a new record holds.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// The key, at most `MAX_KEY_BYTES`.
    pub key: &'a [u8],
    /// The value, at most `MAX_VALUE_BYTES`.
    pub value: &'a [u8],
    /// The key's database; 0 for a part.
    pub database: Database,
    /// What the record is.
    pub kind: Kind,
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

/// Writes a record into a slot just allocated (whose guardian says pending) and returns the pointer
/// to it. Readers do not yet take it for live. `secret` is the arena's.
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
        database: record.database,
        kind: record.kind,
        value_bytes: record.value.len() as u32,
    };
    let mutable = Mutable { expires_at_ms: record.expires_at_ms, lease_end_s: 0, popularity: 0 };
    owner.store(word + 1, mutable.to_word());
    owner.store(word + 3, lengths.to_word());
    owner.store_pair(byte + RECORD_HEADER_BYTES, record.key, record.value);
    let length = lengths.record_bytes();
    let unchecked = record.value.len() - checked_value_bytes(record.kind, record.value);
    let seed = checksum_seed(secret, region, slot.slot, slot.generation);
    let sum = checksum(owner.slice(byte + CHECKED_FROM, length - CHECKED_FROM - unchecked), seed);
    owner.store(word + CHECKSUM_WORD, sum);
    RemotePointer { region, slot: slot.slot, length: length as u32, generation: slot.generation }
}

/// Writes the root record of an object into a slot just allocated: the key, and behind it zeros up
/// to `state_bytes` of a state block ([`remora_layout::record::state_offset`]). The first word of
/// the block is the guardian that its readers demand: pending, with the slot's generation. `secret`
/// is the arena's.
pub fn write_root<J: Journal>(
    owner: &mut Owner<J>,
    secret: u64,
    region: u32,
    slot: Slot,
    (what, key): (impl Into<Wanted>, &[u8]),
    state_bytes: usize,
    expires_at_ms: u64,
) {
    let word = first_word(slot.slot);
    let byte = word * 8;
    let state = state_offset(key.len());
    let behind_key = RECORD_HEADER_BYTES + key.len();
    let value_bytes = (state + state_bytes - behind_key) as u32;
    let Wanted { kind, database } = what.into();
    let lengths = Lengths { key_bytes: key.len() as u32, database, kind, value_bytes };
    let mutable = Mutable { expires_at_ms, lease_end_s: 0, popularity: 0 };
    owner.store(word + 1, mutable.to_word());
    owner.store(word + 3, lengths.to_word());
    owner.store_pair(byte + RECORD_HEADER_BYTES, key, &[]);
    owner.store_zeros(byte + behind_key, value_bytes as usize);
    let seed = checksum_seed(secret, region, slot.slot, slot.generation);
    let sum = checksum(owner.slice(byte + CHECKED_FROM, behind_key - CHECKED_FROM), seed);
    owner.store(word + CHECKSUM_WORD, sum);
    set_state_guardian(owner, slot, State::Pending);
}

/// Stores the guardian of a root record's state block. A dead one loses its
/// checksum too, as [`flip_dead`] says.
pub fn set_state_guardian<J: Journal>(owner: &mut Owner<J>, root: Slot, state: State) {
    let key_bytes = lengths_of(owner, root.slot).key_bytes as usize;
    let word = first_word(root.slot) + state_offset(key_bytes) / 8;
    let guardian = Guardian { generation: root.generation, state, class: 0 };
    owner.store_release(word, guardian.to_word());
    if state == State::Dead {
        owner.release();
        owner.store(word + node::word::CHECKSUM, 0);
    }
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
    let value_from = RECORD_HEADER_BYTES + lengths.key_bytes as usize;
    let value = owner.slice(new * 8 + value_from, lengths.value_bytes as usize);
    let checked_to = value_from + checked_value_bytes(lengths.kind, value);
    let sum = checksum(owner.slice(new * 8 + CHECKED_FROM, checked_to - CHECKED_FROM), seed);
    owner.store(new + CHECKSUM_WORD, sum);
    RemotePointer { region, slot: to.slot, length: length as u32, generation: to.generation }
}

/// Replaces the hint of a link in the record in `slot`, which has links.
///
/// # Panics
/// The record has no such link.
pub fn set_hint<J: Journal>(owner: &mut Owner<J>, slot: u32, link: usize, hint: u64) {
    let lengths = lengths_of(owner, slot);
    let byte = first_word(slot) * 8 + RECORD_HEADER_BYTES + lengths.key_bytes as usize;
    let value = owner.slice(byte, lengths.value_bytes as usize);
    let hints = hint_bytes(value);
    assert!(lengths.kind.has_links() && (link + 1) * 8 <= hints, "the caller knows the links");
    owner.store((byte + value.len() - hints) / 8 + link, hint);
}

/// Lengths of the record in `slot`, which the owner wrote.
#[inline(always)]
pub fn lengths_of<J: Journal>(owner: &Owner<J>, slot: u32) -> Lengths {
    Lengths::from_word(owner.word(first_word(slot) + 3)).expect("the owner wrote these lengths")
}

/// The kind of the record in `slot`, which the owner wrote.
#[inline(always)]
pub fn kind_of<J: Journal>(owner: &Owner<J>, slot: u32) -> Kind {
    Lengths::kind_in(owner.word(first_word(slot) + 3))
}

/// The database of the key of the record in `slot`, which the owner wrote.
#[inline(always)]
pub fn database_of<J: Journal>(owner: &Owner<J>, slot: u32) -> Database {
    lengths_of(owner, slot).database
}

/// Whether the record in `slot`, which the owner wrote, is of this key.
#[inline(always)]
pub fn is_named<J: Journal>(owner: &Owner<J>, slot: u32, database: Database, key: &[u8]) -> bool {
    let word = first_word(slot);
    Lengths::named_in(owner.word(word + 3)) == Lengths::named(key.len(), database)
        && owner.slice(word * 8 + RECORD_HEADER_BYTES, key.len()) == key
}

/// Whether `slot` holds a published record.
pub fn is_live<J: Journal>(owner: &Owner<J>, slot: u32) -> bool {
    Guardian::from_word(owner.word(first_word(slot)))
        .is_some_and(|guardian| guardian.state == State::Live)
}

/// The slot as the record in it describes it.
pub fn slot_of<J: Journal>(owner: &Owner<J>, slot: u32) -> Slot {
    let guardian = Guardian::from_word(owner.word(first_word(slot)));
    let Guardian { generation, class, .. } = guardian.expect("the owner wrote this guardian");
    Slot { slot, generation, class }
}

/// The state in the guardian of the record in `slot`, which the owner wrote.
pub fn state_in<J: Journal>(owner: &Owner<J>, slot: u32) -> State {
    let guardian = Guardian::from_word(owner.word(first_word(slot)));
    guardian.expect("the owner wrote this guardian").state
}

/// Makes a pending record live: it is as durable as configured.
pub fn publish_live<J: Journal>(owner: &mut Owner<J>, slot: Slot) {
    let guardian = Guardian { generation: slot.generation, state: State::Live, class: slot.class };
    owner.store_release(first_word(slot.slot), guardian.to_word());
}

/// Makes a record pending, or ask-only: later stores become visible after that.
pub fn withhold<J: Journal>(owner: &mut Owner<J>, slot: Slot, state: State) {
    debug_assert!(matches!(state, State::Pending | State::AskOnly));
    let guardian = Guardian { generation: slot.generation, state, class: slot.class };
    owner.store(first_word(slot.slot), guardian.to_word());
    owner.release();
}

/// Flips the guardian of a record to dead (H22), before its successor becomes reachable, and
/// returns the slot for the allocator.
///
/// Then it wipes the checksum. The allocator may reuse the slot's pages for a larger record whose
/// value ends at this guardian's word: without the wipe such a value could revive the old record,
/// whose other bytes still stand behind it.
pub fn flip_dead<J: Journal>(owner: &mut Owner<J>, slot: u32) -> Slot {
    let word = first_word(slot);
    let guardian = Guardian::from_word(owner.word(word)).expect("the owner wrote this guardian");
    let dead = Guardian { state: State::Dead, ..guardian };
    owner.store_release(word, dead.to_word());
    // The successor's stores come after the flip.
    owner.release();
    owner.store(word + CHECKSUM_WORD, 0);
    Slot { slot, generation: guardian.generation, class: guardian.class }
}

/// Flips the guardian of an overflow bucket's slot to dead, and returns the slot for the allocator.
/// The bucket's words stay: an earlier reader may be reading them, and the record that a word names
/// validates it.
pub fn flip_bucket_dead<J: Journal>(owner: &mut Owner<J>, slot: u32) -> Slot {
    let word = first_word(slot);
    let guardian = Guardian::from_word(owner.word(word)).expect("the owner wrote this guardian");
    let dead = Guardian { state: State::Dead, ..guardian };
    owner.store_release(word, dead.to_word());
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
