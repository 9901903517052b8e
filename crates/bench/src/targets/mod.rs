//! Targets of a measurement: a session, a RESP connection, a map of this process.

pub mod local;
pub mod resp;
pub mod session;
pub mod target;
