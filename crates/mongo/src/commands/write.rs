//! `insert`, `update`, `delete` and `findAndModify`.
//!
//! A batch of writes goes one after the other. Each is asked of the collection's shard in steps, as a shard
//! changes a bounded number of documents in one.

use super::find::{hint_of, no_collation, sort_of, variables_of};
use crate::command::Command;
use crate::fields::{namespace, only_fields};
use crate::limits::{MAX_FAILURE_BYTES, MAX_WRITE_BATCH};
use crate::query::{Search, Wanted};
use crate::reply::{CommandError, ErrorCode};
use crate::running::{Begun, Context, Running, Step, ask, done, ok_body, refusal, some};
use crate::spec::{Right, Spec};
use crate::writer::DocumentWriter;
use bson::raw::RawBsonRef;
use bson::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, cstr};
use remora_document::Projection;
use remora_frontend::OwnedReply;
use remora_layout::limits::{INSERT_STEP_BYTES, INSERT_STEP_DOCUMENTS, MAX_DOCUMENT_BYTES};
use remora_protocol::Items;
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use std::collections::VecDeque;

pub(super) static COMMANDS: &[Spec] = &[
    Spec {
        names: &["insert"],
        summary: "Adds documents.",
        right: Right::Collection("doc.insert"),
        fields: &["documents", "ordered", "bypassDocumentValidation"],
        begin: insert,
    },
    Spec {
        names: &["update"],
        summary: "Changes documents.",
        right: Right::Collection("doc.update"),
        fields: &["updates", "ordered", "bypassDocumentValidation", "let"],
        begin: update,
    },
    Spec {
        names: &["delete"],
        summary: "Removes documents.",
        right: Right::Collection("doc.update"),
        fields: &["deletes", "ordered", "let"],
        begin: delete,
    },
    Spec {
        names: &["findAndModify", "findandmodify"],
        summary: "Changes or removes one document, and gives it as it was before or is then.",
        right: Right::Collection("doc.update"),
        fields: &[
            "query",
            "sort",
            "remove",
            "update",
            "new",
            "fields",
            "upsert",
            "bypassDocumentValidation",
            "collation",
            "arrayFilters",
            "hint",
            "let",
        ],
        begin: find_and_modify,
    },
];

/// What went wrong with one write of a batch.
pub(super) struct Failure(pub(super) RawDocumentBuf);

/// What went wrong with writes of one command, as its reply tells it.
#[derive(Default)]
pub(super) struct Failures {
    bytes: usize,
}

impl Failures {
    /// The failure as it is, or without its text and further fields, if those before it have filled their part
    /// of the reply, as MongoDB does it.
    pub(super) fn bounded(&mut self, failure: Failure) -> Failure {
        self.bytes += failure.0.as_bytes().len();
        if self.bytes <= MAX_FAILURE_BYTES {
            return failure;
        }
        let mut short = RawDocumentBuf::new();
        for name in [cstr!("index"), cstr!("code")] {
            if let Ok(number) = failure.0.get_i32(name.as_str()) {
                short.append(name, number);
            }
        }
        short.append(cstr!("errmsg"), "");
        Failure(short)
    }
}

impl Failure {
    pub(super) fn new(index: usize, error: &CommandError) -> Self {
        let mut failure = RawDocumentBuf::new();
        failure.append(cstr!("index"), index as i32);
        failure.append(cstr!("code"), error.number);
        failure.append(cstr!("errmsg"), error.message.as_ref());
        error.further().for_each(|(name, value)| failure.append(name, value));
        Self(failure)
    }

    /// The failures that a shard's answer to an insertion tells of.
    pub(super) fn all_of(answer: &OwnedReply, first: usize) -> impl Iterator<Item = Self> {
        let list = answer.value.as_deref().unwrap_or_default();
        let described = Items::parse(list).into_iter().flat_map(Items::iter).flatten();
        let described = described.filter_map(|of| RawDocument::from_bytes(of).ok());
        described.filter_map(move |described| Self::of_step(described, first))
    }

