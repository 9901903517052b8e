//! Visible means acknowledgeable (docs/decisions/0031): a change is seen once it
//! is as durable as configured, and not before.
//!
//! What it keeps true, where changes are not durable at once:
//! * A reply waits for the newest sequence among the keys that its command looked
//!   up. So it waits for no other key's changes, and one without a value waits as
//!   one with a value does: removed keys stand in the table of pending keys, too.
//! * A record is pending until its sequence is durable; then it is made live, in
//!   the order of the changes, so many in a turn. A slot that is freed first is
//!   forgotten here, as other bytes may lie there by then.
//! * Nodes carry their sequence; readers compare it with the word
//!   [`word::DURABLE`], which never falls.
//!
//! The table of keys is bounded. What does not fit makes all keys wait: replies
//! may then wait for changes of other keys, but never too short.
//!
//! With durability `memory` there is no [`Lag`], and each place here costs a
//! branch.

use super::Store;
use remora_arena::{Journal, Slot, publish_live, slot_of, state_in, withhold};
use remora_layout::arena_header::{durable_word, word};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{PENDING_KEYS, SHOW_TURN_RECORDS};
use remora_layout::record::State;
use remora_protocol::Command;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// When a change is as durable as configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// At once: the log is kept in memory.
    #[default]
    Memory,
    /// Once [`crate::Shard::set_durable`] says so.
    Told,
}

/// What is changed and not yet durable.
#[derive(Default)]
pub(crate) struct Lag {
    durable: u64,
    /// The newest pending change of each key, by its hash.
    newest: BTreeMap<u64, u64>,
    /// The changed keys, in order; also those that have changed again since.
    changed: VecDeque<(u64, u64)>,
    /// All keys wait for this one: they all changed, or the table is full.
    all: u64,
    /// Records that wait to be made live, in the order of their sequences.
    withheld: VecDeque<(u64, u32)>,
    /// The sequence that each of their slots waits for.
    waits: BTreeMap<u32, u64>,
    /// The keys that the command has looked up so far.
    looked_up: Vec<KeyHash>,
    /// The newest pending sequence that the command depends on. Shared, as a
    /// reply borrows the store.
    depends_on: Arc<AtomicU64>,
}

impl Lag {
    /// The newest pending change of a key; 0 if there is none.
    fn newest_of(&self, hash: KeyHash) -> u64 {
        let newest = self.newest.get(&hash.0).copied().unwrap_or(0).max(self.all);
        if newest > self.durable { newest } else { 0 }
    }

    fn depend_on(&self, sequence: u64) {
        self.depends_on.fetch_max(sequence, Ordering::Relaxed);
    }

    fn look_up(&mut self, hash: KeyHash) {
        self.looked_up.push(hash);
        self.depend_on(self.newest_of(hash));
    }

    /// The newest change of a key.
    fn note_key(&mut self, sequence: u64, hash: KeyHash) {
        if self.changed.len() >= PENDING_KEYS {
            self.all = sequence;
        } else if self.newest.insert(hash.0, sequence) != Some(sequence) {
            self.changed.push_back((sequence, hash.0));
        }
    }

    /// A change was logged: of its own keys, and perhaps of all that its command
    /// has looked up.
    pub(super) fn note(
        &mut self,
        sequence: u64,
        (database, command): (Database, &Command<'_>),
        hash_seed: u64,
    ) {
        self.depend_on(sequence);
        match (command, command.key()) {
            (_, Some(key)) => self.note_key(sequence, KeyHash::within(database, key, hash_seed)),
            (Command::MultiSet { pairs }, None) => {
                for (key, _) in pairs.iter() {
                    self.note_key(sequence, KeyHash::within(database, key, hash_seed));
                }
            }
            (_, None) => self.all = sequence,
        }
        for at in 0..self.looked_up.len() {
            self.note_key(sequence, self.looked_up[at]);
        }
    }

    /// A slot is freed.
    pub(super) fn forget(&mut self, slot: u32) {
        self.waits.remove(&slot);
    }

    fn withhold(&mut self, sequence: u64, slot: u32) {
        self.waits.insert(slot, sequence);
        self.withheld.push_back((sequence, slot));
    }

    /// Whether the record in this slot waits to be made live.
    pub(super) fn withholds(&self, slot: u32) -> bool {
        self.waits.contains_key(&slot)
    }

    fn has_to_show(&self) -> bool {
        let is_due = |next: Option<&(u64, _)>| next.is_some_and(|next| next.0 <= self.durable);
        is_due(self.withheld.front()) || self.changed.front().is_some_and(|c| c.0 <= self.durable)
    }
}

impl<J: Journal> Store<J> {
    /// Whether changes may be pending.
    #[inline(always)]
    pub(crate) fn lags(&self) -> bool {
        self.lag.is_some()
    }

