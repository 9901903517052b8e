//! The state of a session with a replica at its other end.

use remora_replica::Feed;

/// What was sent to a replica and heard from it, since it asked for the log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FeedCounts {
    /// Messages, each of them one WRITE.
    pub messages: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Acknowledgements.
    pub acknowledgements: u64,
}

impl FeedCounts {
    /// Adds those of another shard or replica.
    pub fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.acknowledgements += other.acknowledgements;
    }
}

/// A replica's feed, and whether it waits for credit.
pub(super) struct ReplicaFeed {
    pub feed: Feed,
    /// The replica's port for RESP, as it says.
    pub port: u16,
    /// The number of its process.
    pub replica: u32,
    pub is_blocked: bool,
    /// It takes nothing more out of its ring, or its link is lost: what lies there from now on is not
    /// stored.
    pub has_left: bool,
    /// Scratch memory of a message.
    pub message: Vec<u8>,
    pub counts: FeedCounts,
}
