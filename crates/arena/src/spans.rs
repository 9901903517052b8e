//! Spans: runs of 64 KiB from which small slots of one class are carved.
//!
//! ```text
//!  span   | slot | slot | slot | ... | not yet carved      | tail |
//!           used   free   used
//!                    '--> next free slot of the span, in word 2
//! ```
//! Invariants:
//! * a free slot names the next free slot of its span in its checksum word, so that the list costs
//!   no other memory, and a READ that mixes the link with older bytes does not pass;
//! * partly used spans stand in four lists for each class, by how full they are: the allocator
//!   takes slots from the fullest, and the owner moves records out of the sparsest.

use crate::huge::HugeTable;
use crate::journal::Journal;
use crate::owner::Owner;
use crate::pages::SPAN_PAGES;
use crate::size_class::{BUCKET_CLASS, CLASSES, SMALL_CLASSES, class_bytes};
use remora_layout::limits::{PAGE_BYTES, SLOT_UNIT_BYTES, SPAN_BYTES, SPARSE_LOOKS};
use zerocopy::FromZeros;

/// Slot units of a span.
const SPAN_UNITS: u32 = (SPAN_BYTES / SLOT_UNIT_BYTES) as u32;
/// Partly used spans are listed by quarters of their slots.
const QUARTERS: usize = 4;
/// The word of a free slot that names the next one.
const LINK_WORD: usize = 2;

/// One span. Links name spans by index + 1, slots by number; 0 is none.
#[derive(Clone, Copy, FromZeros)]
#[repr(C)]
pub(crate) struct Span {
    /// Class + 1; 0: the pages are no span.
    class: u8,
    /// The quarter whose list it stands in, + 1.
    list: u8,
    /// 1 while the owner empties it: the allocator takes nothing from it.
    closed: u8,
    reserved: u8,
    used: u16,
    waiting: u16,
    retired: u16,
    carved: u16,
    free_head: u32,
    prev: u32,
    next: u32,
    /// The highest generation given out in it.
    pub top_generation: u32,
}

const _: () = assert!(size_of::<Span>() == 28);
const _: () = assert!(SPAN_BYTES / SLOT_UNIT_BYTES <= u16::MAX as usize);

const CAPACITIES: [u16; CLASSES] = {
    let mut capacities = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        capacities[class] = (SPAN_BYTES / class_bytes(class as u8)) as u16;
        class += 1;
    }
    capacities
};

/// Slots that a span of this class holds.
pub(crate) fn capacity(class: u8) -> u16 {
    CAPACITIES[class as usize]
}

/// Bytes at a span's end that are too few for a slot.
pub(crate) fn tail_bytes(class: u8) -> u64 {
    (SPAN_BYTES % class_bytes(class)) as u64
}

/// The span that holds a slot.
pub(crate) fn span_of(slot: u32) -> u32 {
    slot / SPAN_UNITS
}

impl Span {
    /// The class of its slots, if the pages are a span.
    pub fn class(&self) -> Option<u8> {
        self.class.checked_sub(1)
    }

    /// Slots that are not free: used, waiting for a lease, retired.
    fn occupied(&self) -> u16 {
        self.used + self.waiting + self.retired
    }

    /// Bytes of the slots in use.
    pub fn used_bytes(&self) -> u64 {
        self.class().map_or(0, |class| self.used as u64 * class_bytes(class) as u64)
    }

    /// Whether moving its records can free it: no key leads to a bucket, a retired slot stays, and
    /// the owner is already emptying a closed span.
    pub fn is_movable(&self) -> bool {
        self.class().is_some_and(|class| class != BUCKET_CLASS)
            && self.retired == 0
            && self.closed == 0
    }
}

/// The state of one class.
#[derive(Clone, Default)]
struct Class {
    lists: [u32; QUARTERS],
    /// Free slots in its partly used spans.
    free_slots: u32,
    /// One span without a record, kept so that a class whose use varies around the end of a span
    /// does not take and give pages all the time.
    spare: u32,
}

/// The state of a span after one of its slots became free.
#[derive(PartialEq, Eq)]
pub(crate) enum Freed {
    /// It is still in use, or kept as a spare.
    Kept,
    /// It holds no used slot: its pages can go.
    Empty,
}

/// The table of spans and the lists of the classes.
pub(crate) struct Spans {
    table: HugeTable<Span>,
    classes: Vec<Class>,
}

