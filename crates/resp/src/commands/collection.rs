//! Collections of documents. Their commands are Remora's own: the documents that MongoDB's drivers have at a
//! port of their own, as Extended JSON.

use crate::arguments::KEY;
use crate::error::CommandError;
use crate::form::{ObjectReply, ReplyForm, Shape};
use crate::keys::{Keys, key};
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Flag, Group, KeyPlaces, Kind, ParseResult};
use crate::steps::{AskKey, Step, StepKey, Steps};
use crate::wire::{RespVersion, Words, encode};
use bson::raw::RawBsonRef;
use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, RawDocumentBuf, cstr};
use remora_document::{from_json, to_json};
use remora_frontend::{OwnedReply, ShardAnswer};
use remora_layout::limits::{FIRST_BATCH_DOCUMENTS, MAX_REPLY_BYTES};
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use remora_protocol::{Items, integer};

const FILTER: Argument = Argument::new("filter", Kind::String);
const DOCUMENT: Argument = Argument::new("document", Kind::String);

/// Commands that read a collection.
const READS: CommandSpec = CommandSpec {
    categories: &["doc"],
    since: "0.1.0",
    group: Group::own("doc", "Documents"),
    complexity: "O(N) where N is the number of documents, or of those within the bounds of an index",
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces::one(&["RO", "access"]),
    arguments: &[KEY],
    ..CommandSpec::PLAIN
};

/// Commands that change a collection.
const WRITES: CommandSpec = CommandSpec {
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["RW", "update"]),
    ..READS
};

/// The number of a reply whose value is the text of an error.
const REFUSED: i64 = i64::MIN;

