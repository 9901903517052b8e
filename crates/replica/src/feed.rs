//! What one shard of the primary sends to one replica: a copy of all that it has, if the replica
//! wants one, and its log (RDMA_Mongo 4.4: initial synchronisation, then steady state; M19 to M22).
//!
//! Invariant: a copy is exact at the sequence of its end ([`Shard::begin_snapshot`]), and the log
//! goes on with the next one. A copy that is interrupted is of no use; the replica asks anew. The
//! replica has stored nothing before it says that it has taken its copy whole.

use crate::send::{AskFor, LogSender, Urgency, Violation};
use remora_arena::Journal;
use remora_engine::{Now, ReplicaPosition, Resumption, Shard, SnapshotTurn};
use remora_layout::limits::{FEED_BYTES, FEED_REASON_BYTES};
use remora_log::{CursorError, Lost};
use remora_protocol::replication::{
    Acknowledge, Begins, FEED_HEADER_BYTES, FeedHeader, FeedKind, Follow, HAS_MORE, LostLog,
    RefusalReason, UNKNOWN_EPOCH,
};
use std::collections::VecDeque;
use zerocopy::IntoBytes;

/// See the module's text.
pub struct Feed {
    stage: Stage,
    /// The answer to the request, until it is sent: the last message of it. What comes before is the
    /// tail of the log that the replica has followed.
    answer: VecDeque<Vec<u8>>,
    ask_for: AskFor,
    /// The replica has what comes before the log. If that is a copy, it has said so: with its link
    /// it would lose the part that it has not taken out of its ring.
    has_begun: bool,
}

enum Stage {
    /// The shard writes a snapshot for the replica.
    Copying(Copy),
    /// The log.
    Shipping(LogSender),
    /// The replica has to ask anew.
    Lost,
}

#[derive(Default)]
struct Copy {
    /// The shard has begun; before that, another snapshot is under way.
    has_begun: bool,
    /// What the shard has written and that is not sent.
    written: Vec<u8>,
    sent: usize,
    /// It waits for something else than room: another snapshot, or a load of a client.
    waits: bool,
    /// What follows the copy, once it is complete.
    ended: Option<(u64, LogSender)>,
}

impl Feed {
    /// Begins what a replica has asked for, at a primary with so many shards.
    pub fn begin<J: Journal>(
        (shard, shards): (&mut Shard<J>, usize),
        follow: &Follow,
        ask_for: AskFor,
    ) -> Self {
        let (key, epoch) = (shard.log().key().to_word(), shard.log().epoch());
        let next = follow.next.get();
        let begins = begins_of(shard, shards, (next, next.saturating_sub(1)));
        let begun = |stage, begins: Begins| Self {
            stage,
            answer: [message(FeedKind::Begins, begins.as_bytes())].into(),
            ask_for,
            has_begun: next != 0,
        };
        let is_same_log = follow.key.get() == key;
        if next == 0 && (is_same_log || follow.key.get() == 0) {
            return begun(Stage::Copying(Copy::default()), begins);
        }
        let goes_on = is_same_log && follow.epoch.get() == epoch;
        let is_former = match shard.history().of {
            None => is_same_log && !goes_on,
            Some(former) => former == follow.key.get(),
        };
        let resumption = match () {
            () if goes_on => Some(match next <= shard.own_since() {
                // What it has followed went away, when this shard followed another one.
                true => Resumption::Copy,
                false => Resumption::From { kept: next - 1 },
            }),
            () if is_former => Some(shard.history().resumption(ReplicaPosition {
                epoch: follow.epoch.get(),
                received: next.saturating_sub(1),
                committed: follow.committed.get(),
                copied: follow.copied.get(),
            })),
            () if is_same_log => Some(Resumption::Unknown),
            () => None,
        };
        if let Some(Resumption::From { kept } | Resumption::Tail { kept }) = resumption {
            let next = if goes_on { next } else { shard.history().first };
            if let Ok(sender) = LogSender::begin(shard, next, ask_for) {
                let former = shard.history().of.filter(|_| !goes_on).unwrap_or(0);
                let begins = begins_of(shard, shards, (next, kept));
                let begins = Begins { former: former.into(), ..begins };
                let mut feed = begun(Stage::Shipping(sender), begins);
                if let Some(Resumption::Tail { .. }) = resumption {
                    feed.send_tail(shard, follow.next.get() - 1, kept);
                }
                return feed;
            }
        }
        let oldest = shard.log().oldest_sequence();
        let (is_same_log, oldest) = match resumption {
            None => (0, oldest),
            Some(Resumption::From { .. } | Resumption::Tail { .. } | Resumption::Copy) => {
                (1, oldest)
            }
            Some(Resumption::HasMore { kept }) => (HAS_MORE, kept),
            Some(Resumption::Unknown) => (UNKNOWN_EPOCH, oldest),
        };
        let lost = LostLog { is_same_log: is_same_log.into(), oldest: oldest.into() };
        let answer = [message(FeedKind::Lost, lost.as_bytes())].into();
        Self { stage: Stage::Lost, answer, ask_for, has_begun: true }
    }

