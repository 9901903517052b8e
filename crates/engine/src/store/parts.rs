//! Parts of objects: records that no key names, found by name through a table of
//! the object's own, which begins in its root record.
//!
//! What it keeps true: a part is bound to its root record, by the seed of its
//! checksum, so that it passes for no part of another object, nor of an earlier
//! one; a new part is complete before it is reachable, and the old one is dead
//! before that. A part counts only with its root: when that is dead, all parts
//! are, and their memory comes back in turns.
//! Reads in turns: [`super::part_reads`].

use super::part_reads::Reading;
use super::{Found, Now, Room, Store};
use remora_arena::{
    ArenaFull, BUCKET_CLASS, Journal, NewRecord, Owner, Slot, class_bytes, copy_pending, flip_dead,
    is_live, lengths_of, mutable_of, publish_live, slot_of, state_in, write_pending,
};
use remora_index::hash::{Place, Table, record_key};
use remora_layout::bucket::BucketSlot;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::part::{part_hash_seed, part_secret};
use remora_layout::record::State;
use remora_layout::table::OBJECT_STATE_BYTES;
use remora_protocol::Command;
use std::collections::BTreeMap;
use std::sync::{Mutex, Weak};

/// The parts of one object.
pub(crate) struct Parts {
    pub(super) root: Slot,
    kind: Kind,
    pub(super) table: Table,
    hash_seed: u64,
    secret: u64,
    /// Bytes of the slots of all parts.
    bytes: u64,
    /// The bucket that is released next, once the root record is dead.
    releasing: u64,
    pub(super) readings: Vec<Weak<Mutex<Reading>>>,
}

/// All objects that have parts, by the slots of their root records.
pub(crate) type AllParts = BTreeMap<u32, Parts>;

/// A part with its new bytes, which no path leads to yet.
pub(crate) struct NewPart {
    hash: KeyHash,
    slot: Slot,
}

impl Parts {
    fn hash(&self, name: &[u8]) -> KeyHash {
        KeyHash::of(name, self.hash_seed)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.table.records()
    }

    /// Buckets of the table: it only grows.
    pub fn buckets(&self) -> u64 {
        self.table.buckets()
    }

    /// The part of this name.
    pub fn find<J: Journal>(&self, owner: &Owner<J>, name: &[u8]) -> Option<Found> {
        let (place, slot) = self.place(owner, name)?;
        Some(Found { place, slot, mutable: mutable_of(owner, slot.slot) })
    }

    fn place<J: Journal>(&self, owner: &Owner<J>, name: &[u8]) -> Option<(Place, BucketSlot)> {
        self.table.find(owner, name, self.hash(name))
    }

    /// The slots of the parts in one bucket's chain.
    pub fn in_bucket<J: Journal>(&self, owner: &Owner<J>, bucket: u64) -> Vec<u32> {
        self.table.places(owner, bucket).into_iter().map(|(_, slot)| slot.slot).collect()
    }
}

impl<J: Journal> Store<J> {
    /// Takes a root record with an empty table for a key. Nothing leads to it yet.
    pub(crate) fn new_parts(
        &mut self,
        named: (&[u8], KeyHash),
        (of, kind): (Kind, Kind),
        expires_at_ms: u64,
        now: Now,
    ) -> Result<Slot, ArenaFull> {
        let root = self.new_root(named, of, OBJECT_STATE_BYTES, expires_at_ms, now)?;
        let state = self.state_of(root).slot as usize * 2;
        let table = Table::in_object(&mut self.owner, state);
        let (slot, generation) = (root.slot, root.generation);
        let parts = Parts {
            root,
            kind,
            table,
            hash_seed: part_hash_seed(self.options.hash_seed, slot, generation),
            secret: part_secret(self.options.record_secret, slot, generation),
            bytes: 0,
            releasing: 0,
            readings: Vec::new(),
        };
        self.parts.insert(slot, parts);
        Ok(root)
    }

    /// The parts of the object with this root record.
    pub(crate) fn parts_of(&self, root: u32) -> &Parts {
        &self.parts[&root]
    }

