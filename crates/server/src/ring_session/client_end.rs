//! How the client and a shard find each other: at which ring sets there is
//! something, and whether the shard looks.
//!
//! Invariant: the server masks a client's ready bits to the ring sets that the client has; they
//! name rings to look at, nothing else. For a client over a network the mark is the server's own:
//! the thread that takes an immediate of the client sets it.

use remora_arena::Words;
use remora_fabric::shm::mark::ReadyMark;
use remora_fabric::shm::ready;
use remora_layout::limits::MAX_RING_SETS;
use remora_layout::session::{parked_word, ready_word};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// How client and shard wake each other.
pub enum ClientEnd {
    /// By ready bits and bells.
    Shm(ShmEnd),
    /// There is one ring set. Arriving data wakes the client; the thread that receives for it marks
    /// it as ready, and wakes the shard.
    Remote(RemoteEnd),
}

/// A client over a network, at one shard.
pub struct RemoteEnd {
    /// A mark for each shard; the thread that takes an immediate of the client sets it.
    pub marks: Arc<[ReadyMark]>,
    /// The shard's number.
    pub shard: usize,
    /// The side that stores the client's data.
    pub stored_by: StoredBy,
}

/// The side that stores the data of a client over a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoredBy {
    /// The shard's own thread: a frame never appears while it looks.
    OwnThread,
    /// The thread of another shard.
    OtherThread,
    /// A device: a frame is in memory before its immediate announces it.
    Device,
}

impl RemoteEnd {
    /// The end at this shard of a client whose immediates are not taken: there is no mark, and the
    /// shard finds requests by looking at the ring.
    pub fn unmarked(shard: usize) -> Self {
        let marks = (0..=shard).map(|_| ReadyMark::default()).collect();
        Self { marks, shard, stored_by: StoredBy::Device }
    }

    /// The client's mark at the shard.
    #[inline(always)]
    pub fn mark(&self) -> &ReadyMark {
        &self.marks[self.shard]
    }
}

/// The mailboxes of a client over shared memory, at one shard.
pub struct ShmEnd {
    /// Written by the client; the shard takes its ready bits there.
    pub to_server: Words,
    /// Written by the server; the shard says there that it does not look.
    pub to_client: Words,
    /// The shard's number.
    pub shard: usize,
    /// Ring sets in each mailbox.
    pub ring_sets: usize,
    /// The client's wake-up of the shard. Each client has its own, so that no other client can take
    /// a signal away, and the shard knows which client rang.
    pub eventfd: Arc<OwnedFd>,
}

impl ClientEnd {
    /// Ring sets of the client: a power of two.
    pub fn ring_sets(&self) -> usize {
        match self {
            Self::Shm(end) => end.ring_sets,
            Self::Remote(_) => 1,
        }
    }

    /// The two mailboxes, the client's first, if they are memory of both.
    pub fn mailboxes(&self) -> Option<(Words, Words)> {
        match self {
            Self::Shm(end) => Some((end.to_server.clone(), end.to_client.clone())),
            Self::Remote(_) => None,
        }
    }
}

impl ShmEnd {
    /// The client's wake-up of the shard.
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }

    /// The ring sets at which something is said to be.
    #[inline(always)]
    pub fn ready(&self) -> u64 {
        self.to_server.load(ready_word(self.shard)) & mask(self.ring_sets)
    }

    /// Takes these bits.
    #[inline(always)]
    pub fn take_ready(&self) -> u64 {
        ready::take(self.to_server.word(ready_word(self.shard))) & mask(self.ring_sets)
    }

    /// Parks: the shard stops looking at the ready bits, unless `scan` finds that it has to.
    /// Returns whether it parked.
    pub fn park(&self, scan: impl FnOnce() -> bool) -> bool {
        ready::park(self.to_client.word(parked_word(self.shard)), 1, scan)
    }

    /// The shard looks at the ready bits.
    pub fn unpark(&self) {
        ready::unpark(self.to_client.word(parked_word(self.shard)));
    }
}

/// The bits of so many ring sets.
fn mask(ring_sets: usize) -> u64 {
    u64::MAX >> (MAX_RING_SETS - ring_sets)
}
