//! Keys on their way to another one (docs/decisions/0036): dumps of keys that are
//! given away, and loads, objects that no key leads to yet.
//!
//! What it keeps true: a key that is being dumped does not change; commands that
//! would change it are refused. It may go as a whole: then its dump is over, as
//! [`Store::bury`] says. A load is reached by no key, counts in no digest, and is
//! released in turns if it is given up. Both are bounded in number, and end when
//! nothing asks for them any more.

use super::{Found, Grave, Store};
use remora_arena::{Journal, Slot, kind_of, slot_of};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_HELD_RECORDS, MAX_MOVES};
use remora_protocol::message::Status;
use remora_protocol::{Command, Dumped, LoadStep};
use std::any::Any;
use std::collections::BTreeMap;

/// Where a dump goes on: the type's own. `None` at its beginning.
pub(crate) type DumpAt = Option<Box<dyn Any + Send>>;

/// A key that is being dumped.
struct Dump {
    /// Which one.
    number: u64,
    /// Where the key's record is now.
    slot: Slot,
    /// Of an object of parts.
    is_of_parts: bool,
    at: DumpAt,
    /// When a piece was asked for last, in [`Store::ticked_s`].
    last_s: u64,
}

/// An object that no key leads to yet.
pub(crate) struct Load {
    /// Which one. A key may have several.
    pub number: u64,
    pub key: Box<[u8]>,
    /// Of the key.
    pub hash: KeyHash,
    pub root: Slot,
    pub kind: Kind,
    /// Which dump it is made of.
    pub dump: u64,
    /// Of the key, once it has the object.
    pub expires_at_ms: u64,
    last_s: u64,
}

impl Load {
    fn is(&self, number: u64, key: &[u8], hash: KeyHash) -> bool {
        (self.number, self.hash, &*self.key) == (number, hash, key)
    }
}

/// The keys on their way to or from a shard.
#[derive(Default)]
pub(crate) struct Moves {
    /// By their keys' hashes. Each has its record.
    dumps: BTreeMap<u64, Dump>,
    /// Dumps that have begun.
    begun: u64,
    loads: Vec<Load>,
}

impl<J: Journal> Store<J> {
    /// Whether any key is on its way: they want ticks.
    pub(super) fn has_moves(&self) -> bool {
        self.has_dumps() || !self.moves.loads.is_empty()
    }

    /// Whether the object with this root record is on its way: nothing in it goes by
    /// time.
    pub(crate) fn is_moving(&self, root: u32) -> bool {
        self.is_loading(root) || self.is_dumped(root)
    }

    /// Whether the key with this record is being dumped.
    pub(super) fn is_dumped(&self, slot: u32) -> bool {
        let is_it = || {
            let dump = self.moves.dumps.get(&self.hash_in(slot).0);
            dump.is_some_and(|dump| dump.slot.slot == slot)
        };
        self.has_dumps() && is_it()
    }

    /// Whether no key leads to the object with this root record yet.
    pub(crate) fn is_loading(&self, root: u32) -> bool {
        self.moves.loads.iter().any(|load| load.root.slot == root)
    }

    /// Whether any key is being dumped.
    #[inline]
    pub(crate) fn has_dumps(&self) -> bool {
        !self.moves.dumps.is_empty()
    }

    /// Whether a command would change a key that is being dumped. `hash` is of its own
    /// key.
    pub(crate) fn is_refused(&self, command: &Command<'_>, hash: KeyHash) -> bool {
        let is_dumped = |hash: KeyHash| self.has_dump(hash);
        match *command {
            Command::MultiSet { pairs } => {
                pairs.iter().any(|(key, _)| is_dumped(self.hash(hash.database(), key)))
            }
            Command::Transfer { to, database, .. } => {
                is_dumped(hash) || is_dumped(self.hash(database, to))
            }
            Command::Load { step: LoadStep::Enter { .. }, .. } => is_dumped(hash),
            // It names the dump.
            Command::Load { .. } | Command::DelDumped { .. } => false,
            ref command => command.key().is_some() && is_dumped(hash),
        }
    }

    /// Whether a key is being dumped.
    pub(crate) fn has_dump(&self, hash: KeyHash) -> bool {
        self.moves.dumps.contains_key(&hash.0)
    }

    /// Whether this dump of a key is under way.
    pub(crate) fn is_dump_under_way(&self, hash: KeyHash, number: u64) -> bool {
        self.moves.dumps.get(&hash.0).is_some_and(|dump| dump.number == number)
    }

    /// Begins a dump of a key: it does not change until that ends. Gives its
    /// number.
    pub(crate) fn begin_dump(&mut self, found: Found, hash: KeyHash) -> Result<u64, Status> {
        if self.is_applying {
            return Err(Status::ReadOnly);
        }
        let (slot, last_s) = (slot_of(&self.owner, found.slot.slot), self.ticked_s());
        let is_of_parts = self.kind(found).is_root();
        let dumps = &self.moves.dumps;
        let has_place = match is_of_parts {
            true => dumps.values().filter(|dump| dump.is_of_parts).count() < MAX_MOVES,
            false => dumps.len() < MAX_HELD_RECORDS,
        };
        if !has_place || self.has_dump(hash) {
            return Err(Status::TryAgain);
        }
        self.moves.begun += 1;
        let number = self.moves.begun;
        self.moves.dumps.insert(hash.0, Dump { number, slot, is_of_parts, at: None, last_s });
        Ok(number)
    }

