//! Tests of MongoDB's wire protocol.

mod bulk;
mod command;
mod compressed;
mod cursors;
mod explain;
mod fields;
mod find_and_modify;
mod fixture;
mod hello;
mod page;
mod queries;
mod reply;
mod rights;
mod scram;
mod shards;
mod sinks;
mod statistics;
mod validate;
mod wire;
