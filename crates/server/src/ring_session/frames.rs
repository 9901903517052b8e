//! Headers of frames, and the meaning of their ids.

use remora_protocol::Reply;
use remora_protocol::message::{HAS_VALUE, ReplyHeader, RequestHeader};
use zerocopy::FromBytes;

/// The session of the client that a request's id names.
pub fn session_of(id: u32) -> u16 {
    (id >> 16) as u16
}

/// The ring sets that these bits name.
pub fn sets_of(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let set = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(set)
    })
}

/// The header of a frame, if it is long enough for one.
pub fn request_header(frame: &[u8]) -> Option<RequestHeader> {
    RequestHeader::read_from_prefix(frame).ok().map(|(header, _)| header)
}

/// The header of an encoded reply, in a server's incarnation.
pub fn reply_header(reply: &Reply<'_>, id: u32, incarnation: u64) -> ReplyHeader {
    let value = reply.value.unwrap_or_default();
    let [low, high] = reply.pointer.to_words();
    ReplyHeader {
        status: reply.status as u8,
        flags: if reply.value.is_some() { HAS_VALUE } else { 0 },
        reserved: 0.into(),
        value_bytes: (value.len() as u32).into(),
        id: id.into(),
        lease_ms: reply.lease_ms.into(),
        pointer: [low.into(), high.into()],
        number: reply.number.into(),
        incarnation: incarnation.into(),
    }
}
