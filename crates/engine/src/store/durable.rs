//! Visible means acknowledgeable (docs/decisions/0031): a change is seen once it
//! is as durable as configured, and not before.
//!
//! Invariants, if changes are not durable at once:
//! * A reply waits for the newest sequence among the keys that its command looked up. So it waits
//!   for no other key's changes. A reply without a value waits too: removed keys are in the table
//!   of pending keys as well.
//! * A record is pending until its sequence is durable; then the shard makes it live, in the order
//!   of the changes, a bounded number in each turn. A slot that is freed first is removed from this
//!   list, because it may hold other bytes by then.
//! * Nodes carry their sequence; readers compare it with the word
//!   [`word::DURABLE`], which never falls.
//!
//! The table of keys is bounded. If a change does not fit, all keys wait: replies may then wait for
//! changes of other keys, but never too short.
//!
//! With durability `memory` nothing is [`Pending`], and each place here costs a
//! branch.

use super::newest::NewestChanges;
use super::options::Durability;
use hashbrown::HashTable;
use remora_arena::{Journal, Owner, Slot, publish_live, slot_of, state_in, withhold};
use remora_layout::arena_header::{durable_word, word};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::SHOW_TURN_RECORDS;
use remora_layout::record::State;
use remora_protocol::Command;
use std::cell::Cell;
use std::collections::VecDeque;

thread_local! {
    /// The newest pending sequence that the present command depends on. A reply borrows the store, so
    /// this is beside it: a thread executes one command at a time. (A shared cell with a count of its
    /// owners takes two locked instructions, which wait for all stores of the command before.)
    static DEPENDS_ON: Cell<u64> = const { Cell::new(0) };
}

/// A command is under way that may depend on pending changes.
#[derive(Clone, Copy)]
pub(crate) struct DependsOn(());

impl DependsOn {
    /// The newest pending sequence that it depends on, as far as it has come; 0 for none.
    pub fn sequence(self) -> u64 {
        DEPENDS_ON.get()
    }
}

/// The changes that are not yet durable, if there may be any.
pub(crate) struct Lag(Option<Box<Pending>>);

/// The changes that are not yet durable.
#[derive(Default)]
struct Pending {
    durable: u64,
    /// The newest pending change of each key.
    newest: NewestChanges,
    /// All keys wait for this one: they all changed, or the table is full.
    all: u64,
    /// Records that wait to be made live, in the order of their sequences.
    withheld: VecDeque<(u64, u32)>,
    /// Their slots, and the sequence that each waits for.
    waits: HashTable<(u32, u64)>,
    /// The keys that the command has looked up so far.
    looked_up: Vec<KeyHash>,
}

#[inline]
fn depend_on(sequence: u64) {
    DEPENDS_ON.set(DEPENDS_ON.get().max(sequence));
}

/// A slot's place in the table of those that wait: neighbours are spread.
#[inline]
fn spread(slot: u32) -> u64 {
    u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
}

impl Pending {
    /// The newest pending change of a key; 0 if there is none.
    #[inline]
    fn newest_of(&self, hash: KeyHash) -> u64 {
        let newest = self.newest.of(hash.0).max(self.all);
        if newest > self.durable { newest } else { 0 }
    }

    fn look_up(&mut self, hash: KeyHash) {
        self.looked_up.push(hash);
        depend_on(self.newest_of(hash));
    }

    /// The newest change of a key.
    fn note_key(&mut self, sequence: u64, hash: KeyHash) {
        if !self.newest.note(sequence, hash.0) {
            self.all = sequence;
        }
    }

    /// A change was logged: of its own keys, and perhaps of all that its command
    /// has looked up.
    fn note(
        &mut self,
        sequence: u64,
        (database, command): (Database, &Command<'_>),
        hash_seed: u64,
    ) {
        depend_on(sequence);
        let mut own = None;
        match (command, command.key()) {
            (_, Some(key)) => {
                let hash = KeyHash::within(database, key, hash_seed);
                self.note_key(sequence, hash);
                own = Some(hash);
            }
            (Command::MultiSet { pairs }, None) => {
                for (key, _) in pairs.iter() {
                    self.note_key(sequence, KeyHash::within(database, key, hash_seed));
                }
            }
            (_, None) => self.all = sequence,
        }
        for at in 0..self.looked_up.len() {
            let looked_up = self.looked_up[at];
            if own != Some(looked_up) {
                self.note_key(sequence, looked_up);
            }
        }
    }

    fn withhold(&mut self, sequence: u64, slot: u32) {
        self.waits
            .entry(spread(slot), |of| of.0 == slot, |of| spread(of.0))
            .and_modify(|of| of.1 = sequence)
            .or_insert((slot, sequence));
        self.withheld.push_back((sequence, slot));
    }

    /// Takes a slot out of those that wait: whether it waits for this sequence.
    fn take_wait(&mut self, slot: u32, sequence: u64) -> bool {
        let found = self.waits.find_entry(spread(slot), |of| *of == (slot, sequence));
        found.map(|waits| waits.remove()).is_ok()
    }

    #[inline]
    fn has_to_show(&self) -> bool {
        self.withheld.front().is_some_and(|next| next.0 <= self.durable)
    }
}

impl Lag {
    /// The state at the shard's start.
    pub fn new(durability: Durability) -> Self {
        Self(match durability {
            Durability::Memory => None,
            Durability::Told => Some(Box::default()),
        })
    }

