//! `$merge`: each document of a pipeline goes to the one of a collection with which it agrees.
//!
//! A document is first looked for and changed, and then inserted if none agrees: if another client has
//! inserted one meanwhile, it is looked for again.

use super::catalog::{describe, described, indexes_of};
use super::out::{first_failure, no_documents};
use super::write::{Change, with_id};
use crate::fields::namespace;
use crate::query::{Batch, Query};
use crate::reply::{CommandError, ErrorCode};
use crate::running::{Context, Running, Step, ask, done};
use bson::raw::{CStr, RawBsonRef};
use bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};
use remora_document::{Merge, Variables, WhenMatched, WhenNotMatched};
use remora_frontend::OwnedReply;
use remora_layout::limits::INSERT_STEP_DOCUMENTS;
use remora_protocol::Items;
use remora_protocol::collection::CollectionCommand;
use std::collections::VecDeque;

/// How often a document is looked for again that others have inserted meanwhile.
const TRIES: usize = 3;

/// What the last question was.
enum Asked {
    Nothing,
    Describe,
    /// For documents of the pipeline.
    Query,
    /// Whether a document agrees with this one; it is changed then.
    Change(Box<Change>, RawDocumentBuf),
    Insert(RawDocumentBuf),
}

/// See the module's text.
pub(super) struct Merging {
    query: Query,
    batch: Batch,
    /// Documents that the pipeline has given.
    left: VecDeque<RawDocumentBuf>,
    merge: Merge,
    variables: Variables,
    target: Vec<u8>,
    asked: Asked,
    /// Of the present document.
    tries: usize,
}

fn fail<T>(number: i32, text: impl Into<String>) -> Result<T, CommandError> {
    Err(CommandError::numbered(number, text.into()))
}

impl Merging {
    pub(super) fn new(
        query: Query,
        (merge, variables): (Merge, Variables),
        database: &str,
    ) -> Result<Self, CommandError> {
        let database = merge.database.as_deref().unwrap_or(database);
        let target = namespace(database, &merge.collection)?;
        let kept = match (&merge.when_matched, merge.when_not_matched) {
            (_, WhenNotMatched::Insert) => None,
            (WhenMatched::KeepExisting, _) => Some("keepExisting"),
            (WhenMatched::Fail, _) => Some("fail"),
            _ => None,
        };
        if let Some(kept) = kept {
            let other = match merge.when_not_matched {
                WhenNotMatched::Fail => "fail",
                _ => "discard",
            };
            let text = format!(
                "Combination of {{whenMatched: \"{kept}\", whenNotMatched: \"{other}\"}} is not supported"
            );
            return fail(51181, text);
        }
        Ok(Self {
            query,
            batch: Batch::new(INSERT_STEP_DOCUMENTS),
            left: VecDeque::new(),
            merge,
            variables,
            target,
            asked: Asked::Nothing,
            tries: 0,
        })
    }

    /// A unique index has to have the fields in which documents agree, else several could.
    fn check_index(&self, told: Option<&RawDocument>) -> Result<(), CommandError> {
        let on = &self.merge.on;
        let has_them = |index: &RawDocument| {
            let is_id = index.get_str("name").is_ok_and(|name| name == "_id_");
            let is_unique = is_id || index.get_bool("unique").unwrap_or(false);
            let is_whole = matches!(index.get("partialFilterExpression"), Ok(None));
            let keys = index.get_document("key").ok();
            let keys: Vec<&str> =
                keys.into_iter().flatten().flatten().map(|(name, _)| name.as_str()).collect();
            let has = |path: &String| keys.contains(&path.as_str());
            is_unique && is_whole && keys.len() == on.len() && on.iter().all(has)
        };
        let is_id = matches!(&on[..], [path] if path == "_id");
        if is_id || told.is_some_and(|told| indexes_of(told).any(has_them)) {
            return Ok(());
        }
        fail(51183, "Cannot find index to verify that join fields will be unique")
    }

    /// The filter for the document that agrees with this one.
    fn filter(&self, document: &RawDocument) -> Result<RawDocumentBuf, CommandError> {
        let mut filter = RawDocumentBuf::new();
        for path in &self.merge.on {
            let name = <&CStr>::try_from(path.as_str())
                .map_err(|_| CommandError::new(ErrorCode::BadValue, "a path has a zero byte"))?;
            match value_at(document, path) {
                None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => {
                    let text = format!(
                        "$merge write error: 'on' field '{path}' cannot be missing, null or undefined"
                    );
                    return fail(51132, text);
                }
                Some(RawBsonRef::Array(_)) => {
                    let text =
                        format!("$merge write error: 'on' field '{path}' cannot be an array");
                    return fail(51185, text);
                }
                Some(value) => {
                    let mut equal = RawDocumentBuf::new();
                    equal.append(cstr!("$eq"), value);
                    filter.append(name, equal);
                }
            }
        }
        Ok(filter)
    }

