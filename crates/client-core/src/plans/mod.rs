//! Plans: run by the session with READs, or asked in one message.
//!
//! Invariants: both give the same rows (the run is `remora_plan::Run` on either side, and follows from the
//! answers to its wants alone). A want that READs do not answer is asked; if a run has many of those, or
//! one that only the server can answer, the whole plan is asked, from the beginning.

mod asked;
mod documents;
mod lists;
mod objects;
mod ordered;
mod read;
mod views;

pub(crate) use views::PlanTrees;

use crate::choose::{ClassKey, Route};
use crate::core::Core;
use crate::counts::Counts;
use crate::error::Error;
use crate::links::LinkSession;
use crate::path::{Path, ServedBy};
use crate::trees::TreeSearcher;
use read::Tools;
use remora_plan::{Outcome, Plan, Start, Step};

/// The result of a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlanRun {
    /// Its rows, the limit that it reached, and what it did: hops, items, lists, batches.
    pub outcome: Outcome,
    /// How it was fetched. [`ServedBy::AskedAfterRead`]: the server answered some of it, or all.
    pub served_by: ServedBy,
    /// What it cost: round trips, bytes, READs, stale hints.
    pub counts: Counts,
}

/// Runs a plan.
pub(crate) fn run(
    core: &mut Core,
    (open, links, trees): (&mut PlanTrees, &mut LinkSession, &mut TreeSearcher),
    plan: &Plan,
    path: Path,
) -> Result<PlanRun, Error> {
    core.asker.ready()?;
    let before = core.meter;
    let LinkSession { stale, classes, texts, .. } = links;
    let (kind, size) = shape(plan);
    let class = classes.get(ClassKey::of_plan(kind, size));
    let (timing, most_reads) = core.router.begin_search(&mut core.asker.endpoint, class, path)?;
    let mut tools = Tools { open, stale, texts, trees };
    let read = match timing.route {
        Route::Ask => None,
        Route::Read => read::run(core, &mut tools, plan, most_reads)?,
    };
    let was_read = read.is_some();
    let outcome = match read {
        Some(outcome) => outcome,
        None => asked::run(core, plan)?,
    };
    let counts = Counts { operations: 1, ..core.meter.since(&before) };
    let served_by = match (timing.route, was_read, counts.asked) {
        (Route::Ask, ..) => ServedBy::Asked,
        (Route::Read, true, 0) => {
            ServedBy::read_after((counts.stale_hints + counts.stale + counts.retries) as u32)
        }
        (Route::Read, ..) => ServedBy::AskedAfterRead,
    };
    core.router.end_search(&mut core.asker.endpoint, class, &timing, served_by, &counts)?;
    Ok(PlanRun { outcome, served_by, counts: core.counted(counts) })
}

/// Plans with the same steps, and how much they start with: those cost about the same.
fn shape(plan: &Plan) -> (u8, u64) {
    let (start, size) = match plan.start() {
        Start::Keys(keys) => (0, keys.len() as u64),
        Start::List { start, stop, .. } => (1, stop.abs_diff(*start)),
        Start::Window { window, .. } => {
            let side = (window.max_x - window.min_x) + (window.max_y - window.min_y);
            (2, side.to_bits() >> 52)
        }
        Start::Nearest { count, .. } => (3, u64::from(*count)),
    };
    let step = |step: &Step| match step {
        Step::Follow { .. } => 4,
        Step::Each { .. } => 5,
        Step::Walk { depth, .. } => 16 + *depth,
        Step::Where(_) => 6,
        Step::Get(_) => 7,
        Step::GetAll => 8,
        Step::GetKey | Step::GetLevel => 9,
        Step::Once => 10,
        Step::Take(count) => 128 + count.ilog2(),
        Step::Skip(_) => 11,
        Step::Suffix(_) => 12,
        Step::Fields { .. } => 13,
        Step::Range(range) => 256 + range.count.ilog2(),
        Step::Find(find) => 384 + find.count.ilog2(),
    };
    let mix = |sum: u32, number: u32| (sum ^ number).wrapping_mul(0x9e37_79b1).rotate_left(13);
    let shape = plan.steps().iter().map(step).fold(mix(1, start), mix);
    ((shape >> 24) as u8, size)
}
