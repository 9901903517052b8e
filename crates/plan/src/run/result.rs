//! The end of the last stage: the rows of the result, and the limits.

use super::row::Row;
use super::rows::{Next, Output};
use crate::limits::RESULT_PART_BYTES;
use crate::outcome::{Explain, Limit, Outcome};
use crate::plan::Limits;

/// The result so far. It takes nothing behind a limit.
#[derive(Debug)]
pub(super) struct Gathered {
    outcome: Outcome,
    bytes: u64,
    limits: Limits,
}

impl Gathered {
    pub fn new(limits: Limits) -> Self {
        Self { outcome: Outcome::default(), bytes: 0, limits }
    }

    pub fn explain(&mut self) -> &mut Explain {
        &mut self.outcome.explain
    }

    /// Ends the result, unless it has ended.
    pub fn end(&mut self, limit: Limit) {
        self.outcome.limit.get_or_insert(limit);
    }

    /// The result.
    pub fn take(&mut self) -> Outcome {
        std::mem::take(&mut self.outcome)
    }

    fn add(&mut self, row: Row) {
        if self.outcome.explain.rows == self.limits.rows {
            return self.end(Limit::Rows);
        }
        let (columns, column_bytes) = row.into_columns();
        let bytes = column_bytes + RESULT_PART_BYTES;
        if self.bytes + bytes > self.limits.bytes {
            return self.end(Limit::Bytes);
        }
        self.bytes += bytes;
        self.outcome.explain.rows += 1;
        self.outcome.rows.push(columns);
    }
}

impl Output for Gathered {
    fn has_room(&self) -> bool {
        self.outcome.limit.is_none()
    }

    fn charge(&mut self, charge: &Explain) {
        self.outcome.explain += charge;
        if self.outcome.explain.visits() > self.limits.visits {
            self.end(Limit::Visits);
        }
    }

    fn push(&mut self, next: Next) {
        if !self.has_room() {
            return;
        }
        match next {
            Next::Row(row) => self.add(row),
            Next::End(limit) => self.end(limit),
            Next::Nothing => {}
        }
    }
}
