//! The primary's end: one shard's log on its way to one replica.
//!
//! Invariants:
//! * frames go out in the order of the log. After a failure they go out again from the first entry
//!   that failed (H38);
//! * an entry is *stored* once the WRITE of its last frame has completed: then it lies in the memory
//!   of the replica, whose thread need not have run;
//! * the log keeps every entry that the replica has not received, until the log's bound breaks the
//!   hold.

use remora_arena::Journal;
use remora_engine::{Now, Shard};
use remora_layout::limits::{ASK_ENTRIES, FEED_BYTES, FEED_ROOM_BYTES};
use remora_log::{Cursor, CursorError, Hold, Lost, outline};
use remora_protocol::replication::{Acknowledge, Echo, FEED_HEADER_BYTES, FeedHeader, FeedKind};
use std::collections::VecDeque;
use zerocopy::IntoBytes;

/// When the primary asks for an acknowledgement (H39).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AskFor {
    /// After some tens of entries, and when the ring is full (relaxed).
    #[default]
    Some,
    /// For each message (strict, the baseline of HydraDB's Fig. 13).
    Each,
}

impl AskFor {
    /// The name in configuration and INFO.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Some => "relaxed",
            Self::Each => "strict",
        }
    }
}

/// When the replica's thread has to look at a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// At once: the primary or a reader waits for what it does then.
    Now,
    /// With a later one, or its next heartbeat: entries of the log count as stored without it.
    Soon,
}

/// What no honest replica sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// It has entries that were not sent to it.
    #[error("a replica acknowledges sequence {told}, and was sent {sent}")]
    NotSent {
        /// What it says.
        told: u64,
        /// The last entry that was sent.
        sent: u64,
    },
    /// It has applied what it has not received, or has that on its disk, or goes back.
    #[error("the positions of a replica make no sense")]
    Order,
}

/// See the module's text.
pub struct LogSender {
    cursor: Cursor,
    hold: Option<Hold>,
    /// Places behind entries that were sent, some tens of entries apart, and the sequences of these
    /// entries: an acknowledgement moves the hold there without a search in the log.
    places: VecDeque<(u64, Cursor)>,
    /// The last entry that was sent whole.
    sent: u64,
    /// The greatest that it was, also before a roll back.
    most_sent: u64,
    /// The commit position that the replica knows.
    commit: u64,
    /// A heartbeat is to be answered with it, if it has grown.
    is_commit_due: bool,
    /// The newest clock of the replica that was echoed.
    echoed: u64,
    ask_for: AskFor,
    /// Entries since the last ask.
    unasked: u64,
    /// The last ask.
    asks: u32,
    /// Messages that are under way: the number of the WRITE, and the last entry.
    under_way: VecDeque<(u64, u64)>,
    /// The last entry that lies in the memory of the replica.
    stored: u64,
    /// What the replica said last.
    told: Acknowledge,
}

impl LogSender {
    /// For a replica that wants the entries from this sequence on.
    ///
    /// # Errors
    /// The log does not keep them, any more or yet.
    pub fn begin<J: Journal>(
        shard: &mut Shard<J>,
        next: u64,
        ask_for: AskFor,
    ) -> Result<Self, CursorError> {
        let cursor = shard.log().cursor(next)?;
        let hold = shard.hold_log(&cursor).ok();
        let before = next - 1;
        Ok(Self {
            cursor,
            hold,
            places: VecDeque::new(),
            sent: before,
            most_sent: before,
            commit: 0,
            is_commit_due: true,
            echoed: 0,
            ask_for,
            unasked: 0,
            asks: 0,
            under_way: VecDeque::new(),
            stored: before,
            told: Acknowledge {
                received: before.into(),
                applied: 0.into(),
                durable: 0.into(),
                failed: 0.into(),
                clock: 0.into(),
                ask: 0.into(),
                zero: 0.into(),
            },
        })
    }

    /// Whether there is something to send: entries, a commit position, or a clock of the replica. A
    /// commit position goes with the next entries; without any it answers a heartbeat of the replica,
    /// or goes once it has grown by some tens. A message of its own for each change would double the
    /// WRITEs.
    #[inline]
    pub fn has_news<J: Journal>(&self, shard: &Shard<J>) -> bool {
        let enough = if self.is_commit_due { 1 } else { ASK_ENTRIES };
        self.sent < shard.last_sequence()
            || self.commit + enough <= self.commit_of(shard)
            || self.echoed < self.told.clock.get()
    }

    /// The commit position that the replica may know: that of the entries that it has been sent.
    fn commit_of<J: Journal>(&self, shard: &Shard<J>) -> u64 {
        shard.durable_sequence().min(shard.last_sequence())
    }

