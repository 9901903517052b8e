//! Collections against a map of documents, whose filters are evaluated one document after the other: random
//! histories of all operations, each index by itself, steps, full memory, copies and replays.

use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use remora_arena::{NoJournal, Owner};
use remora_document::{Direction, Filter, encode};
use remora_engine::{Now, Shard, ShardOptions};
use remora_log::{Assembler, Frames, LogKey, OwnedEntry};
use remora_protocol::collection::{CollectionCommand, split_rows};
use remora_protocol::message::Status;
use remora_protocol::{Command, Items};
use remora_testing::Random;
use std::collections::BTreeMap;

pub const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
const KEY: &[u8] = b"db.coll";
const SECRET: u64 = 0x10c;

/// Documents by their encoded `_id`s.
pub type Model = BTreeMap<Vec<u8>, Document>;

pub fn shard(bytes: usize) -> Shard {
    let options = ShardOptions { record_secret: 7, log_secret: SECRET, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

pub fn bytes(document: &Document) -> Vec<u8> {
    document.to_vec().unwrap()
}

pub fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

pub fn id_of(document: &Document) -> Vec<u8> {
    let (raw, mut id) = (raw(document), Vec::new());
    encode(raw.get("_id").unwrap().unwrap(), Direction::Ascending, &mut id).unwrap();
    id
}

pub struct Answer {
    pub status: Status,
    pub number: i64,
    pub value: Vec<u8>,
}

impl Answer {
    pub fn ok(self) -> Self {
        assert_eq!(self.status, Status::Ok, "{}: {}", self.number, self.text());
        self
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }

    pub fn document(&self) -> Document {
        Document::from_reader(&self.value[..]).unwrap()
    }

    pub fn documents(&self) -> Vec<Document> {
        let items = Items::parse(&self.value).unwrap();
        items.iter().flatten().map(|of| Document::from_reader(of).unwrap()).collect()
    }
}

pub fn ask(shard: &mut Shard, command: CollectionCommand<'_>) -> Answer {
    let command = Command::Of { key: KEY, request: command.request() };
    let reply = shard.execute(&command, shard.hash(KEY), NOW);
    let value = reply.value.unwrap_or_default().to_vec();
    Answer { status: reply.status, number: reply.number, value }
}

pub fn insert(shard: &mut Shard, documents: &[Document], ordered: bool) -> Answer {
    let mut list = Vec::new();
    documents.iter().for_each(|of| Items::push(&mut list, &bytes(of)));
    let documents = Items::parse(&list).unwrap();
    ask(shard, CollectionCommand::Insert { documents, ordered })
}

pub fn create_index(shard: &mut Shard, spec: Document) -> Answer {
    let mut request = doc! { "spec": spec };
    loop {
        let answer = ask(shard, CollectionCommand::CreateIndex { request: &bytes(&request) });
        if answer.status != Status::Ok {
            return answer;
        }
        match answer.document().get("at") {
            Some(at) => request.insert("at", at.clone()),
            None => return answer,
        };
    }
}

fn index(shard: &mut Shard, key: Document, more: Document) -> Answer {
    let named = |(name, of): (&String, &Bson)| format!("{name}_{of}");
    let name = key.iter().map(named).collect::<Vec<_>>().join("_").replace('"', "");
    let mut spec = doc! { "key": key, "name": name };
    spec.extend(more);
    create_index(shard, spec)
}

/// One step of a search: its head, and the documents.
pub fn find_step(shard: &mut Shard, request: &Document) -> (i64, Document, Vec<Document>) {
    let answer = ask(shard, CollectionCommand::Find { request: &bytes(request) }).ok();
    let mut all = answer.documents();
    let head = all.remove(0);
    (answer.number, head, all)
}

/// A whole search: its last head, its number and the documents of all steps.
pub fn find(shard: &mut Shard, mut request: Document) -> (i64, Document, Vec<Document>) {
    let (mut number, mut found) = (0, Vec::new());
    loop {
        let (some, head, documents) = find_step(shard, &request);
        number += some;
        found.extend(documents);
        match head.get("at") {
            Some(at) => request.insert("at", at.clone()),
            None => return (number, head, found),
        };
    }
}

fn write_step(shard: &mut Shard, request: &Document) -> Answer {
    ask(shard, CollectionCommand::Write { request: &bytes(request) })
}

/// A whole write: how many matched and were modified, and the last reply.
pub fn write(shard: &mut Shard, mut request: Document) -> (i64, i64, Document) {
    let (mut matched, mut modified) = (0, 0);
    loop {
        let answer = write_step(shard, &request).ok();
        let reply = answer.document();
        matched += answer.number;
        modified += reply.get_i64("modified").unwrap();
        match reply.get("at") {
            Some(at) => request.insert("at", at.clone()),
            None => return (matched, modified, reply),
        };
    }
}

/// The entries that a log said.
pub fn entries(log: &[u8]) -> Vec<OwnedEntry> {
    let mut assembler = Assembler::new(1, 100 << 20);
    let mut entries = Vec::new();
    for frame in Frames::new(log, LogKey::new(SECRET, 0)).map_while(Result::ok) {
        let entry = assembler.take(frame).expect("in order");
        entries.extend(entry.map(|entry| entry.to_owned()));
    }
    entries
}

fn names(shard: &mut Shard) -> Vec<String> {
    let told = ask(shard, CollectionCommand::Describe).ok().document();
    let indexes = told.get_array("indexes").unwrap().iter();
    indexes.map(|of| of.as_document().unwrap().get_str("name").unwrap().to_owned()).collect()
}

#[test]
fn documents_are_inserted_found_changed_and_removed() {
    let mut shard = shard(4 << 20);
    assert_eq!(ask(&mut shard, CollectionCommand::Describe).status, Status::NotFound);
    let all: Vec<Document> = (0..200).map(|at| doc! { "_id": at, "a": at % 10 }).collect();
    assert_eq!(insert(&mut shard, &all, true).ok().number, 200);
    shard.audit().unwrap();
    let (number, head, found) = find(&mut shard, doc! { "filter": { "_id": 7 } });
    assert_eq!((number, &found[..]), (1, &all[7..8]));
    assert_eq!((head.get_i64("keys").ok(), head.get_str("index").ok()), (Some(1), Some("_id_")));
    let (_, _, found) = find(&mut shard, doc! { "filter": { "_id": { "$gte": 190 } } });
    assert_eq!(found, all[190..]);
    let (number, head, _) = find(&mut shard, doc! { "count": true });
    assert_eq!((number, head.get_i64("keys").ok()), (200, Some(0)), "the tree knows");
    let changed =
        write(&mut shard, doc! { "q": { "a": 3 }, "u": { "$inc": { "a": 100 } }, "multi": true });
    assert_eq!((changed.0, changed.1), (20, 20));
    let again =
        write(&mut shard, doc! { "q": { "a": 103 }, "u": { "$set": { "a": 103 } }, "multi": true });
    assert_eq!((again.0, again.1), (20, 0), "what changes nothing is no change");
    assert_eq!(write(&mut shard, doc! { "q": { "a": 103 } }).0, 1);
    assert_eq!(write(&mut shard, doc! { "q": { "a": 103 }, "multi": true }).0, 19);
    shard.audit().unwrap();
    let told = ask(&mut shard, CollectionCommand::Describe).ok().document();
    assert_eq!(told.get_i64("count").ok(), Some(180));
    write(&mut shard, doc! { "q": {}, "multi": true });
    assert_eq!(find(&mut shard, doc! {}).0, 0);
    assert_eq!(ask(&mut shard, CollectionCommand::Describe).ok().number, 0, "it stays");
    shard.audit().unwrap();
}

#[test]
fn an_id_is_there_once() {
    let mut shard = shard(1 << 20);
    let documents = [doc! { "_id": 1 }, doc! { "_id": 1.0 }, doc! { "_id": 2 }];
    let answer = insert(&mut shard, &documents, true).ok();
    assert_eq!(answer.number, 1);
    let failures = answer.documents();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].get_i32("index").ok(), Some(1));
    assert_eq!(failures[0].get_i32("code").ok(), Some(11000));
    assert_eq!(
        failures[0].get_str("errmsg").ok(),
        Some("E11000 duplicate key error collection: db.coll index: _id_ dup key: { _id: 1.0 }")
    );
    assert_eq!(failures[0].get_document("keyPattern").ok(), Some(&doc! { "_id": 1 }));
    let answer = insert(&mut shard, &documents, false).ok();
    assert_eq!((answer.number, answer.documents().len()), (1, 2));
    let (_, _, reply) = write(
        &mut shard,
        doc! { "q": { "_id": 2, "a": 1 }, "u": { "$set": { "b": 1 } }, "upsert": true, "_id": 9 },
    );
    assert_eq!(reply.get_document("error").unwrap().get_i32("code").ok(), Some(11000));
    for (id, code) in [(bson::bson!([1]), 53), (Bson::from("x".repeat(600)), 17280)] {
        let answer = insert(&mut shard, &[doc! { "_id": id }], true).ok();
        assert_eq!(answer.documents()[0].get_i32("code").ok(), Some(code));
    }
    shard.audit().unwrap();
}

