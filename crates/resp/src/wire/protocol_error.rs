//! Why bytes are no request.

use remora_layout::limits::MAX_REQUEST_BYTES;
use thiserror::Error;

/// Why bytes are not a request. The connection cannot continue, because the start of the next
/// request is unknown. The text follows `ERR ` in the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ProtocolError {
    /// The count of arguments is not a number or is above the limit.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// An argument opens with another byte.
    #[error("Protocol error: expected '$', got '{}'", shown(*.0))]
    ExpectedBulk(u8),
    /// The length of an argument is not a number or is out of range.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    /// An inline request with an open quote, or with text after a closing one.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// An inline request longer than
    /// [`RESP_MAX_INLINE_BYTES`](remora_layout::limits::RESP_MAX_INLINE_BYTES).
    #[error("Protocol error: too big inline request")]
    TooBigInline,
    /// The line with the count of arguments does not end.
    #[error("Protocol error: too big mbulk count string")]
    TooBigMultibulkCount,
    /// The line with the length of an argument does not end.
    #[error("Protocol error: too big bulk count string")]
    TooBigBulkCount,
    /// The request would be longer than [`MAX_REQUEST_BYTES`].
    #[error("Protocol error: request is longer than {MAX_REQUEST_BYTES} bytes")]
    TooBigRequest,
}

/// A byte as an error shows it: itself, or escaped if it cannot be printed.
fn shown(byte: u8) -> String {
    match byte {
        b' '..=b'~' => char::from(byte).to_string(),
        _ => byte.escape_ascii().to_string(),
    }
}
