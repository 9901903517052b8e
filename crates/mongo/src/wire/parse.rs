//! The next message in a buffer.

use super::compressed::Compressed;
use super::error::{Fatal, Refusal, Refused, WireError};
use super::header::{HEADER_BYTES, Header, checked_length, opcode};
use super::msg::{self, OpMsg};
use super::query::OpQuery;

/// The outcome of parsing.
#[derive(Clone, Copy, Debug)]
pub enum Parsed<'a> {
    /// The message is not all there.
    Incomplete {
        /// Bytes of the whole buffer below which calling again is useless.
        need: usize,
    },
    /// A whole message.
    Message {
        /// The message.
        message: Message<'a>,
        /// Bytes that it took from the start of the buffer.
        consumed: usize,
    },
}

/// A message, which borrows from the bytes received.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its header.
    pub header: Header,
    /// What it holds.
    pub body: Body<'a>,
}

/// What a message holds.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// A command.
    Msg(OpMsg<'a>),
    /// The first handshake of a client that does not know the server yet.
    Query(OpQuery<'a>),
    /// One of the others, compressed.
    Compressed(Compressed<'a>),
}

/// Parses the message at the start of `buffer`. It allocates nothing.
///
/// All documents of the message are checked, unless it is compressed.
///
/// # Errors
/// Bytes that are not a message; see [`WireError`] for how the connection continues.
///
/// ```
/// use remora_mongo::wire::{Body, Parsed, parse};
///
/// let bytes = b"\x24\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\
///     \x0f\0\0\0\x10ping\0\x01\0\0\0\0"; // {ping: 1}
/// assert!(matches!(parse(&bytes[..20])?, Parsed::Incomplete { need: 36 }));
/// let Parsed::Message { message, consumed: 36 } = parse(bytes)? else { panic!() };
/// let Body::Msg(ping) = message.body else { panic!() };
/// assert_eq!(ping.body.get_i32("ping").ok(), Some(1));
/// # Ok::<(), remora_mongo::wire::WireError>(())
/// ```
pub fn parse(buffer: &[u8]) -> Result<Parsed<'_>, WireError> {
    let Some(head) = buffer.first_chunk::<HEADER_BYTES>() else {
        // A wrong length is seen before the rest of the header arrives.
        if let Some(length) = buffer.first_chunk() {
            checked_length(i32::from_le_bytes(*length)).map_err(Fatal::Length)?;
        }
        return Ok(Parsed::Incomplete { need: HEADER_BYTES });
    };
    let header = Header::read(head).map_err(Fatal::Length)?;
    if !matches!(header.opcode, opcode::MSG | opcode::QUERY | opcode::COMPRESSED) {
        return Err(Fatal::Opcode(header.opcode).into());
    }
    let Some(bytes) = buffer.get(..header.bytes) else {
        return Ok(Parsed::Incomplete { need: header.bytes });
    };
    let message = parse_whole(header, bytes, header.bytes)?;
    Ok(Parsed::Message { message, consumed: header.bytes })
}

impl Compressed<'_> {
    /// Writes the original message into `buffer`, which is cleared first, and parses it.
    ///
    /// # Errors
    /// Bytes that the compressor did not write, and all errors of [`parse`].
    pub fn decompress<'b>(&self, buffer: &'b mut Vec<u8>) -> Result<Message<'b>, WireError> {
        self.write_original(buffer)?;
        parse_whole(self.header, buffer, self.consumed)
    }
}

/// Parses exactly one message; `consumed` is for a refusal.
fn parse_whole(header: Header, bytes: &[u8], consumed: usize) -> Result<Message<'_>, WireError> {
    let refused = |wants_reply, reason| Refused { header, consumed, wants_reply, reason };
    let rest = &bytes[HEADER_BYTES..];
    let body = match header.opcode {
        opcode::MSG => {
            let (flags, sections) = msg::check_envelope(bytes)?;
            let wants_reply = !flags.more_to_come();
            match OpMsg::read(flags, sections) {
                Ok(msg) => Body::Msg(msg),
                Err(msg::Wrong::Fatal(fatal)) => return Err(fatal.into()),
                Err(msg::Wrong::Refused(reason)) => return Err(refused(wants_reply, reason).into()),
            }
        }
        opcode::QUERY => {
            Body::Query(OpQuery::read(rest).map_err(|reason: Refusal| refused(true, reason))?)
        }
        opcode::COMPRESSED => Body::Compressed(Compressed::read(header, rest)?),
        other => return Err(Fatal::Opcode(other).into()),
    };
    Ok(Message { header, body })
}
