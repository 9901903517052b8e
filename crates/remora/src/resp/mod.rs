//! A small blocking RESP2 client for the bench and the demo: pipelining by
//! hand, replies without allocation.

mod connection;
mod reply;

pub use connection::Connection;
pub use reply::Reply;
