//! One replica of a world: the production worker that follows, over a simulated connection, and the
//! production appliers of its shards. Its process may stand still, be slow, and die.

use super::counts::ReplicaCounts;
use super::oracle::{Copied, Oracle};
use super::reading::{ReaderSessions, Shown};
use crate::clock::HostClock;
use crate::faults::Faults;
use crate::node::session::Granting;
use crate::node::{Node, NodeOptions, NodeTime};
use crate::tasks::Coroutines;
use remora_arena::Owner;
use remora_client_core::{Client, Options, Parts, Subscriber};
use remora_engine::{Digest, Now, Shard, ShardOptions};
use remora_fabric::sim::{SimJournal, SimWorld, Tasks};
use remora_layout::limits::{FOLLOW_AGAIN_MS, HEARTBEAT_MS, MAX_REGIONS};
use remora_layout::slot::SlotTable;
use remora_replica::{AskFor, FreshAt};
use remora_server::ReplicaReads;
use remora_server::following::{
    Applier, Batch, Body, Ended, Following, Host, Memory, StepBarrier, Worker,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MS: u64 = 1_000_000;
/// How much more memory a shard of a replica has: there may be fewer shards, and it takes room in
/// another order.
const ROOM: usize = 4;
/// Ticks between two comparisons of what has changed; their square, of what has not.
const SELDOM: u64 = 6;
/// Without faults a replica is as fresh as this, us.
const FRESH_US: u64 = 500_000;

/// What the worker has of its server.
#[derive(Clone)]
pub struct SimHost {
    inner: Rc<Inner>,
    following: Arc<Following>,
    memory: Memory,
}

/// Batches, and the incarnation and epoch of the primary that each is of.
type Inbox = VecDeque<((u64, u64), Arc<Batch>)>;

struct Inner {
    world: SimWorld,
    /// By shard, batches that it has not taken, and the primary that each is of.
    inboxes: RefCell<Vec<Inbox>>,
    /// The incarnation of the primary that is followed, and its epoch.
    incarnation: Cell<(u64, u64)>,
    /// The task of the shards, while it sleeps.
    waiting: Mutex<Option<u64>>,
    /// What readers see.
    shown: Shown,
    /// The number of the process.
    number: u64,
}

impl SimHost {
    fn new(world: &SimWorld, memory: Memory, (number, shown): (u64, Shown)) -> Self {
        let inner = Inner {
            world: world.clone(),
            inboxes: RefCell::new(vec![VecDeque::new(); memory.shards]),
            incarnation: Cell::new((0, 0)),
            waiting: Mutex::new(None),
            shown,
            number,
        };
        Self { inner: Rc::new(inner), following: following(memory.shards), memory }
    }

    /// The same server, which is to follow another primary.
    fn of_another(&self) -> Self {
        // Its readers' leases lapse before anything goes that they have seen.
        self.inner.shown.view.hide();
        Self { following: following(self.memory.shards), ..self.clone() }
    }
}

fn following(shards: usize) -> Arc<Following> {
    Arc::new(Following::new("/simulated".parse().expect("a path"), shards))
}

impl Host for SimHost {
    fn following(&self) -> &Arc<Following> {
        &self.following
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn resp_port(&self) -> u16 {
        0
    }

    fn incarnation(&self) -> u64 {
        self.inner.number
    }

    fn give(&self, shard: usize, batch: Arc<Batch>) {
        self.inner.inboxes.borrow_mut()[shard].push_back((self.inner.incarnation.get(), batch));
        self.inner.world.wake(&self.inner.waiting);
    }

    fn clock_ns(&self) -> u64 {
        self.inner.shown.view.now_ns()
    }

    fn unix_ms(&self) -> u64 {
        self.inner.shown.unix_ms()
    }

    fn learn_time(&self, time_ms: u64) {
        self.inner.shown.view.learn_time(time_ms);
    }

    fn show(&self, fresh: Option<FreshAt>) {
        self.inner.shown.view.show(fresh);
    }

    fn hide(&self) -> Duration {
        self.inner.shown.view.hide()
    }
}

/// Whether a shard gets all that was received, also what is not committed, until a copy begins. The replica
/// shows nothing then.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    /// All that it was given before is to come, copies among it, and then the rest and a barrier.
    UntilRest,
    UntilCopy,
}

impl Leaving {
    const fn take(&mut self, body: &Body) {
        *self = match (*self, body) {
            (Self::UntilRest, Body::StepBarrier(_)) => Self::UntilCopy,
            (Self::UntilCopy, Body::Clear { .. }) => Self::No,
            (of, _) => of,
        };
    }
}

/// One incarnation of its process.
pub struct Process {
    /// Its number, which is that of its incarnation too.
    pub number: u64,
    /// Began at this time of the server's clock, ns.
    pub began_ns: u64,
    /// Its shards.
    pub shards: Vec<Shard<SimJournal>>,
    /// One for each.
    pub journals: Vec<SimJournal>,
    appliers: Vec<Applier>,
    host: SimHost,
    slots: SlotTable,
    /// By shard, what it holds.
    pub copied: Vec<Copied>,
    readers: ReaderSessions,
    options: ShardOptions,
    /// Its session at the primary.
    session: Option<u64>,
    /// What its worker had taken out of its rings before its last link ended, by log of the primary: its
    /// epoch and the last entry.
    taken: Option<Vec<(u64, u64)>>,
    /// What is left of the worker, once it was told to stop.
    stopped: Option<Worker<SimHost>>,
    is_to_stop: bool,
    /// By shard.
    leaving: Vec<Leaving>,
    ticks: u64,
    /// What happened with the primaries before the present one.
    counts: ReplicaCounts,
    /// The sum of its shards' sequences when they were compared last.
    compared: u64,
}

impl Process {
    fn begin(
        world: &SimWorld,
        time: &NodeTime,
        number: u64,
        (options, shards, shown): (&NodeOptions, usize, Shown),
    ) -> Self {
        let arena_bytes = ROOM * options.arena_bytes;
        // In a world with little data any server has room for any other's.
        let memory = Memory { shards, arena_bytes: u64::MAX };
        let mut journals = Vec::new();
        let made = (0..shards).map(|at| {
            let journal = SimJournal::new();
            journals.push(journal.clone());
            let owner = Owner::heap(arena_bytes, journal);
            let region = MAX_REGIONS as u32 * number as u32 + at as u32;
            let options =
                ShardOptions { region, incarnation: number, log_shard: at as u32, ..options.shard };
            let mut shard = Shard::new(owner, options);
            shard.begin_following((at, shards), false);
            shard
        });
        Self {
            number,
            began_ns: time.monotonic_ns(),
            shards: made.collect(),
            journals,
            appliers: (0..shards).map(|_| Applier::default()).collect(),
            host: SimHost::new(world, memory, (number, shown)),
            readers: ReaderSessions::default(),
            options: options.shard,
            slots: SlotTable::even(shards),
            copied: vec![Copied::default(); shards],
            session: None,
            taken: None,
            stopped: None,
            is_to_stop: false,
            leaving: vec![Leaving::No; shards],
            ticks: 0,
            counts: ReplicaCounts::default(),
            compared: 0,
        }
    }

    /// Carries out some of what its shards were given, and serves its readers. Whether there was
    /// anything.
    fn turn(&mut self, time: &NodeTime, oracle: &mut Oracle) -> bool {
        let (number, shards) = (self.number, self.shards.len());
        let worked = self.apply_some(time, |at, shard, copied| {
            oracle.look_at_positions((number, at, shards), shard, copied);
        });
        let of = (self.now(time), &self.host.inner.world);
        self.readers.turn(&mut self.shards, of, oracle) || worked
    }

    /// The shards' time.
    fn now(&self, time: &NodeTime) -> Now {
        let shown = &self.host.inner.shown;
        shown.turn_view.begin_turn();
        let unix_ms = shown.view.judging_ms(shown.unix_ms());
        Now { unix_ms, ..time.now(self.began_ns) }
    }

    fn apply_some(
        &mut self,
        time: &NodeTime,
        mut look: impl FnMut(usize, &Shard<SimJournal>, &mut Copied),
    ) -> bool {
        let now = self.now(time);
        let mut worked = false;
        for at in 0..self.shards.len() {
            let shard = &mut self.shards[at];
            if shard.wants_release() {
                shard.release_some(now);
                worked = true;
            }
            if self.appliers[at].is_empty() {
                let next = self.host.inner.inboxes.borrow_mut()[at].pop_front();
                let Some((incarnation, batch)) = next else { continue };
                self.leaving[at].take(&batch.body);
                self.copied[at].take(incarnation, &batch);
                self.appliers[at].take(batch);
            }
            if self.appliers[at].has_work() {
                self.appliers[at].turn((at, shard), &self.slots, now);
                shard.set_durable(shard.last_sequence());
                if self.leaving[at] == Leaving::No {
                    look(at, shard, &mut self.copied[at]);
                }
                worked = true;
            }
        }
        worked
    }

    fn counts(&self) -> ReplicaCounts {
        let following = &self.host.following;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut counts = ReplicaCounts {
            copies: load(&following.copies),
            resumes: load(&following.resumes),
            links: load(&following.links),
            ..ReplicaCounts::default()
        };
        counts += self.counts;
        counts
    }

    fn is_idle(&self) -> bool {
        self.appliers.iter().all(Applier::is_empty)
            && self.host.inner.inboxes.borrow().iter().all(VecDeque::is_empty)
    }

    /// The work that is due every few milliseconds.
    fn tick(&mut self, time: &NodeTime, oracle: &mut Oracle) {
        self.ticks += 1;
        let applied = self.shards.iter().map(Shard::last_sequence).sum();
        let is_new = self.ticks.is_multiple_of(SELDOM) && self.compared != applied;
        if is_new || self.ticks.is_multiple_of(SELDOM * SELDOM) {
            // Also where nothing came: nothing may expire.
            self.compared = applied;
            self.compare(oracle);
        }
        let now = self.now(time);
        self.appliers.iter_mut().for_each(|applier| applier.tick(now));
        self.shards.iter_mut().for_each(|shard| shard.tick(now));
        let (shown, of) = (&self.host.inner.shown, (self.number, self.options.epoch));
        self.readers.tick(&mut self.shards, now, shown, of);
        // After the heartbeats, as in production.
        shown.follow_clock();
    }

    /// Its readers' sessions end.
    fn end_readers(&mut self, time: &NodeTime) {
        let of = (self.now(time), &self.host.inner.world);
        self.readers.end_all(&mut self.shards, of);
    }

    /// Compares what its shards hold with what the logs make of it.
    pub fn compare(&self, oracle: &mut Oracle) {
        for (at, (shard, copied)) in self.shards.iter().zip(&self.copied).enumerate() {
            // A part of a batch may be applied: that is a state of the log too.
            oracle.compare((self.number, at, self.shards.len()), shard, copied);
        }
    }

    /// Whether it follows this incarnation, with nothing on its way to its shards.
    pub fn has_all_of(&self, incarnation: u64, last: &[u64]) -> bool {
        let mut shards = self.shards.iter().zip(&self.copied).enumerate();
        self.is_idle()
            && shards.all(|(at, (shard, copied))| {
                copied.has_all_of((at, self.shards.len()), incarnation, |log| {
                    shard.applied(log as u32) >= last[log]
                })
            })
    }
}

/// What the operator tells a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Nothing: it finds another primary at the address.
    GoOn,
    /// To follow another server.
    Another,
}

