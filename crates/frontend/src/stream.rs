//! A connection's stream of bytes.

use std::io::{Read, Write};

/// A stream of bytes that never blocks, and tells by events when it can be read or written again.
///
/// A read that takes less than it could has taken all that is there, unless the stream says otherwise.
pub trait ByteStream: Read + Write {
    /// Whether the next read gives something although no event will tell of it: bytes, an end or an error.
    fn has_more(&self) -> bool {
        false
    }
}
