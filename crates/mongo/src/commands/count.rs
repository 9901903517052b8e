//! `count`, and pipelines that only count: shards tell numbers, and no documents.

use super::cursor::write_whole_batch;
use super::find::wanted;
use crate::command::Command;
use crate::query::{Wanted, write_hint};
use crate::reply::CommandError;
use crate::running::{Begun, Context, Running, Step, ask, done, ok_body};
use crate::spec::{Right, Spec};
use crate::writer::write_document;
use bson::raw::{CString, RawBsonRef};
use bson::{RawArray, RawBson, RawDocument, RawDocumentBuf, cstr};
use remora_frontend::OwnedReply;
use remora_protocol::Items;
use remora_protocol::collection::CollectionCommand;

pub(super) static COMMANDS: &[Spec] = &[Spec {
    names: &["count"],
    summary: "Counts documents.",
    right: Right::Collection("doc.find"),
    fields: &["query", "skip", "limit", "hint", "collation", "fields"],
    begin: count,
}];

/// A count that is under way.
struct Counting {
    wanted: Wanted,
    found: u64,
    at: Option<Vec<u8>>,
}

impl Counting {
    fn new(wanted: Wanted) -> Self {
        Self { wanted, found: 0, at: None }
    }

    /// Takes an answer. The next question; none once all are counted.
    fn next(&mut self, answer: Option<OwnedReply>) -> Result<Option<Step>, CommandError> {
        let mut is_over = false;
        if answer.is_some() {
            let answer = done(answer)?;
            self.found += answer.number.max(0) as u64;
            let head = answer.value.as_deref().and_then(|list| Items::split(list)?.0);
            let head = head.and_then(|head| RawDocument::from_bytes(head).ok());
            self.at = head.and_then(|head| head.get_binary("at").ok()).map(|at| at.bytes.to_vec());
            is_over = self.at.is_none();
        }
        let Wanted { namespace, filter, hint, skip, limit, variables, .. } = &self.wanted;
        let most = limit.map(|limit| limit.saturating_add(*skip));
        if is_over || most.is_some_and(|most| self.found >= most) {
            return Ok(None);
        }
        let mut request = Vec::new();
        write_document(&mut request, |fields| {
            fields.raw_document(cstr!("filter"), filter);
            fields.bool(cstr!("count"), true);
            write_hint(fields, hint.as_deref());
            if let Some(variables) = variables {
                fields.raw_document(cstr!("let"), variables);
            }
            if let Some(most) = most {
                let left = i64::try_from(most - self.found).unwrap_or(i64::MAX);
                fields.i64(cstr!("limit"), left);
            }
            if let Some(at) = &self.at {
                fields.binary(cstr!("at"), at);
            }
        });
        Ok(Some(ask(namespace, CollectionCommand::Find { request: &request })))
    }

    /// How many there are, without those that are left out.
    fn number(&self) -> u64 {
        let Wanted { skip, limit, .. } = self.wanted;
        let most = limit.map_or(self.found, |limit| self.found.min(limit.saturating_add(skip)));
        most.saturating_sub(skip)
    }
}

struct Count(Counting);

fn count(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    let limit = command.i64("limit")?.unwrap_or(0);
    let limit = (limit != 0).then(|| limit.unsigned_abs());
    Begun::running(Count(Counting::new(Wanted { limit, ..wanted(command, "query")? })))
}

impl Running for Count {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if let Some(question) = self.0.next(answer)? {
            return Ok(question);
        }
        Ok(Step::Done(ok_body(|reply| reply.count(cstr!("n"), self.0.number()))))
    }
}

/// A pipeline that only counts, as `count_documents` of drivers asks for it: after what its search does there
/// is one `$group`, of all documents, which adds up ones.
pub(super) struct CountedGroup {
    counting: Counting,
    id: RawBson,
    field: CString,
}

impl CountedGroup {
    /// The same of these stages; none if they do anything else. `wanted` is what their search does.
    pub(super) fn of(stages: &RawArray, wanted: &Wanted) -> Option<Self> {
        let stages: Option<Vec<(&str, RawBsonRef<'_>)>> = stages
            .into_iter()
            .map(|stage| {
                let stage = stage.ok()?.as_document()?.iter().next()?.ok()?;
                Some((stage.0.as_str(), stage.1))
            })
            .collect();
        let stages = stages?;
        let (last, before) = stages.split_last()?;
        // What comes before is done by the search, in this order.
        let order = ["$match", "$skip", "$limit"];
        let places = before.iter().map(|(name, _)| order.iter().position(|of| of == name));
        let places: Vec<usize> = places.collect::<Option<_>>()?;
        let ("$group", RawBsonRef::Document(group)) = *last else { return None };
        if !places.windows(2).all(|two| two[0] < two[1]) || wanted.sort.is_some() {
            return None;
        }
        let mut fields = group.iter().map_while(Result::ok);
        let ((id_name, id), (field, sum)) = (fields.next()?, fields.next()?);
        let is_constant =
            matches!(id, RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Null);
        let RawBsonRef::Document(sum) = sum else { return None };
        let mut terms = sum.iter().map_while(Result::ok);
        let (operator, one) = terms.next()?;
        let counts = operator == cstr!("$sum") && matches!(one, RawBsonRef::Int32(1));
        let is_all = fields.next().is_none() && terms.next().is_none();
        if id_name != cstr!("_id") || !is_constant || !counts || !is_all {
            return None;
        }
        let (counting, field) = (Counting::new(wanted.clone()), field.to_owned());
        Some(Self { counting, id: id.into(), field })
    }
}

impl Running for CountedGroup {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if let Some(question) = self.counting.next(answer)? {
            return Ok(question);
        }
        let namespace = String::from_utf8_lossy(&self.counting.wanted.namespace);
        let mut documents = Vec::new();
        let number = self.counting.number();
        // Without a document there is no group.
        if number > 0 {
            let mut document = RawDocumentBuf::new();
            document.append(cstr!("_id"), self.id.as_raw_bson_ref());
            let name = &*self.field;
            match i32::try_from(number) {
                Ok(number) => document.append(name, number),
                Err(_) => document.append(name, i64::try_from(number).unwrap_or(i64::MAX)),
            }
            documents.push(document);
        }
        Ok(Step::Done(write_whole_batch(&documents, &namespace)?))
    }
}
