//! A plan run by READs: one batch of READs, or a few, for each batch of wants.

use super::lists::{self, Chain};
use super::views::PlanTrees;
use super::{documents, objects, ordered};
use crate::core::Core;
use crate::counts::Counts;
use crate::error::Error;
use crate::links::{HashContent, Sought, StaleLinks, Target, ask_target, read_many, target_of};
use crate::trees::TreeSearcher;
use remora_layout::kind::Kind;
use remora_plan::{Bytes, Fields, Given, Outcome, Place, Plan, Run, Value, Want};
use remora_walk::remote::Reads;

/// Wants of one run that may be asked one by one. One question for the whole plan costs less than more.
const MOST_ASKS: u64 = 16;

/// The parts of a session that a plan's READs use.
pub(super) struct Tools<'s> {
    pub open: &'s mut PlanTrees,
    pub stale: &'s mut StaleLinks,
    pub texts: &'s mut bool,
    pub trees: &'s mut TreeSearcher,
}

/// Runs a plan by READs. `None`: ask for all of it. It gives up once it has taken `most_reads` nodes.
pub(super) fn run(
    core: &mut Core,
    tools: &mut Tools<'_>,
    plan: &Plan,
    most_reads: Option<u64>,
) -> Result<Option<Outcome>, Error> {
    let before = core.meter;
    let now_ms = core.asker.endpoint.now()? / 1_000_000;
    let mut run = Run::new(plan.clone(), now_ms, core.directory.hash_seed);
    // Bounded by the plan's limits.
    while run.outcome().is_none() {
        let given = match batch(core, tools, run.wants())? {
            Some(given) => given,
            None => return Ok(None),
        };
        let spent = core.meter.since(&before);
        if spent.asked > MOST_ASKS || most_reads.is_some_and(|most| spent.nodes > most) {
            return Ok(None);
        }
        given.into_iter().enumerate().for_each(|(number, given)| {
            run.give(number, given);
        });
        run.tick(core.asker.endpoint.now()? / 1_000_000);
    }
    Ok(run.into_outcome())
}

/// Answers a batch of wants; `None` if the whole plan is to be asked.
fn batch(
    core: &mut Core,
    tools: &mut Tools<'_>,
    wants: &[Want],
) -> Result<Option<Vec<Given>>, Error> {
    let mut given: Vec<Option<Given>> = wants.iter().map(|_| None).collect();
    let mut sought = Vec::new();
    let mut numbers = Vec::new();
    for (number, want) in wants.iter().enumerate() {
        let (place, names) = match want {
            Want::Item { place, fields: Fields::Some(names) } => (place, Some(&**names)),
            Want::Item { place, fields: Fields::All } | Want::List { place, .. } => (place, None),
            Want::Entries { .. } | Want::Documents { .. } | Want::Objects { .. } => {
                let Some(found) = search(core, tools, want)? else { return Ok(None) };
                given[number] = Some(found);
                continue;
            }
        };
        let Place { key, hint, link } = place;
        sought.push(Sought { key, hint: *hint, link: link.as_ref(), names });
        numbers.push(number);
    }
    let (mut asks, mut chains) = (Vec::new(), Vec::new());
    read_many(core, tools.stale, &sought, &mut |core, cost, at, found| {
        let number = numbers[at];
        let Some((one, found)) = found else { return asks.push(number) };
        let landed = core.asker.endpoint.landed(one.step.landing(), found.fetched_bytes);
        let key_bytes = sought[at].key.len();
        let record = &landed[..found.pointer.length as usize];
        let read = match &wants[number] {
            Want::Item { fields, .. } => {
                target_of(found.kind, key_bytes, record).map(|target| given_of(&target, fields))
            }
            want => match lists::given_of((found.kind, key_bytes), record, want) {
                None if found.kind == Kind::LIST => {
                    let table = &core.directory.shards[one.at.1].table;
                    let record = found.record(landed);
                    let chain = Chain::of_record(table, &record, landed);
                    return match chain {
                        Some(chain) => chains.push((number, one.at, chain)),
                        None => asks.push(number),
                    };
                }
                given => given,
            },
        };
        match read {
            None => asks.push(number),
            read => {
                *cost = Counts { read: cost.read + 1, ..*cost };
                given[number] = read;
            }
        }
    })?;
    for (number, at, chain) in chains {
        match lists::read_chain(core, at, chain, &wants[number])? {
            None => asks.push(number),
            list => given[number] = list,
        }
    }
    if !ask(core, (&asks, tools.texts), wants, &mut given)? {
        return Ok(None);
    }
    Ok(given.into_iter().collect())
}

/// Answers a want that is a search by itself; `None` if the whole plan is to be asked.
fn search(core: &mut Core, tools: &mut Tools<'_>, want: &Want) -> Result<Option<Given>, Error> {
    match want {
        Want::Entries { .. } => ordered::range(core, tools.open, want),
        Want::Documents { .. } => documents::ask(core, want),
        _ => objects::search(core, (&mut *tools.open, &mut *tools.trees), want),
    }
}

/// Asks for the wants that READs did not answer. False if the whole plan is to be asked.
fn ask(
    core: &mut Core,
    (asks, texts): (&[usize], &mut bool),
    wants: &[Want],
    given: &mut [Option<Given>],
) -> Result<bool, Error> {
    if asks.len() as u64 > MOST_ASKS {
        return Ok(false);
    }
    for &number in asks {
        given[number] = match &wants[number] {
            Want::Item { place, fields } => {
                let names = match fields {
                    Fields::All => None,
                    Fields::Some(names) => Some(&**names),
                };
                let key = &*place.key;
                let (answer, _) = ask_target(core, (key, names), texts)?;
                Some(given_of(&answer.target(core, key), fields))
            }
            want => lists::ask(core, want)?,
        };
        if given[number].is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What is given for an item.
fn given_of(target: &Target<'_>, fields: &Fields) -> Given {
    match target {
        Target::Hash(hash) => Given::Hash(fields_of(hash, fields)),
        // A string is an item without fields; its text matters only to a run that wants all.
        Target::Text(text) if *fields == Fields::All => Given::Text((*text).into()),
        Target::Text(_) => Given::Text([].into()),
        Target::Gone => Given::Gone,
        Target::OtherType => Given::OtherType,
    }
}

fn fields_of(hash: &HashContent<'_>, fields: &Fields) -> Vec<(Bytes, Value)> {
    match fields {
        Fields::All => hash.iter().map(|(name, field)| (name.into(), field.into())).collect(),
        Fields::Some(names) => {
            let field = |name: &Bytes| Some((name.clone(), hash.get(name)?.into()));
            names.iter().filter_map(field).collect()
        }
    }
}
