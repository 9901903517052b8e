//! A recorded history of splits and merges in a B+tree, and which values a reader may show of it.

use crate::btree_fixture::{OrderedFixture, options};
use crate::fixture::HOME;
use crate::replay::{Recorder, Replay};
use remora_index::btree::Hold;
use remora_layout::btree::{
    KeyForm, ORDERED_ROOT_BYTES, OrderedHeader, ValueKind, verify_ordered_header,
};
use remora_layout::node::{NodeRef, Proof};
use remora_testing::Random;
use std::collections::HashMap;

/// Keys of a history.
pub const KEYS: u64 = 120;

/// One change: its stores, its key, and the number that is the key's value from then on.
pub struct Change {
    from: usize,
    to: usize,
    key: u64,
    value: Option<u64>,
}

/// An address that others hold, from one time to another.
pub struct HeldAddress {
    pub at: NodeRef,
    pub level: u8,
    pub from: usize,
    pub to: usize,
}

pub struct History {
    pub start: Vec<u64>,
    pub stores: Vec<(usize, u64)>,
    pub changes: Vec<Change>,
    pub header_at: NodeRef,
    /// Addresses that were held, by the time from which they were.
    pub held: Vec<HeldAddress>,
}

/// Hands out the children of the upper levels.
fn hold(fixture: &mut OrderedFixture<Recorder>, levels: usize) -> Vec<(NodeRef, u8)> {
    let mut named = Vec::new();
    let hold = Hold { epoch: 1, until_ms: u64::MAX, levels, below: None };
    let held = fixture.tree.hold(&fixture.owner, hold, |inner| {
        let level = inner.info.child_level();
        named.extend(inner.children.iter().map(|child| (child.at, level)));
        true
    });
    held.unwrap();
    named
}

pub fn bytes_of(keys: KeyForm, key: u64) -> Vec<u8> {
    match keys {
        KeyForm::Integers => key.to_be_bytes().to_vec(),
        KeyForm::Bytes => format!("https://example.org/{}/page/{key}", key % 3).into_bytes(),
    }
}

pub fn record(keys: KeyForm, fan_out: usize, changes: u64, random: &mut Random) -> History {
    let recorder = Recorder::default();
    let mut fixture = OrderedFixture::new(options(keys, fan_out), 2 << 20, recorder.clone());
    let words = fixture.owner.region_bytes() / 8;
    let start: Vec<u64> = (0..words).map(|word| fixture.owner.word(word)).collect();
    recorder.0.borrow_mut().clear();
    let (mut done, mut held) = (Vec::new(), Vec::<HeldAddress>::new());
    for number in 0..changes {
        // In one half of the history some addresses are held for a while, and then mended.
        let now = recorder.0.borrow().len();
        let may_hold = (number * 4 / changes).is_multiple_of(2);
        if may_hold && random.one_in(60) {
            let named = hold(&mut fixture, 1 + random.below(3usize));
            let held_now = |at| held.iter().any(|held| held.at == at && held.to == usize::MAX);
            let new: Vec<_> = named.into_iter().filter(|(at, _)| !held_now(*at)).collect();
            let of = |(at, level)| HeldAddress { at, level, from: now, to: usize::MAX };
            held.extend(new.into_iter().map(of));
        } else if random.one_in(if may_hold { 200 } else { 30 }) {
            fixture.tree.release(&fixture.owner, 1);
            held.iter_mut().for_each(|held| held.to = held.to.min(now));
        } else if random.one_in(3) {
            let (tree, mut arena) = fixture.parts();
            tree.mend_some(&mut arena).unwrap();
        }
        let from = recorder.0.borrow().len();
        let grows = (number * 8 / changes).is_multiple_of(2);
        let key = random.below(KEYS);
        let sets = if grows { 8 } else { 2u64 };
        let value = (random.below(10u64) < sets).then_some(number);
        let bytes = bytes_of(keys, key);
        if random.one_in(6)
            && let Some((_, known)) = fixture.map.get(&bytes)
            && let to = random.below(KEYS)
            && !fixture.map.contains_key(&bytes_of(keys, to))
        {
            let value = u64::from_le_bytes(known[..].try_into().unwrap());
            fixture.move_entry(&bytes, &bytes_of(keys, to));
            let end = recorder.0.borrow().len();
            let half = |key, value| Change { from, to: end, key, value };
            done.extend([half(key, None), half(to, Some(value))]);
            continue;
        }
        match value {
            Some(number) => fixture.set(&bytes, ValueKind::Bytes, &number.to_le_bytes()),
            None => fixture.delete(&bytes),
        }
        let to = recorder.0.borrow().len();
        done.push(Change { from, to, key, value });
    }
    fixture.check();
    let stores = recorder.0.borrow().clone();
    History { start, stores, changes: done, header_at: fixture.tree.at(), held }
}

impl Replay<'_> {
    pub fn ordered_header(&mut self, at: NodeRef, random: &mut Random) -> OrderedHeader {
        loop {
            let bytes = self.read(at, ORDERED_ROOT_BYTES, random);
            if let Ok(header) = verify_ordered_header(&bytes, HOME, at, Proof::Checksum) {
                return header;
            }
            self.go_on(1);
        }
    }
}

/// The states of each key, and the latest that a walk has shown.
pub struct Checker<'h> {
    states: HashMap<u64, Vec<(usize, Option<u64>)>>,
    shown: HashMap<u64, usize>,
    changes: &'h [Change],
}

impl<'h> Checker<'h> {
    pub fn new(changes: &'h [Change]) -> Self {
        let mut states: HashMap<_, _> = (0..KEYS).map(|key| (key, vec![(0, None)])).collect();
        for (index, change) in changes.iter().enumerate() {
            states.get_mut(&change.key).unwrap().push((index + 1, change.value));
        }
        Self { states, shown: HashMap::new(), changes }
    }

    /// One walk, from one time to another.
    pub fn check(&mut self, key: u64, (from, to): (usize, usize), value: Option<u64>) {
        // Changes that were over when the walk began, or had begun at its end.
        let over = self.changes.partition_point(|change| change.to <= from);
        let begun = self.changes.partition_point(|change| change.from < to);
        let states = &self.states[&key];
        let at = |changes| states.partition_point(|&(made, _)| made <= changes) - 1;
        let first = at(over).max(self.shown.get(&key).copied().unwrap_or(0));
        let mut possible = first..=at(begun).max(first);
        let state = possible.clone().find(|&state| states[state].1 == value);
        let states: Vec<_> = possible.by_ref().map(|state| states[state].1).collect();
        let state = state.unwrap_or_else(|| panic!("key {key} is {value:?}, of {states:?}"));
        self.shown.insert(key, state);
    }
}