#[test]
fn what_none_matches_is_made_from_filter_and_update() {
    let mut shard = shard(1 << 20);
    let request = doc! {
        "q": { "a": 1, "b.c": "x", "d": { "$gt": 3 } }, "u": { "$inc": { "n": 2 }, "$setOnInsert": { "o": 1 } },
        "upsert": true, "_id": 77, "give": "after",
    };
    let (matched, _, reply) = write(&mut shard, request.clone());
    assert_eq!((matched, reply.get("upserted")), (0, Some(&Bson::Int32(77))));
    let made = doc! { "_id": 77, "a": 1, "b": { "c": "x" }, "n": 2, "o": 1 };
    assert_eq!(reply.get_document("document").ok(), Some(&made));
    let by_id = doc! { "q": { "_id": 5 }, "u": { "z": 1 }, "upsert": true, "_id": 78 };
    assert_eq!(write(&mut shard, by_id).2.get("upserted"), Some(&Bson::Int32(5)));
    let (matched, modified, reply) = write(
        &mut shard,
        doc! { "q": { "_id": 77 }, "u": { "$inc": { "n": 1 } }, "upsert": true, "give": "before" },
    );
    assert_eq!((matched, modified), (1, 1));
    assert_eq!(reply.get_document("document").ok(), Some(&made));
    let (_, _, reply) =
        write(&mut shard, doc! { "q": { "_id": 77 }, "u": { "_id": 78 }, "upsert": true });
    assert_eq!(reply.get_document("error").unwrap().get_i32("code").ok(), Some(66));
    shard.audit().unwrap();
}

