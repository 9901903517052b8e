//! Tests of MongoDB's wire protocol.

mod command;
mod compressed;
mod fixture;
mod hello;
mod reply;
mod scram;
mod sinks;
mod validate;
mod wire;
