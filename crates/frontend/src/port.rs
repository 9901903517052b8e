//! The interface of connections and executors to the shards.

use crate::counts::ConnectionCounts;
use crate::job::{Job, Token};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::slot::SlotTable;
use remora_protocol::{Command, Reply};

/// The shards as one thread of the server sees them: its own shard, which executes at once;
/// the others, which take jobs.
pub trait ShardPort {
    /// The number of the thread's own shard.
    fn home(&self) -> usize;

    /// Unix ms of the present turn.
    fn now_ms(&self) -> u64;

    /// Maps slots to shards.
    fn slots(&self) -> &SlotTable;

    /// Seed of the key hash.
    fn hash_seed(&self) -> u64;

    /// Hands a job to a shard, the own one or another. A shard executes the jobs of one
    /// thread in their order.
    fn hand(&mut self, shard: usize, job: Job);

    /// Whether the own shard has nothing under way for the connection that this token
    /// names: no command of it would be overtaken by one that is executed at once.
    fn is_free(&mut self, token: &Token) -> bool;

    /// Executes a command of one step in the own shard, for a connection that waits for nothing
    /// else of it and for which it is free ([`ShardPort::is_free`]), and passes the outcome to
    /// `take`. `None` if the shard has ended. `at`: the token, and
    /// whether the connection may hold the reply: then one that waits
    /// for a sequence is given at once, and not held by the shard.
    fn execute<R>(
        &mut self,
        command: (&Command<'_>, KeyHash),
        at: (Token, bool),
        take: impl FnOnce(Here<'_>) -> R,
    ) -> Option<R>;

    /// Sequence up to which the own shard's changes are durable.
    fn durable_sequence(&self) -> u64;

    /// This thread's counters.
    fn counts(&self) -> &ConnectionCounts;

    /// A connection of this thread is over.
    fn note_end(&self);

    /// Number of shards.
    fn shards(&self) -> usize {
        self.slots().shards()
    }

    /// The hash of a key of a database, and the shard that owns it.
    fn route(&self, database: Database, key: &[u8]) -> (KeyHash, usize) {
        (KeyHash::within(database, key, self.hash_seed()), self.slots().shard_of(key))
    }
}

/// The outcome of a command that was executed at once.
pub enum Here<'s> {
    /// Its reply.
    Reply(Reply<'s>),
    /// The reply comes once it is durable.
    Held,
    /// The reply comes once its large value is copied, piece by piece.
    Large,
}
