//! Records that the owner writes, or checksums, piece by piece.
//!
//! Invariants: while a record is incomplete its guardian says pending, or ask-only, so that a
//! reader uses none of it; the checksum is in place before the guardian says live.

use crate::journal::Journal;
use crate::owner::Owner;
use crate::records::{first_word, lengths_of, mutable_of, set_mutable};
use crate::slot::Slot;
use remora_layout::database::Database;
use remora_layout::hash::PieceChecksum;
use remora_layout::kind::Kind;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{CHECKED_FROM, Lengths, Mutable, RECORD_HEADER_BYTES, checksum_seed};

/// Writes a string's record, except its value and its checksum, into a slot just allocated. Returns
/// the byte offset of the value.
pub fn begin_pending<J: Journal>(
    owner: &mut Owner<J>,
    slot: Slot,
    (database, key): (Database, &[u8]),
    value_bytes: usize,
    expires_at_ms: u64,
) -> usize {
    let word = first_word(slot.slot);
    let kind = Kind::STRING;
    let (key_bytes, value_bytes) = (key.len() as u32, value_bytes as u32);
    let lengths = Lengths { key_bytes, database, kind, value_bytes };
    set_mutable(owner, slot.slot, Mutable { expires_at_ms, ..Mutable::default() });
    owner.store(word + 3, lengths.to_word());
    owner.store_bytes(word * 8 + RECORD_HEADER_BYTES, key);
    word * 8 + RECORD_HEADER_BYTES + key.len()
}

/// Gives a pending record's value another length, within its slot.
pub fn set_value_bytes<J: Journal>(owner: &mut Owner<J>, slot: u32, value_bytes: usize) {
    let lengths = Lengths { value_bytes: value_bytes as u32, ..lengths_of(owner, slot) };
    owner.store(first_word(slot) + 3, lengths.to_word());
}

/// The checksum of a pending record, taken piece by piece.
pub struct PieceSum {
    slot: Slot,
    done: usize,
    sum: Box<PieceChecksum>,
}

impl PieceSum {
    /// Begins with the record in `slot`, under the generation that it will be
    /// published with. `secret` is the arena's.
    pub fn begin(secret: u64, region: u32, slot: Slot) -> Self {
        let seed = checksum_seed(secret, region, slot.slot, slot.generation);
        Self { slot, done: CHECKED_FROM, sum: Box::new(PieceChecksum::new(seed)) }
    }

    /// Adds up to `most` further bytes. Returns how many; 0 when it has added all.
    pub fn advance<J: Journal>(&mut self, owner: &Owner<J>, most: usize) -> usize {
        let length = lengths_of(owner, self.slot.slot).record_bytes();
        let bytes = most.min(length - self.done);
        let from = first_word(self.slot.slot) * 8 + self.done;
        self.sum.update(owner.slice(from, bytes));
        self.done += bytes;
        bytes
    }

    /// Stores the checksum, of all bytes: the record can be published. Returns the slot to publish.
    pub fn store<J: Journal>(self, owner: &mut Owner<J>) -> Slot {
        let length = lengths_of(owner, self.slot.slot).record_bytes();
        assert_eq!(self.done, length, "every byte was taken");
        owner.store(first_word(self.slot.slot) + 2, self.sum.digest());
        self.slot
    }
}

/// A record whose value arrives in pieces, which go straight into its slot.
pub struct PieceWriter {
    slot: Slot,
    value_at: usize,
    value_bytes: usize,
    written: usize,
    sum: Box<PieceChecksum>,
}

impl PieceWriter {
    /// Begins a record in a slot just allocated, which has room for a value
    /// of so many bytes. `secret` is the arena's.
    pub fn begin<J: Journal>(
        owner: &mut Owner<J>,
        secret: u64,
        region: u32,
        slot: Slot,
        key: (Database, &[u8]),
        value_bytes: usize,
    ) -> Self {
        let value_at = begin_pending(owner, slot, key, value_bytes, 0);
        let seed = checksum_seed(secret, region, slot.slot, slot.generation);
        let mut sum = Box::new(PieceChecksum::new(seed));
        let checked = first_word(slot.slot) * 8 + CHECKED_FROM;
        sum.update(owner.slice(checked, value_at - checked));
        Self { slot, value_at, value_bytes, written: 0, sum }
    }

    /// The slot that it writes into.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Bytes of the value that have not come yet.
    pub fn missing(&self) -> usize {
        self.value_bytes - self.written
    }

    /// Writes the next piece. Returns false, and writes nothing, if the piece is longer than the
    /// missing bytes.
    #[must_use]
    pub fn write<J: Journal>(&mut self, owner: &mut Owner<J>, piece: &[u8]) -> bool {
        if piece.len() > self.missing() {
            return false;
        }
        owner.store_within(self.value_at + self.written, piece);
        self.sum.update(piece);
        self.written += piece.len();
        true
    }

    /// Ends the record, which is complete: it can be published. Returns the pointer to it.
    pub fn finish<J: Journal>(
        self,
        owner: &mut Owner<J>,
        region: u32,
        expires_at_ms: u64,
    ) -> RemotePointer {
        assert_eq!(self.missing(), 0, "every byte has come");
        let Slot { slot, generation, .. } = self.slot;
        set_mutable(owner, slot, Mutable { expires_at_ms, ..mutable_of(owner, slot) });
        owner.store(first_word(slot) + 2, self.sum.digest());
        let length = lengths_of(owner, slot).record_bytes() as u32;
        RemotePointer { region, slot, length, generation }
    }
}
