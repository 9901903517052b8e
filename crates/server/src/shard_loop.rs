//! The loop of one shard's thread: detect, execute, reply, next (H3).
//!
//! The thread serves all input of its shard: the rings of sessions, mail from other shards'
//! threads, RESP connections of its own, whose commands it executes in place, and connections of
//! sessions over TCP and RDMA, by its agent. It waits for all of them in one place.
//!
//! Invariants:
//! * a turn is bounded in each of its parts, and serves each ring, connection and
//!   job in turn (round-robin);
//! * requests that the agent has received are executed in the same turn;
//! * a thread that is busy looks at its sockets every few turns;
//! * it sleeps only after the scan that the wake-up protocol asks for;
//! * mail leaves once a turn for each receiver, however much it carries.

mod ring_waits;

use crate::accept::ACCEPTS_PER_TURN;
use crate::agent::{Agent, FIRST_TOKEN};
use crate::balance::Balance;
use crate::client_stream::ClientStream;
use crate::config::Wake;
use crate::following::RoleStep;
use crate::inbox::{Handed, HandedMongo, Mail, Message};
use crate::mail_queues::receive;
use crate::mongo::MongoThread;
use crate::plans::Asker;
use crate::polling::Polling;
use crate::resp::{RespConnections, RespExecutor, ShardHost};
use crate::ring_clients::{RingClients, Served};
use crate::ring_session::{RingSession, SessionError};
use crate::ring_waits::RingWaits;
use crate::shared::Shared;
use crate::thread_counts::{count, count_alone};
use crate::ticker::{Alarm, Ticker};
use remora_arena::NoJournal;
use remora_engine::{Now, Shard};
use remora_fabric::shm::Sleeper;
use remora_frontend::Executor;
use remora_layout::limits::{AGENT_POLL_REQUESTS, TOUCH_HINTS, TURNS_PER_SOCKET_LOOK};
use remora_protocol::message::Status;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// How often an awake shard publishes its counts and sweeps.
const TICK: Duration = Duration::from_millis(10);
/// How often a sleeping shard wakes while leases, expiries or idle limits want
/// it.
const SLEEPING_TICK: Duration = Duration::from_millis(100);
/// Empty polls between two looks at the clock.
const POLLS_PER_CLOCK: u32 = 64;
/// The same if sessions use TCP or RDMA: only the kernel knows about their data, and a look at the
/// clock includes one at the sockets.
const POLLS_PER_LOOK: u32 = 8;
/// How often the thread looks for stalled requests.
const IDLE_LOOK: Duration = Duration::from_secs(1);
/// How long a stopping server waits for replies to be taken.
const DRAIN: Duration = Duration::from_secs(2);

/// The state of one shard's thread.
pub struct ShardLoop {
    /// Executes the requests of RESP connections, and owns the shard.
    executor: RespExecutor<ShardHost>,
    connections: RespConnections<ClientStream>,
    /// Connections of MongoDB's protocol.
    mongo: MongoThread,
    sleeper: Sleeper,
    clients: RingClients,
    ring_waits: RingWaits,
    agent: Agent,
    polling: Polling,
    /// Turns since the sockets were looked at.
    turns: u32,
    ticker: Ticker,
    /// Wakes the thread for the end of a wait.
    alarm: Alarm,
    last_tick: Instant,
    last_idle_look: Instant,
    balance: Balance,
    /// The time until which clients may take replies, and the channel that reports that none is
    /// left.
    drains: Option<(Instant, Sender<()>)>,
    /// Replicas wait for more than the last turn could send.
    has_more_to_feed: bool,
    /// Changes became durable at the end of the last turn: replies that wait for them may leave.
    has_released: bool,
    stopping: bool,
    /// Until when a server that stops waits for another shard's part.
    part_until: Option<Instant>,
    /// Messages that wait until the shard is not held any more.
    later: VecDeque<Message>,
}

/// The outcome of one turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// There was nothing to do.
    Idle,
    /// There was, but nothing that makes it likely that polling pays.
    Worked,
    /// The turn found work that polling finds sooner than the kernel reports it, or little work
    /// that the kernel reported.
    Polled,
}

