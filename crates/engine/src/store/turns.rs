//! Work by time, and in turns: leases that end, keys that expire unmet, flushes, ask-only records
//! that become readable again, and operations that clients do not continue.

use super::Store;
use super::clock::Now;
use super::expiry::has_expired;
use super::flush::{Flush, LogKeys, is_of};
use super::record::Found;
use remora_arena::{Journal, PieceSum, database_of, mutable_of, slot_of};
use remora_index::hash::record_key;
use remora_layout::bucket::BucketSlot;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{FLUSH_TURN_BUCKETS, FLUSH_TURN_KEYS, REPUBLISH_TICK_BYTES};
use remora_protocol::{Command, Pairs};

/// Main buckets that one tick sweeps: about 320 records, some microseconds.
const SWEEP_BUCKETS: u64 = 64;

impl<J: Journal> Store<J> {
    /// Ends leases, republishes ask-only records and sweeps some buckets for expired keys. The
    /// caller calls it every few milliseconds while [`Store::wants_ticks`].
    pub fn tick(&mut self, now: Now) {
        self.slots.end_leases(&mut self.owner, now.since_start_s);
        self.republish(now);
        self.ticked.count(now);
        self.give_back_lent(now);
        if !self.is_applying && !self.moves.is_empty() {
            self.end_idle_moves();
        }
        if self.stats.expiring == 0 || self.is_applying || !self.may_expire() {
            return;
        }
        for _ in 0..SWEEP_BUCKETS.min(self.table.buckets()) {
            // The table may have grown: the sweep meets the buckets that were split since again.
            let bucket = self.expire_cursor % self.table.buckets();
            self.expire_cursor = bucket + 1;
            self.expire_bucket(bucket, now);
        }
    }

    /// Whether [`Store::tick`] has anything to do.
    pub fn wants_ticks(&self) -> bool {
        self.stats.expiring > 0
            || self.has_graves()
            || self.slots.has_quarantine()
            || self.ask_only.wants_ticks()
            || self.cover.aside_bytes() > 0
            || self.snapshot.is_some()
            || !self.moves.is_empty()
            || self.due_objects > 0
            || self.to_be_mended > 0
            || self.timed_objects > 0
            || self.slots.over_bytes() > 0
    }

    /// Removes the expired keys of a bucket. The caller has asked [`Store::may_expire`].
    pub(crate) fn expire_bucket(&mut self, bucket: u64, now: Now) {
        // The flush's entry covers keys that a flush is about to remove.
        self.sweep_bucket(bucket, now);
        let before = self.stats.keys;
        for (place, slot) in self.table.places(&self.owner, bucket) {
            let found = Found { place, slot, mutable: mutable_of(&self.owner, slot.slot) };
            if has_expired(found.mutable, now) {
                let key = record_key(&self.owner, slot.slot).to_vec();
                let database = database_of(&self.owner, slot.slot);
                self.commit(database, &Command::Del { key: &key }, |store| {
                    store.take_out(found, now)
                });
                self.stats.expired += 1;
            }
        }
        if self.stats.keys < before {
            self.shed(bucket, now);
        }
    }

    /// Ends dumps and loads that were not continued for too long: their mover is gone.
    fn end_idle_moves(&mut self) {
        let idle = self.moves.take_idle(self.ticked.get(), self.options.upload_idle_s);
        idle.iter().for_each(|load| self.drop_load(load));
    }

    /// Removes every key, or those of one database, as seen by commands; turns free the rest.
    pub(crate) fn begin_flush(&mut self, only: Option<Database>) -> Flush {
        let meant = Database::all().filter(|&database| is_of(only, database));
        let keys = meant.map(|database| self.keys_of(database)).sum();
        let entry = if only.is_some() { Command::Flush } else { Command::FlushAll };
        let number = self.commit(only.unwrap_or_default(), &entry, |store| {
            let (counts, buckets) = (&store.stats.databases, store.table.buckets());
            let number = store.flushes.begin(only, counts, buckets);
            store.bury_loads(only, &|_| true);
            number
        });
        Flush { number, keys }
    }

    /// Sweeps some buckets.
    pub(crate) fn flush_turn(&mut self, now: Now) {
        let mut keys = 0;
        for _ in 0..FLUSH_TURN_BUCKETS {
            let next = self.flushes.next().filter(|_| keys < FLUSH_TURN_KEYS);
            let Some((at, bucket)) = next else { return };
            keys += self.sweep_bucket(bucket, now);
            self.flushes.advance(at);
        }
    }

    /// A command is about to look a key up.
    #[cold]
    pub(super) fn sweep_before(&mut self, hash: KeyHash, now: Now) {
        self.sweep_bucket(self.table.bucket(hash), now);
    }

