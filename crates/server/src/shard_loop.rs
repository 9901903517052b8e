//! The loop of one shard thread: detect, execute, reply, next (H3).
//!
//! It looks at its jobs and at each client's rings in turn (round-robin,
//! [`RingClients`]). Without work it polls on, polls for a while, or sleeps in the kernel at once, as `wake`
//! says. It sleeps only after the scan that the wake-up protocol asks for.

use crate::config::Wake;
use crate::jobs::Message;
use crate::large_jobs::LargeJobs;
use crate::ring_clients::{RingClients, Served};
use crate::ring_session::{RingSession, SessionError};
use crate::shared::{Shared, count};
use remora_arena::NoJournal;
use remora_engine::{Now, Shard};
use remora_fabric::shm::Sleeper;
use remora_layout::limits::{JOBS_PER_TURN, TOUCH_HINTS};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Hybrid mode polls this long after the last work: longer than a client on a
/// ring needs between two requests of a busy phase, and short enough not to
/// take the core from a client that has other things to do.
const HYBRID_SPIN: Duration = Duration::from_micros(20);
/// How often an awake shard publishes its counts and sweeps.
const TICK: Duration = Duration::from_millis(10);
/// How often a sleeping shard wakes while leases, expiries or idle limits want
/// it.
const SLEEPING_TICK: Duration = Duration::from_millis(100);
/// Empty polls between two looks at the clock.
const POLLS_PER_CLOCK: u32 = 64;

/// The state of one shard thread.
pub struct ShardLoop {
    shared: Arc<Shared>,
    number: usize,
    shard: Shard<NoJournal>,
    sleeper: Sleeper,
    clients: RingClients,
    large_jobs: LargeJobs,
    stopping: bool,
}

impl ShardLoop {
    /// A loop over a fresh shard.
    pub fn new(
        shared: Arc<Shared>,
        number: usize,
        shard: Shard<NoJournal>,
        sleeper: Sleeper,
    ) -> Self {
        let (clients, large_jobs) = (RingClients::new(), LargeJobs::default());
        Self { shared, number, shard, sleeper, clients, large_jobs, stopping: false }
    }

    /// Runs until a stop message has come and everything accepted is done.
    pub fn run(mut self) {
        let wake = self.shared.config.wake;
        let mut last_work = Instant::now();
        let mut last_tick = last_work;
        let mut empty_polls = 0u32;
        loop {
            if self.turn() {
                empty_polls = 0;
                last_work = Instant::now();
                if last_work - last_tick >= TICK {
                    last_tick = last_work;
                    self.tick(last_work);
                }
                continue;
            }
            if self.stopping {
                break;
            }
            if wake != Wake::Event {
                empty_polls += 1;
                std::hint::spin_loop();
                if !empty_polls.is_multiple_of(POLLS_PER_CLOCK) {
                    continue;
                }
                let now = Instant::now();
                self.clients.look_around(now, &mut self.sleeper);
                if now - last_tick >= TICK {
                    last_tick = now;
                    self.tick(now);
                }
                if wake == Wake::Poll || now - last_work < HYBRID_SPIN {
                    continue;
                }
            }
            self.sleep();
            last_work = Instant::now();
            if last_work - last_tick >= TICK {
                last_tick = last_work;
                self.tick(last_work);
            }
        }
        self.tick(Instant::now());
    }

    /// One look at everything. Whether there was any work. The clock is read
    /// only when there is some: an empty look costs a few loads.
    fn turn(&mut self) -> bool {
        let has_work = !self.handle().inbox.is_empty()
            || !self.large_jobs.is_empty()
            || self.shard.wants_release()
            || self.clients.has_work();
        if !has_work {
            return false;
        }
        let started = Instant::now();
        let now = self.shared.clock.at(started);
        self.clients.look_around(started, &mut self.sleeper);
        self.take_hints();
        let jobs = self.take_messages(now);
        self.large_jobs.turn(&mut self.shard, now);
        if self.shard.wants_release() {
            self.shard.release_some(now);
        }
        let served = jobs + self.serve_rings(now, started);
        let busy = started.elapsed().as_nanos() as u64;
        count(&self.handle().busy_ns, busy);
        if let Some(others) = served.checked_sub(1) {
            let for_others = busy as u128 * others as u128 / served as u128;
            count(&self.handle().waited_ns2, (busy as u128 * for_others) as u64);
        }
        true
    }

    fn handle(&self) -> &crate::shared::ShardHandle {
        &self.shared.shards[self.number]
    }