impl ShardLoop {
    /// A loop over a fresh shard.
    pub fn new(
        shared: Arc<Shared>,
        number: usize,
        shard: Shard<NoJournal>,
        sleeper: Sleeper,
    ) -> Self {
        let polling = Polling::new(shared.config.wake == Wake::Hybrid);
        let now = Instant::now();
        let balance = Balance::new(shared.clock.started(), now);
        let marked = Arc::clone(&shared.shards[number].rung);
        let ticker = Ticker::new(&sleeper, SLEEPING_TICK);
        let alarm = Alarm::new(&sleeper);
        Self {
            agent: Agent::new(Arc::clone(&shared), number),
            executor: RespExecutor::new(ShardHost::new(shared, number, shard)),
            connections: RespConnections::numbered_from(0),
            mongo: MongoThread::new(),
            sleeper,
            clients: RingClients::new(marked),
            ring_waits: RingWaits::new(number),
            polling,
            turns: 0,
            ticker,
            alarm,
            last_tick: now,
            last_idle_look: now,
            balance,
            drains: None,
            has_more_to_feed: false,
            has_released: false,
            stopping: false,
            part_until: None,
            later: VecDeque::new(),
        }
    }

    /// Runs until a stop message has come and everything accepted is done.
    pub fn run(mut self) {
        let polls_always = self.host().shared.config.wake == Wake::Poll;
        let mut empty_polls = 0u32;
        loop {
            let (did, now) = self.turn();
            if let Some(now) = now {
                empty_polls = 0;
                if did == Turn::Polled {
                    self.polling.worked(now);
                }
                self.look_at_clock(now);
                self.look_at_sockets(TURNS_PER_SOCKET_LOOK);
                continue;
            }
            if self.stopping {
                if !self.awaits_part() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            empty_polls += 1;
            if polls_always || self.polling.is_on() {
                std::hint::spin_loop();
                let pause = if self.agent.is_idle() { POLLS_PER_CLOCK } else { POLLS_PER_LOOK };
                if !empty_polls.is_multiple_of(pause) {
                    continue;
                }
                let now = Instant::now();
                self.clients.look_around(now, &mut self.sleeper);
                self.take_events();
                self.look_at_clock(now);
                if polls_always || self.polling.polls_on(now) {
                    self.look_at_sockets(0);
                    continue;
                }
            }
            self.sleep();
        }
        self.tick(Instant::now());
        self.ship_the_rest();
    }

    /// Hands all entries to the log's thread, which goes on until then. If the disk refuses them
    /// the server ends without them, and says so.
    fn ship_the_rest(&mut self) {
        let until = Instant::now() + DRAIN;
        while !self.host().has_shipped() && Instant::now() < until {
            self.executor.port_mut().ship_log();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the shard is held for a part of another one that may still come: a server that stops waits
    /// for it, so that no half of a change is left.
    fn awaits_part(&mut self) -> bool {
        if !self.host().is_held() {
            return false;
        }
        let until = *self.part_until.get_or_insert_with(|| Instant::now() + DRAIN);
        Instant::now() < until
    }

    fn host(&self) -> &ShardHost {
        self.executor.port()
    }

    /// Looks at everything once. It reads the clock only if there is some work: an empty look costs
    /// a few loads. Returns the outcome, and the time.
    fn turn(&mut self) -> (Turn, Option<Instant>) {
        let is_due = self.has_more_to_feed || std::mem::take(&mut self.has_released);
        let is_due = is_due || (!self.later.is_empty() && !self.host().is_held());
        let Self { connections, mongo, clients, agent, .. } = self;
        let are_idle = connections.are_idle() && mongo.are_idle();
        if !is_due && !has_work((self.executor.port(), are_idle), clients, agent) {
            return (Turn::Idle, None);
        }
        let host = self.executor.port_mut();
        host.handle().turn_view.begin_turn();
        let started = Instant::now();
        let now = begin_turn(host, started);
        self.clients.look_around(started, &mut self.sleeper);
        self.take_events();
        self.take_hints();
        self.take_messages(now);
        let moved = self.agent.turn(&self.sleeper);
        let mail = self.take_mail();
        let host = self.executor.port_mut();
        let jobs = host.execute_jobs();
        count_alone(&host.handle().jobs, jobs);
        if host.shard.wants_release() && !host.is_held() {
            host.shard.release_some(now);
        }
        let rings = self.serve_rings(now, started);
        let sleeper = &self.sleeper;
        let close = |gone: ClientStream| sleeper.forget(gone.as_fd());
        let served = self.connections.serve(&mut self.executor, close);
        let served = (served + self.mongo.serve(self.executor.port_mut(), close)) as u64;
        self.executor.port_mut().serve_waiters();
        self.answer_ring_waits();
        self.take_own_replies();
        self.run_plans();
        self.executor.port_mut().send_mail();
        self.executor.port_mut().snapshot_some();
        self.executor.port_mut().apply_some();
        self.executor.port_mut().ship_log();
        self.feed_replicas(now);
        // A connection whose requests are executed is counted once.
        let sessions = rings.clients.max(moved.connections);
        let ended = self.count_turn(started, jobs + sessions + served);
        let few = moved.frames > 0 && rings.frames <= AGENT_POLL_REQUESTS;
        let polled = mail || rings.polled || few;
        (if polled { Turn::Polled } else { Turn::Worked }, Some(ended))
    }

    /// Counts a turn's length, and the number of requests in it. Returns its end.
    fn count_turn(&self, started: Instant, served: u64) -> Instant {
        let ended = Instant::now();
        let busy = (ended - started).as_nanos() as u64;
        let handle = self.host().handle();
        count_alone(&handle.busy_ns, busy);
        if let Some(others) = served.checked_sub(1) {
            let for_others = busy as u128 * others as u128 / served as u128;
            count_alone(&handle.waited_ns2, (busy as u128 * for_others) as u64);
        }
        ended
    }

    /// Reports the reads of other threads to the shard, before it may evict.
    fn take_hints(&mut self) {
        let host = self.executor.port_mut();
        let touched = &host.shared.shards[host.number].touched;
        for _ in 0..TOUCH_HINTS {
            let Some(id) = touched.pop() else { return };
            host.shard.hint_touched(id);
        }
    }

    /// Takes messages from threads without a shard.
    fn take_messages(&mut self, now: Now) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(message) = self.next_message() else { return };
            match message {
                Message::Attach(session) => self.attach(*session),
                Message::Detach(number) => {
                    self.detach(now, |session| session.session == number);
                }
                Message::Serve(handed) => self.take_connection(*handed),
                Message::ServeMongo(handed) => self.take_mongo_connection(*handed),
                Message::Durable { durable, synced } => {
                    let host = self.executor.port_mut();
                    host.acknowledging.set_kept(&mut host.shard, durable);
                    host.set_synced(synced);
                    host.tell_parts();
                }
                Message::Parts => self.has_released |= self.executor.port_mut().look_at_parts(),
                Message::Ends(to) => {
                    let host = self.executor.port();
                    // It fails if the thread that asked has ended.
                    let _ = to.send((host.number, host.shard.last_sequence()));
                }
                Message::Snapshot(port) => self.executor.port_mut().begin_snapshot(port),
                Message::Apply(batch) => self.executor.port_mut().take_batch(batch),
                Message::Role(step) => self.take_role_step(step, now),
                Message::Requirement(requirement) => {
                    let host = self.executor.port_mut();
                    host.acknowledging.require(&mut host.shard, requirement);
                }
                Message::News => {
                    let sleeper = &self.sleeper;
                    let close = |gone: ClientStream| sleeper.forget(gone.as_fd());
                    self.connections.tell(&mut self.executor, close);
                    self.mongo.tell(self.executor.port_mut(), close);
                }
                Message::RoleAnswer(token, reply) => {
                    self.connections.take_reply(&mut self.executor, token, reply)
                }
                Message::Keeps(keeps) => self.executor.port_mut().shard.set_keeps(keeps),
                Message::Drain(done) => {
                    self.drains = Some((Instant::now() + DRAIN, done));
                    self.end_waits();
                    let sleeper = &self.sleeper;
                    let close = |gone: ClientStream| sleeper.forget(gone.as_fd());
                    self.connections.stop_reading(&mut self.executor, close);
                    self.mongo.stop_reading(self.executor.port_mut(), close);
                    self.end_drain(Instant::now());
                }
                Message::Stop => self.stopping = true,
            }
        }
    }

    /// The next message that may be taken now. While the shard is held, those that are about its changes
    /// wait, and the others go on.
    fn next_message(&mut self) -> Option<Message> {
        let is_held = self.host().is_held();
        if !is_held && let Some(message) = self.later.pop_front() {
            return Some(message);
        }
        // Bounded by the messages that are there.
        loop {
            let message = self.host().handle().inbox.pop()?;
            if !is_held || !message.waits_for_changes() {
                return Some(message);
            }
            self.later.push_back(message);
        }
    }

    /// The role of the server changes.
    fn take_role_step(&mut self, step: RoleStep, now: Now) {
        match step {
            RoleStep::Follow(barrier) => {
                self.give_up_pending(now);
                self.report_to_cluster();
                let host = self.executor.port_mut();
                host.begin_following();
                let refusal = host.shared.roles.refusal();
                self.clients.refuse_replicas(&mut host.shard, &refusal);
                barrier.pass(host.shard.last_epoch());
            }
            RoleStep::Lead { epoch, log_secret, tails, barrier } => {
                let host = self.executor.port_mut();
                host.shard.promote(epoch, log_secret).expect("the epoch is a new one");
                // Outside a cluster the next primary is not known: replicas copy.
                if host.shared.config.is_clustered() {
                    let tail = tails.get(host.number).cloned().unwrap_or_default();
                    host.shard.go_on_with_former_log(tail);
                }
                barrier.pass(epoch);
            }
        }
    }

    /// The server becomes a replica: no replica will store the changes that wait for that. Nobody gets
    /// an OK for them, nor a refusal, as they may lie at a replica: an error says that their fate is
    /// not known, or the session or connection ends.
    fn give_up_pending(&mut self, now: Now) {
        let host = self.executor.port_mut();
        host.large_jobs.give_up_waiting(&mut host.shard);
        host.plans.end_all(Status::TryAgain);
        let sleeper = &self.sleeper;
        let close = |gone: ClientStream| sleeper.forget(gone.as_fd());
        self.connections.end_holding(&mut self.executor, close);
        self.mongo.end_holding(self.executor.port_mut(), close);
        self.end_ring_waits();
        self.detach(now, RingSession::end_if_pending);
        self.host().shared.wake_control();
    }

    /// Ends the waits of the thread's clients for keys: the server stops.
    fn end_waits(&mut self) {
        let host = self.executor.port_mut();
        host.large_jobs.waits.end_all(Status::WaitEnded);
        host.serve_waiters();
        self.take_own_replies();
        self.end_ring_waits();
    }

    /// Ends the waits of sessions.
    fn end_ring_waits(&mut self) {
        let mut lost = Lost::default();
        let ShardHost { shard, now, .. } = self.executor.port_mut();
        let (ended, now) = (Status::WaitEnded, *now);
        self.clients.end_waits(shard, ended, |session, error| lost.add(session, error));
        self.end_lost(lost, now);
    }

    /// Sends sessions the answers to requests that have waited.
    #[inline]
    fn answer_ring_waits(&mut self) {
        let mut lost = Lost::default();
        let ShardHost { shard, now, .. } = self.executor.port_mut();
        let now = *now;
        self.clients.answer_waits(shard, |session, error| lost.add(session, error));
        self.end_lost(lost, now);
    }

    /// The time of the first wait for a key that ends by time, Unix ms.
    #[inline]
    fn next_deadline_ms(&self) -> Option<u64> {
        let of_connections = self.host().large_jobs.waits.next_deadline_ms();
        let of_sessions = self.clients.next_deadline_ms();
        of_connections.into_iter().chain(of_sessions).min()
    }

    /// Ends the waits for keys whose time is over.
    #[cold]
    fn time_out_waits(&mut self, instant: Instant) {
        let mut lost = Lost::default();
        let ShardHost { shard, shared, large_jobs, .. } = self.executor.port_mut();
        let now = shared.clock.at(instant);
        large_jobs.waits.time_out(now.unix_ms);
        self.clients.time_out_waits(shard, now, |session, error| lost.add(session, error));
        self.end_lost(lost, now);
    }

    /// Takes the jobs and replies of other shards' threads. Whether there were any.
    fn take_mail(&mut self) -> bool {
        let take = |own: &mut Self, mut mail: Mail| {
            mail.jobs.drain(..).for_each(|job| own.executor.port_mut().take(job));
            for (token, reply) in mail.replies.drain(..) {
                own.take_reply(token, reply);
            }
            own.executor.port_mut().keep(mail);
        };
        let ring = |own: &mut Self, from: usize| _ = own.host().shared.shards[from].inbox.ring();
        receive(self, |own| own.host().handle().inbox.mail(), take, ring)
    }

    /// Takes the replies of the thread's own shard that did not come at once.
    fn take_own_replies(&mut self) {
        while let Some((token, reply)) = self.executor.port_mut().pop_own_reply() {
            self.take_reply(token, reply);
        }
    }

    /// Takes the plans that sessions have asked for, gives all plans a turn, and answers those that have
    /// ended.
    #[inline]
    fn run_plans(&mut self) {
        let host = self.executor.port_mut();
        for (asker, plan) in self.clients.take_plans() {
            host.plans.begin(asker, plan);
        }
        if !host.plans.has_work() {
            return;
        }
        host.plan_turn();
        while let Some((asker, reply)) = self.executor.port_mut().plans.pop_ended() {
            match asker {
                Asker::Connection(token) => {
                    self.connections.take_reply(&mut self.executor, token, reply)
                }
                Asker::Session { place, session, id } => {
                    self.clients.end_plan((place, session, id), reply);
                }
            }
        }
        self.take_own_replies();
    }

    fn take_connection(&mut self, handed: Handed) {
        let Handed { stream, connection } = handed;
        let slot = self.connections.next_slot();
        if let Err(error) = self.sleeper.watch_stream(stream.as_fd(), slot as u64) {
            tracing::warn!(%error, "cannot watch a connection");
            self.host().handle().connections.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.connections.add(stream, connection);
        if self.drains.is_some() {
            let sleeper = &self.sleeper;
            self.connections
                .stop_reading_of(&mut self.executor, slot, |gone| sleeper.forget(gone.as_fd()));
        }
    }

    fn take_mongo_connection(&mut self, handed: HandedMongo) {
        let HandedMongo { stream, connection } = handed;
        let slot = self.mongo.connections().next_slot();
        if let Err(error) = self.sleeper.watch_stream(stream.as_fd(), slot as u64) {
            tracing::warn!(%error, "cannot watch a connection of MongoDB's protocol");
            self.host().handle().connections.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.mongo.add(stream, connection);
        if self.drains.is_some() {
            let sleeper = &self.sleeper;
            let close = |gone: ClientStream| sleeper.forget(gone.as_fd());
            self.mongo.stop_reading_of(self.executor.port_mut(), slot, close);
        }
    }

    fn attach(&mut self, mut session: RingSession) {
        let shared = &self.host().shared;
        let config = &shared.config;
        let backlog_bytes = config.replica_backlog_bytes as usize / shared.shards.len();
        session.feeds_by(config.replica_acks, backlog_bytes);
        if let Err((session, error)) = self.clients.attach(session, &self.sleeper) {
            tracing::error!(%error, session = session.session, "cannot wait for a session");
            session.violated.store(true, Ordering::Release);
            self.host().shared.wake_control();
        }
    }

    fn detach(&mut self, now: Now, ends: impl Fn(&RingSession) -> bool) {
        let host = self.executor.port_mut();
        self.clients.detach((&mut host.shard, now), &self.sleeper, ends);
        self.carry_out_wait_orders();
        let host = self.executor.port_mut();
        if !host.plans.is_empty() {
            let clients = &self.clients;
            host.plans.forget(|asker| match *asker {
                Asker::Connection(_) => false,
                Asker::Session { place, session, .. } => !clients.has(place, session),
            });
        }
    }

    /// Takes frames from the rings that have some.
    fn serve_rings(&mut self, now: Now, at: Instant) -> Served {
        if self.host().is_held() {
            return Served::default();
        }
        let mut lost = Lost::default();
        let shard = (&mut self.executor.port_mut().shard, now, at);
        let served = self.clients.serve(shard, |session, error| lost.add(session, error));
        self.end_lost(lost, now);
        self.carry_out_wait_orders();
        let Served { frames, looks, rings, .. } = served;
        if frames > 0 {
            let handle = self.host().handle();
            count_alone(&handle.frames, frames);
            count_alone(&handle.ring_turns, 1);
            count_alone(&handle.clients_looked_at, looks);
            count_alone(&handle.rings_looked_at, rings);
        }
        served
    }

    /// Sends the replicas what is new in the log.
    #[inline]
    fn feed_replicas(&mut self, now: Now) {
        let mut lost = Lost::default();
        let ShardHost { shard, shared, number, .. } = self.executor.port_mut();
        let copies = self.clients.may_copy();
        let mut feed =
            || self.clients.feed_replicas((shard, now), |session, error| lost.add(session, error));
        self.has_more_to_feed = match copies {
            true => shared.shards[*number].copy_turns.time(feed),
            false => feed(),
        };
        self.end_lost(lost, now);
        self.look_at_replicas();
        if self.has_released {
            self.release_replies(now);
        }
    }

    /// Changes became durable: sends the replies on rings that waited for them. Those of connections
    /// and jobs leave in the next turn.
    fn release_replies(&mut self, now: Now) {
        let mut lost = Lost::default();
        let shard = (&mut self.executor.port_mut().shard, now);
        self.clients.release(shard, |session, error| lost.add(session, error));
        self.end_lost(lost, now);
        // What has found no room is looked at again, as all work of clients is.
        let hold = self.connections.holds_replies() || self.mongo.holds_replies();
        self.has_released = hold || self.host().large_jobs.held_replies() > 0;
    }

    /// Lets replies leave that wait for what replicas have stored.
    #[inline]
    fn look_at_replicas(&mut self) {
        let ShardHost { acknowledging, shard, shared, .. } = self.executor.port_mut();
        if self.clients.has_replicas() || acknowledging.is_awake() {
            let replicas = self.clients.replica_positions();
            // How long a replica lags is no matter of the wall clock, which may be set.
            let now_ms = shared.clock.since_ms(Instant::now());
            let may_acknowledge = shared.view.has_lease();
            self.has_released |= acknowledging.look(shard, replicas, (now_ms, may_acknowledge));
            self.executor.port_mut().tell_parts();
            let ShardHost { shard, large_jobs, .. } = self.executor.port_mut();
            if large_jobs.awaits() {
                large_jobs.release_awaited(shard);
            }
        }
    }

    /// Ends the sessions that were given up, if there are any.
    fn end_lost(&mut self, lost: Lost, now: Now) {
        if lost.any {
            count(&self.host().shared.counts.sessions_violated, lost.first);
            self.detach(now, |session| session.violated.load(Ordering::Relaxed));
            self.host().shared.wake_control();
        }
    }

    /// Looks at the sockets without sleeping, after this many turns.
    fn look_at_sockets(&mut self, after_turns: u32) {
        self.turns += 1;
        let open = self.connections.open() + self.mongo.open();
        let has_sockets = open > 0 || !self.agent.is_idle();
        if self.turns > after_turns && has_sockets {
            self.turns = 0;
            self.host().handle().thread.socket_looks.add(1);
            self.sleeper.look();
            self.clients.take_doorbells(&mut self.sleeper);
            self.take_events();
        }
    }

    /// Whether leases, expiries or clients want a look now and then.
    fn wants_ticks(&self) -> bool {
        self.host().shard.wants_ticks()
            || self.host().has_snapshot()
            || self.host().large_jobs.awaits()
            || self.host().acknowledging.wants_ticks()
            || self.host().acknowledging.waits_for_parts()
            || self.clients.may_stall()
            || self.clients.feeds_wait()
            || self.host().awaits_tick()
            || !self.host().plans.is_empty()
    }

    fn sleep(&mut self) {
        // Nothing will publish them while it sleeps; a sleep that ends to do so would
        // cost more than they do, as a timer costs several microseconds here.
        self.publish_stats();
        let timeout = match (&self.drains, self.wants_ticks()) {
            (Some(_), _) => Some(TICK),
            // A limit would be a timer for each sleep: for each request that one follows.
            (None, true) if self.ticker.arm(Instant::now()) => None,
            (None, true) => Some(SLEEPING_TICK),
            (None, false) => self.waits_for_parts().then_some(IDLE_LOOK),
        };
        let timeout = self.arm_alarm(timeout);
        let (host, clients, agent) = (self.executor.port(), &self.clients, &self.agent);
        let before = self.sleeper.sleeps();
        let has_more = self.has_more_to_feed || self.has_released;
        self.sleeper.sleep(timeout, || {
            let are_idle = self.connections.are_idle() && self.mongo.are_idle();
            has_more || has_work((host, are_idle), clients, agent)
        });
        let sleeps = self.sleeper.sleeps() - before;
        count_alone(&host.handle().sleeps, sleeps);
        host.handle().thread.socket_looks.add(sleeps);
        if sleeps > 0 {
            self.turns = 0;
        }
        self.clients.take_doorbells(&mut self.sleeper);
        self.take_events();
        if timeout.is_some() || self.ticker.is_armed() || self.alarm.is_armed() {
            self.look_at_clock(Instant::now());
        }
    }

    /// Sets the alarm to the end of the first wait for a key that has one. Returns how long the
    /// thread may sleep.
    #[inline]
    fn arm_alarm(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        match self.next_deadline_ms() {
            None => {
                self.alarm.disarm();
                timeout
            }
            Some(until_ms) => {
                let instant = Instant::now();
                let now_ms = self.host().shared.clock.at(instant).unix_ms;
                let left = Duration::from_millis(until_ms.saturating_sub(now_ms));
                match self.alarm.arm(instant, (until_ms, left)) {
                    true => timeout,
                    false => Some(timeout.map_or(left, |timeout| timeout.min(left))),
                }
            }
        }
    }

    /// Notes the sockets' events.
    fn take_events(&mut self) {
        // Bounded by the events of sleeps and looks.
        while let Some(event) = self.sleeper.pop_stream_event() {
            if event.name >= FIRST_TOKEN {
                self.agent.on_event(event.name, event.is_end);
                continue;
            }
            let slot = event.name as usize;
            if MongoThread::has_slot(slot) {
                let connections = self.mongo.connections();
                if event.is_end {
                    connections.announce_end(slot, event.is_gone);
                }
                connections.stir(slot);
                continue;
            }
            if event.is_end {
                self.connections.announce_end(slot, event.is_gone);
            }
            self.connections.stir(slot);
        }
    }

    /// Does the work that is due every few milliseconds.
    fn look_at_clock(&mut self, instant: Instant) {
        if instant - self.last_tick >= TICK {
            self.tick(instant);
        }
        if self.next_deadline_ms().is_some() {
            self.time_out_waits(instant);
        }
        if self.waits_for_parts() && instant - self.last_idle_look >= IDLE_LOOK {
            self.last_idle_look = instant;
            let upload_idle_s = self.host().shared.config.upload_idle_s;
            let sleeper = &self.sleeper;
            let close = |gone: ClientStream| sleeper.forget(gone.as_fd());
            self.connections.count_idle(&mut self.executor, upload_idle_s, close);
            self.mongo.count_idle(self.executor.port_mut(), upload_idle_s, close);
        }
    }

    /// Whether connections wait for the rest of something long.
    fn waits_for_parts(&self) -> bool {
        self.connections.wait_for_parts() || self.mongo.wait_for_parts()
    }

    fn tick(&mut self, instant: Instant) {
        self.last_tick = instant;
        let host = self.executor.port_mut();
        let now = begin_turn(host, instant);
        if !host.is_held() {
            host.shard.tick(now);
        }
        if host.acknowledging.waits_for_parts() {
            self.has_released |= host.look_at_parts();
        }
        let host = self.executor.port_mut();
        host.large_jobs.time_out(&host.shard, now);
        host.plans.tick();
        let long: Vec<usize> = host.plans.long_ones().map(|of| of.connection).collect();
        long.into_iter().for_each(|slot| self.connections.stir(slot));
        let host = self.executor.port_mut();
        host.tick_applier();
        self.has_more_to_feed |= self.clients.feeds_wait();
        let host = self.executor.port_mut();
        host.ship_log();
        let mut lost = Lost::default();
        let shard = (&mut self.executor.port_mut().shard, now);
        self.clients.abandon_stalled(shard, |session, error| lost.add(session, error));
        self.end_lost(lost, now);
        self.look_at_replicas();
        self.end_drain(instant);
        self.give_away_connection(instant);
        if !self.wants_ticks() {
            self.ticker.disarm();
        }
        self.publish_stats();
    }

    /// Gives a connection to a thread that has much less to do, if this one is busy
    /// with several.
    fn give_away_connection(&mut self, instant: Instant) {
        let host = self.executor.port();
        let own = (host.number, host.handle().busy_ns.load(Ordering::Relaxed));
        let shares = host.shared.shards.iter().map(|shard| &shard.busy_share);
        let Some((to, share)) = self.balance.look(own, shares, instant) else { return };
        if self.drains.is_some() {
            return;
        }
        let Some((stream, connection)) = self.connections.take_out(self.executor.port(), share)
        else {
            return;
        };
        self.sleeper.forget(stream.as_fd());
        self.hand_over(to, Handed { stream, connection });
    }

    /// Hands a connection that was taken out to another thread, unless the server ends:
    /// that thread may have drained.
    fn hand_over(&mut self, to: usize, handed: Handed) {
        let host = self.executor.port();
        let (own, other) = (host.handle(), &host.shared.shards[to]);
        // The other thread drains after the server is marked as ending: either it still
        // counts this connection then, or the mark is seen here.
        other.connections.fetch_add(1, Ordering::SeqCst);
        if host.shared.is_stopping() {
            other.connections.fetch_sub(1, Ordering::SeqCst);
            own.connections.fetch_add(1, Ordering::SeqCst);
            return self.take_connection(handed);
        }
        own.thread.connections_moved.add(1);
        other.inbox.push(Message::Serve(Box::new(handed)));
    }

    /// Reports that no reply is left to be taken, or that the wait was long enough. The wait
    /// includes a connection that another thread is handing over.
    fn end_drain(&mut self, instant: Instant) {
        let left = self.host().handle().connections.load(Ordering::SeqCst);
        let is_over = |until: Instant| left == 0 || instant >= until;
        if self.drains.as_ref().is_some_and(|(until, _)| is_over(*until)) {
            self.drains = None;
        }
    }

    /// Shows the thread of the cluster where the shard's log is, and who has it.
    fn report_to_cluster(&self) {
        let host = self.executor.port();
        if let Ok(mut report) = host.handle().cluster.lock() {
            host.acknowledging.report(&host.shard, &mut report);
        }
    }

    /// Shows the shard's counts to the other threads.
    fn publish_stats(&mut self) {
        let rung = self.clients.take_rung();
        let (parked, unparked) = (self.clients.parked(), self.clients.unparked());
        let held = self.clients.held_replies();
        let host = self.host();
        let held = held + host.large_jobs.held_replies() + self.connections.held_replies();
        let held = held + self.mongo.held_replies();
        let handle = host.handle();
        count_alone(&handle.doorbells, rung);
        handle.clients_parked.store(parked as u64, Ordering::Relaxed);
        handle.clients_unparked.store(unparked as u64, Ordering::Relaxed);
        handle.held_replies.store(held as u64, Ordering::Relaxed);
        let waits = host.large_jobs.waits.len() + self.clients.waits();
        handle.blocked_clients.store(waits as u64, Ordering::Relaxed);
        let set = host.acknowledging.set();
        let replicated = set.replicated().min(host.shard.last_sequence());
        handle.in_sync_replicas.store(set.members() as u64, Ordering::Relaxed);
        handle.replicated.store(replicated, Ordering::Relaxed);
        handle.laggards.store(set.laggards(), Ordering::Relaxed);
        if let Ok(mut replicas) = handle.replicas.lock() {
            replicas.clear();
            replicas.extend(self.clients.replica_positions());
        }
        handle.found_bytes.store(host.large_jobs.found_bytes() as u64, Ordering::Relaxed);
        if let Ok(mut published) = handle.plans.lock() {
            *published = host.plans.counts();
        }
        if let Ok(mut published) = handle.stats.lock() {
            *published = host.shard.stats();
        }
        if host.shared.config.is_clustered() {
            self.report_to_cluster();
        }
    }
}

/// Whether a turn has work. Also the last scan before the thread sleeps: events that its looks at
/// the sockets have found since the last turn count, because the kernel reports them once.
#[inline]
fn has_work((host, are_idle): (&ShardHost, bool), clients: &RingClients, agent: &Agent) -> bool {
    !host.handle().inbox.is_empty()
        || host.has_jobs()
        || !are_idle
        || (host.shard.wants_release() && !host.is_held())
        || agent.has_work()
        || (clients.has_work() && !host.is_held())
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

fn begin_turn(host: &mut ShardHost, instant: Instant) -> Now {
    let clock = &host.shared.clock;
    let (now, since_ms) = (clock.at(instant), clock.since_ms(instant));
    host.begin_turn(now, since_ms)
}

#[cfg(test)]
mod tests;
