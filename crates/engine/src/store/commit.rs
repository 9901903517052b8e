//! The one way to change a key's value, its existence or its expiry: plan, log, publish (design,
//! "One change").
//!
//! Invariant: only this file adds entries to the log, and counts those of other logs, or logs them
//! with their places there ([`Store::applies`]). State that no
//! key exposes changes without an entry: the places of records, leases, touches, lookup tables,
//! memory that is released in turns. So does state that no key leads to yet, or any longer. Loads
//! on their way to a key, and staged objects, are logged all the same, because a copy needs them.
//!
//! A type plans a change: it decides every condition, takes the memory, and writes only memory that
//! no reader can reach yet. A plan that fails leaves no trace. Then the type commits: the resolved
//! operation becomes one entry of the log, and the stores that make it visible to readers follow.
//! If changes are not durable at once, readers see them once they are ([`super::durable`]). A
//! snapshot that is under way gets what concerns the keys that it has ([`super::snapshot`]).

use super::Store;
use super::joint::JointPart;
use super::record::Prepared;
use remora_arena::{Journal, Slot};
use remora_index::hash::record_value;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{LOG_EVICTION_ROOM_BYTES, LOG_EXPIRY_ROOM_BYTES, LOG_ROOM_BYTES};
use remora_log::{Log, Part};
use remora_protocol::applied::{APPLIED_HEADER_BYTES, AppliedEntry, AppliedStep, LogPosition};
use remora_protocol::message::{REQUEST_HEADER_BYTES, Status, form};
use remora_protocol::{Command, Condition, Expiry};
use zerocopy::IntoBytes;

/// Room for an entry's value that is kept between changes; a longer one is given back.
const KEPT_ENTRY_BYTES: usize = 64 << 10;

/// The log entry of one change.
pub(crate) enum Entry<'a> {
    /// This operation.
    Command(&'a Command<'a>),
    /// A SET of what a new record holds.
    Record {
        /// The record's key.
        key: &'a [u8],
        /// The record.
        new: &'a Prepared,
    },
}

impl<'a> From<&'a Command<'a>> for Entry<'a> {
    fn from(command: &'a Command<'a>) -> Self {
        Self::Command(command)
    }
}

