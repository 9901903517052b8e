//! FLUSHALL and FLUSHDB in turns: one change in the log, and then a sweep over the table, a bounded
//! number of buckets in each turn. This file keeps the buckets that are not swept yet; the sweep
//! itself is in `turns.rs`.
//!
//! Invariants:
//! * After the flush's entry in the log, a command that looks a key up sweeps the key's bucket
//!   first: for every command all keys are gone at once, and later SETs stay.
//! * The flush is answered only once the guardians of all removed records are dead: a reader of the
//!   memory takes nothing flushed for fresh after that.
//! * Another flush of the same keys starts the sweep again, for keys that were set since, and both
//!   are answered at its end. So there is at most one sweep for each database, and one for all.
//!
//! A shard that follows a log flushes in the same way. If it has the keys of several logs, the sweep
//! is of those of one of them, whose number is not known before; nothing else is applied meanwhile.
//!
//! A bucket that a split makes is swept: the one that is split is swept before.

use super::stats::KeyCounts;
use remora_layout::database::{DATABASES, Database};
use remora_layout::slot::SlotTable;

/// The keys of one log among those that a shard applies.
pub(crate) struct LogKeys {
    log: usize,
    table: Box<SlotTable>,
}

impl LogKeys {
    /// Those of this log of so many.
    pub fn new(log: usize, logs: usize) -> Self {
        Self { log, table: Box::new(SlotTable::even(logs)) }
    }

    fn has(&self, key: &[u8]) -> bool {
        self.table.shard_of(key) == self.log
    }
}

/// A sweep under way.
struct Sweep {
    /// The database that is flushed; all if there is none.
    only: Option<Database>,
    /// The first of the flushes that end with it.
    first: u64,
    /// Buckets below this one are swept.
    cursor: u64,
    /// The buckets that there were at its beginning.
    buckets: u64,
    /// One bit for each of those that were swept before their turn.
    early: Vec<u64>,
    /// The keys in buckets that are not swept yet, for each database. No other sweep counts them.
    keys: [u64; DATABASES],
    /// Only the keys of this log are flushed: then `keys` counts none.
    of_log: Option<LogKeys>,
}

/// Whether a flush is of a database.
pub(crate) fn is_of(only: Option<Database>, database: Database) -> bool {
    only.is_none_or(|only| only == database)
}

impl Sweep {
    fn is_due(&self, bucket: u64) -> bool {
        let is_early = |bucket: u64| self.early[bucket as usize / 64] >> (bucket % 64) & 1 == 1;
        (self.cursor..self.buckets).contains(&bucket) && !is_early(bucket)
    }

    fn is_swept(&self) -> bool {
        if self.of_log.is_some() {
            return self.cursor >= self.buckets;
        }
        self.keys.iter().all(|keys| *keys == 0)
    }
}

/// The flushes of one store.
#[derive(Default)]
pub(crate) struct Flushes {
    /// The oldest first.
    sweeps: Vec<Sweep>,
    begun: u64,
}

/// One flush, for those that wait for its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flush {
    pub number: u64,
    /// Keys that it removes.
    pub keys: u64,
}

impl Flushes {
    /// Whether a flush is under way.
    #[inline(always)]
    pub fn are_under_way(&self) -> bool {
        !self.sweeps.is_empty()
    }

    /// Keys of a database that are about to be removed.
    pub fn keys_of(&self, database: Database) -> u64 {
        self.sweeps.iter().map(|sweep| sweep.keys[database.number() as usize]).sum()
    }

    /// Keys that are about to be removed.
    pub fn keys(&self) -> u64 {
        self.sweeps.iter().flat_map(|sweep| sweep.keys).sum()
    }

    /// Begins a flush of these databases, in a table of this many buckets. Returns its number.
    pub fn begin(
        &mut self,
        only: Option<Database>,
        counts: &[KeyCounts; DATABASES],
        buckets: u64,
    ) -> u64 {
        self.begun += 1;
        let mut first = self.begun;
        // It also takes over the keys that the other is about to remove.
        self.sweeps.retain(|sweep| {
            let stays = only.is_some() && sweep.only != only;
            first = if stays { first } else { first.min(sweep.first) };
            stays
        });
        let mut keys = [0; DATABASES];
        for database in Database::all().filter(|&database| is_of(only, database)) {
            let of = database.number() as usize;
            keys[of] = counts[of].keys - self.keys_of(database);
        }
        let early = vec![0; buckets.div_ceil(64) as usize];
        self.sweeps.push(Sweep { only, first, cursor: 0, buckets, early, keys, of_log: None });
        self.begun
    }

    /// Begins a flush of the keys of one log, while none is under way.
    pub fn begin_of_log(&mut self, only: Option<Database>, of_log: LogKeys, buckets: u64) {
        debug_assert!(!self.are_under_way(), "one at a time");
        self.begun += 1;
        let (first, keys) = (self.begun, [0; DATABASES]);
        let early = vec![0; buckets.div_ceil(64) as usize];
        let of_log = Some(of_log);
        self.sweeps.push(Sweep { only, first, cursor: 0, buckets, early, keys, of_log });
    }

    /// Whether a flush is at its end.
    pub fn have_ended(&self, flush: Flush) -> bool {
        self.sweeps.iter().all(|sweep| sweep.first > flush.number)
    }

    /// The sweep to continue, and its next bucket.
    pub fn next(&self) -> Option<(usize, u64)> {
        let at = self.sweeps.iter().position(|sweep| !sweep.is_swept())?;
        Some((at, self.sweeps[at].cursor))
    }

    /// The bucket that [`Flushes::next`] has named is swept.
    pub fn advance(&mut self, at: usize) {
        self.sweeps[at].cursor += 1;
    }

    /// All that was swept is dead with its parts: flushes end that wait for no more.
    pub fn end_swept(&mut self) {
        self.sweeps.retain(|sweep| !sweep.is_swept());
    }

    /// A key of this bucket is removed: for a flush, or for another reason.
    pub fn note_taken_out(&mut self, bucket: u64, database: Database) {
        let mut sweeps = self.sweeps.iter_mut();
        // Keys that several flushes are to remove belong to the oldest one.
        let counts = |sweep: &Sweep| sweep.of_log.is_none() && is_of(sweep.only, database);
        let of = sweeps.find(|sweep| counts(sweep) && sweep.is_due(bucket));
        if let Some(sweep) = of {
            sweep.keys[database.number() as usize] -= 1;
        }
    }

    /// Whether a key of this bucket and database is about to be removed.
    pub fn include(&self, bucket: u64, database: Database, key: &[u8]) -> bool {
        self.sweeps.iter().any(|sweep| {
            is_of(sweep.only, database)
                && sweep.is_due(bucket)
                && sweep.of_log.as_ref().is_none_or(|of| of.has(key))
        })
    }

    /// Whether the bucket still has to be swept.
    pub fn wait_for(&self, bucket: u64) -> bool {
        self.sweeps.iter().any(|sweep| sweep.is_due(bucket))
    }

    /// A bucket is swept, in its turn or before.
    pub fn note_swept(&mut self, bucket: u64) {
        for sweep in self.sweeps.iter_mut().filter(|sweep| bucket < sweep.buckets) {
            sweep.early[bucket as usize / 64] |= 1 << (bucket % 64);
        }
    }
}
