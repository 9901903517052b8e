//! Headers of frames, and the meaning of their ids.

use remora_layout::lag::Lag;
use remora_protocol::Reply;
use remora_protocol::message::{HAS_VALUE, ReplyHeader, RequestHeader, Status};
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

/// What each reply says of its server.
#[derive(Clone, Copy)]
pub struct Stamp {
    /// The server's incarnation.
    pub incarnation: u64,
    /// How old what the reply shows may be; taken after the request has come, and before the first
    /// read for it that another shard may be writing meanwhile.
    pub lag: Lag,
}

/// What a turn of replies needs to know of the server.
#[derive(Clone, Copy)]
pub struct Answering {
    /// What each reply says.
    pub stamp: Stamp,
    /// Why reads are refused, if they are.
    pub refusal: Option<Status>,
}

/// The header of an encoded reply.
pub fn reply_header(reply: &Reply<'_>, id: u32, stamp: Stamp) -> ReplyHeader {
    let value = reply.value.unwrap_or_default();
    let [low, high] = reply.pointer.to_words();
    ReplyHeader {
        status: reply.status as u8,
        flags: if reply.value.is_some() { HAS_VALUE } else { 0 },
        lag: stamp.lag.code().into(),
        value_bytes: (value.len() as u32).into(),
        id: id.into(),
        lease_ms: reply.lease_ms.into(),
        pointer: [low.into(), high.into()],
        number: reply.number.into(),
        incarnation: stamp.incarnation.into(),
    }
}
