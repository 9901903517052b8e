//! What an application sees: options, results, counts, errors.

use crate::admission::Coordination;
use crate::choose::{Policy, Predictor, last_heartbeat};
pub use remora_fabric::detect::Wanted;
pub use remora_fabric::verbs::{Mtu, Packets};
pub use remora_fabric::{Address, Wake};
pub use remora_layout::database::Database;
use remora_layout::limits::DATA_BUFFER_BYTES;
use remora_protocol::{Condition, Expiry};
use std::path::PathBuf;
use std::time::Duration;

/// How an application asks for a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Path {
    /// Always by message.
    Ask,
    /// By READs: a cached pointer, else bucket and record; asks only when
    /// reading cannot conclude.
    Read,
    /// As the session's [`Policy`] says.
    #[default]
    Choose,
}

/// Where a session keeps pointers to records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PointerCacheKind {
    /// Nowhere: each key is asked for, or walked to.
    Off,
    /// In memory of its own.
    #[default]
    Private,
    /// In one table for all sessions that this user has with this server on
    /// this machine over this kind of transport (HydraDB 4.2.4, H28), and
    /// nowhere else: over shared memory the server's, else a file that the
    /// clients make. Whoever shares it can mislead the others' READs, which
    /// then fail validation and are asked. A server that isolates its clients
    /// has none (H29): connecting fails with `ConnectError::NoPointerSharing`.
    /// If the file cannot be had, it fails with `ConnectError::PointerFile`.
    Shared,
}

/// Options of a session.
#[derive(Clone, Debug)]
pub struct Options {
    /// What carries the session; [`Wanted::Auto`] takes the best that both
    /// sides have.
    pub transport: Wanted,
    /// How the session waits for replies.
    pub wake: Wake,
    /// The database of the session's keys.
    pub database: Database,
    /// Where pointers to records are kept.
    pub pointer_cache: PointerCacheKind,
    /// Most pointers that a private cache keeps; 0 is as good as `Off`.
    pub pointer_cache_entries: usize,
    /// Where the file of shared pointers lies, which is needed over TCP: a
    /// directory of this user's alone, best in memory; made if it is missing.
    /// `None`: `$XDG_RUNTIME_DIR/remora`, else `/dev/shm/remora-UID`.
    pub pointer_directory: Option<PathBuf>,
    /// Leases are taken to last at least this long (benches only: leases long
    /// enough for the run); `None` takes the server's word.
    pub lease: Option<Duration>,
    /// Memory for large replies that the process registers over RDMA on a
    /// machine without limits, in bytes: `S` of RDMA_Mongo's formula (1), which
    /// gives less on a loaded machine ([`crate::DataBufferCounts`]). One reply
    /// at a time always may have what it needs.
    pub data_buffer_bytes: usize,
    /// Over RDMA: traffic class, service level, partition and length of what
    /// this process sends.
    pub rdma_packets: Packets,
    /// How [`Path::Choose`] is decided.
    pub policy: Policy,
    /// By what Catfish's two policies predict the server's load.
    pub predictor: Predictor,
    /// How many threads may walk trees at a time by READs.
    pub coordination: Coordination,
    /// How long an operation may wait for its reply.
    pub timeout: Duration,
    /// How long to come again to a server that is busy with connecting others.
    pub connect_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            transport: Wanted::Auto,
            wake: Wake::Hybrid,
            database: Database::ZERO,
            pointer_cache: PointerCacheKind::default(),
            pointer_cache_entries: 1 << 20,
            pointer_directory: None,
            lease: None,
            data_buffer_bytes: DATA_BUFFER_BYTES,
            rdma_packets: Packets::default(),
            policy: Policy::default(),
            predictor: last_heartbeat,
            coordination: Coordination::default(),
            timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(30),
        }
    }
}

/// How a result was come by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Via {
    /// The server was asked, at once.
    Asked,
    /// Read, without any retry.
    Read,
    /// Read after this many retries.
    ReadAfter(u32),
    /// Reading did not conclude; the server was asked after all.
    AskedAfterRead,
}

impl Via {
    /// Read, after this many READs in vain.
    pub(crate) const fn read_after(tries: u32) -> Self {
        if tries == 0 { Self::Read } else { Self::ReadAfter(tries) }
    }
}

