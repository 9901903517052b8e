//! `$out`, `$merge` and `renameCollection`, against a model of shards: what the collections are at each step.

use crate::fixture::{body, msg, whole};
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc, rawdoc};
use remora_document::{Filter, Update, UpdateContext, Variables};
use remora_frontend::OwnedReply;
use remora_mongo::commands::spec;
use remora_mongo::running::{Begun, Context, MongoServer, Step};
use remora_mongo::wire::Body;
use remora_mongo::{Command, CommandError};
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use remora_protocol::{Command as Question, Items, Request};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A collection: its options, unique fields and documents.
#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    options: Document,
    unique: Vec<String>,
    documents: Vec<Document>,
    expires: bool,
}

/// All collections of a server.
#[derive(Default)]
struct Shards {
    all: BTreeMap<Vec<u8>, Model>,
    /// The target of an `$out`, and what it was when the command began.
    watched: Option<(Vec<u8>, Model)>,
    /// Inserts this document before the first insertion of others.
    rival: Option<(Vec<u8>, Document)>,
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn listed(documents: &[Document]) -> Vec<u8> {
    let mut list = Vec::new();
    documents.iter().for_each(|document| Items::push(&mut list, raw(document).as_bytes()));
    list
}

fn ok(number: i64, value: Vec<u8>) -> OwnedReply {
    OwnedReply { number, value: Some(value), ..OwnedReply::status(Status::Ok) }
}

impl Model {
    fn insert(&mut self, document: Document) -> Result<(), Document> {
        for field in self.unique.iter().map(String::as_str).chain(["_id"]) {
            if self.documents.iter().any(|other| other.get(field) == document.get(field)) {
                let value = document.get(field).cloned().unwrap_or(Bson::Null);
                return Err(doc! {
                    "index": 0, "code": 11000, "errmsg": "E11000",
                    "keyPattern": { field: 1 }, "keyValue": { field: value },
                });
            }
        }
        self.documents.push(document);
        Ok(())
    }

