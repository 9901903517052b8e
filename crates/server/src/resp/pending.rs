//! Replies that wait: for a shard, or for an earlier reply.

use crate::jobs::OwnedReply;
use remora_front::error::status_error;
use remora_front::request::Unit;
use remora_front::resp::{Protocol, encode};
use remora_layout::limits::RESP_MAX_REPLY_BYTES;
use remora_layout::message::Status;

/// How a request's parts become its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Render {
    /// GET: the value or null.
    Value,
    /// SET; with `get` the old value instead of OK.
    Set {
        /// Whether GET was asked for.
        get: bool,
    },
    /// SETNX: whether it was set.
    Done(&'static str),
    /// GETEX with a time that makes no sense: null without key, else the error
    /// of this status.
    NullOrError(Status, &'static str),
    /// The number.
    Number(&'static str),
    /// A time to live.
    Ttl(Unit),
    /// MGET: an array of values.
    Values,
    /// The sum of all parts' numbers.
    Sum,
    /// OK if all parts are.
    AllOk(&'static str),
}

/// One request's place in the order of replies.
pub enum Pending {
    /// Encoded, but an earlier one is not.
    Ready(Vec<u8>),
    /// Parts are missing.
    Waiting(Waiting),
}

/// A request of which parts are missing.
pub struct Waiting {
    /// How the reply is made.
    pub render: Render,
    /// One reply for each part.
    pub parts: Vec<Option<OwnedReply>>,
    /// How many are missing.
    pub missing: usize,
    /// Bytes of the values that have come.
    pub bytes: usize,
    /// Shards at which this request writes, one for each part; empty for reads.
    pub writes_at: Vec<usize>,
}

impl Render {
    /// Appends the reply that the parts make.
    pub fn write(self, out: &mut Vec<u8>, protocol: Protocol, parts: &[OwnedReply]) {
        if self == Self::Values && parts.iter().any(|part| part.status == Status::TooLarge) {
            return encode::error(
                out,
                &format!(
                    "ERR reply is longer than {RESP_MAX_REPLY_BYTES} bytes: ask for fewer keys"
                ),
            );
        }
        let command = match self {
            Self::Number(command)
            | Self::AllOk(command)
            | Self::Done(command)
            | Self::NullOrError(_, command) => command,
            Self::Set { .. } => "set",
            _ => "",
        };
        let refused = match (self, parts) {
            (Self::NullOrError(status, _), [part]) if part.number != 0 => Some(status),
            _ => None,
        };
        let mut statuses = parts.iter().map(|part| part.status).chain(refused);
        if let Some(text) = statuses.find_map(|status| status_error(status, command)) {
            return encode::error(out, &text);
        }
        match (self, parts) {
            (Self::Value, [part]) => encode::bulk_or_null(out, protocol, part.value.as_deref()),
            (Self::Set { get: true }, [part]) => {
                encode::bulk_or_null(out, protocol, part.value.as_deref());
            }
            (Self::Set { get: false }, [part]) if part.status == Status::NotDone => {
                encode::null(out, protocol);
            }
            (Self::NullOrError(..), _) => encode::null(out, protocol),
            (Self::Done(_), [part]) => encode::integer(out, (part.status == Status::Ok).into()),
            (Self::Number(_), [part]) => encode::integer(out, part.number),
            (Self::Ttl(unit), [part]) => encode::integer(out, unit.from_ms(part.number)),
            (Self::Values, _) => {
                encode::array(out, parts.len());
                for part in parts {
                    encode::bulk_or_null(out, protocol, part.value.as_deref());
                }
            }
            (Self::Sum, _) => encode::integer(out, parts.iter().map(|part| part.number).sum()),
            _ => encode::ok(out),
        }
    }
}
