//! SET, DEL, INCR, several at once, FLUSH.

use super::defragment::Room;
use super::{Found, Now, Shard, ShardOptions};
use crate::command::{Command, Condition, Expiry, Pairs, Reply};
use crate::integer;
use crate::shard::expire;
use remora_arena::{
    ArenaFull, Journal, NewRecord, Slot, flip_dead, mutable_of, publish_live, write_pending,
};
use remora_index::hash::record_value;
use remora_layout::bucket::BucketSlot;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use remora_layout::message::Status;
use remora_layout::plant::{Plant, planted};
use remora_layout::record::MAX_EXPIRES_AT_MS;

/// The parts of a SET.
pub(super) struct Set<'a> {
    pub key: &'a [u8],
    pub hash: KeyHash,
    pub value: &'a [u8],
    pub condition: Condition,
    pub expiry: Expiry,
    pub get: bool,
}

/// What a key is to hold.
#[derive(Clone, Copy)]
pub(super) struct New<'a> {
    pub key: &'a [u8],
    pub hash: KeyHash,
    pub value: &'a [u8],
    /// Unix ms; 0 for never.
    pub expires_at_ms: u64,
}

/// A record that is written, but that no path leads to yet.
pub(super) struct Prepared {
    pub hash: KeyHash,
    pub slot: Slot,
    pub expires_at_ms: u64,
}

/// What the log gets, and what readers may do with the new record.
pub(super) enum Entry<'a> {
    /// The record is whole; the log gets this.
    Whole(&'a Command<'a>),
    /// The record is whole; the log gets a SET of what it holds.
    AsItIs,
    /// The record is ask-only; the log gets this.
    AskOnly(&'a Command<'a>),
}

/// Expiry of a key after a SET, Unix ms, 0 for never; `None` if it makes no
/// sense.
pub(super) fn expiry_of(expiry: Expiry, found: Option<Found>) -> Option<u64> {
    match expiry {
        Expiry::Never => Some(0),
        Expiry::Keep => Some(found.map_or(0, |found| found.mutable.expires_at_ms)),
        Expiry::At(at_ms) if at_ms == 0 || at_ms > MAX_EXPIRES_AT_MS => None,
        Expiry::At(at_ms) => Some(at_ms),
    }
}

/// Whether a SET takes effect.
pub(super) fn is_allowed(condition: Condition, found: Option<Found>) -> bool {
    match condition {
        Condition::Always => true,
        Condition::IfAbsent => found.is_none(),
        Condition::IfPresent => found.is_some(),
    }
}

impl<J: Journal> Shard<J> {
    pub(super) fn set(&mut self, set: Set<'_>, now: Now) -> Reply<'_> {
        if set.key.len() > MAX_KEY_BYTES || set.value.len() > MAX_VALUE_BYTES {
            return Reply::status(Status::TooLarge);
        }
        let mut found = self.lookup(set.key, set.hash, now);
        let Some(expires_at_ms) = expiry_of(set.expiry, found) else {
            return Reply::status(Status::InvalidExpiry);
        };
        let allowed = is_allowed(set.condition, found);
        let mut status = if allowed { Status::Ok } else { Status::NotDone };
        if allowed {
            let new = New { key: set.key, hash: set.hash, value: set.value, expires_at_ms };
            match self.put(new, found, now) {
                Ok(old) => found = old,
                Err(ArenaFull { .. }) => status = Status::OutOfMemory,
            }
        }
        let mut reply = Reply::status(status);
        if status == Status::Ok {
            reply.pointer = self.last_put;
        }
        if let Some(found) = found.filter(|_| set.get && status != Status::OutOfMemory) {
            // The old record is dead now, but its bytes stay until its slot is
            // taken again, which no command can do while the reply borrows us.
            reply.value = Some(record_value(&self.owner, found.slot.slot));
        }
        reply
    }

    pub(super) fn incr(&mut self, key: &[u8], hash: KeyHash, by: i64, now: Now) -> Reply<'_> {
        let found = self.lookup(key, hash, now);
        let before = match found {
            None => 0,
            Some(found) => match integer::parse(record_value(&self.owner, found.slot.slot)) {
                Some(value) => value,
                None => return Reply::status(Status::NotAnInteger),
            },
        };
        let Some(after) = before.checked_add(by) else {
            return Reply::status(Status::Overflow);
        };
        let expires_at_ms = found.map_or(0, |found| found.mutable.expires_at_ms);
        let text = integer::Text::of(after);
        let new = New { key, hash, value: text.as_bytes(), expires_at_ms };
        match self.put(new, found, now) {
            Ok(_) => Reply::number(after),
            Err(ArenaFull { .. }) => Reply::status(Status::OutOfMemory),
        }
    }

    pub(super) fn del(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        let Some(found) = self.lookup(key, hash, now) else { return Reply::number(0) };
        self.log.append(&Command::Del { key });
        self.remove(found, hash, now);
        Reply::number(1)
    }