/// A primary that is gone.
pub struct Gone {
    /// Its incarnation; 0 if it was down already.
    pub incarnation: u64,
    /// Its epoch.
    pub epoch: u64,
    /// The number of its logs.
    pub logs: usize,
}

impl Gone {
    /// The last entry of each of its logs, of these epochs and entries; `None` if they are not of it.
    fn positions(&self, positions: &[(u64, u64)]) -> Option<Vec<u64>> {
        let is_of_it =
            positions.len() == self.logs && positions.iter().all(|of| of.0 == self.epoch);
        is_of_it.then(|| positions.iter().map(|of| of.1).collect())
    }
}

/// A place for a replica: one process after another.
pub struct Replica {
    world: SimWorld,
    time: NodeTime,
    clock: HostClock,
    monotonic: HostClock,
    shards: usize,
    turn_ns: u64,
    reads: ReplicaReads,
    /// Sessions that were granted to readers.
    sessions: u64,
    /// `None` while it is down.
    process: Option<Process>,
    /// Processes of this place that have begun.
    incarnations: u64,
    /// Its tasks.
    pub tasks: Vec<u64>,
    /// What happened to processes that are gone.
    counts: ReplicaCounts,
}

/// What a task of a replica works with.
#[derive(Clone)]
pub struct ReplicaTask {
    /// The replica.
    pub replica: Rc<RefCell<Replica>>,
    /// Its primary.
    pub node: Rc<RefCell<Node>>,
    /// The checker.
    pub oracle: Rc<RefCell<Oracle>>,
    /// The faults.
    pub faults: Rc<Faults>,
}

