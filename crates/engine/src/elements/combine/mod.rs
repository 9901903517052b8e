//! The members of several objects of the shard, combined in turns: names alone, or names with scores.
//!
//! The objects may be of several types: a type says how its own are read ([`MemberReader`]).

mod combining;
mod form;
mod reader;
mod source;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use combining::{Asked, Combining};
pub(crate) use form::{Names, WithScores, reader};
pub(crate) use reader::MemberReader;
