//! Rectangles, windows, and a tree with an arena of its own.

use remora_arena::{NoJournal, Owner, Slots};
use remora_index::rtree::{Arena, Query, Tree, TreeOptions, walk_locally};
use remora_layout::limits::PAGE_BYTES;
use remora_layout::node::{Home, NodeRef};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::{TREE_HEADER_BYTES, TreeKind};
use remora_testing::Random;
use rustix::time::{ClockId, clock_gettime};

/// Objects that one operation adds.
pub const BATCH: usize = 16;

const HOME: Home = Home { secret: 1, region: 0 };

/// Edges uniform to `edge`, anywhere in the unit square.
pub fn rect(random: &mut Random, edge: f64) -> Rect {
    let (x, y) = (random.unit(), random.unit());
    let (width, height) = (random.unit() * edge, random.unit() * edge);
    Rect::new(x, x + width, y, y + height).expect("finite")
}

/// Both edges t, of density t^-0.99 from 1e-5 to 1e-2 (Catfish W2).
pub fn power_law(random: &mut Random) -> Rect {
    let (low, high) = (1e-5f64.powf(0.01), 1e-2f64.powf(0.01));
    let edge = random.between(low, high).powf(100.0);
    let (x, y) = (random.unit(), random.unit());
    Rect::new(x, x + edge, y, y + edge).expect("finite")
}

pub fn objects(count: usize) -> Vec<(u64, Rect)> {
    let mut random = Random::new(1);
    (0..count as u64).map(|id| (id, rect(&mut random, 1e-4))).collect()
}

/// What a search found: their number, and the sum of their ids.
pub type Found = (u64, u64);

/// A tree of ours, by itself.
pub struct Ours {
    pub owner: Owner<NoJournal>,
    slots: Slots,
    pub tree: Tree,
}

impl Ours {
    pub fn new(kind: TreeKind, capacity: usize, objects: usize) -> Self {
        let bytes = (objects * 180 + (4 << 20)).next_multiple_of(PAGE_BYTES);
        let mut owner = Owner::heap(bytes, NoJournal);
        let mut slots = Slots::new(PAGE_BYTES, bytes);
        let mut arena = Arena { owner: &mut owner, slots: &mut slots, changed_at: 0 };
        let bounds = Rect::new(0.0, 1.0, 0.0, 1.0).expect("a rectangle");
        let options = TreeOptions { kind, capacity, bounds };
        let slot = arena.slots.allocate(arena.owner, TREE_HEADER_BYTES, 0).expect("memory");
        let at = NodeRef { slot: slot.slot, generation: slot.generation };
        let tree = Tree::create(&mut arena, HOME, at, options).expect("memory");
        Self { owner, slots, tree }
    }

    pub fn insert(&mut self, objects: &[(u64, Rect)]) {
        let mut arena = Arena { owner: &mut self.owner, slots: &mut self.slots, changed_at: 1 };
        for &(id, rect) in objects {
            self.tree.put(&mut arena, id, rect).expect("memory");
        }
    }

    /// The same, by batches of so many.
    pub fn insert_by(&mut self, objects: &[(u64, Rect)], batch: usize) {
        let mut arena = Arena { owner: &mut self.owner, slots: &mut self.slots, changed_at: 1 };
        for batch in objects.chunks(batch) {
            self.tree.put_all(&mut arena, batch).expect("memory");
        }
    }

    pub fn load(&mut self, objects: Vec<(u64, Rect)>) {
        let mut arena = Arena { owner: &mut self.owner, slots: &mut self.slots, changed_at: 1 };
        self.tree.load(&mut arena, objects).expect("memory");
    }

    /// The owner's way; nodes too.
    pub fn search(&self, windows: &[Rect]) -> (Found, u64) {
        let (mut found, mut nodes) = ((0, 0), 0);
        for window in windows {
            nodes += self.tree.search(&self.owner, window, Predicate::Intersects, |object| {
                found.0 += 1;
                found.1 += object.word;
            });
        }
        (found, nodes)
    }

    /// The way of any other process that maps the memory.
    pub fn walk(&self, windows: &[Rect]) -> Found {
        let (mut found, mut scratch) = ((0, 0), Vec::new());
        for &window in windows {
            let query = Query::Window { window, predicate: Predicate::Intersects };
            let (words, at) = (self.owner.view(), self.tree.at());
            let walk = walk_locally(words, HOME, at, query, &mut scratch).expect("at rest");
            found.0 += walk.results().len() as u64;
            found.1 += walk.results().iter().map(|object| object.word).sum::<u64>();
        }
        found
    }
}

/// Nanoseconds of this thread for each of `count`: what others do on the
/// machine meanwhile does not count.
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
