//! MongoDB's protocol: bytes to messages and back, and what its commands do.
//!
//! Invariant of this crate: it does no I/O, reads no clock and draws no random numbers. No input
//! makes it panic. The memory that it uses is bounded by the bytes that the client sent, or for a
//! compressed message by the greatest ratio of its compressor.
//!
//! A server calls [`wire::parse`] on the bytes received. It decompresses the message if needed,
//! makes a [`Command`] of it, and begins it by its [`commands::spec`]. What asks shards is a state machine
//! ([`running::Running`]), which says what it asks next. The answer leaves through [`Envelope`].
//!
//! ```text
//!        commands                a file for each group, with its entries of the table
//!            |
//!     running   cursors          what is under way, and what waits for its client
//!            \    |
//!             query              where a query goes on: its search, its stages
//!               |
//!             step   fields      questions and answers; fields that every command has
//!               |
//!   hello   scram              the handshake; logging in
//!      \    /   \
//!     command   reply          requests as typed views; replies and errors
//!          \    /   \
//!           wire    writer     messages; documents, written into a buffer
//!             |
//!          validate            raw BSON, checked in one pass
//! ```

#![forbid(unsafe_code)]

pub mod command;
pub mod commands;
pub mod cursors;
pub mod fields;
pub mod frontend;
pub mod hello;
mod ids;
pub mod limits;
pub mod markdown;
pub mod query;
pub mod reply;
mod rings;
pub mod running;
pub mod scram;
mod spec;
pub mod step;
pub mod validate;
pub mod wire;
pub mod writer;

/// The crate of documents, whose types stand in the interface here.
pub use bson;
pub use command::Command;
pub use reply::{CommandError, Envelope, ErrorCode};
