//! Operations on the objects of several keys: one question to a shard after the other, each of which
//! follows from the last answer. They do not ask the shards themselves.
//!
//! Each question is one change, or one read, of the objects of one shard. Between two of them the shards
//! serve other requests. If all keys belong to one shard, an operation may ask it once, for all of them.

use remora_frontend::OwnedReply;
use remora_layout::kind::Kind;
use remora_protocol::Request;
use std::fmt;

/// An operation on several keys.
pub trait Steps: fmt::Debug + Send {
    /// Takes the answer to the last question, `None` at the beginning, and puts the next question. The
    /// first step puts one.
    fn next(&mut self, keys: &[StepKey], answer: Option<OwnedReply>, ask: AskKey<'_>) -> Step;

    /// Whether it changes nothing: it ends with its connection. Others run to their end.
    fn is_read(&self) -> bool {
        false
    }
}

/// A key of such an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepKey {
    /// The key.
    pub key: Box<[u8]>,
    /// The shard that owns it.
    pub shard: usize,
}

/// Whether all keys belong to one shard.
pub(crate) fn is_one_shard(keys: &[StepKey]) -> bool {
    keys.windows(2).all(|two| two[0].shard == two[1].shard)
}

/// Puts a question about the key with this number to its shard.
pub type AskKey<'a> = &'a mut dyn FnMut(usize, Request<'_>);

/// The next step of an operation.
#[derive(Debug)]
pub enum Step {
    /// A question was put.
    Asked,
    /// A question was put, and its answer is the reply.
    AskedLast,
    /// The operation is over.
    Done(OwnedReply),
    /// A key gets a new object in the place of what it holds, in pieces. The number of the reply counts
    /// the object's parts.
    Store {
        /// The key's number.
        key: usize,
        /// The object's type.
        kind: Kind,
        /// Its parts, as the type's pieces of a dump have them: [`remora_protocol::Items`].
        items: Vec<u8>,
    },
}
