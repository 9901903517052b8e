//! The one way to change what a key holds, whether it is there, or when it expires:
//! plan, log, publish (design, "One change").
//!
//! What it keeps true: here alone the log gets entries, and counts those of other
//! logs. What no key tells changes without an entry: where records lie, leases,
//! touches, tables that find what a key holds, memory that comes back in turns. So
//! does what no key leads to yet, or any more; objects on their way to a key, and
//! staged ones, are logged all the same, as a copy needs them.
//!
//! A type plans a change: it decides every condition, takes the memory, and
//! writes what no reader can reach yet. A plan that fails leaves no trace. Then
//! it commits: the resolved operation becomes one entry of the log, and the
//! stores that let readers see it follow. Where changes are not durable at once,
//! they are seen once they are ([`super::durable`]).

use super::{Prepared, Store};
use remora_arena::Journal;
use remora_index::hash::record_value;
use remora_layout::database::Database;
use remora_log::Log;
use remora_protocol::message::form;
use remora_protocol::{Command, Condition, Expiry};
use zerocopy::IntoBytes;

/// What one change is in the log.
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
    /// Logs a planned change of a database's keys, then lets it be seen. `entry` has no condition
    /// left to decide; `publish` cannot fail. What it stores carries the entry's
    /// sequence, [`Store::last_sequence`].
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
            pass(&mut self.log)
        } else {
            let (mut header, key, value) = command.encode(0, &mut self.entry_scratch);
            header.form = form::within(database);
            self.log.append([header.as_bytes(), key, value]).sequence
        };
        if let Some(lag) = &mut self.lag {
            lag.note(sequence, (database, command), self.options.hash_seed);
        }
        publish(self)
    }

    /// Counts an entry that is applied, and does not concern this shard.
    pub(crate) fn pass_entry(&mut self) {
        pass(&mut self.log);
    }

    /// Sequence of the last change.
    #[inline]
    pub(crate) fn last_sequence(&self) -> u64 {
        self.log.last_sequence()
    }
}

/// Counts an entry that is applied: it stands in the log that it came from.
fn pass(log: &mut Log) -> u64 {
    log.pass()
}