    /// A shard's description of a failure, whose index is that within its step.
    fn of_step(described: &RawDocument, first: usize) -> Option<Self> {
        let index = first + usize::try_from(described.get_i32("index").ok()?).ok()?;
        let mut failure = RawDocumentBuf::new();
        failure.append(cstr!("index"), index as i32);
        for element in described.iter_elements().filter_map(Result::ok) {
            if element.key() != cstr!("index") {
                failure.append(element.key(), element.value().ok()?);
            }
        }
        Some(Self(failure))
    }
}

/// Whether an error is about the server, and not about one write: then the whole command fails.
pub(super) fn is_of_server(error: &CommandError) -> bool {
    matches!(
        error.code(),
        Some(ErrorCode::NotWritablePrimary | ErrorCode::Unauthorized | ErrorCode::InternalError)
    )
}

fn write_failures(reply: &mut DocumentWriter<'_>, failures: &[Failure]) {
    if !failures.is_empty() {
        let mut bounds = Failures::default();
        reply.array(cstr!("writeErrors"), |to| {
            for Failure(of) in failures {
                to.raw_document(&bounds.bounded(Failure(of.clone())).0);
            }
        });
    }
}

pub(super) fn refuse_bypass(command: &Command<'_>) -> Result<(), CommandError> {
    match command.bool("bypassDocumentValidation")? {
        Some(true) => {
            let text = "bypassDocumentValidation is not supported: validators are always kept to";
            Err(CommandError::new(ErrorCode::InvalidOptions, text))
        }
        _ => Ok(()),
    }
}

/// Documents that are inserted in one step.
struct InsertStep {
    /// The index of the first one.
    first: usize,
    count: usize,
    documents: Vec<u8>,
}

struct Insert {
    namespace: Vec<u8>,
    ordered: bool,
    steps: VecDeque<InsertStep>,
    asked: Option<InsertStep>,
    inserted: u64,
    failures: Vec<Failure>,
}

fn insert(command: &Command<'_>, context: &mut Context<'_>) -> Result<Begun, CommandError> {
    refuse_bypass(command)?;
    let namespace = namespace(command.database(), command.collection()?)?;
    let ordered = command.bool("ordered")?.unwrap_or(true);
    let (mut steps, mut failures) = (VecDeque::new(), Vec::new());
    let mut step = InsertStep { first: 0, count: 0, documents: Vec::new() };
    let mut count = 0;
    for (index, document) in command.documents("documents")?.enumerate() {
        count += 1;
        let document = document?;
        let made;
        let bytes = match with_id(document, context) {
            Ok(None) => document.as_bytes(),
            Ok(Some(with_id)) => {
                made = with_id;
                made.as_bytes()
            }
            Err(error) => {
                failures.push(Failure::new(index, &error));
                steps.push_back(std::mem::replace(
                    &mut step,
                    InsertStep { first: index + 1, count: 0, documents: Vec::new() },
                ));
                if ordered {
                    break;
                }
                continue;
            }
        };
        let is_full = step.count == INSERT_STEP_DOCUMENTS
            || step.documents.len() + bytes.len() > INSERT_STEP_BYTES;
        if is_full && step.count > 0 {
            let next = InsertStep { first: index, count: 0, documents: Vec::new() };
            steps.push_back(std::mem::replace(&mut step, next));
        }
        Items::push(&mut step.documents, bytes);
        step.count += 1;
    }
    if count == 0 || count > MAX_WRITE_BATCH {
        return Err(batch_size(count));
    }
    steps.push_back(step);
    steps.retain(|step| step.count > 0);
    Begun::running(Insert { namespace, ordered, steps, asked: None, inserted: 0, failures })
}

pub(super) fn batch_size(count: usize) -> CommandError {
    let text = format!(
        "Write batch sizes must be between 1 and {MAX_WRITE_BATCH}. Got {count} operations."
    );
    CommandError::new(ErrorCode::InvalidLength, text)
}

