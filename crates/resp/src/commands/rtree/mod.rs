//! Trees of places. Their commands are Remora's own.

pub(super) mod objects;
pub(super) mod search;
mod words;

pub use search::{ObjectsReply, write_objects};
