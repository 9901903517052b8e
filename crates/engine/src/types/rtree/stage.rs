//! The objects from which one tree is to be built, as they arrive: this file only keeps the stage's
//! books.

use crate::store::{Now, SetAside, Store};
use remora_arena::Journal;
use remora_index::rtree::Build;
use remora_layout::node::ENTRY_BYTES;

/// The objects from which one tree is to be built.
pub(super) struct Stage {
    /// The load's number, chosen by the client.
    pub load: u64,
    /// The objects, and the tree built so far.
    pub build: Build,
    /// Pages that are set aside for it.
    pub aside: SetAside,
    /// When objects came last, in [`Shard::ticked_s`](crate::Shard::ticked_s).
    pub last_s: u64,
    /// Some of the objects are in the log.
    pub is_logged: bool,
}

impl Stage {
    pub fn new(load: u64) -> Self {
        let (build, aside) = (Build::new(), SetAside::default());
        Self { load, build, aside, last_s: 0, is_logged: false }
    }

    /// Whether it is this load's.
    pub fn is_of(&self, load: u64) -> bool {
        self.load == load
    }

    /// Number of its objects.
    pub fn len(&self) -> u64 {
        self.build.objects() as u64
    }

    /// Its client continues it.
    pub fn touch(&mut self, ticked_s: u64) {
        self.last_s = ticked_s;
    }

    /// Bytes that are set aside for it.
    pub fn bytes(&self) -> u64 {
        self.aside.bytes()
    }

    /// Makes room for this many more objects: first in the arena's books, then on the heap.
    pub fn make_room<J: Journal>(&mut self, store: &mut Store<J>, more: usize, now: Now) -> bool {
        let (wanted, room) = (self.build.objects() + more, self.build.room());
        if wanted <= room {
            return true;
        }
        // Grows by halves, so that objects are seldom copied.
        let capacity = wanted.max(room / 2 * 3);
        if !store.set_aside(&mut self.aside, (capacity * ENTRY_BYTES) as u64, now) {
            return false;
        }
        self.build.reserve(capacity);
        true
    }
}
