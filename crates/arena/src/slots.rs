//! The allocator of an arena: slots of fixed classes, generations,
//! quarantine.
//!
//! What it keeps true:
//! * a slot has one class as long as the region lives;
//! * its generation, kept in the guardian word, grows with each allocation
//!   and never wraps: a slot whose generation is used up is retired;
//! * a freed slot under a lease waits until the lease has ended, unless the
//!   quarantine is full or memory is: then the oldest are reused early, which
//!   generation and checksum make safe (design, "What a late reader may do").

use crate::journal::Journal;
use crate::owner::Owner;
use crate::size_class::{CLASSES, class_bytes};
use remora_layout::limits::{QUARANTINE_SHARE, SLOT_UNIT_BYTES};
use remora_layout::record::{Guardian, State};
use std::collections::BTreeMap;

/// Slots of up to this size are carved from spans; larger ones one by one.
const SPAN_CLASS_LIMIT_BYTES: usize = 8 << 10;
const SPAN_BYTES: usize = 64 << 10;

/// A slot in somebody's hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Its number, in units of 16 bytes from the region's start.
    pub slot: u32,
    /// Its present generation.
    pub generation: u32,
    /// Its size class.
    pub class: u8,
}

/// There is no slot of this class left, nor memory to carve one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the arena is full: no slot of {bytes} bytes is left; raise max_memory or remove keys")]
pub struct ArenaFull {
    /// Size of the slot that was wanted.
    pub bytes: usize,
}

/// Where the bytes of an arena are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotStats {
    /// Bytes of slots in use.
    pub used_bytes: u64,
    /// Bytes of free slots.
    pub free_bytes: u64,
    /// Bytes of slots that wait for a lease to end.
    pub quarantine_bytes: u64,
    /// Bytes of slots whose generation is used up.
    pub retired_bytes: u64,
    /// Bytes that no slot has been carved from.
    pub uncarved_bytes: u64,
    /// Slots reused before their lease had ended.
    pub reused_early: u64,
}

#[derive(Clone, Default)]
struct Class {
    free: Vec<u32>,
    /// Next slot to carve, and the end of the present span.
    carve: u32,
    carve_end: u32,
}

/// The allocator. It keeps numbers only; the memory is the owner's.
pub struct Slots {
    classes: Vec<Class>,
    /// First unit that is in no span.
    bump: u32,
    end: u32,
    /// Freed slots by the second in which their lease ends.
    quarantine: BTreeMap<u64, Vec<Slot>>,
    quarantine_limit_bytes: u64,
    last_generation: u32,
    stats: SlotStats,
}

impl Slots {
    /// An allocator over `from..to` of a region, in bytes.
    pub fn new(from: usize, to: usize) -> Self {
        Self::with_last_generation(from, to, u32::MAX)
    }

    /// As [`Slots::new`], with a smaller last generation (tests, worlds), so
    /// that retirement happens often.
    pub fn with_last_generation(from: usize, to: usize, last_generation: u32) -> Self {
        let bump = from.div_ceil(SLOT_UNIT_BYTES) as u32;
        let end = (to / SLOT_UNIT_BYTES) as u32;
        let uncarved_bytes = end.saturating_sub(bump) as u64 * SLOT_UNIT_BYTES as u64;
        Self {
            classes: vec![Class::default(); CLASSES],
            bump,
            end,
            quarantine: BTreeMap::new(),
            quarantine_limit_bytes: uncarved_bytes / QUARANTINE_SHARE,
            last_generation,
            stats: SlotStats { uncarved_bytes, ..SlotStats::default() },
        }
    }

    /// Where the bytes are.
    pub fn stats(&self) -> SlotStats {
        self.stats
    }

