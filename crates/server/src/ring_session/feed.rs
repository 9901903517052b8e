//! A replica at the other end of a session: instead of replies it gets the log of the shard.
//!
//! Invariants:
//! * messages go into the response ring of the client's first ring set, in order, as long as there is
//!   credit; the shard never waits for it, and keeps nothing for it beside its log;
//! * an entry counts as stored at the replica once the WRITE that carries it has completed.

use super::replica_feed::{FeedCounts, ReplicaFeed};
use super::{RingSession, SessionError};
use crate::peer::Peer;
use remora_arena::{Journal, Words};
use remora_engine::{Now, Shard};
use remora_fabric::Link;
use remora_layout::limits::{FEED_BYTES, FEED_MESSAGES_PER_TURN};
use remora_layout::session::CLIENT_LEFT_WORD;
use remora_protocol::replication::{Acknowledge, Follow, RefusalReason};
use remora_replica::Feed;
use zerocopy::FromBytes;

/// The ring set of a replica, which has no other.
const SET: usize = 0;

impl RingSession {
    /// Whether a replica is at the other end.
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.feed.is_some()
    }

    /// The client asks for the log of the shard.
    pub(super) fn follow(
        &mut self,
        shard: &mut Shard<impl Journal>,
        body: &[u8],
    ) -> Result<(), SessionError> {
        let follow = Follow::read_from_bytes(body).map_err(|_| SessionError::Feed)?;
        self.end_feed(shard);
        let feed = match shard.is_applying() {
            _ if !self.may_follow() => {
                let why = "the replica's user there may not do all (~* &* +@all)";
                Feed::refused(RefusalReason::NoPermission, why)
            }
            true => {
                let why = self.roles.as_ref().map(|roles| roles.refusal()).unwrap_or_default();
                Feed::refused(RefusalReason::IsReplica, &why)
            }
            false => {
                shard.keep_log(self.backlog_bytes);
                Feed::begin((shard, self.arenas.len()), &follow, self.ask_for)
            }
        };
        self.replies.link.await_writes(self.shard);
        let port = u16::try_from(follow.port.get()).unwrap_or(0);
        self.feed = Some(Box::new(ReplicaFeed {
            feed,
            port,
            replica: follow.replica.get(),
            is_blocked: false,
            blocked_since_s: 0,
            has_left: false,
            message: Vec::new(),
            unseen_bytes: 0,
            woken_ms: 0,
            counts: FeedCounts::default(),
        }));
        Ok(())
    }

    /// The server becomes a replica: its log is not followed any more.
    pub(crate) fn refuse_replica(&mut self, shard: &mut Shard<impl Journal>, why: &str) {
        if let Some(of) = &mut self.feed {
            of.feed.end(shard);
            of.feed = Feed::refused(RefusalReason::IsReplica, why);
        }
    }

    /// The replica says how far it has come.
    pub(super) fn acknowledge(
        &mut self,
        shard: &mut Shard<impl Journal>,
        body: &[u8],
    ) -> Result<(), SessionError> {
        let told = Acknowledge::read_from_bytes(body).map_err(|_| SessionError::Feed)?;
        let Some(of) = &mut self.feed else { return Err(SessionError::Feed) };
        of.counts.acknowledgements += 1;
        of.feed.take(shard, told).map_err(|_| SessionError::Feed)
    }

    /// Whether the feed waited for credit, and there is some.
    pub(super) fn may_feed(&self) -> bool {
        let is_blocked = self.feed.as_ref().is_some_and(|of| of.is_blocked);
        is_blocked && self.replies.may_flush(SET)
    }

    /// Whether the next feeding works on a copy for the replica.
    #[inline]
    pub fn may_copy(&self) -> bool {
        let copying = self.feed.as_ref().filter(|of| of.feed.has_copy());
        copying.is_some_and(|of| !of.is_blocked || self.replies.may_flush(SET))
    }

    /// Whether WRITEs to the replica have completed since they were last looked at.
    pub fn has_stored(&self) -> bool {
        let of = self.feed.as_ref().filter(|of| !of.has_left);
        let log = of.and_then(|of| of.feed.log());
        log.is_some_and(|log| log.under_way() > 0) && self.replies.link.has_completed()
    }

    /// Sends the replica what is new in the log, a bounded number of messages. Whether there is more
    /// to send now.
    pub fn feed_some(
        &mut self,
        shard: &mut Shard<impl Journal>,
        now: Now,
    ) -> Result<bool, SessionError> {
        let Some(mut of) = self.feed.take() else { return Ok(false) };
        let fed = self.feed_from(&mut of, shard, now);
        self.feed = Some(of);
        fed
    }

    fn feed_from(
        &mut self,
        of: &mut ReplicaFeed,
        shard: &mut Shard<impl Journal>,
        now: Now,
    ) -> Result<bool, SessionError> {
        self.take_completed(of);
        of.feed.give_up_lag(shard);
        if of.has_left {
            return Ok(false);
        }
        for _ in 0..FEED_MESSAGES_PER_TURN {
            if !of.feed.has_news(shard) {
                return Ok(false);
            }
            if !self.replies.has_room(SET, FEED_BYTES)? {
                if of.block(shard, now) {
                    self.replies.say_stuck(SET, 1);
                    self.replies.wake(SET)?;
                }
                return Ok(false);
            }
            if std::mem::take(&mut of.is_blocked) {
                self.replies.say_stuck(SET, 0);
            }
            of.message.clear();
            let urgency = of.feed.next_message(shard, now, &mut of.message);
            if of.message.is_empty() {
                // A copy that has swept a part without keys goes on in the next turn.
                return Ok(!of.feed.waits());
            }
            of.counts.messages += 1;
            of.counts.bytes += of.message.len() as u64;
            let wakes = of.must_wake(urgency, now);
            of.counts.wakes += u64::from(wakes);
            of.feed.posted(self.replies.send_alone(SET, (&of.message, wakes))?);
            self.take_completed(of);
        }
        Ok(of.feed.has_news(shard))
    }

    /// Whether the replica waits for something that no turn brings about.
    pub fn feed_waits(&self) -> bool {
        self.feed.as_ref().is_some_and(|of| of.feed.waits())
    }

    /// Counts the WRITEs that have completed as stored.
    fn take_completed(&mut self, of: &mut ReplicaFeed) {
        let writes = self.replies.completed_writes();
        // Over shared memory a WRITE completes whether or not somebody is there: either the replica
        // has seen it before it left, or this sees that it has left.
        Words::full_fence();
        of.has_left |= self.to_server.load_acquire(CLIENT_LEFT_WORD) != 0;
        of.has_left |= self.replies.link.failure().is_some();
        if !of.has_left {
            of.feed.completed(writes);
        }
    }

    /// The session ends, or begins another feed.
    pub(super) fn end_feed(&mut self, shard: &mut Shard<impl Journal>) {
        if let Some(mut of) = self.feed.take() {
            of.feed.end(shard);
        }
    }

    /// What the replica has of the log of the shard, once it follows.
    pub fn replica_positions(&self) -> Option<ReplicaPositions> {
        let of = self.feed.as_ref().filter(|of| !of.feed.is_over())?;
        let log = of.feed.log();
        Some(ReplicaPositions {
            session: self.session,
            replica: of.replica,
            peer: self.peer,
            port: of.port,
            stored: of.feed.stored().filter(|_| !of.has_left),
            durable: log.map_or(0, |log| log.told().durable.get()),
            applied: log.map_or(0, |log| log.told().applied.get()),
            state: if log.is_none() { ReplicaState::Copies } else { ReplicaState::Follows },
            counts: of.counts,
        })
    }
}

/// What a replica gets from one shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ReplicaState {
    /// A copy; it has nothing yet.
    Copies,
    /// The log.
    Follows,
}

/// How far a replica has come with the log of one shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaPositions {
    /// The session of the replica.
    pub session: u64,
    /// The number of its process: one that has come back has two sessions until the first ends. 0 if
    /// it does not say.
    pub replica: u64,
    /// Where it is.
    pub peer: Peer,
    /// Its port for RESP, as it says; 0 if it does not.
    pub port: u16,
    /// The last entry that counts as stored; `None` while it gets a copy, and once it has left.
    pub stored: Option<u64>,
    /// The last entry on its disk, as it said; 0 without one.
    pub durable: u64,
    /// The last entry that it has applied, as it said.
    pub applied: u64,
    /// What it gets.
    pub state: ReplicaState,
    /// What was sent and heard.
    pub counts: FeedCounts,
}
