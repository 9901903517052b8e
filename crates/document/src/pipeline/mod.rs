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
mod step;
mod union_with;
mod unwind;

pub(crate) use document_stages::DocumentStages;
pub use sink::{Merge, Sink, WhenMatched, WhenNotMatched};
pub use source::{Query, Source};
pub use stage::Pipeline;
pub use step::Step;

#[allow(unused_imports, reason = "for the links of the text above")]
use remora_layout::limits::MAX_STAGE_BYTES;
