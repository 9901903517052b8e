//! Commands about collections, databases and indexes.

use super::cursor::write_whole_batch;
use super::find::no_collation;
use crate::command::Command;
use crate::fields::{check_database, namespace, only_fields};
use crate::reply::{CommandError, ErrorCode};
use crate::running::{Begun, Context, Running, Step, ask, ask_key, done, ok_body, refusal, some};
use crate::spec::{Right, Spec};
use crate::writer::write_document;
use bson::raw::RawBsonRef;
use bson::{RawDocument, RawDocumentBuf, cstr};
use remora_document::Filter;
use remora_frontend::OwnedReply;
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::limits::MAX_INDEXES;
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use remora_protocol::{Command as Question, ScannedKeys};
use std::collections::{BTreeMap, VecDeque};

pub(super) static COMMANDS: &[Spec] = &[
    Spec {
        names: &["create"],
        summary: "Makes a collection.",
        right: Right::Collection("doc.create"),
        fields: &["validator", "validationLevel", "validationAction", "collation", "capped"],
        begin: create,
    },
    Spec {
        names: &["collMod"],
        summary: "Changes the validator of a collection.",
        right: Right::Collection("doc.create"),
        fields: &["validator", "validationLevel", "validationAction"],
        begin: coll_mod,
    },
    Spec {
        names: &["drop"],
        summary: "Removes a collection.",
        right: Right::Collection("del"),
        fields: &[],
        begin: drop_collection,
    },
    Spec {
        names: &["dropDatabase"],
        summary: "Removes the collections of a database, one after the other.",
        right: Right::Database("del"),
        fields: &[],
        begin: drop_database,
    },
    Spec {
        names: &["listCollections"],
        summary: "Lists the collections of a database.",
        right: Right::Database("doc.info"),
        fields: &["filter", "nameOnly", "authorizedCollections", "cursor"],
        begin: list_collections,
    },
    Spec {
        names: &["listDatabases"],
        summary: "Lists the databases: the names before the first dot of collections.",
        right: Right::Database("doc.info"),
        fields: &["filter", "nameOnly", "authorizedDatabases"],
        begin: list_databases,
    },
    Spec {
        names: &["createIndexes"],
        summary: "Makes indexes of a collection.",
        right: Right::Collection("doc.index"),
        fields: &["indexes", "commitQuorum"],
        begin: create_indexes,
    },
    Spec {
        names: &["listIndexes"],
        summary: "Lists the indexes of a collection.",
        right: Right::Collection("doc.info"),
        fields: &["cursor"],
        begin: list_indexes,
    },
    Spec {
        names: &["dropIndexes", "deleteIndexes"],
        summary: "Removes indexes of a collection.",
        right: Right::Collection("doc.index"),
        fields: &["index"],
        begin: drop_indexes,
    },
];

pub(super) fn namespace_of(command: &Command<'_>) -> Result<Vec<u8>, CommandError> {
    namespace(command.database(), command.collection()?)
}

pub(super) fn describe(namespace: &[u8]) -> Step {
    ask(namespace, CollectionCommand::Describe)
}

/// What a shard says of a collection; none if it is not there.
pub(super) fn described(
    answer: Option<OwnedReply>,
) -> Result<Option<RawDocumentBuf>, CommandError> {
    let answer = some(answer)?;
    match answer.status {
        Status::NotFound => Ok(None),
        Status::Ok => {
            let told = RawDocumentBuf::from_bytes(answer.value.unwrap_or_default());
            told.map(Some).map_err(|_| senseless())
        }
        _ => Err(refusal(&answer)),
    }
}

pub(super) fn senseless() -> CommandError {
    CommandError::new(ErrorCode::InternalError, "a shard's answer makes no sense")
}

pub(super) fn not_found() -> CommandError {
    CommandError::new(ErrorCode::NamespaceNotFound, "ns not found")
}

