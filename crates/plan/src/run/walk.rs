//! A breadth-first walk: Follow and Each, level after level.

use super::batch::Batch;
use super::each::Each;
use super::row::{Item, Meeting, Remembered, Row};
use super::rows::{Nested, Next, Output, Taken, skip};
use super::stage::{Advance, Stage};
use super::work::{Act, ContentWork, Work};
use crate::outcome::{Explain, Limit, Skipped};
use crate::plan::Bytes;
use crate::want::Fields;
use std::collections::VecDeque;

/// A WALK. It walks from one row at a time.
#[derive(Debug)]
pub(super) struct Walk {
    depth: u32,
    once: bool,
    /// Keys that one walk remembers at most, and the seed of their hash.
    memory: (u64, u64),
    /// From an item to the list of its next ones.
    follow: Stage,
    /// From the list to its elements.
    each: Stage,
    walking: Option<Walking>,
}

/// The walk from the first waiting row.
#[derive(Debug)]
struct Walking {
    /// The row from which it goes.
    row: Row,
    /// The level of the items that are found now, from 1.
    level: u32,
    /// Items of the level before, from which the walk has not gone on.
    here: VecDeque<Item>,
    /// Items of this level, from which it will.
    next: VecDeque<Item>,
    remembered: Remembered,
    is_full: bool,
}

/// Takes the items that a walk finds.
struct Found<'a> {
    walking: &'a mut Walking,
    is_last_level: bool,
    once: bool,
    out: &'a mut dyn Output,
}

impl Walk {
    /// A walk along a field.
    pub fn new(via: &Bytes, (depth, once, by_key): (u32, bool, bool), memory: (u64, u64)) -> Self {
        let act = Act::Follow { field: via.clone(), by_key };
        let fields = Fields::Some([via.clone()].into());
        let follow = Work::Content(ContentWork { act, fields });
        let each = Work::Each(Each::new(by_key, (0, -1)));
        let (follow, each) = (Stage::new(follow, []), Stage::new(each, []));
        Self { depth, once, memory, follow, each, walking: None }
    }

    fn begin(&self, row: &Row) -> Walking {
        let mut remembered = Remembered::new(self.memory.0, self.memory.1);
        remembered.insert(row.item.place.key.clone());
        Walking {
            row: row.clone(),
            level: 1,
            here: [row.item.clone()].into(),
            next: VecDeque::new(),
            remembered,
            is_full: false,
        }
    }

    /// Goes on within a level as far as the answers lead. Whether it did anything.
    fn advance(&mut self, walking: &mut Walking, out: &mut dyn Output) -> bool {
        let mut moved = false;
        loop {
            let (once, is_last_level) = (self.once, walking.level == self.depth);
            let mut found = Found { walking, is_last_level, once, out };
            let mut step = self.each.advance(&mut found) == Advance::Moved;
            step |= self.follow.advance(&mut self.each) == Advance::Moved;
            while self.follow.has_room() {
                let Some(item) = walking.here.pop_front() else { break };
                self.follow.push(Next::Row(Row::at(item)));
                step = true;
            }
            moved |= step;
            if !step || walking.is_full {
                return moved;
            }
        }
    }
}

impl Nested for Walk {
    fn take(&mut self, row: Row, out: &mut dyn Output) -> Taken {
        let mut walking = self.walking.take().unwrap_or_else(|| self.begin(&row));
        let mut moved = false;
        loop {
            moved |= self.advance(&mut walking, out);
            if walking.is_full {
                return Taken::Stop;
            }
            if !(walking.here.is_empty() && self.follow.is_empty() && self.each.is_empty()) {
                self.walking = Some(walking);
                return Taken::Back { row, moved };
            }
            if walking.next.is_empty() {
                return Taken::Done;
            }
            walking.level += 1;
            walking.here = std::mem::take(&mut walking.next);
        }
    }

    fn collect(&mut self, batch: &mut Batch, most: usize) {
        self.each.collect(batch, most);
        if most > 1 || batch.wants().is_empty() {
            self.follow.collect(batch, most);
        }
    }

    fn accept(&mut self, batch: &mut Batch) {
        self.each.accept(batch);
        self.follow.accept(batch);
    }

    fn held(&self) -> (u64, usize) {
        let (follow, each) = (self.follow.held(), self.each.held());
        (follow.0 + each.0, follow.1 + each.1)
    }
}

impl Output for Found<'_> {
    fn has_room(&self) -> bool {
        self.out.has_room() && !self.walking.is_full
    }

    fn charge(&mut self, charge: &Explain) {
        self.out.charge(charge);
    }

    fn push(&mut self, next: Next) {
        let Next::Row(Row { item, .. }) = next else { return };
        let key = &item.place.key;
        let goes_on = !self.is_last_level;
        let meeting = match self.once {
            true => self.walking.remembered.meet(key),
            false if goes_on && !self.walking.remembered.count(key) => Meeting::Full,
            false => Meeting::New,
        };
        match meeting {
            Meeting::Before => {
                return skip(self.out, Skipped { met_before: 1, ..Skipped::default() });
            }
            Meeting::Full => {
                self.walking.is_full = true;
                return self.out.push(Next::End(Limit::Remembered));
            }
            Meeting::New => {}
        }
        if goes_on {
            self.walking.next.push_back(item.clone());
        }
        let level = self.walking.level;
        let mut row = self.walking.row.moved(item);
        row.level = level;
        self.out.push(Next::Row(row));
    }
}