impl Replica {
    /// A place without a process. Its machine's clock as its primary sees it, and as its readers do.
    pub fn new(
        world: &SimWorld,
        time: NodeTime,
        (clock, monotonic): (HostClock, HostClock),
        (shards, turn_ns, reads): (usize, u64, ReplicaReads),
    ) -> Self {
        Self {
            world: world.clone(),
            time,
            clock,
            monotonic,
            shards,
            turn_ns,
            reads,
            sessions: 0,
            process: None,
            incarnations: 0,
            tasks: Vec::new(),
            counts: ReplicaCounts::default(),
        }
    }

    /// The process, which is gone from here.
    fn take_process(&mut self) -> Option<Process> {
        let mut process = self.process.take()?;
        process.end_readers(&self.time);
        self.counts += process.counts();
        Some(process)
    }

    /// What happened to its processes.
    pub fn counts(&self) -> ReplicaCounts {
        let mut counts = self.process.as_ref().map_or_else(ReplicaCounts::default, Process::counts);
        counts += self.counts;
        counts
    }
}

impl ReplicaTask {
    /// A process begins, with nothing.
    pub fn start(&self) {
        let (mut replica, mut node) = (self.replica.borrow_mut(), self.node.borrow_mut());
        if replica.process.is_none() {
            let number = node.new_number();
            let shown = Shown::new(&replica.monotonic, replica.reads);
            let of = (node.options(), replica.shards, shown);
            replica.process = Some(Process::begin(&replica.world, &replica.time, number, of));
            replica.incarnations += 1;
        }
    }

