//! A pipeline, its stages, and how they are polled. A stage may have a pipeline inside: so both are here.

use super::facet::Facet;
use super::graph_lookup::GraphLookup;
use super::group::Group;
use super::lookup::Lookup;
use super::redact::Redact;
use super::sink::Sink;
use super::source::Source;
use super::step::{Inner, Poll, Step, check, memory};
use super::union_with::UnionWith;
use super::unwind::Unwind;
use crate::error::DocumentError;
use crate::expression::Expression;
use crate::filter::Filter;
use crate::projection::Shape;
use crate::sorter::Sorter;
use crate::value::{Value, shown};
use crate::variables::{Env, Variables};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use remora_layout::limits::MAX_STEP_MOVES;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A pipeline, parsed, and what its stages keep.
///
/// ```
/// use bson::{rawdoc, raw::RawArrayBuf};
/// use remora_document::{Pipeline, Step, Variables};
///
/// let mut stages = RawArrayBuf::new();
/// stages.push(rawdoc! { "$match": { "size": { "$gt": 1 } } });
/// stages.push(rawdoc! { "$group": { "_id": "$item", "sum": { "$sum": "$size" } } });
/// let mut pipeline = Pipeline::parse(&stages, &Variables::default())?;
///
/// assert_eq!(pipeline.source().filter, rawdoc! { "size": { "$gt": 1 } });
/// let mut found = vec![rawdoc! { "item": "a", "size": 2 }, rawdoc! { "item": "a", "size": 3 }];
/// loop {
///     match pipeline.step()? {
///         Step::Wants => match found.pop() {
///             Some(document) => pipeline.push(document),
///             None => pipeline.end(),
///         },
///         Step::Gives(document) => assert_eq!(document, rawdoc! { "_id": "a", "sum": 5 }),
///         Step::Done => break,
///         _ => {}
///     }
/// }
/// # Ok::<(), remora_document::DocumentError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pipeline {
    pub(super) source: Source,
    pub(super) nodes: Vec<Node>,
    pub(super) sink: Option<Sink>,
    pub(super) variables: Arc<Variables>,
    pub(super) inbox: VecDeque<RawDocumentBuf>,
    pub(super) has_ended: bool,
    /// The stages whose searches are not answered yet, the latest last.
    pub(super) asking: Vec<usize>,
    /// The stage to poll next.
    pub(super) at: usize,
}

impl Pipeline {
    /// What the caller's search does of the pipeline: the stages do not do it again.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Where the result goes, if it does not go to the client.
    #[must_use]
    pub fn sink(&self) -> Option<&Sink> {
        self.sink.as_ref()
    }

    /// The collections in which the pipeline searches, beside its own.
    #[must_use]
    pub fn collections(&self) -> Vec<&str> {
        let mut all = Vec::new();
        self.nodes.iter().for_each(|node| node.collections(&mut all));
        all
    }

    /// Hands in a document: after [`Step::Wants`].
    pub fn push(&mut self, document: RawDocumentBuf) {
        self.inbox.push_back(document);
    }

    /// There are no more documents to hand in.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Answers the latest search with some of its documents; `is_last` if there are no more. Then the search
    /// before it is the latest one again, if it is not answered yet: searches nest.
    pub fn answer(&mut self, documents: Vec<RawDocumentBuf>, is_last: bool) {
        let Some(node) = self.asking.last().and_then(|at| self.nodes.get_mut(*at)) else { return };
        node.answer(documents, is_last);
        if is_last {
            self.asking.pop();
        }
    }

    /// Whether more input changes nothing any more, as behind a `$limit`.
    #[must_use]
    pub fn is_satisfied(&self) -> bool {
        self.nodes.iter().any(Node::is_satisfied)
    }

