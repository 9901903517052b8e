//! The header of a message.

use crate::limits::MAX_MESSAGE_BYTES;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;

/// Numbers of the kinds of messages.
pub mod opcode {
    /// A reply to [`QUERY`].
    pub const REPLY: i32 = 1;
    /// The query of old servers; today only for the first handshake.
    pub const QUERY: i32 = 2004;
    /// A compressed message of another kind.
    pub const COMPRESSED: i32 = 2012;
    /// A command or a reply.
    pub const MSG: i32 = 2013;
}

/// The header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Bytes of the whole message with this header: [`HEADER_BYTES`] to [`MAX_MESSAGE_BYTES`].
    pub bytes: usize,
    /// The sender's number for the message.
    pub request_id: i32,
    /// The number of the request that a reply is for.
    pub response_to: i32,
    /// See [`opcode`].
    pub opcode: i32,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// The length, if it is out of bounds.
    pub(crate) fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Self, i32> {
        let (numbers, _) = bytes.as_chunks::<4>();
        let [length, request_id, response_to, opcode] =
            [0, 1, 2, 3].map(|at| i32::from_le_bytes(numbers[at]));
        Ok(Self { bytes: checked_length(length)?, request_id, response_to, opcode })
    }
}

/// The length of a message, which is an error if it is out of bounds.
pub(super) fn checked_length(length: i32) -> Result<usize, i32> {
    match usize::try_from(length) {
        Ok(bytes) if (HEADER_BYTES..=MAX_MESSAGE_BYTES).contains(&bytes) => Ok(bytes),
        _ => Err(length),
    }
}

/// Appends a header whose length is still 0. The writer of the body sets it.
pub(crate) fn begin(out: &mut Vec<u8>, request_id: i32, response_to: i32, opcode: i32) {
    for number in [0, request_id, response_to, opcode] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}