const fn reply(
    command: &'static str,
    write: fn(&mut Vec<u8>, RespVersion, ShardAnswer<'_>),
) -> ObjectReply {
    ObjectReply { command, shape: Shape::Own(write), errors: &[] }
}

/// Writes the error that a reply is; false if it is none.
fn write_refusal(out: &mut Vec<u8>, answer: &ShardAnswer<'_>) -> bool {
    if answer.number != REFUSED {
        return false;
    }
    let text = String::from_utf8_lossy(answer.value.unwrap_or_default());
    encode::error(out, &format!("ERR {text}"));
    true
}

fn write_number(out: &mut Vec<u8>, _: RespVersion, answer: ShardAnswer<'_>) {
    if !write_refusal(out, &answer) {
        encode::integer(out, answer.number);
    }
}

fn write_ok(out: &mut Vec<u8>, _: RespVersion, answer: ShardAnswer<'_>) {
    if !write_refusal(out, &answer) {
        encode::ok(out);
    }
}

fn write_texts(out: &mut Vec<u8>, _: RespVersion, answer: ShardAnswer<'_>) {
    if write_refusal(out, &answer) {
        return;
    }
    let texts = Items::parse(answer.value.unwrap_or_default());
    encode::array(out, texts.map_or(0, |texts| texts.iter().count()));
    texts.into_iter().flat_map(Items::iter).flatten().for_each(|text| encode::bulk(out, text));
}

fn write_text(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    if !write_refusal(out, &answer) {
        encode::bulk_or_null(out, version, answer.value);
    }
}

/// A document of the request.
fn document(word: &[u8]) -> Result<RawDocumentBuf, CommandError> {
    let text = std::str::from_utf8(word)
        .map_err(|_| CommandError::Document("a document is a text of UTF-8".to_owned()))?;
    from_json(text).map_err(|error| CommandError::Document(error.message().to_owned()))
}

/// What is asked of a collection, perhaps in several steps.
#[derive(Debug)]
enum Question {
    Create,
    Insert(Vec<u8>),
    Write(RawDocumentBuf),
    Find { request: RawDocumentBuf, limit: u64 },
    Count(RawDocumentBuf),
    Index(RawDocumentBuf),
    DropIndex(Vec<u8>),
    Info,
}

/// An operation on a collection: a question to its shard, and another one where the last one ended.
#[derive(Debug)]
struct DocumentSteps {
    question: Question,
    at: Option<Vec<u8>>,
    number: i64,
    texts: Vec<u8>,
    found: u64,
}

impl DocumentSteps {
    /// The request with the place where it goes on.
    fn request(&self, request: &RawDocumentBuf) -> RawDocumentBuf {
        let mut request = request.clone();
        if let Some(at) = &self.at {
            request
                .append(cstr!("at"), Binary { subtype: BinarySubtype::Generic, bytes: at.clone() });
        }
        if let Question::Find { limit, .. } = self.question {
            request.append(cstr!("limit"), limit.saturating_sub(self.found) as i64);
        }
        request
    }

    fn ask(&self, ask: AskKey<'_>) -> Step {
        let made;
        let request = match &self.question {
            Question::Create => CollectionCommand::Create { options: EMPTY },
            Question::Insert(list) => CollectionCommand::Insert {
                documents: Items::parse(list).expect("it was made here"),
                ordered: true,
            },
            Question::Write(request) => {
                made = self.request(request);
                CollectionCommand::Write { request: made.as_bytes() }
            }
            Question::Find { request, .. } | Question::Count(request) => {
                made = self.request(request);
                CollectionCommand::Find { request: made.as_bytes() }
            }
            Question::Index(request) => {
                made = self.request(request);
                CollectionCommand::CreateIndex { request: made.as_bytes() }
            }
            Question::DropIndex(name) => CollectionCommand::DropIndex { name },
            Question::Info => CollectionCommand::Describe,
        };
        ask(0, request.request());
        Step::Asked
    }

    fn done(&self) -> Step {
        let value = Some(self.texts.clone());
        Step::Done(OwnedReply { number: self.number, value, ..OwnedReply::status(Status::Ok) })
    }

    /// Takes an answer that is no refusal. What the reply is, if there is no further step.
    fn take(&mut self, reply: &OwnedReply) -> Result<bool, String> {
        let value = reply.value.as_deref().unwrap_or_default();
        let head = match &self.question {
            Question::Insert(_) => {
                self.number += reply.number;
                let failure = Items::split(value).and_then(|(failure, _)| failure);
                return match failure.and_then(|failure| RawDocument::from_bytes(failure).ok()) {
                    Some(failure) => Err(text_of(failure)),
                    None => Ok(true),
                };
            }
            Question::Create | Question::DropIndex(_) => return Ok(true),
            Question::Find { .. } | Question::Count(_) => {
                Items::split(value).and_then(|(head, _)| head).unwrap_or_default()
            }
            Question::Write(_) | Question::Index(_) | Question::Info => value,
        };
        if let Question::Info = self.question {
            let told = RawDocument::from_bytes(head).map_err(|error| error.to_string())?;
            self.texts = to_json(told).map_err(|error| error.to_string())?.into_bytes();
            return Ok(true);
        }
        self.number += reply.number;
        if let Question::Find { .. } = self.question {
            self.found += reply.number.max(0) as u64;
            for document in Items::parse(value).into_iter().flat_map(Items::iter).flatten().skip(1)
            {
                let document =
                    RawDocument::from_bytes(document).map_err(|error| error.to_string())?;
                let text = to_json(document).map_err(|error| error.to_string())?;
                Items::push(&mut self.texts, text.as_bytes());
            }
            if self.texts.len() > MAX_REPLY_BYTES {
                return Err("the reply is longer than 64 MiB: ask for fewer documents".to_owned());
            }
        }
        let told = RawDocument::from_bytes(head).ok();
        if let Some(error) = told.and_then(|told| told.get_document("error").ok()) {
            return Err(text_of(error));
        }
        self.at = told.and_then(|told| told.get_binary("at").ok()).map(|at| at.bytes.to_vec());
        let is_enough =
            matches!(self.question, Question::Find { limit, .. } if self.found >= limit);
        Ok(self.at.is_none() || is_enough)
    }
}

/// An empty document.
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

fn text_of(error: &RawDocument) -> String {
    error.get_str("errmsg").unwrap_or("the document was refused").to_owned()
}

impl Steps for DocumentSteps {
    fn next(&mut self, _: &[StepKey], answer: Option<OwnedReply>, ask: AskKey<'_>) -> Step {
        let Some(reply) = answer else { return self.ask(ask) };
        let refuse = |text: String| {
            let value = Some(text.into_bytes());
            Step::Done(OwnedReply { number: REFUSED, value, ..OwnedReply::status(Status::Ok) })
        };
        match reply.status {
            Status::Refused => {
                let text = reply.value.as_deref().map(String::from_utf8_lossy);
                refuse(text.unwrap_or_default().into_owned())
            }
            Status::NotDone => refuse("the collection exists already: DEL removes it".to_owned()),
            Status::NotFound => refuse("there is no such collection, or no such index".to_owned()),
            Status::Ok => match self.take(&reply) {
                Ok(true) => self.done(),
                Ok(false) => self.ask(ask),
                Err(text) => refuse(text),
            },
            _ => Step::Done(reply),
        }
    }

    fn is_read(&self) -> bool {
        matches!(self.question, Question::Find { .. } | Question::Count(_) | Question::Info)
    }
}

fn steps<'a>(words: Words<'a>, question: Question, reply: &'static ObjectReply) -> ParseResult<'a> {
    key(words.get(1))?;
    let steps = DocumentSteps { question, at: None, number: 0, texts: Vec::new(), found: 0 };
    let keys = Keys::within(words, 1, 2)?;
    Ok(Request::Steps { keys, steps: Box::new(steps), form: ReplyForm::Object(reply) })
}

/// Whether the last word is this one; another one is an error.
fn last_word(words: Words<'_>, at: usize, word: &str) -> Result<bool, CommandError> {
    match words.len() {
        len if len == at => Ok(false),
        len if len == at + 1 && words.get(at).eq_ignore_ascii_case(word.as_bytes()) => Ok(true),
        _ => Err(CommandError::Syntax),
    }
}

const DOC_CREATE: CommandSpec = CommandSpec {
    name: "doc.create",
    arity: 2,
    summary: "Makes an empty collection; an error if the key is there.",
    complexity: "O(1)",
    notes: "MongoDB's drivers know the key `database.collection` as that collection (docs/documents.md). A collection \
lies in one shard, and stays when its last document goes: DEL removes it.",
    parse: |words, _| steps(words, Question::Create, &CREATED),
    ..WRITES
};

static CREATED: ObjectReply = reply("doc.create", write_ok);

const DOC_INSERT: CommandSpec = CommandSpec {
    name: "doc.insert",
    arity: -3,
    summary: "Adds documents to a collection; returns how many.",
    complexity: "O(N * M * log D) where N is the number of documents, M that of indexes and D that of documents there",
    notes: "Documents are Extended JSON, as {\"_id\": 1, \"name\": \"x\"}, each with an _id. One that cannot be added is an error: \
those before it are added, and none behind it. A collection that is not there is made.",
    arguments: &[KEY, DOCUMENT.multiple()],
    parse: doc_insert,
    ..WRITES
};

static INSERTED: ObjectReply = reply("doc.insert", write_number);

fn doc_insert(words: Words<'_>, _: u64) -> ParseResult<'_> {
    let mut list = Vec::new();
    for at in 2..words.len() {
        let document = document(words.get(at))?;
        if !matches!(document.get("_id"), Ok(Some(_))) {
            return Err(CommandError::Document("a document needs an _id".to_owned()));
        }
        let is_first = document.iter_elements().next().and_then(Result::ok);
        if is_first.is_some_and(|first| first.key() == cstr!("_id")) {
            Items::push(&mut list, document.as_bytes());
            continue;
        }
        let mut ordered = RawDocumentBuf::new();
        let fields = || document.iter_elements().filter_map(Result::ok);
        let ids = fields().filter(|field| field.key() == cstr!("_id"));
        let others = fields().filter(|field| field.key() != cstr!("_id"));
        for field in ids.chain(others) {
            if let Ok(value) = field.value() {
                ordered.append(field.key(), value);
            }
        }
        Items::push(&mut list, ordered.as_bytes());
    }
    steps(words, Question::Insert(list), &INSERTED)
}

const DOC_FIND: CommandSpec = CommandSpec {
    name: "doc.find",
    arity: -3,
    summary: "Returns the documents of a collection that match a filter.",
    notes: "The filter is one of MongoDB, as {\"size\": {\"$gt\": 3}}; {} matches all. Without LIMIT 101 documents are \
returned at most. They are Extended JSON, in its relaxed form.",
    arguments: &[KEY, FILTER, Argument::new("limit", Kind::Integer).after("LIMIT").optional()],
    parse: doc_find,
    ..READS
};

static FOUND: ObjectReply = reply("doc.find", write_texts);

fn doc_find(words: Words<'_>, _: u64) -> ParseResult<'_> {
    let limit = match words.len() {
        3 => FIRST_BATCH_DOCUMENTS as u64,
        5 if words.get(3).eq_ignore_ascii_case(b"LIMIT") => {
            let number = integer::parse(words.get(4)).and_then(|of| u64::try_from(of).ok());
            number.filter(|number| *number > 0).ok_or(CommandError::NotPositive)?
        }
        _ => return Err(CommandError::Syntax),
    };
    let mut request = RawDocumentBuf::new();
    request.append(cstr!("filter"), document(words.get(2))?);
    steps(words, Question::Find { request, limit }, &FOUND)
}

const DOC_COUNT: CommandSpec = CommandSpec {
    name: "doc.count",
    arity: -2,
    summary: "Returns how many documents of a collection match a filter, or how many there are.",
    arguments: &[KEY, FILTER.optional()],
    parse: doc_count,
    ..READS
};

static COUNTED: ObjectReply = reply("doc.count", write_number);

fn doc_count(words: Words<'_>, _: u64) -> ParseResult<'_> {
    let mut request = RawDocumentBuf::new();
    let filter = match words.len() {
        2 => RawDocumentBuf::new(),
        3 => document(words.get(2))?,
        _ => return Err(CommandError::Syntax),
    };
    request.append(cstr!("filter"), filter);
    request.append(cstr!("count"), true);
    steps(words, Question::Count(request), &COUNTED)
}

const DOC_UPDATE: CommandSpec = CommandSpec {
    name: "doc.update",
    arity: -4,
    summary: "Changes the first document that matches a filter, or all of them; returns how many matched.",
    notes: "The update is one of MongoDB: operators, as {\"$set\": {\"size\": 3}}, or a whole document. MULTI: all documents that match are changed, \
some in each step. UPSERT: if none matches, a document is made of the filter and the update, and a collection that is not there too.",
    arguments: &[
        KEY,
        FILTER,
        Argument::new("update", Kind::String),
        Argument::word("multi", "MULTI").optional(),
        Argument::word("upsert", "UPSERT").optional(),
    ],
    parse: doc_update,
    ..WRITES
};

static UPDATED: ObjectReply = reply("doc.update", write_number);

fn doc_update(words: Words<'_>, _: u64) -> ParseResult<'_> {
    let (mut multi, mut upsert) = (false, false);
    for at in 4..words.len() {
        let known = [(&b"MULTI"[..], &mut multi), (b"UPSERT", &mut upsert)];
        let named = known.into_iter().find(|(word, _)| words.get(at).eq_ignore_ascii_case(word));
        match named {
            Some((_, is_set)) if !*is_set => *is_set = true,
            _ => return Err(CommandError::Syntax),
        }
    }
    let mut request = write_request(document(words.get(2))?, Some(document(words.get(3))?), multi);
    if upsert {
        request.append(cstr!("upsert"), true);
    }
    steps(words, Question::Write(request), &UPDATED)
}

fn write_request(
    filter: RawDocumentBuf,
    update: Option<RawDocumentBuf>,
    multi: bool,
) -> RawDocumentBuf {
    let mut request = RawDocumentBuf::new();
    request.append(cstr!("q"), filter);
    if let Some(update) = update {
        request.append(cstr!("u"), update);
    }
    request.append(cstr!("multi"), multi);
    request
}

const DOC_DEL: CommandSpec = CommandSpec {
    name: "doc.del",
    arity: -3,
    summary: "Removes the first document that matches a filter, or all of them; returns how many.",
    flags: &[Flag::Write],
    keys: KeyPlaces::one(&["RW", "delete"]),
    notes: "MULTI: all documents that match are removed, some in each step.",
    arguments: &[KEY, FILTER, Argument::word("multi", "MULTI").optional()],
    parse: doc_del,
    ..WRITES
};

static REMOVED: ObjectReply = reply("doc.del", write_number);

fn doc_del(words: Words<'_>, _: u64) -> ParseResult<'_> {
    let multi = last_word(words, 3, "MULTI")?;
    let request = write_request(document(words.get(2))?, None, multi);
    steps(words, Question::Write(request), &REMOVED)
}

const DOC_INDEX: CommandSpec = CommandSpec {
    name: "doc.index",
    arity: -3,
    summary: "Makes an index of a collection, or removes one.",
    notes: "keys as MongoDB has them: {\"size\": 1, \"name\": -1}. With DROP the word is an index's name instead, such as size_1_name_-1.",
    arguments: &[
        KEY,
        Argument::new("keys", Kind::String),
        Argument::of(
            "option",
            Kind::OneOf,
            &[Argument::word("unique", "UNIQUE"), Argument::word("drop", "DROP")],
        )
        .optional(),
    ],
    parse: doc_index,
    ..WRITES
};

static INDEXED: ObjectReply = reply("doc.index", write_ok);

fn doc_index(words: Words<'_>, _: u64) -> ParseResult<'_> {
    if words.len() == 4 && words.get(3).eq_ignore_ascii_case(b"DROP") {
        let name = words.get(2);
        if name.is_empty() {
            return Err(CommandError::Syntax);
        }
        return steps(words, Question::DropIndex(name.to_vec()), &INDEXED);
    }
    let unique = last_word(words, 3, "UNIQUE")?;
    let keys = document(words.get(2))?;
    let mut name = String::new();
    for field in keys.iter_elements().filter_map(Result::ok) {
        let value = match field.value() {
            Ok(RawBsonRef::Int32(of)) => of.to_string(),
            Ok(RawBsonRef::String(of)) => of.to_owned(),
            _ => {
                return Err(CommandError::Document(
                    "keys of an index are 1, -1, or the name of a kind of index".to_owned(),
                ));
            }
        };
        let dash = if name.is_empty() { "" } else { "_" };
        name = format!("{name}{dash}{}_{value}", field.key().as_str());
    }
    let mut spec = RawDocumentBuf::new();
    spec.append(cstr!("key"), keys);
    spec.append(cstr!("name"), name);
    if unique {
        spec.append(cstr!("unique"), true);
    }
    let mut request = RawDocumentBuf::new();
    request.append(cstr!("spec"), spec);
    steps(words, Question::Index(request), &INDEXED)
}

const DOC_INFO: CommandSpec = CommandSpec {
    name: "doc.info",
    arity: 2,
    summary: "Returns what a collection is: its options, indexes, documents and bytes.",
    complexity: "O(1)",
    parse: |words, _| steps(words, Question::Info, &TOLD),
    ..READS
};

static TOLD: ObjectReply = reply("doc.info", write_text);

pub(super) const COMMANDS: &[CommandSpec] =
    &[DOC_COUNT, DOC_CREATE, DOC_FIND, DOC_INDEX, DOC_INFO, DOC_INSERT, DOC_DEL, DOC_UPDATE];
