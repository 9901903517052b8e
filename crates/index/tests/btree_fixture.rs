//! A B+tree in an arena, and a map with the same keys.

use crate::fixture::HOME;
use remora_arena::{Journal, Owner, Slots};
use remora_index::btree::{Arena, Options, Tree, TreeError};
use remora_layout::btree::{KeyForm, ORDERED_ROOT_BYTES, Value, ValueKind};
use remora_layout::limits::PAGE_BYTES;
use remora_layout::node::NodeRef;
use remora_testing::Random;
use std::collections::BTreeMap;

/// Fan-outs that the tests take: the smallest, the paper's, a large one.
pub const FAN_OUTS: [usize; 3] = [4, 16, 64];

const KINDS: [ValueKind; 3] = [ValueKind::Bytes, ValueKind::Record, ValueKind::Link];

pub struct OrderedFixture<J: Journal> {
    pub owner: Owner<J>,
    pub slots: Slots,
    pub tree: Tree,
    pub map: BTreeMap<Vec<u8>, (ValueKind, Vec<u8>)>,
    pub options: Options,
    /// Values of 100 that are a word.
    pub words: u64,
    /// Sequence of the changes.
    pub sequence: u64,
}

/// Settings for a form of keys.
pub fn options(keys: KeyForm, fan_out: usize) -> Options {
    match keys {
        KeyForm::Integers => Options::integers(fan_out),
        KeyForm::Bytes => Options::byte_strings(fan_out, 1024, 200, 24),
    }
}

impl<J: Journal> OrderedFixture<J> {
    pub fn new(options: Options, bytes: usize, journal: J) -> Self {
        let mut owner = Owner::heap(bytes, journal);
        let mut slots = Slots::new(PAGE_BYTES, bytes);
        let slot = slots.allocate(&mut owner, ORDERED_ROOT_BYTES, 0).unwrap();
        let at = NodeRef { slot: slot.slot, generation: slot.generation };
        let mut arena = Arena { owner: &mut owner, slots: &mut slots, changed_at: 0 };
        let tree = Tree::create(&mut arena, HOME, at, options).unwrap();
        Self { owner, slots, tree, map: BTreeMap::new(), options, words: 0, sequence: 1 }
    }

    /// The tree and what its writer works with.
    pub fn parts(&mut self) -> (&mut Tree, Arena<'_, J>) {
        let (owner, slots) = (&mut self.owner, &mut self.slots);
        let arena = Arena { owner, slots, changed_at: self.sequence };
        (&mut self.tree, arena)
    }

    pub fn try_set(&mut self, key: &[u8], kind: ValueKind, bytes: &[u8]) -> Result<(), TreeError> {
        let (tree, mut arena) = self.parts();
        let is_new = tree.set(&mut arena, key, Value { kind, bytes })?;
        let before = self.map.insert(key.to_vec(), (kind, bytes.to_vec()));
        assert_eq!(is_new, before.is_none());
        Ok(())
    }

    pub fn set(&mut self, key: &[u8], kind: ValueKind, bytes: &[u8]) {
        self.try_set(key, kind, bytes).unwrap();
    }

    /// Moves an entry to a key that is not there.
    pub fn try_move(&mut self, from: &[u8], to: &[u8]) -> Result<(), TreeError> {
        let (kind, bytes) = self.map[from].clone();
        let (tree, mut arena) = self.parts();
        let change = tree.plan_move(&mut arena, from, to, Value { kind, bytes: &bytes })?;
        tree.publish(&mut arena, change);
        self.map.remove(from);
        self.map.insert(to.to_vec(), (kind, bytes));
        Ok(())
    }

    pub fn move_entry(&mut self, from: &[u8], to: &[u8]) {
        self.try_move(from, to).unwrap();
    }

    pub fn delete(&mut self, key: &[u8]) {
        let (tree, mut arena) = self.parts();
        let was_there = tree.delete(&mut arena, key);
        assert_eq!(was_there, self.map.remove(key).is_some(), "{key:?}");
    }

    /// A random value that a leaf has room for.
    pub fn value(&self, random: &mut Random) -> (ValueKind, Vec<u8>) {
        if self.words > 0 && random.below(100u64) < self.words {
            return (ValueKind::Bytes, random.bytes(8));
        }
        let most = self.options.value_bytes;
        let bytes = if random.one_in(4) { most } else { most.min(9) };
        (random.pick(&KINDS), random.bytes_up_to(bytes))
    }

    /// A key of the map, if there is any.
    pub fn some(&self, random: &mut Random) -> Option<Vec<u8>> {
        let index = random.below(self.map.len().max(1));
        self.map.keys().nth(index).cloned()
    }

    /// Every key, value and invariant.
    pub fn check(&self) {
        self.tree.check(&self.owner).unwrap();
        assert_eq!(self.tree.keys(), self.map.len() as u64);
        for (key, (kind, bytes)) in &self.map {
            let value = Value { kind: *kind, bytes };
            assert_eq!(self.tree.get(&self.owner, key), Some(value), "{key:?}");
        }
    }
}

/// A key: integers that are often neighbours; byte strings that share beginnings, end early, hold
/// zeros, and are sometimes as long as they may be.
pub fn key(random: &mut Random, keys: KeyForm, many: u64) -> Vec<u8> {
    let number = random.below(many);
    if keys == KeyForm::Integers {
        let spread = if number.is_multiple_of(3) { u64::MAX / many } else { 1 };
        return (number * spread).to_be_bytes().to_vec();
    }
    let mut key = match number % 5 {
        0 => b"https://example.org/".to_vec(),
        1 => b"https://example.org/a/long/way/to/one/page/".to_vec(),
        2 => vec![0; (number / 5 % 4) as usize],
        3 => vec![b'k'; (number / 5 % 12) as usize],
        _ => number.to_be_bytes().to_vec(),
    };
    key.extend((number / 7).to_string().bytes());
    if number.is_multiple_of(11) {
        key.resize(1024 - (number % 3) as usize, b'x');
    }
    key
}
