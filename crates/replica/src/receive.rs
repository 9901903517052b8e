//! The replica's end: the log of one shard of the primary, as its messages come out of the ring.
//!
//! Invariants:
//! * entries come out in order, each once, whole, and none behind the commit position;
//! * what was received intact stays: a message that does not follow on the last one names the entry
//!   that is missing, and changes nothing else. What comes twice does nothing;
//! * bytes that wait for their commit position are bounded. While they are at their bound, the
//!   caller takes nothing out of the ring, and the primary has to wait.

use crate::lag::{FreshAt, Freshness, Mark};
use remora_engine::TailPiece;
use remora_layout::limits::{
    FEED_TAIL_BYTES, FEED_WAITING_BYTES, LOG_HELD_BYTES, MAX_EPOCH, MAX_SEQUENCE,
};
use remora_log::{
    AssembleError, Assembler, FrameError, Frames, KnownLog, LogKey, OwnedEntry, Parts,
};
use remora_protocol::replication::{Acknowledge, Echo, FEED_HEADER_BYTES, FeedHeader, FeedKind};
use std::collections::VecDeque;
use zerocopy::FromBytes;

/// No clock shows more, Unix ms: sums of times do not overflow.
const MAX_TIME_MS: u64 = 1 << 48;

/// Why a message ends the following: it is of no honest primary, or damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FeedError {
    /// It is no message of a feed.
    #[error("the primary sends what is no message of a feed")]
    Malformed,
    /// Its bytes are no frames of the log.
    #[error("the primary sends a damaged log: {0}")]
    Frame(#[from] FrameError),
    /// Its frames make no entries.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// Its epoch or a position is beyond what any server reaches: sums with it would overflow.
    #[error("the primary names epoch or position {0}, which none reaches")]
    TooGreat(u64),
}

/// Refuses an epoch that no server reaches.
pub(crate) fn check_epoch(epoch: u64) -> Result<u64, FeedError> {
    if epoch > MAX_EPOCH { Err(FeedError::TooGreat(epoch)) } else { Ok(epoch) }
}

/// Refuses a position that no log reaches.
pub(crate) fn check_sequence(sequence: u64) -> Result<u64, FeedError> {
    if sequence > MAX_SEQUENCE { Err(FeedError::TooGreat(sequence)) } else { Ok(sequence) }
}

/// The outcome of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// It follows on what came before; an acknowledgement is to be sent if it asks for one.
    Entries {
        /// Whether the primary waits for an acknowledgement.
        asks: bool,
    },
    /// An entry before it is missing: to be acknowledged at once, as failed.
    Gap,
}

/// See the module's text.
pub struct LogReceiver {
    key: LogKey,
    assembler: Assembler,
    /// The last entry that is in a copy, or was given out before it was committed: it cannot be
    /// dropped.
    copied: u64,
    /// The commit position of the primary.
    commit: u64,
    /// The last entry of before a restart that is known to be committed, also where this receiver
    /// starts behind it.
    was_committed: u64,
    /// Whole entries that were not given out.
    waiting: VecDeque<OwnedEntry>,
    waiting_bytes: usize,
    /// The last frames that came, and their bytes.
    tail: VecDeque<TailPiece>,
    tail_bytes: usize,
    /// The newest ask.
    ask: u32,
    failed: u64,
    /// The newest clock that was sent.
    clock: u64,
    freshness: Freshness,
    /// The time of the primary that came last, Unix ms; 0 if it was taken.
    time_ms: u64,
}

impl LogReceiver {
    /// For the entries from this sequence on, of the log with this key.
    pub fn new(key: LogKey, next: u64) -> Self {
        Self {
            key,
            assembler: Assembler::new(next, LOG_HELD_BYTES),
            copied: next - 1,
            commit: 0,
            was_committed: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            tail: VecDeque::new(),
            tail_bytes: 0,
            ask: 0,
            failed: 0,
            clock: 0,
            freshness: Freshness::behind(next - 1),
            time_ms: 0,
        }
    }

    /// The entries up to this one may be applied, as the primary has said before.
    pub(crate) fn committed(self, commit: u64) -> Self {
        Self { commit, was_committed: commit, ..self }
    }

    /// The last entry that lies whole in this memory.
    pub fn received(&self) -> u64 {
        self.assembler.next_sequence() - 1
    }

