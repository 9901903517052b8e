//! The pipelined shard (HydraDB 6.2.1 and Figure 5a, H4): two threads detect
//! and decode, two execute and reply. They share one store under a lock, and
//! messages go from the first to the second by a queue.
//!
//! Requests of one connection may be answered out of order, because two
//! threads take from the queue. A client knows the replies by their ids.

use super::super::form::{DISPATCHERS, WORKERS};
use super::connection::{AcceptQueue, Conversation, Outgoing};
use super::rest::{HYBRID_SPIN, POLLS_PER_CLOCK, Rest, WaitMode};
use super::threads::{Pins, spawn};
use super::work::{DecodedRequest, MESSAGES_PER_TURN, Store};
use remora_command_line::Wake;
use remora_layout::hash::KeyHash;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use zerocopy::IntoBytes;

/// Messages in the queue beyond which none is taken from clients: more than
/// all clients of a bench have outstanding.
const MAX_HANDED_OVER: usize = 1 << 18;

/// The way back, shared by the threads that reply.
type WayBack = Arc<Mutex<Outgoing>>;

/// A message that was detected and decoded.
struct Job {
    message: Vec<u8>,
    hash: KeyHash,
    way_back: WayBack,
}

/// The queue between the two kinds of threads.
#[derive(Default)]
struct HandOver {
    jobs: Mutex<VecDeque<Job>>,
    /// The number of jobs, readable without the lock.
    count: AtomicUsize,
    came: Condvar,
}

/// Starts the threads; gives the accept_queues of those that take messages.
pub fn start(
    number: usize,
    store: Store,
    rests: [Rest; DISPATCHERS],
    pins: &mut Pins,
) -> anyhow::Result<Vec<Arc<AcceptQueue>>> {
    let hash_seed = store.hash_seed;
    let wait_mode = rests[0].wait_mode();
    let queue = Arc::new(HandOver::default());
    let mut accept_queues = Vec::with_capacity(DISPATCHERS);
    for (at, rest) in rests.into_iter().enumerate() {
        let accept_queue = AcceptQueue::new()?;
        rest.watch(accept_queue.as_fd())?;
        accept_queues.push(Arc::clone(&accept_queue));
        let queue = Arc::clone(&queue);
        let dispatch = move || dispatch(&queue, &accept_queue, rest, hash_seed);
        spawn(format!("dispatch-{number}-{at}"), pins.next(), dispatch)?;
    }
    let store = Arc::new(Mutex::new(store));
    for at in 0..WORKERS {
        let (queue, store) = (Arc::clone(&queue), Arc::clone(&store));
        let execute = move || execute(&queue, &store, wait_mode);
        spawn(format!("execute-{number}-{at}"), pins.next(), execute)?;
    }
    Ok(accept_queues)
}

fn dispatch(queue: &HandOver, accept_queue: &AcceptQueue, mut rest: Rest, hash_seed: u64) {
    rest.begin();
    let mut conversations: Vec<Conversation<WayBack>> = Vec::new();
    let mut message = Vec::new();
    loop {
        if accept_queue.is_open() {
            accept_queue.pass(&mut conversations, &rest, |outgoing| Arc::new(Mutex::new(outgoing)));
        }
        if !conversations.iter().any(Conversation::has_message) {
            rest.wait(|| {
                accept_queue.is_open() || conversations.iter().any(Conversation::has_message)
            });
            continue;
        }
        for conversation in &mut conversations {
            let room = MAX_HANDED_OVER.saturating_sub(queue.count.load(Ordering::Relaxed));
            let most = room.min(MESSAGES_PER_TURN);
            conversation.take_turn(most, &mut message, |message, incoming, way_back| {
                let asked = DecodedRequest::decode(message, |key| KeyHash::of(key, hash_seed));
                let hash = asked.hash();
                // The queue holds a copy: the place is free for the next.
                incoming.release()?;
                let message = std::mem::take(message);
                queue.push(Job { message, hash, way_back: Arc::clone(way_back) });
                Ok(())
            });
        }
        rest.worked();
    }
}

fn execute(queue: &HandOver, store: &Mutex<Store>, wait_mode: WaitMode) {
    let mut value = Vec::new();
    loop {
        let job = queue.wait(wait_mode);
        let header = {
            let mut store = lock(store);
            let now = store.clock.now();
            store.tick(now);
            // Decoded again to borrow from it, which costs some nanoseconds;
            // the hash, which costs more, comes along.
            let (header, found) =
                store.execute(DecodedRequest::decode(&job.message, |_| job.hash), now);
            // No thread may read the value once the lock is released.
            value.clear();
            value.extend_from_slice(found);
            header
        };
        lock(&job.way_back).send(&[header.as_bytes(), &value]);
    }
}

impl HandOver {
    fn push(&self, job: Job) {
        let mut jobs = lock(&self.jobs);
        jobs.push_back(job);
        self.count.store(jobs.len(), Ordering::Release);
        drop(jobs);
        // A system call only if a thread waits.
        self.came.notify_one();
    }

    fn pop(&self) -> Option<Job> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut jobs = lock(&self.jobs);
        self.take(&mut jobs)
    }

    fn take(&self, jobs: &mut VecDeque<Job>) -> Option<Job> {
        let job = jobs.pop_front();
        self.count.store(jobs.len(), Ordering::Release);
        job
    }

    /// The next job: polls for it, or sleeps, or one after the other.
    fn wait(&self, wait_mode: WaitMode) -> Job {
        if let Some(job) = self.poll(wait_mode) {
            return job;
        }
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(job) = self.take(&mut jobs) {
                return job;
            }
            jobs = self.came.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Polls for the next job, until it is time to sleep.
    fn poll(&self, wait_mode: WaitMode) -> Option<Job> {
        if wait_mode.wake == Wake::Event {
            return None;
        }
        let began = Instant::now();
        // Ends with the process, if nothing comes and it is not to sleep.
        for empty_polls in 1u64.. {
            if let Some(job) = self.pop() {
                return Some(job);
            }
            std::hint::spin_loop();
            if empty_polls.is_multiple_of(POLLS_PER_CLOCK.into()) {
                if wait_mode.wake == Wake::Hybrid && began.elapsed() > HYBRID_SPIN {
                    break;
                }
                if wait_mode.is_crowded {
                    std::thread::yield_now();
                }
            }
        }
        None
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
