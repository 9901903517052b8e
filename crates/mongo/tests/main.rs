//! Tests of MongoDB's wire protocol.

mod bulk;
mod command;
mod compressed;
mod cursors;
mod fields;
mod fixture;
mod hello;
mod page;
mod queries;
mod reply;
mod scram;
mod shards;
mod sinks;
mod validate;
mod wire;
