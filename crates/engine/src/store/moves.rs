//! Keys on their way to another one (docs/decisions/0036): dumps of keys that are
//! given away, and loads, objects that no key leads to yet.
//!
//! Invariant: a key that is being dumped does not change; the shard refuses commands that would
//! change it. The key may be removed as a whole: that ends its dump, because its record is dead. A
//! load is reached by no key, counts in no digest, and is released in turns if it is abandoned.
//! Dumps and loads are bounded in number, and end when they are not continued.

use remora_arena::{Slot, Slots};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_HELD_RECORDS, MAX_MOVES};
use remora_protocol::message::Status;
use remora_protocol::{Command, Dumped, LoadStep};
use std::any::Any;
use std::collections::BTreeMap;

/// Where a dump continues, in the type's own form. `None` at its beginning.
pub(crate) type DumpAt = Option<Box<dyn Any + Send>>;

/// A key that is being dumped.
struct Dump {
    /// The dump's number.
    number: u64,
    /// The present slot of the key's record.
    slot: Slot,
    /// Whether it is an object of parts.
    is_of_parts: bool,
    at: DumpAt,
    /// When a piece was asked for last, in seconds that the shard has ticked.
    last_s: u64,
}

/// An object that no key leads to yet.
pub(crate) struct Load {
    /// The load's number. A key may have several loads.
    pub number: u64,
    pub key: Box<[u8]>,
    /// The key's hash.
    pub hash: KeyHash,
    pub root: Slot,
    pub kind: Kind,
    /// The number of the dump from which it is made.
    pub dump: u64,
    /// The key's expiry, once it has the object.
    pub expires_at_ms: u64,
    /// The sequence at which it began in this shard. Its number may be of another log.
    began_at: u64,
    last_s: u64,
}

impl Load {
    /// An object that a key gets at once, to be filled by a snapshot. It has no number.
    pub fn of_snapshot((key, hash): (&[u8], KeyHash), root: Slot, dumped: Dumped<'_>) -> Self {
        let Dumped { kind, expires_at_ms, dump, .. } = dumped;
        Self {
            number: 0,
            key: key.into(),
            hash,
            root,
            kind,
            dump,
            expires_at_ms,
            began_at: 0,
            last_s: 0,
        }
    }

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
    /// Root records of objects that a snapshot is filling here, while keys lead to them.
    filling: Vec<u32>,
}

impl Moves {
    /// Whether no key is on its way.
    pub fn is_empty(&self) -> bool {
        self.dumps.is_empty() && self.loads.is_empty()
    }

    /// Whether any key is being dumped.
    #[inline]
    pub fn has_dumps(&self) -> bool {
        !self.dumps.is_empty()
    }

    /// Whether the key with this record, whose hash is asked for, is being dumped.
    pub fn is_dumped(&self, slot: u32, hash: impl FnOnce() -> KeyHash) -> bool {
        let is_it = |dump: &Dump| dump.slot.slot == slot;
        self.has_dumps() && self.dumps.get(&hash().0).is_some_and(is_it)
    }

    /// Whether no key leads to the object with this root record yet.
    pub fn is_loading(&self, root: u32) -> bool {
        self.loads.iter().any(|load| load.root.slot == root)
    }

    /// A snapshot begins to fill the object with this root record.
    pub fn begin_filling(&mut self, root: u32) {
        self.filling.push(root);
    }

    /// Whether a snapshot is filling the object with this root record.
    #[inline]
    pub fn is_filling(&self, root: u32) -> bool {
        self.filling.contains(&root)
    }

    /// The object with this root record is filled, or dead.
    pub fn end_filling(&mut self, root: u32) {
        self.filling.retain(|filling| *filling != root);
    }

    /// Whether a load is under way that began with this sequence or before.
    pub fn has_load_of(&self, sequence: u64) -> bool {
        self.loads.iter().any(|load| load.began_at <= sequence)
    }

    /// Takes out all loads: no mover continues them.
    pub fn take_all_loads(&mut self) -> Vec<Load> {
        std::mem::take(&mut self.loads)
    }

    /// Whether a command would change a key that is being dumped. `hash` is of its own
    /// key, `hash_of` gives that of another one.
    pub fn refuse(
        &self,
        command: &Command<'_>,
        hash: KeyHash,
        hash_of: impl Fn(Database, &[u8]) -> KeyHash,
    ) -> bool {
        let is_dumped = |hash: KeyHash| self.has_dump(hash);
        match *command {
            Command::MultiSet { pairs } => {
                pairs.iter().any(|(key, _)| is_dumped(hash_of(hash.database(), key)))
            }
            Command::Transfer { to, database, .. } => {
                is_dumped(hash) || is_dumped(hash_of(database, to))
            }
            Command::Load { step: LoadStep::Enter { .. }, .. } => is_dumped(hash),
            // It names the dump.
            Command::Load { .. } | Command::DelDumped { .. } => false,
            ref command => command.key().is_some() && is_dumped(hash),
        }
    }

    /// Whether a key is being dumped.
    pub fn has_dump(&self, hash: KeyHash) -> bool {
        self.dumps.contains_key(&hash.0)
    }

