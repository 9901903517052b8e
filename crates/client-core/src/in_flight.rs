//! In-flight requests: sent and not answered.

use remora_layout::hash::KeyHash;
use remora_protocol::message::{MORE, ReplyHeader};
use std::mem::offset_of;
use zerocopy::FromBytes;

/// A request that was sent and whose reply has not been taken yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Ticket(pub u64);

/// A request that was made.
#[derive(Clone, Copy)]
pub(crate) struct InFlight {
    pub id: RequestId,
    /// The shard that it was sent to.
    pub shard: usize,
    pub ticket: Ticket,
    pub is_write: bool,
    /// The key's hash if the reply may bring a pointer to cache.
    pub hash: Option<KeyHash>,
    /// The clock before it was sent.
    pub sent_ns: u64,
    pub request_bytes: u32,
    /// Bytes of the buffer that it named; 0 if it named none.
    pub buffer_bytes: u32,
    /// It may have several replies.
    pub is_search: bool,
    /// The session no longer waits for its reply.
    pub is_abandoned: bool,
}

impl InFlight {
    /// Which request it is, for the inbox.
    pub fn at(&self) -> RequestAt {
        RequestAt { shard: self.shard, sequence: self.id.sequence }
    }
}

/// A request's id: the session that sent it, and its number among that session's requests to the
/// shard. A reply carries the same id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId {
    /// The session's number.
    pub session: u16,
    /// Grows by one with each request of the session to the shard.
    pub sequence: u16,
}

impl RequestId {
    /// The id as it stands in a message.
    pub fn to_number(self) -> u32 {
        (self.session as u32) << 16 | self.sequence as u32
    }

    /// The id that a message carries.
    pub fn from_number(number: u32) -> Self {
        Self { session: (number >> 16) as u16, sequence: number as u16 }
    }
}

/// Which request of a session: its shard, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestAt {
    pub shard: usize,
    pub sequence: u16,
}

/// Which request a reply answers.
#[inline(always)]
pub(crate) fn answered(reply: &[u8]) -> Option<RequestId> {
    let (header, _) = ReplyHeader::ref_from_prefix(reply).ok()?;
    Some(RequestId::from_number(header.id.get()))
}

/// Whether another reply to the same request follows this one.
#[inline(always)]
pub(crate) fn is_followed(reply: &[u8]) -> bool {
    reply.get(offset_of!(ReplyHeader, flags)).is_some_and(|flags| flags & MORE != 0)
}
