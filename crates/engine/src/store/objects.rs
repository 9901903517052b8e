//! Objects of parts, and objects that are on their way to a key.
//!
//! Invariant: a plan of parts that fails leaves no trace. A load, which no key leads to, is
//! released in turns if it is abandoned.

use super::Store;
use super::clock::Now;
use super::defragment::Room;
use super::moves::Load;
use super::parts::{NewPart, NumberOf, PlannedParts};
use super::record::{Found, Grave};
use remora_arena::{ArenaFull, Journal, NewRecord, Slot, write_pending};
use remora_index::hash::record_key;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::table::OBJECT_STATE_BYTES;
use remora_protocol::{Command, LoadStep};

/// The value of a new part.
#[derive(Clone, Copy)]
pub(crate) enum PartValue<'v> {
    /// These bytes.
    Plain(&'v [u8]),
    /// Bytes with links and their hints ([`remora_layout::link`]).
    Linked(&'v [u8]),
}

/// A part that is written, and the one that it replaces.
pub(crate) struct PlannedPart {
    part: NewPart,
    found: Found,
    /// Records that were moved before: once there are more, the other may have another place.
    moved: u64,
}

impl<J: Journal> Store<J> {
    /// Takes a root record with an empty table for a key, which begins so many bytes behind the
    /// beginning of its state. Nothing leads to it yet.
    pub(crate) fn new_parts(
        &mut self,
        named: (&[u8], KeyHash),
        (of, kind, number_of, parts_at): (Kind, Kind, NumberOf, usize),
        expires_at_ms: u64,
        now: Now,
    ) -> Result<Slot, ArenaFull> {
        let state_bytes = parts_at + OBJECT_STATE_BYTES;
        let root = self.new_root(named, of, state_bytes, expires_at_ms, now)?;
        let table = self.state_of(root).slot as usize * 2 + parts_at / 8;
        self.parts.begin(&mut self.owner, (root, table), (kind, number_of), &self.options);
        Ok(root)
    }

    /// Plans to set parts, each name once: writes them, and takes what overflow
    /// buckets they may need. An error leaves no trace. The root record and
    /// `keep`, if any, stay where they are.
    pub(crate) fn plan_parts<'p>(
        &mut self,
        root: u32,
        pairs: impl Iterator<Item = (&'p [u8], PartValue<'p>)>,
        now: Now,
    ) -> Result<PlannedParts, ArenaFull> {
        let mut planned = PlannedParts::default();
        let mut full = None;
        for (name, value) in pairs {
            let hash = self.parts.of(root).hash(name);
            let part = match self.write_part((root, hash), (name, value), now) {
                Ok(part) => part,
                Err(error) => {
                    full = Some(error);
                    break;
                }
            };
            let parts = self.parts.of(root);
            let is_new = parts.place(&self.owner, name, part.hash).is_none();
            // Several new ones may meet in one bucket.
            let may_overflow =
                !planned.parts.is_empty() || parts.needs_overflow(&self.owner, part.hash);
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

    /// Plans to replace a part that was found under this name by one with another value. An error
    /// leaves no trace. As [`Store::plan_parts`], without memory for a plan.
    pub(crate) fn plan_part(
        &mut self,
        (root, found): (u32, Found),
        (name, hash, value): (&[u8], KeyHash, &[u8]),
        now: Now,
    ) -> Result<PlannedPart, ArenaFull> {
        let moved = self.stats.moved;
        let part = self.write_part((root, hash), (name, PartValue::Plain(value)), now);
        self.shed_thinned(now);
        Ok(PlannedPart { part: part?, found, moved })
    }

    /// Makes a planned part visible, in the place of the one that was found. The caller calls it in
    /// [`Store::commit`].
    pub(crate) fn publish_part(&mut self, root: u32, planned: &PlannedPart, now: Now) {
        let PlannedPart { part, found, moved } = planned;
        let found = match self.stats.moved == *moved {
            true => *found,
            false => {
                let name = record_key(&self.owner, part.slot.slot);
                let again = self.parts.of(root).find_hashed(&self.owner, name, part.hash);
                again.expect("a part leaves only with its object, or by its owner's change")
            }
        };
        let (memory, old) = ((&mut self.owner, &self.slots), found.slot.slot);
        let dead = self.parts.replace(memory, root, part, (found.place, old));
        self.show(part.slot);
        self.release_part(dead, now);
    }

    /// Frees a planned part that is not published.
    pub(crate) fn drop_part(&mut self, planned: PlannedPart, now: Now) {
        self.give_back(planned.part.slot, now);
    }

    /// Writes a pending part, whose name has this hash. An error leaves no trace.
    fn write_part(
        &mut self,
        (root, hash): (u32, KeyHash),
        (name, value): (&[u8], PartValue<'_>),
        now: Now,
    ) -> Result<NewPart, ArenaFull> {
        let parts = self.parts.of(root);
        let (kind, secret) = (parts.kind, parts.secret);
        let (kind, value) = match value {
            PartValue::Plain(value) => (kind, value),
            PartValue::Linked(value) => (kind.linked(), value),
        };
        // The place of the root, in the field of the expiry, which parts do not have.
        let (database, expires_at_ms) = (Database::ZERO, root.into());
        let record = NewRecord { key: name, value, database, kind, expires_at_ms };
        let slot = self.allocate(Room::Record { bytes: record.record_bytes() }, now)?;
        let region = self.options.region;
        write_pending(&mut self.owner, secret, region, slot, &record);
        Ok(NewPart { hash, slot })
    }

    /// Frees planned parts that are not published.
    pub(crate) fn drop_planned(&mut self, planned: PlannedParts, now: Now) {
        for slot in planned.parts.into_iter().map(|part| part.slot).chain(planned.spares) {
            self.give_back(slot, now);
        }
    }

    /// Makes planned parts visible, in the place of those of the same names. The caller calls it in
    /// [`Store::commit`], and [`Store::settle_parts`] after it.
    pub(crate) fn publish_parts(&mut self, root: u32, planned: &mut PlannedParts, now: Now) {
        for part in &planned.parts {
            let memory = (&mut self.owner, &self.slots);
            let dead = self.parts.put(memory, root, part, &mut planned.spares);
            self.show(part.slot);
            if let Some(dead) = dead {
                self.release_part(dead, now);
            }
        }
    }

    /// After planned parts are published: frees their unused overflow buckets, and lets the table
    /// grow.
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
        if self.evictor.is_on()
            && let Some(bytes) = self.parts.of(root).wants_run()
            && let Some(run) = self.make_run(bytes, now)
        {
            self.slots.give_run(run, bytes);
        }
        self.parts.grow((&mut self.owner, &mut self.slots), root, now);
    }

    /// Takes parts out, each name once. The caller calls it in [`Store::commit`].
    pub(crate) fn remove_parts<'p>(
        &mut self,
        root: u32,
        names: impl Iterator<Item = &'p [u8]>,
        now: Now,
    ) {
        for name in names {
            let memory = (&mut self.owner, &mut self.slots);
            if let Some(dead) = self.parts.take_out(memory, root, name, now) {
                self.release_part(dead, now);
            }
        }
    }

    /// Makes a key lead to an object whose root record and parts are made, in the place of the
    /// key's old value. An error undoes all of it.
    pub(crate) fn enter_parts(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        (root, expires_at_ms): (Slot, u64),
        entry: &Command<'_>,
        now: Now,
    ) -> Result<(), ArenaFull> {
        // The place that was found before may have moved meanwhile.
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

    /// Releases up to this many parts of an object whose root record is dead. Returns true once no
    /// part is left and the table is freed too.
    pub(crate) fn release_parts(&mut self, root: u32, most: usize, now: Now) -> bool {
        let memory = (&mut self.owner, &mut self.slots, &mut self.lag);
        self.parts.release(memory, root, most, now)
    }

    /// Gives a load up, as a change of its own.
    pub(crate) fn drop_load(&mut self, load: &Load) {
        let entry = Command::Load { key: &load.key, load: load.number, step: LoadStep::Drop };
        self.commit(load.hash.database(), &entry, |store| store.bury_load(load));
    }

    /// Gives up the loads for keys of a database, or of all, as a flush does.
    pub(crate) fn bury_loads(&mut self, only: Option<Database>, is_meant: &dyn Fn(&[u8]) -> bool) {
        let meant = self.moves.take_loads(only, is_meant);
        meant.iter().for_each(|load| self.bury_load(load));
    }

    /// Gives up the loads that are under way when apply mode ends: no mover continues them, and a
    /// new one might get the same number.
    pub(crate) fn drop_loads(&mut self) {
        let left = self.moves.take_all_loads();
        left.iter().for_each(|load| self.drop_load(load));
    }

    /// Lets a type release in turns what has left an object that lives on: a part of it, which is
    /// dead, stands for all of that ([`crate::types::object::Type::release`]).
    pub(crate) fn bury_rest(&mut self, kind: Kind, dead: Slot) {
        self.graves.push_back(Grave { kind, root: dead, lease_end_s: None });
    }

    /// Releases an object that no key leads to.
    pub(crate) fn bury_load(&mut self, load: &Load) {
        let dead = self.flip_dead(load.root.slot);
        // No reader has met a part of it.
        let grave = Grave { kind: load.kind, root: dead, lease_end_s: None };
        self.graves.push_front(grave);
    }
}
