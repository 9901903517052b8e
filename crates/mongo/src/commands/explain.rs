//! `explain`: how a command would find its documents.
//!
//! Invariant: it changes nothing. Of an update or a removal it examines the documents that would match.

use super::catalog::senseless;
use super::find::{hint_of, sort_of, wanted};
use super::find_key::{FindKey, by_distance};
use super::{aggregate, count, find, write};
use crate::command::Command;
use crate::fields::{Common, namespace};
use crate::query::{Wanted, write_hint};
use crate::reply::{CommandError, ErrorCode};
use crate::rings::{near_of, write_ring};
use crate::running::{Begun, Context, Running, Step, ask, done, ok_body};
use crate::spec::{Right, Spec};
use crate::writer::{DocumentWriter, write_document};
use bson::raw::RawBsonRef;
use bson::{RawDocument, RawDocumentBuf, cstr};
use remora_document::{Filter, GeoNear, Pipeline, Variables};
use remora_frontend::OwnedReply;
use remora_protocol::Items;
use remora_protocol::collection::CollectionCommand;

pub(super) static COMMANDS: &[Spec] = &[Spec {
    names: &["explain"],
    summary: "Tells how a command would find its documents, and how many it examines.",
    right: Right::Login,
    fields: &["verbosity"],
    begin: explain,
}];

/// A search that is explained.
struct Explain {
    wanted: Wanted,
    /// The command.
    command: RawDocumentBuf,
    counts: bool,
    /// Whether the documents are looked at.
    executes: bool,
    at: Option<Vec<u8>>,
    /// The plans of the first step, the best one first.
    plans: Option<RawDocumentBuf>,
    is_sorted: bool,
    keys: u64,
    documents: u64,
    found: u64,
    is_asked: bool,
    began_ms: u64,
}

fn explain(command: &Command<'_>, context: &mut Context<'_>) -> Result<Begun, CommandError> {
    let RawBsonRef::Document(body) = command.first() else {
        let text = "BSON field 'explain.explain' is the wrong type, expected type 'object'";
        return Err(CommandError::new(ErrorCode::TypeMismatch, text));
    };
    let executes = match command.str("verbosity")? {
        Some("queryPlanner") => false,
        None | Some("executionStats" | "allPlansExecution") => true,
        Some(other) => {
            let text = format!(
                "Enumeration value '{other}' for field 'explain.verbosity' is not a valid value."
            );
            return Err(CommandError::new(ErrorCode::BadValue, text));
        }
    };
    let inner = command.explained(body)?;
    let not_there = || {
        let text = format!("Explain failed due to unknown command: {}", inner.name());
        CommandError::new(ErrorCode::CommandNotFound, text)
    };
    let explained = [find::COMMANDS, count::COMMANDS, aggregate::COMMANDS, write::COMMANDS];
    let mut explained = explained.into_iter().flatten();
    let known = explained.find(|spec| spec.names.contains(&inner.name())).ok_or_else(not_there)?;
    let Searched { wanted, counts, geo_near } = searched(&inner, context)?;
    let mut fields = known.fields.to_vec();
    // Of `aggregate`, for which it is the older form of this command.
    fields.push("explain");
    Common::of(&inner, &fields, context.common())?;
    Filter::parse(&wanted.filter).or_else(|error| match &wanted.variables {
        // The shard knows the variables.
        Some(_) => Filter::parse(&RawDocumentBuf::new()),
        None => Err(error),
    })?;
    let command = body.to_owned();
    let run = move |wanted: Wanted, context: &mut Context<'_>| {
        Begun::running(Explain::new((wanted, counts), (command, executes), context.now_ms))
    };
    let Some(geo_near) = geo_near else { return run(wanted, context) };
    match geo_near.key() {
        Some(key) => run(by_distance(wanted, &geo_near, key)?, context),
        None => Begun::running(FindKey::new((geo_near, wanted), Box::new(run))),
    }
}

/// What a command looks for.
struct Searched {
    wanted: Wanted,
    /// Whether it only counts.
    counts: bool,
    /// The stage that sorts documents by their distance.
    geo_near: Option<GeoNear>,
}

impl Searched {
    fn of((wanted, counts): (Wanted, bool)) -> Self {
        Self { wanted, counts, geo_near: None }
    }
}

/// What a command looks for, and whether it only counts.
fn searched(inner: &Command<'_>, context: &Context<'_>) -> Result<Searched, CommandError> {
    let of = match inner.name() {
        "aggregate" => return aggregate_searched(inner, context),
        "find" | "count" => {
            let limit = inner.i64("limit")?.filter(|limit| *limit != 0);
            let limit = limit.map(i64::unsigned_abs);
            let counts = inner.name() == "count";
            let filter = if counts { "query" } else { "filter" };
            (Wanted { limit, ..wanted(inner, filter)? }, counts)
        }
        "distinct" => (wanted(inner, "query")?, false),
        "findAndModify" | "findandmodify" => {
            (Wanted { limit: Some(1), ..wanted(inner, "query")? }, false)
        }
        "update" => write_searched(inner, ("updates", "multi"))?,
        "delete" => write_searched(inner, ("deletes", "limit"))?,
        name => {
            let text = format!("Explain failed due to unknown command: {name}");
            return Err(CommandError::new(ErrorCode::CommandNotFound, text));
        }
    };
    Ok(Searched::of(of))
}

