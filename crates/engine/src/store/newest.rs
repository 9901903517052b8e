//! The newest pending change of each key.
//!
//! Two generations of a hash table: changes go to the young one. Once all that the old one has is
//! durable it is emptied, and the two change places. So no key is taken out by itself. A change
//! that is durable and still in a table is recognized by its sequence.
//!
//! Invariants: a key with a pending change is in one of the tables, with its newest sequence in the
//! young one if it is in both; together they have at most [`PENDING_KEYS`] keys.

use hashbrown::HashTable;
use remora_layout::limits::PENDING_KEYS;

/// A key's hash, and its sequence.
type Change = (u64, u64);

/// Room of a table that stays however little of it is used.
const KEPT_ROOM: usize = 1024;

/// Some changed keys, and the last change of them.
#[derive(Default)]
struct Generation {
    keys: HashTable<Change>,
    last: u64,
}

impl Generation {
    #[inline]
    fn get(&self, hash: u64) -> Option<u64> {
        if self.keys.is_empty() {
            return None;
        }
        self.keys.find(hash, |of| of.0 == hash).map(|of| of.1)
    }

    fn clear(&mut self) {
        // Emptying a table costs as much as its room: a burst's is given back.
        match self.keys.capacity() > KEPT_ROOM && self.keys.len() < self.keys.capacity() / 8 {
            true => self.keys = HashTable::new(),
            false => self.keys.clear(),
        }
    }
}

/// See the module's text.
#[derive(Default)]
pub struct NewestChanges {
    young: Generation,
    old: Generation,
}

impl NewestChanges {
    /// The last noted change of a key, which may be durable by now; 0 if there is none.
    #[inline]
    pub fn of(&self, hash: u64) -> u64 {
        self.young.get(hash).or_else(|| self.old.get(hash)).unwrap_or(0)
    }

    /// Notes a key's change, behind all that were noted before. False if there is no room.
    #[inline]
    pub fn note(&mut self, sequence: u64, hash: u64) -> bool {
        if self.len() >= PENDING_KEYS {
            return false;
        }
        self.young.last = sequence;
        let keys = &mut self.young.keys;
        keys.entry(hash, |of| of.0 == hash, |of| of.0)
            .and_modify(|of| of.1 = sequence)
            .or_insert((hash, sequence));
        true
    }

    /// Changes up to this sequence are durable.
    pub fn set_durable(&mut self, durable: u64) {
        if self.old.last > durable {
            return;
        }
        self.old.clear();
        std::mem::swap(&mut self.old, &mut self.young);
        if self.old.last <= durable {
            self.old.clear();
        }
    }

    /// The noted keys. Some may be durable while others are not; those that have changed again
    /// since may count twice.
    pub fn len(&self) -> usize {
        self.young.keys.len() + self.old.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_key_has_its_newest_change_while_that_is_pending() {
        let (mut newest, mut model) = (NewestChanges::default(), BTreeMap::new());
        let (mut durable, mut random) = (0, 1u64);
        for sequence in 1..=20_000 {
            random = remora_layout::hash::mix(random, sequence);
            let hash = remora_layout::hash::mix(7, random % 300);
            assert!(newest.note(sequence, hash));
            model.insert(hash, sequence);
            if random >> 32 & 0xf == 0 {
                durable += (random >> 40) % (sequence - durable + 1);
                newest.set_durable(durable);
            }
            for (&hash, &sequence) in &model {
                let known = newest.of(hash);
                assert!(known == sequence || (known == 0 && sequence <= durable));
            }
            assert!(newest.len() <= 600);
        }
        newest.set_durable(20_000);
        assert_eq!(newest.len(), 0);
    }

    #[test]
    fn it_is_bounded_and_gives_the_room_of_a_burst_back() {
        let mut newest = NewestChanges::default();
        let hash = |sequence| remora_layout::hash::mix(3, sequence);
        let mut sequence = 0;
        while newest.note(sequence + 1, hash(sequence + 1)) {
            sequence += 1;
        }
        assert_eq!((newest.len(), sequence), (PENDING_KEYS, PENDING_KEYS as u64));
        newest.set_durable(sequence);
        for more in 1..10 {
            assert!(newest.note(sequence + more, hash(sequence + more)));
            newest.set_durable(sequence + more);
        }
        assert!(newest.young.keys.capacity() + newest.old.keys.capacity() <= 4 * KEPT_ROOM);
    }
}
