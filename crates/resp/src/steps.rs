//! Operations on the objects of several keys: one question to a shard after the other, each of which
//! follows from the last answer. They do not ask the shards themselves.
//!
//! Each question is one change, or one read, of the objects of one shard. Between two of them the shards
//! serve other requests, unless they belong to one change ([`Step::Joint`]). If all keys belong to one shard, an operation may ask it once, for all of them.

use remora_frontend::OwnedReply;
use remora_layout::kind::Kind;
use remora_protocol::Request;
use std::fmt;

/// How often a change of two shards begins anew while RENAME holds the other key, or that key's shard is
/// held, at most: both last for bounded time, and other requests are served meanwhile.
pub(crate) const MOST_TRIES: u32 = 1 << 16;

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

/// An operation on two keys that waits for the first one to hold something.
pub trait AfterWait: fmt::Debug + Send {
    /// Its steps, once the key holds something. They end with `NotFound` if it does not any more: then
    /// the operation waits again, and begins anew.
    fn steps(&self) -> Box<dyn Steps>;
}

/// What an operation on two keys is made of if it waits for the first one, and the keys are of two shards.
#[derive(Debug)]
pub struct Apart<'a> {
    /// The operation that waits: it only looks.
    pub look: Request<'static>,
    /// The other key.
    pub to: &'a [u8],
    /// What comes once the first key holds something. The value of its reply is that of the operation's.
    pub after_wait: Box<dyn AfterWait>,
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
    /// A question that only reads was put about the first key, and from it on all is one change of two
    /// shards (decision 0070): the first key's shard is held until it is over. Any number of questions
    /// that read may follow; then one that changes the other key, and one that changes the first key,
    /// which is not refused. Within such a change this step begins it anew.
    Joint,
    /// The operation is over.
    Done(OwnedReply),
    /// A key gets a new object in the place of what it holds, in pieces. The number of the reply counts
    /// the object's parts.
    Store {
        /// The key's number.
        key: usize,
        /// The object's type.
        kind: Kind,
        /// Its parts, as the type's pieces of a dump have them.
        items: Vec<u8>,
        /// Bytes of the first part in such a list that is not empty.
        first_bytes: fn(&[u8]) -> usize,
    },
}
