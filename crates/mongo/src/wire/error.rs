//! Why bytes are not a message, and whether the connection can continue.

use super::header::Header;
use crate::limits::{MAX_MESSAGE_BYTES, MAX_SEQUENCES, MAX_WRITE_BATCH};
use crate::reply::ErrorCode;
use crate::validate::DocumentError;
use thiserror::Error;

/// Why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WireError {
    /// The connection ends, without a reply.
    #[error(transparent)]
    Fatal(#[from] Fatal),
    /// The connection continues behind the message, after an error as its reply.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// A violation after which the bytes that follow cannot be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Fatal {
    /// The length in a header is out of bounds.
    #[error("a message of {0} bytes: it has 16 to {MAX_MESSAGE_BYTES}")]
    Length(i32),
    /// A kind of message that this server does not read.
    #[error("unknown opcode {0}")]
    Opcode(i32),
    /// The message ends within a part of fixed size.
    #[error("the message ends too early")]
    Truncated,
    /// A flag among the lower 16 bits that is not known. The sender relies on it.
    #[error("unknown flags {0:#x} in a message")]
    Flags(u32),
    /// The checksum is not that of the bytes.
    #[error("the checksum is {found:#010x}, the message says {declared:#010x}")]
    Checksum {
        /// In the message.
        declared: u32,
        /// Of its bytes.
        found: u32,
    },
    /// More than [`MAX_SEQUENCES`] document sequences.
    #[error("more than {MAX_SEQUENCES} document sequences")]
    TooManySequences,
    /// A compressor that the handshake did not agree on.
    #[error("unknown compressor {0}")]
    Compressor(u8),
    /// The declared size is out of bounds, or more than the compressor can make of the bytes.
    #[error("{0} uncompressed bytes are not possible")]
    UncompressedSize(i32),
    /// A compressed message within a compressed one, or an opcode that must not be compressed.
    #[error("a compressed message with opcode {0} inside")]
    CompressedOpcode(i32),
    /// The bytes are not what the compressor writes, or have another size than declared.
    #[error("the compressed bytes are damaged")]
    Damaged,
}

/// A whole message that is refused. Its end is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{reason}")]
pub struct Refused {
    /// Its header: its reply names its `request_id`, and has the form for its `opcode`.
    pub header: Header,
    /// Bytes that it took from the start of the buffer. After decompression: of the compressed
    /// message, which [`Parsed`](super::Parsed) had counted before.
    pub consumed: usize,
    /// Whether the client expects a reply.
    pub wants_reply: bool,
    /// What was wrong.
    pub reason: Refusal,
}

/// What is wrong with a message whose end is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    /// A document is not valid.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A kind of section that does not exist.
    #[error("unknown section kind {0}")]
    SectionKind(u8),
    /// There is no body, or there are two.
    #[error("a message has exactly one body section, not {0}")]
    Bodies(usize),
    /// The size of a document sequence does not fit the message.
    #[error("a document sequence of {0} bytes does not fit the message")]
    SequenceSize(i32),
    /// The name of a document sequence does not end, or is not UTF-8.
    #[error("the name of a document sequence is not valid")]
    SequenceName,
    /// More than [`MAX_WRITE_BATCH`] documents in a sequence.
    #[error("more than {MAX_WRITE_BATCH} documents in a sequence")]
    TooManyDocuments,
    /// An OP_QUERY with other than one document, or with bytes behind it.
    #[error("malformed OP_QUERY")]
    Query,
    /// An OP_QUERY that is not the first handshake.
    #[error("unsupported OP_QUERY: the client driver may require an upgrade")]
    UnsupportedQuery,
}

impl Refusal {
    /// The code of the error that is the reply.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Document(_) => ErrorCode::InvalidBson,
            Self::SectionKind(_) | Self::Bodies(_) | Self::Query => ErrorCode::ProtocolError,
            Self::SequenceSize(_) | Self::TooManyDocuments => ErrorCode::InvalidLength,
            Self::SequenceName => ErrorCode::FailedToParse,
            Self::UnsupportedQuery => ErrorCode::UnsupportedOpQueryCommand,
        }
    }
}
