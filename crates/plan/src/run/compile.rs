//! From the steps of a plan to the stages of a run.

use super::documents::Documents;
use super::each::Each;
use super::objects::Search;
use super::range::Entries;
use super::row::{Item, Remembered, Row};
use super::stage::Stage;
use super::walk::Walk;
use super::work::{Act, ContentWork, Work};
use crate::plan::{Bytes, Plan, Start, Step};
use crate::want::{Area, Fields};
use std::collections::BTreeSet;

/// The stages of a plan; the rows of its start wait in the first one. `seed` is for the hash of the keys
/// that steps remember.
pub(super) fn stages(plan: Plan, seed: u64) -> Vec<Stage> {
    let steps = plan.steps();
    let memory = (plan.limits().remembered, seed);
    let later = (0..steps.len()).map(|at| Stage::new(work(&steps[at..], memory), []));
    let first = match plan.start() {
        Start::Keys(keys) => Stage::new(Work::Pass, keys.iter().filter_map(row)),
        Start::List { key, start, stop, by_key } => {
            Stage::new(Work::Each(Each::new(*by_key, (*start, *stop))), row(key))
        }
        Start::Window { window, objects } => {
            let search = Search::new(objects.clone(), Area::Window(*window), None);
            Stage::new(Work::Objects(search.into()), row(&objects.tree))
        }
        Start::Nearest { point: (x, y), count, objects } => {
            let search = Search::new(objects.clone(), Area::Nearest(*x, *y), Some(*count));
            Stage::new(Work::Objects(search.into()), row(&objects.tree))
        }
    };
    [first].into_iter().chain(later).collect()
}

/// A row at a key; plans have no key that is too long.
fn row(key: &Bytes) -> Option<Row> {
    Item::of_key(key.clone()).map(Row::at)
}

/// The work of the first of these steps. `memory`: what a step may remember, and the seed.
fn work(steps: &[Step], memory: (u64, u64)) -> Work {
    let content = |act| Work::Content(ContentWork { act, fields: needed(steps) });
    match &steps[0] {
        Step::Follow { field, by_key } => {
            content(Act::Follow { field: field.clone(), by_key: *by_key })
        }
        Step::Suffix(suffix) => Work::Suffix(suffix.clone()),
        Step::Where(condition) => content(Act::Where(condition.clone())),
        Step::Get(fields) => content(Act::Get(fields.clone())),
        Step::GetAll => content(Act::GetAll),
        Step::GetKey => Work::GetKey,
        Step::GetLevel => Work::GetLevel,
        Step::Each { by_key } => Work::Each(Each::new(*by_key, (0, -1))),
        Step::Range(range) => Work::Entries(Entries::new(range.clone())),
        Step::Find(find) => Work::Documents(Documents::new(find.clone())),
        Step::Fields { by_key } => content(Act::Fields { by_key: *by_key, next: 0 }),
        Step::Walk { via, depth, once, by_key } => {
            let walk = Walk::new(via, (*depth, *once, *by_key), memory);
            Work::Walk(Box::new(walk))
        }
        Step::Once => Work::Once(Remembered::new(memory.0, memory.1)),
        Step::Skip(count) => Work::Skip(*count),
        Step::Take(count) => Work::Take(*count),
    }
}

/// What these steps use of the present item, before one of them leaves it.
fn needed(steps: &[Step]) -> Fields {
    let mut names = BTreeSet::new();
    for step in steps {
        match step {
            Step::GetAll | Step::Fields { .. } => return Fields::All,
            Step::Get(fields) => names.extend(fields.iter().cloned()),
            Step::Where(condition) => {
                names.insert(condition.field.clone());
            }
            Step::Follow { field, .. } | Step::Walk { via: field, .. } => {
                names.insert(field.clone());
                break;
            }
            Step::Each { .. } | Step::Range(_) | Step::Find(_) | Step::Suffix(_) => break,
            Step::GetKey | Step::GetLevel | Step::Once | Step::Skip(_) | Step::Take(_) => {}
        }
    }
    Fields::Some(names.into_iter().collect())
}