#[test]
fn the_element_that_has_matched_is_changed() {
    let mut shard = shard(1 << 20);
    insert(&mut shard, &[doc! { "_id": 1, "a": [{ "b": 1 }, { "b": 2 }] }], true).ok();
    let request = doc! {
        "q": { "a.b": 2 }, "u": { "$set": { "a.$.c": 3 } }, "give": "after",
    };
    let (_, _, reply) = write(&mut shard, request);
    let wanted = doc! { "_id": 1, "a": [{ "b": 1 }, { "b": 2, "c": 3 }] };
    assert_eq!(reply.get_document("document").ok(), Some(&wanted));
}

#[test]
fn a_validator_refuses_documents() {
    let mut shard = shard(1 << 20);
    let options = doc! { "validator": { "a": { "$gt": 0 } } };
    ask(&mut shard, CollectionCommand::Create { options: &bytes(&options) }).ok();
    let again = ask(&mut shard, CollectionCommand::Create { options: &bytes(&options) });
    assert_eq!(again.status, Status::NotDone);
    let answer = insert(&mut shard, &[doc! { "_id": 1, "a": 0 }, doc! { "_id": 2, "a": 1 }], false);
    assert_eq!((answer.number, answer.documents()[0].get_i32("code").ok()), (1, Some(121)));
    let spoil = doc! { "q": { "_id": 2 }, "u": { "$set": { "a": -1 } } };
    let (_, modified, reply) = write(&mut shard, spoil.clone());
    assert_eq!(
        (modified, reply.get_document("error").unwrap().get_i32("code").ok()),
        (0, Some(121))
    );
    let mut moderate = options.clone();
    moderate.insert("validationLevel", "off");
    ask(&mut shard, CollectionCommand::SetOptions { options: &bytes(&moderate) }).ok();
    assert_eq!(write(&mut shard, spoil).1, 1);
    moderate.insert("validationLevel", "moderate");
    ask(&mut shard, CollectionCommand::SetOptions { options: &bytes(&moderate) }).ok();
    let bad_stays = doc! { "q": { "_id": 2 }, "u": { "$set": { "a": -2 } } };
    assert_eq!(write(&mut shard, bad_stays).1, 1, "it did not match before");
    let unknown = ask(
        &mut shard,
        CollectionCommand::SetOptions { options: &bytes(&doc! { "capped": true }) },
    );
    assert_eq!((unknown.status, unknown.number), (Status::Refused, 72));
}

#[test]
fn a_unique_index_takes_each_key_once() {
    let mut shard = shard(4 << 20);
    insert(&mut shard, &[doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": [2, 3] }], true).ok();
    assert_eq!(index(&mut shard, doc! { "a": 1 }, doc! { "unique": true }).ok().number, 1);
    let added = [
        doc! { "_id": 3, "a": 4 },
        doc! { "_id": 4, "a": 3 },
        doc! { "_id": 5, "a": 4 },
        doc! { "_id": 6 },
        doc! { "_id": 7, "a": null },
        doc! { "_id": 8, "a": [9, 9] },
    ];
    let answer = insert(&mut shard, &added, false).ok();
    let failed: Vec<i32> =
        answer.documents().iter().map(|of| of.get_i32("index").unwrap()).collect();
    assert_eq!((answer.number, &failed[..]), (3, &[1, 2, 4][..]));
    assert_eq!(
        answer.documents()[0].get_str("errmsg").ok(),
        Some("E11000 duplicate key error collection: db.coll index: a_1 dup key: { a: 3 }")
    );
    let clash = doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 9 } } };
    let (_, modified, reply) = write(&mut shard, clash);
    let error = reply.get_document("error").unwrap();
    assert_eq!((modified, error.get_i32("code").ok()), (0, Some(11000)));
    assert_eq!(error.get_document("keyValue").ok(), Some(&doc! { "a": 9 }));
    let own = doc! { "q": { "_id": 8 }, "u": { "$push": { "a": 9 } } };
    assert_eq!(write(&mut shard, own).1, 1, "its own keys are no others");
    // Keys that are longer than a tree's.
    let long = |end: &str| format!("{}{end}", "k".repeat(2_000));
    let longs = [doc! { "_id": 20, "a": long("1") }, doc! { "_id": 21, "a": long("2") }];
    assert_eq!(insert(&mut shard, &longs, true).ok().number, 2);
    let answer = insert(&mut shard, &[doc! { "_id": 22, "a": long("1") }], true).ok();
    assert_eq!(answer.documents()[0].get_i32("code").ok(), Some(11000));
    let (_, _, found) = find(&mut shard, doc! { "filter": { "a": long("2") }, "hint": "a_1" });
    assert_eq!(found, longs[1..]);
    shard.audit().unwrap();
    // An index that cannot be made leaves no trace.
    insert(&mut shard, &[doc! { "_id": 30, "b": 1, "a": 30 }], true).ok();
    let answer = index(&mut shard, doc! { "b": 1 }, doc! { "unique": true });
    assert_eq!((answer.status, answer.number), (Status::Refused, 11000));
    assert_eq!(names(&mut shard), ["_id_", "a_1"]);
    while shard.wants_release() {
        shard.release_some(NOW);
    }
    shard.audit().unwrap();
}

