//! The server's interface for requests.

use crate::plans::Plans;
use crate::thread_counts::ThreadCounts;
use crate::users::UserTable;
use crate::waits::Waits;
use remora_arena::{Journal, Owner};
use remora_frontend::{ShardPort, Token};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::pointer::RemotePointer;
use remora_resp::CommandError;
use remora_resp::cluster::ClusterFacts;
use remora_resp::commands::replication::RoleFacts;
use remora_resp::request::{RoleRequest, Sections};
use remora_walk::Memory;
use std::sync::Arc;

/// The server's interface for the RESP connections of one thread: beside the shards' interface for
/// every protocol, the shards' memory, and the facts for INFO.
pub trait Host: ShardPort {
    /// A shard's arena, as this thread reads it.
    type Memory: Memory;
    /// The journal of the own shard's arena.
    type Journal: Journal;

    /// Keys of a database in a shard, as they were some milliseconds ago.
    fn keys_in(&self, shard: usize, database: Database) -> u64;

    /// A shard's arena.
    fn memory(&self, shard: usize) -> &Self::Memory;

    /// The arena of the own shard, as its owner reads it; `None` for another shard, and
    /// for a host that cannot lend its shard.
    fn own_memory(&self, shard: usize) -> Option<&Owner<Self::Journal>>;

    /// Prefetches the buckets of the own shard's keys, or their records, if the buckets are in the
    /// cache.
    fn prefetch(&mut self, what: Prefetch, keys: impl Iterator<Item = KeyHash>);

    /// Reports a read of a record to its shard.
    fn touched(&self, shard: usize, pointer: RemotePointer);

    /// The requests of this thread's connections that wait for keys. `None` if the server has ended.
    /// The orders that result are handed to the shards.
    fn with_waits<R>(&mut self, act: impl FnOnce(&mut Waits) -> R) -> Option<R>;

    /// The plans that run at this thread; `None` if none do.
    fn plans(&mut self) -> Option<&mut Plans> {
        None
    }

    /// This thread's counters.
    fn thread_counts(&self) -> &ThreadCounts;

    /// Whether the server is a replica.
    #[inline]
    fn is_replica(&self) -> bool {
        false
    }

    /// Whether requests may have to be refused for what the server is: it is a replica, or of a
    /// cluster.
    #[inline]
    fn is_guarded(&self) -> bool {
        self.is_replica()
    }

    /// What is known of the cluster now; `None` at a server of no cluster.
    fn cluster(&mut self) -> Option<&Arc<ClusterFacts>> {
        None
    }

    /// Why a replica refuses reads; `None` if it answers them.
    fn read_refusal(&self) -> Option<CommandError> {
        None
    }

    /// Why a primary of a cluster refuses changes for now; `None` if it takes them.
    fn change_refusal(&self) -> Option<CommandError> {
        None
    }

    /// The users; `None` where there are none, and everybody may do all.
    #[inline]
    fn users(&self) -> Option<&Arc<UserTable>> {
        None
    }

    /// The users have changed: every thread has a look at its connections.
    fn users_changed(&self) {}

    /// The text of INFO.
    fn info(&self, sections: &Sections<'_>) -> String;

    /// Asks for a snapshot.
    fn begin_save(&self) -> Save;

    /// Asks for a change of the server's role. The answer to the request with this token comes once
    /// it has happened: the number 1, or 0 with an error's text.
    ///
    /// # Errors
    /// It is refused at once: the text of the reply.
    fn change_role(&self, change: RoleRequest<'_>, token: Token) -> Result<(), String>;

    /// Takes a message of another server of the cluster.
    ///
    /// # Errors
    /// It is none, or the server is in no cluster: the text of the reply.
    fn deliver(&self, message: &[u8]) -> Result<(), &'static str> {
        let _ = message;
        Err("ERR This server is in no cluster")
    }

    /// What ROLE tells.
    fn role(&self) -> RoleFacts;

    /// Whether there is a log on a disk.
    fn keeps_data(&self) -> bool;

    /// When the last one was written, Unix seconds.
    fn last_save_s(&self) -> u64;

    /// The parameters that CONFIG GET shows.
    fn parameters(&self) -> Vec<(&'static str, String)>;
}

/// The answer to a request for a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Save {
    /// It begins.
    Begun,
    /// One is under way.
    UnderWay,
    /// There is no data directory.
    NothingKept,
}

/// The kind of prefetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// The keys' buckets.
    Buckets,
    /// Their records, which the buckets name.
    Records,
}
