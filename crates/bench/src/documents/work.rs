//! One connection's operations, and the look at the collection after all of them.

use super::args::Op;
use super::contents::{Contents, raise};
use super::store::{Answer, Catalog, Refused, Store, Written};
use crate::meter::{Meter, Tally};
use crate::run::Share;
use crate::workload::{Scatter, Source, Workload, share};
use anyhow::ensure;
use bson::raw::RawDocumentBuf;
use std::slice;
use std::time::Instant;

/// What all connections do together.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The operation.
    pub op: Op,
    /// The documents.
    pub contents: Contents,
    /// How many are loaded.
    pub records: u32,
    /// Operations of all connections.
    pub ops: usize,
    /// Connections.
    pub connections: usize,
    /// Seed of the draws.
    pub seed: u64,
    /// Whether all that is looked for is looked for once before.
    pub warms_up: bool,
}

/// Operations that the server refused.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Errors {
    /// How many.
    pub count: u64,
    /// Why the first one was.
    pub first: Option<String>,
}

impl Errors {
    fn add(&mut self, Refused(why): Refused) {
        self.count += 1;
        self.first.get_or_insert(why);
    }

    /// Adds another connection's.
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
    }
}

impl Plan {
    /// Documents that there are once all is done.
    fn left(&self) -> u64 {
        let (records, ops) = (u64::from(self.records), self.ops as u64);
        match self.op {
            Op::Insert => records + ops,
            Op::Delete => records - ops,
            Op::Find | Op::Update | Op::Query => records,
        }
    }

    /// The documents of a connection's operations: new ones, each of some once, or drawn evenly.
    fn numbers(&self, connection: usize) -> anyhow::Result<Vec<u32>> {
        let (first, count) = share(self.ops, self.connections, connection);
        let range = first as u32..(first + count) as u32;
        let scatter = Scatter::over(self.records);
        Ok(match self.op {
            Op::Insert => range.map(|at| self.records + at).collect(),
            Op::Delete => range.map(|at| scatter.place(at)).collect(),
            Op::Find | Op::Update | Op::Query => {
                let Self { records, ops, connections, seed, .. } = *self;
                let source = Source::Uniform;
                let workload =
                    Workload { source, records, ops, clients: connections, reads: 1.0, seed };
                workload.of_client(connection)?.into_iter().map(|op| op.index()).collect()
            }
        })
    }
}

/// One connection and its operations.
pub struct Worker<S> {
    plan: Plan,
    store: S,
    numbers: Vec<u32>,
    update: RawDocumentBuf,
    errors: Errors,
}

impl<S: Store> Worker<S> {
    /// Makes a connection ready: it knows the collection, and all that it looks for unless the run is cold.
    pub fn prepare(plan: Plan, store: S, connection: usize) -> anyhow::Result<Self> {
        let numbers = plan.numbers(connection)?;
        let mut worker = Self { plan, store, numbers, update: raise(), errors: Errors::default() };
        if !plan.warms_up {
            return Ok(worker);
        }
        let mut tally = Tally::default();
        let looked_at = if plan.op.is_change() { vec![0] } else { worker.numbers.clone() };
        for number in looked_at {
            match plan.op {
                Op::Query => worker.look(number, &mut tally, Op::Query)?,
                _ => worker.look(number, &mut tally, Op::Find)?,
            }
        }
        let Tally { missing, wrong, .. } = tally;
        let refused = &worker.errors;
        ensure!(refused.count == 0, "warming up: {:?}", refused.first);
        ensure!(missing + wrong == 0, "warming up: {missing} documents missing, {wrong} wrong");
        Ok(worker)
    }