/// The document with an `_id` as its first field, if it is not that already.
pub(super) fn with_id(
    document: &RawDocument,
    context: &mut Context<'_>,
) -> Result<Option<RawDocumentBuf>, CommandError> {
    if document.as_bytes().len() > MAX_DOCUMENT_BYTES {
        let text = format!(
            "object to insert too large. size in bytes: {}, max size: {MAX_DOCUMENT_BYTES}",
            document.as_bytes().len()
        );
        return Err(CommandError::new(ErrorCode::BadValue, text));
    }
    let mut id = None;
    for (at, element) in document.iter_elements().filter_map(Result::ok).enumerate() {
        if element.key() == cstr!("_id") {
            let value = element.value().ok();
            check_id(value)?;
            if at == 0 {
                return Ok(None);
            }
            id = value;
            break;
        }
    }
    let mut made = RawDocumentBuf::new();
    match id {
        Some(id) => made.append(cstr!("_id"), id),
        None => made.append(cstr!("_id"), context.server.ids.make(context.now_ms)),
    }
    for element in document.iter_elements().filter_map(Result::ok) {
        if element.key() != cstr!("_id")
            && let Ok(value) = element.value()
        {
            made.append(element.key(), value);
        }
    }
    Ok(Some(made))
}

fn check_id(id: Option<RawBsonRef<'_>>) -> Result<(), CommandError> {
    let name = match id {
        Some(RawBsonRef::Array(_)) => "array",
        Some(RawBsonRef::RegularExpression(_)) => "regex",
        Some(RawBsonRef::Undefined) => "undefined",
        _ => return Ok(()),
    };
    let text = format!("The '_id' value cannot be of type {name}");
    Err(CommandError::new(ErrorCode::InvalidIdField, text))
}

impl Running for Insert {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if let Some(step) = self.asked.take() {
            let answer = some(answer)?;
            let before = self.failures.len();
            match answer.status {
                Status::Ok => {
                    self.inserted += answer.number.max(0) as u64;
                    self.failures.extend(Failure::all_of(&answer, step.first));
                }
                _ => {
                    let error = refusal(&answer);
                    if is_of_server(&error) {
                        return Err(error);
                    }
                    // None of them is in the collection, for the same reason.
                    self.failures.push(Failure::new(step.first, &error));
                    if !self.ordered {
                        let rest = step.first + 1..step.first + step.count;
                        self.failures.extend(rest.map(|index| Failure::new(index, &error)));
                    }
                }
            }
            if self.ordered && self.failures.len() > before {
                self.steps.clear();
                // What failed before it was sent stands behind.
                self.failures.drain(..before);
            }
        }
        if let Some(step) = self.steps.pop_front() {
            let documents = Items::parse(&step.documents).expect("it was made here");
            let asked = ask(
                &self.namespace,
                CollectionCommand::Insert { documents, ordered: self.ordered },
            );
            self.asked = Some(step);
            return Ok(asked);
        }
        self.failures.sort_by_key(|Failure(of)| of.get_i32("index").unwrap_or_default());
        Ok(Step::Done(ok_body(|reply| {
            reply.count(cstr!("n"), self.inserted);
            write_failures(reply, &self.failures);
        })))
    }
}

/// One update or removal, as its shard is asked for it.
pub(super) struct Change {
    /// All of the request but where the next step begins.
    request: RawDocumentBuf,
    at: Option<Vec<u8>>,
    pub(super) matched: u64,
    pub(super) modified: u64,
    pub(super) upserted: Option<RawBson>,
    document: Option<RawDocumentBuf>,
    pub(super) removes: bool,
}

impl Change {
    pub(super) fn new(request: RawDocumentBuf, removes: bool) -> Self {
        Self { request, at: None, matched: 0, modified: 0, upserted: None, document: None, removes }
    }

    pub(super) fn question(&self, namespace: &[u8]) -> Step {
        let mut request = self.request.clone();
        if let Some(at) = &self.at {
            let at =
                bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: at.clone() };
            request.append(cstr!("at"), at);
        }
        ask(namespace, CollectionCommand::Write { request: request.as_bytes() })
    }

    /// Takes the answer to a step. True if it was the last one.
    pub(super) fn take(&mut self, answer: &OwnedReply) -> Result<bool, CommandError> {
        self.matched += answer.number.max(0) as u64;
        let senseless =
            || CommandError::new(ErrorCode::InternalError, "a shard's answer makes no sense");
        let told = RawDocument::from_bytes(answer.value.as_deref().unwrap_or_default())
            .map_err(|_| senseless())?;
        self.modified += told.get("modified").ok().flatten().and_then(natural).unwrap_or_default();
        if let Ok(Some(id)) = told.get("upserted") {
            self.upserted = Some(id.into());
        }
        if let Ok(document) = told.get_document("document") {
            self.document = Some(document.to_owned());
        }
        if let Ok(error) = told.get_document("error") {
            return Err(CommandError::described(error));
        }
        self.at = told.get_binary("at").ok().map(|at| at.bytes.to_vec());
        Ok(self.at.is_none())
    }
}