    /// Bytes of the documents that it keeps, about.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        let inbox = self.inbox.iter().map(|document| document.as_bytes().len());
        inbox.chain(self.nodes.iter().map(Node::kept_bytes)).sum()
    }

    /// Moves documents through the stages until something is wanted or given.
    ///
    /// # Errors
    /// As MongoDB: an expression fails, a document is too large, a stage needs too much memory.
    pub fn step(&mut self) -> Result<Step, DocumentError> {
        for _ in 0..MAX_STEP_MOVES {
            let Some(node) = self.nodes.get_mut(self.at) else {
                // There are no stages.
                return Ok(match (self.inbox.pop_front(), self.has_ended) {
                    (Some(document), _) => Step::Gives(document),
                    (None, true) => Step::Done,
                    (None, false) => Step::Wants,
                });
            };
            let env = self.variables.env();
            let poll = node.poll(&env)?;
            let seed = env.seed();
            if seed != self.variables.seed() {
                Arc::make_mut(&mut self.variables).set_seed(seed);
            }
            let is_last = self.at + 1 == self.nodes.len();
            match poll {
                Poll::Ready(document) if is_last => return Ok(Step::Gives(document)),
                Poll::Ready(document) => {
                    self.at += 1;
                    self.nodes[self.at].accept(document);
                }
                Poll::Moved => {}
                Poll::Done if is_last => return Ok(Step::Done),
                Poll::Done => {
                    self.at += 1;
                    self.nodes[self.at].end();
                }
                Poll::Asks(query) => {
                    self.asking.push(self.at);
                    return Ok(Step::Asks(query));
                }
                Poll::Awaits => return Ok(Step::Awaits),
                Poll::Wants if self.at > 0 => self.at -= 1,
                Poll::Wants => match (self.inbox.pop_front(), self.has_ended) {
                    (Some(document), _) => self.nodes[0].accept(document),
                    (None, true) => self.nodes[0].end(),
                    (None, false) => return Ok(Step::Wants),
                },
            }
        }
        Ok(Step::Continues)
    }
}

impl Inner for Pipeline {
    fn source(&self) -> &Source {
        self.source()
    }

    fn collections(&self) -> Vec<&str> {
        self.collections()
    }

    fn push(&mut self, document: RawDocumentBuf) {
        self.push(document);
    }

    fn end(&mut self) {
        self.end();
    }

    fn answer(&mut self, documents: Vec<RawDocumentBuf>, is_last: bool) {
        self.answer(documents, is_last);
    }

    fn asks(&self) -> bool {
        !self.asking.is_empty()
    }

    fn is_satisfied(&self) -> bool {
        self.is_satisfied()
    }

    fn kept_bytes(&self) -> usize {
        self.kept_bytes()
    }

    fn step(&mut self) -> Result<Step, DocumentError> {
        self.step()
    }

    fn with_variables(&self, variables: Variables) -> Self {
        Self { variables: Arc::new(variables), ..self.clone() }
    }
}

/// A stage.
#[derive(Debug, Clone)]
pub(super) enum Stage {
    Match(Arc<Filter>),
    Shape(Arc<Shape>),
    ReplaceRoot(Expression),
    Redact(Redact),
    Limit(u64),
    Skip(u64),
    Count { name: String, count: i64 },
    Sort(Box<Sorter<RawDocumentBuf>>),
    Sample(Sample),
    Group(Box<Group>),
    Unwind(Unwind),
    Documents { values: Expression, made: Option<std::vec::IntoIter<RawDocumentBuf>> },
    Facet(Facet<Pipeline>),
    Lookup(Box<Lookup<Pipeline>>),
    GraphLookup(Box<GraphLookup>),
    UnionWith(Box<UnionWith<Pipeline>>),
}

/// A stage and its input.
#[derive(Debug, Clone)]
pub(super) struct Node {
    stage: Stage,
    input: Option<RawDocumentBuf>,
    has_ended: bool,
    is_done: bool,
}

impl Node {
    pub(super) fn new(stage: Stage) -> Node {
        Node { stage, input: None, has_ended: false, is_done: false }
    }

    pub(super) fn stage_mut(&mut self) -> &mut Stage {
        &mut self.stage
    }

    pub(super) fn accept(&mut self, document: RawDocumentBuf) {
        self.input = Some(document);
    }

    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    pub(super) fn is_satisfied(&self) -> bool {
        self.is_done || matches!(self.stage, Stage::Limit(0) | Stage::Documents { .. })
    }