    /// Writes the next message into `out`, which is empty: at most [`FEED_BYTES`]. The caller sends
    /// it, and says by which WRITE ([`LogSender::posted`]) and when that has completed
    /// ([`LogSender::completed`]). Returns when the replica has to look at it.
    ///
    /// # Errors
    /// The log has dropped what comes next.
    pub fn next_message<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        now: Now,
        out: &mut Vec<u8>,
    ) -> Result<Urgency, Lost> {
        let clock = self.told.clock.get();
        let (kind, before) = match self.echoed < clock {
            true => (FeedKind::Echo, FEED_HEADER_BYTES + size_of::<Echo>()),
            false => (FeedKind::Entries, FEED_HEADER_BYTES),
        };
        out.resize(before, 0);
        shard.log().read(&mut self.cursor, FEED_BYTES - before, out)?;
        if let Some(of) = outline(&out[before..]) {
            self.unasked += of.last + 1 - of.first;
            self.sent = of.last;
            self.most_sent = self.most_sent.max(self.sent);
            if of.ends_entry {
                self.note_place();
            }
        }
        // The clock came before the commit position is read: all that was committed when the replica
        // read its clock is within that position.
        self.echoed = self.echoed.max(clock);
        (self.commit, self.is_commit_due) = (self.commit_of(shard), false);
        let ask = self.ask();
        let header = FeedHeader {
            kind: kind as u8,
            zero: [0; 3],
            ask: ask.into(),
            commit: self.commit.into(),
        };
        out[..FEED_HEADER_BYTES].copy_from_slice(header.as_bytes());
        if kind == FeedKind::Echo {
            let echo = Echo { clock: clock.into(), time: now.unix_ms.into() };
            out[FEED_HEADER_BYTES..before].copy_from_slice(echo.as_bytes());
        }
        let is_awaited = kind == FeedKind::Echo || (ask != 0 && self.ask_for == AskFor::Each);
        Ok(if is_awaited { Urgency::Now } else { Urgency::Soon })
    }

    /// The cursor is behind the last entry that was sent. The newest place is always that one, those
    /// before it are some tens of entries apart.
    fn note_place(&mut self) {
        let before = self.places.len().checked_sub(2).map(|at| self.places[at].0);
        let is_near = before.is_some_and(|before| self.sent < before + ASK_ENTRIES);
        if is_near {
            self.places.pop_back();
        }
        self.places.push_back((self.sent, self.cursor));
    }

    /// The place behind the last entry up to this one for which there is one; those up to it are not
    /// needed any more.
    fn take_place(&mut self, received: u64) -> Option<Cursor> {
        let mut place = None;
        while let Some(&(sequence, cursor)) = self.places.front()
            && sequence <= received
        {
            self.places.pop_front();
            place = Some(cursor);
        }
        place
    }

    /// The last message went out by the WRITE with this number; they only grow.
    pub fn posted(&mut self, write: u64) {
        self.under_way.push_back((write, self.sent));
    }

    /// The number of the ask that the next message carries; 0 without one.
    fn ask(&mut self) -> u32 {
        let is_due = match self.ask_for {
            AskFor::Each => self.unasked > 0,
            AskFor::Some => self.unasked >= ASK_ENTRIES,
        };
        if !is_due {
            return 0;
        }
        self.unasked = 0;
        // 0 is no ask.
        self.asks = self.asks.wrapping_add(1).max(1);
        self.asks
    }

    /// The WRITEs up to this number have completed.
    pub fn completed(&mut self, write: u64) {
        while let Some(&(of, last)) = self.under_way.front()
            && of <= write
        {
            self.under_way.pop_front();
            self.stored = self.stored.max(last);
        }
    }

    /// The last entry that lies in the memory of the replica.
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// Messages whose WRITEs have not completed.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// What the replica said last.
    pub fn told(&self) -> &Acknowledge {
        &self.told
    }

    /// The replica acknowledges.
    ///
    /// # Errors
    /// See [`Violation`]; or, as `Ok(Err)`, the log has dropped the entry that failed.
    pub fn take<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        told: Acknowledge,
    ) -> Result<Result<(), Lost>, Violation> {
        let (received, applied) = (told.received.get(), told.applied.get());
        let durable = told.durable.get();
        if received > self.most_sent {
            return Err(Violation::NotSent { told: received, sent: self.most_sent });
        }
        let before = self.told;
        if applied > received
            || durable > received
            || received < before.received.get()
            || applied < before.applied.get()
            || told.clock.get() < before.clock.get()
        {
            return Err(Violation::Order);
        }
        // A heartbeat, and not the answer to an ask.
        self.is_commit_due |= told.ask == before.ask;
        self.told = told;
        // It lies there, whatever the transport has told.
        self.stored = self.stored.max(received);
        let failed = told.failed.get();
        if failed != 0 {
            if failed != received + 1 {
                return Err(Violation::Order);
            }
            return Ok(self.roll_back(shard, failed));
        }
        let place = self.take_place(received);
        if let (Some(hold), Some(cursor)) = (&self.hold, place) {
            // A hold that broke is noticed when it is read.
            let _ = shard.move_hold(hold, &cursor);
        }
        Ok(Ok(()))
    }

    /// Sends again from an entry on (H38).
    fn roll_back<J: Journal>(&mut self, shard: &Shard<J>, failed: u64) -> Result<(), Lost> {
        self.cursor = shard.log().cursor(failed).map_err(|error| match error {
            CursorError::Lost(lost) => lost,
            CursorError::Ahead { next } => Lost { oldest: next },
        })?;
        self.sent = failed - 1;
        // What came behind it was not taken: it comes again.
        self.under_way.clear();
        self.places.clear();
        self.stored = failed - 1;
        Ok(())
    }

    /// The log keeps nothing more for the replica if it has grown too long: changes are not to be
    /// refused for a replica that lags.
    pub fn give_up_lag<J: Journal>(&mut self, shard: &mut Shard<J>) {
        if shard.log().room_bytes() < FEED_ROOM_BYTES {
            self.end(shard);
        }
    }

    /// Ends it: the log keeps nothing more for the replica.
    pub fn end<J: Journal>(&mut self, shard: &mut Shard<J>) {
        if let Some(hold) = self.hold.take() {
            shard.release_log(hold);
        }
    }
}