    /// Before its answer the replica gets what it lacks of the log that it has followed, up to `kept`.
    fn send_tail<J: Journal>(&mut self, shard: &Shard<J>, received: u64, kept: u64) {
        let pieces = shard.history().tail_behind(received).unwrap_or_default();
        for (at, piece) in pieces.iter().enumerate() {
            // All of it is applied here.
            let header = FeedHeader {
                kind: FeedKind::Entries as u8,
                zero: [0; 3],
                ask: 0.into(),
                commit: kept.into(),
            };
            self.answer.insert(at, [header.as_bytes(), &piece.frames].concat());
        }
    }

    /// The server's log is not to be followed, with the reason as a text for people: nothing else
    /// is sent any more.
    pub fn refused(reason: RefusalReason, text: &str) -> Self {
        let mut end = text.len().min(FEED_REASON_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let body = [&(reason as u32).to_le_bytes(), &text.as_bytes()[..end]].concat();
        let answer = [message(FeedKind::Refused, &body)].into();
        Self { stage: Stage::Lost, answer, ask_for: AskFor::default(), has_begun: false }
    }

    /// Whether the replica gets nothing, before it asks again.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Lost)
    }

    /// Whether there is something to send.
    #[inline]
    pub fn has_news<J: Journal>(&self, shard: &Shard<J>) -> bool {
        !self.answer.is_empty()
            || match &self.stage {
                Stage::Copying(_) => true,
                Stage::Shipping(sender) => sender.has_news(shard),
                Stage::Lost => false,
            }
    }

    /// Whether a copy waits for something that no turn of the feed brings about: the caller tries
    /// again later.
    #[inline]
    pub fn waits(&self) -> bool {
        matches!(&self.stage, Stage::Copying(Copy { waits: true, .. }))
    }

    /// Writes the next message into `out`, which is empty: at most [`FEED_BYTES`]. It stays empty
    /// if a copy has nothing to send yet. Returns when the replica has to look at it.
    pub fn next_message<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        now: Now,
        out: &mut Vec<u8>,
    ) -> Urgency {
        if let Some(answer) = self.answer.pop_front() {
            *out = answer;
            return Urgency::Now;
        }
        match &mut self.stage {
            Stage::Copying(copy) => match copy.next_message(shard, (now, self.ask_for), out) {
                Ok(Some(sender)) => self.stage = Stage::Shipping(sender),
                Ok(None) => {}
                Err(lost) => self.lose(shard, lost, out),
            },
            Stage::Shipping(sender) => match sender.next_message(shard, now, out) {
                Ok(urgency) => return urgency,
                Err(lost) => {
                    out.clear();
                    self.lose(shard, lost, out);
                }
            },
            Stage::Lost => {}
        }
        Urgency::Now
    }

    fn lose<J: Journal>(&mut self, shard: &mut Shard<J>, lost: Lost, out: &mut Vec<u8>) {
        self.end(shard);
        self.stage = Stage::Lost;
        let lost = LostLog { is_same_log: 1.into(), oldest: lost.oldest.into() };
        *out = message(FeedKind::Lost, lost.as_bytes());
    }

    /// The shard has grown its log: nothing more is kept for a replica that lags too far.
    pub fn give_up_lag<J: Journal>(&mut self, shard: &mut Shard<J>) {
        if let Stage::Shipping(sender) = &mut self.stage {
            sender.give_up_lag(shard);
        }
    }

    /// The last message went out by the WRITE with this number; they only grow.
    pub fn posted(&mut self, write: u64) {
        if let Stage::Shipping(sender) = &mut self.stage {
            sender.posted(write);
        }
    }

    /// The WRITEs up to this number have completed.
    pub fn completed(&mut self, write: u64) {
        if let Stage::Shipping(sender) = &mut self.stage {
            sender.completed(write);
        }
    }

    /// The last entry that counts as stored by the replica, and with it the copy before it; `None`
    /// until there is one. Relaxed, it lies in the memory of the replica; strict, the replica's
    /// thread has said so.
    pub fn stored(&self) -> Option<u64> {
        let sender = self.log().filter(|_| self.has_begun)?;
        Some(match self.ask_for {
            AskFor::Some => sender.stored(),
            AskFor::Each => sender.told().received.get(),
        })
    }

    /// The log on its way, once there is no copy under way.
    pub fn log(&self) -> Option<&LogSender> {
        match &self.stage {
            Stage::Shipping(sender) => Some(sender),
            Stage::Copying(_) | Stage::Lost => None,
        }
    }

    /// The replica acknowledges.
    ///
    /// # Errors
    /// It says what no honest replica says.
    pub fn take<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        told: Acknowledge,
    ) -> Result<(), Violation> {
        let Stage::Shipping(sender) = &mut self.stage else { return Ok(()) };
        // It acknowledges only entries behind a copy that it has taken whole.
        self.has_begun = true;
        if let Err(lost) = sender.take(shard, told)? {
            let mut answer = Vec::new();
            self.lose(shard, lost, &mut answer);
            self.answer = [answer].into();
        }
        Ok(())
    }

    /// Whether the replica gets a copy.
    #[inline]
    pub fn has_copy(&self) -> bool {
        matches!(self.stage, Stage::Copying(_))
    }

    /// Whether the snapshot of the shard is open for a copy.
    pub fn is_copying(&self) -> bool {
        matches!(self.stage, Stage::Copying(Copy { has_begun: true, ended: None, .. }))
    }

    /// Ends a copy that the replica does not take: the snapshot of the shard is for others, and the
    /// replica has to ask anew.
    pub fn give_up_copy<J: Journal>(&mut self, shard: &mut Shard<J>) {
        let mut answer = Vec::new();
        self.lose(shard, Lost { oldest: shard.last_sequence() + 1 }, &mut answer);
        self.answer = [answer].into();
    }

    /// Ends it: the shard keeps nothing more for the replica.
    pub fn end<J: Journal>(&mut self, shard: &mut Shard<J>) {
        match std::mem::replace(&mut self.stage, Stage::Lost) {
            Stage::Copying(Copy { ended: Some((_, mut sender)), .. })
            | Stage::Shipping(mut sender) => sender.end(shard),
            Stage::Copying(Copy { has_begun: true, .. }) => shard.abandon_snapshot(),
            Stage::Copying(_) | Stage::Lost => {}
        }
    }
}