    /// Whether changes may be pending.
    #[inline(always)]
    pub fn is_possible(&self) -> bool {
        self.0.is_some()
    }

    /// Sequence up to which changes are durable; `last` is that of the last change.
    pub fn durable_sequence(&self, last: u64) -> u64 {
        self.0.as_ref().map_or(last, |pending| pending.durable)
    }

    /// Marks changes up to this sequence, which are all made, as durable. Shows what became
    /// durable, the first part of it at once.
    pub fn set_durable<J: Journal>(&mut self, owner: &mut Owner<J>, sequence: u64, last: u64) {
        let Some(pending) = &mut self.0 else { return };
        pending.durable = pending.durable.max(sequence.min(last));
        pending.newest.set_durable(pending.durable);
        owner.store_release(word::DURABLE, durable_word(pending.durable));
        self.show_some(owner);
    }

    /// A command begins. What it depends on, if changes may be pending.
    pub fn begin_command(&mut self) -> Option<DependsOn> {
        let pending = self.0.as_mut()?;
        pending.looked_up.clear();
        DEPENDS_ON.set(0);
        Some(DependsOn(()))
    }

    /// A command looks a key up.
    pub fn look_up(&mut self, hash: KeyHash) {
        if let Some(pending) = &mut self.0 {
            pending.look_up(hash);
        }
    }

    /// A command looks at all keys.
    pub fn look_at_all(&self, last: u64) {
        if self.0.as_ref().is_some_and(|pending| last > pending.durable) {
            depend_on(last);
        }
    }

    /// The newest pending change of a key; 0 if there is none.
    pub fn newest_of(&self, hash: KeyHash) -> u64 {
        self.0.as_ref().map_or(0, |pending| pending.newest_of(hash))
    }

    /// Keys with pending changes; some that are durable by now may be among them, as long as others
    /// are not.
    pub fn keys(&self) -> u64 {
        self.0.as_ref().map_or(0, |pending| pending.newest.len() as u64)
    }

    /// A change was logged.
    #[inline]
    pub fn note(&mut self, sequence: u64, change: (Database, &Command<'_>), hash_seed: u64) {
        if let Some(pending) = &mut self.0 {
            pending.note(sequence, change, hash_seed);
        }
    }

    /// A slot is freed.
    #[inline]
    pub fn forget(&mut self, slot: u32) {
        if let Some(pending) = &mut self.0 {
            let found = pending.waits.find_entry(spread(slot), |of| of.0 == slot);
            let _ = found.map(|waits| waits.remove());
        }
    }

    /// Whether the record in this slot waits to be made live.
    pub fn withholds(&self, slot: u32) -> bool {
        let waits =
            |pending: &Pending| pending.waits.find(spread(slot), |of| of.0 == slot).is_some();
        self.0.as_ref().is_some_and(|pending| waits(pending))
    }

    /// Lets readers see a pending record that the last change, of this sequence, has
    /// made: at once, or once that is durable.
    #[inline]
    pub fn show<J: Journal>(&mut self, owner: &mut Owner<J>, slot: Slot, sequence: u64) {
        match &mut self.0 {
            None => publish_live(owner, slot),
            Some(pending) => pending.withhold(sequence, slot.slot),
        }
    }

    /// Lets readers see a pending record of a key's last value, which no change
    /// has made now: it was moved, or is whole again.
    pub fn show_again<J: Journal>(&mut self, owner: &mut Owner<J>, slot: Slot, hash: KeyHash) {
        match &mut self.0 {
            Some(pending) if pending.newest_of(hash) > 0 => {
                pending.withhold(pending.newest_of(hash), slot.slot);
                withhold(owner, slot, State::Pending);
            }
            _ => publish_live(owner, slot),
        }
    }

    /// The last change, of this sequence, has changed word 1 of a record, which no
    /// checksum covers, or is about to: readers ask until that is durable.
    pub fn withhold_mutable<J: Journal>(&mut self, owner: &mut Owner<J>, slot: u32, sequence: u64) {
        let Some(pending) = &mut self.0 else { return };
        if state_in(owner, slot) == State::AskOnly {
            return;
        }
        pending.withhold(sequence, slot);
        let slot = slot_of(owner, slot);
        withhold(owner, slot, State::Pending);
    }

    /// Whether anything that became durable is still to be shown.
    #[inline(always)]
    pub fn has_to_show(&self) -> bool {
        self.0.as_ref().is_some_and(|pending| pending.has_to_show())
    }

    /// Makes a bounded number of records live, of those whose changes became durable.
    pub fn show_some<J: Journal>(&mut self, owner: &mut Owner<J>) {
        let Some(pending) = &mut self.0 else { return };
        for _ in 0..SHOW_TURN_RECORDS {
            let Some(&(sequence, slot)) = pending.withheld.front() else { break };
            if sequence > pending.durable {
                break;
            }
            pending.withheld.pop_front();
            // It may have been freed meanwhile, or changed again.
            if !pending.take_wait(slot, sequence) {
                continue;
            }
            // It may be dead, or changed in place, by now.
            if state_in(owner, slot) != State::Pending {
                continue;
            }
            let shown = slot_of(owner, slot);
            publish_live(owner, shown);
        }
    }
}
