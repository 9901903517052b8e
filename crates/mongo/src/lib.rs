//! The wire protocol of MongoDB: bytes to messages and back.
//!
//! Invariant of this crate: it does no I/O, reads no clock and draws no random numbers. No input
//! makes it panic. The memory that it uses is bounded by the bytes that the client sent, or for a
//! compressed message by the greatest ratio of its compressor.
//!
//! A session calls [`wire::parse`] on the bytes received. It decompresses the message if needed,
//! makes a [`Command`] of it, acts, and writes the answer through [`Envelope`].
//!
//! ```text
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
pub mod query;
pub mod reply;
pub mod running;
pub mod scram;
pub mod validate;
pub mod wire;
pub mod writer;

/// The crate of documents, whose types stand in the interface here.
pub use bson;
pub use command::Command;
pub use reply::{CommandError, Envelope, ErrorCode};
