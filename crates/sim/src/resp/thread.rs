//! RESP connections of the shards' threads: production code over simulated streams,
//! for one incarnation of the server after another.

use super::jobs::{Mailboxes, ShardJobs};
use super::stream::{Accepted, ClientEnd, Events, ServerEnd, StreamOptions, connect, lock};
use crate::counts::RunCounts;
use crate::faults::{Fault, Faults};
use crate::node::{Node, NodeTime};
use crate::probes::{Probe, Probes};
use crate::tasks::Coroutines;
use remora_arena::{Owner, ReadView};
use remora_fabric::sim::{SimJournal, SimWorld, Tasks};
use remora_frontend::{Connection, ConnectionCounts, Executor, Here, Job, ShardPort, Token};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::pointer::RemotePointer;
use remora_layout::slot::SlotTable;
use remora_protocol::Command;
use remora_server::resp::{
    Host, Prefetch, RespConnections, RespExecutor, RoleFacts, RoleRequest, Save, Sections,
};
use remora_server::thread_counts::ThreadCounts;
use remora_server::waits::Waits;
use remora_walk::Memory;
use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Optimistic reads, of a million, that are suspended in the middle, as by another process on the
/// core.
const HELD_UP_PPM: u32 = 2_000;
/// Turns, of a million, in which a thread gives a connection away, if it may.
const GIVES_AWAY_PPM: u32 = 50_000;
/// The longest such suspension, ns.
const HELD_UP_NS: u64 = 20_000_000;

/// A shard's arena, as another shard's thread reads it: every piece takes a while to read, in which
/// the shard continues.
pub struct BesideMemory {
    world: SimWorld,
    words: ReadView,
    journal: SimJournal,
    read_ns: u64,
    /// Pieces that were changed while they were read.
    torn: AtomicU64,
}

impl BesideMemory {
    /// A shard's words, with the journal that its owner keeps.
    pub fn new(world: &SimWorld, words: ReadView, journal: SimJournal, read_ns: u64) -> Self {
        Self { world: world.clone(), words, journal, read_ns, torn: AtomicU64::new(0) }
    }

    fn last(&self) {
        let task = Coroutines.current().expect("the thread is a task");
        let is_held_up = self.world.draw(|random| random.happens(HELD_UP_PPM));
        let most_ns = if is_held_up { HELD_UP_NS } else { self.read_ns };
        let until_ns =
            self.world.now_ns() + self.world.draw(|random| random.within(&(0..=most_ns)));
        // Woken before, it reads on.
        while self.world.now_ns() < until_ns {
            self.world.suspend_until(task, until_ns);
        }
    }
}

impl Memory for BesideMemory {
    fn bytes(&self) -> usize {
        self.words.bytes()
    }

    fn fetch(&self, offset: u64, into: &mut [u8]) -> bool {
        let Ok(start) = self.words.check(offset, into.len()) else { return false };
        let mut before = vec![0; into.len()];
        self.words.copy_out(start, &mut before);
        self.journal.read_beside(&self.world, &self.words, start, into, || self.last());
        let mut after = vec![0; into.len()];
        self.words.copy_out(start, &mut after);
        let is_torn = into != before && into != after;
        self.torn.fetch_add(is_torn.into(), Ordering::Relaxed);
        true
    }
}

/// The state of the server, in one of its incarnations, for the RESP connections of one shard's
/// thread.
pub struct SimHost {
    node: Rc<RefCell<Node>>,
    incarnation: u64,
    home: usize,
    time: NodeTime,
    hash_seed: u64,
    slots: Box<SlotTable>,
    shards: Rc<Vec<BesideMemory>>,
    mailboxes: Mailboxes,
    counts: Rc<ThreadCounts>,
}

impl SimHost {
    /// The thread of the shard with the number `home`.
    pub fn new(
        (node, incarnation): (Rc<RefCell<Node>>, u64),
        home: usize,
        time: NodeTime,
        (hash_seed, slots): (u64, Box<SlotTable>),
        shards: Vec<BesideMemory>,
        (mailboxes, counts): (Mailboxes, Rc<ThreadCounts>),
    ) -> Self {
        let shards = Rc::new(shards);
        Self { node, incarnation, home, time, hash_seed, slots, shards, mailboxes, counts }
    }

