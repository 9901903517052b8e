//! The reader's side of an object with a table of its own for its parts: first its root record,
//! then bucket and part, by the walk that finds keys too.
//!
//! Invariants: a part counts only with its root. A reader of a part fetches the root record's first
//! words behind it, in the same batch. It accepts the part only if these words say that the root is
//! live, of the generation under which the reader looked for the part, and has not expired.

use super::view::TableRef;
use super::walk::Lookup;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::SLOT_UNIT_BYTES;
use remora_layout::part::{part_hash_seed, part_secret, root_of_word};
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{
    Mutable, RECORD_HEADER_BYTES, ROOT_WORDS_BYTES, Reject, Verified, state_offset, verify,
    verify_root_words,
};

/// A reader's view of an object with parts.
#[derive(Clone, Debug)]
pub struct ObjectRef {
    region: u32,
    slot: u32,
    generation: u32,
    hash_seed: u64,
    secret: u64,
    /// The table of its parts, as the root record described it at some time.
    table: Option<TableRef>,
}

impl ObjectRef {
    /// An object of a shard with this table, by the word that names its root record
    /// ([`remora_layout::part::root_word`]). `hash_seed` is the cluster's.
    pub fn of_root(shard: &TableRef, hash_seed: u64, root: u64) -> Self {
        let (slot, generation) = root_of_word(root);
        Self {
            region: shard.region,
            slot,
            generation,
            hash_seed: part_hash_seed(hash_seed, slot, generation),
            secret: part_secret(shard.secret, slot, generation),
            table: None,
        }
    }

    /// The object whose root record the reader has just found; `record` are the fetched bytes. Its
    /// table begins `parts_at` bytes behind the beginning of the record's state. `None` if the table
    /// was fetched during a change.
    pub fn of_record(
        shard: &TableRef,
        hash_seed: u64,
        found: &Verified<'_>,
        record: &[u8],
        parts_at: usize,
    ) -> Option<Self> {
        let RemotePointer { slot, generation, length, .. } = found.pointer;
        let root = remora_layout::part::root_word(slot, generation);
        let object = Self::of_root(shard, hash_seed, root);
        let key_bytes = length as usize - RECORD_HEADER_BYTES - found.value.len();
        let table_at = state_offset(key_bytes) + parts_at;
        let offset = slot as u64 * SLOT_UNIT_BYTES as u64 + table_at as u64;
        let table = shard.of_object(object.secret, offset, record.get(table_at..)?)?;
        Some(Self { table: Some(table), ..object })
    }

    /// Whether this is the object with this root record.
    pub fn is_root(&self, root: u64) -> bool {
        (self.slot, self.generation) == root_of_word(root)
    }

    /// The hash of a part's name.
    pub fn hash(&self, name: &[u8]) -> KeyHash {
        KeyHash::of(name, self.hash_seed)
    }

    /// Begins a walk to a part of this name; `None` if the table's location is not known.
    pub fn begin<'k>(&self, name: &'k [u8], kind: Kind) -> Option<Lookup<'k>> {
        let table = self.table.as_ref()?;
        Some(Lookup::begin(name, self.hash(name), kind, table))
    }

    /// The same, from a word that perhaps names the part ([`Lookup::begin_at`]).
    pub fn begin_at<'k>(&self, name: &'k [u8], kind: Kind, word: u64) -> Option<Lookup<'k>> {
        let table = self.table.as_ref()?;
        Some(Lookup::begin_at(name, self.hash(name), kind, table, word))
    }

    /// Offset of a word so many bytes behind the beginning of the state of the root record, of a key of so
    /// many bytes.
    pub fn state_word(&self, key_bytes: usize, at: usize) -> u64 {
        self.slot as u64 * SLOT_UNIT_BYTES as u64 + (state_offset(key_bytes) + at) as u64
    }

    /// The range to fetch behind each part: offset and bytes.
    pub fn root_range(&self) -> (u64, usize) {
        (self.slot as u64 * SLOT_UNIT_BYTES as u64, ROOT_WORDS_BYTES)
    }

    /// Checks the root record's words that were fetched behind a part: the part counts if this is
    /// no error and the expiry, if there is one, has not passed.
    ///
    /// # Errors
    /// The object has gone, or the reader has to ask the owner.
    pub fn check_root(&self, bytes: &[u8]) -> Result<Mutable, Reject> {
        verify_root_words(bytes, self.generation)
    }

    /// Checks the bytes of a part that a pointer led to.
    ///
    /// # Errors
    /// Why they are not the expected part.
    pub fn verify_part<'a>(
        &self,
        bytes: &'a [u8],
        pointer: RemotePointer,
        kind: Kind,
        name: &[u8],
    ) -> Result<Verified<'a>, Reject> {
        let generation = Some(pointer.generation);
        verify(bytes, self.secret, self.region, pointer.slot, generation, kind, name)
    }
}