    /// The process dies. Whether there was one.
    pub fn crash(&self) -> bool {
        let Some(process) = self.replica.borrow_mut().take_process() else { return false };
        process.session.into_iter().for_each(|session| self.node.borrow_mut().cut(session));
        self.oracle.borrow_mut().forget(process.number);
        true
    }

    /// The worker is to stop, and to leave what it has.
    pub fn stop(&self) {
        self.with(|process| process.is_to_stop = true);
    }

    /// Whether it has, or there is none.
    pub fn has_stopped(&self) -> bool {
        self.with(|process| process.stopped.is_some()).unwrap_or(true)
    }

    /// It goes on, and follows the primary that is there now: by its place in the log, or as one that
    /// is told to follow another server.
    pub fn go_on(&self, order: Order) {
        self.with(|process| {
            process.is_to_stop = false;
            let is_another =
                order == Order::Another || process.leaving.iter().any(|of| *of != Leaving::No);
            if is_another && process.stopped.is_some() {
                process.counts = process.counts();
                process.host = process.host.of_another();
                process.stopped = Some(Worker::new(process.host.clone(), process.shards.len()));
            }
        });
    }

    /// It is told to copy its primary anew, as by RESYNC: it applies all that it has received, and then
    /// follows from nothing. Whether it has.
    pub fn resync(&self) -> bool {
        let Some(number) = self.with(|process| process.number) else { return false };
        let is_there = || self.with(|process| process.number == number).unwrap_or(false);
        // Another process at its place must not stop: no order lets it go on.
        while is_there() && !self.has_stopped() {
            self.stop();
            self.pause(MS);
        }
        let leases_ns = self.with(|process| process.host.hide().as_nanos() as u64).unwrap_or(0);
        // The replica's clock may be slow.
        self.pause(leases_ns * 10 / 9 + 1);
        let barrier = StepBarrier::new(self.replica.borrow().shards);
        let leaves = |process: &mut Process| {
            let worker = process.stopped.as_mut().filter(|_| process.number == number)?;
            process.leaving.fill(Leaving::UntilRest);
            worker.give_rest(&barrier);
            Some(())
        };
        if self.with(leaves).flatten().is_none() {
            // It has died meanwhile, or taken its primary's place, or goes on as it was told.
            return false;
        }
        while is_there() && barrier.wait(|| false).is_none() {
            self.pause(MS);
        }
        let has_left = self.with(|process| {
            process.compare(&mut self.oracle.borrow_mut());
            process.number == number && process.stopped.is_some()
        });
        if has_left == Some(true) {
            self.go_on(Order::Another);
        }
        has_left == Some(true)
    }