/// The options that a command gives a collection.
fn options_of(command: &Command<'_>) -> Result<RawDocumentBuf, CommandError> {
    let mut options = RawDocumentBuf::new();
    if let Some(validator) = command.document("validator")? {
        Filter::parse(validator)?;
        options.append(cstr!("validator"), validator.to_owned());
    }
    let choices: [(_, &[&str]); 2] = [
        (cstr!("validationLevel"), &["off", "moderate", "strict"]),
        (cstr!("validationAction"), &["error"]),
    ];
    for (name, known) in choices {
        let Some(value) = command.str(name.as_str())? else { continue };
        if !known.contains(&value) {
            let text = format!(
                "Enumeration value '{value}' for field '{}' is not a valid value.",
                name.as_str()
            );
            return Err(CommandError::new(ErrorCode::BadValue, text));
        }
        options.append(name, value);
    }
    Ok(options)
}

/// A question whose answer is the reply.
struct One {
    question: Option<Step>,
    /// The error for `NotDone`.
    not_done: Option<CommandError>,
}

impl Running for One {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if let Some(question) = self.question.take() {
            return Ok(question);
        }
        let answer = some(answer)?;
        match (answer.status, self.not_done.take()) {
            (Status::NotDone, Some(error)) => Err(error),
            (Status::Ok, _) => Ok(Step::Done(ok_body(|_| {}))),
            _ => Err(refusal(&answer)),
        }
    }
}

fn create(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    no_collation(command.document("collation")?)?;
    if command.bool("capped")? == Some(true) {
        let text = "capped collections are not supported: a TTL index removes old documents";
        return Err(CommandError::new(ErrorCode::InvalidOptions, text));
    }
    let namespace = namespace_of(command)?;
    let options = options_of(command)?;
    let question = ask(&namespace, CollectionCommand::Create { options: options.as_bytes() });
    let text = format!("Collection {} already exists.", String::from_utf8_lossy(&namespace));
    let not_done = Some(CommandError::new(ErrorCode::NamespaceExists, text));
    Begun::running(One { question: Some(question), not_done })
}

/// Changes some options of a collection, and leaves the others.
struct CollMod {
    namespace: Vec<u8>,
    options: RawDocumentBuf,
    stage: usize,
}

fn coll_mod(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    Begun::running(CollMod {
        namespace: namespace_of(command)?,
        options: options_of(command)?,
        stage: 0,
    })
}

impl Running for CollMod {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        self.stage += 1;
        match self.stage {
            1 => Ok(describe(&self.namespace)),
            2 => {
                let told = described(answer)?.ok_or_else(not_found)?;
                let mut options = RawDocumentBuf::new();
                let old = told.get_document("options").ok();
                for element in old.iter().flat_map(|old| old.iter_elements()).filter_map(Result::ok)
                {
                    let is_same = matches!(self.options.get(element.key().as_str()), Ok(None));
                    if let Ok(value) = element.value()
                        && is_same
                    {
                        options.append(element.key(), value);
                    }
                }
                for element in self.options.iter_elements().filter_map(Result::ok) {
                    if let Ok(value) = element.value() {
                        options.append(element.key(), value);
                    }
                }
                Ok(ask(
                    &self.namespace,
                    CollectionCommand::SetOptions { options: options.as_bytes() },
                ))
            }
            _ => done(answer).map(|_| Step::Done(ok_body(|_| {}))),
        }
    }
}

struct Drop {
    namespace: Vec<u8>,
    indexes: i32,
    stage: usize,
}

fn drop_collection(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    Begun::running(Drop { namespace: namespace_of(command)?, indexes: 0, stage: 0 })
}

/// The question that removes a key.
pub(super) fn remove(key: &[u8]) -> Step {
    ask_key(key, &Question::Del { key })
}

impl Running for Drop {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        self.stage += 1;
        match self.stage {
            1 => Ok(describe(&self.namespace)),
            2 => match described(answer)? {
                // As MongoDB 7.0.
                None => Ok(Step::Done(ok_body(|_| {}))),
                Some(told) => {
                    self.indexes = indexes_of(&told).count() as i32;
                    Ok(remove(&self.namespace))
                }
            },
            _ => {
                done(answer)?;
                let namespace = String::from_utf8_lossy(&self.namespace);
                Ok(Step::Done(ok_body(|reply| {
                    reply.i32(cstr!("nIndexesWas"), self.indexes);
                    reply.str(cstr!("ns"), &namespace);
                })))
            }
        }
    }
}

pub(super) fn indexes_of(told: &RawDocument) -> impl Iterator<Item = &RawDocument> {
    let indexes = told.get_array("indexes").ok().into_iter().flatten();
    indexes.filter_map(Result::ok).filter_map(|index| index.as_document())
}

