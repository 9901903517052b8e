//! The state of a session with a replica at its other end.

use remora_arena::Journal;
use remora_engine::{Now, Shard};
use remora_layout::limits::{COPY_BLOCKED_S, FEED_WAKE_BYTES};
use remora_replica::{Feed, Urgency};

/// What was sent to a replica and heard from it, since it asked for the log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FeedCounts {
    /// Messages, each of them one WRITE.
    pub messages: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Messages for which the replica's thread was to be woken, if it slept. Over a network those for
    /// which it would be over shared memory.
    pub wakes: u64,
    /// Acknowledgements.
    pub acknowledgements: u64,
}

impl FeedCounts {
    /// Adds those of another shard or replica.
    pub fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.wakes += other.wakes;
        self.acknowledgements += other.acknowledgements;
    }
}

/// A replica's feed, and whether it waits for credit.
pub(super) struct ReplicaFeed {
    pub feed: Feed,
    /// The replica's port for RESP, as it says.
    pub port: u16,
    /// The number of its process.
    pub replica: u64,
    pub is_blocked: bool,
    /// Since when, s after the start of the server.
    pub blocked_since_s: u64,
    /// It takes nothing more out of its ring, or its link is lost: what lies there from now on is not
    /// stored.
    pub has_left: bool,
    /// Scratch memory of a message.
    pub message: Vec<u8>,
    /// Bytes that were sent since the replica's thread was last woken.
    pub unseen_bytes: usize,
    /// When that was, Unix ms.
    pub woken_ms: u64,
    pub counts: FeedCounts,
}

impl ReplicaFeed {
    /// Whether the replica's thread is to be woken for the message, which is about to be sent.
    pub fn must_wake(&mut self, urgency: Urgency, now: Now) -> bool {
        self.unseen_bytes += self.message.len();
        let wakes = urgency == Urgency::Now
            || self.unseen_bytes >= FEED_WAKE_BYTES
            || self.woken_ms != now.unix_ms;
        if wakes {
            (self.unseen_bytes, self.woken_ms) = (0, now.unix_ms);
        }
        wakes
    }

    /// There is no credit for the next message. Whether that is news. A copy that has waited for too
    /// long is given up.
    pub fn block<J: Journal>(&mut self, shard: &mut Shard<J>, now: Now) -> bool {
        if !std::mem::replace(&mut self.is_blocked, true) {
            self.blocked_since_s = now.since_start_s;
            return true;
        }
        let waited_s = now.since_start_s.saturating_sub(self.blocked_since_s);
        if waited_s >= COPY_BLOCKED_S && self.feed.is_copying() {
            tracing::warn!("a replica has taken nothing of its copy for {waited_s} s: it ends");
            self.feed.give_up_copy(shard);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_arena::{NoJournal, Owner};
    use remora_engine::ShardOptions;
    use remora_protocol::replication::Follow;
    use remora_replica::{AskFor, FollowEvent, Follower};
    use zerocopy::FromZeros;

    fn at(since_start_s: u64) -> Now {
        Now { unix_ms: 1, since_start_s }
    }

    fn feed(shard: &mut Shard) -> ReplicaFeed {
        ReplicaFeed {
            feed: Feed::begin((shard, 1), &Follow::new_zeroed(), AskFor::Some),
            port: 0,
            replica: 0,
            is_blocked: false,
            blocked_since_s: 0,
            has_left: false,
            message: Vec::new(),
            unseen_bytes: 0,
            woken_ms: 0,
            counts: FeedCounts::default(),
        }
    }

    fn shard() -> Shard {
        Shard::new(Owner::heap(8 << 20, NoJournal), ShardOptions::default())
    }

    #[test]
    fn a_replica_is_woken_once_a_millisecond_and_for_what_cannot_wait() {
        let mut of = feed(&mut shard());
        let mut wakes = |bytes: usize, urgency, unix_ms| {
            of.message = vec![0; bytes];
            of.must_wake(urgency, Now { unix_ms, since_start_s: 0 })
        };
        use Urgency::{Now as At, Soon};
        assert!(wakes(100, Soon, 7), "the first one after a while");
        assert!(!wakes(100, Soon, 7) && !wakes(100, Soon, 7));
        assert!(wakes(100, Soon, 8));
        assert!(!wakes(100, Soon, 8));
        assert!(wakes(10, At, 8), "the primary waits for it");
        let half = FEED_WAKE_BYTES / 2;
        assert!(!wakes(half, Soon, 8) && wakes(half, Soon, 8), "the ring must not fill");
        assert!(!wakes(half, Soon, 8), "they were told of");
        assert!(wakes(1, Soon, 3), "the clock was set back");
    }

    #[test]
    fn a_copy_that_is_not_taken_makes_room_for_others_after_a_while() {
        let mut shard = shard();
        for key in 0..20_000u32 {
            let key = key.to_le_bytes();
            let append = remora_protocol::Command::Append { key: &key, value: b"value" };
            let hash = shard.hash(&key);
            shard.execute(&append, hash, at(1));
        }
        let (mut of, mut follower) = (feed(&mut shard), Follower::default());
        for _ in 0..2 {
            let mut message = Vec::new();
            of.feed.next_message(&mut shard, at(1), &mut message);
            follower.hear(&message).unwrap();
        }
        assert!(of.feed.is_copying());
        assert!(of.block(&mut shard, at(1)));
        assert!(!of.block(&mut shard, at(COPY_BLOCKED_S)));
        // It goes on, and blocks again: that is another while.
        of.is_blocked = false;
        assert!(of.block(&mut shard, at(20)));
        assert!(!of.block(&mut shard, at(19 + COPY_BLOCKED_S)));
        assert!(shard.begin_snapshot().is_err(), "it is open for the copy");
        assert!(!of.block(&mut shard, at(20 + COPY_BLOCKED_S)));
        assert!(!of.feed.is_copying());
        assert_eq!(shard.begin_snapshot(), Ok(()));
        let mut message = Vec::new();
        of.feed.next_message(&mut shard, at(60), &mut message);
        assert_eq!(follower.hear(&message), Ok(FollowEvent::Lost { is_same_log: true }));
        assert_eq!(follower.ask(0).next.get(), 0, "it asks for a copy anew");
    }
}
