//! The digest of a shard: one number for all that its keys hold (DEBUG DIGEST).
//!
//! Invariant: the digest is the sum of one number for each key, so that it depends neither on the
//! order of keys nor on the number of shards: the digests of the shards add up to that of the
//! server. The shard computes it in turns, for one moment: if a change happens meanwhile the shard
//! starts again, a bounded number of times, and then refuses. A key that has expired counts until
//! it is removed.

use crate::store::Store;
use crate::types::content::Content;
use crate::types::object::Types;
use remora_arena::{Journal, database_of, kind_of, mutable_of};
use remora_index::hash::{record_key, record_value};
use remora_layout::hash::digest;
use remora_layout::kind::Kind;
use remora_layout::limits::{DIGEST_RESTARTS, DIGEST_TURN_PARTS};
use remora_protocol::message::Status;

/// A digest. Those of parts add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Digest(pub u128);

impl Digest {
    /// The digest of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

/// 40 hexadecimal digits, as Redis has them.
impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:040x}", self.0)
    }
}

/// A digest that is under way.
#[derive(Default)]
pub struct DigestRead {
    /// The last change when it began; `None` before the first turn.
    sequence: Option<u64>,
    restarts: u32,
    bucket: u64,
    /// The next record of the bucket.
    record: usize,
    /// The record's content, of which some may be added.
    content: Content,
    sum: Digest,
}

impl std::fmt::Debug for DigestRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DigestRead").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

impl DigestRead {
    /// Continues for one turn; returns the digest of all keys at its end.
    ///
    /// # Errors
    /// `TryAgain`: something was changed too many times between two turns.
    pub(super) fn turn<J: Journal>(
        &mut self,
        store: &Store<J>,
        types: &Types<J>,
    ) -> Result<Option<Digest>, Status> {
        let sequence = store.last_sequence();
        if self.sequence != Some(sequence) {
            let restarts = self.restarts + self.sequence.is_some() as u32;
            if restarts > DIGEST_RESTARTS {
                return Err(Status::TryAgain);
            }
            let sequence = Some(sequence);
            *self = Self { sequence, restarts, ..Self::default() };
        }
        if store.flushes.are_under_way() {
            // The table changes without an entry of the log.
            self.sequence = None;
            return Ok(None);
        }
        Ok(self.add_keys(store, types, DIGEST_TURN_PARTS))
    }

    /// Adds up a bounded number of keys and their content: of keys, parts, KiB and buckets. Returns
    /// the digest at its end.
    fn add_keys<J: Journal>(
        &mut self,
        store: &Store<J>,
        types: &Types<J>,
        most: usize,
    ) -> Option<Digest> {
        self.content.begin_turn();
        let mut looked_at = 0;
        // Bounded by the table, and by the content of its objects.
        while self.bucket < store.table.buckets() {
            let places = store.table.places(&store.owner, self.bucket);
            while let Some((_, word)) = places.get(self.record) {
                if looked_at + self.content.turn_parts() >= most {
                    return None;
                }
                looked_at += 1;
                if store.is_flushed_in(self.bucket, word.slot) {
                    self.record += 1;
                } else if add_content((store, types), word.slot, &mut self.content) {
                    self.sum = self.sum.with(digest_of(store, word.slot, &self.content));
                    self.content.restart();
                    self.record += 1;
                }
            }
            (self.bucket, self.record) = (self.bucket + 1, 0);
            looked_at += 1;
            if looked_at + self.content.turn_parts() >= most {
                return None;
            }
        }
        Some(self.sum)
    }
}

/// The digest of all keys, in one turn.
pub(super) fn of_all<J: Journal>(store: &Store<J>, types: &Types<J>) -> Digest {
    let mut read = DigestRead::default();
    read.add_keys(store, types, usize::MAX).expect("it goes to its end")
}

/// The digest of a record's value, without its key, in one turn.
pub(super) fn of_value<J: Journal>(store: &Store<J>, types: &Types<J>, slot: u32) -> Digest {
    let mut content = Content::default();
    // Bounded by the object.
    while !add_content((store, types), slot, &mut content) {}
    let mut told = told(store, slot, &content);
    // The same value has the same digest in every database.
    told[1] = 0;
    Digest(digest(&told))
}

/// Adds some of a record's value; true at its end.
fn add_content<J: Journal>(
    (store, types): (&Store<J>, &Types<J>),
    slot: u32,
    content: &mut Content,
) -> bool {
    let kind = kind_of(&store.owner, slot).of_type();
    if kind == Kind::STRING {
        content.add(&[record_value(&store.owner, slot)]);
        return true;
    }
    types.get(kind).expect("every object is of a type").digest(store, slot, content)
}

/// The part of a record, beside its key, that goes into a digest.
fn told<J: Journal>(store: &Store<J>, slot: u32, content: &Content) -> [u8; 32] {
    let owner = &store.owner;
    let mut told = [0; 32];
    told[0] = kind_of(owner, slot).of_type().0;
    told[1] = database_of(owner, slot).number();
    told[8..16].copy_from_slice(&mutable_of(owner, slot).expires_at_ms.to_le_bytes());
    told[16..].copy_from_slice(&content.sum().to_le_bytes());
    told
}

/// The digest of a key and all that it names.
fn digest_of<J: Journal>(store: &Store<J>, slot: u32, content: &Content) -> Digest {
    let key = record_key(&store.owner, slot);
    Digest(digest(&[&told(store, slot, content), key].concat()))
}