fn class_index(class: u8) -> usize {
    if class == BUCKET_CLASS { SMALL_CLASSES } else { class as usize }
}

fn link_word(slot: u32) -> usize {
    slot as usize * (SLOT_UNIT_BYTES / 8) + LINK_WORD
}

impl Spans {
    /// No spans yet, in a region of so many pages. Costs no memory at first.
    pub fn new(pages: u32) -> Self {
        let table = HugeTable::zeroed(pages.div_ceil(SPAN_PAGES) as usize);
        Self { table, classes: vec![Class::default(); SMALL_CLASSES + 1] }
    }

    /// The span with this index.
    pub fn get(&self, index: u32) -> &Span {
        &self.table[index as usize]
    }

    /// Makes the pages of a span slots of `class`.
    pub fn open(&mut self, first_page: u32, class: u8) {
        let index = first_page / SPAN_PAGES;
        self.table[index as usize] = Span { class: class + 1, ..Span::new_zeroed() };
        self.classes[class_index(class)].free_slots += capacity(class) as u32;
        self.relist(index);
    }

    /// A free slot of `class`: its number, and whether it was just carved, so that it has no
    /// guardian of its own yet.
    pub fn take<J: Journal>(&mut self, owner: &Owner<J>, class: u8) -> Option<(u32, bool)> {
        let state = &mut self.classes[class_index(class)];
        let listed = state.lists.iter().rev().find(|&&head| head != 0);
        let index = match listed {
            Some(&head) => head - 1,
            None => {
                let spare = std::mem::take(&mut state.spare).checked_sub(1)?;
                state.free_slots += capacity(class) as u32;
                spare
            }
        };
        state.free_slots -= 1;
        let span = &mut self.table[index as usize];
        span.used += 1;
        let taken = match span.free_head {
            0 => {
                let units = (class_bytes(class) / SLOT_UNIT_BYTES) as u32;
                let slot = index * SPAN_UNITS + span.carved as u32 * units;
                span.carved += 1;
                (slot, true)
            }
            slot => {
                span.free_head = owner.word(link_word(slot)) as u32;
                (slot, false)
            }
        };
        self.relist(index);
        Some(taken)
    }

    /// Records in a span a generation given out in it.
    pub fn given_out(&mut self, slot: u32, generation: u32) {
        let span = &mut self.table[span_of(slot) as usize];
        span.top_generation = span.top_generation.max(generation);
    }

    /// A slot in use now waits for a lease.
    pub fn wait(&mut self, slot: u32) {
        let span = &mut self.table[span_of(slot) as usize];
        span.used -= 1;
        span.waiting += 1;
    }

    /// A slot in use is never used again.
    pub fn retire(&mut self, slot: u32) {
        let span = &mut self.table[span_of(slot) as usize];
        span.used -= 1;
        span.retired += 1;
    }

    /// A slot in use, or one that waits, is free.
    pub fn free<J: Journal>(&mut self, owner: &mut Owner<J>, slot: u32, waited: bool) -> Freed {
        let index = span_of(slot);
        let span = &mut self.table[index as usize];
        let class = span.class().expect("a small slot lies in a span");
        if waited {
            span.waiting -= 1;
        } else {
            span.used -= 1;
        }
        owner.store(link_word(slot), span.free_head as u64);
        span.free_head = slot;
        self.classes[class_index(class)].free_slots += (span.closed == 0) as u32;
        self.settle(index)
    }

    /// Puts a span into the right list after a slot became free.
    fn settle(&mut self, index: u32) -> Freed {
        self.relist(index);
        let span = &self.table[index as usize];
        if span.occupied() > 0 || span.closed != 0 {
            return Freed::Kept;
        }
        let class = span.class().expect("in use");
        let state = &mut self.classes[class_index(class)];
        state.free_slots -= capacity(class) as u32;
        if state.spare == 0 {
            state.spare = index + 1;
            return Freed::Kept;
        }
        Freed::Empty
    }

    /// Ends a span that is [`Freed::Empty`] or a spare; its pages then belong to no span.
    pub fn close_for_good(&mut self, index: u32) -> Span {
        let span = self.table[index as usize];
        assert!(span.occupied() == 0 && span.list == 0, "an empty span in no list");
        self.table[index as usize] = Span::new_zeroed();
        span
    }