    pub(super) fn collections<'n>(&'n self, all: &mut Vec<&'n str>) {
        match &self.stage {
            Stage::Lookup(lookup) => lookup.collections(all),
            Stage::GraphLookup(lookup) => all.push(lookup.collection()),
            Stage::UnionWith(union) => union.collections(all),
            Stage::Facet(facet) => facet.collections(all),
            _ => {}
        }
    }

    /// Bytes of the documents that it keeps, about.
    pub(super) fn kept_bytes(&self) -> usize {
        let bytes = |document: &RawDocumentBuf| document.as_bytes().len();
        let kept = match &self.stage {
            Stage::Sort(sorter) => sorter.bytes(),
            Stage::Group(group) => group.kept_bytes(),
            Stage::Sample(sample) => sample.bytes,
            Stage::Documents { made: Some(made), .. } => made.as_slice().iter().map(bytes).sum(),
            Stage::Unwind(unwind) => unwind.kept_bytes(),
            Stage::Facet(facet) => facet.kept_bytes(),
            Stage::Lookup(lookup) => lookup.kept_bytes(),
            Stage::GraphLookup(lookup) => lookup.kept_bytes(),
            Stage::UnionWith(union) => union.kept_bytes(),
            _ => 0,
        };
        kept + self.input.as_ref().map_or(0, bytes)
    }

    pub(super) fn answer(&mut self, documents: Vec<RawDocumentBuf>, is_last: bool) {
        match &mut self.stage {
            Stage::Lookup(lookup) => lookup.answer(documents, is_last),
            Stage::GraphLookup(lookup) => lookup.answer(documents, is_last),
            Stage::UnionWith(union) => union.answer(documents, is_last),
            Stage::Facet(facet) => facet.answer(documents, is_last),
            _ => {}
        }
    }

    /// The next thing that the stage does.
    pub(super) fn poll(&mut self, env: &Env<'_>) -> Result<Poll, DocumentError> {
        let poll = self.next(env)?;
        self.is_done |= matches!(poll, Poll::Done);
        Ok(poll)
    }

    fn next(&mut self, env: &Env<'_>) -> Result<Poll, DocumentError> {
        if self.is_done || matches!(self.stage, Stage::Limit(0)) {
            return Ok(Poll::Done);
        }
        let (input, has_ended) = (self.input.take(), self.has_ended);
        let empty = if has_ended { Poll::Done } else { Poll::Wants };
        match &mut self.stage {
            Stage::Unwind(unwind) => unwind.poll(input, has_ended),
            Stage::Facet(facet) => facet.poll(input, has_ended),
            Stage::Lookup(lookup) => lookup.poll(input, has_ended, env),
            Stage::GraphLookup(lookup) => lookup.poll(input, has_ended, env),
            Stage::UnionWith(union) => union.poll(input, has_ended),
            Stage::Documents { values, made } => {
                if made.is_none() {
                    *made = Some(documents(values, env)?.into_iter());
                }
                let next = made.as_mut().and_then(Iterator::next);
                Ok(next.map_or(Poll::Done, Poll::Ready))
            }
            Stage::Sort(_) | Stage::Group(_) | Stage::Count { .. } | Stage::Sample(_) => {
                match input {
                    Some(document) => self.stage.keep(document, env).map(|()| Poll::Moved),
                    None if has_ended => self.stage.release(),
                    None => Ok(Poll::Wants),
                }
            }
            _ => match input {
                Some(document) => {
                    Ok(self.stage.pass(document, env)?.map_or(Poll::Moved, Poll::Ready))
                }
                None => Ok(empty),
            },
        }
    }
}

impl Stage {
    /// What a stage that keeps nothing makes of a document.
    fn pass(
        &mut self,
        document: RawDocumentBuf,
        env: &Env<'_>,
    ) -> Result<Option<RawDocumentBuf>, DocumentError> {
        match self {
            Stage::Match(filter) => Ok(filter.holds(&document, env)?.then_some(document)),
            Stage::Shape(shape) => {
                let made = shape.apply(&document, env)?;
                if shape.computes() {
                    check(&made)?;
                }
                Ok(Some(made))
            }
            Stage::ReplaceRoot(root) => replace_root(root, &document, env).map(Some),
            Stage::Redact(redact) => redact.apply(&document, env),
            Stage::Limit(rest) => {
                *rest -= 1;
                Ok(Some(document))
            }
            Stage::Skip(0) => Ok(Some(document)),
            Stage::Skip(rest) => {
                *rest -= 1;
                Ok(None)
            }
            _ => Ok(Some(document)),
        }
    }

