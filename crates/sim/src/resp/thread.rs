//! The server's RESP thread: production connections over simulated streams, for
//! one life of the server after another.

use super::jobs::Inbox;
use super::stream::{ClientEnd, Events, ServerEnd, StreamOptions, connect, lock};
use crate::faults::{Fault, Faults};
use crate::node::Node;
use crate::node::NodeTime;
use crate::probes::{Probe, Probes};
use crate::tasks::Coroutines;
use remora_arena::ReadView;
use remora_fabric::sim::{SimJournal, SimWorld, Tasks};
use remora_layout::database::Database;
use remora_layout::pointer::RemotePointer;
use remora_layout::slot::SlotTable;
use remora_server::Counts;
use remora_server::jobs::{Job, ReplyQueue};
use remora_server::resp::{Connections, Host, Sections};
use remora_walk::Memory;
use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many optimistic reads in a million are held up in the middle, as by
/// another process on the core.
const HELD_UP_PPM: u32 = 2_000;
/// For how long at most, ns.
const HELD_UP_NS: u64 = 20_000_000;

/// A shard's arena, as the RESP thread sees it: every piece that it reads takes
/// a while, in which the shard goes on.
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
        let task = Coroutines.current().expect("the RESP thread is a task");
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

/// One shard, as the RESP thread sees it.
pub struct ShardBeside {
    /// Its arena.
    pub memory: BesideMemory,
    /// Where its jobs go.
    pub inbox: Arc<Inbox>,
}

/// What the RESP thread of one life knows of its server.
pub struct SimHost {
    /// The server's clock.
    pub time: NodeTime,
    /// Seed of the key hash.
    pub hash_seed: u64,
    /// Which shard has which slot.
    pub slots: Box<SlotTable>,
    /// The shards, by number.
    pub shards: Vec<ShardBeside>,
    /// Counts of this life.
    pub counts: Counts,
}

impl Host for SimHost {
    type Memory = BesideMemory;

    fn slots(&self) -> &SlotTable {
        &self.slots
    }

    /// Worlds do not ask for any key.
    fn keys_in(&self, _: usize, _: Database) -> u64 {
        1
    }

    fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    fn unix_ms(&self) -> u64 {
        self.time.unix_ms()
    }

    fn memory(&self, shard: usize) -> &BesideMemory {
        &self.shards[shard].memory
    }

    fn hand(&self, shard: usize, job: Job) {
        self.shards[shard].inbox.push(job);
    }

    fn touched(&self, shard: usize, pointer: RemotePointer) {
        self.shards[shard].inbox.touched.push(pointer);
    }

    fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Nobody in a world asks for it.
    fn info(&self, _: &Sections<'_>) -> String {
        String::new()
    }

    /// Nobody in a world asks for them.
    fn parameters(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// RESP of a server: of its present life, if it has one.
#[derive(Default)]
pub struct Resp {
    life: RefCell<Option<(Arc<Events>, Arc<SimHost>)>>,
}

impl Resp {
    /// The server's new life has a RESP thread.
    #[allow(
        clippy::arc_with_non_send_sync,
        reason = "the server's code takes an Arc; a world is one thread"
    )]
    pub fn begin(&self, world: &SimWorld, node: &Node, faults: &Rc<Faults>, read_ns: u64) {
        let Some(host) = node.resp_host(read_ns) else { return };
        let (events, host) = (Events::new(), Arc::new(host));
        let thread =
            Thread { world: world.clone(), events: Arc::clone(&events), faults: Rc::clone(faults) };
        *self.life.borrow_mut() = Some((events, Arc::clone(&host)));
        Coroutines::spawn(world, move || thread.run(host));
    }

    /// The server's process has died. Its kernel closes its streams.
    pub fn crash(&self, world: &SimWorld) {
        if let Some((events, _)) = self.life.take() {
            events.dead.store(true, Ordering::Relaxed);
            world.wake(&events.waiting);
        }
    }

    /// A connection, if there is a server.
    pub fn connect(&self, world: &SimWorld, options: StreamOptions) -> Option<ClientEnd> {
        let life = self.life.borrow();
        life.as_ref().map(|(events, _)| connect(world, options, events))
    }

    /// Tells of this life, if there is one.
    pub fn tell(&self, probes: &mut Probes) {
        let life = self.life.borrow();
        let Some((_, host)) = life.as_ref() else { return };
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        probes.add(Probe::RespRead, load(&host.counts.optimistic_reads));
        probes.add(Probe::RespAsked, load(&host.counts.asked_reads));
        let torn = host.shards.iter().map(|shard| load(&shard.memory.torn));
        probes.add(Probe::RespTorn, torn.sum());
    }
}

struct Thread {
    world: SimWorld,
    events: Arc<Events>,
    faults: Rc<Faults>,
}

impl Thread {
    /// As the production thread goes round, until the server dies.
    fn run(self, host: Arc<SimHost>) {
        let task = Coroutines.current().expect("it runs as a task");
        let (world, events) = (self.world.clone(), Arc::clone(&self.events));
        let replies = Arc::new(ReplyQueue::new(move || world.wake(&events.waiting)));
        let mut connections: Connections<ServerEnd, SimHost> =
            Connections::new(host, Arc::clone(&replies));
        while !self.events.are_over() {
            if self.faults.strikes(Fault::RespStall) {
                self.faults.pause(&self.world, task, 1..=100_000_000);
            }
            let is_idle = replies.may_sleep() && connections.are_idle() && self.has_no_event();
            if is_idle {
                *lock(&self.events.waiting) = Some(task);
                self.world.suspend_until(task, u64::MAX);
                *lock(&self.events.waiting) = None;
            }
            replies.awake();
            for slot in std::mem::take(&mut *lock(&self.events.ended)) {
                connections.announce_end(slot);
            }
            for slot in std::mem::take(&mut *lock(&self.events.stirred)) {
                connections.stir(slot);
            }
            self.accept(&mut connections);
            connections.take_replies();
            connections.serve(drop);
            // What the work takes.
            let takes_ns = self.world.draw(|random| random.within(&(200..=3_000)));
            self.faults.pause(&self.world, task, takes_ns..=takes_ns);
        }
    }

    fn has_no_event(&self) -> bool {
        // It may have died while it stood still.
        !self.events.are_over()
            && lock(&self.events.stirred).is_empty()
            && lock(&self.events.accepted).is_empty()
    }

    fn accept(&self, connections: &mut Connections<ServerEnd, SimHost>) {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        while let Some(stream) = { lock(&self.events.accepted).pop_front() } {
            stream.accept(connections.next_slot());
            connections.add(stream, peer);
        }
    }
}

impl Drop for Thread {
    /// Whom it has not accepted hears that it is gone, as the others do.
    fn drop(&mut self) {
        let left = std::mem::take(&mut *lock(&self.events.accepted));
        drop(left);
    }
}