    fn write(&mut self, request: &RawDocument) -> OwnedReply {
        let values = request.get_document("let").ok();
        let variables = Variables::parse(0, 0, values).unwrap();
        let filter = Filter::parse(request.get_document("q").unwrap()).unwrap();
        let update = match request.get_array("u") {
            Ok(stages) => Update::parse_pipeline(stages, &variables).unwrap(),
            Err(_) => Update::parse(request.get_document("u").unwrap(), &[]).unwrap(),
        };
        let found = self.documents.iter_mut().find(|document| filter.matches(&raw(document)));
        let Some(document) = found else { return ok(0, raw(&doc! { "modified": 0 }).into_bytes()) };
        let context = UpdateContext { now_ms: 0, found: None, is_insert: false };
        update.apply(document, &context).unwrap();
        ok(1, raw(&doc! { "modified": 1 }).into_bytes())
    }
}

impl Shards {
    fn describe(&self, key: &[u8]) -> OwnedReply {
        let Some(model) = self.all.get(key) else { return OwnedReply::status(Status::NotFound) };
        let mut indexes = vec![doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" }];
        let unique = model.unique.iter();
        indexes.extend(unique.map(|of| doc! { "key": { of: 1 }, "name": of, "unique": true }));
        let told = doc! { "options": model.options.clone(), "indexes": indexes };
        ok(model.documents.len() as i64, raw(&told).into_bytes())
    }

    fn collection(&mut self, key: &[u8], command: CollectionCommand<'_>) -> OwnedReply {
        let document = |bytes| RawDocument::from_bytes(bytes).unwrap();
        match command {
            CollectionCommand::Describe => self.describe(key),
            CollectionCommand::Create { options } => {
                let options = Document::try_from(document(options)).unwrap();
                self.all.insert(key.to_vec(), Model { options, ..Model::default() });
                ok(1, Vec::new())
            }
            CollectionCommand::CreateIndex { request } => {
                let spec = document(request).get_document("spec").unwrap();
                let name = spec.get_str("name").unwrap().to_owned();
                self.all.get_mut(key).unwrap().unique.push(name);
                ok(1, raw(&doc! {}).into_bytes())
            }
            CollectionCommand::Find { .. } => {
                let mut all = vec![doc! { "sorted": true }];
                all.extend(self.all.get(key).cloned().unwrap_or_default().documents);
                ok(all.len() as i64 - 1, listed(&all))
            }
            CollectionCommand::Insert { documents, .. } => {
                if let Some((key, document)) = self.rival.take() {
                    self.all.entry(key).or_default().insert(document).unwrap();
                }
                let model = self.all.entry(key.to_vec()).or_default();
                for bytes in documents.iter().flatten() {
                    let new = Document::try_from(document(bytes)).unwrap();
                    if let Err(failure) = model.insert(new) {
                        return ok(0, listed(&[failure]));
                    }
                }
                ok(documents.iter().count() as i64, Vec::new())
            }
            CollectionCommand::Write { request } => match self.all.get_mut(key) {
                Some(model) => model.write(document(request)),
                None => ok(0, raw(&doc! { "modified": 0 }).into_bytes()),
            },
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, question: &[u8]) -> OwnedReply {
        let (_, command, _) = Question::decode_within(question).unwrap();
        if let Some((key, model)) = &self.watched {
            assert_eq!(&self.all[key], model, "it is as it was");
        }
        match command {
            Question::Of { key, request: Request::Collection(command) } => {
                self.collection(key, command)
            }
            Question::Del { key } => ok(i64::from(self.all.remove(key).is_some()), Vec::new()),
            Question::Expire { key, .. } => {
                self.all.get_mut(key).unwrap().expires = true;
                ok(1, Vec::new())
            }
            Question::Persist { key } => {
                self.all.get_mut(key).unwrap().expires = false;
                ok(1, Vec::new())
            }
            other => panic!("{other:?}"),
        }
    }

    fn give(&mut self, from: &[u8], to: &[u8], replaces: bool) -> OwnedReply {
        if !replaces && self.all.contains_key(to) {
            return ok(0, Vec::new());
        }
        let model = self.all.remove(from).unwrap();
        self.all.insert(to.to_vec(), model);
        ok(1, Vec::new())
    }

    fn run(&mut self, command: RawDocumentBuf) -> Result<Document, CommandError> {
        let bytes = msg(0, &[body(command.as_bytes())]);
        let Body::Msg(message) = whole(&bytes).body else { panic!("an OP_MSG") };
        let command = Command::of(&message)?;
        let server = Arc::new(MongoServer::new(("0", 1), 0, [7; 32]));
        let mut context = Context {
            server: &server,
            now_ms: 1000,
            connection: 1,
            shards: 1,
            user: None,
            rights: None,
        };
        let (begun, _) = spec(command.name()).unwrap().begin(&command, &mut context)?;
        let document = |bytes| Document::try_from(RawDocument::from_bytes(bytes).unwrap());
        let mut running = match begun {
            Begun::Reply(reply) => return Ok(document(&reply).unwrap()),
            Begun::Running(running) => running,
        };
        let mut answer = None;
        for _ in 0..10_000 {
            answer = match running.next(answer.take(), &mut context)? {
                Step::Done(reply) => return Ok(document(&reply).unwrap()),
                Step::Ask { question, .. } | Step::Scan(_, question) => {
                    Some(self.answer(&question))
                }
                Step::Move { from, to, replaces } => {
                    self.watched = None;
                    Some(self.give(&from, &to, replaces))
                }
                Step::Yield => None,
            };
        }
        panic!("it does not end");
    }

    fn aggregate(&mut self, pipeline: Vec<RawDocumentBuf>) -> Result<Document, CommandError> {
        self.run(rawdoc! {
            "aggregate": "from", "pipeline": bson::RawArrayBuf::from_iter(pipeline),
            "cursor": {}, "$db": "db",
        })
    }

    /// The documents of a collection, in the order of their `_id`s.
    fn documents(&self, key: &str) -> Vec<Document> {
        let mut all = self.all[key.as_bytes()].documents.clone();
        all.sort_by_key(|document| document.get_i32("_id").unwrap_or_default());
        all
    }
}

/// The collections `from`, with these documents, and `to`.
fn shards(from: Vec<Document>, to: Model) -> Shards {
    let mut shards = Shards::default();
    shards.all.insert(b"db.from".to_vec(), Model { documents: from, ..Model::default() });
    shards.all.insert(b"db.to".to_vec(), to);
    shards
}

#[test]
fn out_replaces_a_collection_at_once_and_keeps_its_options_and_indexes() {
    let from: Vec<Document> = (0..1000).map(|of| doc! { "_id": of, "x": of }).collect();
    let old = Model {
        options: doc! { "validationLevel": "off" },
        unique: vec!["x".to_owned()],
        documents: vec![doc! { "_id": 5000 }],
        expires: false,
    };
    let mut shards = shards(from.clone(), old.clone());
    shards.watched = Some((b"db.to".to_vec(), old.clone()));
    let reply = shards.aggregate(vec![rawdoc! { "$out": "to" }]).unwrap();
    assert!(reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().is_empty());
    assert_eq!(shards.all[&b"db.to"[..]], Model { documents: from, ..old });
    assert_eq!(shards.all.len(), 2);
}

#[test]
fn out_leaves_a_collection_and_nothing_else_if_it_fails() {
    let from = vec![doc! { "_id": 1, "x": 1 }, doc! { "_id": 2, "x": 1 }];
    let old = Model { unique: vec!["x".to_owned()], ..Model::default() };
    let mut shards = shards(from, old.clone());
    shards.watched = Some((b"db.to".to_vec(), old.clone()));
    let error = shards.aggregate(vec![rawdoc! { "$out": "to" }]).unwrap_err();
    assert_eq!(error.number, 11000);
    assert_eq!(
        error.fields.as_deref().unwrap().get_document("keyPattern").unwrap(),
        &*rawdoc! { "x": 1 }
    );
    assert_eq!((&shards.all[&b"db.to"[..]], shards.all.len()), (&old, 2));
}

/// What `$merge` with these options makes of two documents, one of which agrees.
fn merged(options: &RawDocument) -> Result<Vec<Document>, CommandError> {
    let from = vec![doc! { "_id": 1, "a": "new" }, doc! { "_id": 2, "a": "new" }];
    let documents = vec![doc! { "_id": 1, "a": "old", "b": "old" }];
    let mut shards = shards(from, Model { documents, ..Model::default() });
    let mut argument = rawdoc! { "into": "to" };
    for (name, value) in options.iter().flatten() {
        argument.append(name, value);
    }
    shards.aggregate(vec![rawdoc! { "$merge": argument }])?;
    Ok(shards.documents("db.to"))
}

#[test]
fn merge_does_with_each_document_what_it_is_told() {
    let (second, old) = (doc! { "_id": 2, "a": "new" }, doc! { "_id": 1, "a": "old", "b": "old" });
    let all = doc! { "_id": 1, "a": "new", "b": "old" };
    assert_eq!(merged(&rawdoc! {}), Ok(vec![all.clone(), second.clone()]));
    assert_eq!(merged(&rawdoc! { "whenNotMatched": "discard" }), Ok(vec![all]));
    assert_eq!(
        merged(&rawdoc! { "whenMatched": "replace" }),
        Ok(vec![doc! { "_id": 1, "a": "new" }, second.clone()])
    );
    assert_eq!(merged(&rawdoc! { "whenMatched": "keepExisting" }), Ok(vec![old.clone(), second]));
    let stages = rawdoc! { "whenMatched": [{ "$set": { "b": "$$new.a", "c": "$a" } }] };
    let first = merged(&stages).unwrap().swap_remove(0);
    assert_eq!(first, doc! { "_id": 1, "a": "old", "b": "new", "c": "old" });
    let stages = rawdoc! { "let": { "v": "$a" }, "whenMatched": [{ "$set": { "b": "$$v" } }] };
    assert_eq!(merged(&stages).unwrap()[0], doc! { "_id": 1, "a": "old", "b": "new" });
}

#[test]
fn merge_fails_where_it_is_told_to() {
    let code = |options: &RawDocument| merged(options).map_err(|error| error.number);
    assert_eq!(code(&rawdoc! { "whenMatched": "fail" }), Err(11000));
    assert_eq!(code(&rawdoc! { "whenNotMatched": "fail" }), Err(13113));
    // No unique index has the field, so several documents could agree.
    assert_eq!(code(&rawdoc! { "on": "a" }), Err(51183));
    let both = rawdoc! { "whenMatched": "keepExisting", "whenNotMatched": "discard" };
    assert_eq!(code(&both), Err(51181));
}

#[test]
fn merge_looks_again_for_a_document_that_another_client_inserts() {
    let mut shards = shards(vec![doc! { "_id": 1, "a": 1 }], Model::default());
    shards.rival = Some((b"db.to".to_vec(), doc! { "_id": 1, "b": 2 }));
    shards.aggregate(vec![rawdoc! { "$merge": "to" }]).unwrap();
    assert_eq!(shards.documents("db.to"), [doc! { "_id": 1, "b": 2, "a": 1 }]);
}

#[test]
fn merge_needs_the_values_of_the_fields_on_which_documents_agree() {
    let code = |document: Document| {
        let unique = vec!["x".to_owned()];
        let mut shards = shards(vec![document], Model { unique, ..Model::default() });
        let merge = rawdoc! { "$merge": { "into": "to", "on": "x" } };
        shards
            .aggregate(vec![merge])
            .map(|_| shards.documents("db.to").len())
            .map_err(|error| error.number)
    };
    assert_eq!(code(doc! { "_id": 1 }), Err(51132));
    assert_eq!(code(doc! { "_id": 1, "x": null }), Err(51132));
    assert_eq!(code(doc! { "_id": 1, "x": [1] }), Err(51185));
    assert_eq!(code(doc! { "_id": 1, "x": 1 }), Ok(1));
}

#[test]
fn a_collection_gets_another_name() {
    let rename = |to: &str, drop: bool| {
        let mut shards = shards(vec![doc! { "_id": 1 }], Model::default());
        let command = rawdoc! {
            "renameCollection": "db.from", "to": to, "dropTarget": drop, "$db": "admin",
        };
        let result = shards.run(command).map(|_| shards.documents(to).len());
        (result.map_err(|error| error.number), shards.all.len())
    };
    assert_eq!(rename("other.new", false), (Ok(1), 2));
    assert_eq!(rename("db.to", false), (Err(48), 2));
    assert_eq!(rename("db.to", true), (Ok(1), 1));
    assert_eq!(rename("db.from", false), (Err(20), 2));
    let missing = rawdoc! { "renameCollection": "db.none", "to": "db.x", "$db": "admin" };
    assert_eq!(Shards::default().run(missing).unwrap_err().number, 26);
}
