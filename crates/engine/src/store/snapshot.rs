//! The snapshot of a store that is under way: how far it has come, and what it has to write of each
//! change (docs/decisions/0055). The sweep over the keys is in `shard/snapshot.rs`.
//!
//! Invariant: after each change, what is written makes exactly the passed keys as they are now,
//! except for parts of large objects that are still to be filled. A key is passed if the sweep has
//! been at its place, and it is not left for later. So the change of a passed key is written, too;
//! the change of another key is not, as the sweep finds its result. What is under way without a key
//! is written from its beginning on, if it began after the snapshot.

use super::moves::DumpAt;
use remora_arena::{Journal, Owner, Slot};
use remora_index::hash::Table;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{SNAPSHOT_HELD_BYTES, SNAPSHOT_OPERATION_BYTES};
use remora_protocol::applied::{AppliedEntry, AppliedStep, LogPosition};
use remora_protocol::{Command, LoadStep, Pairs};
use std::collections::VecDeque;

/// Bytes of the length before each operation.
pub(crate) const LENGTH_BYTES: usize = 4;

/// A key, and its hash.
pub(crate) struct Named {
    pub key: Box<[u8]>,
    pub hash: KeyHash,
}

/// A key that is written, whose object is not written whole yet.
pub(crate) struct Filling {
    pub named: Named,
    pub rest: Rest,
}

/// What is still to be written of an object.
pub(crate) enum Rest {
    /// The bytes of a long string from here on.
    Value(usize),
    /// Parts of the object with this root record.
    Parts { root: Slot, kind: Kind, at: DumpAt },
}

/// A snapshot that is under way.
pub(crate) struct Snapshot {
    /// Sequence of the last change before it.
    pub began_at: u64,
    /// The loads that have begun since: their numbers, which are those of another log where the
    /// shard follows one, and the hashes of their keys.
    loads: Vec<(u64, KeyHash)>,
    /// Keys at places below this one, in the order of a scan, are written.
    pub passed: u64,
    /// Keys at such places that are not written: they are left for later.
    pub late: Vec<Named>,
    pub filling: VecDeque<Filling>,
    /// Since when it could only wait, in seconds since the start.
    pub waits_since_s: Option<u64>,
    /// The output that the caller has not taken.
    pub out: Vec<u8>,
    /// Buffer for an operation's value.
    pub scratch: Vec<u8>,
    /// It has written more than may be kept, and the caller has not taken it.
    pub is_given_up: bool,
}

/// The place of a key in the order of a scan.
fn place(hash: KeyHash) -> u64 {
    (hash.0 as u32).reverse_bits().into()
}

impl Snapshot {
    /// A snapshot that begins behind this change.
    pub fn new(began_at: u64) -> Self {
        Self {
            began_at,
            loads: Vec::new(),
            passed: 0,
            late: Vec::new(),
            filling: VecDeque::new(),
            waits_since_s: None,
            out: Vec::new(),
            scratch: Vec::new(),
            is_given_up: false,
        }
    }

    /// Whether what is written makes this key as it is.
    fn has_passed(&self, key: &[u8], hash: KeyHash) -> bool {
        let is_late = || self.late.iter().any(|late| late.hash == hash && *late.key == *key);
        place(hash) < self.passed && (self.late.is_empty() || !is_late())
    }

    /// Writes an operation on a database's keys.
    pub fn write(&mut self, database: Database, command: &Command<'_>) {
        if self.is_given_up {
            return;
        }
        let from = self.out.len();
        self.out.extend_from_slice(&[0; LENGTH_BYTES]);
        command.encode_within(database, 0, &mut self.out);
        let bytes = self.out.len() - from - LENGTH_BYTES;
        self.out[from..from + LENGTH_BYTES].copy_from_slice(&(bytes as u32).to_le_bytes());
        if bytes > SNAPSHOT_OPERATION_BYTES || self.out.len() > SNAPSHOT_HELD_BYTES {
            self.is_given_up = true;
            self.out = Vec::new();
        }
    }

    /// Writes where the shard is in the log that it follows.
    pub fn write_position(&mut self, position: &LogPosition) {
        self.write_applied(&AppliedEntry::header(AppliedStep::At, position), &[]);
    }

    fn write_applied(&mut self, header: &[u8], operation: &[u8]) {
        if self.is_given_up {
            return;
        }
        self.out.extend_from_slice(&((header.len() + operation.len()) as u32).to_le_bytes());
        self.out.extend_from_slice(header);
        self.out.extend_from_slice(operation);
    }

    /// A flush is of all keys; one that is applied, at `at`, of the keys of that log.
    fn forward_flush(&mut self, flush: (Database, &Command<'_>), at: Option<&LogPosition>) {
        match at {
            None => self.write(flush.0, flush.1),
            Some(position) => {
                let mut operation = Vec::new();
                flush.1.encode_within(flush.0, 0, &mut operation);
                self.write_applied(&AppliedEntry::header(AppliedStep::Copy, position), &operation);
            }
        }
    }

    /// Writes of a change what it changes of the keys that are passed. The change is logged, and
    /// not made yet. `at` is its place in the log that is followed, if it is applied.
    #[cold]
    pub fn forward<J: Journal>(
        &mut self,
        (table, owner): (&Table, &Owner<J>),
        hash_seed: u64,
        (database, command, at): (Database, &Command<'_>, Option<&LogPosition>),
    ) {
        match *command {
            Command::Flush | Command::FlushAll => self.forward_flush((database, command), at),
            Command::MultiSet { pairs } => self.forward_pairs(hash_seed, database, pairs),
            Command::Load { key, load, step } => {
                let hash = KeyHash::within(database, key, hash_seed);
                let is_there = || table.find(owner, key, hash).is_some();
                self.forward_load((key, hash), (load, step), is_there);
            }
            _ => {
                let key = command.key().expect("a change without a key is one of the above");
                if self.has_passed(key, KeyHash::within(database, key, hash_seed)) {
                    self.write(database, command);
                }
            }
        }
    }

    fn forward_pairs(&mut self, hash_seed: u64, database: Database, pairs: Pairs<'_>) {
        let is_passed =
            |key: &[u8]| self.has_passed(key, KeyHash::within(database, key, hash_seed));
        let mut list = Vec::new();
        for (key, value) in pairs.iter().filter(|(key, _)| is_passed(key)) {
            Pairs::push(&mut list, key, value);
        }
        if !list.is_empty() {
            let pairs = Pairs::parse(&list).expect("pairs of a checked list");
            self.write(database, &Command::MultiSet { pairs });
        }
    }

    /// The steps of a load that began before the snapshot are not written: the key is, once it has
    /// the object. If the sweep is still to come to the key, a later load ends without having
    /// entered the object.
    fn forward_load(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        (load, step): (u64, LoadStep<'_>),
        is_there: impl FnOnce() -> bool,
    ) {
        let database = hash.database();
        let enters = matches!(step, LoadStep::Enter { .. });
        if matches!(step, LoadStep::Begin { .. }) {
            self.loads.push((load, hash));
        }
        let is_before = !self.loads.contains(&(load, hash));
        match (enters && self.has_passed(key, hash), is_before) {
            (true, true) => {
                if is_there() {
                    self.write(database, &Command::Del { key });
                }
                self.late.push(Named { key: key.into(), hash });
            }
            (false, true) => {}
            (false, false) if enters => {
                self.write(database, &Command::Load { key, load, step: LoadStep::Drop });
            }
            (_, false) => self.write(database, &Command::Load { key, load, step }),
        }
    }
}
