//! What pipelines and their stages do next, what stages need of a pipeline inside them, and what they have in
//! common.

use super::source::{Query, Source, condition};
use crate::error::{DocumentError, FAILED_TO_PARSE, MEMORY_LIMIT, OVERFLOW};
use crate::raw::fields;
use crate::validate::{Invalid, validate};
use crate::value::Value;
use crate::variables::Variables;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use remora_layout::limits::{MAX_DOCUMENT_DEPTH, MAX_STAGE_BYTES};
use std::fmt::Debug;

/// What a pipeline does next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// It wants the next document, or the end: [`super::Pipeline::push`], [`super::Pipeline::end`].
    Wants,
    /// A document of the result.
    Gives(RawDocumentBuf),
    /// A search in another collection: [`super::Pipeline::answer`].
    Asks(Query),
    /// The next part of the answer to the latest search that is not answered: [`super::Pipeline::answer`].
    Awaits,
    /// The step has done enough; another one continues.
    Continues,
    /// There are no more documents.
    Done,
}

/// What a stage does next.
#[derive(Debug)]
pub(super) enum Poll {
    Ready(RawDocumentBuf),
    /// It did something; poll it again.
    Moved,
    Wants,
    Asks(Query),
    Awaits,
    Done,
}

/// A pipeline that a stage has: stages do not name the type, which is made of them.
pub(super) trait Inner: Clone + Debug {
    fn source(&self) -> &Source;
    fn collections(&self) -> Vec<&str>;
    fn push(&mut self, document: RawDocumentBuf);
    fn end(&mut self);
    fn answer(&mut self, documents: Vec<RawDocumentBuf>, is_last: bool);
    /// Whether a search of it is not answered yet.
    fn asks(&self) -> bool;
    fn is_satisfied(&self) -> bool;
    fn kept_bytes(&self) -> usize;
    fn step(&mut self) -> Result<Step, DocumentError>;
    /// The same pipeline with other values of its variables.
    fn with_variables(&self, variables: Variables) -> Self;
}

/// Parses a pipeline that stands inside a stage.
pub(super) type ParseInner<'p, P> = &'p dyn Fn(&RawArray, &Variables) -> Result<P, DocumentError>;

/// Hands an answer to an inner pipeline: to a stage of it that asked, or as its input.
pub(super) fn feed(inner: &mut impl Inner, documents: Vec<RawDocumentBuf>, is_last: bool) {
    if inner.asks() {
        inner.answer(documents, is_last);
        return;
    }
    documents.into_iter().for_each(|document| inner.push(document));
    if is_last {
        inner.end();
    }
}

/// A text among the arguments of a stage.
pub(super) fn text<'d>(
    stage: &str,
    name: &str,
    value: RawBsonRef<'d>,
) -> Result<&'d str, DocumentError> {
    value.as_str().ok_or_else(|| {
        let text = format!("{stage} argument '{name}' must be a string");
        DocumentError::new(FAILED_TO_PARSE, text)
    })
}

/// Checks a document that expressions have made: its bytes and its depth.
pub(super) fn check(document: &RawDocument) -> Result<(), DocumentError> {
    crate::value::fits(document.as_bytes().len())?;
    match validate(document) {
        Err(Invalid::TooDeep) => {
            let text =
                format!("a document that was made has more than {MAX_DOCUMENT_DEPTH} levels");
            Err(DocumentError::new(OVERFLOW, text))
        }
        _ => Ok(()),
    }
}

/// Checks the bytes that a stage keeps.
pub(super) fn memory(name: &str, bytes: usize) -> Result<(), DocumentError> {
    if bytes <= MAX_STAGE_BYTES {
        return Ok(());
    }
    let text = format!(
        "PlanExecutor error during aggregation :: caused by :: Exceeded memory limit for {name}, but didn't allow external sort. Pass allowDiskUse:true to opt in."
    );
    Err(DocumentError::new(MEMORY_LIMIT, text))
}

/// The filter of the documents whose field equals one of some values.
pub(super) fn one_of<'v>(
    path: &str,
    values: impl Iterator<Item = RawBsonRef<'v>>,
) -> Result<RawDocumentBuf, DocumentError> {
    let (mut list, mut others) = (RawArrayBuf::new(), Vec::new());
    for value in values {
        match value {
            RawBsonRef::Undefined => list.push(RawBsonRef::Null),
            // `$in` takes these for patterns and operators.
            RawBsonRef::RegularExpression(_) => others.push(condition(path, "$eq", value)?),
            RawBsonRef::Document(inner)
                if fields(inner).next().is_some_and(|(name, _)| name.starts_with('$')) =>
            {
                others.push(condition(path, "$eq", value)?);
            }
            value => list.push(value),
        }
    }
    let list = condition(path, "$in", Value::array(list).or_null())?;
    if others.is_empty() {
        return Ok(list);
    }
    let mut any = RawArrayBuf::new();
    any.push(&list);
    others.iter().for_each(|other| any.push(other));
    let mut filter = RawDocumentBuf::new();
    filter.append(cstr!("$or"), any);
    Ok(filter)
}
