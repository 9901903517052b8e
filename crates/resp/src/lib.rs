//! RESP: bytes to requests and back, and the table of commands.
//!
//! What this crate keeps true: it does no I/O, reads no clock and draws no
//! random numbers; no input makes it panic, and what it stores while it
//! parses is bounded by the bytes that the peer really sent.
//!
//! A session calls [`wire::parse()`] on what it has received, then [`request()`]
//! on the arguments found, acts, and writes its answer with [`wire::encode`].
//! Everything that is known about a command stands once, in [`table`].

#![forbid(unsafe_code)]

pub mod error;
pub mod geo_reply;
pub mod markdown;
pub mod object_reply;
pub mod reply;
pub mod request;
pub mod table;
pub mod tree_reply;
mod types;
pub mod wire;

pub use error::CommandError;
pub use request::{Request, request};
pub use wire::{Args, Made, Parsed, Protocol, ProtocolError, Value, Words, parse};
