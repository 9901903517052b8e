//! A shard's side: the jobs that RESP hands it, executed as its loop does in
//! production.

use super::stream::lock;
use remora_engine::evict::Eviction;
use remora_engine::{Now, Shard};
use remora_fabric::sim::{SimJournal, SimWorld};
use remora_layout::limits::{JOBS_PER_TURN, TOUCH_HINTS};
use remora_server::jobs::{Job, OwnedReply, Token};
use remora_server::large_jobs::LargeJobs;
use remora_server::touch_hints::TouchHints;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// What reaches one shard's thread: jobs for the shard, and replies for the RESP
/// connections of the thread.
pub struct Inbox {
    world: SimWorld,
    queue: Mutex<VecDeque<Job>>,
    replies: Mutex<VecDeque<(Token, OwnedReply)>>,
    /// The task that serves the connections, if it sleeps.
    pub connections: Mutex<Option<u64>>,
    /// Records that they have read.
    pub touched: TouchHints,
    /// The shard's task, if it sleeps.
    waiting: Mutex<Option<u64>>,
}

impl Inbox {
    /// Hands it a job.
    pub fn push(&self, job: Job) {
        lock(&self.queue).push_back(job);
        self.world.wake(&self.waiting);
    }

    /// Brings a reply for a connection.
    pub fn reply(&self, token: Token, reply: OwnedReply) {
        lock(&self.replies).push_back((token, reply));
        self.world.wake(&self.connections);
    }

    /// The next reply for a connection.
    pub fn pop_reply(&self) -> Option<(Token, OwnedReply)> {
        lock(&self.replies).pop_front()
    }

    /// Whether there is none.
    pub fn has_reply(&self) -> bool {
        !lock(&self.replies).is_empty()
    }
}

/// The jobs of one shard.
pub struct ShardJobs {
    inbox: Arc<Inbox>,
    large: LargeJobs,
}

impl ShardJobs {
    /// None yet.
    pub fn new(world: &SimWorld, eviction: Eviction) -> Self {
        let inbox = Inbox {
            world: world.clone(),
            queue: Mutex::default(),
            replies: Mutex::default(),
            connections: Mutex::default(),
            touched: TouchHints::new(eviction),
            waiting: Mutex::default(),
        };
        Self { inbox: Arc::new(inbox), large: LargeJobs::default() }
    }

    /// Where jobs are handed in.
    pub fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }

    /// The jobs under way, for what the thread's own connections execute at once.
    pub fn large(&mut self) -> &mut LargeJobs {
        &mut self.large
    }

    /// Whether there is anything to do.
    pub fn has_work(&self) -> bool {
        !lock(&self.inbox.queue).is_empty() || self.large.has_work() || self.large.has_replies()
    }

    /// The next reply that is to go to the connections of a thread.
    pub fn pop_reply(&mut self) -> Option<(Token, OwnedReply)> {
        self.large.pop_reply()
    }

    /// One turn of the shard. Whether there was anything to do.
    pub fn turn(&mut self, shard: &mut Shard<SimJournal>, now: Now) -> bool {
        let worked = self.has_work();
        let hints = std::iter::from_fn(|| self.inbox.touched.pop());
        hints.take(TOUCH_HINTS).for_each(|id| shard.hint_touched(id));
        for _ in 0..JOBS_PER_TURN {
            let Some(job) = lock(&self.inbox.queue).pop_front() else { break };
            self.large.execute(shard, job, now);
        }
        self.large.turn(shard, now);
        worked
    }

    /// This task is woken by the next job.
    pub fn set_waiting(&self, task: Option<u64>) {
        *lock(&self.inbox.waiting) = task;
    }
}