#[test]
fn indexes_that_conflict_are_refused_with_the_codes_of_mongodb() {
    let mut shard = shard(4 << 20);
    let code = |answer: Answer| match answer.status {
        Status::Ok => answer.number,
        Status::Refused => -answer.number,
        other => panic!("{other:?}"),
    };
    let named = |name: &str, key: Document, more: Document| {
        let mut spec = doc! { "key": key, "name": name };
        spec.extend(more);
        spec
    };
    for (spec, wanted) in [
        (named("a_1", doc! { "a": 1 }, doc! {}), 1),
        (named("a_1", doc! { "a": 1.0 }, doc! { "background": true, "v": 2 }), 0),
        (named("_id_", doc! { "_id": 1 }, doc! {}), 0),
        (named("other", doc! { "a": 1 }, doc! {}), -85),
        (named("a_1", doc! { "b": 1 }, doc! {}), -86),
        (named("a_1", doc! { "a": 1 }, doc! { "unique": true }), -86),
        (named("a_1", doc! { "a": 1 }, doc! { "expireAfterSeconds": 5 }), -85),
        (named("u", doc! { "a": 1 }, doc! { "unique": true }), 1),
        (named("g", doc! { "a": "2dsphere", "b": "2dsphere" }, doc! {}), -67),
        (named("g", doc! { "a": "2dsphere" }, doc! { "unique": true }), -67),
        (named("g", doc! { "b": 1, "a": "2d" }, doc! {}), -67),
        (named("g", doc! { "a": "2d" }, doc! { "min": 5, "max": 5 }), -72),
        (named("g", doc! { "a": "2d" }, doc! { "min": "x" }), -67),
        (named("g", doc! { "a": "2dsphere" }, doc! { "2dsphereIndexVersion": 1 }), -67),
        (
            named(
                "l",
                doc! { "a": 1 },
                doc! { "partialFilterExpression": { "b": "x".repeat(70_000) } },
            ),
            -67,
        ),
        (named("t", doc! { "a": "text" }, doc! {}), -67),
        (named("w", doc! { "$**": 1 }, doc! {}), -67),
        (named("z", doc! { "a": 0 }, doc! {}), -67),
        (named("e", doc! {}, doc! {}), -67),
        (named("h", doc! { "a": "hashed" }, doc! { "unique": true }), -16764),
        (named("c", doc! { "c": 1 }, doc! { "collation": { "locale": "fr" } }), -72),
        (named("c", doc! { "c": 1 }, doc! { "collation": { "locale": "simple" } }), 1),
        (named("x", doc! { "c": 1 }, doc! { "what": 1 }), -197),
        (named("p", doc! { "a": 1 }, doc! { "sparse": true, "partialFilterExpression": {} }), -67),
        (named("t", doc! { "a": 1, "b": 1 }, doc! { "expireAfterSeconds": 5 }), -67),
    ] {
        let told = spec.clone();
        assert_eq!(code(create_index(&mut shard, spec)), wanted, "{told}");
    }
    assert_eq!(names(&mut shard), ["_id_", "a_1", "u", "c"]);
    let drop = |shard: &mut Shard, name: &[u8]| ask(shard, CollectionCommand::DropIndex { name });
    assert_eq!(drop(&mut shard, b"none").status, Status::NotFound);
    assert_eq!(drop(&mut shard, b"_id_").number, 72);
    drop(&mut shard, b"u").ok();
    assert_eq!(names(&mut shard), ["_id_", "a_1", "c"]);
    let answer =
        ask(&mut shard, CollectionCommand::Find { request: &bytes(&doc! { "hint": { "u": 1 } }) });
    assert_eq!((answer.status, answer.number), (Status::Refused, 2));
    insert(&mut shard, &[doc! { "_id": 1, "a": [1], "b": [2] }], true).ok();
    assert_eq!(index(&mut shard, doc! { "a": 1, "b": 1 }, doc! {}).number, 171);
    while shard.wants_release() {
        shard.release_some(NOW);
    }
    shard.audit().unwrap();
}

