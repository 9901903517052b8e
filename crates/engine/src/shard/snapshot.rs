//! A snapshot: all keys of a shard, written as a stream of operations in turns, while the shard
//! goes on to change them (docs/decisions/0055).
//!
//! Invariant: the stream is exact at the sequence of its end. It has all changes up to there, and
//! none after it. The sweep goes over the keys in the order of a scan, which growth of the table
//! does not disturb, and writes whole buckets. Of a large object it writes an empty one at once,
//! and its parts in the turns after that. From then on `store/snapshot.rs` writes each change of
//! the key. So nothing is copied beside the stream, no command waits, and nothing is undone.
//!
//! A turn is bounded in keys, parts, buckets and bytes.

use super::Shard;
use crate::store::{DumpAt, Filling, LENGTH_BYTES, Named, Now, Rest, Snapshot, Store};
use crate::types::object::Types;
use remora_arena::{Journal, Slot, database_of, kind_of, mutable_of, slot_of};
use remora_index::hash::{record_field, record_key, record_value};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{
    DUMP_PIECE_PARTS, SLOT_UNIT_BYTES, SNAPSHOT_BUFFER_BYTES, SNAPSHOT_LATE_KEYS,
    SNAPSHOT_OPERATION_BYTES, SNAPSHOT_PIECE_BYTES, SNAPSHOT_TURN_BYTES, SNAPSHOT_TURN_KEYS,
    SNAPSHOT_WAIT_S,
};
use remora_layout::table::SCAN_END;
use remora_protocol::message::{REQUEST_HEADER_BYTES, Status};
use remora_protocol::{Command, Condition, Dumped, ExpireCondition, Expiry, LoadStep};

/// Buckets whose records are fetched side by side.
const BUCKETS_TOGETHER: usize = 16;

/// The outcome of one turn of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotTurn {
    /// There is more to write.
    More,
    /// It waits for operations that began before it: the next turn is worth trying after some
    /// milliseconds.
    Waits,
    /// More than `SNAPSHOT_BUFFER_BYTES` are to be taken first.
    Full,
    /// The stream is complete once the rest is taken, and exact at this sequence.
    Ended {
        /// Sequence of the last change that is in it.
        sequence: u64,
    },
    /// There is none any more: its output was not taken, or it waited for too long. What was
    /// taken of it is of no use.
    GivenUp,
}

/// An operation's length makes no sense: the stream is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an operation of a snapshot has {bytes} bytes, and {least} to {most} make sense",
    least = REQUEST_HEADER_BYTES, most = SNAPSHOT_OPERATION_BYTES)]
pub struct BadOperation {
    /// The length that the stream says.
    pub bytes: usize,
}

/// An operation of a snapshot, and the bytes behind it; none if its end is not there yet.
pub type SplitOperation<'a> = Option<(&'a [u8], &'a [u8])>;

/// Splits the first operation off the bytes of a snapshot.
///
/// # Errors
/// The length makes no sense.
pub fn split_operation(bytes: &[u8]) -> Result<SplitOperation<'_>, BadOperation> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let bytes = u32::from_le_bytes(*length) as usize;
    if !(REQUEST_HEADER_BYTES..=SNAPSHOT_OPERATION_BYTES).contains(&bytes) {
        return Err(BadOperation { bytes });
    }
    Ok(rest.split_at_checked(bytes))
}

/// Counts the operations of a snapshot that comes in pieces of any length, by their lengths alone.
#[derive(Clone, Copy, Default, Debug)]
pub struct OperationCount {
    whole: u64,
    /// What has come of the next length.
    length: [u8; LENGTH_BYTES],
    length_bytes: usize,
    /// Bytes of the present operation that have not come.
    missing: usize,
}

impl OperationCount {
    /// The next bytes of the stream.
    pub fn take(&mut self, mut piece: &[u8]) {
        while let Some((first, behind)) = piece.split_first() {
            if self.missing == 0 {
                self.length[self.length_bytes] = *first;
                self.length_bytes += 1;
                piece = behind;
                if self.length_bytes == LENGTH_BYTES {
                    self.length_bytes = 0;
                    self.missing = u32::from_le_bytes(self.length) as usize;
                }
                continue;
            }
            let come = self.missing.min(piece.len());
            self.missing -= come;
            self.whole += u64::from(self.missing == 0);
            piece = &piece[come..];
        }
    }