/// The documents that a pipeline begins with.
fn aggregate_searched(
    inner: &Command<'_>,
    context: &Context<'_>,
) -> Result<Searched, CommandError> {
    let Some(stages) = inner.array("pipeline")? else {
        let text = "BSON field 'aggregate.pipeline' is missing but a required field";
        return Err(CommandError::new(ErrorCode::MissingField, text));
    };
    let variables = Variables::parse(context.now_ms as i64, 0, inner.document("let")?)?;
    let pipeline = Pipeline::parse(stages, &variables)?;
    let source = pipeline.source();
    let wanted = Wanted {
        namespace: namespace(inner.database(), inner.collection()?)?,
        filter: source.filter.clone(),
        sort: source.sort.clone(),
        hint: hint_of(inner.get("hint"))?,
        skip: source.skip,
        limit: source.limit,
        variables: inner.document("let")?.map(RawDocument::to_owned),
        ..Wanted::default()
    };
    Ok(Searched { geo_near: source.geo_near.clone(), ..Searched::of((wanted, false)) })
}

/// The documents that the only write of a command looks for.
fn write_searched(
    inner: &Command<'_>,
    (list, bound): (&'static str, &str),
) -> Result<(Wanted, bool), CommandError> {
    let mut parts = inner.documents(list)?;
    let (Some(part), None) = (parts.next().transpose()?, parts.next()) else {
        let text = "explained write batches must be of size 1";
        return Err(CommandError::new(ErrorCode::InvalidLength, text));
    };
    let value = part.get(bound).ok().flatten();
    let is_set = value.is_some_and(|of| {
        !matches!(
            of,
            RawBsonRef::Boolean(false)
                | RawBsonRef::Int32(0)
                | RawBsonRef::Int64(0)
                | RawBsonRef::Double(0.0)
        )
    });
    // `multi` is for many, and `limit` for one.
    let is_one = is_set == (bound == "limit");
    let filter = part.get_document("q").map(RawDocument::to_owned).unwrap_or_default();
    let of = Wanted {
        namespace: namespace(inner.database(), inner.collection()?)?,
        filter,
        sort: sort_of(None),
        hint: hint_of(part.get("hint").ok().flatten())?,
        skip: 0,
        limit: is_one.then_some(1),
        variables: inner.document("let")?.map(RawDocument::to_owned),
        ..Wanted::default()
    };
    Ok((of, false))
}

impl Explain {
    fn new(
        (wanted, counts): (Wanted, bool),
        (command, executes): (RawDocumentBuf, bool),
        began_ms: u64,
    ) -> Self {
        Self {
            wanted,
            command,
            counts,
            executes,
            at: None,
            plans: None,
            is_sorted: true,
            keys: 0,
            documents: 0,
            found: 0,
            is_asked: false,
            began_ms,
        }
    }

    fn question(&self) -> Step {
        let mut request = Vec::new();
        let Wanted { namespace, filter, sort, hint, variables, .. } = &self.wanted;
        write_document(&mut request, |fields| {
            fields.raw_document(cstr!("filter"), filter);
            if let Some(sort) = sort {
                fields.raw_document(cstr!("sort"), sort);
            }
            write_hint(fields, hint.as_deref());
            if let Some(variables) = variables {
                fields.raw_document(cstr!("let"), variables);
            }
            if near_of(filter, variables.as_deref()).is_some() {
                write_ring(fields, 0.0, Some(f64::INFINITY));
            }
            fields.bool(cstr!("count"), self.counts);
            fields.bool(cstr!("explain"), self.plans.is_none());
            // A plan depends on the limit: it is that of the command itself.
            if let Some(most) = self.left() {
                fields.i64(cstr!("limit"), i64::try_from(most).unwrap_or(i64::MAX));
            }
            if let Some(at) = &self.at {
                fields.binary(cstr!("at"), at);
            }
        });
        ask(namespace, CollectionCommand::Find { request: &request })
    }

    /// Documents that are still to be found; none if all are. A sort has to see them all.
    fn left(&self) -> Option<u64> {
        let limit = self.wanted.limit.filter(|_| self.wanted.sort.is_none() || self.is_sorted)?;
        Some(limit.saturating_add(self.wanted.skip).saturating_sub(self.found))
    }

    fn take(&mut self, answer: &OwnedReply) -> Result<(), CommandError> {
        let head = answer.value.as_deref().and_then(|list| Items::split(list)?.0);
        let head = head.and_then(|head| RawDocument::from_bytes(head).ok());
        let head = head.ok_or_else(senseless)?;
        let number = |name: &str| head.get_i64(name).unwrap_or_default().max(0) as u64;
        self.keys += number("keys");
        self.documents += number("documents");
        self.found += answer.number.max(0) as u64;
        self.at = head.get_binary("at").ok().map(|at| at.bytes.to_vec());
        if self.plans.is_none() {
            self.plans = Some(head.to_owned());
            self.is_sorted = head.get_bool("sorted").unwrap_or(true);
        }
        Ok(())
    }

    /// The plans, the best one first.
    fn plans(&self) -> Vec<&RawDocument> {
        let plans = self.plans.as_deref().and_then(|head| head.get_array("plans").ok());
        plans.into_iter().flatten().flatten().filter_map(|plan| plan.as_document()).collect()
    }

    fn write_plan(&self, to: &mut DocumentWriter<'_>, plan: Option<&RawDocument>) {
        let Some(plan) = plan else { return to.str(cstr!("stage"), "EOF") };
        let sorts = self.wanted.sort.is_some() && !plan.get_bool("sorted").unwrap_or(true);
        if sorts {
            to.str(cstr!("stage"), "SORT");
            if let Some(sort) = &self.wanted.sort {
                to.raw_document(cstr!("sortPattern"), sort);
            }
            return to.document(cstr!("inputStage"), |to| self.write_scan(to, plan));
        }
        self.write_scan(to, plan);
    }

    fn write_scan(&self, to: &mut DocumentWriter<'_>, plan: &RawDocument) {
        let index = plan.get_str("index").unwrap_or_default();
        let ranges = plan.get_i64("ranges").unwrap_or_default();
        let direction =
            if plan.get_bool("reverse").unwrap_or(false) { "backward" } else { "forward" };
        // The tree of the `_id`s is the order of the collection itself.
        if index == "_id_" && plan.get_bool("whole").unwrap_or(false) {
            to.str(cstr!("stage"), "COLLSCAN");
            to.raw_document(cstr!("filter"), &self.wanted.filter);
            return to.str(cstr!("direction"), direction);
        }
        let near = near_of(&self.wanted.filter, self.wanted.variables.as_deref());
        if let Some(near) = near.filter(|_| plan.get_bool("geo").unwrap_or(false)) {
            let is_spherical = near.is_spherical();
            let stage = if is_spherical { "GEO_NEAR_2DSPHERE" } else { "GEO_NEAR_2D" };
            to.str(cstr!("stage"), stage);
            to.raw_document(cstr!("filter"), &self.wanted.filter);
            to.str(cstr!("indexName"), index);
            to.i64(cstr!("ranges"), ranges);
            return to.i64(cstr!("keysInRanges"), plan.get_i64("keys").unwrap_or_default());
        }
        to.str(cstr!("stage"), if self.counts { "COUNT_SCAN" } else { "FETCH" });
        to.raw_document(cstr!("filter"), &self.wanted.filter);
        to.document(cstr!("inputStage"), |to| {
            to.str(cstr!("stage"), "IXSCAN");
            to.str(cstr!("indexName"), index);
            to.bool(cstr!("isPartial"), plan.get_bool("partial").unwrap_or(false));
            to.str(cstr!("direction"), direction);
            to.i64(cstr!("ranges"), ranges);
            to.i64(cstr!("keysInRanges"), plan.get_i64("keys").unwrap_or_default());
        });
    }

    fn reply(&self, now_ms: u64, version: &str) -> Vec<u8> {
        let plans = self.plans();
        ok_body(|reply| {
            reply.str(cstr!("explainVersion"), "1");
            reply.document(cstr!("queryPlanner"), |to| {
                to.str(cstr!("namespace"), &String::from_utf8_lossy(&self.wanted.namespace));
                to.raw_document(cstr!("parsedQuery"), &self.wanted.filter);
                to.document(cstr!("winningPlan"), |to| {
                    self.write_plan(to, plans.first().copied());
                });
                to.array(cstr!("rejectedPlans"), |to| {
                    for plan in plans.iter().skip(1) {
                        to.document(|to| self.write_plan(to, Some(plan)));
                    }
                });
            });
            if self.executes {
                reply.document(cstr!("executionStats"), |to| {
                    let given = self.found.saturating_sub(self.wanted.skip);
                    let given = self.wanted.limit.map_or(given, |limit| given.min(limit));
                    to.bool(cstr!("executionSuccess"), true);
                    to.count(cstr!("nReturned"), if self.counts { 0 } else { given });
                    to.count(cstr!("executionTimeMillis"), now_ms.saturating_sub(self.began_ms));
                    to.count(cstr!("totalKeysExamined"), self.keys);
                    to.count(cstr!("totalDocsExamined"), self.documents);
                });
            }
            reply.raw_document(cstr!("command"), &self.command);
            // A command is asked of the shard: only the clients of this project read by themselves.
            reply.str(cstr!("path"), "asked");
            reply.document(cstr!("serverInfo"), |to| to.str(cstr!("version"), version));
        })
    }
}

impl Running for Explain {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        context: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if std::mem::replace(&mut self.is_asked, true) {
            self.take(&done(answer)?)?;
            if !self.executes || self.at.is_none() || self.left() == Some(0) {
                let version = super::diagnostic::MONGODB_VERSION.0;
                return Ok(Step::Done(self.reply(context.now_ms, version)));
            }
        }
        Ok(self.question())
    }
}
