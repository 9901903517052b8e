//! A small store over the index: a shard's work with it, without the shard.

use remora_arena::{Journal, NewRecord, Owner, Slots, flip_dead, publish_live, write_pending};
use remora_index::hash::{Table, TableRef};
use remora_layout::arena_header::{ARENA_HEADER_BYTES, word};
use remora_layout::bucket::{BUCKET_BYTES, BucketSlot};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;

/// Region id of the arena.
pub const REGION: u32 = 7;

/// The arena's secret.
pub const SECRET: u64 = 0x5ec2_e7ed;

/// The hash of the keys of a store.
pub type Hash = fn(&[u8]) -> KeyHash;

/// As in production.
pub fn plain_hash(key: &[u8]) -> KeyHash {
    KeyHash::of(key, 1)
}

/// Few signatures, so that equal ones meet in one bucket.
#[allow(dead_code, reason = "not every test file needs both")]
pub fn poor_hash(key: &[u8]) -> KeyHash {
    KeyHash(plain_hash(key).0 & !(0xfff8 << 32))
}

/// Keys and values in an arena.
pub struct Store<J: Journal> {
    pub owner: Owner<J>,
    pub slots: Slots,
    pub table: Table,
    pub hash: Hash,
    /// Bytes of the allocator.
    pub total_bytes: u64,
}

impl<J: Journal> Store<J> {
    pub fn new(bytes: usize, base: u64, hash: Hash, journal: J) -> Self {
        let mut owner = Owner::heap(bytes, journal);
        let slots = Slots::new(ARENA_HEADER_BYTES + base as usize * BUCKET_BYTES, bytes);
        owner.store(word::RECORD_SECRET, SECRET);
        let table = Table::new(&mut owner, ARENA_HEADER_BYTES, base);
        let total_bytes = slots.stats().total_bytes();
        Self { owner, slots, table, hash, total_bytes }
    }

    /// The present view.
    pub fn view(&self) -> TableRef {
        TableRef::read(REGION, self.owner.view()).unwrap()
    }

    /// Sets a key, without growth.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        let hash = (self.hash)(key);
        let record = NewRecord {
            database: Database::ZERO,
            key,
            value,
            kind: Kind::STRING,
            expires_at_ms: 0,
        };
        let slot = self.slots.allocate(&mut self.owner, record.record_bytes(), 0).unwrap();
        let pointer = write_pending(&mut self.owner, SECRET, REGION, slot, &record);
        publish_live(&mut self.owner, slot);
        let word = BucketSlot {
            slot: pointer.slot,
            class: slot.class,
            generation_low: pointer.generation as u8,
            signature: hash.signature(),
        };
        match self.table.find(&self.owner, key, hash) {
            Some((place, old)) => {
                let dead = flip_dead(&mut self.owner, old.slot);
                self.table.replace(&mut self.owner, place, word);
                self.slots.release(&mut self.owner, dead, None, 0);
            }
            None => {
                let overflow = self
                    .table
                    .needs_overflow(&self.owner, hash)
                    .then(|| self.slots.allocate_bucket(&mut self.owner, 0).unwrap().slot);
                self.table.insert(&mut self.owner, hash, word, overflow);
            }
        }
    }

    /// Splits a bucket if the table is too full.
    pub fn grow(&mut self) -> bool {
        self.table.grow(&mut self.owner, &mut self.slots, 0, |_, key| (self.hash)(key))
    }

    /// Sets a key.
    pub fn set(&mut self, key: &[u8], value: &[u8]) {
        self.put(key, value);
        self.grow();
    }

    pub fn remove(&mut self, key: &[u8]) -> bool {
        let hash = (self.hash)(key);
        let Some((place, old)) = self.table.find(&self.owner, key, hash) else {
            return false;
        };
        let dead = flip_dead(&mut self.owner, old.slot);
        self.table.remove(&mut self.owner, place);
        self.slots.release(&mut self.owner, dead, None, 0);
        let bucket = self.table.bucket(hash);
        self.table.shed(&mut self.owner, &mut self.slots, bucket, 0);
        true
    }

    /// Everything that must hold between two operations.
    pub fn check(&self) {
        let (mut records, mut overflow) = (0, 0);
        let mut record_bytes = 0;
        for bucket in 0..self.table.buckets() {
            let places = self.table.places(&self.owner, bucket);
            records += places.len();
            // No chain is longer than its keys need.
            overflow += places.len().div_ceil(7).saturating_sub(1);
            for (_, slot) in places {
                let key = remora_index::hash::record_key(&self.owner, slot.slot);
                assert_eq!((self.hash)(key).bucket(self.table.buckets()), bucket);
                record_bytes += remora_arena::class_bytes(slot.class) as u64;
            }
        }
        assert_eq!(self.table.records(), records as u64);
        assert_eq!(self.table.overflow_buckets(), overflow as u64);
        // All bytes are accounted for: the table's bytes and those of the records.
        let stats = self.slots.stats();
        let base_bytes = self.view_base_bytes();
        let table_bytes = self.table.bytes() - base_bytes;
        assert_eq!(stats.used_bytes + stats.run_bytes, record_bytes + table_bytes);
        assert_eq!(stats.total_bytes(), self.total_bytes);
    }

    /// Bytes of the first buckets, which the allocator does not know of.
    fn view_base_bytes(&self) -> u64 {
        self.owner.word(remora_layout::arena_header::word::BASE_BUCKETS) * BUCKET_BYTES as u64
    }
}
