//! Giving a key a record: written whole first, then made the key's own.

use super::commit::Entry;
use super::defragment::Room;
use super::{Found, Now, ShardOptions, Store};
use remora_arena::{
    ArenaFull, Journal, NewRecord, Slot, database_of, flip_dead, slot_of, withhold, write_pending,
};
use remora_layout::bucket::BucketSlot;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::plant::{Plant, planted};
use remora_layout::record::State;
use remora_protocol::{Command, Condition, Expiry};

/// What a key is to hold.
#[derive(Clone, Copy)]
pub(crate) struct New<'a> {
    pub key: &'a [u8],
    pub hash: KeyHash,
    /// What the record is: a string, or a whole object.
    pub kind: Kind,
    pub value: &'a [u8],
    /// Unix ms; 0 for never.
    pub expires_at_ms: u64,
}

/// A record that is written, but that no path leads to yet.
pub(crate) struct Prepared {
    pub hash: KeyHash,
    pub slot: Slot,
    pub expires_at_ms: u64,
}

/// Whether readers may read a new record, or ask.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readable {
    /// The record is whole.
    Yes,
    /// The record is ask-only.
    AskOnly,
}

impl<J: Journal> Store<J> {
    /// Sets one key, and logs it as a SET. Gives where its old record was: it
    /// may have been moved to make room. Nothing is changed if there is none.
    pub(crate) fn put(
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

    /// Sets one key as [`Store::put`] does, and logs it as `entry`.
    pub(crate) fn put_as(
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
    pub(crate) fn settle(&mut self, put: &Result<Option<Found>, ArenaFull>, now: Now) {
        self.shed_thinned(now);
        if matches!(put, Ok(None)) {
            self.grow(now);
            self.shed_thinned(now);
        }
    }

    /// As [`Store::put_as`], while the old record is not evicted.
    fn put_kept(
        &mut self,
        new: New<'_>,
        mut found: Option<Found>,
        entry: &Command<'_>,
        now: Now,
    ) -> Result<Option<Found>, ArenaFull> {
        let New { key, hash, kind, value, expires_at_ms } = new;
        let moved = self.stats.moved;
        let slot = self.write((kind, key, hash), value, expires_at_ms, now)?;
        if self.stats.moved != moved && found.is_some() {
            found = self.found(key, hash);
        }
        self.enter(
            key,
            &Prepared { hash, slot, expires_at_ms },
            found,
            (entry.into(), Readable::Yes),
            now,
        )
    }

    /// Lets a key name a record that is written. As [`Store::put_as`]; if it
    /// fails the slot is given back.
    pub(crate) fn enter(
        &mut self,
        key: &[u8],
        new: &Prepared,
        mut found: Option<Found>,
        (entry, readable): (Entry<'_>, Readable),
        now: Now,
    ) -> Result<Option<Found>, ArenaFull> {
        match self.room_in_chain((key, new.hash), &mut found, now) {
            Ok(overflow) => self.enter_with(new, found, overflow, (entry, readable), now),
            Err(full) => {
                self.give_back(new.slot, now);
                return Err(full);
            }
        }
        Ok(found)
    }

    /// Takes the overflow bucket that a new key may need. What was found may be moved
    /// meanwhile.
    pub(super) fn room_in_chain(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        found: &mut Option<Found>,
        now: Now,
    ) -> Result<Option<Slot>, ArenaFull> {
        let moved = self.stats.moved;
        let mut overflow = None;
        if found.is_none() && self.table.needs_overflow(&self.owner, hash) {
            match self.allocate(Room::Bucket, now) {
                Ok(spare) => overflow = Some(spare),
                Err(_) if self.evict_from_chain(hash, now) => {}
                Err(full) => return Err(full),
            }
        }
        if self.stats.moved != moved && found.is_some() {
            *found = self.found(key, hash);
        }
        Ok(overflow)
    }

    /// Lets a key name a record that is written, with the overflow bucket that it may
    /// need.
    pub(super) fn enter_with(
        &mut self,
        new: &Prepared,
        found: Option<Found>,
        mut overflow: Option<Slot>,
        (entry, readable): (Entry<'_>, Readable),
        now: Now,
    ) {
        let &Prepared { hash, slot, .. } = new;
        self.commit(hash.database(), entry, |store| {
            match readable {
                Readable::Yes => store.show(slot),
                Readable::AskOnly => {
                    withhold(&mut store.owner, slot, State::AskOnly);
                    store.ask_only.touch(slot.slot, hash, now);
                }
            }
            if let Some(found) = found {
                store.kill(found, now);
            }
            store.link(new, found, &mut overflow);
        });
        self.making_room.keep = Some(slot.slot);
        if let Some(spare) = overflow {
            // An eviction has made room in the chain meanwhile.
            self.give_back(spare, now);
        }
    }

    /// Writes a pending record into a new slot.
    pub(crate) fn write(
        &mut self,
        (kind, key, hash): (Kind, &[u8], KeyHash),
        value: &[u8],
        expires_at_ms: u64,
        now: Now,
    ) -> Result<Slot, ArenaFull> {
        let database = hash.database();
        let record = NewRecord { key, value, database, kind, expires_at_ms };
        let slot = self.allocate(Room::Record { bytes: record.record_bytes() }, now)?;
        let ShardOptions { record_secret, region, .. } = self.options;
        self.last_put = write_pending(&mut self.owner, record_secret, region, slot, &record);
        Ok(slot)
    }

    /// Frees a slot that no path ever led to.
    pub(crate) fn give_back(&mut self, slot: Slot, now: Now) {
        let dead = flip_dead(&mut self.owner, slot.slot);
        if let Some(lag) = &mut self.lag {
            lag.forget(slot.slot);
        }
        self.slots.release(&mut self.owner, dead, None, now.since_start_s);
    }

    /// Flips an old record to dead and frees its slot; its key stays in the
    /// table until [`Store::link`] lets it name the successor.
    pub(crate) fn kill(&mut self, found: Found, now: Now) {
        let dead = match planted(Plant::UpdatedStaysLive) {
            true => slot_of(&self.owner, found.slot.slot),
            false => self.flip_dead(found.slot.slot),
        };
        self.bury(dead, found.mutable, now);
        let expiring = (found.mutable.expires_at_ms != 0) as i64;
        self.stats.count(database_of(&self.owner, dead.slot), 0, -expiring);
    }

    /// Makes a record reachable, in the place of the one that was found.
    pub(crate) fn link(
        &mut self,
        new: &Prepared,
        found: Option<Found>,
        overflow: &mut Option<Slot>,
    ) {
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
            }
        }
        let expiring = (new.expires_at_ms != 0) as i64;
        self.stats.count(new.hash.database(), found.is_none() as i64, expiring);
        self.note_linked(new.slot, new.hash, found);
    }
}
