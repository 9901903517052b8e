//! FLUSHALL and FLUSHDB in turns: one change in the log, and then a sweep over the
//! table, so many buckets in a turn.
//!
//! What it keeps true:
//! * From its entry in the log on, a command that looks a key up sweeps the key's
//!   bucket first: asked, every key is gone at once, and what is set afterwards
//!   stays.
//! * It is answered only once all guardians of what it removes are dead: who reads
//!   memory takes nothing flushed for fresh after that.
//! * Another flush of the same keys begins the sweep anew, for what was set since,
//!   and both are answered at its end. So there are no more sweeps than databases,
//!   and one.
//!
//! A bucket that a split makes is swept: the one that is split is swept before.

use super::{Found, Now, Store};
use remora_arena::{Journal, database_of, mutable_of};
use remora_layout::database::{DATABASES, Database};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{FLUSH_TURN_BUCKETS, FLUSH_TURN_KEYS};
use remora_protocol::{Command, Pairs};

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
    /// Its keys in buckets that are not swept, of each database. No other sweep
    /// counts them.
    keys: [u64; DATABASES],
}

impl Sweep {
    fn is_of(&self, database: Database) -> bool {
        self.only.is_none_or(|only| only == database)
    }

    fn is_due(&self, bucket: u64) -> bool {
        let is_early = |bucket: u64| self.early[bucket as usize / 64] >> (bucket % 64) & 1 == 1;
        (self.cursor..self.buckets).contains(&bucket) && !is_early(bucket)
    }

    fn is_swept(&self) -> bool {
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
    number: u64,
    /// Keys that it removes.
    pub keys: u64,
}

impl<J: Journal> Store<J> {
    /// Whether a flush is under way.
    #[inline(always)]
    pub(crate) fn is_flushing(&self) -> bool {
        !self.flushes.sweeps.is_empty()
    }

    /// Keys of a database, without those that a flush is about to remove.
    pub(crate) fn keys_of(&self, database: Database) -> u64 {
        let of = database.number() as usize;
        let flushed: u64 = self.flushes.sweeps.iter().map(|sweep| sweep.keys[of]).sum();
        self.stats.databases[of].keys - flushed
    }

    /// Keys, without those that flushes are about to remove.
    pub(crate) fn keys(&self) -> u64 {
        let flushed = self.flushes.sweeps.iter().flat_map(|sweep| sweep.keys);
        self.stats.keys - flushed.sum::<u64>()
    }

    /// Removes every key, or those of one database, as seen by commands; the rest
    /// goes in turns.
    pub(crate) fn begin_flush(&mut self, only: Option<Database>) -> Flush {
        let is_meant = |database| only.is_none_or(|only| only == database);
        let meant = || Database::all().filter(|&database| is_meant(database));
        let removed = meant().map(|database| self.keys_of(database)).sum();
        let entry = if only.is_some() { Command::Flush } else { Command::FlushAll };
        self.commit(only.unwrap_or_default(), &entry, |store| {
            store.flushes.begun += 1;
            let mut first = store.flushes.begun;
            // It takes over what it is about to remove as well.
            store.flushes.sweeps.retain(|sweep| {
                let stays = only.is_some() && sweep.only != only;
                first = if stays { first } else { first.min(sweep.first) };
                stays
            });
            let mut keys = [0; DATABASES];
            for database in meant() {
                keys[database.number() as usize] = store.keys_of(database);
            }
            let buckets = store.table.buckets();
            let early = vec![0; buckets.div_ceil(64) as usize];
            let sweep = Sweep { only, first, cursor: 0, buckets, early, keys };
            store.flushes.sweeps.push(sweep);
            store.bury_loads(only, &|_| true);
        });
        Flush { number: self.flushes.begun, keys: removed }
    }

    /// Whether a flush is at its end.
    pub(crate) fn has_flushed(&self, flush: Flush) -> bool {
        self.flushes.sweeps.iter().all(|sweep| sweep.first > flush.number)
    }

    /// Sweeps some buckets.
    pub(crate) fn flush_turn(&mut self, now: Now) {
        let mut keys = 0;
        for _ in 0..FLUSH_TURN_BUCKETS {
            let next = self.flushes.sweeps.iter().position(|sweep| !sweep.is_swept());
            let Some(at) = next.filter(|_| keys < FLUSH_TURN_KEYS) else { return };
            keys += self.sweep_bucket(self.flushes.sweeps[at].cursor, now);
            self.flushes.sweeps[at].cursor += 1;
        }
    }

    /// All that was swept is dead with its parts: flushes end that wait for no more.
    pub(crate) fn end_flushes(&mut self) {
        self.flushes.sweeps.retain(|sweep| !sweep.is_swept());
    }

    /// A command is about to look a key up.
    #[cold]
    pub(super) fn sweep_before(&mut self, hash: KeyHash, now: Now) {
        self.sweep_bucket(self.table.bucket(hash), now);
    }

    /// A command is about to look several keys up.
    pub(crate) fn sweep_before_all(&mut self, database: Database, pairs: Pairs<'_>, now: Now) {
        if self.is_flushing() {
            for (key, _) in pairs.iter() {
                self.sweep_before(self.hash(database, key), now);
            }
        }
    }

    /// The table is about to split a bucket.
    pub(super) fn sweep_before_split(&mut self, now: Now) {
        if self.is_flushing() {
            self.sweep_bucket(self.table.splits_next(), now);
        }
    }

    /// A key of this bucket is removed: for a flush, or for another reason.
    pub(super) fn note_taken_out(&mut self, bucket: u64, database: Database) {
        let mut sweeps = self.flushes.sweeps.iter_mut();
        // What several are to remove is the oldest's.
        let of = sweeps.find(|sweep| sweep.is_of(database) && sweep.is_due(bucket));
        if let Some(sweep) = of {
            sweep.keys[database.number() as usize] -= 1;
        }
    }

    /// Whether a key of this bucket and database is about to be removed.
    pub(crate) fn is_flushed(&self, bucket: u64, database: Database) -> bool {
        let mut sweeps = self.flushes.sweeps.iter();
        sweeps.any(|sweep| sweep.is_of(database) && sweep.is_due(bucket))
    }

    /// Whether the key with this record is about to be removed.
    pub(crate) fn is_flushed_at(&self, slot: u32) -> bool {
        let is_it = |hash: KeyHash| self.is_flushed(self.table.bucket(hash), hash.database());
        self.is_flushing() && is_it(self.hash_in(slot))
    }

    /// Removes the keys of a bucket that are to be swept. How many.
    pub(super) fn sweep_bucket(&mut self, bucket: u64, now: Now) -> u64 {
        if !self.flushes.sweeps.iter().any(|sweep| sweep.is_due(bucket)) {
            return 0;
        }
        let mut keys = 0;
        for (place, slot) in self.table.places(&self.owner, bucket) {
            let database = database_of(&self.owner, slot.slot);
            if self.is_flushed(bucket, database) {
                let mutable = mutable_of(&self.owner, slot.slot);
                self.take_out(Found { place, slot, mutable }, now);
                self.note_taken_out(bucket, database);
                keys += 1;
            }
        }
        for sweep in self.flushes.sweeps.iter_mut().filter(|sweep| bucket < sweep.buckets) {
            sweep.early[bucket as usize / 64] |= 1 << (bucket % 64);
        }
        if keys > 0 {
            self.shed(bucket, now);
        }
        keys
    }
}