fn natural(value: RawBsonRef<'_>) -> Option<u64> {
    match value {
        RawBsonRef::Int32(of) => u64::try_from(of).ok(),
        RawBsonRef::Int64(of) => u64::try_from(of).ok(),
        _ => None,
    }
}

/// Changes that are made one after the other.
struct Changes {
    namespace: Vec<u8>,
    ordered: bool,
    left: VecDeque<(usize, Result<Change, CommandError>)>,
    current: Option<(usize, Change)>,
    matched: u64,
    modified: u64,
    upserted: Vec<(usize, RawBson)>,
    failures: Vec<Failure>,
    is_update: bool,
}

fn update(command: &Command<'_>, context: &mut Context<'_>) -> Result<Begun, CommandError> {
    refuse_bypass(command)?;
    let variables = command.document("let")?;
    changes(command, "updates", true, |part| update_of(part, variables, context))
}

fn delete(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    let variables = command.document("let")?;
    changes(command, "deletes", false, |part| delete_of(part, variables))
}

fn changes(
    command: &Command<'_>,
    name: &'static str,
    is_update: bool,
    mut of: impl FnMut(&RawDocument) -> Result<Change, CommandError>,
) -> Result<Begun, CommandError> {
    let namespace = namespace(command.database(), command.collection()?)?;
    let ordered = command.bool("ordered")?.unwrap_or(true);
    let mut left = VecDeque::new();
    for (index, part) in command.documents(name)?.enumerate() {
        if index == MAX_WRITE_BATCH {
            return Err(batch_size(index + 1));
        }
        let change = of(part?);
        // What is malformed refuses the whole command, as in MongoDB.
        match &change {
            Err(error) if is_malformed(error) => return Err(error.clone()),
            _ => {}
        }
        left.push_back((index, change));
    }
    if left.is_empty() {
        return Err(batch_size(0));
    }
    Begun::running(Changes {
        namespace,
        ordered,
        left,
        current: None,
        matched: 0,
        modified: 0,
        upserted: Vec::new(),
        failures: Vec::new(),
        is_update,
    })
}

/// Whether an error is about the form of a command, which refuses all of it.
pub(super) fn is_malformed(error: &CommandError) -> bool {
    matches!(
        error.code(),
        Some(ErrorCode::UnknownField | ErrorCode::MissingField | ErrorCode::TypeMismatch)
    )
}

/// A field that a part of a command has to have.
pub(super) fn needed<'a>(
    part: &'a RawDocument,
    (command, name): (&str, &str),
    field: &str,
) -> Result<RawBsonRef<'a>, CommandError> {
    part.get(field).ok().flatten().ok_or_else(|| {
        let text = format!("BSON field '{command}.{name}.{field}' is missing but a required field");
        CommandError::new(ErrorCode::MissingField, text)
    })
}

pub(super) fn wrong_type(field: &str, expected: &str) -> CommandError {
    let text = format!("BSON field '{field}' is the wrong type, expected type '{expected}'");
    CommandError::new(ErrorCode::TypeMismatch, text)
}

pub(super) fn truth(part: &RawDocument, field: &str) -> Result<bool, CommandError> {
    match part.get(field).ok().flatten() {
        None => Ok(false),
        Some(RawBsonRef::Boolean(of)) => Ok(of),
        Some(RawBsonRef::Int32(of)) => Ok(of != 0),
        Some(RawBsonRef::Int64(of)) => Ok(of != 0),
        Some(RawBsonRef::Double(of)) => Ok(of != 0.0),
        Some(_) => Err(wrong_type(field, "bool")),
    }
}