    /// Its primary has begun anew: as an order, or by a restart of the process.
    pub fn begin_anew(&self, order: Order) {
        if order == Order::GoOn {
            // It may have died meanwhile, and then it begins without this.
            if self.crash() {
                self.start();
            }
            return;
        }
        self.stop();
        while !self.has_stopped() {
            self.pause(MS);
            self.stop();
        }
        self.go_on(order);
    }

    fn with<T>(&self, with: impl FnOnce(&mut Process) -> T) -> Option<T> {
        self.replica.borrow_mut().process.as_mut().map(with)
    }

    /// What it has received of each log of a primary that is gone; `None` if it is not its replica,
    /// or a copy is under way.
    pub fn positions(&self, gone: &Gone) -> Option<Vec<u64>> {
        let positions = self.with(|process| process.stopped.as_mut()?.positions())??;
        gone.positions(&positions)
    }

    /// The same of what its worker had taken out of its rings, and said so, before its last link ended.
    pub fn taken(&self, gone: &Gone) -> Option<Vec<u64>> {
        gone.positions(&self.with(|process| process.taken.clone())??)
    }

    /// It takes the place of its primary. Gives the process, and the last entry of each log.
    pub fn succeed(&self) -> (Process, Vec<u64>) {
        let (mut process, time) = {
            let mut replica = self.replica.borrow_mut();
            (replica.take_process().expect("it has stopped"), replica.time.clone())
        };
        let mut worker = process.stopped.take().expect("it has stopped");
        let ends = worker.positions().expect("it has no copy under way");
        let ends = ends.into_iter().map(|(_, received)| received).collect();
        worker.give_rest(&StepBarrier::new(process.shards.len()));
        while process.apply_some(&time, |_, _, _| {}) {}
        assert!(process.is_idle(), "it has room for all that its primary had");
        (process, ends)
    }

    /// Whether it has all of this incarnation, up to these entries.
    pub fn has_all_of(&self, incarnation: u64, last: &[u64]) -> bool {
        self.with(|process| process.has_all_of(incarnation, last)).unwrap_or(false)
    }

    /// Whether it waits for an order to copy: its primary does not know any more what it had kept.
    pub fn waits_for_order(&self) -> bool {
        let says = |process: &mut Process| process.host.following.trouble();
        self.with(says).is_some_and(|trouble| trouble.contains("does not know any more"))
    }

    /// Grants a session to a reader, at the process of this number; `None` if there is none.
    pub fn connect_reader(&self, reader: &HostClock) -> Option<(u64, Parts)> {
        let replica = &mut *self.replica.borrow_mut();
        let process = replica.process.as_mut()?;
        replica.sessions += 1;
        let granting = Granting {
            incarnation: process.number,
            shards: &process.shards,
            journals: &process.journals,
            options: &process.options,
            pointers: &None,
            replica_acks: AskFor::default(),
            view: &process.host.inner.shown.turn_view,
        };
        let of = (replica.sessions, reader);
        Some((process.number, process.readers.connect(&replica.world, &granting, of)))
    }

