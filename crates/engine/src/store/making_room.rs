//! State of a command that makes room: the records that must stay, and the progress.

use remora_arena::Slot;
use std::collections::BTreeSet;

/// State of a command that makes room.
#[derive(Default)]
pub(crate) struct MakingRoom {
    /// The slot of a record that must stay: the present command works on it.
    pub keep: Option<u32>,
    /// The slot of another key's record that must stay: the one from which the command takes
    /// something, or to which it has given it.
    pub source: Option<u32>,
    /// Items of the command that an execution before has done.
    pub done: usize,
    /// Slots of root records that have to stay until they are taken out of here: a
    /// client is about to bring more for these objects.
    pub held: BTreeSet<u32>,
    /// The most bytes that the command has wanted without a result.
    pub wanted_bytes: u64,
    /// If memory does not suffice for the command, the shard makes more and executes the command
    /// again: the command's input must be kept.
    pub tries_again: bool,
    /// Chains from which keys were evicted; they are shortened once no place that was found before
    /// is needed.
    pub thinned: Vec<u64>,
}

impl MakingRoom {
    /// The command has been executed.
    pub fn end(&mut self) {
        (self.keep, self.source) = (None, None);
        (self.wanted_bytes, self.tries_again, self.done) = (0, false, 0);
    }

    /// The command needs this many bytes, and has not found them yet.
    pub fn want(&mut self, bytes: u64) {
        self.wanted_bytes = self.wanted_bytes.max(bytes);
    }

    /// Whether the command, or a client, works with the record in this slot.
    pub fn needs(&self, slot: u32) -> bool {
        self.keep == Some(slot) || self.source == Some(slot) || self.held.contains(&slot)
    }

    /// The record of one slot has moved to another.
    pub fn note_moved(&mut self, old: Slot, new: Slot) {
        for kept in [&mut self.keep, &mut self.source] {
            if *kept == Some(old.slot) {
                *kept = Some(new.slot);
            }
        }
    }
}
