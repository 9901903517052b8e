//! The digest of a shard: one number for all that its keys hold (DEBUG DIGEST).
//!
//! What it keeps true: it is the sum of one number for each key, so that it
//! depends neither on the order of keys nor on how many shards they are divided
//! into: the digests of shards add up to that of the server. It goes in turns, and
//! is that of one moment: when something was changed meanwhile, it begins again, so
//! many times, and is refused then. A key that has expired counts until it is
//! removed.

use super::Shard;
use crate::store::Now;
use crate::types::content::Content;
use remora_arena::{Journal, database_of, kind_of, mutable_of};
use remora_index::hash::{record_key, record_value};
use remora_layout::hash::{KeyHash, digest};
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
    /// Which record of the bucket comes next.
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

impl<J: Journal> Shard<J> {
    /// The digest of all keys, in one turn.
    pub fn digest(&self) -> Digest {
        let mut read = DigestRead::default();
        self.add_keys(&mut read, usize::MAX).expect("it goes to its end")
    }

    /// Goes on with the digest of all keys for one turn; gives it at its end.
    ///
    /// # Errors
    /// `TryAgain`: something was changed too many times between two turns.
    pub fn digest_turn(&self, read: &mut DigestRead) -> Result<Option<Digest>, Status> {
        let sequence = self.store.last_sequence();
        if read.sequence != Some(sequence) {
            let restarts = read.restarts + read.sequence.is_some() as u32;
            if restarts > DIGEST_RESTARTS {
                return Err(Status::TryAgain);
            }
            let sequence = Some(sequence);
            *read = DigestRead { sequence, restarts, ..DigestRead::default() };
        }
        if self.store.is_flushing() {
            // The table changes without an entry of the log.
            read.sequence = None;
            return Ok(None);
        }
        Ok(self.add_keys(read, DIGEST_TURN_PARTS))
    }

    /// Adds up keys and what they hold: so many of them, parts, KiB and buckets. Gives
    /// the digest at its end.
    fn add_keys(&self, read: &mut DigestRead, most: usize) -> Option<Digest> {
        read.content.begin_turn();
        let mut looked_at = 0;
        // Bounded by the table, and by what its objects hold.
        while read.bucket < self.store.table.buckets() {
            let places = self.store.table.places(&self.store.owner, read.bucket);
            while let Some((_, word)) = places.get(read.record) {
                if looked_at + read.content.turn_parts() >= most {
                    return None;
                }
                looked_at += 1;
                let database = database_of(&self.store.owner, word.slot);
                if self.store.is_flushed(read.bucket, database) {
                    read.record += 1;
                } else if self.add_content(word.slot, &mut read.content) {
                    read.sum = read.sum.with(self.digest_of(word.slot, &read.content));
                    read.content.restart();
                    read.record += 1;
                }
            }
            (read.bucket, read.record) = (read.bucket + 1, 0);
            looked_at += 1;
            if looked_at + read.content.turn_parts() >= most {
                return None;
            }
        }
        Some(read.sum)
    }

    /// The sequence that a reply waits for which tells the digest of all keys.
    pub fn digest_wait(&self) -> u64 {
        let last = self.store.last_sequence();
        if last > self.store.durable_sequence() { last } else { 0 }
    }

    /// The digest of what a key holds, without its name, in one turn; `None` if there
    /// is no such key.
    pub fn digest_value(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Option<Digest> {
        let slot = self.store.lookup(key, hash, now)?.slot.slot;
        let mut content = Content::default();
        // Bounded by the object.
        while !self.add_content(slot, &mut content) {}
        let mut told = self.told(slot, &content);
        // The same value has the same digest in every database.
        told[1] = 0;
        Some(Digest(digest(&told)))
    }

    /// Adds some of what the record in a slot names; true at its end.
    fn add_content(&self, slot: u32, content: &mut Content) -> bool {
        let kind = kind_of(&self.store.owner, slot).of_type();
        if kind == Kind::STRING {
            content.add(&[record_value(&self.store.owner, slot)]);
            return true;
        }
        let of = self.types.iter().find(|of| of.id() == kind);
        of.expect("every object is of a type").digest(&self.store, slot, content)
    }

    /// What a digest tells of a record beside its key.
    fn told(&self, slot: u32, content: &Content) -> [u8; 32] {
        let owner = &self.store.owner;
        let mut told = [0; 32];
        told[0] = kind_of(owner, slot).of_type().0;
        told[1] = database_of(owner, slot).number();
        told[8..16].copy_from_slice(&mutable_of(owner, slot).expires_at_ms.to_le_bytes());
        told[16..].copy_from_slice(&content.sum().to_le_bytes());
        told
    }

    /// The digest of a key and all that it names.
    fn digest_of(&self, slot: u32, content: &Content) -> Digest {
        let key = record_key(&self.store.owner, slot);
        Digest(digest(&[&self.told(slot, content), key].concat()))
    }
}
