//! How much work the geometries of one document may take.

use remora_layout::limits::MAX_EXPRESSION_STEPS;
use std::sync::atomic::{AtomicU64, Ordering};

/// Steps that the values of one document have taken: each compares two points, about.
#[derive(Debug, Default)]
pub(super) struct Steps(AtomicU64);

impl Steps {
    /// Takes so many more. False once they are too many.
    pub(super) fn take(&self, steps: usize) -> bool {
        let steps = steps as u64;
        let before = self.0.fetch_add(steps, Ordering::Relaxed);
        before.saturating_add(steps) <= MAX_EXPRESSION_STEPS
    }

    /// Whether they were too many. The next document begins.
    pub(super) fn begin_anew(&self) -> bool {
        self.0.swap(0, Ordering::Relaxed) > MAX_EXPRESSION_STEPS
    }
}