    /// The question for a document: whether one agrees with it, or its insertion.
    fn write(&mut self, document: RawDocumentBuf) -> Result<Step, CommandError> {
        let filter = self.filter(&document)?;
        let mut request = rawdoc! { "q": filter };
        let values = match &self.merge.when_matched {
            WhenMatched::Fail => return Ok(self.insert(document)),
            WhenMatched::Replace => {
                request.append(cstr!("u"), document.clone());
                None
            }
            WhenMatched::KeepExisting => {
                request.append(cstr!("u"), rawdoc! { "$set": {} });
                None
            }
            WhenMatched::Merge => {
                let merged = rawdoc! { "$mergeObjects": ["$$ROOT", "$$new"] };
                request.append(cstr!("u"), bson::rawbson!([{ "$replaceWith": merged }]));
                Some(rawdoc! { "new": "$$ROOT" })
            }
            WhenMatched::Pipeline { stages, variables } => {
                request.append(cstr!("u"), stages.clone());
                Some(variables.clone())
            }
        };
        if let Some(values) = values {
            request.append(cstr!("let"), self.variables.with(&values, &document)?.to_let());
        }
        request.append(cstr!("multi"), false);
        let change = Change::new(request, false);
        let question = change.question(&self.target);
        self.asked = Asked::Change(Box::new(change), document);
        Ok(question)
    }

    fn insert(&mut self, document: RawDocumentBuf) -> Step {
        let mut list = Vec::new();
        Items::push(&mut list, document.as_bytes());
        let documents = Items::parse(&list).expect("it was made here");
        self.asked = Asked::Insert(document);
        ask(&self.target, CollectionCommand::Insert { documents, ordered: true })
    }

    /// What becomes of a document with which none agrees; none if nothing.
    fn not_matched(&mut self, document: RawDocumentBuf) -> Result<Option<Step>, CommandError> {
        match self.merge.when_not_matched {
            WhenNotMatched::Insert => Ok(Some(self.insert(document))),
            WhenNotMatched::Discard => Ok(None),
            WhenNotMatched::Fail => fail(
                13113,
                "$merge could not find a matching document in the target collection for at least one document in the source collection",
            ),
        }
    }

    /// Takes the answer to the last question; the next question, if it is about the same document.
    fn take(&mut self, answer: Option<OwnedReply>) -> Result<Option<Step>, CommandError> {
        match std::mem::replace(&mut self.asked, Asked::Nothing) {
            Asked::Nothing => {
                self.asked = Asked::Describe;
                return Ok(Some(describe(&self.target)));
            }
            Asked::Describe => self.check_index(described(answer)?.as_deref())?,
            Asked::Query => self.query.take(answer)?,
            Asked::Change(mut change, document) => {
                if !change.take(&done(answer)?)? {
                    let question = change.question(&self.target);
                    self.asked = Asked::Change(change, document);
                    return Ok(Some(question));
                }
                if change.matched == 0 {
                    return self.not_matched(document);
                }
            }
            Asked::Insert(document) => {
                if let Some(error) = first_failure(&done(answer)?) {
                    let is_there = error.code() == Some(ErrorCode::DuplicateKey)
                        && self.merge.when_matched != WhenMatched::Fail;
                    if is_there && self.tries < TRIES {
                        self.tries += 1;
                        return self.write(document).map(Some);
                    }
                    return Err(error);
                }
            }
        }
        Ok(None)
    }
}

impl Running for Merging {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        context: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if let Some(step) = self.take(answer)? {
            return Ok(step);
        }
        if self.left.is_empty() {
            if !self.batch.fill(&mut self.query)? {
                self.asked = Asked::Query;
                return Ok(self.query.question());
            }
            self.left = self.batch.take().into();
        }
        let Some(document) = self.left.pop_front() else {
            return Ok(Step::Done(no_documents(self.query.namespace())));
        };
        self.tries = 0;
        let document = with_id(&document, context)?.unwrap_or(document);
        self.write(document)
    }
}

/// The value at a dotted path, through documents only.
fn value_at<'d>(document: &'d RawDocument, path: &str) -> Option<RawBsonRef<'d>> {
    let mut parts = path.split('.');
    let mut value = document.get(parts.next()?).ok()??;
    for part in parts {
        value = value.as_document()?.get(part).ok()??;
    }
    Some(value)
}