/// Finds the keys of collections, of one shard after the other.
///
/// Invariant: the user may do with each key that it gives what the command does with it.
pub(super) struct Names {
    prefix: Vec<u8>,
    /// What is asked about each key.
    asks: fn(&[u8]) -> Step,
    /// Keys that the user may not ask about are left out. Otherwise they refuse the command.
    leaves_out: bool,
    shard: usize,
    place: u32,
    found: Vec<Vec<u8>>,
}

/// Keys that a shard looks at in one step.
const SCANNED: u32 = 1000;

impl Names {
    /// Of keys with this prefix, about each of which this is asked.
    pub(super) fn of(prefix: Vec<u8>, asks: fn(&[u8]) -> Step) -> Self {
        Self { prefix, asks, leaves_out: false, shard: 0, place: 0, found: Vec::new() }
    }

    /// The same without the keys that the user may not ask about.
    fn leaving_out(self, leaves_out: bool) -> Self {
        Self { leaves_out, ..self }
    }

    /// Whether a key that was found is one of those. The error does not say which key is refused.
    fn takes(&self, key: &[u8], context: &Context<'_>) -> Result<bool, CommandError> {
        match context.may(&(self.asks)(key)) {
            false if !self.leaves_out => {
                let text = "not authorized to do this with all collections";
                Err(CommandError::new(ErrorCode::Unauthorized, text))
            }
            may => Ok(may),
        }
    }

    /// Takes the keys that were found.
    pub(super) fn take(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.found)
    }

    /// The next question; none once all are found.
    pub(super) fn next(
        &mut self,
        answer: Option<OwnedReply>,
        context: &Context<'_>,
    ) -> Result<Option<Step>, CommandError> {
        if let Some(answer) = answer {
            let answer = done(Some(answer))?;
            for (kind, key) in ScannedKeys::new(answer.value.as_deref().unwrap_or_default()) {
                let is_one = kind.of_type() == Kind::COLLECTION && key.starts_with(&self.prefix);
                if is_one && self.takes(key, context)? {
                    self.found.push(key.to_vec());
                }
            }
            self.place = answer.number as u32;
            self.shard += usize::from(self.place == 0);
        }
        if self.shard == context.shards {
            // A table that grows meanwhile may show a key twice.
            self.found.sort_unstable();
            self.found.dedup();
            return Ok(None);
        }
        let mut question = Vec::new();
        Question::Scan { place: self.place, count: SCANNED }.encode_within(
            Database::ZERO,
            0,
            &mut question,
        );
        Ok(Some(Step::Scan(self.shard, question)))
    }
}

fn database_prefix(database: &str) -> Result<Vec<u8>, CommandError> {
    check_database(database)?;
    Ok(format!("{database}.").into_bytes())
}

struct DropDatabase {
    database: String,
    names: Option<Names>,
    left: VecDeque<Vec<u8>>,
    any: bool,
}

fn drop_database(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    let database = command.database().to_owned();
    let names = Some(Names::of(database_prefix(&database)?, remove));
    Begun::running(DropDatabase { database, names, left: VecDeque::new(), any: false })
}

impl Running for DropDatabase {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        context: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if let Some(names) = &mut self.names {
            if let Some(step) = names.next(answer, context)? {
                return Ok(step);
            }
            self.left = names.take().into();
            (self.names, self.any) = (None, !self.left.is_empty());
        } else {
            done(answer)?;
        }
        if let Some(key) = self.left.pop_front() {
            return Ok(remove(&key));
        }
        Ok(Step::Done(ok_body(|reply| {
            if self.any {
                reply.str(cstr!("dropped"), &self.database);
            }
        })))
    }
}

struct ListCollections {
    names: Option<Names>,
    database: String,
    filter: Option<Filter>,
    name_only: bool,
    left: VecDeque<Vec<u8>>,
    asked: Option<String>,
    found: Vec<RawDocumentBuf>,
}

fn list_collections(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    cursor_options(command)?;
    let database = command.database().to_owned();
    let name_only = command.bool("nameOnly")?.unwrap_or(false);
    let leaves_out = name_only && command.bool("authorizedCollections")?.unwrap_or(false);
    let names = Names::of(database_prefix(&database)?, describe).leaving_out(leaves_out);
    Begun::running(ListCollections {
        names: Some(names),
        filter: command.document("filter")?.map(Filter::parse).transpose()?,
        name_only,
        left: VecDeque::new(),
        asked: None,
        found: Vec::new(),
        database,
    })
}

