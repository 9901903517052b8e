//! Apply mode: a shard that is changed by the entries of other logs, and by
//! nothing else (design, "One change").
//!
//! What it keeps true: an entry is executed as the command that it is, so that
//! a change is planned and published by the same code as at first; but nothing
//! expires and nothing is evicted, as entries of their own say what goes, and
//! nothing is logged: the log counts one sequence for each entry. An entry is
//! one change, or does not concern this shard. An entry that was applied does
//! nothing, and none is left out. An entry that is refused has changed nothing that
//! a command can see, and may come again. An entry of several shards is applied
//! only where all its parts are known to be there.

use super::Shard;
use crate::store::Now;
use remora_arena::Journal;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_log::Entry;
use remora_protocol::message::Status;
use remora_protocol::{Command, Pairs};

/// Which log an entry is from, and which of its keys this shard keeps.
#[derive(Clone, Copy)]
pub struct Origin<'a> {
    /// Number of the log.
    pub log: u32,
    /// Whether a key is of that log's shard and of this one. Where the number of
    /// shards is another one, this shard keeps a part of each log's keys.
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

/// What an entry has come to.
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
        /// Of the last entry.
        before: u64,
        /// Of this one.
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
    /// It cannot be carried out here: memory is full, or this shard's state is not
    /// what it was there.
    #[error("an entry of the log is refused: {0:?}")]
    Refused(Status),
}

/// How far a log is applied.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    sequence: u64,
    epoch: u64,
}

impl<J: Journal> Shard<J> {
    /// From now on only [`Shard::apply`] changes the shard; commands that would
    /// are refused. Reads are answered as of the last entry: an expired key is
    /// not there, and goes when the log says so.
    pub fn begin_applying(&mut self) {
        self.store.is_applying = true;
        self.store.end_dumps();
    }

    /// As [`Shard::begin_applying`]. The shard holds what a log says up to this entry,
    /// as after a snapshot: entries up to it do nothing, the next one follows it. Of
    /// no effect where more of the log is applied.
    pub fn begin_applying_at(&mut self, log: u32, (sequence, epoch): (u64, u64)) {
        self.begin_applying();
        let progress = self.applied.entry(log).or_default();
        if sequence > progress.sequence {
            let epoch = epoch.max(progress.epoch);
            *progress = Progress { sequence, epoch };
        }
    }

    /// Ends apply mode: the shard takes changes of its own again, under this epoch,
    /// behind what it has applied. What it has applied it never applies again, also
    /// if apply mode begins anew; what an earlier epoch adds to those logs is refused
    /// then.
    ///
    /// # Errors
    /// An applied entry is of a later epoch.
    pub fn end_applying(&mut self, epoch: u64) -> Result<(), ApplyError> {
        let applied = self.applied.values().map(|progress| progress.epoch).max();
        let before = applied.unwrap_or(0).max(self.store.log.epoch());
        if epoch < before {
            return Err(ApplyError::OldEpoch { before, epoch });
        }
        self.store.log.begin_epoch(epoch);
        self.store.is_applying = false;
        self.applied.values_mut().for_each(|progress| progress.epoch = epoch);
        Ok(())
    }

    /// The last sequence of a log that was applied; 0 before the first.
    pub fn applied(&self, log: u32) -> u64 {
        self.applied.get(&log).map_or(0, |progress| progress.sequence)
    }

    /// Applies the next entry of a log. Entries of one log come in order, those of
    /// several in any.
    ///
    /// # Errors
    /// The entry is not applied; the shard is as it was, but for what no key leads
    /// to. The same entry may come again.
    pub fn apply(
        &mut self,
        entry: &Entry<'_>,
        origin: &Origin<'_>,
        now: Now,
    ) -> Result<Applied, ApplyError> {
        if !self.store.is_applying {
            return Err(ApplyError::NotApplying);
        }
        let Entry { sequence, epoch, parts, operation } = *entry;
        let before = self.applied.get(&origin.log).copied().unwrap_or_default();
        if sequence <= before.sequence {
            return Ok(Applied::Before);
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
        let decoded = Command::decode_within(operation).map_err(|_| ApplyError::Malformed)?;
        let (database, command, _) = decoded;
        if !command.is_write() {
            return Err(ApplyError::Malformed);
        }
        let applied = self.carry_out((database, &command), origin, now)?;
        self.applied.insert(origin.log, Progress { sequence, epoch });
        Ok(applied)
    }

    fn carry_out(
        &mut self,
        (database, command): (Database, &Command<'_>),
        origin: &Origin<'_>,
        now: Now,
    ) -> Result<Applied, ApplyError> {
        // Nothing has expired by this clock.
        let now = Now { unix_ms: 0, ..now };
        let before = self.store.last_sequence();
        self.store.begin_command();
        let status = match *command {
            Command::Flush | Command::FlushAll => {
                let only = matches!(command, Command::Flush).then_some(database);
                // Bounded: one that began before apply mode goes to its end.
                while self.store.is_flushing() {
                    self.release_turn(now);
                }
                self.store.flush_some(only, origin.takes, now);
                Status::Ok
            }
            Command::MultiSet { pairs } => {
                let mut list = Vec::new();
                let own = pairs.iter().filter(|(key, _)| (origin.takes)(key));
                own.for_each(|(key, value)| Pairs::push(&mut list, key, value));
                let pairs = Pairs::parse(&list).expect("pairs of a checked list");
                match list.is_empty() {
                    true => Status::Ok,
                    false => {
                        let hash = KeyHash::without_key(database);
                        self.execute_write(&Command::MultiSet { pairs }, hash, now).status
                    }
                }
            }
            ref command => match command.key() {
                Some(key) if (origin.takes)(key) => {
                    let hash = self.hash_of(database, command);
                    self.execute_write(command, hash, now).status
                }
                Some(_) => Status::Ok,
                None => return Err(ApplyError::Malformed),
            },
        };
        match self.store.last_sequence() - before {
            0 if status != Status::Ok => Err(ApplyError::Refused(status)),
            0 if self.concerns(command, origin) => Err(ApplyError::Refused(Status::NotDone)),
            0 => {
                self.store.pass_entry();
                Ok(Applied::Elsewhere)
            }
            changes => {
                assert_eq!(changes, 1, "an entry is one change");
                Ok(Applied::Done)
            }
        }
    }

    /// Whether an entry has to change something here.
    fn concerns(&self, command: &Command<'_>, origin: &Origin<'_>) -> bool {
        match *command {
            Command::Flush | Command::FlushAll => true,
            Command::MultiSet { pairs } => pairs.iter().any(|(key, _)| (origin.takes)(key)),
            ref command => command.key().is_some_and(origin.takes),
        }
    }
}