    /// A reader has gone, whose session was at the process of this number.
    pub fn end_reader(&self, number: u64, session: u64) {
        let time = self.replica.borrow().time.clone();
        self.with(|process| {
            if process.number == number {
                let of = (process.now(&time), &process.host.inner.world);
                process.readers.end(&mut process.shards, of, session);
            }
        });
    }

    /// Whether it shows what it has, if it answers reads, and is about as fresh as its primary.
    pub fn is_fresh(&self) -> bool {
        let lag_us = self.with(|process| process.host.inner.shown.view.lag_us()).flatten();
        lag_us.is_some_and(|lag_us| lag_us < FRESH_US)
    }

    /// In words, for a failure.
    pub fn state(&self) -> String {
        let state = |process: &mut Process| {
            let applied: Vec<Vec<_>> = process
                .shards
                .iter()
                .map(|shard| (0..3).map(|log| shard.applied(log)).collect())
                .collect();
            let (idle, stops) = (process.is_idle(), process.is_to_stop);
            let trouble = process.host.following.trouble();
            let lag_us = process.host.inner.shown.view.lag_us();
            format!(
                "applied {applied:?}, idle {idle}, stops {stops}, {trouble:?}, lag {lag_us:?} us"
            )
        };
        self.with(state).unwrap_or("it is down".to_owned())
    }

    /// Compares what it has with what its primary has.
    pub fn compare_with(&self, node: &Node) {
        let mut oracle = self.oracle.borrow_mut();
        let sum = |shards: &[Shard<SimJournal>]| {
            shards.iter().fold(Digest::default(), |sum, shard| sum.with(shard.digest()))
        };
        self.with(|process| {
            process.compare(&mut oracle);
            if sum(&process.shards) != sum(node.shards()) {
                let seen = format!("replica {}", process.number);
                oracle.broken.push(("in the end a replica has what its primary has", seen));
            }
        });
    }

    /// Begins the tasks: that of the shards, and that of the worker.
    pub fn spawn(&self) {
        let world = self.replica.borrow().world.clone();
        let (shards, worker) = (self.clone(), self.clone());
        let tasks = vec![
            Coroutines::spawn(&world, move || shards.apply()),
            Coroutines::spawn(&world, move || worker.follow()),
        ];
        self.replica.borrow_mut().tasks = tasks;
    }

    /// The task that runs waits.
    pub fn pause(&self, ns: u64) {
        let (world, task) = (self.replica.borrow().world.clone(), current_task());
        self.faults.pause(&world, task, ns..=ns);
    }

    /// The shards' task, for ever.
    fn apply(&self) {
        let (world, time) = {
            let replica = self.replica.borrow();
            (replica.world.clone(), replica.time.clone())
        };
        let task = current_task();
        let mut next_tick_ns = 0;
        loop {
            let mut worked = false;
            let mut replica = self.replica.borrow_mut();
            let takes_ns = world.draw(|random| random.within(&(200..=replica.turn_ns)));
            if let Some(process) = &mut replica.process {
                if world.now_ns() >= next_tick_ns {
                    next_tick_ns = world.now_ns() + HEARTBEAT_MS * MS;
                    process.tick(&time, &mut self.oracle.borrow_mut());
                }
                process.readers.set_waiting(None);
                worked = process.turn(&time, &mut self.oracle.borrow_mut());
                if !worked {
                    process.readers.set_waiting(Some(task));
                    // The last look before it sleeps.
                    worked = process.readers.has_work();
                }
                let host = process.host.clone();
                *host.inner.waiting.lock().expect("one thread") = (!worked).then_some(task);
            }
            drop(replica);
            let sleeps_ns = if worked { takes_ns } else { HEARTBEAT_MS * MS };
            world.suspend_until(task, world.now_ns() + sleeps_ns);
        }
    }