/// The options of the cursor of a list, which has one batch.
fn cursor_options(command: &Command<'_>) -> Result<(), CommandError> {
    match command.document("cursor")? {
        None => Ok(()),
        Some(of) => only_fields(of, (command.name(), "cursor"), &["batchSize"]),
    }
}

impl ListCollections {
    fn add(&mut self, name: &str, told: Option<&RawDocument>) {
        let mut entry = RawDocumentBuf::new();
        entry.append(cstr!("name"), name);
        entry.append(cstr!("type"), "collection");
        if let Some(told) = told.filter(|_| !self.name_only) {
            let options = told.get_document("options").map(RawDocument::to_owned);
            entry.append(cstr!("options"), options.unwrap_or_default());
            let mut info = RawDocumentBuf::new();
            info.append(cstr!("readOnly"), false);
            entry.append(cstr!("info"), info);
            if let Some(index) = indexes_of(told).next() {
                entry.append(cstr!("idIndex"), index.to_owned());
            }
        }
        if self.filter.as_ref().is_none_or(|filter| filter.matches(&entry)) {
            self.found.push(entry);
        }
    }
}

impl Running for ListCollections {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        context: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if let Some(names) = &mut self.names {
            if let Some(step) = names.next(answer, context)? {
                return Ok(step);
            }
            self.left = names.take().into();
            self.names = None;
        } else if let Some(name) = self.asked.take()
            && let Some(told) = described(answer)?
        {
            self.add(&name, Some(&told));
        }
        while let Some(key) = self.left.pop_front() {
            let name = String::from_utf8_lossy(&key[self.database.len() + 1..]).into_owned();
            if self.name_only {
                self.add(&name, None);
                continue;
            }
            self.asked = Some(name);
            return Ok(describe(&key));
        }
        let namespace = format!("{}.$cmd.listCollections", self.database);
        Ok(Step::Done(write_whole_batch(&self.found, &namespace)?))
    }
}

struct ListDatabases {
    names: Option<Names>,
    filter: Option<Filter>,
    name_only: bool,
    left: VecDeque<Vec<u8>>,
    asked: Option<String>,
    /// Bytes of each.
    found: BTreeMap<String, i64>,
}

fn list_databases(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    if command.database() != "admin" {
        let text = "listDatabases may only be run against the admin database.";
        return Err(CommandError::new(ErrorCode::Unauthorized, text));
    }
    // As in MongoDB, a user sees its own databases unless it asks for all of them.
    let leaves_out = command.bool("authorizedDatabases")?.unwrap_or(true);
    Begun::running(ListDatabases {
        names: Some(Names::of(Vec::new(), describe).leaving_out(leaves_out)),
        filter: command.document("filter")?.map(Filter::parse).transpose()?,
        name_only: command.bool("nameOnly")?.unwrap_or(false),
        left: VecDeque::new(),
        asked: None,
        found: BTreeMap::new(),
    })
}

impl Running for ListDatabases {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        context: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if let Some(names) = &mut self.names {
            if let Some(step) = names.next(answer, context)? {
                return Ok(step);
            }
            self.left = names.take().into();
            self.names = None;
        } else if let Some(database) = self.asked.take()
            && let Some(told) = described(answer)?
        {
            let size = told.get("storageSize").ok().flatten().and_then(|size| size.as_i64());
            *self.found.entry(database).or_default() += size.unwrap_or_default();
        }
        while let Some(key) = self.left.pop_front() {
            let Some(dot) = key.iter().position(|&byte| byte == b'.') else { continue };
            let database = String::from_utf8_lossy(&key[..dot]).into_owned();
            if self.name_only {
                self.found.entry(database).or_default();
                continue;
            }
            self.asked = Some(database);
            return Ok(describe(&key));
        }
        let mut all = Vec::new();
        let mut total = 0;
        for (name, size) in &self.found {
            let mut entry = RawDocumentBuf::new();
            entry.append(cstr!("name"), name.as_str());
            if !self.name_only {
                entry.append(cstr!("sizeOnDisk"), *size);
                entry.append(cstr!("empty"), false);
            }
            if self.filter.as_ref().is_none_or(|filter| filter.matches(&entry)) {
                total += size;
                all.push(entry);
            }
        }
        Ok(Step::Done(ok_body(|reply| {
            reply.array(cstr!("databases"), |to| all.iter().for_each(|of| to.raw_document(of)));
            if !self.name_only {
                reply.i64(cstr!("totalSize"), total);
                reply.i64(cstr!("totalSizeMb"), total >> 20);
            }
        })))
    }
}

