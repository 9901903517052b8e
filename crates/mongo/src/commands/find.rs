//! `find` and `distinct`.

use super::cursor::{FirstBatch, first_batch_size};
use crate::command::Command;
use crate::fields::namespace;
use crate::query::{Query, Search, Wanted};
use crate::reply::{CommandError, ErrorCode};
use crate::running::{Begun, Context, Running, Step, done, ok_body};
use crate::spec::{Right, Spec};
use bson::raw::RawBsonRef;
use bson::{RawDocument, RawDocumentBuf, cstr};
use remora_document::{Distinct, Variables};
use remora_frontend::OwnedReply;

pub(super) static COMMANDS: &[Spec] = &[
    Spec {
        names: &["find"],
        summary: "Finds documents.",
        right: Right::Collection("doc.find"),
        fields: &[
            "filter",
            "sort",
            "skip",
            "limit",
            "batchSize",
            "singleBatch",
            "hint",
            "noCursorTimeout",
            "allowDiskUse",
            "collation",
            "projection",
            "let",
        ],
        begin: find,
    },
    Spec {
        names: &["distinct"],
        summary: "Gives the different values of a field.",
        right: Right::Collection("doc.find"),
        fields: &["key", "query", "hint", "collation"],
        begin: distinct,
    },
];

/// What a query has in all commands.
pub(super) fn wanted(command: &Command<'_>, filter: &str) -> Result<Wanted, CommandError> {
    no_collation(command.document("collation")?)?;
    let natural = |name: &str| -> Result<Option<u64>, CommandError> {
        let Some(number) = command.i64(name)? else { return Ok(None) };
        let negative = |_| {
            let text = format!("{name} value must be non-negative, but received: {number}");
            CommandError::new(ErrorCode::BadValue, text)
        };
        u64::try_from(number).map(Some).map_err(negative)
    };
    let filter = command.document(filter)?.map(RawDocument::to_owned).unwrap_or_default();
    Ok(Wanted {
        namespace: namespace(command.database(), command.collection()?)?,
        filter,
        sort: sort_of(command.document("sort")?),
        hint: hint_of(command.get("hint"))?,
        skip: natural("skip")?.unwrap_or_default(),
        variables: command.document("let")?.map(RawDocument::to_owned),
        ..Wanted::default()
    })
}

/// An order, unless it is empty.
pub(super) fn sort_of(sort: Option<&RawDocument>) -> Option<RawDocumentBuf> {
    sort.filter(|sort| sort.iter_elements().next().is_some()).map(RawDocument::to_owned)
}

/// A hint as a document with one field, `hint`.
pub(super) fn hint_of(
    value: Option<RawBsonRef<'_>>,
) -> Result<Option<RawDocumentBuf>, CommandError> {
    let value = match value {
        None => return Ok(None),
        Some(RawBsonRef::Document(keys)) if keys.iter_elements().next().is_none() => {
            return Ok(None);
        }
        Some(value @ (RawBsonRef::String(_) | RawBsonRef::Document(_))) => value,
        Some(_) => {
            let text = "Hint must be a string or an object";
            return Err(CommandError::new(ErrorCode::FailedToParse, text));
        }
    };
    let mut hint = RawDocumentBuf::new();
    hint.append(cstr!("hint"), value);
    Ok(Some(hint))
}

/// Strings are compared by their bytes.
pub(super) fn no_collation(collation: Option<&RawDocument>) -> Result<(), CommandError> {
    let Some(collation) = collation else { return Ok(()) };
    match collation.get_str("locale") {
        Ok("simple") => Ok(()),
        _ if collation.iter_elements().next().is_none() => Ok(()),
        _ => {
            let text = "collations are not supported: strings are compared by their bytes (locale \"simple\")";
            Err(CommandError::new(ErrorCode::InvalidOptions, text))
        }
    }
}

fn find(command: &Command<'_>, context: &mut Context<'_>) -> Result<Begun, CommandError> {
    let mut wanted = wanted(command, "filter")?;
    let (limit, size) = (command.i64("limit")?.unwrap_or(0), command.i64("batchSize")?);
    // A negative limit is one that has no further batch.
    wanted.limit = (limit != 0).then(|| limit.unsigned_abs());
    let is_single = command.bool("singleBatch")?.unwrap_or(false) || limit < 0;
    let size = match size {
        None if limit < 0 => usize::MAX,
        size => first_batch_size(size)?,
    };
    let is_patient = command.bool("noCursorTimeout")?.unwrap_or(false);
    let variables = variables_of(command, context)?;
    let query = Query::find(wanted, command.document("projection")?, &variables)?;
    Begun::running(FirstBatch::new(query, (size, is_single, is_patient), context))
}

/// The variables that a command's expressions see.
pub(super) fn variables_of(
    command: &Command<'_>,
    context: &Context<'_>,
) -> Result<Variables, CommandError> {
    let seed = context.server.random_number();
    Ok(Variables::parse(context.now_ms as i64, seed, command.document("let")?)?)
}

struct Distincts {
    search: Search,
    values: Distinct,
}

fn distinct(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    let Some(key) = command.str("key")? else {
        let text = "BSON field 'distinct.key' is missing but a required field";
        return Err(CommandError::new(ErrorCode::MissingField, text));
    };
    let values = Distinct::new(key)?;
    let wanted = Wanted { any_order: true, ..wanted(command, "query")? };
    Begun::running(Distincts { search: Search::new(wanted)?, values })
}

impl Running for Distincts {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if answer.is_some() {
            self.search.take(&done(answer)?)?;
        }
        while let Some(document) = self.search.next() {
            self.values.push(&document)?;
        }
        if !self.search.is_over() {
            return Ok(self.search.question());
        }
        let values = self.values.values();
        Ok(Step::Done(ok_body(|reply| reply.raw_array(cstr!("values"), values))))
    }
}
