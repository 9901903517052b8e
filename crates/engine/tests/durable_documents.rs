//! A collection whose changes are durable late: whatever is asked of it waits for its newest change, also a
//! refusal, and what finds nothing. A reader of the memory finds the root record only once it is durable.

use crate::collections::{bytes, id_of};
use bson::{Document, doc};
use remora_arena::{NoJournal, Owner};
use remora_engine::{Durability, Now, Shard, ShardOptions};
use remora_index::hash::walk_locally;
use remora_layout::kind::Kind;
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry, Items, Reply};
use remora_testing::Random;
use std::collections::BTreeMap;

const KEY: &[u8] = b"db.coll";
const IDS: u64 = 60;
const ROUNDS: u64 = 12_000;

struct World {
    shard: Shard,
    random: Random,
    documents: BTreeMap<Vec<u8>, Document>,
    /// The newest change of the collection.
    newest: u64,
    /// Whether there is a collection, and its root record is durable.
    is_there: bool,
    made: u64,
}

impl World {
    fn new() -> Self {
        let options = ShardOptions { durability: Durability::Told, ..ShardOptions::default() };
        let shard = Shard::new(Owner::heap(16 << 20, NoJournal), options);
        let (documents, random) = (BTreeMap::new(), Random::new(17));
        Self { shard, random, documents, newest: 0, is_there: false, made: 0 }
    }