    /// Takes a document of which the result will be made at the end.
    fn keep(&mut self, document: RawDocumentBuf, env: &Env<'_>) -> Result<(), DocumentError> {
        match self {
            Stage::Sort(sorter) => sorter.push_document(document),
            Stage::Group(group) => group.push(&document, env),
            Stage::Count { count, .. } => {
                *count += 1;
                Ok(())
            }
            Stage::Sample(sample) => sample.push(document, env),
            _ => Ok(()),
        }
    }

    /// The next document of the result, after the end of the input.
    fn release(&mut self) -> Result<Poll, DocumentError> {
        let next = match self {
            Stage::Sort(sorter) => sorter.take(),
            Stage::Group(group) => group.take()?,
            Stage::Sample(sample) => sample.kept.pop_first().map(|(_, document)| document),
            Stage::Count { name, count } if *count > 0 => {
                let mut made = RawDocumentBuf::new();
                let value = Value::count(usize::try_from(std::mem::take(count)).unwrap_or(0));
                crate::raw::append(&mut made, name, value.or_null())?;
                Some(made)
            }
            _ => None,
        };
        Ok(next.map_or(Poll::Done, Poll::Ready))
    }
}

fn replace_root(
    root: &Expression,
    document: &RawDocument,
    env: &Env<'_>,
) -> Result<RawDocumentBuf, DocumentError> {
    let value = root.evaluate(document, env)?;
    if let Value::Raw(RawBsonRef::Document(made)) = value {
        return Ok(made.to_owned());
    }
    match value.as_document() {
        Some(made) => check(made).map(|()| made.to_owned()),
        None => {
            let text = format!(
                "PlanExecutor error during aggregation :: caused by :: 'newRoot' expression  must evaluate to an object, but resulting value was: {}. Type of resulting value: '{}'. Input document: {}",
                shown(value.or_null()),
                value.type_name(),
                shown(RawBsonRef::Document(document))
            );
            Err(DocumentError::new(40228, text))
        }
    }
}

/// The documents of `$documents`.
fn documents(values: &Expression, env: &Env<'_>) -> Result<Vec<RawDocumentBuf>, DocumentError> {
    let empty = RawDocumentBuf::new();
    let value = values.evaluate(&empty, env)?;
    let wrong = |what: &str| {
        DocumentError::new(5_858_203, format!("an array of documents is expected, but {what}"))
    };
    let array = value.as_array().ok_or_else(|| wrong("there is no array"))?;
    let mut all = Vec::new();
    for element in crate::raw::elements(array) {
        let document = element.as_document().ok_or_else(|| wrong("an element is no document"))?;
        check(document)?;
        all.push(document.to_owned());
    }
    Ok(all)
}

/// `$sample`: the documents with the least random numbers.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    size: u64,
    kept: BTreeMap<(u64, u64), RawDocumentBuf>,
    arrivals: u64,
    bytes: usize,
}

impl Sample {
    pub(super) fn new(size: u64) -> Sample {
        Sample { size, kept: BTreeMap::new(), arrivals: 0, bytes: 0 }
    }

    fn push(&mut self, document: RawDocumentBuf, env: &Env<'_>) -> Result<(), DocumentError> {
        self.arrivals += 1;
        let key = (env.random().to_bits(), self.arrivals);
        let is_full = self.kept.len() as u64 >= self.size;
        if is_full && self.kept.last_key_value().is_none_or(|(last, _)| *last < key) {
            return Ok(());
        }
        self.bytes += document.as_bytes().len();
        self.kept.insert(key, document);
        if is_full && let Some((_, dropped)) = self.kept.pop_last() {
            self.bytes -= dropped.as_bytes().len();
        }
        memory("$sample", self.bytes)
    }
}
