//! Commands as a server carries them out, whose shards are lists of documents that answer a few of them at a time.

use crate::fixture::{body, msg, op_msg, whole};
use bson::raw::RawDocumentBuf;
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use remora_document::{Filter, Variables};
use remora_frontend::OwnedReply;
use remora_layout::kind::Kind;
use remora_mongo::commands::spec;
use remora_mongo::running::{Begun, Context, MongoServer, Rights, Running, Step};
use remora_mongo::{Command, CommandError, ErrorCode};
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use remora_protocol::{Command as Question, Items, ScannedKeys};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A server whose collections have these documents, and a client of it.
pub struct Client {
    pub server: Arc<MongoServer>,
    pub collections: BTreeMap<String, Vec<Document>>,
    /// Documents that a shard looks at in one step.
    pub step: usize,
    pub now_ms: u64,
    pub user: Option<Vec<u8>>,
    /// What shards were asked, as text.
    pub asked: Vec<String>,
    /// What the user may not ask, as `doc.find db.c`.
    pub denied: Vec<String>,
    /// Whether documents are in the wanted order.
    pub is_sorted: bool,
    /// What shards say of plans, if they are asked for them.
    pub plans: Vec<Document>,
    /// Turns that were given to others.
    pub yields: usize,
    /// The answer to all questions instead.
    pub refusal: Option<OwnedReply>,
    /// The answers to questions that change documents: they go through nothing.
    pub writes: VecDeque<OwnedReply>,
}

impl Rights for Client {
    fn may_ask(&self, user: Option<&[u8]>, question: &[u8]) -> bool {
        assert_eq!(user, self.user.as_deref());
        let (_, asked, _) = Question::decode_within(question).expect("it was encoded");
        let name = asked.command_name().expect("it has a right");
        let key = String::from_utf8_lossy(asked.key().expect("it is about a key"));
        !self.denied.contains(&format!("{name} {key}"))
    }
}

/// A command that waits for an answer.
pub struct Waiting {
    running: Box<dyn Running>,
    /// The collection; none if a shard is asked for its keys.
    question: (Option<String>, Vec<u8>),
}

pub fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

impl Client {
    pub fn new() -> Self {
        Self {
            server: Arc::new(MongoServer::new(("0.0.0", 1), 0, [7; 32])),
            collections: BTreeMap::new(),
            step: 3,
            now_ms: 1_000,
            user: None,
            asked: Vec::new(),
            denied: Vec::new(),
            is_sorted: false,
            plans: Vec::new(),
            yields: 0,
            refusal: None,
            writes: VecDeque::new(),
        }
    }

    /// A collection of the database `db`.
    pub fn collection(&mut self, name: &str, documents: impl IntoIterator<Item = Document>) {
        self.collections.insert(format!("db.{name}"), documents.into_iter().collect());
    }

    /// Carries a command out, to its end.
    pub fn run(&mut self, command: Document) -> Result<Document, CommandError> {
        match self.begin(command)? {
            Ok(reply) => Ok(reply),
            Err(waiting) => self.finish(waiting),
        }
    }

    /// The code of the error that a command has.
    pub fn code(&mut self, command: Document) -> i32 {
        let text = command.to_string();
        match self.run(command) {
            Ok(reply) => panic!("{text}: {reply}"),
            Err(error) => error.number,
        }
    }

    /// Begins a command: its reply, or what waits for an answer.
    pub fn begin(
        &mut self,
        mut command: Document,
    ) -> Result<Result<Document, Waiting>, CommandError> {
        command.entry("$db".to_owned()).or_insert_with(|| "db".into());
        let bytes = msg(0, &[body(raw(&command).as_bytes())]);
        let message = whole(&bytes);
        let msg = op_msg(&message);
        let command = Command::of(&msg)?;
        let spec = spec(command.name()).ok_or_else(|| {
            CommandError::new(ErrorCode::CommandNotFound, command.name().to_owned())
        })?;
        let server = Arc::clone(&self.server);
        let (begun, _) = spec.begin(&command, &mut self.context(&server))?;
        match begun {
            Begun::Reply(body) => Ok(Ok(Document::from_reader(&body[..]).unwrap())),
            Begun::Running(running) => self.go_on(running, None),
        }
    }

    /// Carries a command out whose question is asked now.
    pub fn finish(&mut self, waiting: Waiting) -> Result<Document, CommandError> {
        let mut waiting = waiting;
        loop {
            let Waiting { running, question: (key, question) } = waiting;
            let answer = match key {
                Some(key) => self.answer(&key, &question),
                None => self.scan(&question),
            };
            match self.go_on(running, Some(answer))? {
                Ok(reply) => return Ok(reply),
                Err(again) => waiting = again,
            }
        }
    }

    fn context<'s>(&'s self, server: &'s Arc<MongoServer>) -> Context<'s> {
        let (now_ms, user) = (self.now_ms, self.user.clone());
        let rights = Some(self as &dyn Rights);
        Context { server, now_ms, connection: 1, shards: 1, user, rights }
    }

