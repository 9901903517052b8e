//! `$jsonSchema`: JSON Schema draft 4 as MongoDB has it, with `bsonType`.
//!
//! A keyword about values of one type holds for all values of other types. What a match costs: each part of the
//! schema looks once at each value that it is about.

mod keywords;
mod parse;

pub(crate) use keywords::Schema;