impl Copy {
    /// The next part. Returns the sender of the log behind it, once the end of the copy is written.
    fn next_message<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (now, ask_for): (Now, AskFor),
        out: &mut Vec<u8>,
    ) -> Result<Option<LogSender>, Lost> {
        if !self.has_begun {
            self.has_begun = shard.begin_snapshot().is_ok();
            self.waits = !self.has_begun;
            if !self.has_begun {
                return Ok(None);
            }
        }
        if self.sent == self.written.len() && self.ended.is_none() {
            (self.sent, self.written) = (0, Vec::new());
            let turn = shard.snapshot_turn(now);
            shard.take_snapshot(&mut self.written);
            self.waits = turn == SnapshotTurn::Waits;
            match turn {
                SnapshotTurn::Ended { sequence } => {
                    let sender = LogSender::begin(shard, sequence + 1, ask_for);
                    self.ended = Some((sequence, sender.map_err(lost_of)?));
                }
                SnapshotTurn::GivenUp => return Err(Lost { oldest: shard.last_sequence() + 1 }),
                SnapshotTurn::More | SnapshotTurn::Waits | SnapshotTurn::Full => {}
            }
        }
        let left = &self.written[self.sent..];
        if !left.is_empty() {
            let part = &left[..left.len().min(FEED_BYTES - FEED_HEADER_BYTES)];
            *out = message(FeedKind::Copy, part);
            self.sent += part.len();
            return Ok(None);
        }
        Ok(self.ended.take().map(|(sequence, sender)| {
            *out = message(FeedKind::Copied, &sequence.to_le_bytes());
            sender
        }))
    }
}

fn begins_of<J: Journal>(shard: &Shard<J>, shards: usize, (next, kept): (u64, u64)) -> Begins {
    Begins {
        key: shard.log().key().to_word().into(),
        epoch: shard.log().epoch().into(),
        next: next.into(),
        kept: kept.into(),
        former: 0.into(),
        arena_bytes: shard.memory_bytes().into(),
        used_bytes: shard.used_bytes().into(),
        keys: shard.keys().into(),
        shards: (shards as u32).into(),
        zero: 0.into(),
    }
}

fn lost_of(error: CursorError) -> Lost {
    match error {
        CursorError::Lost(lost) => lost,
        CursorError::Ahead { next } => Lost { oldest: next },
    }
}

fn message(kind: FeedKind, body: &[u8]) -> Vec<u8> {
    let header = FeedHeader { kind: kind as u8, zero: [0; 3], ask: 0.into(), commit: 0.into() };
    [header.as_bytes(), body].concat()
}
