//! Expiry: when a key is met, and by a slow sweep for keys nobody meets.

use super::{Found, Now, Store};
use remora_arena::{Journal, database_of, mutable_of};
use remora_index::hash::record_key;
use remora_layout::hash::KeyHash;
use remora_layout::record::{MAX_EXPIRES_AT_MS, Mutable};
use remora_protocol::message::Status;
use remora_protocol::{Command, ExpireCondition, Reply};

/// Main buckets that one tick sweeps: about 320 records, some microseconds.
const SWEEP_BUCKETS: u64 = 64;

/// Whether a record has expired: from its expiry on, as Redis does it.
pub(crate) fn has_expired(mutable: Mutable, now: Now) -> bool {
    mutable.has_expired(now.unix_ms)
}

/// Word 1 with another expiry.
pub(crate) fn with_expiry(mutable: Mutable, at_ms: u64) -> Mutable {
    Mutable { expires_at_ms: at_ms, ..mutable }
}

/// Whether an EXPIRE takes effect on a key that expires at `present`, 0 for
/// never, which counts as infinitely late (Redis 7.0).
pub(crate) fn is_allowed(condition: ExpireCondition, present: u64, at_ms: u64) -> bool {
    let effective = if present == 0 { u64::MAX } else { present };
    match condition {
        ExpireCondition::Always => true,
        ExpireCondition::IfNone => present == 0,
        ExpireCondition::IfSome => present != 0,
        ExpireCondition::IfLater => at_ms > effective,
        ExpireCondition::IfEarlier => at_ms < effective,
        ExpireCondition::IfSomeEarlier => at_ms < present,
    }
}

impl<J: Journal> Store<J> {
    pub(crate) fn expire(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        at_ms: u64,
        condition: ExpireCondition,
        now: Now,
    ) -> Reply<'_> {
        if at_ms > MAX_EXPIRES_AT_MS {
            return Reply::status(Status::InvalidExpiry);
        }
        let Some(found) = self.lookup(key, hash, now) else { return Reply::number(0) };
        let present = found.mutable.expires_at_ms;
        if !is_allowed(condition, present, at_ms) {
            return Reply::number(0);
        }
        if at_ms <= now.unix_ms {
            self.commit(hash.database(), &Command::Del { key }, |store| {
                store.remove(found, hash, now)
            });
        } else {
            self.set_expiry(key, found, at_ms);
        }
        Reply::number(1)
    }

    /// Ends leases, republishes ask-only records and sweeps some buckets for
    /// expired keys. To be called
    /// every few milliseconds while [`Store::wants_ticks`].
    pub fn tick(&mut self, now: Now) {
        self.slots.end_leases(&mut self.owner, now.since_start_s);
        self.republish(now);
        self.seconds.count(now);
        if !self.is_applying && self.has_moves() {
            self.end_idle_moves();
        }
        if self.stats.expiring == 0 || self.is_applying {
            return;
        }
        for _ in 0..SWEEP_BUCKETS.min(self.table.buckets()) {
            // The table may have grown: what was split since is met again.
            let bucket = self.expire_cursor % self.table.buckets();
            self.expire_cursor = bucket + 1;
            self.expire_bucket(bucket, now);
        }
    }

    /// Removes the expired keys of a bucket.
    pub(super) fn expire_bucket(&mut self, bucket: u64, now: Now) {
        // What a flush is about to remove goes by the flush's entry.
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

    /// Whether [`Store::tick`] has anything to do.
    pub fn wants_ticks(&self) -> bool {
        self.stats.expiring > 0
            || !self.graves.is_empty()
            || self.slots.has_quarantine()
            || self.ask_only.wants_ticks()
            || self.set_aside_bytes > 0
            || self.has_moves()
            || self.due_objects > 0
    }
}
