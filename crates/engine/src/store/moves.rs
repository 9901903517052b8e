//! Objects of parts on their way to another key (docs/decisions/0036): dumps of
//! objects that are given away, and loads, objects that no key leads to yet.
//!
//! What it keeps true: an object that is being dumped does not change; commands that
//! would change it are refused. It may go as a whole: then its dump is over. A load
//! is reached by no key, counts in no digest, and is released in turns if it is
//! given up. Both are bounded in number, and end when nothing asks for them any
//! more.

use super::{Found, Grave, Store};
use crate::command::{Command, LoadStep};
use remora_arena::{Journal, Slot, kind_of, slot_of};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::MAX_MOVES;
use remora_layout::message::Status;
use std::any::Any;

/// Where a dump goes on: the type's own. `None` at its beginning.
pub(crate) type DumpAt = Option<Box<dyn Any + Send>>;

/// An object that is being dumped.
struct Dump {
    root: Slot,
    /// Of its key.
    hash: KeyHash,
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
    /// Of the key, once it has the object.
    pub expires_at_ms: u64,
    last_s: u64,
}

impl Load {
    fn is(&self, number: u64, key: &[u8], hash: KeyHash) -> bool {
        (self.number, self.hash, &*self.key) == (number, hash, key)
    }
}

/// The objects on their way to or from a shard.
#[derive(Default)]
pub(crate) struct Moves {
    dumps: Vec<Dump>,
    loads: Vec<Load>,
}

/// Slot and generation of a record, in one word.
pub(super) fn record_word(slot: Slot) -> u64 {
    u64::from(slot.slot) | u64::from(slot.generation) << 32
}

impl<J: Journal> Store<J> {
    /// Whether any object is on its way: they want ticks.
    pub(super) fn has_moves(&self) -> bool {
        !self.moves.dumps.is_empty() || !self.moves.loads.is_empty()
    }

    /// Whether the object with this root record is on its way: nothing in it goes by
    /// time.
    pub(crate) fn is_moving(&self, root: u32) -> bool {
        self.is_loading(root) || self.moves.dumps.iter().any(|dump| dump.root.slot == root)
    }

    /// Whether no key leads to the object with this root record yet.
    pub(crate) fn is_loading(&self, root: u32) -> bool {
        self.moves.loads.iter().any(|load| load.root.slot == root)
    }

    /// Whether a command would change an object that is being dumped. `hash` is of
    /// its key.
    pub(crate) fn is_refused(&self, command: &Command<'_>, hash: KeyHash) -> bool {
        if self.moves.dumps.is_empty() {
            return false;
        }
        let is_dumped = |hash: KeyHash| self.has_dump(hash);
        match *command {
            Command::MultiSet { pairs } => {
                pairs.iter().any(|(key, _)| is_dumped(self.hash(hash.database(), key)))
            }
            Command::Transfer { to, database, .. } => {
                is_dumped(hash) || is_dumped(self.hash(database, to))
            }
            Command::DelRecord { record, .. } => {
                self.dump_at(hash, record).is_none() && is_dumped(hash)
            }
            Command::Load { step: LoadStep::Enter { .. }, .. } => is_dumped(hash),
            Command::Load { .. } => false,
            ref command => command.key().is_some() && is_dumped(hash),
        }
    }

    /// Whether the object of a key is being dumped.
    pub(crate) fn has_dump(&self, hash: KeyHash) -> bool {
        let mut dumps = self.moves.dumps.iter();
        dumps.any(|dump| dump.hash == hash && self.is_live(dump.root))
    }

    fn dump_at(&self, hash: KeyHash, record: u64) -> Option<usize> {
        let is_it = |dump: &Dump| dump.hash == hash && record_word(dump.root) == record;
        self.moves.dumps.iter().position(is_it)
    }

    /// Begins a dump of an object: it does not change until that ends. Gives the word
    /// that names the dump.
    pub(crate) fn begin_dump(&mut self, found: Found, hash: KeyHash) -> Result<u64, Status> {
        if self.is_applying {
            return Err(Status::ReadOnly);
        }
        self.end_dead_dumps();
        if self.moves.dumps.len() >= MAX_MOVES || self.has_dump(hash) {
            return Err(Status::TryAgain);
        }
        let root = slot_of(&self.owner, found.slot.slot);
        let last_s = self.ticked_s();
        self.moves.dumps.push(Dump { root, hash, at: None, last_s });
        Ok(record_word(root))
    }

    /// A dump that is under way: the slot of its object's root record, and where it
    /// goes on.
    pub(crate) fn dump_under_way(
        &mut self,
        hash: KeyHash,
        record: u64,
    ) -> Option<(u32, &mut DumpAt)> {
        let (at, last_s) = (self.dump_at(hash, record)?, self.ticked_s());
        let is_live = self.is_live(self.moves.dumps[at].root);
        let dump = self.moves.dumps.get_mut(at).filter(|_| is_live)?;
        dump.last_s = last_s;
        Some((dump.root.slot, &mut dump.at))
    }

    /// Ends a dump, if it is under way.
    pub(crate) fn end_dump(&mut self, hash: KeyHash, record: u64) {
        if let Some(at) = self.dump_at(hash, record) {
            self.moves.dumps.swap_remove(at);
        }
    }

    /// All objects may change again.
    pub(crate) fn end_dumps(&mut self) {
        self.moves.dumps.clear();
    }

    fn end_dead_dumps(&mut self) {
        let (mut dumps, ticked_s) = (std::mem::take(&mut self.moves.dumps), self.ticked_s());
        let idle_s = self.options.upload_idle_s;
        dumps.retain(|dump| self.is_live(dump.root) && ticked_s - dump.last_s <= idle_s);
        self.moves.dumps = dumps;
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
        expires_at_ms: u64,
    ) {
        let (kind, last_s) = (kind_of(&self.owner, root.slot), self.ticked_s());
        let load = Load { number, key: key.into(), hash, root, kind, expires_at_ms, last_s };
        self.moves.loads.push(load);
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
        self.end_dead_dumps();
        let (ticked_s, idle_s) = (self.ticked_s(), self.options.upload_idle_s);
        let is_idle = |load: &mut Load| ticked_s - load.last_s > idle_s;
        let idle: Vec<Load> = self.moves.loads.extract_if(.., is_idle).collect();
        idle.iter().for_each(|load| self.drop_load(load));
    }

    /// Bytes of the root records that no key leads to yet.
    pub(super) fn loads_bytes(&self) -> u64 {
        self.moves.loads.iter().map(|load| self.slots.bytes_of(load.root)).sum()
    }
}
