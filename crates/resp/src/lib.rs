//! RESP: bytes to requests and back, and the table of commands.
//!
//! Invariant of this crate: it does no I/O, reads no clock and draws no random numbers; no input
//! makes it panic, and the memory that it stores while it parses is bounded by the bytes that the
//! peer really sent.
//!
//! A session calls [`wire::parse()`] on the bytes received, then [`request()`] on the arguments
//! found, acts, and writes its answer with [`write`](remora_frontend::ReplyForm::write) or [`wire::encode`].
//!
//! ```text
//!   markdown    dispatch    reply          from words to a parser, from answers to a reply
//!        \         |          |
//!         table    |          |            found by name; COMMAND
//!             \    |          |
//!              commands/<group>            each command's entry, parser and writer
//!                  |
//!   spec    arguments    object_reply      what an entry is, what several groups share
//!        \         |
//!         request   form    keys  numbers  plain data
//!         cluster   subscriptions  steps  sorting
//!               \    |
//!              error    wire               texts of errors; RESP2 and RESP3
//! ```

#![forbid(unsafe_code)]

pub mod acl_reply;
mod arguments;
pub mod cluster;
pub mod commands;
mod dispatch;
pub mod error;
pub mod form;
mod frontend;
pub mod keys;
mod limits;
pub mod markdown;
mod numbers;
mod object_reply;
mod reply;
pub mod request;
pub mod sorting;
pub mod spec;
pub mod steps;
pub mod subscriptions;
pub mod table;
pub mod wire;

pub use dispatch::{command, request};
pub use error::CommandError;
pub use form::ReplyForm;
pub use frontend::{Resp, RespClient};
pub use object_reply::ItemsReply;
pub use reply::LongReply;
pub use request::Request;
pub use wire::{Args, Made, Parsed, ProtocolError, RespVersion, Value, Words, parse};
