//! What requests need of the server around them.

use crate::jobs::Job;
use crate::large_jobs::LargeJobs;
use crate::thread_counts::ThreadCounts;
use remora_arena::{Journal, Owner};
use remora_engine::{Now, Shard};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::pointer::RemotePointer;
use remora_layout::slot::SlotTable;
use remora_resp::request::Sections;
use remora_walk::Memory;

/// The server as the RESP connections of one thread see it: the thread's own
/// shard, which executes commands at once; the others, which take jobs, and whose
/// memory is read; a clock; counts.
pub trait Host {
    /// A shard's arena, as this thread reads it.
    type Memory: Memory;
    /// The journal of the own shard's arena.
    type Journal: Journal;

    /// The number of the thread's own shard.
    fn home(&self) -> usize;

    /// The time of the present turn.
    fn now(&self) -> Now;

    /// Lets the own shard do something at once. `None` if it is no more.
    fn with_own<R>(
        &mut self,
        act: impl FnOnce(&mut Shard<Self::Journal>, &mut LargeJobs, Now) -> R,
    ) -> Option<R>;

    /// Which shard has which slot.
    fn slots(&self) -> &SlotTable;

    /// Seed of the key hash.
    fn hash_seed(&self) -> u64;

    /// Keys of a database in a shard, as they were some milliseconds ago.
    fn keys_in(&self, shard: usize, database: Database) -> u64;

    /// A shard's arena.
    fn memory(&self, shard: usize) -> &Self::Memory;

    /// The arena of the own shard, as its owner reads it; `None` for another shard, and
    /// for a host that cannot lend its shard.
    fn own_memory(&self, shard: usize) -> Option<&Owner<Self::Journal>>;

    /// Hands a job to a shard, the own one or another. A shard executes the jobs
    /// of one thread in their order.
    fn hand(&mut self, shard: usize, job: Job);

    /// Tells a shard that a record was read there.
    fn touched(&self, shard: usize, pointer: RemotePointer);

    /// Where this thread counts what happens.
    fn counts(&self) -> &ThreadCounts;

    /// A connection of this thread is over.
    fn note_end(&self);

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
