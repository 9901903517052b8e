//! The outcome of a command.

use crate::store::Download;
use remora_protocol::Reply;

/// The outcome of a command.
#[derive(Debug)]
pub enum Outcome<'a> {
    /// A reply, with its value if it has one.
    Reply(Reply<'a>),
    /// A reply whose value is longer than `STREAM_BYTES`: the download gives its bytes, and the
    /// reply itself has none.
    Stream(Reply<'a>, Download),
}
