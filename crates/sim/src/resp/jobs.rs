//! A shard's side: the jobs that RESP hands it, executed as its loop does in
//! production, and the mail between the threads of a server.

use super::stream::lock;
use remora_engine::evict::Eviction;
use remora_engine::{Now, Shard};
use remora_fabric::sim::{SimJournal, SimWorld};
use remora_frontend::{Job, OwnedReply, Token};
use remora_layout::limits::{JOBS_PER_TURN, TOUCH_HINTS};
use remora_server::inbox::{Inbox, Mail, Outbox, Wake};
use remora_server::large_jobs::LargeJobs;
use remora_server::mail_queues::receive;
use remora_server::thread_counts::ThreadCounts;
use remora_server::touch_hints::TouchHints;
use remora_server::waits::Waits;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// Wakes one thread of the server, which is two tasks here: that of the shards, and
/// that of its RESP connections.
pub struct ThreadBell {
    world: SimWorld,
    shard: Mutex<Option<u64>>,
    connections: Mutex<Option<u64>>,
}

impl Wake for ThreadBell {
    fn ring(&self) -> bool {
        let sleeps = lock(&self.shard).is_some() || lock(&self.connections).is_some();
        self.world.wake(&self.shard);
        self.world.wake(&self.connections);
        sleeps
    }
}

/// The state of one shard's thread that other threads share.
pub struct Mailbox {
    /// Mail for it.
    pub inbox: Inbox<Arc<ThreadBell>>,
    /// Records that others have read.
    pub touched: TouchHints,
    bell: Arc<ThreadBell>,
}

impl Mailbox {
    /// The task that serves the connections sleeps, or does not.
    pub fn set_connections_waiting(&self, task: Option<u64>) {
        *lock(&self.bell.connections) = task;
    }
}

/// All threads of a server, by their shards.
pub type Mailboxes = Arc<[Mailbox]>;

/// The thread of one shard, its connections apart.
pub struct ShardJobs {
    number: usize,
    all: Mailboxes,
    /// Jobs of any thread's connections.
    queue: VecDeque<Job>,
    large: LargeJobs,
    outbox: Outbox,
    /// Replies for the thread's own connections.
    replies: VecDeque<(Token, OwnedReply)>,
    /// The shard is durable up to here, as far as the connections were told.
    durable: u64,
    counts: Rc<ThreadCounts>,
}

impl ShardJobs {
    /// The threads of a server with this many shards.
    pub fn of_server(world: &SimWorld, shards: usize, eviction: Eviction) -> Vec<Self> {
        let mailbox = |_| {
            let (shard, connections) = (Mutex::default(), Mutex::default());
            let bell = Arc::new(ThreadBell { world: world.clone(), shard, connections });
            let inbox = Inbox::new(shards, Arc::clone(&bell));
            Mailbox { inbox, touched: TouchHints::new(eviction), bell }
        };
        let all: Mailboxes = (0..shards).map(mailbox).collect();
        let jobs = |number| Self {
            number,
            all: Arc::clone(&all),
            queue: VecDeque::new(),
            large: LargeJobs::default(),
            outbox: Outbox::new(number, shards),
            replies: VecDeque::new(),
            durable: 0,
            counts: Rc::default(),
        };
        (0..shards).map(jobs).collect()
    }

    /// All threads of the server.
    pub fn mailboxes(&self) -> Mailboxes {
        Arc::clone(&self.all)
    }

    /// The thread's counters.
    pub fn counts(&self) -> Rc<ThreadCounts> {
        Rc::clone(&self.counts)
    }

    fn own(&self) -> &Mailbox {
        &self.all[self.number]
    }

    /// The jobs under way, for the commands that the thread's own connections execute at once.
    pub fn large(&mut self) -> &mut LargeJobs {
        &mut self.large
    }

