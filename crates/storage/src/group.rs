//! Group commit: one write for all that waits, one sync for all that was written, and what may be
//! acknowledged by then.
//!
//! Invariant: [`GroupCommit::durable`] only grows, and covers a sequence only after the disk has
//! done what the durability promises: with [`Promise::Written`] taken its bytes (they survive the
//! process), with [`Promise::Synced`] confirmed a sync that began behind them (they survive a power
//! cut). While the disk fails it stands still, and no more runs are wanted.
//!
//! It has no thread and no clock: the caller gives the time, and runs the syncs.

use crate::runs::Run;
use crate::volume::Volume;
use crate::writer::{LogWriter, Sync};
use remora_layout::limits::{
    LOG_LOOK_MS, LOG_MARK_MS, LOG_MEND_MAX_MS, LOG_MEND_MIN_MS, LOG_QUIET_MS, LOG_SYNC_MS,
    LOG_UNSYNCED_BYTES, LOG_UNSYNCED_SOON_BYTES,
};
use std::io;

/// When a change is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// At once. The log is written all the same, and synced every second.
    Memory,
    /// Once its bytes are written; they are synced every second.
    Written,
    /// Once they are synced.
    Synced,
}

impl Promise {
    /// The word for it in settings and INFO.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Written => "everysec",
            Self::Synced => "fsync",
        }
    }
}

/// See the module's text.
pub struct GroupCommit<V: Volume> {
    writer: LogWriter<V>,
    promise: Promise,
    /// By shard.
    durable: Vec<u64>,
    is_syncing: bool,
    /// The segment is long enough, and one sync has begun since: no more runs are taken until all is
    /// synced and the next segment has begun. That is what came during that sync.
    is_closing: bool,
    /// A change waits for a sync.
    wants_sync: bool,
    /// When the last run or mark was written.
    written_at_ms: u64,
    /// When the last sync began.
    synced_at_ms: u64,
    /// When the next try to mend is due, and how long after it the one behind it.
    mends_at_ms: u64,
    mend_pause_ms: u64,
    /// When the directory is looked at next.
    looks_at_ms: u64,
}

impl<V: Volume> GroupCommit<V> {
    /// Over a writer that has just begun.
    pub fn new(writer: LogWriter<V>, promise: Promise, shards: usize, now_ms: u64) -> Self {
        let durable = (0..shards).map(|shard| writer.synced(shard)).collect();
        Self {
            writer,
            promise,
            durable,
            is_syncing: false,
            is_closing: false,
            wants_sync: false,
            written_at_ms: now_ms,
            synced_at_ms: now_ms,
            mends_at_ms: 0,
            mend_pause_ms: LOG_MEND_MIN_MS,
            looks_at_ms: now_ms + LOG_LOOK_MS,
        }
    }

    /// Whether it takes runs now: the disk works, and not too much waits for a sync.
    pub fn wants_runs(&self) -> bool {
        !self.writer.has_failed()
            && !self.is_closing
            && self.writer.unsynced_bytes() < LOG_UNSYNCED_BYTES
    }

    /// Writes a group. `unix_ms` is the server's clock, `now_ms` any that runs evenly.
    ///
    /// # Errors
    /// The disk refuses. The runs are kept until [`GroupCommit::mend`] has written them.
    pub fn write(&mut self, runs: Vec<Run>, unix_ms: u64, now_ms: u64) -> io::Result<()> {
        self.written_at_ms = now_ms;
        let written = self.writer.write(runs, unix_ms);
        self.note(written, now_ms)
    }

    /// A change waits for the disk: the next sync begins at once, and if nothing is written yet, once
    /// something is.
    pub fn want_sync(&mut self) {
        self.wants_sync = true;
    }

    /// What is to be synced now. One sync is under way at a time.
    pub fn sync_due(&mut self, now_ms: u64) -> Option<Sync<V::File>> {
        let is_due = match self.promise {
            Promise::Synced => true,
            Promise::Memory | Promise::Written => {
                self.wants_sync
                    || self.writer.is_long()
                    || now_ms >= self.synced_at_ms + LOG_SYNC_MS
                    || self.writer.unsynced_bytes() >= LOG_UNSYNCED_SOON_BYTES
            }
        };
        if !is_due || self.is_syncing || !self.writer.has_unsynced() {
            return None;
        }
        let sync = self.writer.begin_sync()?;
        (self.synced_at_ms, self.wants_sync, self.is_syncing) = (now_ms, false, true);
        Some(sync)
    }

    /// Takes the result of the sync that was under way.
    ///
    /// # Errors
    /// The sync's. [`GroupCommit::mend`] is next.
    pub fn end_sync(
        &mut self,
        sync: &Sync<V::File>,
        result: io::Result<()>,
        now_ms: u64,
    ) -> io::Result<()> {
        self.is_syncing = false;
        let ended = self.writer.end_sync(sync, result);
        let ended = ended.and_then(|()| self.writer.begin_segment_if_due());
        self.is_closing = self.writer.is_long();
        self.note(ended, now_ms)
    }

