//! Our tree with an arena of its own, and time.

use remora_arena::{NoJournal, Owner, Slots};
use remora_index::btree::{Arena, Direction, Options, Range, Tree};
use remora_layout::btree::{ORDERED_ROOT_BYTES, Value};
use remora_layout::limits::PAGE_BYTES;
use remora_layout::node::{Home, NodeRef};
use rustix::time::{ClockId, clock_gettime};
use std::ops::Bound;

const HOME: Home = Home { secret: 1, region: 0 };

/// A tree of ours, by itself.
pub struct Ours {
    owner: Owner<NoJournal>,
    slots: Slots,
    pub tree: Tree,
}

impl Ours {
    /// An empty tree, with an arena of so many bytes.
    pub fn new(options: Options, bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let mut owner = Owner::heap(bytes, NoJournal);
        let mut slots = Slots::new(PAGE_BYTES, bytes);
        let mut arena = Arena { owner: &mut owner, slots: &mut slots, changed_at: 0 };
        let slot = arena.slots.allocate(arena.owner, ORDERED_ROOT_BYTES, 0).expect("memory");
        let at = NodeRef { slot: slot.slot, generation: slot.generation };
        let tree = Tree::create(&mut arena, HOME, at, options).expect("memory");
        Self { owner, slots, tree }
    }

    pub fn insert<'k>(&mut self, entries: impl Iterator<Item = (impl AsRef<[u8]>, u64)> + 'k) {
        let mut arena = Arena { owner: &mut self.owner, slots: &mut self.slots, changed_at: 1 };
        for (key, value) in entries {
            let value = value.to_le_bytes();
            self.tree.set(&mut arena, key.as_ref(), Value::of(&value)).expect("memory");
        }
    }

    pub fn get(&self, keys: impl Iterator<Item = impl AsRef<[u8]>>) -> u64 {
        let values = keys.map(|key| {
            let value = self.tree.get(&self.owner, key.as_ref()).expect("it is there");
            u64::from_le_bytes(value.bytes.try_into().expect("8 bytes"))
        });
        values.fold(0, u64::wrapping_add)
    }

    /// The sum of what `of` gives for each entry, of so many from a key on.
    pub fn range(&self, from: &[u8], limit: usize, of: impl Fn(&[u8], u64) -> u64) -> u64 {
        let (from, to) = (Bound::Included(from), Bound::Unbounded);
        let range = Range { from, to, direction: Direction::Ascending, limit };
        let mut sum = 0u64;
        self.tree.range(&self.owner, range, |key, value| {
            let value = u64::from_le_bytes(value.bytes.try_into().expect("8 bytes"));
            sum = sum.wrapping_add(of(key, value));
        });
        sum
    }

    /// What its invariants say of the tree: bytes of the arena, levels, entries of a leaf.
    pub fn shape(&self) -> String {
        let levels = self.tree.check(&self.owner).expect("no broken invariant");
        let leaves = levels[0];
        let per_leaf = leaves.entries as f64 / leaves.nodes as f64;
        let used = levels.iter().map(|level| level.bytes).sum::<u64>();
        let used = used as f64 / leaves.entries as f64;
        let node_bytes = self.tree.options().node_bytes;
        format!(
            "{} levels, {per_leaf:.1} entries a leaf, nodes of {node_bytes} bytes, {used:.1} used bytes a key",
            levels.len()
        )
    }
}

/// Nanoseconds of this thread for each of `count`: what others do on the machine meanwhile does not
/// count.
pub fn nanos<T>(count: usize, work: impl FnOnce() -> T) -> (f64, T) {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let start = now();
    let done = work();
    ((now() - start) / count as f64, done)
}

pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Bytes of this process that lie in memory.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = text.split(' ').nth(1).expect("two numbers").parse().expect("a number");
    pages * rustix::param::page_size() as u64
}
