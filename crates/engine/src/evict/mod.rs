//! Which record goes when memory is full: S3-FIFO (Yang et al., SOSP 2023),
//! a pure state machine without I/O, clock or chance.
//!
//! ```text
//!  new ------> | small FIFO, a tenth | --- never touched ---> out, remembered
//!                      | touched                                   |
//!                      v                                           |
//!  back soon ->| main FIFO, the rest | --- not touched since --> out
//!      ^               ^__ touched: again, one mark less           |
//!      '---------------- ghost: fingerprints of what went <--------'
//! ```
//! What it keeps true: every live record that it was told of stands in one
//! queue of its slot's class exactly once; what was removed may stand there
//! still, and is dropped when it is met, as its generation is over.
//!
//! It lives with partial knowledge: clients read one-sidedly, so that one
//! touch that is seen stands for many that are not. Hence one touch is enough
//! to move from small to main, where the paper asks for two.
//!
//! Each size class has queues of its own, because slots keep their class: a
//! victim always makes room for the record that needs it.

mod fifo;
mod ghost;
mod marks;
#[cfg(test)]
mod tests;

use fifo::Fifo;
use ghost::Ghost;
use marks::{Mark, Marks};
use remora_layout::limits::VICTIM_LOOKS;

/// The small queue holds one record in this many.
const SMALL_SHARE: u64 = 10;
/// Removals between two looks for entries of removed records.
const TIDY_EVERY: u32 = 64;
/// Entries of removed records that are always put up with.
const STALE_SLACK: u64 = 256;

/// What a shard does when its memory is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Eviction {
    /// It refuses what needs memory.
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

/// A record: a slot under one of its generations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Id {
    /// Number of the slot; slots are 32 bytes or longer, so that two numbers
    /// differ by two or more.
    pub slot: u32,
    /// Generation of the slot.
    pub generation: u32,
}

/// What the caller says of a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may go.
    Take,
    /// It has to stay for now; it counts as touched.
    Spare,
    /// It was removed before.
    Gone,
}

/// A record that has to go; the policy has forgotten it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Victim {
    /// The record.
    pub id: Id,
    /// Whether its fingerprint should be remembered ([`Policy::remember`]).
    pub came_from_small: bool,
}

#[derive(Default)]
struct Queues {
    small: Fifo,
    main: Fifo,
    /// Live records in each; the rest of the entries are stale.
    small_live: u64,
    main_live: u64,
}

/// S3-FIFO over the records of one shard.
pub struct Policy {
    marks: Marks,
    classes: Vec<Queues>,
    ghost: Ghost,
    removals: u32,
}

impl Policy {
    /// A policy for slot numbers below `slots`, in `classes` size classes.
    pub fn new(slots: usize, classes: usize) -> Self {
        Self {
            marks: Marks::new(slots),
            classes: (0..classes).map(|_| Queues::default()).collect(),
            ghost: Ghost::default(),
            removals: 0,
        }
    }

    /// A record of a key that was not there. `fingerprint` is the key's hash.
    pub fn inserted(&mut self, id: Id, class: u8, fingerprint: u64) {
        let small = !self.ghost.forget(fingerprint);
        self.put(id, class, Mark { tracked: true, small, touches: 0 });
    }

    /// A record in the place of an older one of its key: it keeps what the
    /// older one has earned, and the write counts as a touch.
    pub fn replaced(&mut self, old_slot: u32, old_class: u8, id: Id, class: u8) {
        let mark = self.marks.get(old_slot);
        self.removed(old_slot, old_class);
        self.put(id, class, Mark { tracked: true, ..mark }.touched());
    }

    /// The record in this slot was asked for.
    #[inline]
    pub fn touched(&mut self, slot: u32) {
        let mark = self.marks.get(slot);
        if mark.tracked {
            self.marks.set(slot, mark.touched());
        }
    }

    /// The record in this slot is no more. Nothing happens if it is not known.
    pub fn removed(&mut self, slot: u32, class: u8) {
        let mark = self.marks.get(slot);
        if mark.tracked {
            self.removals = self.removals.wrapping_add(1);
            self.count(class, mark.small, false);
            self.marks.set(slot, Mark::default());
        }
    }

