//! An operation on the objects of several keys that is one question to a shard after the other.
//!
//! Each question is one change, or one look, of one key. Between two of them the shards serve others.
//! Where all keys belong to one shard, the operation may ask it once, for all of them.

use crate::message::Status;
use crate::reply::Reply;
use crate::types::Request;

/// The next step of an operation on several keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A question was put.
    Asked,
    /// A question was put, and the answer to it is the reply.
    AskedLast,
    /// The operation is over.
    Done(StepsReply),
}

/// The reply of an operation on several keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepsReply {
    /// Its status.
    pub status: Status,
    /// Its number.
    pub number: i64,
    /// Its value.
    pub value: Option<Vec<u8>>,
}

impl StepsReply {
    /// A reply without a number and without a value.
    pub const fn status(status: Status) -> Self {
        Self { status, number: 0, value: None }
    }
}

impl From<&Reply<'_>> for StepsReply {
    fn from(reply: &Reply<'_>) -> Self {
        let value = reply.value.map(<[u8]>::to_vec);
        Self { status: reply.status, number: reply.number, value }
    }
}

/// Puts a question about the key of this number.
pub type AskKey<'a> = &'a mut dyn FnMut(usize, Request<'_>);

/// Takes the answer to the last question, if there was one, and puts the next one.
pub type NextStep = fn(&mut Steps, Option<&Reply<'_>>, AskKey<'_>) -> Step;

/// An operation on several keys.
#[derive(Clone, Debug)]
pub struct Steps {
    /// The keys.
    pub keys: Vec<Box<[u8]>>,
    /// All keys are of one shard.
    pub is_one_shard: bool,
    /// How far it has come, in the operation's own count: 0 at first.
    pub at: usize,
    /// The operation's own arguments.
    pub arguments: [i64; 3],
    /// What it carries from one key to another.
    pub carried: Option<StepsReply>,
    /// Carries it on.
    pub next: NextStep,
}

impl Steps {
    /// An operation that has not begun.
    pub fn new(keys: Vec<Box<[u8]>>, arguments: [i64; 3], next: NextStep) -> Self {
        Self { keys, is_one_shard: false, at: 0, arguments, carried: None, next }
    }

    /// Takes the answer to the last question, if there was one, and puts the next one.
    pub fn step(&mut self, answer: Option<&Reply<'_>>, ask: AskKey<'_>) -> Step {
        (self.next)(self, answer, ask)
    }
}
