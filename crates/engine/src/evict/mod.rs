//! Chooses the keys to evict when memory is full: S3-FIFO (Yang et al., SOSP 2023), a pure state
//! machine without I/O, clock or randomness.
//!
//! ```text
//!  new ------> | small FIFO, a tenth | --- never touched ---> out, remembered
//!                      | touched                                   |
//!                      v                                           |
//!  back soon ->| main FIFO, the rest | --- not touched since --> out
//!      ^               ^__ touched: again, one mark less           |
//!      '---------------- ghost: fingerprints of what went <--------'
//! ```
//! Invariant: every live record that the policy knows is in exactly one queue, once. A removed
//! record may still be there; the policy drops it when it meets it, because its generation is over.
//!
//! The policy has partial knowledge: clients read one-sidedly, so one touch that the shard sees
//! stands for many that it does not see. Hence one touch is enough to move from small to main,
//! where the paper requires two.
//!
//! The queues hold the records of keys, of all sizes, and the small queue's tenth is one tenth of
//! their bytes. An object of parts is in the queue as its root record, with the bytes of the whole
//! object, which change ([`Policy::weighs`]). The shard makes room for one size from freed records
//! of other sizes (`store/evict.rs`).

mod fifo;
mod ghost;
mod id;
mod marks;
#[cfg(test)]
mod tests;

use fifo::Fifo;
use ghost::Ghost;
pub use id::Id;
use marks::{Mark, Marks};
use remora_layout::limits::VICTIM_LOOKS;

/// The small queue holds one byte in this many.
const SMALL_SHARE: u64 = 10;
/// Removals between two looks for entries of removed records.
const TIDY_EVERY: u32 = 64;
/// Entries of removed records that are always put up with.
const STALE_SLACK: u64 = 256;

/// The behaviour of a shard when its memory is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Eviction {
    /// The shard refuses commands that need memory.
    #[default]
    None,
    /// It removes records, chosen by S3-FIFO.
    S3Fifo,
}

impl Eviction {
    /// Its name as a setting.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::S3Fifo => "s3-fifo",
        }
    }
}

/// The caller's verdict on a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may go.
    Take {
        /// Its weight.
        bytes: usize,
    },
    /// It must stay for now; it counts as touched.
    Spare {
        /// Its weight.
        bytes: usize,
    },
    /// It was removed before.
    Gone,
}

/// A record to evict; the policy has forgotten it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Victim {
    /// The record.
    pub id: Id,
    /// Whether its fingerprint should be remembered ([`Policy::remember`]).
    pub came_from_small: bool,
}

/// One queue, and the live part of it.
#[derive(Default)]
struct Queue {
    entries: Fifo,
    /// Live records in it; the rest of the entries are stale.
    live: u64,
    /// Their weight.
    bytes: u64,
}

impl Queue {
    /// Whether there are so many stale entries that some should be dropped.
    fn is_untidy(&self) -> bool {
        self.entries.len() as u64 > 2 * self.live + STALE_SLACK
    }

    fn drop_stale(&mut self, marks: &Marks, is_current: impl Fn(Id) -> bool) {
        if self.is_untidy() {
            self.entries.sweep_block(|id| marks.get(id.slot).tracked && is_current(id));
        }
    }
}

/// S3-FIFO over the records of one shard. All `bytes` are a record's weight: the bytes of its slot,
/// and for an object of parts the bytes of the whole object.
pub struct Policy {
    marks: Marks,
    small: Queue,
    main: Queue,
    ghost: Ghost,
    removals: u32,
}

impl Policy {
    /// A policy for slot numbers below `slots`.
    pub fn new(slots: usize) -> Self {
        Self {
            marks: Marks::new(slots),
            small: Queue::default(),
            main: Queue::default(),
            ghost: Ghost::default(),
            removals: 0,
        }
    }

    /// A record of a key that was not there. `fingerprint` is the key's hash.
    pub fn inserted(&mut self, id: Id, bytes: usize, fingerprint: u64) {
        let small = !self.ghost.forget(fingerprint);
        self.put(id, bytes, Mark { tracked: true, small, touches: 0 });
    }

    /// A record that replaces an older one of its key: it keeps the older one's marks, and the
    /// write counts as a touch.
    pub fn replaced(&mut self, old_slot: u32, old_bytes: usize, id: Id, bytes: usize) {
        let mark = self.marks.get(old_slot);
        self.removed(old_slot, old_bytes);
        self.put(id, bytes, Mark { tracked: true, ..mark }.touched());
    }

    /// The same record in another slot: it keeps its marks, and moves to its queue's end.
    pub fn moved(&mut self, old_slot: u32, old_bytes: usize, id: Id, bytes: usize) {
        let mark = self.marks.get(old_slot);
        if mark.tracked {
            self.removed(old_slot, old_bytes);
            self.put(id, bytes, mark);
        }
    }

