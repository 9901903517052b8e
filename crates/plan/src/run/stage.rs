//! A step of a run with the rows that wait for it.
//!
//! Invariants: a stage takes its rows in order, and hands on what comes of each before it takes the
//! next. What a row has cost travels in front of it. So the sum at the end of the last stage is what a
//! depth-first reading of the plan has visited up to this row, whatever was fetched ahead.

use super::batch::Batch;
use super::row::{Content, Row};
use super::rows::{Fetch, Next, Output, Taken};
use super::work::Work;
use crate::limits::ROWS_AHEAD;
use crate::outcome::Explain;
use crate::want::Given;
use std::collections::VecDeque;

/// A row that waits.
#[derive(Debug)]
struct Waiting {
    /// What was done before it.
    charge: Explain,
    next: Next,
    fetch: Fetch,
}

/// What a stage did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Advance {
    /// Nothing: it has no row, or waits for an answer, or for room.
    Idle,
    /// Something; there may be more.
    Moved,
    /// It needs no more rows.
    Stop,
}

/// A step and its waiting rows.
#[derive(Debug)]
pub(super) struct Stage {
    work: Work,
    waiting: VecDeque<Waiting>,
    /// What was done after the last waiting row.
    tail: Explain,
}

impl Stage {
    /// A step for which these rows wait.
    pub fn new(work: Work, rows: impl IntoIterator<Item = Row>) -> Self {
        let mut stage = Self { work, waiting: VecDeque::new(), tail: Explain::default() };
        rows.into_iter().for_each(|row| stage.push(Next::Row(row)));
        stage
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.tail == Explain::default()
    }

    /// Drops what it holds.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.tail = Explain::default();
    }

    /// Visits that its output has not counted yet, and bytes of its waiting rows.
    pub fn held(&self) -> (u64, usize) {
        let rows = self.waiting.iter().map(|waiting| match &waiting.next {
            Next::Row(row) => (waiting.charge.visits(), row.bytes()),
            Next::End(_) | Next::Nothing => (waiting.charge.visits(), 0),
        });
        let inner = (self.tail.visits(), 0);
        let inner = rows.fold(inner, |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let within = self.work.held();
        (inner.0 + within.0, inner.1 + within.1)
    }

    /// Takes the first waiting row as far as it goes.
    pub fn advance(&mut self, out: &mut dyn Output) -> Advance {
        if !out.has_room() {
            return Advance::Idle;
        }
        let Some(mut first) = self.waiting.pop_front() else { return self.pass_tail(out) };
        let charge = std::mem::take(&mut first.charge);
        out.charge(&charge);
        let row = match first.next {
            Next::Row(row) => row,
            Next::Nothing => return Advance::Moved,
            end @ Next::End(_) => {
                out.push(end);
                return Advance::Stop;
            }
        };
        match self.work.take(row, &mut first.fetch, out) {
            Taken::Done => Advance::Moved,
            Taken::Stop => Advance::Stop,
            Taken::Back { row, moved } => {
                first.next = Next::Row(row);
                self.waiting.push_front(first);
                let moved = moved || charge != Explain::default();
                if moved { Advance::Moved } else { Advance::Idle }
            }
        }
    }

    fn pass_tail(&mut self, out: &mut dyn Output) -> Advance {
        if self.is_empty() {
            return Advance::Idle;
        }
        out.charge(&std::mem::take(&mut self.tail));
        Advance::Moved
    }

    /// Rows that it still takes, at most [`ROWS_AHEAD`].
    pub fn takes(&self) -> usize {
        match self.work {
            Work::Take(left) => left.min(ROWS_AHEAD as u64) as usize,
            _ => ROWS_AHEAD,
        }
    }

    /// Adds the wants of its first waiting rows to a batch.
    pub fn collect(&mut self, batch: &mut Batch, most: usize) {
        if let Work::Walk(walk) = &mut self.work {
            return walk.collect(batch, most);
        }
        for (at, waiting) in self.waiting.iter_mut().take(most).enumerate() {
            if batch.is_full() {
                break;
            }
            let (Next::Row(row), Fetch::Idle) = (&waiting.next, &waiting.fetch) else { continue };
            if let Some(want) = self.work.want(row, at == 0) {
                waiting.fetch = Fetch::Wanted(batch.add(want));
            }
        }
    }

    /// Takes the answers to its wants.
    pub fn accept(&mut self, batch: &mut Batch) {
        if let Work::Walk(walk) = &mut self.work {
            return walk.accept(batch);
        }
        let is_content = matches!(self.work, Work::Content(_));
        for waiting in &mut self.waiting {
            let Fetch::Wanted(number) = waiting.fetch else { continue };
            let given = batch.answer(number);
            if is_content {
                waiting.fetch = Fetch::Idle;
                waiting.admit(given);
            } else {
                waiting.fetch = Fetch::Here(given);
            }
        }
    }
}

impl Waiting {
    /// Gives the row the content of its item.
    fn admit(&mut self, given: Given) {
        self.charge.items += 1;
        let Next::Row(row) = &mut self.next else { return };
        match Content::of(given) {
            Ok(content) => row.item.content = Some(content.into()),
            Err(refused) => {
                self.charge += &refused;
                self.next = Next::Nothing;
            }
        }
    }
}

impl Output for Stage {
    fn has_room(&self) -> bool {
        self.waiting.len() < ROWS_AHEAD
    }

    fn charge(&mut self, charge: &Explain) {
        self.tail += charge;
    }

    fn push(&mut self, next: Next) {
        let charge = std::mem::take(&mut self.tail);
        self.waiting.push_back(Waiting { charge, next, fetch: Fetch::Idle });
    }
}