    /// Takes a slot: its guardian is pending, under a new generation.
    /// `now_s` is the server's clock, in seconds.
    pub fn allocate<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        class: u8,
        now_s: u64,
    ) -> Result<Slot, ArenaFull> {
        // Bounded: each turn retires a slot or returns.
        loop {
            let number = match self.take_number(class) {
                Some(number) => number,
                None => {
                    self.end_leases(now_s);
                    match self.take_number(class).or_else(|| self.take_early(class)) {
                        Some(number) => number,
                        None => return Err(ArenaFull { bytes: class_bytes(class) }),
                    }
                }
            };
            let word = number as usize * (SLOT_UNIT_BYTES / 8);
            let before = Guardian::from_word(owner.word(word)).map_or(0, |found| found.generation);
            let bytes = class_bytes(class) as u64;
            if before >= self.last_generation {
                self.stats.retired_bytes += bytes;
                continue;
            }
            let slot = Slot { slot: number, generation: before + 1, class };
            let guardian = Guardian { generation: slot.generation, state: State::Pending, class };
            owner.store(word, guardian.to_word());
            // Nothing of the new record is visible before the new generation is.
            owner.release();
            self.stats.used_bytes += bytes;
            return Ok(slot);
        }
    }

    /// Gives a slot back, its guardian dead. It is free at once, or when the
    /// lease ends that was given out until `lease_end_s`.
    pub fn release(&mut self, slot: Slot, lease_end_s: Option<u64>, now_s: u64) {
        let bytes = class_bytes(slot.class) as u64;
        self.stats.used_bytes -= bytes;
        match lease_end_s {
            Some(end_s) if end_s > now_s => {
                self.quarantine.entry(end_s).or_default().push(slot);
                self.stats.quarantine_bytes += bytes;
                while self.stats.quarantine_bytes > self.quarantine_limit_bytes {
                    self.reuse_oldest();
                }
            }
            _ => self.put_free(slot),
        }
    }

    /// Frees the slots whose leases have ended.
    pub fn end_leases(&mut self, now_s: u64) {
        while let Some(entry) = self.quarantine.first_entry() {
            if *entry.key() > now_s {
                return;
            }
            for slot in entry.remove() {
                self.stats.quarantine_bytes -= class_bytes(slot.class) as u64;
                self.put_free(slot);
            }
        }
    }

    /// Whether some slots wait for their leases.
    pub fn has_quarantine(&self) -> bool {
        !self.quarantine.is_empty()
    }

    fn put_free(&mut self, slot: Slot) {
        self.classes[slot.class as usize].free.push(slot.slot);
        self.stats.free_bytes += class_bytes(slot.class) as u64;
    }

    fn take_number(&mut self, class: u8) -> Option<u32> {
        let bytes = class_bytes(class);
        let units = (bytes / SLOT_UNIT_BYTES) as u32;
        if let Some(number) = self.classes[class as usize].free.pop() {
            self.stats.free_bytes -= bytes as u64;
            return Some(number);
        }
        let state = &mut self.classes[class as usize];
        if state.carve_end - state.carve < units {
            let span = if bytes <= SPAN_CLASS_LIMIT_BYTES { SPAN_BYTES } else { bytes };
            let span = ((span / SLOT_UNIT_BYTES) as u32).min(self.end - self.bump);
            if span < units {
                return None;
            }
            // The end of the old span is smaller than a slot of its class; it
            // stays unused, as slots never change their class.
            let lost = (state.carve_end - state.carve) as u64 * SLOT_UNIT_BYTES as u64;
            self.stats.retired_bytes += lost;
            self.stats.uncarved_bytes -= lost;
            state.carve = self.bump;
            state.carve_end = self.bump + span;
            self.bump += span;
        }
        let number = state.carve;
        state.carve += units;
        self.stats.uncarved_bytes -= bytes as u64;
        Some(number)
    }

    /// Ends leases early, the oldest first, until a slot of `class` is free.
    fn take_early(&mut self, class: u8) -> Option<u32> {
        while self.has_quarantine() {
            self.reuse_oldest();
            if let Some(number) = self.take_number(class) {
                return Some(number);
            }
        }
        None
    }

    fn reuse_oldest(&mut self) {
        let Some(mut entry) = self.quarantine.first_entry() else { return };
        let slot = entry.get_mut().pop().expect("no empty list is kept");
        if entry.get().is_empty() {
            entry.remove();
        }
        self.stats.quarantine_bytes -= class_bytes(slot.class) as u64;
        self.stats.reused_early += 1;
        self.put_free(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::NoJournal;
    use crate::records::flip_dead;
    use std::collections::{BTreeMap, HashMap};

    /// Everything that must hold after each step, against a plain oracle.
    fn check(slots: &Slots, held: &BTreeMap<u32, Slot>, total: u64) {
        let stats = slots.stats();
        let used: u64 = held.values().map(|slot| class_bytes(slot.class) as u64).sum();
        assert_eq!(stats.used_bytes, used);
        let sum = stats.used_bytes
            + stats.free_bytes
            + stats.quarantine_bytes
            + stats.retired_bytes
            + stats.uncarved_bytes;
        assert_eq!(sum, total, "no byte is lost or counted twice: {stats:?}");
        assert!(stats.quarantine_bytes <= slots.quarantine_limit_bytes);
        let mut end = 0;
        for slot in held.values() {
            let from = slot.slot as u64 * 16;
            assert!(from >= end, "two slots overlap");
            end = from + class_bytes(slot.class) as u64;
        }
    }

    #[test]
    fn a_long_random_run_never_hands_a_slot_out_twice() {
        const BYTES: usize = 1 << 20;
        let mut owner = Owner::heap(BYTES, NoJournal);
        let mut slots = Slots::with_last_generation(4096, BYTES, 40);
        let total = slots.stats().uncarved_bytes;
        let mut held: BTreeMap<u32, Slot> = BTreeMap::new();
        let mut class_of: HashMap<u32, u8> = HashMap::new();
        let mut generation_of: HashMap<u32, u32> = HashMap::new();
        let mut random = 0x2545_f491_4f6c_dd1du64;
        let mut full = 0;
        for step in 0..60_000u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let now_s = step / 100;
            if random % 100 < 55 {
                let class = (random >> 8) as u8 % 48;
                match slots.allocate(&mut owner, class, now_s) {
                    Ok(slot) => {
                        assert!(held.insert(slot.slot, slot).is_none(), "handed out twice");
                        assert_eq!(*class_of.entry(slot.slot).or_insert(class), class);
                        let last = generation_of.insert(slot.slot, slot.generation).unwrap_or(0);
                        assert!(slot.generation > last && slot.generation <= 40);
                    }
                    Err(_) => full += 1,
                }
            } else if !held.is_empty() {
                let at = (random >> 16) as usize % held.len();
                let number = *held.keys().nth(at).unwrap();
                held.remove(&number);
                let slot = flip_dead(&mut owner, number);
                let lease = (random & 1 << 40 != 0).then_some(now_s + (random >> 50) % 8);
                slots.release(slot, lease, now_s);
            }
            if step % 64 == 0 {
                check(&slots, &held, total);
            }
        }
        assert!(full > 0 && slots.stats().retired_bytes > 0 && slots.stats().reused_early > 0);
    }

    #[test]
    fn a_leased_slot_waits_for_its_lease() {
        let mut owner = Owner::heap(1 << 20, NoJournal);
        let mut slots = Slots::new(0, 1 << 20);
        let first = slots.allocate(&mut owner, 4, 10).unwrap();
        let dead = flip_dead(&mut owner, first.slot);
        slots.release(dead, Some(15), 10);
        slots.end_leases(14);
        assert_ne!(slots.allocate(&mut owner, 4, 14).unwrap().slot, first.slot);
        slots.end_leases(15);
        let again = slots.allocate(&mut owner, 4, 15).unwrap();
        assert_eq!((again.slot, again.generation), (first.slot, first.generation + 1));
    }
}