    /// A command is about to look several keys up.
    pub(crate) fn sweep_before_all(&mut self, database: Database, pairs: Pairs<'_>, now: Now) {
        if self.flushes.are_under_way() {
            for (key, _) in pairs.iter() {
                self.sweep_before(self.hash(database, key), now);
            }
        }
    }

    /// Removes the keys of a bucket that has to be swept. Returns their number.
    pub(super) fn sweep_bucket(&mut self, bucket: u64, now: Now) -> u64 {
        if !self.flushes.wait_for(bucket) {
            return 0;
        }
        let mut keys = 0;
        for (place, slot) in self.table.places(&self.owner, bucket) {
            let database = database_of(&self.owner, slot.slot);
            if self.is_flushed_in(bucket, slot.slot) {
                let mutable = mutable_of(&self.owner, slot.slot);
                self.take_out(Found { place, slot, mutable }, now);
                self.flushes.note_taken_out(bucket, database);
                keys += 1;
            }
        }
        self.flushes.note_swept(bucket);
        if keys > 0 {
            self.shed(bucket, now);
        }
        keys
    }

    /// As [`Store::begin_flush`], of the keys that another shard flushed: all that this one has, or
    /// those of one log. No other flush is under way.
    pub(crate) fn begin_flush_of(
        &mut self,
        only: Option<Database>,
        of_log: Option<LogKeys>,
        is_flushed: &dyn Fn(&[u8]) -> bool,
    ) {
        let entry = if only.is_some() { Command::Flush } else { Command::FlushAll };
        self.commit(only.unwrap_or_default(), &entry, |store| {
            let (counts, buckets) = (&store.stats.databases, store.table.buckets());
            match of_log {
                None => {
                    store.flushes.begin(only, counts, buckets);
                }
                Some(of_log) => store.flushes.begin_of_log(only, of_log, buckets),
            }
            store.bury_loads(only, is_flushed);
        });
    }

    /// Removes the keys that another shard flushed, in one step: no client is served meanwhile.
    pub(crate) fn flush_some(
        &mut self,
        only: Option<Database>,
        is_flushed: &dyn Fn(&[u8]) -> bool,
        now: Now,
    ) {
        let entry = if only.is_some() { Command::Flush } else { Command::FlushAll };
        self.commit(only.unwrap_or_default(), &entry, |store| {
            store.take_out_all(only, is_flushed, now);
            store.bury_loads(only, is_flushed);
        });
    }

    fn take_out_all(
        &mut self,
        only: Option<Database>,
        is_wanted: &dyn Fn(&[u8]) -> bool,
        now: Now,
    ) {
        for bucket in 0..self.table.buckets() {
            for (place, slot) in self.table.places(&self.owner, bucket) {
                let is_meant = is_of(only, database_of(&self.owner, slot.slot));
                if is_meant && is_wanted(record_key(&self.owner, slot.slot)) {
                    let mutable = mutable_of(&self.owner, slot.slot);
                    self.take_out(Found { place, slot, mutable }, now);
                }
            }
            self.shed(bucket, now);
        }
    }

    /// Makes ask-only records without recent changes readable again: at most this many bytes of
    /// checksum in one call.
    fn republish(&mut self, now: Now) {
        let mut budget = REPUBLISH_TICK_BYTES;
        // Bounded: each turn takes bytes off the budget, or a record away.
        while budget > 0 {
            let Some(slot) = self.ask_only.next_due(now) else { break };
            budget -= self.republish_some(slot, budget);
        }
    }

    /// Takes the checksum of one record further; publishes it at its end.
    /// Gives the bytes taken.
    fn republish_some(&mut self, slot: u32, most: usize) -> usize {
        let writer = (self.options.record_secret, self.options.region);
        let memory = (&self.owner, &self.slots);
        let (taken, ended) = self.ask_only.advance(memory, writer, slot, most);
        if let Some((sum, hash)) = ended {
            self.publish_again(slot, sum, hash);
        }
        taken
    }

    fn publish_again(&mut self, slot: u32, sum: PieceSum, hash: KeyHash) {
        self.ask_only.forget(slot);
        let found = self.found(record_key(&self.owner, slot), hash).expect("its key names it");
        debug_assert_eq!(found.slot.slot, slot);
        let old = slot_of(&self.owner, slot);
        let renewed = sum.store(&mut self.owner);
        self.show_again(renewed, hash);
        self.note_moved(old, renewed, hash);
        let word = BucketSlot { generation_low: renewed.generation as u8, ..found.slot };
        self.table.replace(&mut self.owner, found.place, word);
    }
}
