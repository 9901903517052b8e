//! `bulkWrite`: insertions, updates and removals of several collections.
//!
//! They are made one after the other, each in steps of its own, and the reply tells of each. Drivers send the
//! command to servers with wire version 25 only, which this server does not promise; a client may send it by itself.

use super::find::no_collation;
use super::write::{
    Change, Failure, Failures, batch_size, delete_of, is_malformed, is_of_server, needed,
    refuse_bypass, truth, update_of, with_id, wrong_type,
};
use crate::command::Command;
use crate::fields::{namespace, only_fields};
use crate::limits::{MAX_BULK_NAMESPACES, MAX_WRITE_BATCH};
use crate::reply::{CommandError, ErrorCode};
use crate::running::{Begun, Context, Running, Step, ask, done, ok_body};
use crate::spec::{Right, Spec};
use crate::writer::{DocumentWriter, write_document};
use bson::raw::RawBsonRef;
use bson::{RawBson, RawDocument, RawDocumentBuf, cstr};
use remora_frontend::OwnedReply;
use remora_protocol::Items;
use remora_protocol::collection::CollectionCommand;
use std::collections::VecDeque;

pub(super) static COMMANDS: &[Spec] = &[Spec {
    names: &["bulkWrite"],
    summary: "Adds, changes and removes documents of several collections.",
    right: Right::Login,
    fields: &["ops", "nsInfo", "ordered", "bypassDocumentValidation", "errorsOnly", "let"],
    begin: bulk_write,
}];

const OPS: (&str, &str) = ("bulkWrite", "ops");

/// One write.
enum Write {
    /// A document with an `_id`.
    Insert(RawDocumentBuf),
    Change(Change),
}

/// What one write has done.
#[derive(Default)]
struct Outcome {
    n: u64,
    modified: Option<u64>,
    upserted: Option<RawBson>,
}

struct Planned {
    index: usize,
    /// Of the list of namespaces.
    namespace: usize,
    write: Result<Write, CommandError>,
}

#[derive(Default)]
struct Totals {
    errors: u64,
    inserted: u64,
    matched: u64,
    modified: u64,
    upserted: u64,
    deleted: u64,
}

struct Bulk {
    namespaces: Vec<Vec<u8>>,
    ordered: bool,
    errors_only: bool,
    left: VecDeque<Planned>,
    current: Option<(usize, usize, Write)>,
    totals: Totals,
    /// The part of the reply about each write that it tells of.
    told: Vec<RawDocumentBuf>,
    failures: Failures,
}

fn bulk_write(command: &Command<'_>, context: &mut Context<'_>) -> Result<Begun, CommandError> {
    if command.database() != "admin" {
        let text = "bulkWrite may only be run against the admin database.";
        return Err(CommandError::new(ErrorCode::Unauthorized, text));
    }
    refuse_bypass(command)?;
    let namespaces = namespaces(command)?;
    let variables = command.document("let")?;
    let mut left = VecDeque::new();
    for (index, op) in command.documents("ops")?.enumerate() {
        if index == MAX_WRITE_BATCH {
            return Err(batch_size(index + 1));
        }
        let (namespace, write) = planned(op?, variables, context)?;
        if namespace >= namespaces.len() {
            let text = format!("BulkWrite ops entry {index} has an invalid nsInfo index.");
            return Err(CommandError::new(ErrorCode::BadValue, text));
        }
        match &write {
            Err(error) if is_malformed(error) => return Err(error.clone()),
            _ => left.push_back(Planned { index, namespace, write }),
        }
    }
    if left.is_empty() {
        return Err(batch_size(0));
    }
    Begun::running(Bulk {
        namespaces,
        ordered: command.bool("ordered")?.unwrap_or(true),
        errors_only: command.bool("errorsOnly")?.unwrap_or(false),
        left,
        current: None,
        totals: Totals::default(),
        told: Vec::new(),
        failures: Failures::default(),
    })
}

fn namespaces(command: &Command<'_>) -> Result<Vec<Vec<u8>>, CommandError> {
    let of = ("bulkWrite", "nsInfo");
    let mut all = Vec::new();
    for part in command.documents("nsInfo")? {
        if all.len() == MAX_BULK_NAMESPACES {
            let text = format!("nsInfo has more than {MAX_BULK_NAMESPACES} namespaces");
            return Err(CommandError::new(ErrorCode::BadValue, text));
        }
        let part = part?;
        only_fields(part, of, &["ns"])?;
        let RawBsonRef::String(name) = needed(part, of, "ns")? else {
            return Err(wrong_type("bulkWrite.nsInfo.ns", "string"));
        };
        let (database, collection) = name.split_once('.').ok_or_else(|| {
            let text = format!("Invalid namespace specified '{name}'");
            CommandError::new(ErrorCode::InvalidNamespace, text)
        })?;
        all.push(namespace(database, collection)?);
    }
    Ok(all)
}

