//! How rows go from one step to the next.

use super::batch::Batch;
use super::row::Row;
use crate::outcome::{Explain, Limit, Skipped};
use crate::want::Given;
use std::fmt::Debug;

/// Where a stage hands its rows: the next stage, or the result.
pub(super) trait Output {
    /// Whether it takes a row.
    fn has_room(&self) -> bool;
    /// Counts what was done before the next row.
    fn charge(&mut self, charge: &Explain);
    /// Takes a row, or the end of the run.
    fn push(&mut self, next: Next);
}

/// What comes out of a stage, in order.
#[derive(Debug)]
pub(super) enum Next {
    Row(Row),
    /// The run ends here.
    End(Limit),
    /// Nothing: its item could not be read.
    Nothing,
}

/// What the row's step needs.
#[derive(Debug, Default)]
pub(super) enum Fetch {
    /// Nothing that is on its way.
    #[default]
    Idle,
    /// The answer to this want of the batch.
    Wanted(usize),
    /// It is here.
    Here(Given),
}

/// What became of a row.
#[derive(Debug)]
pub(super) enum Taken {
    /// All that comes of it was handed on.
    Done,
    /// It waits for an answer, or for room. `moved`: some of it was handed on.
    Back { row: Row, moved: bool },
    /// As `Done`, and the step needs no more rows.
    Stop,
}

/// Work that has stages of its own.
pub(super) trait Nested: Debug + Send {
    /// As [`super::work::Work::take`].
    fn take(&mut self, row: Row, out: &mut dyn Output) -> Taken;
    /// Adds its wants to a batch.
    fn collect(&mut self, batch: &mut Batch, most: usize);
    /// Takes the answers to its wants.
    fn accept(&mut self, batch: &mut Batch);
    /// As [`super::stage::Stage::held`].
    fn held(&self) -> (u64, usize);
}

/// Counts what goes no further.
pub(super) fn skip(out: &mut dyn Output, skipped: Skipped) {
    out.charge(&Explain { skipped, ..Explain::default() });
}