    /// Whether there is anything to do.
    pub fn has_work(&self) -> bool {
        !self.own().inbox.is_empty()
            || !self.queue.is_empty()
            || self.large.has_work()
            || self.large.has_replies()
            || self.outbox.may_send(|to| &self.all[to].inbox)
    }

    /// A connection of the thread hands a job to a shard.
    pub fn hand(&mut self, to: usize, job: Job) {
        if to == self.number {
            self.queue.push_back(job);
            self.own().bell.ring();
        } else {
            self.outbox.add_job(to, job);
        }
    }

    /// Whether there is a reply for a connection of the thread.
    pub fn has_reply(&self) -> bool {
        !self.replies.is_empty() || !self.own().inbox.is_empty()
    }

    /// The next reply for a connection of the thread.
    pub fn pop_reply(&mut self) -> Option<(Token, OwnedReply)> {
        self.replies.pop_front()
    }

    /// Takes the jobs and replies of other shards' threads.
    pub fn take_mail(&mut self) {
        let take = |own: &mut Self, mail: Mail| {
            own.queue.extend(mail.jobs);
            own.replies.extend(mail.replies);
        };
        let ring = |own: &mut Self, from: usize| _ = own.all[from].inbox.ring();
        if receive(self, |own| own.own().inbox.mail(), take, ring) {
            // Both tasks are the one thread.
            self.own().bell.ring();
        }
    }

    /// The end of a turn.
    pub fn send_mail(&mut self) {
        let Self { all, outbox, counts, .. } = self;
        outbox.send(|to| &all[to].inbox, counts);
    }

    /// Whether the shard is held for a change of two shards: it executes no commands.
    pub fn is_held(&self) -> bool {
        self.large.joint.is_held()
    }

    /// One turn of the shard. Whether there was anything to do.
    pub fn turn(&mut self, shard: &mut Shard<SimJournal>, now: Now) -> bool {
        let worked = self.has_work() || (shard.has_waiters_due() && !self.is_held());
        if shard.durable_sequence() > self.durable {
            self.durable = shard.durable_sequence();
            // The thread's connections may hold replies.
            self.own().bell.ring();
        }
        let hints = std::iter::from_fn(|| self.own().touched.pop());
        hints.take(TOUCH_HINTS).for_each(|id| shard.hint_touched(id));
        self.take_mail();
        for _ in 0..JOBS_PER_TURN {
            let Some(job) = self.queue.pop_front() else { break };
            self.large.execute(shard, job, now);
        }
        self.large.turn(shard, now);
        self.hand_waits();
        while let Some((token, reply)) = self.large.pop_reply() {
            if token.home == self.number {
                self.replies.push_back((token, reply));
                self.own().bell.ring();
            } else {
                self.outbox.add_reply(token, reply);
            }
        }
        if worked {
            self.send_mail();
        }
        worked
    }

    /// The requests of the thread's connections that wait for keys.
    pub fn with_waits<R>(&mut self, act: impl FnOnce(&mut Waits) -> R) -> R {
        let done = act(&mut self.large.waits);
        self.hand_waits();
        if self.large.waits.has_output() {
            // The shard's task takes the replies.
            self.own().bell.ring();
        }
        done
    }

    fn hand_waits(&mut self) {
        while let Some((shard, job)) = self.large.waits.pop_job() {
            self.hand(shard, job);
        }
        while let Some((shard, job)) = self.large.joint.pop_job() {
            self.hand(shard, job);
        }
        // No world has changes of two shards whose durability matters.
        self.large.joint.take_made();
    }

    /// Whether the request of a connection waits at all of its shards.
    pub fn has_parked(&self, serial: u64) -> bool {
        self.large.waits.has_parked(serial)
    }

    /// The shard has something to do.
    pub fn wake(&self) {
        self.own().bell.ring();
    }

    /// Arriving data for the thread wakes this task.
    pub fn set_waiting(&self, task: Option<u64>) {
        *lock(&self.own().bell.shard) = task;
    }
}