/// The namespace and the write of one part of `ops`. What is no write at all refuses the command.
fn planned(
    op: &RawDocument,
    variables: Option<&RawDocument>,
    context: &mut Context<'_>,
) -> Result<(usize, Result<Write, CommandError>), CommandError> {
    let first = op.iter_elements().next().and_then(Result::ok);
    let kind = first.as_ref().map_or("", |first| first.key().as_str());
    let number = match first.as_ref().and_then(|first| first.value().ok()) {
        Some(RawBsonRef::Int32(number)) => usize::try_from(number).ok(),
        Some(RawBsonRef::Int64(number)) => usize::try_from(number).ok(),
        _ => None,
    };
    let write = match kind {
        "insert" => insertion(op, context),
        "update" => update(op, variables, context).map(Write::Change),
        "delete" => removal(op, variables).map(Write::Change),
        other => {
            let text = format!("BSON field 'bulkWrite.ops.{other}' is an unknown field.");
            return Err(CommandError::new(ErrorCode::UnknownField, text));
        }
    };
    let number = number.ok_or_else(|| wrong_type(&format!("bulkWrite.ops.{kind}"), "int"))?;
    Ok((number, write))
}

fn insertion(op: &RawDocument, context: &mut Context<'_>) -> Result<Write, CommandError> {
    only_fields(op, OPS, &["insert", "document"])?;
    let document = needed(op, OPS, "document")?
        .as_document()
        .ok_or_else(|| wrong_type("bulkWrite.ops.document", "object"))?;
    let made = with_id(document, context)?;
    Ok(Write::Insert(made.unwrap_or_else(|| document.to_owned())))
}

/// An update as the command `update` has it, whose fields have other names.
fn update(
    op: &RawDocument,
    variables: Option<&RawDocument>,
    context: &mut Context<'_>,
) -> Result<Change, CommandError> {
    let fields = [
        "update",
        "filter",
        "updateMods",
        "multi",
        "upsert",
        "arrayFilters",
        "hint",
        "collation",
        "constants",
    ];
    only_fields(op, OPS, &fields)?;
    let mut part = RawDocumentBuf::new();
    for element in op.iter_elements().skip(1).filter_map(Result::ok) {
        let name = match element.key().as_str() {
            "filter" => cstr!("q"),
            "updateMods" => cstr!("u"),
            "constants" => cstr!("c"),
            _ => element.key(),
        };
        if let Ok(value) = element.value() {
            part.append(name, value);
        }
    }
    needed(op, OPS, "filter")?;
    needed(op, OPS, "updateMods")?;
    update_of(&part, variables, context)
}

fn removal(op: &RawDocument, variables: Option<&RawDocument>) -> Result<Change, CommandError> {
    only_fields(op, OPS, &["delete", "filter", "multi", "hint", "collation"])?;
    no_collation(op.get_document("collation").ok())?;
    let mut part = RawDocumentBuf::new();
    part.append(cstr!("q"), needed(op, OPS, "filter")?);
    part.append(cstr!("limit"), i32::from(!truth(op, "multi")?));
    if let Ok(Some(hint)) = op.get("hint") {
        part.append(cstr!("hint"), hint);
    }
    delete_of(&part, variables)
}

impl Write {
    fn question(&self, namespace: &[u8]) -> Step {
        match self {
            Self::Change(change) => change.question(namespace),
            Self::Insert(document) => {
                let mut list = Vec::new();
                Items::push(&mut list, document.as_bytes());
                let documents = Items::parse(&list).expect("it was made here");
                ask(namespace, CollectionCommand::Insert { documents, ordered: true })
            }
        }
    }
}

impl Bulk {
    fn fail(&mut self, index: usize, failure: Failure) {
        let code = failure.0.get_i32("code").unwrap_or_default();
        let failure = self.failures.bounded(failure);
        let mut body = Vec::new();
        write_document(&mut body, |of| {
            of.f64(cstr!("ok"), 0.0);
            of.i32(cstr!("idx"), index as i32);
            of.i32(cstr!("code"), code);
            for element in failure.0.iter_elements().filter_map(Result::ok) {
                let is_told = [cstr!("index"), cstr!("code")].contains(&element.key());
                if let Ok(value) = element.value()
                    && !is_told
                {
                    of.value(element.key(), value);
                }
            }
            of.i32(cstr!("n"), 0);
        });
        self.totals.errors += 1;
        self.tell(body);
        if self.ordered {
            self.left.clear();
        }
    }