    /// The record in this slot was asked for.
    #[inline]
    pub fn touched(&mut self, slot: u32) {
        let mark = self.marks.get(slot);
        if mark.tracked {
            self.marks.set(slot, mark.touched());
        }
    }

    /// Sets the weight of the record in this slot from now on. Does nothing if the record is not
    /// tracked.
    pub fn weighs(&mut self, slot: u32, before: usize, now: usize) {
        let mark = self.marks.get(slot);
        if mark.tracked {
            let queue = if mark.small { &mut self.small } else { &mut self.main };
            queue.bytes = queue.bytes - before as u64 + now as u64;
        }
    }

    /// The record in this slot is no more. Nothing happens if it is not known.
    pub fn removed(&mut self, slot: u32, bytes: usize) {
        let mark = self.marks.get(slot);
        if mark.tracked {
            self.removals = self.removals.wrapping_add(1);
            self.uncount(mark.small, bytes);
            self.marks.set(slot, Mark::default());
        }
    }

    /// Every record is gone, and the ghost is empty.
    pub fn clear(&mut self) {
        *self = Self::new(self.marks.slots());
    }

    /// Live records that it knows.
    pub fn records(&self) -> u64 {
        self.small.live + self.main.live
    }

    /// The weight of all records.
    pub fn bytes(&self) -> u64 {
        self.small.bytes + self.main.bytes
    }

    /// Whether it knows a record that starts exactly here.
    pub fn tracks(&self, slot: u32) -> bool {
        self.marks.get(slot).tracked
    }

    /// Whether the record in this slot is in the small queue.
    pub fn is_small(&self, slot: u32) -> bool {
        self.marks.get(slot).small
    }

    /// Touches of the record in this slot since they were last counted down.
    pub fn touches(&self, slot: u32) -> u8 {
        self.marks.get(slot).touches
    }

    /// Chooses a record to evict; `None` if there is none. The policy asks `judge` about each
    /// candidate; a record starts at the candidate's slot, but it may be one of a later generation.
    pub fn victim(&mut self, judge: impl Fn(Id) -> Verdict) -> Option<Victim> {
        let mut looks = 0;
        // Bounded: a turn drops an entry for good, or is one of the looks.
        while looks < 2 * VICTIM_LOOKS && self.records() > 0 {
            let (small, main) = (self.small.bytes, self.main.bytes);
            let from_small = small > 0 && (main == 0 || small * SMALL_SHARE >= small + main);
            let queue = if from_small { &mut self.small } else { &mut self.main };
            let id = queue.entries.pop().expect("live records stand in their queue");
            let mark = self.marks.get(id.slot);
            let verdict = if mark.tracked { judge(id) } else { Verdict::Gone };
            let (bytes, may_go) = match verdict {
                Verdict::Gone => continue,
                Verdict::Take { bytes } => (bytes, true),
                Verdict::Spare { bytes } => (bytes, false),
            };
            looks += 1;
            assert!(mark.small == from_small, "an entry and its mark agree");
            self.uncount(from_small, bytes);
            let is_earned = mark.touches > 0 && looks <= VICTIM_LOOKS;
            if may_go && !is_earned {
                self.marks.set(id.slot, Mark::default());
                return Some(Victim { id, came_from_small: from_small });
            }
            // Into main afresh, or once more through it with one touch less.
            let touches = if from_small { 0 } else { mark.touches.saturating_sub(1) };
            self.put(id, bytes, Mark { tracked: true, small: false, touches });
        }
        None
    }

    /// Remembers the fingerprint of a victim: if its key comes back soon, it goes to the main queue
    /// at once.
    pub fn remember(&mut self, fingerprint: u64) {
        // As many as there are records, not as there are in main: if few keys are touched twice,
        // only returning keys fill main.
        self.ghost.remember(fingerprint, self.records() as usize);
    }

    /// Occasionally drops entries of removed records, so that there are never many more of them
    /// than live ones. The caller calls it after removals.
    pub fn tidy(&mut self, is_current: impl Fn(Id) -> bool) {
        if self.removals.is_multiple_of(TIDY_EVERY) {
            self.small.drop_stale(&self.marks, &is_current);
            self.main.drop_stale(&self.marks, &is_current);
        }
    }

    /// Bytes that it takes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let entries = self.small.entries.heap_bytes() + self.main.entries.heap_bytes();
        entries + self.marks.heap_bytes() + self.ghost.heap_bytes()
    }

    fn put(&mut self, id: Id, bytes: usize, mark: Mark) {
        self.marks.set(id.slot, mark);
        let queue = if mark.small { &mut self.small } else { &mut self.main };
        queue.live += 1;
        queue.bytes += bytes as u64;
        queue.entries.push(id);
    }

    fn uncount(&mut self, small: bool, bytes: usize) {
        let queue = if small { &mut self.small } else { &mut self.main };
        queue.live -= 1;
        queue.bytes -= bytes as u64;
    }
}