    /// Whether this dump of a key is under way.
    pub fn is_under_way(&self, hash: KeyHash, number: u64) -> bool {
        self.dumps.get(&hash.0).is_some_and(|dump| dump.number == number)
    }

    /// Begins a dump of a key whose record is in this slot: the key does not change until the dump
    /// ends. Returns the dump's number.
    ///
    /// # Errors
    /// `TryAgain`: it is being dumped, or too many are.
    pub fn begin_dump(
        &mut self,
        hash: KeyHash,
        (slot, is_of_parts): (Slot, bool),
        ticked_s: u64,
    ) -> Result<u64, Status> {
        let dumps = &self.dumps;
        let has_place = match is_of_parts {
            true => dumps.values().filter(|dump| dump.is_of_parts).count() < MAX_MOVES,
            false => dumps.len() < MAX_HELD_RECORDS,
        };
        if !has_place || self.has_dump(hash) {
            return Err(Status::TryAgain);
        }
        self.begun += 1;
        let number = self.begun;
        let dump = Dump { number, slot, is_of_parts, at: None, last_s: ticked_s };
        self.dumps.insert(hash.0, dump);
        Ok(number)
    }

    /// A dump of an object of parts that is under way: the slot of its root record, and where it
    /// continues.
    pub fn dump_under_way(
        &mut self,
        hash: KeyHash,
        number: u64,
        ticked_s: u64,
    ) -> Option<(u32, &mut DumpAt)> {
        let dump = self.dumps.get_mut(&hash.0)?;
        if dump.number != number || !dump.is_of_parts {
            return None;
        }
        dump.last_s = ticked_s;
        Some((dump.slot.slot, &mut dump.at))
    }

    /// Ends a dump. Whether it was under way.
    pub fn end_dump(&mut self, hash: KeyHash, number: u64) -> bool {
        let is_it = self.is_under_way(hash, number);
        if is_it {
            self.dumps.remove(&hash.0);
        }
        is_it
    }

    /// All keys may change again.
    pub fn end_dumps(&mut self) {
        self.dumps.clear();
    }

    /// A key's record is dead, and was not moved: its dump is over.
    pub fn end_dump_of(&mut self, dead: Slot, hash: KeyHash) {
        if self.dumps.get(&hash.0).is_some_and(|dump| dump.slot == dead) {
            self.dumps.remove(&hash.0);
        }
    }

    /// A key's record has moved to another slot.
    pub fn note_moved(&mut self, hash: KeyHash, old: Slot, new: Slot) {
        let dump = self.dumps.get_mut(&hash.0).filter(|dump| dump.slot == old);
        if let Some(dump) = dump {
            dump.slot = new;
        }
    }

    /// Whether another object may be loaded.
    pub fn may_load(&self) -> bool {
        self.loads.len() < MAX_MOVES
    }

    /// An empty object is made, to be filled, by a change with this sequence.
    pub fn begin_load(
        &mut self,
        number: u64,
        (key, hash): (&[u8], KeyHash),
        root: Slot,
        dumped: Dumped<'_>,
        (began_at, last_s): (u64, u64),
    ) {
        let Dumped { kind, expires_at_ms, dump, .. } = dumped;
        let key = key.into();
        let load = Load { number, key, hash, root, kind, dump, expires_at_ms, began_at, last_s };
        self.loads.push(load);
    }

    /// The root record of a load that is under way, and its type.
    pub fn load_under_way(
        &mut self,
        number: u64,
        (key, hash): (&[u8], KeyHash),
        ticked_s: u64,
    ) -> Option<(u32, Kind)> {
        let load = self.loads.iter_mut().find(|load| load.is(number, key, hash))?;
        load.last_s = ticked_s;
        Some((load.root.slot, load.kind))
    }

    /// Takes a load that is under way out of the list.
    pub fn take_load(&mut self, number: u64, (key, hash): (&[u8], KeyHash)) -> Option<Load> {
        let at = self.loads.iter().position(|load| load.is(number, key, hash))?;
        Some(self.loads.swap_remove(at))
    }

    /// Puts a load back that was taken out.
    pub fn keep_load(&mut self, load: Load) {
        self.loads.push(load);
    }

    /// Takes out the loads for keys of a database, or of all: a flush gives them up.
    pub fn take_loads(
        &mut self,
        only: Option<Database>,
        is_meant: &dyn Fn(&[u8]) -> bool,
    ) -> Vec<Load> {
        let is_it = |load: &mut Load| {
            only.is_none_or(|only| only == load.hash.database()) && is_meant(&load.key)
        };
        self.loads.extract_if(.., is_it).collect()
    }

    /// Ends dumps, and takes out loads, that were not continued for too long: their mover is
    /// gone.
    pub fn take_idle(&mut self, ticked_s: u64, idle_s: u64) -> Vec<Load> {
        self.dumps.retain(|_, dump| ticked_s - dump.last_s <= idle_s);
        let is_idle = |load: &mut Load| ticked_s - load.last_s > idle_s;
        self.loads.extract_if(.., is_idle).collect()
    }

    /// Bytes of the root records that no key leads to yet.
    pub fn bytes(&self, slots: &Slots) -> u64 {
        self.loads.iter().map(|load| slots.bytes_of(load.root)).sum()
    }
}