/// What a batch calls once for each key: the key's index, its value if it
/// exists, and how it was come by.
pub type Each<'e> = dyn FnMut(usize, Option<&[u8]>, Via) + 'e;

/// What the sessions of a process have put into the rings of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendCounts {
    /// Frames.
    pub frames: u64,
    /// WRITEs with their wake-ups, each of one frame or several.
    pub doorbells: u64,
    /// Those of the frames that a session had handed over to another one's thread.
    pub handed_over: u64,
}

/// What one operation, or a whole session, cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Operations.
    pub operations: u64,
    /// Dependent trips over the fabric: a READ batch or a request with its reply.
    pub round_trips: u64,
    /// Bytes that crossed the fabric, frames and records with their headers.
    pub bytes: u64,
    /// Buckets and records that were fetched.
    pub nodes: u64,
    /// Operations that the server answered.
    pub asked: u64,
    /// Operations concluded by READs alone.
    pub read: u64,
    /// Lookups that found a pointer in the cache.
    pub hits: u64,
    /// READs through a cached pointer that found a dead or other record.
    pub stale: u64,
    /// READs repeated because they were torn, or led to a bucket that the key
    /// had left by a split.
    pub retries: u64,
    /// Cached pointers not used because their lease had ended.
    pub lease_expired: u64,
    /// Operations asked because the reading right had lapsed; and times that a
    /// search of a tree renewed it by a small request, to go on reading.
    pub right_lapsed: u64,
    /// Operations asked to renew the lease of a pointer that could be read.
    pub renewals: u64,
    /// Operations asked because a write of the session to the same shard was
    /// unanswered.
    pub behind_writes: u64,
    /// Operations asked because READs did not decide: they met no record of
    /// the key, one that may have expired or is not durable yet, or too many
    /// that were torn.
    pub undecided: u64,
}

impl Counts {
    /// Adds another operation's counts.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.round_trips += other.round_trips;
        self.bytes += other.bytes;
        self.nodes += other.nodes;
        self.asked += other.asked;
        self.read += other.read;
        self.hits += other.hits;
        self.stale += other.stale;
        self.retries += other.retries;
        self.lease_expired += other.lease_expired;
        self.right_lapsed += other.right_lapsed;
        self.renewals += other.renewals;
        self.behind_writes += other.behind_writes;
        self.undecided += other.undecided;
    }
}

impl Counts {
    /// What came since `before`, an earlier reading of the same counts.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            operations: self.operations - before.operations,
            round_trips: self.round_trips - before.round_trips,
            bytes: self.bytes - before.bytes,
            nodes: self.nodes - before.nodes,
            asked: self.asked - before.asked,
            read: self.read - before.read,
            hits: self.hits - before.hits,
            stale: self.stale - before.stale,
            retries: self.retries - before.retries,
            lease_expired: self.lease_expired - before.lease_expired,
            right_lapsed: self.right_lapsed - before.right_lapsed,
            renewals: self.renewals - before.renewals,
            behind_writes: self.behind_writes - before.behind_writes,
            undecided: self.undecided - before.undecided,
        }
    }
}

/// The result of a GET.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Got<'s> {
    /// The value, if the key exists. Valid until the session is used again.
    pub value: Option<&'s [u8]>,
    /// How it was come by.
    pub via: Via,
    /// What it cost.
    pub counts: Counts,
}

/// Options of a SET.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetOptions {
    /// When to set.
    pub condition: Condition,
    /// What happens to the expiry.
    pub expiry: Expiry,
}

/// A request that was sent and whose reply has not been taken yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Ticket(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_differences_are_what_was_added() {
        let counts = |from: u64| Counts {
            operations: from,
            round_trips: from + 1,
            bytes: from + 2,
            nodes: from + 3,
            asked: from + 4,
            read: from + 5,
            hits: from + 6,
            stale: from + 7,
            retries: from + 8,
            lease_expired: from + 9,
            right_lapsed: from + 10,
            renewals: from + 11,
            behind_writes: from + 12,
            undecided: from + 13,
        };
        let (before, more) = (counts(100), counts(7));
        let mut sum = before;
        sum.add(&more);
        assert_eq!((sum.operations, sum.bytes, sum.right_lapsed), (107, 111, 127));
        assert_eq!(sum.since(&before), more);
        assert_eq!(sum.since(&more), before);
        assert_eq!(sum.since(&sum), Counts::default());
    }
}