struct CreateIndexes {
    namespace: Vec<u8>,
    specs: VecDeque<RawDocumentBuf>,
    current: Option<IndexStep>,
    /// How many there were; none if the collection was not there.
    before: Option<usize>,
    made: usize,
    is_asked: bool,
}

fn create_indexes(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    let mut specs = VecDeque::new();
    for spec in command.documents("indexes")? {
        let spec = spec?;
        let has = |field: &str| spec.get(field).is_ok_and(|value| value.is_some());
        for field in ["key", "name"] {
            if !has(field) {
                let text =
                    format!("The '{field}' field is a required property of an index specification");
                return Err(CommandError::new(ErrorCode::FailedToParse, text));
            }
        }
        if specs.len() == MAX_INDEXES {
            let text = format!("a collection has {MAX_INDEXES} indexes at most");
            return Err(CommandError::new(ErrorCode::CannotCreateIndex, text));
        }
        specs.push_back(spec.to_owned());
    }
    if specs.is_empty() {
        let text = "Must specify at least one index to create";
        return Err(CommandError::new(ErrorCode::BadValue, text));
    }
    let namespace = namespace_of(command)?;
    let (current, before) = (None, None);
    Begun::running(CreateIndexes { namespace, specs, current, before, made: 0, is_asked: false })
}

impl CreateIndexes {
    fn question(&self, of: &IndexStep) -> Step {
        ask_index(&self.namespace, of)
    }
}

/// An index that is being made, and where its next step begins.
pub(super) type IndexStep = (RawDocumentBuf, Option<Vec<u8>>);

/// The question for the next step of an index.
pub(super) fn ask_index(namespace: &[u8], (spec, at): &IndexStep) -> Step {
    let mut request = Vec::new();
    write_document(&mut request, |fields| {
        fields.raw_document(cstr!("spec"), spec);
        if let Some(at) = at {
            fields.binary(cstr!("at"), at);
        }
    });
    ask(namespace, CollectionCommand::CreateIndex { request: &request })
}

/// Where an index's next step begins; none once it is made.
pub(super) fn index_goes_on(answer: &OwnedReply) -> Option<Vec<u8>> {
    let told = RawDocument::from_bytes(answer.value.as_deref()?).ok()?;
    told.get_binary("at").ok().map(|at| at.bytes.to_vec())
}

impl Running for CreateIndexes {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if !std::mem::replace(&mut self.is_asked, true) {
            return Ok(describe(&self.namespace));
        }
        match self.current.take() {
            None => self.before = described(answer)?.map(|told| indexes_of(&told).count()),
            Some((spec, _)) => {
                let answer = done(answer)?;
                let at = index_goes_on(&answer);
                if at.is_some() {
                    let current = (spec, at);
                    let question = self.question(&current);
                    self.current = Some(current);
                    return Ok(question);
                }
                self.made += answer.number.max(0) as usize;
            }
        }
        if let Some(spec) = self.specs.pop_front() {
            let current = (spec, None);
            let question = self.question(&current);
            self.current = Some(current);
            return Ok(question);
        }
        let before = self.before.unwrap_or(1);
        Ok(Step::Done(ok_body(|reply| {
            reply.i32(cstr!("numIndexesBefore"), before as i32);
            reply.i32(cstr!("numIndexesAfter"), (before + self.made) as i32);
            if self.before.is_none() {
                reply.bool(cstr!("createdCollectionAutomatically"), true);
            }
            if self.made == 0 {
                reply.str(cstr!("note"), "all indexes already exist");
            }
        })))
    }
}

struct ListIndexes {
    namespace: Vec<u8>,
    is_asked: bool,
}

fn list_indexes(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    cursor_options(command)?;
    Begun::running(ListIndexes { namespace: namespace_of(command)?, is_asked: false })
}

