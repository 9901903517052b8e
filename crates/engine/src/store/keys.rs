//! What concerns any key, whatever its type.

use super::{Found, Now, Store, expire};
use remora_arena::{Journal, database_of, mutable_of, set_mutable};
use remora_index::hash::record_key;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply};

impl<J: Journal> Store<J> {
    pub(crate) fn del(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        let Some(found) = self.lookup(key, hash, now) else { return Reply::number(0) };
        self.commit(hash.database(), &Command::Del { key }, |store| store.remove(found, hash, now));
        Reply::number(1)
    }

    pub(crate) fn exists(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        Reply::number(self.lookup(key, hash, now).is_some() as i64)
    }

    pub(crate) fn touch_key(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        let found = self.lookup(key, hash, now);
        if let Some(found) = found {
            self.note_touched(found);
        }
        Reply::number(found.is_some() as i64)
    }

    pub(crate) fn ttl(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        Reply::number(match self.lookup(key, hash, now) {
            None => -2,
            Some(found) if found.mutable.expires_at_ms == 0 => -1,
            Some(found) => (found.mutable.expires_at_ms - now.unix_ms) as i64,
        })
    }

    pub(crate) fn expire_time(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        Reply::number(match self.lookup(key, hash, now) {
            None => -2,
            Some(found) if found.mutable.expires_at_ms == 0 => -1,
            Some(found) => found.mutable.expires_at_ms as i64,
        })
    }

    /// Takes a key's expiry away, if it has one.
    pub(crate) fn persist(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        let found = self.lookup(key, hash, now);
        let Some(found) = found.filter(|found| found.mutable.expires_at_ms != 0) else {
            return Reply::number(0);
        };
        let mutable = expire::with_expiry(found.mutable, 0);
        self.commit(hash.database(), &Command::Persist { key }, |store| {
            store.withhold_mutable(found.slot.slot);
            set_mutable(&mut store.owner, found.slot.slot, mutable);
        });
        self.stats.count(hash.database(), 0, -1);
        Reply::number(1)
    }

    pub(crate) fn type_of(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        match self.lookup(key, hash, now) {
            None => Reply::status(Status::NotFound),
            Some(found) => Reply::number(self.kind(found).of_type().0.into()),
        }
    }

    /// Removes the keys that another shard flushed.
    pub(crate) fn flush_some(
        &mut self,
        only: Option<Database>,
        is_flushed: &dyn Fn(&[u8]) -> bool,
        now: Now,
    ) {
        self.commit(only.unwrap_or_default(), &Command::FlushAll, |store| {
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
                let is_meant = only.is_none_or(|only| database_of(&self.owner, slot.slot) == only);
                if is_meant && is_wanted(record_key(&self.owner, slot.slot)) {
                    let mutable = mutable_of(&self.owner, slot.slot);
                    self.take_out(Found { place, slot, mutable }, now);
                }
            }
            self.shed(bucket, now);
        }
    }

    /// Sets an expiry in the record's mutable word.
    pub(crate) fn set_expiry(&mut self, key: &[u8], found: Found, at_ms: u64) {
        let condition = remora_protocol::ExpireCondition::Always;
        let mutable = expire::with_expiry(found.mutable, at_ms);
        let database = database_of(&self.owner, found.slot.slot);
        self.commit(database, &Command::Expire { key, at_ms, condition }, |store| {
            store.withhold_mutable(found.slot.slot);
            set_mutable(&mut store.owner, found.slot.slot, mutable);
        });
        let (had, has) = (found.mutable.expires_at_ms != 0, at_ms != 0);
        self.stats.count(database, 0, has as i64 - had as i64);
    }
}