#[test]
fn documents_expire_by_their_index() {
    let mut shard = shard(8 << 20);
    let at = |ms: i64| DateTime::from_millis(NOW.unix_ms as i64 + ms);
    let mut all: Vec<Document> =
        (0..300).map(|id| doc! { "_id": id, "at": at(i64::from(id) * 1000) }).collect();
    all.push(doc! { "_id": 1000, "at": "never" });
    all.push(doc! { "_id": 1001, "at": [at(900_000_000), at(-1)] });
    all.push(doc! { "_id": 1002 });
    insert(&mut shard, &all, true).ok();
    for key in [doc! { "at": -1 }, doc! { "at": 1 }] {
        index(&mut shard, key, doc! { "expireAfterSeconds": 10 }).ok();
    }
    assert!(shard.wants_ticks());
    let later = Now { unix_ms: NOW.unix_ms + 110_500, ..NOW };
    shard.tick(later);
    for _ in 0..100 {
        shard.release_some(later);
    }
    let (_, _, found) = find(&mut shard, doc! {});
    let left: Vec<i32> = found.iter().map(|of| of.get_i32("_id").unwrap()).collect();
    let wanted: Vec<i32> = (101..300).chain([1000, 1002]).collect();
    assert_eq!(left, wanted);
    shard.audit().unwrap();
}

#[test]
fn sparse_partial_and_hashed_indexes_have_what_they_promise() {
    let mut shard = shard(8 << 20);
    let all: Vec<Document> = (0..400)
        .map(|id| match id % 4 {
            0 => doc! { "_id": id },
            1 => doc! { "_id": id, "a": null, "b": id },
            _ => doc! { "_id": id, "a": id / 4, "b": id },
        })
        .collect();
    insert(&mut shard, &all, true).ok();
    index(&mut shard, doc! { "a": 1 }, doc! { "sparse": true }).ok();
    index(
        &mut shard,
        doc! { "b": 1 },
        doc! { "partialFilterExpression": { "b": { "$gte": 200 } } },
    )
    .ok();
    index(&mut shard, doc! { "a": "hashed" }, doc! {}).ok();
    shard.audit().unwrap();
    let used = |shard: &mut Shard, filter: Document| {
        let model = Filter::parse(&raw(&filter)).unwrap();
        let wanted = all.iter().filter(|of| model.matches(&raw(of))).count();
        let (number, head, _) = find(shard, doc! { "filter": filter });
        assert_eq!(number, wanted as i64);
        head.get_str("index").unwrap().to_owned()
    };
    assert_eq!(used(&mut shard, doc! { "a": 50 }), "a_1");
    assert_eq!(used(&mut shard, doc! { "a": { "$gt": 90 } }), "a_1");
    assert_ne!(used(&mut shard, doc! { "a": null }), "a_1", "it lacks those without the field");
    assert_ne!(used(&mut shard, doc! { "a": { "$exists": false } }), "a_1");
    assert_eq!(used(&mut shard, doc! { "b": { "$gt": 390 } }), "b_1");
    assert_eq!(used(&mut shard, doc! { "b": 250, "a": { "$ne": 1 } }), "b_1");
    assert_eq!(used(&mut shard, doc! { "b": { "$gt": 100 } }), "_id_");
    ask(&mut shard, CollectionCommand::DropIndex { name: b"a_1" }).ok();
    assert_eq!(used(&mut shard, doc! { "a": 50 }), "a_hashed");
    assert_eq!(used(&mut shard, doc! { "a": { "$gt": 90 } }), "_id_");
}