    fn below(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    /// What the shard answers, which waits for the collection's newest change and no longer.
    fn execute(&mut self, command: &Command<'_>) -> (Status, i64, Vec<u8>) {
        let (hash, before) = (self.shard.hash(KEY), self.shard.last_sequence());
        let Reply { status, number, value, wait, .. } =
            self.shard.execute(command, hash, Now::default());
        let value = value.unwrap_or_default().to_vec();
        let last = self.shard.last_sequence();
        if last > before {
            self.newest = last;
        }
        let is_pending = self.newest > self.shard.durable_sequence();
        assert_eq!(wait, if is_pending { self.newest } else { 0 }, "{status:?} of {command:?}");
        (status, number, value)
    }

    fn ask(&mut self, command: CollectionCommand<'_>) -> (Status, i64, Vec<u8>) {
        self.execute(&Command::Of { key: KEY, request: command.request() })
    }

    /// A collection is made by the first change of it.
    fn note_made(&mut self) {
        if !self.is_there {
            (self.is_there, self.made) = (true, self.newest);
        }
    }

    fn change(&mut self) {
        let document = doc! { "_id": self.below(IDS) as i64, "a": self.below(9) as i64 };
        match self.below(60) {
            0 => {
                self.execute(&Command::Del { key: KEY });
                (self.is_there, _) = (false, self.documents.clear());
            }
            1..4 => {
                let spec = doc! { "spec": { "key": { "a": 1 }, "name": "a_1" } };
                let (status, ..) =
                    self.ask(CollectionCommand::CreateIndex { request: &bytes(&spec) });
                assert_eq!(status, Status::Ok);
                self.note_made();
            }
            4..20 => {
                let request = doc! { "q": { "a": document.get_i64("a").unwrap() } };
                let (_, number, _) =
                    self.ask(CollectionCommand::Write { request: &bytes(&request) });
                let a = document.get("a");
                let gone = self.documents.iter().find(|(_, of)| of.get("a") == a);
                assert_eq!(number, i64::from(gone.is_some()));
                // Which of several it is follows from the answers to searches.
                self.documents = self.all();
            }
            20..36 => {
                let id = document.get("_id").unwrap().clone();
                let request = doc! { "q": { "_id": id }, "u": document.clone(), "upsert": true };
                self.ask(CollectionCommand::Write { request: &bytes(&request) });
                self.documents.insert(id_of(&document), document);
                self.note_made();
            }
            _ => {
                let mut list = Vec::new();
                Items::push(&mut list, &bytes(&document));
                let documents = Items::parse(&list).unwrap();
                let (_, number, _) =
                    self.ask(CollectionCommand::Insert { documents, ordered: true });
                let id = id_of(&document);
                assert_eq!(number, i64::from(!self.documents.contains_key(&id)), "or a refusal");
                self.documents.entry(id).or_insert(document);
                self.note_made();
            }
        }
        while self.shard.wants_release() {
            self.shard.release_some(Now::default());
        }
    }

    fn find(&mut self, filter: Document) -> Vec<Document> {
        let request = bytes(&doc! { "filter": filter });
        let (status, _, value) = self.ask(CollectionCommand::Find { request: &request });
        assert_eq!(status, Status::Ok);
        let documents = Items::parse(&value).unwrap();
        let documents = documents.iter().flatten().map(|of| Document::from_reader(of).unwrap());
        documents.skip(1).collect()
    }

    fn all(&mut self) -> BTreeMap<Vec<u8>, Document> {
        let all = self.find(doc! {});
        all.into_iter().map(|document| (id_of(&document), document)).collect()
    }

    fn look(&mut self) {
        let a = self.below(9) as i64;
        let mut found = self.find(doc! { "a": a });
        found.sort_by_key(id_of);
        let wanted = self.documents.values().filter(|of| of.get_i64("a").ok() == Some(a));
        assert!(found.iter().eq(wanted));
        let (_, told, _) = self.ask(CollectionCommand::Find {
            request: &bytes(&doc! { "filter": { "a": a }, "count": true }),
        });
        assert_eq!(told, found.len() as i64);
        let described = self.ask(CollectionCommand::Describe).0;
        assert_eq!(described == Status::Ok, self.is_there);
        let words = self.shard.owner().view().clone();
        let (mut table, mut scratch) = (self.shard.table_ref(), Vec::new());
        let hash = self.shard.hash(KEY);
        let read = walk_locally(&words, &mut table, KEY, hash, Kind::COLLECTION, &mut scratch);
        let is_durable = self.is_there && self.made <= self.shard.durable_sequence();
        assert!(is_durable || read.is_err(), "what is not durable was read");
    }

    fn become_durable(&mut self) {
        let (durable, last) = (self.shard.durable_sequence(), self.shard.last_sequence());
        let sequence = durable + self.below(last - durable + 1);
        self.shard.set_durable(sequence);
    }
}

#[test]
fn whatever_is_asked_of_a_collection_waits_for_its_newest_change() {
    let mut world = World::new();
    let other = |world: &mut World| {
        let (key, value) = (&b"other"[..], &b"1"[..]);
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let set = Command::Set { key, value, condition, expiry, get: false };
        let hash = world.shard.hash(key);
        world.shard.execute(&set, hash, Now::default());
    };
    for round in 0..ROUNDS {
        match world.below(8) {
            0..3 => world.change(),
            3..6 => world.look(),
            6 => world.become_durable(),
            // It waits for no other key.
            _ => other(&mut world),
        }
        if round % 200 == 0 {
            world.shard.audit().unwrap();
            let stats = world.shard.stats();
            assert_eq!(stats.documents, world.documents.len() as u64);
            assert_eq!(stats.collections, u64::from(world.is_there));
        }
    }
}

#[test]
fn what_collections_have_is_counted() {
    let mut world = World::new();
    let documents: Vec<Document> =
        (0..100).map(|at| doc! { "_id": at, "text": "x".repeat(100), "tags": [1, 2, 3] }).collect();
    let mut list = Vec::new();
    documents.iter().for_each(|document| Items::push(&mut list, &bytes(document)));
    let documents_bytes: u64 = documents.iter().map(|of| bytes(of).len() as u64).sum();
    let documents = Items::parse(&list).unwrap();
    world.ask(CollectionCommand::Insert { documents, ordered: true });
    let before = world.shard.stats();
    assert_eq!((before.collections, before.documents), (1, 100));
    assert_eq!((before.document_bytes, before.document_indexes), (documents_bytes, 0));
    let mut request = doc! { "spec": { "key": { "tags": 1 }, "name": "tags_1" } };
    loop {
        let (_, _, told) = world.ask(CollectionCommand::CreateIndex { request: &bytes(&request) });
        match Document::from_reader(&told[..]).unwrap().remove("at") {
            Some(at) => request.insert("at", at),
            None => break,
        };
    }
    let with_index = world.shard.stats();
    assert_eq!(with_index.document_indexes, 1);
    // Three entries for each document.
    assert!(with_index.document_node_bytes > before.document_node_bytes + 100 * 3 * 8);
    world.ask(CollectionCommand::Write { request: &bytes(&doc! { "q": { "_id": 1 } }) });
    let stats = world.shard.stats();
    assert_eq!((stats.documents, stats.document_bytes), (99, documents_bytes / 100 * 99));
    world.execute(&Command::Del { key: KEY });
    let all = world.shard.last_sequence();
    world.shard.set_durable(all);
    while world.shard.wants_release() {
        world.shard.release_some(Now::default());
    }
    let gone = world.shard.stats();
    assert_eq!((gone.collections, gone.documents, gone.document_bytes), (0, 0, 0));
    assert_eq!((gone.document_indexes, gone.document_node_bytes), (0, 0));
}