    /// Sets one key, and logs it as a SET. Gives where its old record was: it
    /// may have been moved to make room. Nothing is changed if there is none.
    pub(super) fn put(
        &mut self,
        new: New<'_>,
        found: Option<Found>,
        now: Now,
    ) -> Result<Option<Found>, ArenaFull> {
        let New { key, value, expires_at_ms, .. } = new;
        let expiry = if expires_at_ms == 0 { Expiry::Never } else { Expiry::At(expires_at_ms) };
        let condition = Condition::Always;
        let entry = Command::Set { key, value, condition, expiry, get: false };
        self.put_as(new, found, &entry, now)
    }

    /// Sets one key as [`Shard::put`] does, and logs it as `entry`.
    pub(super) fn put_as(
        &mut self,
        new: New<'_>,
        found: Option<Found>,
        entry: &Command<'_>,
        now: Now,
    ) -> Result<Option<Found>, ArenaFull> {
        self.making_room.keep = found.map(|found| found.slot.slot);
        let put = self.put_kept(new, found, entry, now);
        self.settle(&put, now);
        put
    }

    /// After a key was set, or was not: what making room has left behind, and
    /// the table's growth by a new key. Places found before are void.
    pub(super) fn settle(&mut self, put: &Result<Option<Found>, ArenaFull>, now: Now) {
        self.making_room.keep = None;
        self.shed_thinned(now);
        if matches!(put, Ok(None)) {
            self.grow(now);
            self.shed_thinned(now);
        }
    }

    /// As [`Shard::put_as`], while the old record is not evicted.
    fn put_kept(
        &mut self,
        new: New<'_>,
        mut found: Option<Found>,
        entry: &Command<'_>,
        now: Now,
    ) -> Result<Option<Found>, ArenaFull> {
        let New { key, hash, value, expires_at_ms } = new;
        let moved = self.stats.moved;
        let slot = self.write(key, value, expires_at_ms, now)?;
        if self.stats.moved != moved && found.is_some() {
            found = self.found(key, hash);
        }
        self.enter(key, &Prepared { hash, slot, expires_at_ms }, found, Entry::Whole(entry), now)
    }

    /// Lets a key name a record that is written. As [`Shard::put_as`]; if it
    /// fails the slot is given back.
    pub(super) fn enter(
        &mut self,
        key: &[u8],
        new: &Prepared,
        mut found: Option<Found>,
        entry: Entry<'_>,
        now: Now,
    ) -> Result<Option<Found>, ArenaFull> {
        let &Prepared { hash, slot, .. } = new;
        let moved = self.stats.moved;
        let mut overflow = None;
        if found.is_none() && self.table.needs_overflow(&self.owner, hash) {
            match self.allocate(Room::Bucket, now) {
                Ok(spare) => overflow = Some(spare),
                Err(_) if self.evict_from_chain(hash, now) => {}
                Err(full) => {
                    self.give_back(slot, now);
                    return Err(full);
                }
            }
        }
        if self.stats.moved != moved && found.is_some() {
            found = self.found(key, hash);
        }
        match entry {
            Entry::Whole(entry) | Entry::AskOnly(entry) => self.log.append(entry),
            Entry::AsItIs => self.log_as_it_is(key, new),
        };
        match entry {
            Entry::AskOnly(_) => self.ask_only.touch(slot.slot, hash, now),
            _ => publish_live(&mut self.owner, slot),
        }
        if let Some(found) = found {
            self.kill(found, now);
        }
        self.link(new, found, &mut overflow);
        if let Some(spare) = overflow {
            // An eviction has made room in the chain meanwhile.
            self.give_back(spare, now);
        }
        Ok(found)
    }

    /// Writes a pending record into a new slot.
    fn write(
        &mut self,
        key: &[u8],
        value: &[u8],
        expires_at_ms: u64,
        now: Now,
    ) -> Result<Slot, ArenaFull> {
        let record = NewRecord { key, value, kind: 0, expires_at_ms };
        let slot = self.allocate(Room::Record { bytes: record.record_bytes() }, now)?;
        let ShardOptions { record_secret, region, .. } = self.options;
        self.last_put = write_pending(&mut self.owner, record_secret, region, slot, &record);
        Ok(slot)
    }

    /// Frees a slot that no path ever led to.
    pub(super) fn give_back(&mut self, slot: Slot, now: Now) {
        let dead = flip_dead(&mut self.owner, slot.slot);
        self.slots.release(&mut self.owner, dead, None, now.since_start_s);
    }

    /// Flips an old record to dead and frees its slot; its key stays in the
    /// table until [`Shard::link`] lets it name the successor.
    fn kill(&mut self, found: Found, now: Now) {
        let dead = flip_dead(&mut self.owner, found.slot.slot);
        if planted(Plant::UpdatedStaysLive) {
            publish_live(&mut self.owner, dead);
        }
        let lease_end_s = self.lease_end_s(found.mutable, now);
        self.release(dead, lease_end_s, now);
        self.stats.expiring -= (found.mutable.expires_at_ms != 0) as u64;
    }