    fn tell(&mut self, body: Vec<u8>) {
        self.told.push(RawDocumentBuf::from_bytes(body).expect("it was made here"));
    }

    fn succeed(&mut self, index: usize, outcome: &Outcome) {
        if self.errors_only {
            return;
        }
        let mut body = Vec::new();
        write_document(&mut body, |of: &mut DocumentWriter<'_>| {
            of.f64(cstr!("ok"), 1.0);
            of.i32(cstr!("idx"), index as i32);
            of.count(cstr!("n"), outcome.n);
            if let Some(modified) = outcome.modified {
                of.count(cstr!("nModified"), modified);
            }
            if let Some(id) = &outcome.upserted {
                of.document(cstr!("upserted"), |to| to.value(cstr!("_id"), id.as_raw_bson_ref()));
            }
        });
        self.tell(body);
    }

    /// Counts what a change has done, also one that has failed behind its beginning.
    fn count(&mut self, change: Change) -> Outcome {
        if change.removes {
            self.totals.deleted += change.matched;
            return Outcome { n: change.matched, ..Outcome::default() };
        }
        self.totals.matched += change.matched;
        self.totals.modified += change.modified;
        self.totals.upserted += u64::from(change.upserted.is_some());
        let n = change.matched + u64::from(change.upserted.is_some());
        Outcome { n, modified: Some(change.modified), upserted: change.upserted }
    }

    /// Takes the answer about the present write. The question about its next step, if there is one.
    fn take(&mut self, answer: Option<OwnedReply>) -> Result<Option<Step>, CommandError> {
        let Some((index, namespace, write)) = self.current.take() else { return Ok(None) };
        let refused = |error: CommandError| match is_of_server(&error) {
            true => Err(error),
            false => Ok(Failure::new(index, &error)),
        };
        match (write, done(answer)) {
            (Write::Insert(_), Ok(answer)) => match Failure::all_of(&answer, index).next() {
                Some(failure) => self.fail(index, failure),
                None => {
                    self.totals.inserted += 1;
                    self.succeed(index, &Outcome { n: 1, ..Outcome::default() });
                }
            },
            (Write::Insert(_), Err(error)) => self.fail(index, refused(error)?),
            (Write::Change(mut change), answer) => {
                match answer.and_then(|answer| change.take(&answer)) {
                    Ok(false) => {
                        let question = change.question(&self.namespaces[namespace]);
                        self.current = Some((index, namespace, Write::Change(change)));
                        return Ok(Some(question));
                    }
                    Ok(true) => {
                        let outcome = self.count(change);
                        self.succeed(index, &outcome);
                    }
                    Err(error) => {
                        self.count(change);
                        self.fail(index, refused(error)?);
                    }
                }
            }
        }
        Ok(None)
    }

    fn reply(&self) -> Vec<u8> {
        ok_body(|reply| {
            reply.document(cstr!("cursor"), |cursor| {
                cursor.i64(cstr!("id"), 0);
                cursor.array(cstr!("firstBatch"), |to| {
                    self.told.iter().for_each(|of| to.raw_document(of));
                });
                cursor.str(cstr!("ns"), "admin.$cmd.bulkWrite");
            });
            let totals = &self.totals;
            for (name, count) in [
                (cstr!("nErrors"), totals.errors),
                (cstr!("nInserted"), totals.inserted),
                (cstr!("nMatched"), totals.matched),
                (cstr!("nModified"), totals.modified),
                (cstr!("nUpserted"), totals.upserted),
                (cstr!("nDeleted"), totals.deleted),
            ] {
                reply.count(name, count);
            }
        })
    }
}

impl Running for Bulk {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if let Some(question) = self.take(answer)? {
            return Ok(question);
        }
        while let Some(Planned { index, namespace, write }) = self.left.pop_front() {
            match write {
                Ok(write) => {
                    let question = write.question(&self.namespaces[namespace]);
                    self.current = Some((index, namespace, write));
                    return Ok(question);
                }
                Err(error) => self.fail(index, Failure::new(index, &error)),
            }
        }
        Ok(Step::Done(self.reply()))
    }
}
