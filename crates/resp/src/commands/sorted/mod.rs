//! Sorted sets, in the words and with the errors of Redis 7.

mod bounds;
pub(crate) mod combine;
pub(crate) mod members;
mod order;
pub(crate) mod pops;
pub(crate) mod ranges;
mod reply;
mod steps;
mod words;

pub(crate) use reply::{ScoredReply, scores};
pub(crate) use words::{kept, member, members, request};