    /// Makes a record reachable, in the place of the one that was found.
    fn link(&mut self, new: &Prepared, found: Option<Found>, overflow: &mut Option<Slot>) {
        let word = BucketSlot {
            slot: new.slot.slot,
            class: new.slot.class,
            generation_low: new.slot.generation as u8,
            signature: new.hash.signature(),
        };
        match found {
            Some(found) => self.table.replace(&mut self.owner, found.place, word),
            None => {
                let spare = if self.table.needs_overflow(&self.owner, new.hash) {
                    overflow.take()
                } else {
                    None
                };
                let spare = spare.map(|slot| slot.slot);
                self.table.insert(&mut self.owner, new.hash, word, spare);
                self.stats.keys += 1;
            }
        }
        self.stats.expiring += (new.expires_at_ms != 0) as u64;
        self.note_linked(new.slot, new.hash, found);
    }

    /// Sets several keys as one change: all records are written, then all old
    /// guardians flipped, then all new ones published (design, "Writing"). A
    /// key that stands twice ends with its last value.
    pub(super) fn multi_set(&mut self, pairs: Pairs<'_>, now: Now) -> Reply<'_> {
        // Of equal keys only the last is set.
        let mut last = std::collections::BTreeMap::new();
        for (at, (key, _)) in pairs.iter().enumerate() {
            last.insert(key, at);
        }
        let chosen = |at: usize, key: &[u8]| last.get(key) == Some(&at);
        let mut prepared: Vec<Prepared> = Vec::new();
        let mut spares: Vec<Slot> = Vec::new();
        let mut full = false;
        for (at, (key, value)) in pairs.iter().enumerate() {
            if !chosen(at, key) {
                continue;
            }
            let hash = self.hash(key);
            match self.write(key, value, 0, now) {
                Ok(slot) => prepared.push(Prepared { hash, slot, expires_at_ms: 0 }),
                Err(ArenaFull { .. }) => full = true,
            }
            // Several new keys may meet in one bucket: one spare for each.
            if self.table.find(&self.owner, key, hash).is_none() {
                match self.allocate(Room::Bucket, now) {
                    Ok(spare) => spares.push(spare),
                    Err(ArenaFull { .. }) => full = true,
                }
            }
            if full {
                break;
            }
        }
        if full {
            for slot in prepared.into_iter().map(|new| new.slot).chain(spares) {
                self.give_back(slot, now);
            }
            self.shed_thinned(now);
            return Reply::status(Status::OutOfMemory);
        }
        self.log.append(&Command::MultiSet { pairs });
        let keys = || pairs.iter().enumerate().filter(|(at, (key, _))| chosen(*at, key));
        if !self.geo.is_empty() {
            for (_, (key, _)) in keys() {
                self.hide_geo(key, self.hash(key));
            }
        }
        let mut found: Vec<Option<Found>> = Vec::with_capacity(prepared.len());
        for (new, (_, (key, _))) in prepared.iter().zip(keys()) {
            let old = self.found(key, new.hash);
            if let Some(old) = old {
                self.kill(old, now);
            }
            found.push(old);
        }
        let added = found.iter().filter(|old| old.is_none()).count();
        for (new, old) in prepared.iter().zip(found) {
            publish_live(&mut self.owner, new.slot);
            let mut spare = spares.pop();
            self.link(new, old, &mut spare);
            spares.extend(spare);
        }
        for spare in spares {
            self.give_back(spare, now);
        }
        if !self.geo.is_empty() {
            for (_, (key, _)) in keys() {
                self.drop_geo(key, self.hash(key), now);
            }
        }
        for _ in 0..added {
            self.grow(now);
        }
        self.shed_thinned(now);
        Reply::status(Status::Ok)
    }

    /// Removes every key, strings and others, and every tree. All guardians are dead when it answers, so that no
    /// reader takes a flushed value for a fresh one.
    pub(super) fn flush(&mut self, now: Now) -> Reply<'_> {
        self.log.append(&Command::Flush);
        self.note_flushed();
        self.drop_all_trees(now);
        let removed = self.stats.keys + self.drop_all_geo(now);
        for bucket in 0..self.table.buckets() {
            for (place, slot) in self.table.places(&self.owner, bucket) {
                let mutable = mutable_of(&self.owner, slot.slot);
                self.take_out(Found { place, slot, mutable }, now);
            }
            self.shed(bucket, now);
        }
        debug_assert_eq!(self.stats.keys, 0);
        Reply::number(removed as i64)
    }

    /// Sets an expiry in the record's mutable word.
    pub(super) fn set_expiry(&mut self, key: &[u8], found: Found, at_ms: u64) {
        let condition = crate::command::ExpireCondition::Always;
        self.log.append(&Command::Expire { key, at_ms, condition });
        let mutable = expire::with_expiry(found.mutable, at_ms);
        remora_arena::set_mutable(&mut self.owner, found.slot.slot, mutable);
        self.stats.expiring += (found.mutable.expires_at_ms == 0) as u64;
    }
}
