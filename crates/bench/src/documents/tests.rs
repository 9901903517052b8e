//! A run against a collection in memory, which can be told to lie.

use super::args::Op;
use super::contents::Contents;
use super::store::{Answer, Catalog, Refused, Store, Written, load};
use super::work::{Errors, Plan, Worker, verify};
use crate::costs::Costs;
use crate::meter::Tally;
use bson::raw::{RawDocument, RawDocumentBuf};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const RECORDS: u32 = 50;
const OPS: usize = 30;
/// The document, or the operation, about which a server lies.
const LIED_ABOUT: i64 = 7;

/// What is wrong with a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lie {
    Nothing,
    /// It refuses one operation.
    Refuses,
    /// It says that it has done one change, and has not.
    Forgets,
    /// It does one change twice.
    Repeats,
    /// It finds another document.
    Mistakes,
    /// It finds nothing.
    Misses,
}

#[derive(Clone)]
struct Fake {
    documents: Arc<Mutex<BTreeMap<i64, RawDocumentBuf>>>,
    lie: Lie,
    /// While documents are loaded, and looked at afterwards, it does not lie.
    operations: i64,
}

impl Fake {
    fn new(lie: Lie) -> Self {
        Self { documents: Arc::default(), lie, operations: i64::MIN }
    }

    /// What is wrong with this operation.
    fn next(&mut self) -> Lie {
        self.operations = self.operations.saturating_add(1);
        if self.operations == LIED_ABOUT { self.lie } else { Lie::Nothing }
    }

    fn show(
        &self,
        id: Option<i64>,
        lie: Lie,
        see: &mut dyn FnMut(Option<&RawDocument>),
    ) -> Answer<()> {
        let documents = self.documents.lock().unwrap();
        let found = match (lie, id) {
            (Lie::Misses, _) => None,
            (Lie::Mistakes, id) => documents.values().find(|of| of.get_i64("_id").ok() != id),
            (_, Some(id)) => documents.get(&id),
            (_, None) => None,
        };
        see(found.map(|document| &**document));
        Ok(Ok(()))
    }
}

impl Store for Fake {
    fn insert(&mut self, documents: &[RawDocumentBuf]) -> Answer<()> {
        match self.next() {
            Lie::Refuses => return Ok(Err(Refused("full".to_owned()))),
            Lie::Forgets => return Ok(Ok(())),
            _ => {}
        }
        let mut all = self.documents.lock().unwrap();
        all.extend(documents.iter().map(|of| (of.get_i64("_id").unwrap(), of.clone())));
        Ok(Ok(()))
    }

    fn find(&mut self, id: i64, see: &mut dyn FnMut(Option<&RawDocument>)) -> Answer<()> {
        match self.next() {
            Lie::Refuses => Ok(Err(Refused("busy".to_owned()))),
            lie => self.show(Some(id), lie, see),
        }
    }

    fn query(&mut self, code: i64, see: &mut dyn FnMut(Option<&RawDocument>)) -> Answer<()> {
        let documents = self.documents.lock().unwrap();
        let found = documents.iter().find(|(_, of)| of.get_i64("code").ok() == Some(code));
        let id = found.map(|(id, _)| *id);
        drop(documents);
        match self.next() {
            Lie::Refuses => Ok(Err(Refused("busy".to_owned()))),
            lie => self.show(id, lie, see),
        }
    }

    fn update(&mut self, id: i64, _: &RawDocument) -> Answer<Written> {
        let by = match self.next() {
            Lie::Refuses => return Ok(Err(Refused("full".to_owned()))),
            Lie::Forgets => 0,
            Lie::Repeats => 2,
            _ => 1,
        };
        let mut documents = self.documents.lock().unwrap();
        let Some(document) = documents.get_mut(&id) else { return Ok(Ok(Written::default())) };
        let raised = document.get_i64("raised").unwrap() + by;
        let contents = Contents::new(RECORDS as usize, 10);
        *document = contents.make(id as u32, raised as u32);
        Ok(Ok(Written { matched: 1, modified: 1 }))
    }

    fn delete(&mut self, id: i64) -> Answer<u64> {
        let mut removed = match self.next() {
            Lie::Refuses => return Ok(Err(Refused("busy".to_owned()))),
            Lie::Forgets => return Ok(Ok(1)),
            _ => 0,
        };
        removed += u64::from(self.documents.lock().unwrap().remove(&id).is_some());
        Ok(Ok(removed))
    }

    fn costs(&self) -> Costs {
        Costs::default()
    }
}

impl Catalog for Fake {
    fn remove(&mut self) -> anyhow::Result<()> {
        self.documents.lock().unwrap().clear();
        Ok(())
    }

    fn make_index(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn count(&mut self) -> anyhow::Result<u64> {
        Ok(self.documents.lock().unwrap().len() as u64)
    }
}

/// A run of two connections, one after the other, the first of which meets the lie.
fn run(op: Op, lie: Lie) -> (Tally, Errors) {
    let inserted = if op == Op::Insert { OPS } else { 0 };
    let contents = Contents::new(RECORDS as usize + inserted, 10);
    let plan =
        Plan { op, contents, records: RECORDS, ops: OPS, connections: 2, seed: 1, warms_up: true };
    let mut honest = Fake::new(Lie::Nothing);
    load(&mut honest, &contents, RECORDS).unwrap();
    let (mut tally, mut errors) = (Tally::default(), Errors::default());
    for (connection, lie) in [lie, Lie::Nothing].into_iter().enumerate() {
        let documents = Arc::clone(&honest.documents);
        // The lie comes with the operations, behind the warming up.
        let warm = if op.is_change() { 1 } else { OPS as i64 / 2 };
        let store = Fake { documents, lie, operations: -warm };
        let worker = Worker::prepare(plan, store, connection).unwrap();
        let (share, refused) = worker.measure().unwrap();
        tally.add(share.meter.tally);
        errors.merge(refused);
    }
    let mut catalog = honest.clone();
    tally.add(verify(&plan, &mut honest, &mut catalog).unwrap());
    (tally, errors)
}

const OPS_OF_ALL: [Op; 5] = [Op::Insert, Op::Find, Op::Update, Op::Delete, Op::Query];

#[test]
fn an_honest_server_passes() {
    for op in OPS_OF_ALL {
        let wanted = Tally { ops: OPS as u64, missing: 0, wrong: 0 };
        assert_eq!(run(op, Lie::Nothing), (wanted, Errors::default()), "{op:?}");
    }
}

#[test]
fn a_refused_operation_is_an_error() {
    for op in OPS_OF_ALL {
        let (_, errors) = run(op, Lie::Refuses);
        assert_eq!(errors.count, 1, "{op:?}");
        assert!(errors.first.is_some());
    }
}

#[test]
fn a_change_that_is_lost_or_made_twice_is_noticed() {
    let lies = [(Op::Insert, Lie::Forgets), (Op::Update, Lie::Forgets), (Op::Update, Lie::Repeats)];
    for (op, lie) in lies.into_iter().chain([(Op::Delete, Lie::Forgets)]) {
        let (tally, errors) = run(op, lie);
        assert_eq!((tally.missing + tally.wrong, errors.count), (1, 0), "{op:?} {lie:?}");
    }
}

#[test]
fn a_search_that_finds_nothing_or_another_document_is_noticed() {
    for op in [Op::Find, Op::Query] {
        assert_eq!(run(op, Lie::Misses).0, Tally { ops: OPS as u64, missing: 1, wrong: 0 });
        assert_eq!(run(op, Lie::Mistakes).0, Tally { ops: OPS as u64, missing: 0, wrong: 1 });
    }
}
