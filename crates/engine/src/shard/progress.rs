//! How far other logs are applied.
//!
//! Invariant: an applied entry is not applied again, and no entry is left out. Entries of one log
//! come in order, and none has an earlier epoch than those before it. An entry of several shards is
//! applied only if all its parts are known to exist.

use remora_log::Entry;
use remora_protocol::message::Status;
use std::collections::BTreeMap;

/// The log of an entry, and the keys of that log that this shard keeps.
#[derive(Clone, Copy)]
pub struct Origin<'a> {
    /// Number of the log.
    pub log: u32,
    /// Whether a key belongs to both that log's shard and this one. If the number of shards
    /// differs, this shard keeps a part of each log's keys.
    pub takes: &'a dyn Fn(&[u8]) -> bool,
    /// Entries of several shards are applied up to this sequence of the log, its
    /// [`remora_log::consistent_cut`]; 0: none of them.
    pub cut: u64,
}

impl Origin<'_> {
    /// The log of a shard of which this one is a copy, and of which no entry is of
    /// several shards.
    pub const WHOLE: Self = Self { log: 0, takes: &|_| true, cut: 0 };
}

/// The outcome of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    /// It was carried out.
    Done,
    /// It concerns none of this shard's keys.
    Elsewhere,
    /// It was applied before.
    Before,
}

/// Why an entry is not applied. Nothing has changed that a command can see.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ApplyError {
    /// The shard is not in apply mode.
    #[error("the shard is no copy: it takes no entries of logs")]
    NotApplying,
    /// Entries before it are missing.
    #[error("sequence {sequence} is to be applied, but {expected} comes first")]
    Gap {
        /// The sequence that is due.
        expected: u64,
        /// The entry's.
        sequence: u64,
    },
    /// It is of an earlier epoch than an entry before it: written by a shard that
    /// had been replaced.
    #[error("an entry of epoch {epoch} comes after one of {before}")]
    OldEpoch {
        /// The epoch of the last entry.
        before: u64,
        /// The epoch of this entry.
        epoch: u64,
    },
    /// It is of several shards, and comes after the cut: parts of it may be missing.
    #[error("sequence {sequence} is of several shards, and only those up to {cut} are whole")]
    Torn {
        /// The entry's sequence.
        sequence: u64,
        /// As [`Origin::cut`].
        cut: u64,
    },
    /// It encodes no command that changes anything.
    #[error("an entry of the log is no change")]
    Malformed,
    /// The entry cannot be executed here: memory is full, or this shard's state differs from the
    /// original's.
    #[error("an entry of the log is refused: {0:?}")]
    Refused(Status),
}

/// How far a log is applied.
#[derive(Clone, Copy, Default)]
struct Progress {
    sequence: u64,
    epoch: u64,
}

/// How far each log is applied, by its number.
#[derive(Default)]
pub(super) struct AppliedLogs(BTreeMap<u32, Progress>);

impl AppliedLogs {
    /// The last sequence of a log that was applied; 0 before the first.
    pub fn sequence(&self, log: u32) -> u64 {
        self.0.get(&log).map_or(0, |progress| progress.sequence)
    }

    /// A log is applied up to this entry, if it was not further.
    pub fn advance_to(&mut self, log: u32, (sequence, epoch): (u64, u64)) {
        let progress = self.0.entry(log).or_default();
        if sequence > progress.sequence {
            let epoch = epoch.max(progress.epoch);
            *progress = Progress { sequence, epoch };
        }
    }

    /// A log is applied up to this entry, however far it was: the log goes on with other numbers.
    pub fn set(&mut self, log: u32, (sequence, epoch): (u64, u64)) {
        self.0.insert(log, Progress { sequence, epoch });
    }

    /// The last entry of a log that was applied: its sequence and its epoch.
    pub fn position(&self, log: u32) -> Option<(u64, u64)> {
        self.0.get(&log).map(|progress| (progress.sequence, progress.epoch))
    }

    /// A log is to be applied from its beginning, or behind a copy.
    pub fn forget(&mut self, log: u32) {
        self.0.remove(&log);
    }

    /// The latest epoch of an applied entry.
    pub fn last_epoch(&self) -> u64 {
        self.0.values().map(|progress| progress.epoch).max().unwrap_or(0)
    }

    /// Refuses entries that an earlier epoch adds to the logs from now on.
    pub fn begin_epoch(&mut self, epoch: u64) {
        self.0.values_mut().for_each(|progress| progress.epoch = epoch);
    }

    /// Whether an entry is the next one of its log; false if it was applied.
    ///
    /// # Errors
    /// It may not be applied.
    pub fn expect(&self, entry: &Entry<'_>, origin: &Origin<'_>) -> Result<bool, ApplyError> {
        let Entry { sequence, epoch, parts, .. } = *entry;
        let before = self.0.get(&origin.log).copied().unwrap_or_default();
        if sequence <= before.sequence {
            return Ok(false);
        }
        let expected = before.sequence + 1;
        if sequence != expected {
            return Err(ApplyError::Gap { expected, sequence });
        }
        if epoch < before.epoch {
            return Err(ApplyError::OldEpoch { before: before.epoch, epoch });
        }
        if !parts.is_empty() && sequence > origin.cut {
            return Err(ApplyError::Torn { sequence, cut: origin.cut });
        }
        Ok(true)
    }

    /// An entry is applied.
    pub fn note(&mut self, log: u32, entry: &Entry<'_>) {
        let Entry { sequence, epoch, .. } = *entry;
        self.0.insert(log, Progress { sequence, epoch });
    }
}
