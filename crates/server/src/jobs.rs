//! In-process messages to a shard, and their replies.
//!
//! Both use the same wake-up protocol as the rings: [`asleep`].

use crate::ring_session::RingSession;
use crossbeam_queue::SegQueue;
use remora_engine::Reply;
use remora_fabric::shm::{Bell, asleep};
use remora_layout::message::Status;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What other threads tell a shard.
pub enum Message {
    /// Execute this encoded command.
    Job(Job),
    /// A client's rings.
    Attach(Box<RingSession>),
    /// The session with this number has ended.
    Detach(u64),
    /// Finish what is there and end.
    Stop,
}

/// One command for a shard.
pub struct Job {
    /// The encoded command.
    pub command: Vec<u8>,
    /// Where the reply goes.
    pub reply_to: Arc<ReplyQueue>,
    /// What the reply answers.
    pub token: Token,
    /// Objects that a search of a tree gives at most.
    pub most_objects: usize,
}

/// Names the request that a reply answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// Connection slot.
    pub connection: usize,
    /// Which connection of that slot.
    pub serial: u64,
    /// Which of its requests.
    pub request: u64,
    /// Which part of the request.
    pub part: usize,
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
}

impl OwnedReply {
    /// A reply with nothing but a status.
    pub const fn status(status: Status) -> Self {
        Self { status, number: 0, value: None }
    }
}

impl From<Reply<'_>> for OwnedReply {
    fn from(reply: Reply<'_>) -> Self {
        Self { status: reply.status, number: reply.number, value: reply.value.map(<[u8]>::to_vec) }
    }
}

/// A shard's inbox.
pub struct Inbox {
    queue: SegQueue<Message>,
    bell: Bell,
}

impl Inbox {
    /// An inbox whose shard is woken by `bell`.
    pub fn new(bell: Bell) -> Self {
        Self { queue: SegQueue::new(), bell }
    }

    /// Tells the shard something.
    pub fn push(&self, message: Message) {
        self.queue.push(message);
        self.bell.ring();
    }

    /// Wakes the shard if it sleeps: somebody wrote into its rings.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// The next message.
    pub fn pop(&self) -> Option<Message> {
        self.queue.pop()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Replies on their way back to a thread that may sleep.
pub struct ReplyQueue {
    queue: SegQueue<(Token, OwnedReply)>,
    asleep: AtomicU64,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl ReplyQueue {
    /// A queue whose reader `wake` wakes.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { queue: SegQueue::new(), asleep: AtomicU64::new(0), wake: Box::new(wake) }
    }

    /// Sends a reply back.
    pub fn push(&self, token: Token, reply: OwnedReply) {
        self.queue.push((token, reply));
        if asleep::must_signal(&self.asleep) {
            self.wake();
        }
    }

    /// Wakes the reader in any case.
    pub fn wake(&self) {
        (self.wake)();
    }

    /// The next reply.
    pub fn pop(&self) -> Option<(Token, OwnedReply)> {
        self.queue.pop()
    }

    /// The reader is about to sleep; false if it must not.
    pub fn may_sleep(&self) -> bool {
        asleep::announce(&self.asleep);
        self.queue.is_empty()
    }

    /// The reader is awake.
    pub fn awake(&self) {
        asleep::awake(&self.asleep);
    }
}