    /// Writes a pending part. An error leaves no trace.
    pub(crate) fn write_part(
        &mut self,
        root: u32,
        (name, value): (&[u8], &[u8]),
        now: Now,
    ) -> Result<NewPart, ArenaFull> {
        let Parts { kind, secret, .. } = self.parts[&root];
        // In place of an expiry, which parts have none of: where the root lies.
        let (database, expires_at_ms) = (Database::ZERO, root.into());
        let record = NewRecord { key: name, value, database, kind, expires_at_ms };
        let slot = self.allocate(Room::Record { bytes: record.record_bytes() }, now)?;
        let region = self.options.region;
        write_pending(&mut self.owner, secret, region, slot, &record);
        let hash = self.parts[&root].hash(name);
        Ok(NewPart { hash, slot })
    }

    /// Plans to set parts, each name once: writes them, and takes what overflow
    /// buckets they may need. An error leaves no trace. The root record and
    /// `keep`, if any, stay where they are.
    pub(crate) fn plan_parts<'p>(
        &mut self,
        root: u32,
        pairs: impl Iterator<Item = (&'p [u8], &'p [u8])>,
        now: Now,
    ) -> Result<PlannedParts, ArenaFull> {
        let mut planned = PlannedParts::default();
        let mut full = None;
        for (name, value) in pairs {
            let part = match self.write_part(root, (name, value), now) {
                Ok(part) => part,
                Err(error) => {
                    full = Some(error);
                    break;
                }
            };
            let parts = &self.parts[&root];
            let is_new = parts.place(&self.owner, name).is_none();
            // Several new ones may meet in one bucket.
            let may_overflow =
                !planned.parts.is_empty() || parts.table.needs_overflow(&self.owner, part.hash);
            planned.parts.push(part);
            planned.added += is_new as u64;
            if is_new && may_overflow {
                match self.allocate(Room::Bucket, now) {
                    Ok(spare) => planned.spares.push(spare),
                    Err(error) => {
                        full = Some(error);
                        break;
                    }
                }
            }
        }
        self.shed_thinned(now);
        let Some(full) = full else { return Ok(planned) };
        self.drop_planned(planned, now);
        Err(full)
    }

    /// Gives back what was planned, and not published.
    pub(crate) fn drop_planned(&mut self, planned: PlannedParts, now: Now) {
        for slot in planned.parts.into_iter().map(|part| part.slot).chain(planned.spares) {
            self.give_back(slot, now);
        }
    }

    /// Lets planned parts be seen, in the place of those of the same names. To be
    /// called in [`Store::commit`], and [`Store::settle_parts`] after it.
    pub(crate) fn publish_parts(&mut self, root: u32, planned: &mut PlannedParts, now: Now) {
        let mut dead_parts = Vec::new();
        let most_kept = self.most_kept_bytes();
        let parts = self.parts.get_mut(&root).expect("an object with parts");
        for part in &planned.parts {
            parts.keep_for_reads(&self.owner, part.hash, (&mut self.part_reads, most_kept));
            let name = record_key(&self.owner, part.slot.slot);
            let old = parts.table.find(&self.owner, name, part.hash);
            let dead = old.map(|(_, slot)| flip_dead(&mut self.owner, slot.slot));
            let word = BucketSlot {
                slot: part.slot.slot,
                class: part.slot.class,
                generation_low: part.slot.generation as u8,
                signature: part.hash.signature(),
            };
            parts.bytes += self.slots.bytes_of(part.slot);
            match old {
                Some((place, _)) => parts.table.replace(&mut self.owner, place, word),
                None => {
                    let needs = parts.table.needs_overflow(&self.owner, part.hash);
                    let spare = needs.then(|| planned.spares.pop()).flatten();
                    let spare = spare.map(|slot| slot.slot);
                    parts.table.insert(&mut self.owner, part.hash, word, spare);
                }
            }
            if let Some(dead) = dead {
                parts.bytes -= self.slots.bytes_of(dead);
                dead_parts.push(dead);
            }
        }
        planned.parts.iter().for_each(|part| self.show(part.slot));
        dead_parts.into_iter().for_each(|dead| self.release_part(dead, now));
    }

    /// Gives back the slot of a dead part, once its lease has ended.
    fn release_part(&mut self, dead: Slot, now: Now) {
        let mutable = mutable_of(&self.owner, dead.slot);
        let lease_end_s = self.lease_end_s(mutable, now);
        if let Some(lag) = &mut self.lag {
            lag.forget(dead.slot);
        }
        self.slots.release(&mut self.owner, dead, lease_end_s, now.since_start_s);
    }

    /// After planned parts are published: gives back what they did not need, and
    /// lets the table grow.
    pub(crate) fn settle_parts(&mut self, root: u32, planned: PlannedParts, now: Now) {
        for spare in planned.spares {
            self.give_back(spare, now);
        }
        for _ in 0..planned.added {
            self.grow_parts(root, now);
        }
        self.shed_thinned(now);
    }

    fn grow_parts(&mut self, root: u32, now: Now) {
        let parts = &self.parts[&root];
        if self.policy.is_some()
            && let Some(bytes) = parts.table.wants_run()
            && let Some(run) = self.make_run(bytes, now)
        {
            self.slots.give_run(run, bytes);
        }
        let Parts { table, hash_seed, .. } = self.parts.get_mut(&root).expect("it has parts");
        let seed = *hash_seed;
        let hash_of = |_, name: &[u8]| KeyHash::of(name, seed);
        table.grow(&mut self.owner, &mut self.slots, now.since_start_s, hash_of);
    }

    /// Takes parts out, each name once. To be called in [`Store::commit`].
    pub(crate) fn remove_parts<'p>(
        &mut self,
        root: u32,
        names: impl Iterator<Item = &'p [u8]>,
        now: Now,
    ) {
        let most_kept = self.most_kept_bytes();
        for name in names {
            let parts = self.parts.get_mut(&root).expect("an object with parts");
            let hash = parts.hash(name);
            let Some((place, slot)) = parts.table.find(&self.owner, name, hash) else { continue };
            parts.keep_for_reads(&self.owner, hash, (&mut self.part_reads, most_kept));
            let dead = flip_dead(&mut self.owner, slot.slot);
            parts.table.remove(&mut self.owner, place);
            parts.bytes -= self.slots.bytes_of(dead);
            let bucket = parts.table.bucket(hash);
            parts.table.shed(&mut self.owner, &mut self.slots, bucket, now.since_start_s);
            self.release_part(dead, now);
        }
    }

    /// Lets a key lead to an object whose root record and parts are made, in the
    /// place of what stands there. An error takes all of it back.
    pub(crate) fn enter_parts(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        (root, expires_at_ms): (Slot, u64),
        entry: &Command<'_>,
        now: Now,
    ) -> Result<(), ArenaFull> {
        // What was found before may have been moved meanwhile.
        let found: Option<Found> = self.found(key, hash);
        let entered = self.enter_root((key, hash), (root, expires_at_ms), found, entry.into(), now);
        if entered.is_err() {
            self.forget_parts(root.slot, now);
        }
        entered
    }

    /// Releases all parts of a root record that nothing has ever led to; the
    /// record itself is not touched.
    pub(crate) fn forget_parts(&mut self, root: u32, now: Now) {
        // Bounded by what was just made.
        while !self.release_parts(root, usize::MAX, now) {}
    }

    /// Releases up to so many parts of an object whose root record is dead. True
    /// once there are none, and the table is gone, too.
    pub(crate) fn release_parts(&mut self, root: u32, most: usize, now: Now) -> bool {
        let most_kept = self.most_kept_bytes();
        let Some(parts) = self.parts.get_mut(&root) else { return true };
        let mut released = 0;
        while parts.table.records() > 0 && released < most {
            let bucket = parts.releasing;
            parts.releasing += 1;
            // A bucket's number is a hash that leads to it.
            parts.keep_for_reads(&self.owner, KeyHash(bucket), (&mut self.part_reads, most_kept));
            for (place, slot) in parts.table.places(&self.owner, bucket) {
                let dead = flip_dead(&mut self.owner, slot.slot);
                parts.table.remove(&mut self.owner, place);
                parts.bytes -= self.slots.bytes_of(dead);
                if let Some(lag) = &mut self.lag {
                    lag.forget(dead.slot);
                }
                self.slots.release(&mut self.owner, dead, None, now.since_start_s);
                released += 1;
            }
            parts.table.shed(&mut self.owner, &mut self.slots, bucket, now.since_start_s);
            released += 1;
        }
        if parts.table.records() > 0 {
            return false;
        }
        parts.table.give_chunks(&mut self.slots);
        self.parts.remove(&root);
        true
    }

    /// Whether the part in this slot is of an object whose table is here.
    pub(super) fn is_in_parts(&self, slot: u32) -> bool {
        let parts = self.parts.get(&(mutable_of(&self.owner, slot).expires_at_ms as u32));
        parts.is_some_and(|parts| parts.kind == remora_arena::kind_of(&self.owner, slot))
    }

    /// Bytes of the arena that the object with this root record takes beside that.
    pub(crate) fn bytes_of_parts(&self, root: u32) -> u64 {
        let parts = &self.parts[&root];
        parts.bytes + parts.table.bytes()
    }

    /// Moves a live part of an object to another slot. False if it has to stay: it
    /// stands in no table, or has no room elsewhere.
    pub(super) fn move_part(&mut self, slot: u32, now: Now) -> bool {
        if !is_live(&self.owner, slot) {
            return false;
        }
        let root = mutable_of(&self.owner, slot).expires_at_ms as u32;
        let name = record_key(&self.owner, slot);
        let found = self.parts.get(&root).and_then(|parts| parts.find(&self.owner, name));
        let Some(found) = found.filter(|found| found.slot.slot == slot) else { return false };
        let bytes = lengths_of(&self.owner, slot).record_bytes();
        let Some(to) = self.room_elsewhere(bytes, now) else { return false };
        let parts = self.parts.get_mut(&root).expect("it was there");
        parts.keep_moving(&self.owner, slot);
        copy_pending(&mut self.owner, parts.secret, self.options.region, slot, to);
        let dead = flip_dead(&mut self.owner, slot);
        publish_live(&mut self.owner, to);
        let word = BucketSlot {
            slot: to.slot,
            class: to.class,
            generation_low: to.generation as u8,
            ..found.slot
        };
        parts.table.replace(&mut self.owner, found.place, word);
        parts.bytes = parts.bytes + self.slots.bytes_of(to) - self.slots.bytes_of(dead);
        self.release_part(dead, now);
        self.stats.moved += 1;
        true
    }

    /// Compares the parts of all objects of this kind with their tables. Bytes of
    /// their slots, overflow buckets included.
    ///
    /// # Errors
    /// What does not fit.
    pub(crate) fn audit_parts(&self, kind: Kind) -> Result<u64, String> {
        let mut bytes = 0;
        for parts in self.parts.values().filter(|parts| parts.kind == kind) {
            let told = |what: &str| Err(format!("{what}: root {:?}", parts.root));
            let (mut counted, mut found_bytes) = (0, 0);
            for bucket in 0..parts.table.buckets() {
                for slot in parts.in_bucket(&self.owner, bucket) {
                    let is_one = remora_arena::kind_of(&self.owner, slot) == kind
                        && state_in(&self.owner, slot) != State::Dead;
                    if !is_one {
                        return told("a table leads to what is no part, or a dead one");
                    }
                    if parts.table.bucket(parts.hash(record_key(&self.owner, slot))) != bucket {
                        return told("a part stands in another bucket than its name's");
                    }
                    counted += 1;
                    found_bytes += self.slots.bytes_of(slot_of(&self.owner, slot));
                }
            }
            if (counted, found_bytes) != (parts.count(), parts.bytes) {
                return told("an object's parts are not those of the books");
            }
            let overflow = parts.table.overflow_buckets() * class_bytes(BUCKET_CLASS) as u64;
            bytes += parts.bytes + overflow;
        }
        Ok(bytes)
    }
}

/// Parts that are written, and what publishing them may need.
#[derive(Default)]
pub(crate) struct PlannedParts {
    parts: Vec<NewPart>,
    spares: Vec<Slot>,
    /// How many of them are new.
    pub added: u64,
}
