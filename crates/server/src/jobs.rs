//! In-process messages to a shard, and their replies.
//!
//! Both use the same wake-up protocol as the rings: [`asleep`].

use crate::ring_session::RingSession;
use crossbeam_queue::SegQueue;
use remora_engine::Reply;
use remora_fabric::shm::{Bell, asleep};
use remora_layout::message::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What other threads tell a shard.
pub enum Message {
    /// Execute this encoded command.
    Job(Job),
    /// A client's rings.
    Attach(Box<RingSession>),
    /// The session with this number has ended.
    Detach(u64),
    /// Changes up to this sequence are durable.
    Durable(u64),
    /// Finish what is there and end.
    Stop,
}

/// What a shard is to do for a connection.
pub enum Order {
    /// Execute this encoded command.
    Execute(Vec<u8>),
    /// Send the next piece of the reply to the command with the job's token.
    Continue,
    /// Send no more of it.
    Abandon,
}

/// One order for a shard.
pub struct Job {
    /// What to do.
    pub order: Order,
    /// Where the reply goes.
    pub reply_to: Arc<ReplyQueue>,
    /// What the reply answers.
    pub token: Token,
    /// Objects that a search of a tree gives at most.
    pub most_objects: usize,
}

impl Job {
    /// Executes an encoded command, which finds as many objects as there are.
    pub fn execute(command: Vec<u8>, reply_to: Arc<ReplyQueue>, token: Token) -> Self {
        Self { order: Order::Execute(command), reply_to, token, most_objects: usize::MAX }
    }
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
}

impl From<Reply<'_>> for OwnedReply {
    fn from(reply: Reply<'_>) -> Self {
        let value = reply.value.map(<[u8]>::to_vec);
        Self { status: reply.status, number: reply.number, value, has_more: false }
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

    /// Wakes the shard if it sleeps: somebody wrote into its rings. Whether it
    /// had to be signalled.
    pub fn ring(&self) -> bool {
        self.bell.ring()
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
        if asleep::must_signal(|| self.asleep.load(Ordering::Relaxed)) {
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
