//! GEO keys, in the words and with the errors of Redis 7.

pub(super) mod members;
mod numbers;
pub(crate) mod search;
mod words;

pub use search::{FoundReply, stored, write_members};