impl<J: Journal> Store<J> {
    /// Logs a planned change of a database's keys, then makes it visible. `entry` has no condition
    /// left to decide; `publish` cannot fail. The stores of `publish` carry the entry's sequence,
    /// [`Store::last_sequence`].
    pub(crate) fn commit<'e, R>(
        &mut self,
        database: Database,
        entry: impl Into<Entry<'e>>,
        publish: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let record;
        let command = match entry.into() {
            Entry::Command(command) => command,
            Entry::Record { key, new } => {
                let value = record_value(&self.owner, new.slot.slot);
                let expiry = match new.expires_at_ms {
                    0 => Expiry::Never,
                    at_ms => Expiry::At(at_ms),
                };
                let condition = Condition::Always;
                record = Command::Set { key, value, condition, expiry, get: false };
                &record
            }
        };
        let sequence = if self.is_applying {
            let logged = (&mut self.log, &mut self.entry_scratch);
            let applies = (self.applies.as_ref(), self.logs_applied);
            append_applied(logged, applies, (database, command))
        } else {
            let parts = match &mut self.joint {
                None => None,
                Some(joint) => joint.parts_of(command, (&self.log, self.options.log_shard)),
            };
            let parts = parts.as_ref().map_or(&[][..], |parts| parts);
            append(&mut self.log, &mut self.entry_scratch, parts, (None, database, command))
        };
        let seed = self.options.hash_seed;
        self.lag.note(sequence, (database, command), seed);
        if let Some(snapshot) = &mut self.snapshot {
            let at = self.applies.as_ref().map(|(_, position)| position);
            snapshot.forward((&self.table, &self.owner), seed, (database, command, at));
        }
        if !self.watched.is_empty() {
            let hash_of = |database, key: &[u8]| KeyHash::within(database, key, seed);
            self.watched.note_command((database, command), hash_of);
        }
        publish(self)
    }

    /// Counts an entry that is applied, and does not concern this shard.
    pub(crate) fn pass_entry(&mut self) {
        if !self.logs_applied {
            pass(&mut self.log);
        }
    }

    /// Logs how far another log is applied. No key changes.
    pub(crate) fn log_position(&mut self, step: AppliedStep, position: &LogPosition) {
        write(&mut self.log, &[], [&AppliedEntry::header(step, position), &[], &[]]);
    }

    /// A command that changes something begins: why it may not; `None` if it may.
    #[inline]
    pub(crate) fn refusal(&mut self) -> Option<Status> {
        self.only_reads = false;
        if self.is_applying {
            return Some(Status::ReadOnly);
        }
        // A reader of the log that falls behind is waited for: it has lost nothing by then.
        let has_room = self.log.room_bytes() > LOG_ROOM_BYTES;
        if !self.keeps || !has_room {
            return Some(Status::NotKept);
        }
        (!self.has_replicas).then_some(Status::TooFewReplicas)
    }

    /// Whether a key that has expired may be removed now. A command that changes something removes
    /// the expired keys that it meets in any case: it was let in with room for that.
    #[inline]
    pub(crate) fn may_expire(&mut self) -> bool {
        let may = self.log.room_bytes() > LOG_EXPIRY_ROOM_BYTES && !self.is_bound();
        self.stats.expiries_put_off += !may as u64;
        may
    }

    /// Whether the log has room for a removal, and for the change that it makes room for.
    pub(super) fn may_log_evictions(&self) -> bool {
        self.log.room_bytes() > LOG_EVICTION_ROOM_BYTES && !self.is_bound()
    }

    /// Whether the next entry of the log is named by another shard's already.
    fn is_bound(&self) -> bool {
        self.joint.as_ref().is_some_and(JointPart::is_bound)
    }

    /// Sequence of the last change.
    #[inline]
    pub(crate) fn last_sequence(&self) -> u64 {
        self.log.last_sequence()
    }

    /// Lets readers see a pending record that the last change has made: at once,
    /// or once that is durable.
    #[inline]
    pub(crate) fn show(&mut self, slot: Slot) {
        self.lag.show(&mut self.owner, slot, self.log.last_sequence());
    }

    /// As [`Store::show`], for a key's last value without a new change: the record was moved, or is
    /// whole again.
    pub(crate) fn show_again(&mut self, slot: Slot, hash: KeyHash) {
        self.lag.show_again(&mut self.owner, slot, hash);
    }

    /// The last change has changed word 1 of a record, which no checksum covers,
    /// or is about to: readers ask until that is durable.
    pub(crate) fn withhold_mutable(&mut self, slot: u32) {
        self.lag.withhold_mutable(&mut self.owner, slot, self.log.last_sequence());
    }

    /// Sequence up to which changes are durable.
    pub(crate) fn durable_sequence(&self) -> u64 {
        self.lag.durable_sequence(self.last_sequence())
    }

    /// Marks changes up to this sequence, which are all made, as durable. Shows what became
    /// durable, the first part of it at once.
    pub(crate) fn set_durable(&mut self, sequence: u64) {
        self.lag.set_durable(&mut self.owner, sequence, self.log.last_sequence());
    }
}

/// Appends an entry to the log, and gives its sequence. `scratch` is for its value.
#[inline]
fn append(
    log: &mut Log,
    scratch: &mut Vec<u8>,
    parts: &[Part],
    (before, database, command): (Option<&[u8; APPLIED_HEADER_BYTES]>, Database, &Command<'_>),
) -> u64 {
    let (mut header, key, value) = command.encode(0, scratch);
    header.form = form::within(database);
    let mut both = [0; APPLIED_HEADER_BYTES + REQUEST_HEADER_BYTES];
    both[APPLIED_HEADER_BYTES..].copy_from_slice(header.as_bytes());
    let headers = match before {
        None => &both[APPLIED_HEADER_BYTES..],
        Some(before) => {
            both[..APPLIED_HEADER_BYTES].copy_from_slice(before);
            &both[..]
        }
    };
    let sequence = write(log, parts, [headers, key, value]);
    if scratch.capacity() > KEPT_ENTRY_BYTES {
        *scratch = Vec::new();
    }
    sequence
}

/// Adds an entry to the log, of this shard alone or with its parts, and gives its sequence.
#[inline]
fn write(log: &mut Log, parts: &[Part], operation: [&[u8]; 3]) -> u64 {
    match parts {
        [] => log.append(operation).sequence,
        parts => log.append_part(parts, operation).sequence,
    }
}

/// Counts an applied entry: its own log contains it.
fn pass(log: &mut Log) -> u64 {
    log.pass()
}

/// Logs an entry of another log with its place there, or counts it if nothing of it is kept. A change
/// that is of no other log is logged as any other: what goes to a disk has no gap.
#[inline(never)]
fn append_applied(
    (log, scratch): (&mut Log, &mut Vec<u8>),
    (applies, is_logged): (Option<&(AppliedStep, LogPosition)>, bool),
    (database, command): (Database, &Command<'_>),
) -> u64 {
    match applies {
        Some((step, position)) => {
            let before = AppliedEntry::header(*step, position);
            append(log, scratch, &[], (Some(&before), database, command))
        }
        None if is_logged => append(log, scratch, &[], (None, database, command)),
        None => pass(log),
    }
}
