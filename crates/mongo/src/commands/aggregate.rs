//! `aggregate`.

use super::count::CountedGroup;
use super::cursor::{FirstBatch, first_batch_size};
use super::find::{hint_of, no_collation, variables_of};
use super::find_key::{FindKey, by_distance};
use super::merge::Merging;
use super::out::Out;
use super::write::refuse_bypass;
use crate::command::Command;
use crate::fields::{namespace, only_fields};
use crate::query::{Query, Wanted};
use crate::reply::{CommandError, ErrorCode};
use crate::running::{Begun, Context};
use crate::spec::{Right, Spec};
use bson::raw::RawBsonRef;
use bson::{RawArray, RawDocument};
use remora_document::{Pipeline, Sink};

pub(super) static COMMANDS: &[Spec] = &[Spec {
    names: &["aggregate"],
    summary: "Gives what a pipeline makes of documents.",
    right: Right::Collection("doc.find"),
    fields: &[
        "pipeline",
        "cursor",
        "hint",
        "let",
        "collation",
        "allowDiskUse",
        "bypassDocumentValidation",
    ],
    begin: aggregate,
}];

/// Documents of the first batch, by the field `cursor`.
fn batch_size(cursor: &RawDocument) -> Result<usize, CommandError> {
    only_fields(cursor, ("aggregate", "cursor"), &["batchSize"])?;
    let size = match cursor.get("batchSize").ok().flatten() {
        None => None,
        Some(RawBsonRef::Int32(size)) => Some(size.into()),
        Some(RawBsonRef::Int64(size)) => Some(size),
        Some(RawBsonRef::Double(size)) => Some(size as i64),
        Some(_) => {
            let text = "cursor.batchSize field must be a number";
            return Err(CommandError::new(ErrorCode::TypeMismatch, text));
        }
    };
    first_batch_size(size)
}

fn aggregate(command: &Command<'_>, context: &mut Context<'_>) -> Result<Begun, CommandError> {
    no_collation(command.document("collation")?)?;
    let Some(stages) = command.array("pipeline")? else {
        let text = "BSON field 'aggregate.pipeline' is missing but a required field";
        return Err(CommandError::new(ErrorCode::MissingField, text));
    };
    let Some(cursor) = command.document("cursor")? else {
        let text =
            "The 'cursor' option is required, except for aggregate with the explain argument";
        return Err(CommandError::new(ErrorCode::FailedToParse, text));
    };
    let size = batch_size(cursor)?;
    if command.bool("apiStrict")? == Some(true) {
        only_stable(stages)?;
    }
    let variables = variables_of(command, context)?;
    let pipeline = Pipeline::parse(stages, &variables)?;
    let source = pipeline.source();
    let geo_near = source.geo_near.clone();
    let namespace = match command.first() {
        RawBsonRef::String(collection) => namespace(command.database(), collection)?,
        _ if !source.reads_collection => namespace(command.database(), "aggregate")?,
        _ => {
            let text = "{aggregate: 1} is not valid for this pipeline; a collection is required.";
            return Err(CommandError::new(ErrorCode::InvalidNamespace, text));
        }
    };
    let wanted = Wanted {
        namespace,
        filter: source.filter.clone(),
        sort: source.sort.clone(),
        hint: hint_of(command.get("hint"))?,
        skip: source.skip,
        limit: source.limit,
        variables: command.document("let")?.map(RawDocument::to_owned),
        ..Wanted::default()
    };
    let sink = pipeline.sink().cloned();
    if sink.is_some() {
        refuse_bypass(command)?;
    } else if size > 0
        && let Some(counted) = CountedGroup::of(stages, &wanted)
    {
        return Begun::running(counted);
    }
    let database = command.database().to_owned();
    let run = move |wanted: Wanted, context: &mut Context<'_>| {
        let query = Query::pipeline(wanted, pipeline)?;
        match sink {
            None => Begun::running(FirstBatch::new(query, (size, false, false), context)),
            Some(Sink::Out { database: other, collection }) => {
                let database = other.as_deref().unwrap_or(&database);
                Begun::running(Out::new(query, (database, &collection), context)?)
            }
            Some(Sink::Merge(merge)) => {
                Begun::running(Merging::new(query, (merge, variables), &database)?)
            }
        }
    };
    let Some(geo_near) = geo_near else { return run(wanted, context) };
    match geo_near.key() {
        Some(key) => run(by_distance(wanted, &geo_near, key)?, context),
        None => Begun::running(FindKey::new((geo_near, wanted), Box::new(run))),
    }
}

/// Refuses stages that are not in the Stable API.
fn only_stable(stages: &RawArray) -> Result<(), CommandError> {
    const OTHERS: &[&str] = &[
        "$currentOp",
        "$indexStats",
        "$listLocalSessions",
        "$listSessions",
        "$planCacheStats",
        "$search",
    ];
    let documents = stages.into_iter().flatten().filter_map(|stage| stage.as_document());
    let mut names = documents.filter_map(|stage| stage.iter().next()?.ok());
    match names.find(|(name, _)| OTHERS.contains(&name.as_str())) {
        None => Ok(()),
        Some((name, _)) => {
            let name = name.as_str();
            let text =
                format!("stage {name} is not allowed with 'apiStrict: true' in API Version 1");
            Err(CommandError::new(ErrorCode::ApiStrictError, text))
        }
    }
}