    /// Every record is gone, and so is what was remembered.
    pub fn clear(&mut self) {
        *self = Self::new(self.marks.slots(), self.classes.len());
    }

    /// Whether it knows a live record of this class.
    pub fn has(&self, class: u8) -> bool {
        let queues = &self.classes[class as usize];
        queues.small_live + queues.main_live > 0
    }

    /// Touches of the record in this slot since they were last counted down.
    pub fn touches(&self, slot: u32) -> u8 {
        self.marks.get(slot).touches
    }

    /// Chooses a record of this class to go; `None` if there is none that may.
    /// `judge` is asked about each candidate.
    pub fn victim(&mut self, class: u8, judge: impl Fn(Id) -> Verdict) -> Option<Victim> {
        let mut looks = 0;
        // Bounded: a turn drops an entry for good, or is one of the looks.
        while looks < 2 * VICTIM_LOOKS && self.has(class) {
            let queues = &mut self.classes[class as usize];
            let (small, main) = (queues.small_live, queues.main_live);
            let from_small = small > 0 && (main == 0 || small * SMALL_SHARE >= small + main);
            let queue = if from_small { &mut queues.small } else { &mut queues.main };
            let id = queue.pop().expect("live records stand in their queue");
            let verdict = judge(id);
            if verdict == Verdict::Gone {
                continue;
            }
            looks += 1;
            let mark = self.marks.get(id.slot);
            assert!(mark.tracked && mark.small == from_small, "an entry and its mark agree");
            self.count(class, from_small, false);
            let is_earned = mark.touches > 0 && looks <= VICTIM_LOOKS;
            if verdict == Verdict::Take && !is_earned {
                self.marks.set(id.slot, Mark::default());
                return Some(Victim { id, came_from_small: from_small });
            }
            // Into main afresh, or once more through it with one touch less.
            let touches = if from_small { 0 } else { mark.touches.saturating_sub(1) };
            self.put(id, class, Mark { tracked: true, small: false, touches });
        }
        None
    }

    /// Remembers the fingerprint of a victim: should its key come back soon,
    /// it goes to the main queue at once.
    pub fn remember(&mut self, fingerprint: u64) {
        // As many as there are records, not as there are in main: where little
        // is seen, coming back is what fills main at all.
        let live = |queues: &Queues| queues.small_live + queues.main_live;
        let keys: u64 = self.classes.iter().map(live).sum();
        self.ghost.remember(fingerprint, keys as usize);
    }

    /// Now and then drops some entries of removed records, so that there are
    /// never many more of them than live ones. To be called after removals.
    pub fn tidy(&mut self, class: u8, is_current: impl Fn(Id) -> bool) {
        if !self.removals.is_multiple_of(TIDY_EVERY) {
            return;
        }
        let queues = &mut self.classes[class as usize];
        for (queue, live) in
            [(&mut queues.small, queues.small_live), (&mut queues.main, queues.main_live)]
        {
            if queue.len() as u64 > 2 * live + STALE_SLACK {
                queue.sweep_block(&is_current);
            }
        }
    }

    /// Bytes that it takes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let queues = |queues: &Queues| queues.small.heap_bytes() + queues.main.heap_bytes();
        let all: usize = self.classes.iter().map(queues).sum();
        all + self.marks.heap_bytes() + self.ghost.heap_bytes()
    }

    fn put(&mut self, id: Id, class: u8, mark: Mark) {
        self.marks.set(id.slot, mark);
        self.count(class, mark.small, true);
        let queues = &mut self.classes[class as usize];
        if mark.small { queues.small.push(id) } else { queues.main.push(id) }
    }

    fn count(&mut self, class: u8, small: bool, is_more: bool) {
        let queues = &mut self.classes[class as usize];
        let live = if small { &mut queues.small_live } else { &mut queues.main_live };
        if is_more { *live += 1 } else { *live -= 1 }
    }
}
