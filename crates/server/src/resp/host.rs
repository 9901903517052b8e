//! What requests need of the server around them.

use crate::jobs::{Job, Message};
use crate::shared::{Counts, Shared};
use remora_arena::ReadView;
use remora_front::request::Sections;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::pointer::RemotePointer;
use remora_layout::slot::SlotTable;
use remora_walk::Memory;

/// The server as its RESP connections see it: shards that take jobs, and whose
/// memory is read; a clock; counts.
pub trait Host {
    /// A shard's arena, as this thread reads it.
    type Memory: Memory;

    /// Which shard has which slot.
    fn slots(&self) -> &SlotTable;

    /// Seed of the key hash.
    fn hash_seed(&self) -> u64;

    /// Keys of a database in a shard, as they were some milliseconds ago.
    fn keys_in(&self, shard: usize, database: Database) -> u64;

    /// Unix time, ms.
    fn unix_ms(&self) -> u64;

    /// A shard's arena.
    fn memory(&self, shard: usize) -> &Self::Memory;

    /// Hands a job to a shard. Jobs of one thread are executed in their order.
    fn hand(&self, shard: usize, job: Job);

    /// Tells a shard that a record was read there.
    fn touched(&self, shard: usize, pointer: RemotePointer);

    /// Where is counted what happens.
    fn counts(&self) -> &Counts;

    /// The text of INFO.
    fn info(&self, sections: &Sections<'_>) -> String;

    /// The parameters that CONFIG GET shows.
    fn parameters(&self) -> Vec<(&'static str, String)>;

    /// Number of shards.
    fn shards(&self) -> usize {
        self.slots().shards()
    }

    /// The hash of a key of a database, and the shard that owns it.
    fn route(&self, database: Database, key: &[u8]) -> (KeyHash, usize) {
        (KeyHash::within(database, key, self.hash_seed()), self.slots().shard_of(key))
    }
}

impl Host for Shared {
    type Memory = ReadView;

    fn slots(&self) -> &SlotTable {
        &self.slots
    }

    fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    fn keys_in(&self, shard: usize, database: Database) -> u64 {
        self.shards[shard].stats().databases[database.number() as usize].keys
    }

    fn unix_ms(&self) -> u64 {
        self.clock.now().unix_ms
    }

    fn memory(&self, shard: usize) -> &ReadView {
        &self.shards[shard].view
    }

    fn hand(&self, shard: usize, job: Job) {
        self.shards[shard].inbox.push(Message::Job(job));
    }

    fn touched(&self, shard: usize, pointer: RemotePointer) {
        self.shards[shard].touched.push(pointer);
    }

    fn counts(&self) -> &Counts {
        &self.counts
    }

    fn info(&self, sections: &Sections<'_>) -> String {
        super::info::server(self, sections)
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        super::info::parameters(self)
    }
}