    /// Operations whose end has come.
    pub fn whole(&self) -> u64 {
        self.whole
    }
}

impl<J: Journal> Shard<J> {
    /// Begins a snapshot. [`Shard::snapshot_turn`] carries it out, and [`Shard::take_snapshot`]
    /// takes what it writes.
    ///
    /// # Errors
    /// `ReadOnly`: the shard applies a log, and keeps nothing on a disk of its own or is being
    /// copied. `TryAgain`: a snapshot is under way.
    pub fn begin_snapshot(&mut self) -> Result<(), Status> {
        match &self.store.snapshot {
            _ if self.store.is_applying && !self.may_write_snapshot() => {
                return Err(Status::ReadOnly);
            }
            Some(_) => return Err(Status::TryAgain),
            None => {}
        }
        self.written_snapshot = Vec::new();
        self.store.snapshot = Some(Box::new(Snapshot::new(self.store.last_sequence())));
        Ok(())
    }

    /// Continues the snapshot for one turn, which is bounded.
    pub fn snapshot_turn(&mut self, now: Now) -> SnapshotTurn {
        self.short_snapshot_turn(SNAPSHOT_TURN_KEYS, now)
    }

    /// As [`Shard::snapshot_turn`], of so many keys, parts and buckets: for tests.
    #[doc(hidden)]
    pub fn short_snapshot_turn(&mut self, most_keys: usize, now: Now) -> SnapshotTurn {
        let Some(mut snapshot) = self.store.snapshot.take() else { return SnapshotTurn::GivenUp };
        let scratch = std::mem::take(&mut snapshot.scratch);
        let most_bytes = snapshot.out.len() + SNAPSHOT_TURN_BYTES;
        let mut sweep = Sweep { snapshot, keys: 0, most_keys, most_bytes, scratch };
        let turn = sweep.turn((&self.store, &self.types), now);
        sweep.snapshot.scratch = sweep.scratch;
        match turn {
            SnapshotTurn::GivenUp => {}
            SnapshotTurn::Ended { .. } => {
                let logs = if self.store.is_applying { self.followed_logs() } else { Vec::new() };
                for of in logs {
                    let Some(entry) = of.position else { continue };
                    sweep.snapshot.write_position(&of.at(entry));
                }
                self.written_snapshot = sweep.snapshot.out;
            }
            _ => self.store.snapshot = Some(sweep.snapshot),
        }
        turn
    }

    /// Moves what the snapshot has written to the end of `stream`.
    pub fn take_snapshot(&mut self, stream: &mut Vec<u8>) {
        let written = match &mut self.store.snapshot {
            Some(snapshot) => &mut snapshot.out,
            None => &mut self.written_snapshot,
        };
        if stream.is_empty() {
            std::mem::swap(stream, written);
        } else {
            stream.append(written);
        }
    }

    /// Gives the snapshot up, if one is under way. Nothing else changes.
    pub fn abandon_snapshot(&mut self) {
        self.store.snapshot = None;
        self.written_snapshot = Vec::new();
    }
}

/// One turn of a snapshot.
struct Sweep {
    snapshot: Box<Snapshot>,
    /// Keys, parts and buckets of this turn.
    keys: usize,
    most_keys: usize,
    /// The turn ends once so many bytes are to be taken.
    most_bytes: usize,
    scratch: Vec<u8>,
}

impl Sweep {
    fn turn<J: Journal>(&mut self, of: (&Store<J>, &Types<J>), now: Now) -> SnapshotTurn {
        if self.snapshot.is_given_up {
            return SnapshotTurn::GivenUp;
        }
        if self.snapshot.out.len() > SNAPSHOT_BUFFER_BYTES {
            self.snapshot.waits_since_s = None;
            return SnapshotTurn::Full;
        }
        self.sweep_late(of);
        // Bounded: each step is work that counts, or the last one.
        while self.has_time() && !self.snapshot.is_given_up {
            if !self.snapshot.filling.is_empty() {
                self.fill(of);
            } else if self.snapshot.passed < SCAN_END && !self.has_too_many_late() {
                self.sweep_some(of);
            } else {
                return self.end_or_wait(of.0, now);
            }
        }
        if self.snapshot.is_given_up {
            return SnapshotTurn::GivenUp;
        }
        self.snapshot.waits_since_s = None;
        SnapshotTurn::More
    }