    /// The worker's task, for ever: one process after another.
    fn follow(&self) {
        let mut lived = 0;
        let mut worker = None;
        loop {
            let incarnations = self.replica.borrow().incarnations;
            let host = self.replica.borrow().process.as_ref().map(|process| process.host.clone());
            let Some(host) = host else {
                self.pause(MS);
                continue;
            };
            if lived != incarnations {
                let shards = self.replica.borrow().shards;
                (lived, worker) = (incarnations, Some(Worker::new(host.clone(), shards)));
            }
            if worker.is_none() && !self.is_to_stop() {
                worker = self.with(|process| process.stopped.take()).flatten();
            }
            let Some(mut own) = worker.take() else {
                // It has stopped.
                self.pause(MS);
                continue;
            };
            self.follow_once(&host, &mut own, lived);
            worker = self.leave_if_told(own, lived);
            if let Some(worker) = &mut worker {
                worker.idle();
                self.pause(FOLLOW_AGAIN_MS * MS / 2);
            }
        }
    }

    /// Whether the process of this task is gone.
    fn is_gone(&self, lived: u64) -> bool {
        let replica = self.replica.borrow();
        replica.incarnations != lived || replica.process.is_none()
    }

    fn is_to_stop(&self) -> bool {
        self.replica.borrow().process.as_ref().is_some_and(|process| process.is_to_stop)
    }

    /// Leaves the worker to the operator who has told it to stop.
    fn leave_if_told(&self, worker: Worker<SimHost>, lived: u64) -> Option<Worker<SimHost>> {
        if self.is_gone(lived) || !self.is_to_stop() {
            return Some(worker);
        }
        let mut replica = self.replica.borrow_mut();
        replica.process.as_mut().expect("looked at above").stopped = Some(worker);
        None
    }

    /// Follows over one link, until that ends.
    fn follow_once(&self, host: &SimHost, worker: &mut Worker<SimHost>, lived: u64) {
        if self.is_to_stop() {
            return;
        }
        let clock = self.replica.borrow().clock.clone();
        let Some(parts) = self.node.borrow_mut().connect(&clock) else { return };
        let (session, incarnation) = (parts.hello.session.get(), parts.hello.incarnation.get());
        let epoch = parts.hello.epoch.get();
        let client = Client::over(parts, &Options::default()).expect("no process forks here");
        let mut link = Subscriber::of(&client);
        host.inner.incarnation.set((incarnation, epoch));
        if let Some(process) = &mut self.replica.borrow_mut().process {
            process.session = Some(session);
        }
        if let Err(Ended::Failed(why)) = self.serve(worker, &mut link, lived) {
            host.following.set_trouble(&why);
        }
        host.following.is_up.store(false, Ordering::Relaxed);
        if !self.is_gone(lived) {
            self.with(|process| process.taken = worker.positions());
            // As by `leave` over a network: what has not arrived by now does not count as stored.
            self.node.borrow_mut().cut(session);
            worker.take_rest(&mut link);
        }
        drop((link, client));
        // The server hears of it some time later.
        let (place, world) = (self.clone(), self.replica.borrow().world.clone());
        let hears_ns = world.draw(|random| random.below(50 * MS));
        Coroutines::spawn(&world, move || {
            place.pause(hears_ns);
            place.node.borrow_mut().end_session(session);
        });
    }

    fn serve(
        &self,
        worker: &mut Worker<SimHost>,
        link: &mut Subscriber,
        lived: u64,
    ) -> Result<(), Ended> {
        let (world, turn_ns) = {
            let replica = self.replica.borrow();
            (replica.world.clone(), replica.turn_ns)
        };
        worker.begin(link)?;
        let mut told_ns = world.now_ns();
        // Bounded by the life of the link.
        while !self.is_gone(lived) && !self.is_to_stop() {
            let worked = worker.turn(link)?;
            if world.now_ns() - told_ns >= HEARTBEAT_MS * MS {
                told_ns = world.now_ns();
                worker.tell(link)?;
            }
            let before_ns = world.now_ns();
            if !worked {
                link.wait(Duration::from_millis(HEARTBEAT_MS))?;
            }
            if world.now_ns() == before_ns {
                // Also where a message has begun to arrive.
                self.pause(world.draw(|random| random.within(&(200..=turn_ns))));
            }
        }
        Err(Ended::Called)
    }
}

/// As [`Coroutines::current`], of the task that runs.
fn current_task() -> u64 {
    Coroutines.current().expect("it runs as a task")
}