    /// The last entry that was given out, or is in a copy: it cannot be dropped any more.
    pub fn given(&self) -> u64 {
        let waits = self.waiting.front().map_or(self.received() + 1, |entry| entry.sequence);
        self.copied.max(waits - 1)
    }

    /// The commit position of the primary.
    pub fn commit(&self) -> u64 {
        self.commit
    }

    /// The last entry that this replica has or had, and knows to be committed. Its shards may be at
    /// different places after a restart: the one that is furthest counts, as what it has was
    /// acknowledged, also where another shard lacks it.
    pub(crate) fn known_committed(&self) -> u64 {
        self.was_committed.max(self.commit.min(self.received()))
    }

    /// The last entry that cannot be dropped, if not all up to it is known to be committed: the end of
    /// a copy, or of what [`LogReceiver::take_rest`] gave out. Else 0.
    pub(crate) fn uncommitted_copy(&self) -> u64 {
        if self.copied > self.commit { self.copied } else { 0 }
    }

    /// The link was lost and is there again: an entry that has not come whole comes anew.
    pub fn reconnected(&mut self) {
        self.assembler = Assembler::new(self.assembler.next_sequence(), LOG_HELD_BYTES);
        (self.ask, self.failed) = (0, 0);
    }

    /// Whether it has room for another message.
    pub fn has_room(&self) -> bool {
        self.waiting_bytes < FEED_WAITING_BYTES
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// See [`FeedError`]: the connection is to be ended. Entries that were received stay.
    pub fn take(&mut self, message: &[u8]) -> Result<Received, FeedError> {
        let (header, body) =
            FeedHeader::read_from_prefix(message).map_err(|_| FeedError::Malformed)?;
        debug_assert_eq!(message.len() - body.len(), FEED_HEADER_BYTES);
        let (echo, frames) = match FeedKind::from_number(header.kind) {
            Some(FeedKind::Entries) => (None, body),
            Some(FeedKind::Echo) => {
                let (echo, frames) =
                    Echo::read_from_prefix(body).map_err(|_| FeedError::Malformed)?;
                (Some(echo), frames)
            }
            _ => return Err(FeedError::Malformed),
        };
        let commit = check_sequence(header.commit.get())?;
        let first = self.assembler.next_sequence();
        let took = self.take_frames(frames)?;
        self.keep_tail(first, frames);
        // A later message does not take back what an earlier one has committed.
        self.commit = self.commit.max(commit);
        if let Some(echo) = echo {
            self.take_echo(commit, &echo)?;
        }
        let ask = header.ask.get();
        if ask != 0 {
            self.ask = ask;
        }
        Ok(match took {
            Received::Entries { .. } => Received::Entries { asks: ask != 0 },
            Received::Gap => Received::Gap,
        })
    }

    /// Keeps the last frames: if this replica is promoted, another one may have a little less.
    fn keep_tail(&mut self, first: u64, frames: &[u8]) {
        if frames.is_empty() || self.failed != 0 {
            return;
        }
        self.tail_bytes += frames.len();
        self.tail.push_back(TailPiece { first, frames: frames.to_vec() });
        while self.tail_bytes > FEED_TAIL_BYTES
            && let Some(oldest) = self.tail.pop_front()
        {
            self.tail_bytes -= oldest.frames.len();
        }
    }

    /// The last frames that came, the oldest first.
    pub fn take_tail(&mut self) -> Vec<TailPiece> {
        self.tail_bytes = 0;
        std::mem::take(&mut self.tail).into()
    }

    fn take_echo(&mut self, commit: u64, echo: &Echo) -> Result<(), FeedError> {
        let (clock_ns, time_ms) = (echo.clock.get(), echo.time.get());
        if clock_ns == 0 || clock_ns > self.clock || time_ms > MAX_TIME_MS {
            // It was not sent, or is no time.
            return Err(FeedError::Malformed);
        }
        self.time_ms = time_ms;
        self.freshness.take(Mark { commit, clock_ns, time_ms });
        Ok(())
    }

    /// The clock of the primary, Unix ms, if it has come since this was asked last: it showed this
    /// before now.
    pub fn take_time(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.time_ms)).filter(|&time_ms| time_ms != 0)
    }

    /// The entries up to `applied` are applied, and the server's clock shows `unix_ms`. Returns when
    /// the primary had committed no more than what the replica has now; `None` if that is not known.
    pub fn fresh_at(&mut self, applied: u64, unix_ms: u64) -> Option<FreshAt> {
        self.freshness.advance(applied, unix_ms);
        self.freshness.at()
    }

    fn take_frames(&mut self, frames: &[u8]) -> Result<Received, FeedError> {
        for frame in Frames::new(frames, self.key) {
            let frame = frame?;
            if frame.sequence < self.assembler.next_sequence() {
                // It came before: the primary went back further than it had to.
                continue;
            }
            check_epoch(frame.epoch)?;
            check_sequence(frame.sequence)?;
            match self.assembler.take(frame) {
                Ok(None) => {}
                Ok(Some(entry)) => {
                    let entry = entry.to_owned();
                    self.waiting_bytes += entry.memory_bytes();
                    self.waiting.push_back(entry);
                    self.failed = 0;
                }
                Err(AssembleError::Gap { expected, .. }) => {
                    self.failed = expected;
                    return Ok(Received::Gap);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Received::Entries { asks: false })
    }

    /// The parts that the next entry names which may be applied; `None` without such an entry.
    pub fn next_parts(&self) -> Option<Parts<'_>> {
        let entry = self.waiting.front().filter(|entry| entry.sequence <= self.commit)?;
        Some(entry.entry().parts)
    }

    /// Whether this entry is here, and may be applied.
    pub fn has_committed(&self, sequence: u64) -> bool {
        sequence <= self.commit.min(self.received()).max(self.given())
    }

    /// What is here: all that was given out, and the entries behind that name parts.
    pub fn known(&self) -> KnownLog {
        let with_parts = self.waiting.iter().map(OwnedEntry::entry);
        let with_parts = with_parts.filter(|entry| !entry.parts.is_empty());
        let shared = with_parts.map(|entry| (entry.sequence, entry.parts.iter().collect()));
        KnownLog { covered: self.given(), last: self.received(), shared: shared.collect() }
    }

    /// Drops the entries behind this one, of which some part is not here. None of them was given out.
    pub fn cut(&mut self, last: u64) {
        if last >= self.received() {
            return;
        }
        self.waiting.retain(|entry| entry.sequence <= last);
        self.waiting_bytes = self.waiting.iter().map(OwnedEntry::memory_bytes).sum();
        self.assembler = Assembler::new(last + 1, LOG_HELD_BYTES);
        // Another replica gets a copy if it has less than is left.
        self.take_tail();
    }

    /// The next entry that may be applied.
    pub fn next_entry(&mut self) -> Option<OwnedEntry> {
        let entry = self.waiting.front()?;
        if entry.sequence > self.commit {
            return None;
        }
        self.waiting_bytes -= entry.memory_bytes();
        self.waiting.pop_front()
    }

    /// The epoch is over: its entries up to this one count, and those behind it that are here were
    /// never acknowledged. The rest of those that count; `None` if some are missing.
    pub(crate) fn end_epoch(&mut self, kept: u64) -> Option<Vec<OwnedEntry>> {
        if self.received() < kept {
            return None;
        }
        let rest = std::mem::take(&mut self.waiting).into_iter();
        Some(rest.filter(|entry| entry.sequence <= kept).collect())
    }

    /// All whole entries that are left, also those behind the commit position, and how many these
    /// are: this replica is promoted, and its primary may have acknowledged them. If the promotion
    /// fails, this receiver goes on: what was given out is like a copy, of which not all is committed.
    pub fn take_rest(&mut self) -> (Vec<OwnedEntry>, u64) {
        self.waiting_bytes = 0;
        self.copied = self.copied.max(self.received());
        self.freshness = Freshness::behind(self.received());
        let rest: Vec<_> = std::mem::take(&mut self.waiting).into();
        let beyond = rest.iter().filter(|entry| entry.sequence > self.commit).count();
        (rest, beyond as u64)
    }

    /// What is to be said to the primary; the entries up to `applied` are applied, those up to
    /// `durable` on the disk. `clock_ns` is the replica's monotonic clock now, not 0.
    pub fn acknowledge(&mut self, applied: u64, durable: u64, clock_ns: u64) -> Acknowledge {
        self.clock = self.clock.max(clock_ns);
        Acknowledge {
            received: self.received().into(),
            applied: applied.into(),
            durable: durable.into(),
            failed: self.failed.into(),
            clock: self.clock.into(),
            ask: self.ask.into(),
            zero: 0.into(),
        }
    }
}
