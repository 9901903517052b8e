//! A shard's answers.

use crate::message::Status;
use remora_layout::pointer::RemotePointer;

/// A shard's answer. The value borrows from the shard's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    /// How it went.
    pub status: Status,
    /// The operation's number.
    pub number: i64,
    /// The value, or the old one for SET with GET.
    pub value: Option<&'a [u8]>,
    /// Where the record can be read from now on (HydraDB 4.2.2, H19).
    pub pointer: RemotePointer,
    /// Term of the lease on it, in ms.
    pub lease_ms: u32,
    /// The reply is held back until this sequence is durable; 0 if it may be sent at once.
    pub wait: u64,
}

impl Reply<'_> {
    /// A reply with nothing but a status.
    pub const fn status(status: Status) -> Self {
        Self { status, number: 0, value: None, pointer: RemotePointer::NONE, lease_ms: 0, wait: 0 }
    }

    /// A reply with a number.
    pub const fn number(number: i64) -> Self {
        Self {
            status: Status::Ok,
            number,
            value: None,
            pointer: RemotePointer::NONE,
            lease_ms: 0,
            wait: 0,
        }
    }
}
