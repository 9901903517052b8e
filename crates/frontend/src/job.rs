//! Questions to shards for connections, and the answers.

use crate::key_batch::KeyBatch;
use remora_layout::hash::KeyHash;
use remora_plan::Want;
use remora_protocol::message::Status;
use remora_protocol::{Claim, Reply};

/// A shard's work for a connection.
pub enum Order {
    /// Execute this encoded command.
    Execute(Vec<u8>),
    /// Execute a command for each of these keys, with one reply for all.
    ExecuteEach(Box<KeyBatch>),
    /// Look at what a plan's run wants. The reply has the answers, those to the first wants at least.
    Look(Box<PlanLook>),
    /// Reply once the shard's present changes are where they are wanted, or at this time, Unix ms; 0
    /// for never. The reply says how it stands.
    Await {
        /// Where.
        wanted: Wanted,
        /// See above.
        until_ms: u64,
    },
    /// Execute the first of some commands whose key holds something for it; without any, say that the
    /// request waits ([`PARKED`]), and wait until one does.
    WaitFor(Box<WaitFor>),
    /// Wait no longer for the request with the job's token: it is answered.
    Withdraw,
    /// End the wait of a connection of the shard's thread. The reply's number is 1 if it waited.
    Unblock {
        /// The connection's number.
        serial: u64,
        /// Its request gets this status for an answer.
        status: Status,
    },
    /// Hold the shard, and carry out a change of it and another one.
    Joint(Box<JointOrder>),
    /// Make a part of a change whose other shard is held.
    Part(Box<PartOrder>),
    /// The other shard has made its part, or refused it.
    PartAnswer(Box<PartAnswer>),
    /// Send the next piece of the reply to the command with the job's token.
    Continue,
    /// Send no more of it.
    Abandon,
}

/// What a plan's run wants of one shard, with the hash of each want's key in its database.
pub struct PlanLook {
    /// The wants. Those for objects go on behind as many objects as `next` says, a number of 8 bytes.
    pub wants: Vec<(KeyHash, Want)>,
}

/// A request that may wait for keys of a shard.
pub struct WaitFor {
    /// Whoever takes it answers the request.
    pub claim: Claim,
    /// The encoded command for each key, in the order in which the keys are looked at.
    pub commands: Vec<Box<[u8]>>,
}

/// A change of two shards (decision 0070): which commands it is made of, one after the other, each from the
/// answer to the last one. It goes to the shard of the key that something leaves, which is held meanwhile.
pub trait Joint: Send {
    /// Takes the answer to the last command. What comes next.
    fn next(&mut self, answer: OwnedReply) -> JointStep;
}

/// What comes next in a change of two shards.
pub enum JointStep {
    /// This encoded command, for this shard: a look at the held shard first; then the other shard's part;
    /// then the held shard's part, if that one was not refused.
    Ask(usize, Vec<u8>),
    /// It is tried again later, from this look on: the shard is let go meanwhile.
    Again(Vec<u8>),
    /// It is over. The reply.
    Done(OwnedReply),
}

/// A change that begins at the shard that is to be held.
pub struct JointOrder {
    /// The encoded command of the look.
    pub look: Vec<u8>,
    /// The change.
    pub joint: Box<dyn Joint>,
}

/// A part that a shard is to make.
pub struct PartOrder {
    /// The encoded command.
    pub command: Vec<u8>,
    /// The held shard.
    pub held: usize,
    /// The sequence of its part, which follows.
    pub sequence: u64,
}

/// What became of a part, for the held shard.
pub struct PartAnswer {
    /// The shard that was asked.
    pub shard: usize,
    /// The reply to the command.
    pub reply: OwnedReply,
    /// The sequence there that the held shard's part depends on; 0 for none.
    pub sequence: u64,
}

/// The part of the tokens of answers that are none: the request waits at the shard.
pub const PARKED: usize = usize::MAX - 1;

/// Where changes are to be before a reply to a request that waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// On the server's disk, and on those of so many replicas. The reply is twice the number of
    /// replicas, and 1 more if they are on the server's.
    Disks {
        /// Replicas.
        replicas: usize,
    },
    /// At so many replicas. The reply is the number of those that have stored them.
    Replicas(usize),
}

/// One order for a shard.
pub struct Job {
    /// The work.
    pub order: Order,
    /// The request that the reply answers, and the reply's destination.
    pub token: Token,
    /// Objects that a search of a tree gives at most.
    pub most_objects: usize,
    /// The hash of the command's key in its database, so that its shard does not compute it again;
    /// `None` without a key, or if the sender does not know it.
    pub hash: Option<KeyHash>,
}

impl Job {
    /// Executes an encoded command, which finds as many objects as there are.
    pub const fn execute(command: Vec<u8>, token: Token) -> Self {
        Self::new(Order::Execute(command), token)
    }

    /// An order that is about no key, and not about a search.
    pub const fn new(order: Order, token: Token) -> Self {
        Self { order, token, most_objects: usize::MAX, hash: None }
    }
}

/// Names the request that a reply answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// The shard whose thread has the connection.
    pub home: usize,
    /// Connection slot there.
    pub connection: usize,
    /// The connection's serial number within its slot.
    pub serial: u64,
    /// The request's number.
    pub request: u64,
    /// The part of the request.
    pub part: usize,
    /// The shard that is asked first.
    pub shard: usize,
}

/// A reply that owns its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedReply {
    /// How it went.
    pub status: Status,
    /// The operation's number.
    pub number: i64,
    /// The value, if any.
    pub value: Option<Vec<u8>>,
    /// More of the value is sent when it is asked for ([`Order::Continue`]).
    pub has_more: bool,
}

impl OwnedReply {
    /// A reply with nothing but a status.
    pub const fn status(status: Status) -> Self {
        Self { status, number: 0, value: None, has_more: false }
    }

    /// Bytes of its value.
    pub fn value_bytes(&self) -> usize {
        self.value.as_ref().map_or(0, Vec::len)
    }
}

impl From<Reply<'_>> for OwnedReply {
    fn from(reply: Reply<'_>) -> Self {
        let value = reply.value.map(<[u8]>::to_vec);
        Self { status: reply.status, number: reply.number, value, has_more: false }
    }
}