    fn has_time(&self) -> bool {
        self.keys < self.most_keys && self.snapshot.out.len() < self.most_bytes
    }

    fn has_too_many_late(&self) -> bool {
        self.snapshot.late.len() >= SNAPSHOT_LATE_KEYS
    }

    fn end_or_wait<J: Journal>(&mut self, store: &Store<J>, now: Now) -> SnapshotTurn {
        let snapshot = &mut self.snapshot;
        let is_whole = snapshot.passed == SCAN_END && snapshot.late.is_empty();
        if is_whole && !store.moves.has_load_of(snapshot.began_at) {
            return SnapshotTurn::Ended { sequence: store.last_sequence() };
        }
        let since_s = *snapshot.waits_since_s.get_or_insert(now.since_start_s);
        match now.since_start_s.saturating_sub(since_s) > SNAPSHOT_WAIT_S {
            true => SnapshotTurn::GivenUp,
            false => SnapshotTurn::Waits,
        }
    }

    /// Writes the keys of some buckets.
    fn sweep_some<J: Journal>(&mut self, of: (&Store<J>, &Types<J>)) {
        let store = of.0;
        let mut ends = [(0, 0); BUCKETS_TOGETHER];
        let (mut next, mut count) = (self.snapshot.passed, 0);
        while next < SCAN_END && count < BUCKETS_TOGETHER {
            let (bucket, end) = store.table.at_scan_place(next as u32);
            // A bucket's number is a hash that leads to it.
            store.table.prefetch(&store.owner, KeyHash(bucket));
            (ends[count], next, count) = ((bucket, end), end, count + 1);
        }
        let records = |&(bucket, _): &(u64, u64)| -> Vec<u32> {
            let places = store.table.places(&store.owner, bucket).into_iter();
            places.map(|(_, word)| word.slot).collect()
        };
        let slots: Vec<Vec<u32>> = ends[..count].iter().map(records).collect();
        for &slot in slots.iter().flatten() {
            store.owner.prefetch(slot as usize * SLOT_UNIT_BYTES);
        }
        for (&(bucket, end), slots) in ends.iter().zip(&slots) {
            if !self.has_time() || self.has_too_many_late() || !self.snapshot.filling.is_empty() {
                return;
            }
            self.keys += 1;
            for &slot in slots {
                // A flush that is in the stream, or before it, removes it.
                if !store.is_flushed_in(bucket, slot) {
                    self.write_key(of, slot);
                }
            }
            self.snapshot.passed = end;
        }
    }

    /// Writes those of the keys that were left for later that can be written now.
    fn sweep_late<J: Journal>(&mut self, of @ (store, types): (&Store<J>, &Types<J>)) {
        for Named { key, hash } in std::mem::take(&mut self.snapshot.late) {
            let found = store.found(&key, hash).map(|found| found.slot.slot);
            match found.filter(|&slot| !store.is_flushed_at(slot)) {
                Some(slot) if is_unfinished(store, types, slot) => {
                    self.snapshot.late.push(Named { key, hash });
                }
                Some(slot) => self.write_key(of, slot),
                None => {}
            }
        }
    }

    /// Writes the key whose record lies in this slot: whole, or an empty object that is then
    /// filled.
    fn write_key<J: Journal>(&mut self, (store, types): (&Store<J>, &Types<J>), slot: u32) {
        self.keys += 1;
        let owner = &store.owner;
        let (key, kind) = (record_key(owner, slot), kind_of(owner, slot));
        let (database, expires_at_ms) =
            (database_of(owner, slot), mutable_of(owner, slot).expires_at_ms);
        let named = || Named { key: key.into(), hash: store.hash(database, key) };
        if kind == Kind::STRING {
            let value = record_value(owner, slot);
            if value.len() > SNAPSHOT_PIECE_BYTES {
                return self.begin_value(named(), value, expires_at_ms);
            }
            let expiry = if expires_at_ms == 0 { Expiry::Never } else { Expiry::At(expires_at_ms) };
            let condition = Condition::Always;
            let set = Command::Set { key, value, condition, expiry, get: false };
            return self.snapshot.write(database, &set);
        }
        if is_unfinished(store, types, slot) {
            return self.snapshot.late.push(named());
        }
        self.scratch.clear();
        if !kind.is_root() {
            // Hints are about this arena.
            let value = record_field(owner, slot).value;
            Dumped::push(&mut self.scratch, kind.plain(), expires_at_ms, 0, value);
            let dumped = Dumped::parse(&self.scratch).expect("just made");
            let restore = Command::Restore { key, dumped, replaces: true };
            return self.snapshot.write(database, &restore);
        }
        let mut head = Vec::new();
        types.get(kind).expect("every object is of a type").head(store, slot, &mut head);
        Dumped::push(&mut self.scratch, kind, expires_at_ms, 0, &head);
        let dumped = Dumped::parse(&self.scratch).expect("just made");
        let make = Command::Load { key, load: 0, step: LoadStep::Make(dumped) };
        self.snapshot.write(database, &make);
        let rest = Rest::Parts { root: slot_of(owner, slot), kind, at: None };
        self.snapshot.filling.push_back(Filling { named: named(), rest });
    }

