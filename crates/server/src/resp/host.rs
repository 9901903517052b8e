//! What requests need of the server around them.

use crate::jobs::{Job, Message};
use crate::shared::{Counts, Shared};
use remora_arena::Words;
use remora_front::request::Sections;
use remora_index::hash::Memory;
use remora_layout::hash::KeyHash;
use remora_layout::pointer::RemotePointer;

/// The server as its RESP connections see it: shards that take jobs, and whose
/// memory is read; a clock; counts.
pub trait Host {
    /// A shard's arena, as this thread reads it.
    type Memory: Memory;

    /// Number of shards.
    fn shards(&self) -> usize;

    /// Seed of the key hash.
    fn hash_seed(&self) -> u64;

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

    /// A key's hash, and the shard that owns it.
    fn route(&self, key: &[u8]) -> (KeyHash, usize) {
        let hash = KeyHash::of(key, self.hash_seed());
        (hash, hash.shard(self.shards()))
    }
}

impl Host for Shared {
    type Memory = Words;

    fn shards(&self) -> usize {
        self.shards.len()
    }

    fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    fn unix_ms(&self) -> u64 {
        self.clock.now().unix_ms
    }

    fn memory(&self, shard: usize) -> &Words {
        &self.shards[shard].words
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
