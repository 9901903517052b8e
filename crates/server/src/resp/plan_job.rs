//! A plan that waits for what its connection asked before.

use remora_layout::database::Database;
use remora_plan::Plan;

/// A plan that has not begun.
pub(super) struct PlanJob {
    pub plan: Plan,
    pub database: Database,
    /// Shards that have not executed all that came before.
    pub busy: Vec<usize>,
}