impl Running for ListIndexes {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if !std::mem::replace(&mut self.is_asked, true) {
            return Ok(describe(&self.namespace));
        }
        let namespace = String::from_utf8_lossy(&self.namespace);
        let Some(told) = described(answer)? else {
            let text = format!("ns does not exist: {namespace}");
            return Err(CommandError::new(ErrorCode::NamespaceNotFound, text));
        };
        let all: Vec<RawDocumentBuf> = indexes_of(&told).map(RawDocument::to_owned).collect();
        Ok(Step::Done(write_whole_batch(&all, &namespace)?))
    }
}

/// Which indexes are to be removed.
enum Dropped {
    All,
    Names(Vec<String>),
    Keys(RawDocumentBuf),
}

struct DropIndexes {
    namespace: Vec<u8>,
    dropped: Dropped,
    before: Option<usize>,
    left: VecDeque<String>,
    is_asked: bool,
}

fn drop_indexes(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    let names = |array: &bson::RawArray| -> Option<Vec<String>> {
        array.into_iter().map(|name| name.ok()?.as_str().map(str::to_owned)).collect()
    };
    let dropped = match command.get("index") {
        Some(RawBsonRef::String("*")) => Some(Dropped::All),
        Some(RawBsonRef::String(name)) => Some(Dropped::Names(vec![name.to_owned()])),
        Some(RawBsonRef::Document(keys)) => Some(Dropped::Keys(keys.to_owned())),
        Some(RawBsonRef::Array(array)) => names(array).map(Dropped::Names),
        _ => None,
    };
    let Some(dropped) = dropped else {
        let text = "BSON field 'dropIndexes.index' is missing, or no name, names or key";
        return Err(CommandError::new(ErrorCode::TypeMismatch, text));
    };
    let namespace = namespace_of(command)?;
    Begun::running(DropIndexes {
        namespace,
        dropped,
        before: None,
        left: VecDeque::new(),
        is_asked: false,
    })
}

impl DropIndexes {
    /// The names of what is to be removed.
    fn chosen(&self, told: &RawDocument) -> Result<VecDeque<String>, CommandError> {
        let name_of = |index: &RawDocument| index.get_str("name").unwrap_or_default().to_owned();
        let all: Vec<(String, RawDocumentBuf)> = indexes_of(told)
            .map(|index| {
                let keys = index.get_document("key").map(RawDocument::to_owned);
                (name_of(index), keys.unwrap_or_default())
            })
            .collect();
        let missing = |text: String| Err(CommandError::new(ErrorCode::IndexNotFound, text));
        let names = match &self.dropped {
            Dropped::All => {
                return Ok(all
                    .into_iter()
                    .map(|(name, _)| name)
                    .filter(|name| name != "_id_")
                    .collect());
            }
            Dropped::Keys(keys) => match all.iter().find(|(_, of)| of == keys) {
                Some((name, _)) => vec![name.clone()],
                None => return missing(format!("can't find index with key: {keys:?}")),
            },
            Dropped::Names(names) => names.clone(),
        };
        for name in &names {
            if name == "_id_" {
                let text = "cannot drop _id index";
                return Err(CommandError::new(ErrorCode::InvalidOptions, text));
            }
            if !all.iter().any(|(known, _)| known == name) {
                return missing(format!("index not found with name [{name}]"));
            }
        }
        Ok(names.into())
    }
}

impl Running for DropIndexes {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if !std::mem::replace(&mut self.is_asked, true) {
            return Ok(describe(&self.namespace));
        }
        match self.before {
            None => {
                let Some(told) = described(answer)? else {
                    let text = format!("ns not found {}", String::from_utf8_lossy(&self.namespace));
                    return Err(CommandError::new(ErrorCode::NamespaceNotFound, text));
                };
                self.before = Some(indexes_of(&told).count());
                self.left = self.chosen(&told)?;
            }
            Some(_) => _ = done(answer)?,
        }
        if let Some(name) = self.left.pop_front() {
            return Ok(ask(
                &self.namespace,
                CollectionCommand::DropIndex { name: name.as_bytes() },
            ));
        }
        let before = self.before.unwrap_or_default();
        Ok(Step::Done(ok_body(|reply| reply.i32(cstr!("nIndexesWas"), before as i32))))
    }
}
