//! A key gets a record, written whole first, and then made the key's own; loses it; or
//! leads to an object by its root record.
//!
//! Invariant: the old record of a key is dead before the new one is reachable. A root record keeps
//! its slot and its generation while the object lives. It is dead, its state block's guardian
//! first, before any of the object's memory can hold something else.

use super::Store;
use super::clock::Now;
use super::commit::Entry;
use super::defragment::Room;
use super::options::ShardOptions;
use super::record::{Found, Grave, New, Prepared, Readable, word_to};
use remora_arena::{
    ArenaFull, Journal, NewRecord, Slot, database_of, flip_dead, kind_of, set_state_guardian,
    slot_of, withhold, write_pending, write_root,
};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::record::{Mutable, State, Wanted, state_offset};
use remora_protocol::{Command, Condition, Expiry};

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

    /// After a SET, whether or not it succeeded: cleans up after making room, and grows the table
    /// for a new key. Places found before are void.
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

    /// Makes a key lead to a record that is written. As [`Store::put_as`]; on failure it frees the
    /// slot.
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

    /// Takes the overflow bucket that a new key may need. Places that were found before may have
    /// moved.
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

    /// Flips an old record to dead and frees its slot; its key stays in the
    /// table until [`Store::link`] lets it name the successor.
    pub(crate) fn kill(&mut self, found: Found, now: Now) {
        let dead = self.flip_dead(found.slot.slot);
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
        let word = word_to(new.slot, new.hash);
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
        self.evictor.note_linked(&self.owner, (new.slot, new.hash), found);
    }

    /// Removes a key that was found, and merges overflow buckets that its
    /// chain no longer needs (H11).
    pub(crate) fn remove(&mut self, found: Found, hash: KeyHash, now: Now) {
        self.take_out(found, now);
        self.shed(self.table.bucket(hash), now);
    }

    /// Merges overflow buckets that a chain no longer needs.
    pub(crate) fn shed(&mut self, bucket: u64, now: Now) {
        self.table.shed(&mut self.owner, &mut self.slots, bucket, now.since_start_s);
    }

    /// Splits a bucket of the table if it is too full: after each new key, once no place that was
    /// found before is needed.
    pub(crate) fn grow(&mut self, now: Now) {
        if self.flushes.are_under_way() {
            self.sweep_bucket(self.table.splits_next(), now);
        }
        let seed = self.options.hash_seed;
        let hash_of = |database, key: &[u8]| KeyHash::within(database, key, seed);
        if self.evictor.is_on()
            && let Some(bytes) = self.table.wants_run()
            && let Some(run) = self.make_run(bytes, now)
        {
            self.slots.give_run(run, bytes);
        }
        self.table.grow(&mut self.owner, &mut self.slots, now.since_start_s, hash_of);
    }

    /// Takes a key that was found out: guardian first, then the index. Other
    /// places that were found stay valid.
    pub(crate) fn take_out(&mut self, found: Found, now: Now) {
        let dead = self.flip_dead(found.slot.slot);
        self.table.remove(&mut self.owner, found.place);
        self.evictor.note_removed(&self.owner, dead);
        self.bury(dead, found.mutable, now);
        let expiring = (found.mutable.expires_at_ms != 0) as i64;
        self.stats.count(database_of(&self.owner, dead.slot), -1, -expiring);
    }

    /// Gives a dead record's memory back: a string's at once, an object's in
    /// turns.
    pub(crate) fn bury(&mut self, dead: Slot, mutable: Mutable, now: Now) {
        if self.moves.has_dumps() && !kind_of(&self.owner, dead.slot).is_part() {
            self.moves.end_dump_of(dead, self.hash_in(dead.slot));
        }
        let lease_end_s = self.lease_end_s(mutable, now);
        match kind_of(&self.owner, dead.slot) {
            kind if !kind.is_root() => self.release(dead, lease_end_s, now),
            kind => {
                self.evictor.note_buried(dead.slot);
                self.moves.end_filling(dead.slot);
                self.graves.push_back(Grave { kind, root: dead, lease_end_s });
            }
        }
    }

    /// All memory of an object but its root record's is released.
    pub(crate) fn end_grave(&mut self, grave: Grave, now: Now) {
        self.evictor.note_released(grave.root.slot);
        self.release(grave.root, grave.lease_end_s, now);
    }

    /// Flips the guardian of a record to dead, and that of its state block first
    /// if it is an object's.
    pub(crate) fn flip_dead(&mut self, slot: u32) -> Slot {
        if kind_of(&self.owner, slot).is_root() {
            let root = slot_of(&self.owner, slot);
            set_state_guardian(&mut self.owner, root, State::Dead);
        }
        flip_dead(&mut self.owner, slot)
    }

    /// Takes a root record of a type for a key: pending, with a state block of
    /// zeros. Nothing leads to it yet.
    pub(crate) fn new_root(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        kind: Kind,
        state_bytes: usize,
        expires_at_ms: u64,
        now: Now,
    ) -> Result<Slot, ArenaFull> {
        let bytes = state_offset(key.len()) + state_bytes;
        let slot = self.allocate(Room::Record { bytes }, now);
        self.shed_thinned(now);
        let slot = slot?;
        let (secret, region) = (self.options.record_secret, self.options.region);
        let what = Wanted { kind, database: hash.database() };
        write_root(&mut self.owner, secret, region, slot, (what, key), state_bytes, expires_at_ms);
        Ok(slot)
    }

    /// Makes a key lead to an object that is made, in the place of what was found. This is one
    /// change: either it is logged and its root record is live, or it fails for lack of memory and
    /// the root record is freed.
    pub(crate) fn enter_root(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        (root, expires_at_ms): (Slot, u64),
        found: Option<Found>,
        entry: Entry<'_>,
        now: Now,
    ) -> Result<(), ArenaFull> {
        self.making_room.keep = found.map(|found| found.slot.slot);
        let new = Prepared { hash, slot: root, expires_at_ms };
        let put = self.enter(key, &new, found, (entry, Readable::Yes), now);
        self.settle(&put, now);
        put.map(drop)
    }

    /// Makes a key lead to an object that is filled, in the place of what was found. An error
    /// leaves everything unchanged.
    pub(crate) fn enter_loaded(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        (root, expires_at_ms): (Slot, u64),
        mut found: Option<Found>,
        entry: &Command<'_>,
        now: Now,
    ) -> Result<(), ArenaFull> {
        self.making_room.keep = found.map(|found| found.slot.slot);
        let overflow = self.room_in_chain((key, hash), &mut found, now);
        if let Ok(overflow) = overflow {
            let new = Prepared { hash, slot: root, expires_at_ms };
            self.enter_with(&new, found, overflow, (entry.into(), Readable::Yes), now);
        }
        let entered = overflow.map(|_| found);
        self.settle(&entered, now);
        entered.map(drop)
    }
}