pub(super) fn update_of(
    part: &RawDocument,
    variables: Option<&RawDocument>,
    context: &mut Context<'_>,
) -> Result<Change, CommandError> {
    let of = ("update", "updates");
    only_fields(
        part,
        of,
        &["q", "u", "multi", "upsert", "arrayFilters", "hint", "collation", "c"],
    )?;
    let filter = needed(part, of, "q")?
        .as_document()
        .ok_or_else(|| wrong_type("update.updates.q", "object"))?;
    let update = needed(part, of, "u")?;
    no_collation(part.get_document("collation").ok())?;
    if part.get("c").ok().flatten().is_some() {
        let text = "constants of updates are not supported: let has variables";
        return Err(CommandError::new(ErrorCode::InvalidOptions, text));
    }
    let (multi, upsert) = (truth(part, "multi")?, truth(part, "upsert")?);
    if multi && !is_operators(update)? {
        let text = "multi update is not supported for replacement-style update";
        return Err(CommandError::new(ErrorCode::FailedToParse, text));
    }
    let mut request = RawDocumentBuf::new();
    request.append(cstr!("q"), filter.to_owned());
    request.append(cstr!("u"), update);
    request.append(cstr!("multi"), multi);
    if upsert {
        request.append(cstr!("upsert"), true);
        request.append(cstr!("_id"), context.server.ids.make(context.now_ms));
    }
    if let Some(filters) = part.get("arrayFilters").ok().flatten() {
        let filters =
            filters.as_array().ok_or_else(|| wrong_type("update.updates.arrayFilters", "array"))?;
        request.append(cstr!("arrayFilters"), filters.to_owned());
    }
    append_hint(&mut request, part.get("hint").ok().flatten())?;
    append_variables(&mut request, variables);
    Ok(Change::new(request, false))
}

/// Whether an update has operators, or is a pipeline.
fn is_operators(update: RawBsonRef<'_>) -> Result<bool, CommandError> {
    match update {
        RawBsonRef::Array(_) => Ok(true),
        RawBsonRef::Document(of) => {
            let first = of.iter_elements().next().and_then(Result::ok);
            Ok(first.is_some_and(|first| first.key().as_str().starts_with('$')))
        }
        _ => {
            let text = "Update argument must be either an object or an array";
            Err(CommandError::new(ErrorCode::FailedToParse, text))
        }
    }
}

fn append_hint(
    request: &mut RawDocumentBuf,
    hint: Option<RawBsonRef<'_>>,
) -> Result<(), CommandError> {
    if let Some(hint) = hint_of(hint)?
        && let Ok(Some(hint)) = hint.get("hint")
    {
        request.append(cstr!("hint"), hint);
    }
    Ok(())
}

fn append_variables(request: &mut RawDocumentBuf, variables: Option<&RawDocument>) {
    if let Some(variables) = variables {
        request.append(cstr!("let"), variables.to_owned());
    }
}

pub(super) fn delete_of(
    part: &RawDocument,
    variables: Option<&RawDocument>,
) -> Result<Change, CommandError> {
    let of = ("delete", "deletes");
    only_fields(part, of, &["q", "limit", "hint", "collation"])?;
    let filter = needed(part, of, "q")?
        .as_document()
        .ok_or_else(|| wrong_type("delete.deletes.q", "object"))?;
    no_collation(part.get_document("collation").ok())?;
    let multi = match needed(part, of, "limit")? {
        RawBsonRef::Int32(0) | RawBsonRef::Int64(0) | RawBsonRef::Double(0.0) => true,
        RawBsonRef::Int32(1) | RawBsonRef::Int64(1) | RawBsonRef::Double(1.0) => false,
        other => {
            let text = format!("The limit field in delete objects must be 0 or 1. Got {other:?}");
            return Err(CommandError::new(ErrorCode::FailedToParse, text));
        }
    };
    let mut request = RawDocumentBuf::new();
    request.append(cstr!("q"), filter.to_owned());
    request.append(cstr!("multi"), multi);
    append_hint(&mut request, part.get("hint").ok().flatten())?;
    append_variables(&mut request, variables);
    Ok(Change::new(request, true))
}

impl Changes {
    fn fail(&mut self, index: usize, error: &CommandError) -> Result<(), CommandError> {
        if is_of_server(error) {
            return Err(error.clone());
        }
        self.failures.push(Failure::new(index, error));
        if self.ordered {
            self.left.clear();
        }
        Ok(())
    }