    /// Tells the shard what other threads have read, before it may evict.
    fn take_hints(&mut self) {
        let touched = &self.shared.shards[self.number].touched;
        for _ in 0..TOUCH_HINTS {
            let Some(id) = touched.pop() else { return };
            self.shard.hint_touched(id);
        }
    }

    /// Takes what other threads want. The number of jobs.
    fn take_messages(&mut self, now: Now) -> u64 {
        let mut jobs = 0;
        for _ in 0..JOBS_PER_TURN {
            let Some(message) = self.handle().inbox.pop() else { break };
            match message {
                Message::Job(job) => {
                    jobs += 1;
                    self.large_jobs.execute(&mut self.shard, job, now);
                }
                Message::Attach(session) => self.attach(*session),
                Message::Detach(number) => {
                    self.detach(now, |session| session.session == number);
                }
                Message::Durable(sequence) => self.shard.set_durable(sequence),
                Message::Stop => self.stopping = true,
            }
        }
        if jobs > 0 {
            count(&self.handle().jobs, jobs);
        }
        jobs
    }

    fn attach(&mut self, session: RingSession) {
        if let Err((session, error)) = self.clients.attach(session, &self.sleeper) {
            tracing::error!(%error, session = session.session, "cannot wait for a session");
            session.violated.store(true, Ordering::Release);
            self.shared.wake_control();
        }
    }

    fn detach(&mut self, now: Now, ends: impl Fn(&RingSession) -> bool) {
        self.clients.detach((&mut self.shard, now), &self.sleeper, ends);
    }

    /// Takes frames from the rings that have some. The number of clients that had
    /// any.
    fn serve_rings(&mut self, now: Now, at: Instant) -> u64 {
        let mut lost = Lost::default();
        let shard = (&mut self.shard, now, at);
        let served = self.clients.serve(shard, |session, error| lost.add(session, error));
        self.end_lost(lost, now);
        let Served { clients, frames, looks, rings } = served;
        if frames > 0 {
            let handle = self.handle();
            count(&handle.frames, frames);
            count(&handle.ring_turns, 1);
            count(&handle.clients_looked_at, looks);
            count(&handle.rings_looked_at, rings);
        }
        clients
    }

    /// Ends the sessions that were given up, if there are any.
    fn end_lost(&mut self, lost: Lost, now: Now) {
        if lost.any {
            count(&self.shared.counts.sessions_violated, lost.first);
            self.detach(now, |session| session.violated.load(Ordering::Relaxed));
            self.shared.wake_control();
        }
    }

    fn sleep(&mut self) {
        // Nothing will publish them while it sleeps.
        self.publish_stats();
        let (shared, clients) = (&self.shared, &self.clients);
        let wants_ticks = self.shard.wants_ticks() || clients.may_stall();
        let timeout = wants_ticks.then_some(SLEEPING_TICK);
        let inbox = &shared.shards[self.number].inbox;
        let before = self.sleeper.sleeps();
        self.sleeper.sleep(timeout, || !inbox.is_empty() || clients.has_work());
        self.clients.take_doorbells(&mut self.sleeper);
        count(&self.handle().sleeps, self.sleeper.sleeps() - before);
    }

    fn tick(&mut self, instant: Instant) {
        let now = self.shared.clock.at(instant);
        self.shard.tick(now);
        let mut lost = Lost::default();
        let shard = (&mut self.shard, now);
        self.clients.abandon_stalled(shard, |session, error| lost.add(session, error));
        self.end_lost(lost, now);
        self.publish_stats();
    }

    /// Shows the shard's counts to the other threads.
    fn publish_stats(&mut self) {
        let stats = self.shard.stats();
        let rung = self.clients.take_rung();
        count(&self.handle().doorbells, rung);
        let (parked, unparked) = (self.clients.parked(), self.clients.unparked());
        self.handle().clients_parked.store(parked as u64, Ordering::Relaxed);
        self.handle().clients_unparked.store(unparked as u64, Ordering::Relaxed);
        let held = self.clients.held_replies() + self.large_jobs.held_replies();
        self.handle().held_replies.store(held as u64, Ordering::Relaxed);
        if let Ok(mut published) = self.handle().stats.lock() {
            *published = stats;
        }
    }
}

/// Sessions that a shard has given up in one turn.
#[derive(Default)]
struct Lost {
    any: bool,
    /// Those that no other shard had given up before.
    first: u64,
}

impl Lost {
    fn add(&mut self, session: &RingSession, error: SessionError) {
        self.any = true;
        self.first += session.give_up(error) as u64;
    }
}