/// A large collection: searches, updates, removals and indexes go in steps, between which it changes.
#[test]
fn steps_go_on_behind_the_last_key_whatever_happens_meanwhile() {
    let mut shard = shard(64 << 20);
    let all: Vec<Document> =
        (0..6_000).map(|id| doc! { "_id": id * 2, "a": id % 50, "s": "t".repeat(40) }).collect();
    for some in all.chunks(500) {
        assert_eq!(insert(&mut shard, some, true).ok().number, 500);
    }
    // An index that is built while documents come, change and go.
    let spec = doc! { "spec": { "key": { "a": 1 }, "name": "a_1" } };
    let mut steps = 0;
    loop {
        let answer =
            ask(&mut shard, CollectionCommand::CreateIndex { request: &bytes(&spec) }).ok();
        let document = doc! { "_id": steps * 2 + 1, "a": 1_000 + steps };
        insert(&mut shard, &[document, doc! { "_id": 11_999 - 2 * steps, "a": -1 }], true).ok();
        write(&mut shard, doc! { "q": { "_id": steps * 2 }, "u": { "$inc": { "a": 7 } } });
        write(&mut shard, doc! { "q": { "_id": 11_900 - 2 * steps } });
        let (_, head, _) = find_step(&mut shard, &doc! { "filter": { "a": 3 } });
        assert_eq!(head.get_str("index").ok() == Some("a_1"), answer.number == 1);
        shard.audit().unwrap();
        steps += 1;
        if answer.number == 1 {
            break;
        }
    }
    assert!(steps > 10, "{steps}");
    // A search that loses documents, and gets others, between its steps: what stays is given once.
    for hint in ["a_1", "_id_"] {
        let mut request = doc! { "hint": hint, "filter": { "a": { "$gte": 0, "$lt": 60 } } };
        let (mut found, mut gone) = (Vec::new(), 0);
        loop {
            let (_, head, some) = find_step(&mut shard, &request);
            assert!(some.len() <= 600);
            found.extend(some.into_iter().map(|of| of.get_i32("_id").unwrap()));
            let Some(at) = head.get("at") else { break };
            request.insert("at", at.clone());
            let q = doc! { "_id": { "$mod": [20, gone * 2 % 20] }, "a": 90 };
            write(&mut shard, doc! { "q": q, "multi": true });
            insert(&mut shard, &[doc! { "_id": 50_000 + gone, "a": gone % 60 }], true).ok();
            gone += 1;
        }
        assert!(gone > 5);
        let before = found.len();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), before, "none twice");
        assert!(
            all[100..2_000]
                .iter()
                .all(|of| { found.binary_search(&of.get_i32("_id").unwrap()).is_ok() })
        );
        write(&mut shard, doc! { "q": { "_id": { "$gte": 50_000 } }, "multi": true });
    }
    // An update that moves its documents forward in the index meets each of them once.
    let (_, _, head) = write(
        &mut shard,
        doc! { "q": { "a": { "$gte": 0 } }, "u": { "$inc": { "a": 1 } }, "multi": true },
    );
    assert!(head.get("error").is_none());
    let (count, _, _) = find(&mut shard, doc! { "filter": { "a": 0 }, "count": true });
    assert_eq!(count, 0);
    shard.audit().unwrap();
    // The index goes: a search that began with it ends.
    let request = doc! { "hint": "a_1" };
    let (_, head, _) = find_step(&mut shard, &request);
    ask(&mut shard, CollectionCommand::DropIndex { name: b"a_1" }).ok();
    let request = doc! { "at": head.get("at").unwrap().clone() };
    let answer = ask(&mut shard, CollectionCommand::Find { request: &bytes(&request) });
    assert_eq!((answer.status, answer.number), (Status::Refused, 175));
    while shard.wants_release() {
        shard.release_some(NOW);
    }
    shard.audit().unwrap();
}

#[test]
fn an_index_that_nothing_goes_on_with_ends() {
    let mut shard = shard(16 << 20);
    let all: Vec<Document> = (0..2_000).map(|id| doc! { "_id": id, "a": id }).collect();
    insert(&mut shard, &all, true).ok();
    let spec = doc! { "spec": { "key": { "a": 1 }, "name": "a_1" } };
    ask(&mut shard, CollectionCommand::CreateIndex { request: &bytes(&spec) }).ok();
    assert!(shard.wants_ticks());
    let used = shard.used_bytes();
    for second in 0..200 {
        shard.tick(Now { since_start_s: NOW.since_start_s + second, ..NOW });
    }
    while shard.wants_release() {
        shard.release_some(NOW);
    }
    assert!(shard.used_bytes() < used);
    shard.audit().unwrap();
    assert_eq!(names(&mut shard), ["_id_"]);
    assert_eq!(create_index(&mut shard, spec.get_document("spec").unwrap().clone()).number, 1);
}

#[test]
fn a_document_of_the_longest_kind_is_kept_and_a_longer_one_refused() {
    let mut shard = shard(128 << 20);
    let longest = 16 << 20;
    let text = "x".repeat(longest - bytes(&doc! { "_id": 1, "t": "" }).len());
    let document = doc! { "_id": 1, "t": text };
    assert_eq!(bytes(&document).len(), longest);
    assert_eq!(insert(&mut shard, std::slice::from_ref(&document), true).ok().number, 1);
    let (_, _, found) = find(&mut shard, doc! { "filter": { "_id": 1 } });
    assert_eq!(found, [document]);
    let longer = doc! { "q": { "_id": 1 }, "u": { "$set": { "one": 1 } } };
    let (_, modified, reply) = write(&mut shard, longer);
    assert_eq!(
        (modified, reply.get_document("error").unwrap().get_i32("code").ok()),
        (0, Some(10334))
    );
    shard.audit().unwrap();
}