    /// Takes the spares of all classes out; the caller closes them for good.
    pub fn take_spares(&mut self) -> impl Iterator<Item = u32> + use<> {
        let spares: Vec<u32> = self
            .classes
            .iter_mut()
            .filter_map(|state| std::mem::take(&mut state.spare).checked_sub(1))
            .collect();
        spares.into_iter()
    }

    /// Keeps a span from giving slots, while the owner moves its records away.
    pub fn close(&mut self, index: u32) {
        let span = &mut self.table[index as usize];
        let Some(class) = span.class() else { return };
        span.closed = 1;
        let free = capacity(class) - span.occupied();
        self.classes[class_index(class)].free_slots -= free as u32;
        self.relist(index);
    }

    /// Ends [`Spans::close`].
    pub fn reopen(&mut self, index: u32) -> Freed {
        let span = &mut self.table[index as usize];
        let Some(class) = span.class() else { return Freed::Kept };
        span.closed = 0;
        let free = capacity(class) - span.occupied();
        self.classes[class_index(class)].free_slots += free as u32;
        self.settle(index)
    }

    /// Whether other spans have room for its records: those of its class and
    /// of the classes up to twice as large.
    pub fn fits_elsewhere(&self, index: u32) -> bool {
        let span = &self.table[index as usize];
        let Some(class) = span.class().filter(|&class| class != BUCKET_CLASS) else { return false };
        let own = (capacity(class) - span.occupied()) as u32;
        let twice = 2 * class_bytes(class);
        let free: u32 = (class as usize..SMALL_CLASSES)
            .take_while(|&other| class_bytes(other as u8) <= twice)
            .map(|other| self.classes[other].free_slots)
            .sum();
        free.saturating_sub(own) >= span.used as u32
    }

    /// The span with the lowest share of slots in use that can be emptied into
    /// other spans. Looks at a few of each class only.
    pub fn sparsest(&self) -> Option<u32> {
        let mut best: Option<(u64, u32)> = None;
        for state in &self.classes[..SMALL_CLASSES] {
            let Some(&head) = state.lists.iter().find(|&&head| head != 0) else { continue };
            let mut next = head;
            for _ in 0..SPARSE_LOOKS {
                let Some(index) = next.checked_sub(1) else { break };
                let span = &self.table[index as usize];
                let cost = (span.used_bytes(), index);
                if span.is_movable()
                    && self.fits_elsewhere(index)
                    && best.is_none_or(|best| cost < best)
                {
                    best = Some(cost);
                }
                next = span.next;
            }
        }
        best.map(|(_, index)| index)
    }

    /// The slots of a span that were carved, whatever they hold.
    pub fn carved(&self, index: u32) -> impl Iterator<Item = u32> + use<> {
        let span = self.table[index as usize];
        let units = span.class().map_or(0, |class| (class_bytes(class) / SLOT_UNIT_BYTES) as u32);
        (0..span.carved as u32).map(move |at| index * SPAN_UNITS + at * units)
    }

    /// Moves a span to the list for its fill.
    fn relist(&mut self, index: u32) {
        let span = &self.table[index as usize];
        let class = span.class().expect("in use");
        let (occupied, capacity) = (span.occupied() as usize, capacity(class) as usize);
        let full_or_spare = occupied == capacity || (occupied == 0 && span.carved > 0);
        let wanted = if full_or_spare || span.closed != 0 {
            0
        } else {
            let quarter = |at: usize| (occupied * QUARTERS >= at * capacity) as u8;
            1 + quarter(1) + quarter(2) + quarter(3)
        };
        if span.list == wanted {
            return;
        }
        let (list, prev, next) = (span.list, span.prev, span.next);
        let lists = &mut self.classes[class_index(class)].lists;
        if list != 0 {
            match prev {
                0 => lists[list as usize - 1] = next,
                prev => self.table[prev as usize - 1].next = next,
            }
            if next != 0 {
                self.table[next as usize - 1].prev = prev;
            }
        }
        let head = match wanted {
            0 => 0,
            wanted => std::mem::replace(&mut lists[wanted as usize - 1], index + 1),
        };
        if head != 0 {
            self.table[head as usize - 1].prev = index + 1;
        }
        let span = &mut self.table[index as usize];
        (span.list, span.prev, span.next) = (wanted, 0, head);
    }
}

const _: () = assert!(PAGE_BYTES * SPAN_PAGES as usize == SPAN_BYTES);