    /// Syncs all that was written, here and now: the last one.
    ///
    /// # Errors
    /// The sync's.
    pub fn sync_now(&mut self, now_ms: u64) -> io::Result<()> {
        let Some(sync) = self.writer.begin_sync() else { return Ok(()) };
        let result = sync.run();
        self.end_sync(&sync, result, now_ms)
    }

    /// Whether a mark is due: everything is synced, and for a moment no run has come that says so; or
    /// none has come for so long that the log would not know the time.
    pub fn mark_due(&self, now_ms: u64) -> bool {
        let is_quiet = !self.is_syncing && !self.writer.has_unsynced() && !self.writer.has_failed();
        is_quiet && now_ms >= self.marks_at_ms()
    }

    fn marks_at_ms(&self) -> u64 {
        self.written_at_ms + if self.writer.wants_mark() { LOG_QUIET_MS } else { LOG_MARK_MS }
    }

    /// Writes a mark. `unix_ms` is the server's clock.
    ///
    /// # Errors
    /// The disk refuses. [`GroupCommit::mend`] is next.
    pub fn mark(&mut self, unix_ms: u64, now_ms: u64) -> io::Result<()> {
        self.written_at_ms = now_ms;
        let marked = self.writer.mark(unix_ms);
        self.note(marked, now_ms)
    }

    /// Whether it is time to try a failed disk again.
    pub fn mend_due(&self, now_ms: u64) -> bool {
        self.writer.has_failed() && now_ms >= self.mends_at_ms && !self.is_syncing
    }

    /// Tries a failed disk again: all that is not synced goes into a new segment.
    ///
    /// # Errors
    /// It still fails.
    pub fn mend(&mut self, unix_ms: u64, now_ms: u64) -> io::Result<()> {
        let mended = self.writer.mend(unix_ms);
        self.is_closing = false;
        self.note(mended, now_ms)
    }

    /// When the directory is to be looked at by [`GroupCommit::look`], ms.
    pub fn looks_at_ms(&self) -> u64 {
        self.looks_at_ms
    }

    /// Looks whether the directory is where it was, though nothing is synced.
    ///
    /// # Errors
    /// It is not. [`GroupCommit::mend`] works once it is back.
    pub fn look(&mut self, now_ms: u64) -> io::Result<()> {
        self.looks_at_ms = now_ms + LOG_LOOK_MS;
        let looked = self.writer.look();
        if looked.is_err() { self.note(looked, now_ms) } else { Ok(()) }
    }

    fn note(&mut self, result: io::Result<()>, now_ms: u64) -> io::Result<()> {
        if result.is_err() {
            self.mends_at_ms = now_ms + self.mend_pause_ms;
            self.mend_pause_ms = (2 * self.mend_pause_ms).min(LOG_MEND_MAX_MS);
            return result;
        }
        self.mend_pause_ms = LOG_MEND_MIN_MS;
        // A sync may end well after a write behind it has failed: those runs are not written yet.
        let is_written = self.promise != Promise::Synced && !self.writer.has_failed();
        for (shard, durable) in self.durable.iter_mut().enumerate() {
            let now_durable = match is_written {
                true => self.writer.written(shard),
                false => self.writer.synced(shard),
            };
            *durable = now_durable.max(*durable);
        }
        Ok(())
    }

    /// The last sequence of a shard that may be acknowledged.
    pub fn durable(&self, shard: usize) -> u64 {
        self.durable[shard]
    }

    /// The last sequence of a shard that is on the disk.
    pub fn synced(&self, shard: usize) -> u64 {
        self.writer.synced(shard)
    }

    /// Until when nothing is due, unless more runs come; `None` if nothing is.
    pub fn idle_until_ms(&self) -> Option<u64> {
        if self.writer.has_failed() {
            return Some(self.mends_at_ms);
        }
        match (self.is_syncing, self.writer.has_unsynced()) {
            (true, _) => None,
            (false, true) => Some(self.synced_at_ms + LOG_SYNC_MS),
            (false, false) => Some(self.marks_at_ms()),
        }
    }

    /// The writer.
    pub fn writer(&self) -> &LogWriter<V> {
        &self.writer
    }

    /// Buffers of runs that are synced, to be filled again.
    pub fn take_freed(&mut self) -> impl Iterator<Item = Run> + use<'_, V> {
        self.writer.take_freed()
    }

    /// As [`LogWriter::drop_covered`].
    ///
    /// # Errors
    /// The disk refuses; the segments stay.
    pub fn drop_covered(&mut self, covered: &[u64]) -> io::Result<usize> {
        self.writer.drop_covered(covered)
    }
}