#[test]
fn full_memory_leaves_no_trace() {
    let mut refused = 0;
    for (seed, size) in [(1, 60), (2, 900), (3, 9_000)] {
        let mut shard = shard(2 << 20);
        index(&mut shard, doc! { "a": 1 }, doc! {}).ok();
        index(&mut shard, doc! { "b": -1, "a": 1 }, doc! {}).ok();
        let mut random = Random::new(seed);
        let mut model = Model::new();
        for step in 0..3_000 {
            let a = bson::Array::from_iter((0..random.below(9)).map(|_| Bson::Int64(step)));
            let text = "y".repeat(random.below(size) as usize);
            let id = random.below(2_000) as i64;
            let document = doc! { "_id": id, "a": a, "b": step, "text": text };
            let before = shard.digest();
            let answer = match random.one_in(2) {
                true => insert(&mut shard, std::slice::from_ref(&document), true),
                false => write_step(
                    &mut shard,
                    &doc! { "q": { "_id": id }, "u": document.clone(), "upsert": true },
                ),
            };
            match answer.status {
                Status::OutOfMemory => {
                    refused += 1;
                    assert!(shard.digest() == before);
                    if refused % 50 == 0 {
                        shard.audit().unwrap();
                        write(
                            &mut shard,
                            doc! { "q": { "_id": { "$mod": [3, 0] } }, "multi": true },
                        );
                        model.retain(|_, of| of.get_i64("_id").unwrap() % 3 != 0);
                    }
                }
                Status::Ok if answer.number == 0 && shard.digest() == before => {}
                Status::Ok => drop(model.insert(id_of(&document), document)),
                other => panic!("{other:?}"),
            }
        }
        let (_, _, all) = find(&mut shard, doc! {});
        assert!(all.iter().map(bytes).eq(model.values().map(bytes)));
        shard.audit().unwrap();
    }
    assert!(refused > 300, "{refused}");
}

/// The version of the indexes, and the description of each: its name, its fields with several values, and
/// where its tree lies.
fn told(shard: &mut Shard) -> (i64, Vec<(String, i64, [i64; 3])>) {
    let answer = ask(shard, CollectionCommand::Indexes).ok();
    let all = answer.document();
    let index = |of: &Bson| {
        let of = of.as_document().unwrap();
        let name = of.get_document("spec").unwrap().get_str("name").unwrap().to_owned();
        let place = ["record", "at", "generation"].map(|name| of.get_i64(name).unwrap());
        (name, of.get_i64("multikey").unwrap(), place)
    };
    (answer.number, all.get_array("indexes").unwrap().iter().map(index).collect())
}

#[test]
fn clients_are_told_the_indexes_that_searches_may_use_and_when_these_change() {
    let mut shard = shard(4 << 20);
    assert_eq!(ask(&mut shard, CollectionCommand::Indexes).status, Status::NotFound);
    let all: Vec<Document> = (0..50).map(|at| doc! { "_id": at, "a": at, "b": at }).collect();
    insert(&mut shard, &all, true).ok();
    let (first, indexes) = told(&mut shard);
    assert_eq!((indexes.len(), &*indexes[0].0, indexes[0].1), (1, "_id_", 0));
    let make = |shard: &mut Shard, spec: Document| {
        let request = bytes(&doc! { "spec": spec });
        let request = CollectionCommand::CreateIndex { request: &request };
        assert_eq!(ask(shard, request).ok().number, 1);
    };
    make(&mut shard, doc! { "key": { "a": 1, "b": 1 }, "name": "ab" });
    make(&mut shard, doc! { "key": { "b": 1 }, "name": "b", "hidden": true });
    let (made, indexes) = told(&mut shard);
    assert!(made > first);
    let names: Vec<&str> = indexes.iter().map(|(name, ..)| &**name).collect();
    assert_eq!(names, ["_id_", "ab"], "one is hidden");
    let [record, at, generation] = indexes[1].2;
    assert!(record > 0 && at > record && generation > 0 && indexes[0].2[0] != record);
    // What changes no form changes no version.
    insert(&mut shard, &[doc! { "_id": 100, "a": 1 }], true).ok();
    write(&mut shard, doc! { "q": { "_id": 3 }, "u": { "$set": { "a": 70 } } });
    write(&mut shard, doc! { "q": { "_id": 4 } });
    assert_eq!(told(&mut shard).0, made);
    insert(&mut shard, &[doc! { "_id": 101, "b": [1, 2] }], true).ok();
    let (several, indexes) = told(&mut shard);
    assert!(several > made);
    assert_eq!((indexes[1].1, indexes[1].2), (2, [record, at, generation]), "the second field");
    insert(&mut shard, &[doc! { "_id": 102, "b": [1, 2] }], true).ok();
    assert_eq!(told(&mut shard).0, several);
    ask(&mut shard, CollectionCommand::DropIndex { name: b"ab" }).ok();
    assert_eq!(told(&mut shard).1.len(), 1);
    shard.audit().unwrap();
}