    fn count(&mut self, index: usize, change: Change) {
        self.matched += change.matched;
        self.modified += change.modified;
        if let Some(id) = change.upserted {
            self.matched += 1;
            self.upserted.push((index, id));
        }
    }
}

impl Running for Changes {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if let Some((index, mut change)) = self.current.take() {
            match done(answer).and_then(|answer| change.take(&answer)) {
                Ok(false) => {
                    let question = change.question(&self.namespace);
                    self.current = Some((index, change));
                    return Ok(question);
                }
                Ok(true) => self.count(index, change),
                Err(error) => {
                    self.count(index, change);
                    self.fail(index, &error)?;
                }
            }
        }
        while let Some((index, change)) = self.left.pop_front() {
            match change {
                Ok(change) => {
                    let question = change.question(&self.namespace);
                    self.current = Some((index, change));
                    return Ok(question);
                }
                Err(error) => self.fail(index, &error)?,
            }
        }
        Ok(Step::Done(ok_body(|reply| {
            reply.count(cstr!("n"), self.matched);
            if self.is_update {
                reply.count(cstr!("nModified"), self.modified);
                if !self.upserted.is_empty() {
                    reply.array(cstr!("upserted"), |to| {
                        for (index, id) in &self.upserted {
                            to.document(|of| {
                                of.i32(cstr!("index"), *index as i32);
                                of.value(cstr!("_id"), id.as_raw_bson_ref());
                            });
                        }
                    });
                }
            }
            write_failures(reply, &self.failures);
        })))
    }
}

/// `findAndModify`. With an order, the first document is looked for, and then changed if it still matches.
struct FindAndModify {
    namespace: Vec<u8>,
    change: Change,
    filter: RawDocumentBuf,
    first: Option<Search>,
    projection: Option<Projection>,
    tries: usize,
    is_asked: bool,
}

/// How often a document that others have changed meanwhile is looked for again.
const TRIES: usize = 16;

/// Refuses a user that may change documents, but not find them: the reply has one.
fn needs_find(namespace: &[u8], context: &Context<'_>) -> Result<(), CommandError> {
    let request = RawDocumentBuf::new();
    if context.may(&ask(namespace, CollectionCommand::Find { request: request.as_bytes() })) {
        return Ok(());
    }
    let text = "not authorized to execute command doc.find, which findAndModify needs too";
    Err(CommandError::new(ErrorCode::Unauthorized, text))
}

fn find_and_modify(
    command: &Command<'_>,
    context: &mut Context<'_>,
) -> Result<Begun, CommandError> {
    refuse_bypass(command)?;
    no_collation(command.document("collation")?)?;
    let namespace = namespace(command.database(), command.collection()?)?;
    needs_find(&namespace, context)?;
    let (remove, new) =
        (command.bool("remove")?.unwrap_or(false), command.bool("new")?.unwrap_or(false));
    let (upsert, update) = (command.bool("upsert")?.unwrap_or(false), command.get("update"));
    let refuse = |text: &'static str| Err(CommandError::new(ErrorCode::FailedToParse, text));
    match (remove, update) {
        (true, Some(_)) => return refuse("Cannot specify both an update and remove=true"),
        (true, None) if upsert => return refuse("Cannot specify both upsert=true and remove=true"),
        (true, None) if new => {
            return refuse(
                "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document",
            );
        }
        (false, None) => return refuse("Either an update or remove=true must be specified"),
        _ => {}
    }
    let filter = command.document("query")?.map(RawDocument::to_owned).unwrap_or_default();
    let mut request = RawDocumentBuf::new();
    if let Some(update) = update {
        is_operators(update)?;
        request.append(cstr!("u"), update);
    }
    request.append(cstr!("multi"), false);
    request.append(cstr!("give"), if new { "after" } else { "before" });
    if upsert {
        request.append(cstr!("upsert"), true);
        request.append(cstr!("_id"), context.server.ids.make(context.now_ms));
    }
    if let Some(filters) = command.array("arrayFilters")? {
        request.append(cstr!("arrayFilters"), filters.to_owned());
    }
    append_variables(&mut request, command.document("let")?);
    let hint = command.get("hint");
    let first = match sort_of(command.document("sort")?) {
        None => {
            append_hint(&mut request, hint)?;
            None
        }
        Some(sort) => Some(Search::new(Wanted {
            namespace: namespace.clone(),
            filter: filter.clone(),
            sort: Some(sort),
            hint: hint_of(hint)?,
            skip: 0,
            limit: Some(1),
            variables: command.document("let")?.map(RawDocument::to_owned),
            ..Wanted::default()
        })?),
    };
    let change = Change::new(request, remove);
    let projection = command.document("fields")?.filter(|of| of.iter_elements().next().is_some());
    let variables = variables_of(command, context)?;
    let projection = projection.map(|of| Projection::parse_with(of, &variables)).transpose()?;
    if projection.as_ref().is_some_and(Projection::is_positional) {
        return refuse("the positional operator in fields of findAndModify is not supported");
    }
    let (tries, is_asked) = (0, false);
    Begun::running(FindAndModify { namespace, change, filter, first, projection, tries, is_asked })
}