    /// The thread's jobs. `None` if its incarnation is over.
    fn with_jobs<R>(&self, act: impl FnOnce(&mut ShardJobs) -> R) -> Option<R> {
        self.node.borrow_mut().with_jobs((self.incarnation, self.home), act)
    }
}

impl ShardPort for SimHost {
    fn home(&self) -> usize {
        self.home
    }

    fn now_ms(&self) -> u64 {
        self.time.unix_ms()
    }

    fn slots(&self) -> &SlotTable {
        &self.slots
    }

    fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    fn hand(&mut self, shard: usize, job: Job) {
        self.with_jobs(|jobs| jobs.hand(shard, job));
    }

    fn is_free(&mut self, token: &Token) -> bool {
        let home = (self.incarnation, self.home);
        let is_free = self.node.borrow_mut().with_shard(home, |_, jobs, _| jobs.is_free(token));
        is_free == Some(true)
    }

    fn execute<R>(
        &mut self,
        command: (&Command<'_>, KeyHash),
        at: (Token, bool),
        take: impl FnOnce(Here<'_>) -> R,
    ) -> Option<R> {
        self.node.borrow_mut().with_shard((self.incarnation, self.home), |shard, jobs, now| {
            take(jobs.execute_here(shard, command, at, now))
        })
    }

    fn durable_sequence(&self) -> u64 {
        let own = (self.incarnation, self.home);
        let durable =
            self.node.borrow_mut().with_shard(own, |shard, _, _| shard.durable_sequence());
        // A process that is gone sends nothing more.
        durable.unwrap_or(0)
    }

    fn counts(&self) -> &ConnectionCounts {
        &self.counts.frontend
    }

    fn note_end(&self) {}
}

impl Host for SimHost {
    type Memory = BesideMemory;
    type Journal = SimJournal;

    /// Worlds do not ask for any key.
    fn keys_in(&self, _: usize, _: Database) -> u64 {
        1
    }

    fn memory(&self, shard: usize) -> &BesideMemory {
        &self.shards[shard]
    }

    /// `None`: the shard lies in the node's cell, which a read cannot keep borrowed. Worlds
    /// read it as another thread does.
    fn own_memory(&self, _: usize) -> Option<&Owner<SimJournal>> {
        None
    }

    fn prefetch(&mut self, what: Prefetch, keys: impl Iterator<Item = KeyHash>) {
        self.node.borrow_mut().with_shard(
            (self.incarnation, self.home),
            |shard, _, _| match what {
                Prefetch::Buckets => keys.for_each(|hash| shard.prefetch(hash)),
                Prefetch::Records => keys.for_each(|hash| shard.prefetch_record(hash)),
            },
        );
    }

    fn touched(&self, shard: usize, pointer: RemotePointer) {
        self.mailboxes[shard].touched.push(pointer);
    }

    fn with_waits<R>(&mut self, act: impl FnOnce(&mut Waits) -> R) -> Option<R> {
        self.with_jobs(|jobs| jobs.with_waits(act))
    }

    fn thread_counts(&self) -> &ThreadCounts {
        &self.counts
    }

    /// No client of a world asks for it.
    fn info(&self, _: &Sections<'_>) -> String {
        String::new()
    }

    /// No client of a world asks for them.
    fn begin_save(&self) -> Save {
        Save::NothingKept
    }

    /// No client of a world asks for it.
    fn change_role(&self, _: RoleRequest<'_>, _: Token) -> Result<(), String> {
        Err("ERR The server of a world keeps its role".into())
    }

    /// No client of a world asks for it.
    fn role(&self) -> RoleFacts {
        RoleFacts::Primary { offset: 0, replicas: Vec::new() }
    }

    fn keeps_data(&self) -> bool {
        false
    }

    fn last_save_s(&self) -> u64 {
        0
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// The connections of one thread.
type OwnConnections = RespConnections<ServerEnd>;

/// A world's state of the RESP connections of one shard's thread.
struct OfThread {
    events: Arc<Events>,
    shards: Rc<Vec<BesideMemory>>,
    counts: Rc<ThreadCounts>,
}

/// RESP of a server: of its present incarnation, if it has one.
#[derive(Default)]
pub struct Resp {
    threads: RefCell<Vec<OfThread>>,
    accepted: Cell<usize>,
}

impl Resp {
    /// The shards' threads of the server's new incarnation serve RESP.
    pub fn begin(
        &self,
        world: &SimWorld,
        node: &Rc<RefCell<Node>>,
        faults: &Rc<Faults>,
        read_ns: u64,
    ) {
        let hosts = Node::resp_hosts(node, read_ns);
        let serials = Arc::default();
        let events: Rc<[_]> = hosts.iter().map(|_| Events::new(&serials)).collect();
        for (home, host) in hosts.into_iter().enumerate() {
            let (shards, counts) = (Rc::clone(&host.shards), Rc::clone(&host.counts));
            let of_thread = OfThread { events: Arc::clone(&events[home]), shards, counts };
            self.threads.borrow_mut().push(of_thread);
            let (all, faults) = (Rc::clone(&events), Rc::clone(faults));
            let thread =
                Thread { world: world.clone(), events: Arc::clone(&events[home]), all, faults };
            Coroutines::spawn(world, move || thread.run(host));
        }
    }

    /// The server's process has died. Its kernel closes its streams.
    pub fn crash(&self, world: &SimWorld) {
        for thread in self.threads.take() {
            thread.events.dead.store(true, Ordering::Relaxed);
            world.wake(&thread.events.waiting);
        }
    }

    /// A connection, if there is a server: its threads take turns.
    pub fn connect(&self, world: &SimWorld, options: StreamOptions) -> Option<ClientEnd> {
        let threads = self.threads.borrow();
        let at = self.accepted.replace(self.accepted.get() + 1);
        let thread = threads.get(at.checked_rem(threads.len())?)?;
        Some(connect(world, options, &thread.events))
    }

    /// Adds the counters of this incarnation's threads, if there is one.
    pub fn count(&self, counts: &mut RunCounts) {
        self.threads.borrow().iter().for_each(|thread| counts.add_thread(&thread.counts));
    }

    /// Adds the probes of this incarnation, if there is one.
    pub fn tell(&self, probes: &mut Probes) {
        for thread in self.threads.borrow().iter() {
            probes.add(Probe::RespHere, thread.counts.executed_here.get());
            probes.add(Probe::RespRead, thread.counts.optimistic_reads.get());
            probes.add(Probe::RespAsked, thread.counts.asked_reads.get());
            probes.add(Probe::RespMoved, thread.counts.connections_moved.get());
            let torn = thread.shards.iter().map(|shard| shard.torn.load(Ordering::Relaxed));
            probes.add(Probe::RespTorn, torn.sum());
        }
    }
}

/// The RESP connections of one shard's thread. In production that thread serves the shard's rings
/// and jobs between them: here the server's task does so, whenever this one waits.
struct Thread {
    world: SimWorld,
    events: Arc<Events>,
    /// Of all threads, by their shards.
    all: Rc<[Arc<Events>]>,
    faults: Rc<Faults>,
}

impl Thread {
    /// Loops as the production thread does, until the server dies.
    fn run(self, host: SimHost) {
        let task = Coroutines.current().expect("it runs as a task");
        let mut executor = RespExecutor::new(host);
        let mut connections = OwnConnections::numbered_from(0);
        while !self.events.are_over() {
            if self.faults.strikes(Fault::RespStall) {
                self.faults.pause(&self.world, task, 1..=100_000_000);
            }
            self.await_shard(task, executor.port());
            let deadline_ns = self.time_out(executor.port_mut());
            let has_reply = executor.port().with_jobs(|jobs| jobs.has_reply()) == Some(true);
            let has_reply =
                has_reply || connections.may_release(executor.port().durable_sequence());
            if connections.are_idle() && !has_reply && self.has_no_event() {
                let mailbox = |host: &SimHost| Arc::clone(&host.mailboxes);
                let (mailboxes, home) = (mailbox(executor.port()), executor.port().home);
                *lock(&self.events.waiting) = Some(task);
                mailboxes[home].set_connections_waiting(Some(task));
                self.world.suspend_until(task, deadline_ns);
                *lock(&self.events.waiting) = None;
                mailboxes[home].set_connections_waiting(None);
                continue;
            }
            self.give_away(&executor, &mut connections);
            for slot in std::mem::take(&mut *lock(&self.events.ended)) {
                connections.announce_end(slot, false);
            }
            for slot in std::mem::take(&mut *lock(&self.events.stirred)) {
                connections.stir(slot);
            }
            self.accept(&mut connections);
            executor.port().with_jobs(ShardJobs::take_mail);
            while let Some((token, reply)) =
                executor.port().with_jobs(ShardJobs::pop_reply).flatten()
            {
                connections.take_reply(&mut executor, token, reply);
            }
            connections.serve(&mut executor, drop);
            executor.port().with_jobs(ShardJobs::send_mail);
            // The time of the work.
            let takes_ns = self.world.draw(|random| random.within(&(200..=3_000)));
            self.faults.pause(&self.world, task, takes_ns..=takes_ns);
        }
    }

    /// Ends the waits whose time is over. The time of the next one.
    fn time_out(&self, host: &mut SimHost) -> u64 {
        let now_ms = host.time.unix_ms();
        let next = host.with_waits(|waits| {
            waits.time_out(now_ms);
            waits.next_deadline_ms()
        });
        match next.flatten() {
            None => u64::MAX,
            Some(until_ms) => self.world.now_ns() + until_ms.saturating_sub(now_ms) * 1_000_000,
        }
    }

    /// A shard that is at one long step holds up its thread's connections.
    fn await_shard(&self, task: u64, host: &SimHost) {
        loop {
            let until_ns = host.node.borrow().busy_until_ns(host.home);
            if self.events.are_over() || until_ns <= self.world.now_ns() {
                return;
            }
            self.world.suspend_until(task, until_ns);
        }
    }

    fn has_no_event(&self) -> bool {
        // It may have died while it stood still.
        !self.events.are_over()
            && lock(&self.events.stirred).is_empty()
            && lock(&self.events.accepted).is_empty()
    }

    fn accept(&self, connections: &mut OwnConnections) {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        while let Some(accepted) = { lock(&self.events.accepted).pop_front() } {
            let Accepted { stream, connection } = accepted;
            stream.accept(connections.next_slot());
            let connection = connection.map(|connection| *connection).unwrap_or_else(|| {
                Connection::new(peer, self.events.serials.fetch_add(1, Ordering::Relaxed))
            });
            connections.add(stream, connection);
        }
    }

    /// Now and then the thread gives a connection to another one, as if it had been
    /// the busier one.
    fn give_away(&self, executor: &RespExecutor<SimHost>, connections: &mut OwnConnections) {
        let home = executor.port().home;
        let others = self.all.len() as u64 - 1;
        let may = others > 0 && !self.events.are_over();
        if !may || !self.world.draw(|random| random.happens(GIVES_AWAY_PPM)) {
            return;
        }
        let (other, share) = self.world.draw(|random| {
            (1 + random.below(others) as usize, [0.25, 0.5, 1.0][random.below(3) as usize])
        });
        let Some((stream, connection)) = connections.take_out(executor.port(), share) else {
            return;
        };
        executor.port().counts.connections_moved.add(1);
        let to = &self.all[(home + other) % self.all.len()];
        stream.hand_over(to, connection);
    }
}

impl Drop for Thread {
    /// Clients that it has not accepted also notice that it is gone.
    fn drop(&mut self) {
        let left = std::mem::take(&mut *lock(&self.events.accepted));
        drop(left);
    }
}
