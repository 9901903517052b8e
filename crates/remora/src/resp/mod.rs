//! A small blocking RESP client for the bench and the demo: pipelining by
//! hand, one value after the other.

mod connection;

pub use connection::Connection;