    /// Writes a string of as many zeros as a long one has bytes, which is then filled. So it is
    /// loaded into a slot of the right size at once.
    fn begin_value(&mut self, named: Named, value: &[u8], expires_at_ms: u64) {
        let (key, database) = (&named.key, named.hash.database());
        let last = value.len() - 1;
        let set = Command::SetRange { key, offset: last as u64, value: &value[last..] };
        self.snapshot.write(database, &set);
        if expires_at_ms != 0 {
            let condition = ExpireCondition::Always;
            let expire = Command::Expire { key, at_ms: expires_at_ms, condition };
            self.snapshot.write(database, &expire);
        }
        self.snapshot.filling.push_back(Filling { named, rest: Rest::Value(0) });
    }

    /// Writes a piece of the first object that is being filled.
    fn fill<J: Journal>(&mut self, of: (&Store<J>, &Types<J>)) {
        let Some(filling) = self.snapshot.filling.pop_front() else { return };
        self.keys += 1;
        let Filling { named, rest } = filling;
        let more = match rest {
            Rest::Value(from) => self.fill_value(of.0, &named, from),
            Rest::Parts { root, kind, at } => self.fill_parts(of, &named, (root, kind), at),
        };
        if let Some(rest) = more {
            self.snapshot.filling.push_front(Filling { named, rest });
        }
    }

    /// Writes some bytes of the string that the key has now: if it was set meanwhile, they are
    /// there already, and stay as they are.
    fn fill_value<J: Journal>(
        &mut self,
        store: &Store<J>,
        Named { key, hash }: &Named,
        from: usize,
    ) -> Option<Rest> {
        let found = store.found(key, *hash).map(|found| found.slot.slot);
        let slot = found.filter(|&slot| {
            kind_of(&store.owner, slot) == Kind::STRING && !store.is_flushed_at(slot)
        })?;
        let value = record_value(&store.owner, slot);
        let to = value.len().min(from + SNAPSHOT_PIECE_BYTES);
        let piece = value.get(from..to).filter(|piece| !piece.is_empty())?;
        let set = Command::SetRange { key, offset: from as u64, value: piece };
        self.snapshot.write(hash.database(), &set);
        Some(Rest::Value(to))
    }

    /// Writes some parts of an object, if the key still has it.
    fn fill_parts<J: Journal>(
        &mut self,
        (store, types): (&Store<J>, &Types<J>),
        Named { key, hash }: &Named,
        (root, kind): (Slot, Kind),
        mut at: DumpAt,
    ) -> Option<Rest> {
        let slot = store.found(key, *hash)?.slot.slot;
        if slot_of(&store.owner, slot) != root || store.is_flushed_at(slot) {
            return None;
        }
        self.keys += DUMP_PIECE_PARTS;
        self.scratch.clear();
        let of = types.get(kind).expect("every object is of a type");
        let ended = of.dump(store, slot, &mut at, &mut self.scratch);
        let step = |step| Command::Load { key, load: 0, step };
        if !self.scratch.is_empty() {
            self.snapshot.write(hash.database(), &step(LoadStep::Fill(&self.scratch)));
        }
        if ended {
            self.snapshot.write(hash.database(), &step(LoadStep::Filled));
            return None;
        }
        Some(Rest::Parts { root, kind, at })
    }
}

/// Whether something is under way in an object that a snapshot cannot write.
fn is_unfinished<J: Journal>(store: &Store<J>, types: &Types<J>, slot: u32) -> bool {
    let kind = kind_of(&store.owner, slot);
    kind.is_root() && types.get(kind).is_some_and(|of| of.is_unfinished(slot))
}