impl FindAndModify {
    /// The request for a document that matches, and has this `_id`, if there is one.
    fn ask_change(&mut self, id: Option<RawBsonRef<'_>>) -> Step {
        let mut filter = RawDocumentBuf::new();
        match id {
            None => filter.clone_from(&self.filter),
            Some(id) => {
                let mut by_id = RawDocumentBuf::new();
                by_id.append(cstr!("_id"), id);
                let mut all = RawArrayBuf::new();
                all.push(by_id);
                all.push(self.filter.clone());
                filter.append(cstr!("$and"), all);
            }
        }
        let mut request = RawDocumentBuf::new();
        request.append(cstr!("q"), filter);
        for element in self.change.request.iter_elements().filter_map(Result::ok) {
            // A document that was found does not need to be made.
            let is_needed = id.is_none() || element.key() != cstr!("upsert");
            if let Ok(value) = element.value()
                && element.key() != cstr!("q")
                && is_needed
            {
                request.append(element.key(), value);
            }
        }
        self.is_asked = true;
        let asked = Change {
            request,
            at: self.change.at.take(),
            ..Change::new(RawDocumentBuf::new(), false)
        };
        asked.question(&self.namespace)
    }

    fn reply(&self) -> Result<Step, CommandError> {
        let Change { matched, document, upserted, removes, .. } = &self.change;
        let document = match (document, &self.projection) {
            (Some(document), Some(projection)) => Some(projection.apply(document, None)?),
            (document, _) => document.clone(),
        };
        Ok(Step::Done(ok_body(|reply| {
            reply.document(cstr!("lastErrorObject"), |of| {
                of.i32(cstr!("n"), i32::from(*matched > 0 || upserted.is_some()));
                if !removes {
                    of.bool(cstr!("updatedExisting"), *matched > 0);
                }
                if let Some(id) = upserted {
                    of.value(cstr!("upserted"), id.as_raw_bson_ref());
                }
            });
            match &document {
                Some(document) => reply.raw_document(cstr!("value"), document),
                None => reply.null(cstr!("value")),
            }
        })))
    }
}

impl Running for FindAndModify {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if self.is_asked {
            let answer = done(answer)?;
            if !self.change.take(&answer)? {
                return Ok(self.ask_change(None));
            }
            let is_lost = self.change.matched == 0 && self.change.upserted.is_none();
            let Some(first) = self.first.as_mut().filter(|_| is_lost) else {
                return self.reply();
            };
            if self.tries == TRIES {
                let text = "other clients change the documents that were found: try again";
                return Err(CommandError::new(ErrorCode::WriteConflict, text));
            }
            first.begin_anew()?;
            (self.is_asked, self.tries) = (false, self.tries + 1);
            return Ok(first.question());
        }
        let Some(first) = &mut self.first else { return Ok(self.ask_change(None)) };
        if answer.is_some() {
            first.take(&done(answer)?)?;
        }
        if let Some(document) = first.next() {
            let id = document.get("_id").ok().flatten();
            return Ok(self.ask_change(id));
        }
        if !first.is_over() {
            return Ok(first.question());
        }
        // Nothing matches.
        self.first = None;
        Ok(self.ask_change(None))
    }
}
