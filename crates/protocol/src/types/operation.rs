//! Each type's description of its operations.

use crate::message::Status;
use remora_layout::kind::Kind;

/// An operation in a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoded<'a> {
    /// Its number among those of its type.
    pub op: u8,
    /// Its flags.
    pub flags: u8,
    /// Its number or time.
    pub argument: i64,
    /// Its bytes.
    pub value: &'a [u8],
}

/// The operations of one type.
pub trait Operation<'a>: Copy {
    /// The type: the kind of its root records.
    const KIND: Kind;
    /// How many operations it has: their numbers are below.
    const COUNT: u8;

    /// The operation of a message.
    ///
    /// # Errors
    /// The status to reply with: the message makes no sense, or breaks a limit.
    fn decode(from: Encoded<'a>) -> Result<Self, Status>;

    /// The operation for a message; `scratch` is overwritten if it is needed.
    fn encode<'s>(&'s self, scratch: &'s mut Vec<u8>) -> Encoded<'s>;

    /// Whether it may change anything.
    fn is_write(&self) -> bool;

    /// The command of RESP that does this, in lower case: users' rights are about its name.
    fn command_name(&self) -> &'static str;

    /// Whether it may need more of the heap: it is refused where memory is full.
    fn grows(&self) -> bool {
        false
    }

    /// Whether the shard answers it in turns.
    fn is_long(&self) -> bool {
        false
    }

    /// Whether it concerns other keys beside the command's own.
    fn has_other_keys(&self) -> bool {
        false
    }

    /// Those other keys.
    fn other_keys(&self) -> Vec<&'a [u8]> {
        Vec::new()
    }

    /// Whether it may have several replies: it is long, or the shard finds that only with the answer.
    fn may_have_parts(&self) -> bool {
        self.is_long()
    }
}
