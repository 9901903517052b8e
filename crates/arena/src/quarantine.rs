//! Freed slots that wait until the leases granted on them end (HydraDB 4.2.3).

use crate::slot::Slot;
use std::collections::{BTreeMap, VecDeque};

/// The waiting slots, by the second in which their lease ends.
#[derive(Default)]
pub(crate) struct Quarantine {
    by_end: BTreeMap<u64, VecDeque<Slot>>,
}

impl Quarantine {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.by_end.is_empty()
    }

    /// A slot waits until `end_s`.
    pub fn push(&mut self, slot: Slot, end_s: u64) {
        self.by_end.entry(end_s).or_default().push_back(slot);
    }

    /// The slot whose lease ends first, if it ends until `now_s`.
    pub fn pop_ended(&mut self, now_s: u64) -> Option<Slot> {
        let (&end_s, _) = self.by_end.first_key_value()?;
        if end_s <= now_s { self.pop_oldest() } else { None }
    }

    /// The slot whose lease ends first.
    pub fn pop_oldest(&mut self) -> Option<Slot> {
        let mut entry = self.by_end.first_entry()?;
        let slot = entry.get_mut().pop_front().expect("no empty list is kept");
        if entry.get().is_empty() {
            entry.remove();
        }
        Some(slot)
    }
}