    /// Finds a document that no operation has changed.
    fn look(&mut self, number: u32, tally: &mut Tally, op: Op) -> anyhow::Result<()> {
        let contents = self.plan.contents;
        let mut shown = 0;
        let mut see = |found: Option<&bson::raw::RawDocument>| {
            shown += 1;
            match found {
                Some(document) if contents.is_it(number, 0, document) => {}
                Some(_) => tally.wrong += 1,
                None => tally.missing += 1,
            }
        };
        let answer = match op {
            Op::Query => self.store.query(contents.code(number), &mut see)?,
            _ => self.store.find(Contents::id(number), &mut see)?,
        };
        match answer {
            Ok(()) => ensure!(shown == 1, "a search showed {shown} results"),
            Err(refused) => self.errors.add(refused),
        }
        Ok(())
    }

    /// One operation, whose result is judged.
    fn once(&mut self, number: u32, tally: &mut Tally) -> anyhow::Result<()> {
        let id = Contents::id(number);
        match self.plan.op {
            op @ (Op::Find | Op::Query) => self.look(number, tally, op)?,
            Op::Insert => {
                let document = self.plan.contents.make(number, 0);
                let answer = self.store.insert(slice::from_ref(&document));
                self.judged(answer)?;
            }
            Op::Update => {
                let answer = self.store.update(id, &self.update);
                let Some(Written { matched, modified }) = self.judged(answer)? else {
                    return Ok(());
                };
                tally.missing += u64::from(matched == 0);
                tally.wrong += u64::from(matched > 1 || modified != matched);
            }
            Op::Delete => {
                let answer = self.store.delete(id);
                let Some(removed) = self.judged(answer)? else { return Ok(()) };
                tally.missing += u64::from(removed == 0);
                tally.wrong += u64::from(removed > 1);
            }
        }
        Ok(())
    }

    /// What an answer says; none if the server refused.
    fn judged<T>(&mut self, answer: Answer<T>) -> anyhow::Result<Option<T>> {
        match answer? {
            Ok(value) => Ok(Some(value)),
            Err(refused) => {
                self.errors.add(refused);
                Ok(None)
            }
        }
    }

    /// All operations, measured.
    pub fn measure(mut self) -> anyhow::Result<(Share, Errors)> {
        let before = self.store.costs();
        let numbers = std::mem::take(&mut self.numbers);
        let mut meter = Meter::start(1, None)?;
        for number in numbers {
            meter.measure(1, |tally| self.once(number, tally))?;
        }
        let costs = self.store.costs() - before;
        Ok((Share { meter, ended: Instant::now(), costs }, self.errors))
    }
}

/// Looks at what the changes have left: each document that was to change, and the number of all. The result
/// counts as if it were that of operations.
pub fn verify(
    plan: &Plan,
    store: &mut impl Store,
    catalog: &mut impl Catalog,
) -> anyhow::Result<Tally> {
    let mut raised = vec![0_u32; plan.records as usize + plan.ops];
    let mut touched = Vec::new();
    for connection in 0..plan.connections {
        for number in plan.numbers(connection)? {
            raised[number as usize] += 1;
            touched.push(number);
        }
    }
    touched.sort_unstable();
    touched.dedup();
    let mut tally = Tally::default();
    for number in touched.into_iter().filter(|_| plan.op.is_change()) {
        let raised = if plan.op == Op::Update { raised[number as usize] } else { 0 };
        let mut see = |found: Option<&bson::raw::RawDocument>| match found {
            None => tally.missing += u64::from(plan.op != Op::Delete),
            Some(_) if plan.op == Op::Delete => tally.wrong += 1,
            Some(of) => tally.wrong += u64::from(!plan.contents.is_it(number, raised, of)),
        };
        let answer = store.find(Contents::id(number), &mut see)?;
        answer.map_err(|Refused(why)| anyhow::anyhow!("looking at the result: {why}"))?;
    }
    let (count, wanted) = (catalog.count()?, plan.left());
    if tally.missing + tally.wrong == 0 {
        tally.missing += wanted.saturating_sub(count);
        tally.wrong += count.saturating_sub(wanted);
    }
    Ok(tally)
}
