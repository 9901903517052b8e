//! Expiry: when a key is met, and by a slow sweep for keys nobody meets.

use super::{Found, Now, Shard};
use crate::command::{Command, ExpireCondition, Reply};
use remora_arena::{Journal, mutable_of};
use remora_index::hash::record_key;
use remora_layout::hash::KeyHash;
use remora_layout::message::Status;
use remora_layout::record::{MAX_EXPIRES_AT_MS, Mutable};

/// Main buckets that one tick sweeps: about 320 records, some microseconds.
const SWEEP_BUCKETS: u64 = 64;

/// Whether a record has expired: from its expiry on, as Redis does it.
pub(super) fn has_expired(mutable: Mutable, now: Now) -> bool {
    mutable.expires_at_ms != 0 && mutable.expires_at_ms <= now.unix_ms
}

/// Word 1 with another expiry.
pub(super) fn with_expiry(mutable: Mutable, at_ms: u64) -> Mutable {
    Mutable { expires_at_ms: at_ms, ..mutable }
}

/// Whether an EXPIRE takes effect on a key that expires at `present`, 0 for
/// never, which counts as infinitely late (Redis 7.0).
pub(super) fn is_allowed(condition: ExpireCondition, present: u64, at_ms: u64) -> bool {
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

impl<J: Journal> Shard<J> {
    pub(super) fn expire(
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
            self.log.append(&Command::Del { key });
            self.remove(found, hash, now);
        } else {
            self.set_expiry(key, found, at_ms);
        }
        Reply::number(1)
    }

    /// Ends leases, republishes ask-only records and sweeps some buckets for
    /// expired keys. To be called
    /// every few milliseconds while [`Shard::wants_ticks`].
    pub fn tick(&mut self, now: Now) {
        self.slots.end_leases(&mut self.owner, now.since_start_s);
        self.republish(now);
        self.sweep_geo(now);
        if self.stats.expiring == 0 {
            return;
        }
        for _ in 0..SWEEP_BUCKETS.min(self.table.buckets()) {
            // The table may have grown: what was split since is met again.
            let bucket = self.expire_cursor % self.table.buckets();
            self.expire_cursor = bucket + 1;
            let before = self.stats.keys;
            for (place, slot) in self.table.places(&self.owner, bucket) {
                let found = Found { place, slot, mutable: mutable_of(&self.owner, slot.slot) };
                if has_expired(found.mutable, now) {
                    let key = record_key(&self.owner, slot.slot).to_vec();
                    self.log.append(&Command::Del { key: &key });
                    self.take_out(found, now);
                    self.stats.expired += 1;
                }
            }
            if self.stats.keys < before {
                self.shed(bucket, now);
            }
        }
    }

    /// Whether [`Shard::tick`] has anything to do.
    pub fn wants_ticks(&self) -> bool {
        self.stats.expiring > 0
            || self.geo.expiring() > 0
            || self.slots.has_quarantine()
            || self.ask_only.wants_ticks()
    }
}