    /// A dump of an object of parts that is under way: the slot of its root record, and
    /// where it goes on.
    pub(crate) fn dump_under_way(
        &mut self,
        hash: KeyHash,
        number: u64,
    ) -> Option<(u32, &mut DumpAt)> {
        let last_s = self.ticked_s();
        let dump = self.moves.dumps.get_mut(&hash.0)?;
        if dump.number != number || !dump.is_of_parts {
            return None;
        }
        dump.last_s = last_s;
        Some((dump.slot.slot, &mut dump.at))
    }

    /// Ends a dump. Whether it was under way.
    pub(crate) fn end_dump(&mut self, hash: KeyHash, number: u64) -> bool {
        let is_it = self.is_dump_under_way(hash, number);
        if is_it {
            self.moves.dumps.remove(&hash.0);
        }
        is_it
    }

    /// All keys may change again.
    pub(crate) fn end_dumps(&mut self) {
        self.moves.dumps.clear();
    }

    /// A key's record is dead, and was not moved: its dump is over.
    pub(super) fn end_dump_of(&mut self, dead: Slot) {
        if !self.has_dumps() || kind_of(&self.owner, dead.slot).is_part() {
            return;
        }
        let hash = self.hash_in(dead.slot);
        if self.moves.dumps.get(&hash.0).is_some_and(|dump| dump.slot == dead) {
            self.moves.dumps.remove(&hash.0);
        }
    }

    /// A key's record stands in another slot now.
    pub(super) fn note_dump_moved(&mut self, hash: KeyHash, old: Slot, new: Slot) {
        let dump = self.moves.dumps.get_mut(&hash.0).filter(|dump| dump.slot == old);
        if let Some(dump) = dump {
            dump.slot = new;
        }
    }

    /// Whether another object may be loaded.
    pub(crate) fn may_load(&self) -> bool {
        self.is_applying || self.moves.loads.len() < MAX_MOVES
    }

    /// An empty object is made, to be filled.
    pub(crate) fn begin_load(
        &mut self,
        number: u64,
        (key, hash): (&[u8], KeyHash),
        root: Slot,
        dumped: Dumped<'_>,
    ) {
        let Dumped { kind, expires_at_ms, dump, .. } = dumped;
        let (key, last_s) = (key.into(), self.ticked_s());
        self.moves.loads.push(Load { number, key, hash, root, kind, dump, expires_at_ms, last_s });
    }

    /// The root record of a load that is under way, and its type.
    pub(crate) fn load_under_way(
        &mut self,
        number: u64,
        (key, hash): (&[u8], KeyHash),
    ) -> Option<(u32, Kind)> {
        let ticked_s = self.ticked_s();
        let load = self.moves.loads.iter_mut().find(|load| load.is(number, key, hash))?;
        load.last_s = ticked_s;
        Some((load.root.slot, load.kind))
    }

    /// Takes a load that is under way out of the list.
    pub(crate) fn take_load(&mut self, number: u64, (key, hash): (&[u8], KeyHash)) -> Option<Load> {
        let at = self.moves.loads.iter().position(|load| load.is(number, key, hash))?;
        Some(self.moves.loads.swap_remove(at))
    }

    /// Puts a load back that was taken out.
    pub(crate) fn keep_load(&mut self, load: Load) {
        self.moves.loads.push(load);
    }

    /// Gives a load up, as a change of its own.
    pub(crate) fn drop_load(&mut self, load: &Load) {
        let entry = Command::Load { key: &load.key, load: load.number, step: LoadStep::Drop };
        self.commit(load.hash.database(), &entry, |store| store.bury_load(load));
    }

    /// Gives up the loads of a database, or of all, whose keys are meant: a flush does.
    pub(super) fn bury_loads(&mut self, only: Option<Database>, is_meant: &dyn Fn(&[u8]) -> bool) {
        let is_it = |load: &mut Load| {
            only.is_none_or(|only| only == load.hash.database()) && is_meant(&load.key)
        };
        let meant: Vec<Load> = self.moves.loads.extract_if(.., is_it).collect();
        meant.iter().for_each(|load| self.bury_load(load));
    }

    fn bury_load(&mut self, load: &Load) {
        let dead = self.flip_dead(load.root.slot);
        // No reader has ever met a part of it.
        let grave = Grave { kind: load.kind, root: dead, lease_end_s: None };
        self.graves.push_front(grave);
    }

    /// Ends what nothing has asked for too long: whatever moves objects has gone.
    pub(super) fn end_idle_moves(&mut self) {
        let (ticked_s, idle_s) = (self.ticked_s(), self.options.upload_idle_s);
        self.moves.dumps.retain(|_, dump| ticked_s - dump.last_s <= idle_s);
        let is_idle = |load: &mut Load| ticked_s - load.last_s > idle_s;
        let idle: Vec<Load> = self.moves.loads.extract_if(.., is_idle).collect();
        idle.iter().for_each(|load| self.drop_load(load));
    }

    /// Bytes of the root records that no key leads to yet.
    pub(super) fn loads_bytes(&self) -> u64 {
        self.moves.loads.iter().map(|load| self.slots.bytes_of(load.root)).sum()
    }
}
