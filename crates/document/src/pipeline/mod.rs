//! Pipelines of MongoDB's `aggregate`, as a state machine: documents in, documents out, without I/O.
//!
//! ```text
//!   caller's search --push--> stage 0 --> stage 1 --> ... --Gives--> caller
//!     (see source())                        |  ^
//!                                         Asks answer
//!                                           v  |
//!                                      another search of the caller
//! ```
//! The caller first does what [`Pipeline::source`] says, and pushes the documents that it finds. It calls
//! [`Pipeline::step`] and does what the step wants.
//!
//! Invariants: one step moves a bounded number of documents; a stage that keeps documents counts their bytes,
//! and fails beyond [`MAX_STAGE_BYTES`]; an error ends the pipeline.

mod accumulator;
mod document_stages;
mod facet;
mod graph_lookup;
mod group;
mod lookup;
mod parse;
mod redact;
mod sink;
mod source;
mod stage;
mod union_with;
mod unwind;

pub(crate) use document_stages::DocumentStages;
pub use sink::{Merge, Sink, WhenMatched, WhenNotMatched};
pub use source::{Query, Source};

use crate::error::DocumentError;
use crate::variables::Variables;
use bson::raw::{RawArray, RawDocumentBuf};
use remora_layout::limits::MAX_STEP_MOVES;
use stage::{Node, Poll};
use std::collections::VecDeque;
use std::sync::Arc;

#[allow(unused_imports, reason = "for the links of the text above")]
use remora_layout::limits::MAX_STAGE_BYTES;

/// What a pipeline does next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// It wants the next document, or the end: [`Pipeline::push`], [`Pipeline::end`].
    Wants,
    /// A document of the result.
    Gives(RawDocumentBuf),
    /// A search in another collection: [`Pipeline::answer`].
    Asks(Query),
    /// The next part of the answer to the latest search that is not answered: [`Pipeline::answer`].
    Awaits,
    /// The step has done enough; another one continues.
    Continues,
    /// There are no more documents.
    Done,
}

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
    source: Source,
    nodes: Vec<Node>,
    sink: Option<Sink>,
    variables: Arc<Variables>,
    inbox: VecDeque<RawDocumentBuf>,
    has_ended: bool,
    /// The stages whose searches are not answered yet, the latest last.
    asking: Vec<usize>,
    /// The stage to poll next.
    at: usize,
}

impl Pipeline {
    /// Parses the stages of a pipeline.
    ///
    /// # Errors
    /// As MongoDB: an unknown stage, a stage at a wrong place, a wrong argument.
    pub fn parse(stages: &RawArray, variables: &Variables) -> Result<Pipeline, DocumentError> {
        parse::pipeline(stages, variables, parse::Place::Top)
    }

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

    /// The same pipeline with other values of its variables.
    fn with_variables(&self, variables: Variables) -> Pipeline {
        Pipeline { variables: Arc::new(variables), ..self.clone() }
    }
}
