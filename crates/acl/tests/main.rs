//! Tests of users and their rights: by themselves, and against a real redis-server.

mod calls;
mod check;
mod file;
mod log;
mod oracle;
mod properties;
mod redis;
mod rules;
mod scram;
mod table;