    fn go_on(
        &mut self,
        mut running: Box<dyn Running>,
        mut answer: Option<OwnedReply>,
    ) -> Result<Result<Document, Waiting>, CommandError> {
        let server = Arc::clone(&self.server);
        loop {
            match running.next(answer.take(), &mut self.context(&server))? {
                Step::Done(body) => return Ok(Ok(Document::from_reader(&body[..]).unwrap())),
                Step::Ask { key, question } => {
                    let question = (Some(String::from_utf8(key).unwrap()), question);
                    return Ok(Err(Waiting { running, question }));
                }
                Step::Scan(0, question) => {
                    return Ok(Err(Waiting { running, question: (None, question) }));
                }
                Step::Scan(..) | Step::Move { .. } => panic!("no test asks so"),
                Step::Yield => {
                    self.yields += 1;
                    answer = Some(OwnedReply::status(Status::Ok));
                }
            }
        }
    }

    /// The keys of all collections, and one of another kind.
    fn scan(&self, question: &[u8]) -> OwnedReply {
        let (_, asked, _) = Question::decode_within(question).expect("it was encoded");
        assert!(matches!(asked, Question::Scan { .. }), "{asked:?}");
        let mut value = Vec::new();
        ScannedKeys::push(&mut value, Kind::STRING, b"db.text");
        for key in self.collections.keys() {
            ScannedKeys::push(&mut value, Kind::COLLECTION, key.as_bytes());
        }
        OwnedReply { value: Some(value), ..OwnedReply::status(Status::Ok) }
    }

    fn answer(&mut self, key: &str, question: &[u8]) -> OwnedReply {
        let (_, asked, _) = Question::decode_within(question).expect("it was encoded");
        let Question::Of { key: of, request } = asked else { panic!("{asked:?}") };
        assert_eq!(of, key.as_bytes());
        if let Some(refusal) = &self.refusal {
            return refusal.clone();
        }
        let step = self.step;
        let documents = self.collections.entry(key.to_owned()).or_default();
        match CollectionCommand::of(request) {
            CollectionCommand::Find { request } => {
                let request = Document::from_reader(request).unwrap();
                self.asked.push(format!("{key} {request}"));
                find(documents, &request, (step, self.is_sorted, &self.plans))
            }
            CollectionCommand::Insert { documents: new, .. } => {
                let new = new.iter().flatten().map(|of| Document::from_reader(of).unwrap());
                let before = documents.len();
                documents.extend(new);
                let added = documents.len() - before;
                self.asked.push(format!("{key} insert {added}"));
                OwnedReply { number: added as i64, ..OwnedReply::status(Status::Ok) }
            }
            CollectionCommand::Write { request } => {
                let request = Document::from_reader(request).unwrap();
                self.asked.push(format!("{key} {request}"));
                self.writes.pop_front().expect("an answer for each")
            }
            CollectionCommand::Describe => {
                self.asked.push(format!("{key} describe"));
                let size: usize = documents.iter().map(|of| of.to_vec().unwrap().len()).sum();
                let place = doc! { "key": { "at": "2dsphere" }, "name": "at_2dsphere", "v": 2 };
                let id = doc! { "key": { "_id": 1 }, "name": "_id_", "v": 2 };
                let told = doc! {
                    "options": {}, "indexes": [id, place], "count": documents.len() as i64,
                    "size": size as i64, "storageSize": 2 * size as i64,
                    "indexSizes": { "_id_": 100_i64, "at_2dsphere": 20_i64 },
                };
                let value = Some(told.to_vec().unwrap());
                OwnedReply { value, ..OwnedReply::status(Status::Ok) }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Some of the documents that match, and where the next step begins: so many documents are looked at.
fn find(
    documents: &[Document],
    request: &Document,
    (step, is_sorted, plans): (usize, bool, &[Document]),
) -> OwnedReply {
    let variables = request.get_document("let").ok().map(raw);
    let variables = Variables::parse(0, 0, variables.as_deref()).unwrap();
    let filter = Filter::parse_with(&raw(request.get_document("filter").unwrap()), &variables);
    let filter = filter.unwrap();
    let from = request.get_binary_generic("at").map_or(0, |at| usize::from(at[0]));
    let limit = request.get_i64("limit").ok().filter(|limit| *limit > 0).unwrap_or(i64::MAX);
    let (mut found, mut looked_at) = (Vec::new(), from);
    for document in documents.iter().skip(from).take(step) {
        if found.len() as i64 == limit {
            break;
        }
        looked_at += 1;
        found.extend(filter.matches(&raw(document)).then_some(document));
    }
    let mut head = doc! { "sorted": is_sorted };
    if request.get_bool("explain").unwrap_or(false) {
        head.insert("plans", plans);
    }
    if looked_at < documents.len() {
        let bytes = vec![looked_at as u8];
        head.insert("at", Binary { subtype: BinarySubtype::Generic, bytes });
    }
    let mut value = Vec::new();
    Items::push(&mut value, &head.to_vec().unwrap());
    if !request.get_bool("count").unwrap_or(false) {
        found.iter().for_each(|document| Items::push(&mut value, &document.to_vec().unwrap()));
    }
    let number = found.len() as i64;
    OwnedReply { number, value: Some(value), ..OwnedReply::status(Status::Ok) }
}

/// The documents of a batch, and the number of its cursor.
pub fn batch(reply: &Document) -> (Vec<Document>, i64) {
    let cursor = reply.get_document("cursor").unwrap();
    let list = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch")).unwrap();
    let documents = list.iter().map(|of| of.as_document().unwrap().clone()).collect();
    (documents, cursor.get_i64("id").unwrap())
}
