//! Messages: the header, OP_MSG, OP_QUERY and OP_REPLY for the first handshake, OP_COMPRESSED.
//!
//! ```text
//! | length i32 | request id i32 | response to i32 | opcode i32 | body ... |    little-endian
//! ```
//!
//! Source: the "MongoDB Wire Protocol" page of the server's manual, and the specification of
//! OP_MSG in the drivers' specifications.

mod compressed;
mod error;
mod header;
mod msg;
mod parse;
mod query;

pub use compressed::{Compressed, Compressor, compress};
pub use error::{Fatal, Refusal, Refused, WireError};
pub use header::{HEADER_BYTES, Header, opcode};
pub use msg::{MsgFlags, OpMsg, Sequence, SequenceDocuments, Sequences};
pub use parse::{Body, Message, Parsed, parse};
pub use query::OpQuery;

pub(crate) use header::begin;
pub(crate) use msg::{CHECKSUM_BYTES, SECTION_BODY};
