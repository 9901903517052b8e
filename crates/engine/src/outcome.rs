//! What a command gives.

use crate::store::Download;
use remora_protocol::Reply;

/// What a command gives.
#[derive(Debug)]
pub enum Outcome<'a> {
    /// A reply, with its value if it has one.
    Reply(Reply<'a>),
    /// A reply whose value, more than `STREAM_BYTES` long, is the download's
    /// bytes; the reply itself has none.
    Stream(Reply<'a>, Download),
}
