//! A shard's side: the jobs that RESP hands it, executed as its loop does in
//! production.

use super::stream::lock;
use remora_engine::evict::Eviction;
use remora_engine::{Now, Shard};
use remora_fabric::sim::{SimJournal, SimWorld};
use remora_layout::limits::{JOBS_PER_TURN, TOUCH_HINTS};
use remora_server::jobs::Job;
use remora_server::large_jobs::LargeJobs;
use remora_server::touch_hints::TouchHints;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// What other threads of a server tell one shard.
pub struct Inbox {
    world: SimWorld,
    queue: Mutex<VecDeque<Job>>,
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
            touched: TouchHints::new(eviction),
            waiting: Mutex::default(),
        };
        Self { inbox: Arc::new(inbox), large: LargeJobs::default() }
    }

    /// Where jobs are handed in.
    pub fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }

    /// Whether there is anything to do.
    pub fn has_work(&self) -> bool {
        !lock(&self.inbox.queue).is_empty() || !self.large.is_empty()
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