#[test]
fn plans_take_documents_as_names_and_texts_in_steps() {
    let mut shard = shard(8 << 20);
    let rows = |shard: &mut Shard, filter: &[u8], at: &[u8], count: u32| {
        ask(shard, CollectionCommand::Rows { filter, at, count })
    };
    assert_eq!(rows(&mut shard, b"{}", b"", 5).status, Status::NotFound);
    let all: Vec<Document> =
        (0..1_500).map(|at| doc! { "_id": at, "a": "text", "b": { "c": at % 2 } }).collect();
    insert(&mut shard, &all, true).ok();
    let (mut at, mut found) = (Vec::new(), Vec::new());
    loop {
        let answer = rows(&mut shard, br#"{"b.c": 1}"#, &at, 100).ok();
        let (next, documents) = split_rows(&answer.value).unwrap();
        let before = found.len();
        for fields in documents {
            found.push(fields.iter().map(|word| word.unwrap().to_vec()).collect::<Vec<_>>());
        }
        assert_eq!(found.len() - before, answer.number as usize);
        assert!(answer.number <= 100);
        at = next.to_vec();
        if at.is_empty() {
            break;
        }
    }
    assert_eq!(found.len(), 750);
    let words: Vec<&[u8]> = found[1].iter().map(|word| &word[..]).collect();
    assert_eq!(words, [&b"_id"[..], b"3", b"a", b"text", b"b", br#"{"c":1}"#]);
    for wrong in [&b"{"[..], b"\xff", br#"{"a": {"$wrong": 1}}"#] {
        assert_eq!(rows(&mut shard, wrong, b"", 5).status, Status::Refused);
    }
    assert_eq!(rows(&mut shard, b"{}", b"nowhere", 5).status, Status::Refused);
}

/// An update that moves documents along the index of its hint ends, and changes each of them once.
#[test]
fn an_update_with_a_hint_changes_each_document_once() {
    let mut shard = shard(8 << 20);
    let all: Vec<Document> = (0..1000).map(|at| doc! { "_id": at, "a": at }).collect();
    insert(&mut shard, &all, true).ok();
    index(&mut shard, doc! { "a": 1 }, doc! {}).ok();
    let update = doc! { "q": { "a": { "$gte": 0 } }, "u": { "$inc": { "a": 100_000 } },
    "multi": true, "hint": "a_1" };
    let (matched, modified, _) = write(&mut shard, update);
    assert_eq!((matched, modified), (1000, 1000));
    let (number, ..) = find(&mut shard, doc! { "filter": { "a": { "$gte": 200_000 } } });
    assert_eq!(number, 0);
}

/// A search does not go on in another index, or another collection, of the same name.
#[test]
fn a_search_ends_with_its_index_and_its_collection() {
    let mut shard = shard(8 << 20);
    let all: Vec<Document> = (0..300).map(|at| doc! { "_id": at, "a": at, "b": -at }).collect();
    insert(&mut shard, &all, true).ok();
    let x = |field: &str| doc! { "key": { field: 1 }, "name": "x" };
    create_index(&mut shard, x("a")).ok();
    let begin = |shard: &mut Shard, hint: &str| {
        let mut request = doc! { "hint": hint, "limit": 10 };
        let (_, head, _) = find_step(shard, &request);
        request.insert("at", head.get("at").unwrap().clone());
        request
    };
    let killed = |shard: &mut Shard, request: &Document| {
        let answer = ask(shard, CollectionCommand::Find { request: &bytes(request) });
        assert_eq!((answer.status, answer.number), (Status::Refused, 175), "{}", answer.text());
    };
    let in_index = begin(&mut shard, "x");
    let in_ids = begin(&mut shard, "_id_");
    ask(&mut shard, CollectionCommand::DropIndex { name: b"x" }).ok();
    killed(&mut shard, &in_index);
    create_index(&mut shard, x("b")).ok();
    killed(&mut shard, &in_index);
    assert_eq!(find_step(&mut shard, &in_ids).2.len(), 10);
    shard.execute(&Command::Del { key: KEY }, shard.hash(KEY), NOW);
    killed(&mut shard, &in_ids);
    insert(&mut shard, &all, true).ok();
    killed(&mut shard, &in_ids);
}

/// A place far from all documents does not get all of them as one ring.
#[test]
fn a_ring_has_some_documents_however_far_it_begins() {
    let mut shard = shard(32 << 20);
    let mut random = Random::new(2);
    let mut place = || 10.0 + random.below(1_000_000) as f64 / 1e8;
    let all: Vec<Document> =
        (0..20_000).map(|at| doc! { "_id": at, "at": [place(), place()] }).collect();
    for some in all.chunks(1000) {
        insert(&mut shard, some, true).ok();
    }
    index(&mut shard, doc! { "at": "2dsphere" }, doc! {}).ok();
    let near = doc! { "at": { "$nearSphere": [0, 40] } };
    let (mut request, mut number) = (doc! { "filter": near, "near": { "from": 0.0 } }, 0);
    let to = loop {
        let (some, head, _) = find_step(&mut shard, &request);
        number += some;
        let to = head.get_f64("to").unwrap();
        request.insert("near", doc! { "from": 0.0, "to": to });
        match head.get("at") {
            Some(at) => request.insert("at", at.clone()),
            None => break to,
        };
    };
    assert!((1..2000).contains(&number) && to.is_finite(), "{number} documents up to {to}");
}
