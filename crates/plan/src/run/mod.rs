//! The run of a plan: its steps as stages with queues of rows between them.
//!
//! Between two batches each stage takes its rows in order as far as the answers lead. The next batch is
//! gathered from the last stage to the first, so that rows near the result come first and few wait.

mod batch;
mod compile;
mod documents;
mod each;
mod objects;
mod range;
mod result;
mod row;
mod rows;
mod stage;
mod walk;
mod work;

use crate::limits::{BYTES_AHEAD, LEAST_AHEAD, ROWS_AHEAD, VISITS_AHEAD};
use crate::outcome::{Limit, Outcome};
use crate::plan::Plan;
use crate::want::{Given, Want};
use batch::Batch;
use result::Gathered;
use rows::Output;
use stage::{Advance, Stage};

/// A plan that runs. See the crate's text for what it promises.
#[derive(Debug)]
pub struct Run {
    stages: Vec<Stage>,
    gathered: Gathered,
    batch: Batch,
    /// When its time is over, by the caller's clock.
    until_ms: u64,
    outcome: Option<Outcome>,
}

impl Run {
    /// Begins a run. `now_ms` is the time of any clock that does not go back. `seed` is for the hash of the
    /// keys that the run remembers: take one that no writer of keys knows, such as the cluster's; the
    /// result does not depend on it.
    pub fn new(plan: Plan, now_ms: u64, seed: u64) -> Self {
        let limits = *plan.limits();
        let mut run = Self {
            stages: compile::stages(plan, seed),
            gathered: Gathered::new(limits),
            batch: Batch::default(),
            until_ms: now_ms.saturating_add(limits.time_ms),
            outcome: None,
        };
        run.go_on();
        run
    }

    /// The wants of the present batch, each with an answer or not; none once there is an outcome. When
    /// all have answers the next batch takes its place.
    pub fn wants(&self) -> &[Want] {
        self.batch.wants()
    }

    /// Takes the answer to the want with this number in [`Self::wants`]. False: it was not wanted, as
    /// the want has an answer, or there is no such want; the run takes no notice.
    pub fn give(&mut self, number: usize, given: Given) -> bool {
        let is_wanted = self.batch.give(number, given);
        if is_wanted && self.batch.is_answered() {
            let mut batch = std::mem::take(&mut self.batch);
            self.stages.iter_mut().for_each(|stage| stage.accept(&mut batch));
            self.go_on();
        }
        is_wanted
    }

    /// Says what time it is: a run whose time is over ends with [`Limit::Time`] and the rows so far.
    pub fn tick(&mut self, now_ms: u64) {
        if now_ms > self.until_ms && self.outcome.is_none() {
            self.gathered.end(Limit::Time);
            self.finish();
        }
    }

    /// The result, once the run has ended.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// The result, once the run has ended.
    pub fn into_outcome(self) -> Option<Outcome> {
        self.outcome
    }

    /// Goes on to the next batch, or to the end.
    fn go_on(&mut self) {
        while self.gathered.has_room() && self.advance() {}
        if !self.gathered.has_room() || self.stages.iter().all(Stage::is_empty) {
            return self.finish();
        }
        self.collect();
        self.gathered.explain().batches += 1;
        debug_assert!(!self.wants().is_empty(), "a row waits for nothing");
    }

    /// Lets each stage take its rows, the last stage first. Whether any did.
    fn advance(&mut self) -> bool {
        let mut moved = false;
        for at in (0..self.stages.len()).rev() {
            let (upto, behind) = self.stages.split_at_mut(at + 1);
            let out: &mut dyn Output = match behind {
                [next, ..] => next,
                [] => &mut self.gathered,
            };
            loop {
                match upto[at].advance(out) {
                    Advance::Idle => break,
                    Advance::Moved => moved = true,
                    Advance::Stop => {
                        upto.iter_mut().for_each(Stage::clear);
                        moved = true;
                        break;
                    }
                }
            }
        }
        moved
    }

    /// Gathers the next batch: if much is held already, only what the row nearest to the result wants, and
    /// in front of a TAKE not many more rows than it still takes.
    fn collect(&mut self) {
        let held = self.stages.iter().map(Stage::held);
        let (visits, bytes) = held.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let ahead = visits <= VISITS_AHEAD && bytes <= BYTES_AHEAD;
        let mut most = if ahead { ROWS_AHEAD } else { 1 };
        for stage in self.stages.iter_mut().rev() {
            stage.collect(&mut self.batch, most);
            if !ahead && !self.batch.wants().is_empty() {
                break;
            }
            most = most.min((2 * stage.takes()).max(LEAST_AHEAD));
        }
    }

    fn finish(&mut self) {
        self.stages.clear();
        self.batch = Batch::default();
        self.outcome = Some(self.gathered.take());
    }
}