    /// Sequence up to which changes are durable.
    pub(crate) fn durable_sequence(&self) -> u64 {
        self.lag.as_ref().map_or_else(|| self.last_sequence(), |lag| lag.durable)
    }

    /// Changes up to this sequence are durable; none is that is not made yet. What
    /// became durable is shown, the first part of it at once.
    pub(crate) fn set_durable(&mut self, sequence: u64) {
        let last = self.last_sequence();
        let Some(lag) = &mut self.lag else { return };
        lag.durable = lag.durable.max(sequence.min(last));
        self.owner.store_release(word::DURABLE, durable_word(lag.durable));
        self.show_some();
    }

    /// A command begins. Gives the cell that takes the newest pending sequence
    /// that it depends on, if changes may be pending.
    pub(crate) fn begin_command(&mut self) -> Option<Arc<AtomicU64>> {
        let lag = self.lag.as_mut()?;
        lag.looked_up.clear();
        lag.depends_on.store(0, Ordering::Relaxed);
        Some(Arc::clone(&lag.depends_on))
    }

    /// A command looks a key up.
    pub(super) fn look_up_pending(&mut self, hash: KeyHash) {
        if let Some(lag) = &mut self.lag {
            lag.look_up(hash);
        }
    }

    /// A command looks at all keys.
    pub(crate) fn look_at_all(&mut self) {
        let last = self.last_sequence();
        if let Some(lag) = self.lag.as_ref().filter(|lag| last > lag.durable) {
            lag.depend_on(last);
        }
    }

    /// The newest pending change of a key; 0 if there is none.
    pub(crate) fn newest_pending(&self, hash: KeyHash) -> u64 {
        self.lag.as_ref().map_or(0, |lag| lag.newest_of(hash))
    }

    /// Keys with pending changes, those that have changed again included.
    pub(super) fn pending_keys(&self) -> u64 {
        self.lag.as_ref().map_or(0, |lag| lag.changed.len() as u64)
    }

    /// Lets readers see a pending record that the last change has made: at once,
    /// or once that is durable.
    #[inline]
    pub(crate) fn show(&mut self, slot: Slot) {
        let sequence = self.last_sequence();
        match &mut self.lag {
            None => publish_live(&mut self.owner, slot),
            Some(lag) => lag.withhold(sequence, slot.slot),
        }
    }

    /// Lets readers see a pending record of a key's last value, which no change
    /// has made now: it was moved, or is whole again.
    pub(super) fn show_again(&mut self, slot: Slot, hash: KeyHash) {
        match &mut self.lag {
            Some(lag) if lag.newest_of(hash) > 0 => {
                lag.withhold(lag.newest_of(hash), slot.slot);
                withhold(&mut self.owner, slot, State::Pending);
            }
            _ => publish_live(&mut self.owner, slot),
        }
    }

    /// The last change has changed word 1 of a record, which no checksum covers,
    /// or is about to: readers ask until that is durable.
    pub(crate) fn withhold_mutable(&mut self, slot: u32) {
        let sequence = self.last_sequence();
        let Some(lag) = &mut self.lag else { return };
        if state_in(&self.owner, slot) == State::AskOnly {
            return;
        }
        lag.withhold(sequence, slot);
        let slot = slot_of(&self.owner, slot);
        withhold(&mut self.owner, slot, State::Pending);
    }

    /// Whether anything that became durable is still to be shown.
    #[inline(always)]
    pub(crate) fn has_to_show(&self) -> bool {
        self.lag.as_ref().is_some_and(|lag| lag.has_to_show())
    }

    /// Makes records live whose changes became durable: a bounded part.
    pub(crate) fn show_some(&mut self) {
        let Some(lag) = &mut self.lag else { return };
        for _ in 0..SHOW_TURN_RECORDS {
            let Some(&(sequence, hash)) = lag.changed.front() else { break };
            if sequence > lag.durable {
                break;
            }
            lag.changed.pop_front();
            if lag.newest.get(&hash) == Some(&sequence) {
                lag.newest.remove(&hash);
            }
        }
        for _ in 0..SHOW_TURN_RECORDS {
            let Some(&(sequence, slot)) = lag.withheld.front() else { break };
            if sequence > lag.durable {
                break;
            }
            lag.withheld.pop_front();
            // It may have been freed meanwhile, or changed again.
            if lag.waits.get(&slot) != Some(&sequence) {
                continue;
            }
            lag.waits.remove(&slot);
            let owner = &mut self.owner;
            // It may be dead, or changed in place, by now.
            if state_in(owner, slot) != State::Pending {
                continue;
            }
            let shown = slot_of(owner, slot);
            publish_live(owner, shown);
        }
    }
}
