//! A simulated server: the production shards and rings of one life after
//! another, driven by one task. What a control thread does in production,
//! granting sessions and writing heartbeats, is done here in few lines by the
//! same formats.
//!
//! What it keeps true, as production does: a new life serves nobody before
//! every right that its predecessor gave has lapsed; a session that breaks the
//! protocol is withdrawn.

mod session;

use crate::clock::HostClock;
use crate::faults::{Fault, Faults};
use crate::probes::Probes;
use crate::resp::{BesideMemory, ShardBeside, ShardJobs, SimHost};
use remora_arena::{Mapping, Owner, SlotStats, Words};
use remora_client::Parts;
use remora_engine::{Command, Now, Shard, ShardOptions};
use remora_fabric::sim::{SimJournal, SimWorld, Tasks};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    CACHE_LINE_BYTES, HEARTBEAT_MS, LEASE_MAX_S, RIGHT_MARGIN_MS, RIGHT_MS,
};
use remora_server::ring_session::{RingSession, SessionError};
use session::Session;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

const MS: u64 = 1_000_000;

/// Memory is audited about once in so many ticks.
const AUDIT_TICKS: u64 = 16;

/// How a server is made.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Shards.
    pub shards: usize,
    /// Bytes of each shard's arena.
    pub arena_bytes: usize,
    /// What each shard is told; region, life and epoch are filled in.
    pub shard: ShardOptions,
    /// By how much the server's clock gains, ppm.
    pub clock_gains_ppm: i64,
    /// Lines of the table of pointers that its clients share; 0: there is none.
    pub pointer_lines: usize,
    /// Whether its memory is audited while it serves: nothing is uploaded then.
    pub audits: bool,
}

struct Life {
    number: u64,
    began_ns: u64,
    shards: Vec<Shard<SimJournal>>,
    journals: Vec<SimJournal>,
    jobs: Vec<ShardJobs>,
    sessions: Vec<Session>,
    /// The pointers that clients share.
    pointers: Option<(Words, u64)>,
}

/// A server.
pub struct Node {
    world: SimWorld,
    clock: HostClock,
    options: NodeOptions,
    faults: Rc<Faults>,
    /// None while it is down.
    life: Option<Life>,
    lives: u64,
    sessions: u64,
    /// Sessions that were ended because the client broke the protocol: none
    /// may be, all clients are honest.
    pub violations: Vec<SessionError>,
    /// What did not fit when memory was audited.
    pub misfits: Vec<String>,
}

impl Node {
    /// A server that is down.
    pub fn new(world: &SimWorld, options: NodeOptions, faults: Rc<Faults>) -> Self {
        let clock = HostClock::new(world, 1_700_000_000_000 * MS, options.clock_gains_ppm);
        let world = world.clone();
        let (life, lives, sessions) = (None, 0, 0);
        let (violations, misfits) = (Vec::new(), Vec::new());
        Self { world, clock, options, faults, life, lives, sessions, violations, misfits }
    }

    /// The server's clock, ms.
    pub fn unix_ms(&self) -> u64 {
        self.clock.now_ns() / MS
    }

    /// When its clock shows this time, in virtual ns.
    pub fn virtual_ns(&self, unix_ms: u64) -> u64 {
        self.clock.virtual_ns(unix_ms * MS)
    }

    /// How long it takes until its clock has gone on by so much, virtual ns.
    pub fn clock_takes_ns(&self, ns: u64) -> u64 {
        self.clock.virtual_ns(self.clock.now_ns() + ns).saturating_sub(self.world.now_ns()) + 1
    }

    /// Begins a life with empty memory.
    pub fn start(&mut self) {
        assert!(self.life.is_none());
        self.lives += 1;
        let mut journals = Vec::new();
        let shards = (0..self.options.shards).map(|number| {
            let journal = SimJournal::new();
            journals.push(journal.clone());
            let owner = Owner::heap(self.options.arena_bytes, journal);
            let life = self.lives;
            let options = ShardOptions { region: number as u32, life, ..self.options.shard };
            Shard::new(owner, options)
        });
        let shards = shards.collect();
        let (number, began_ns) = (self.lives, self.clock.now_ns());
        let jobs = || ShardJobs::new(&self.world, self.options.shard.eviction);
        let jobs = std::iter::repeat_with(jobs).take(self.options.shards).collect();
        let lines = self.options.pointer_lines;
        let pointers = (lines > 0).then(|| {
            (Words::new(Mapping::heap(lines * CACHE_LINE_BYTES)), self.options.shard.hash_seed | 1)
        });
        let sessions = Vec::new();
        self.life = Some(Life { number, began_ns, shards, journals, jobs, sessions, pointers });
    }

    /// The process ends, as by kill -9. What is given back loses the links of
    /// its clients; until that is called its memory can be read, as memory
    /// that a client of the same host has mapped.
    pub fn crash(&mut self) -> impl FnOnce() + use<> {
        let sessions = self.life.take().map_or(Vec::new(), |life| life.sessions);
        let world = self.world.clone();
        move || sessions.into_iter().for_each(|session| session.lose(&world))
    }

    /// Tells of the shards of this life, if there is one.
    pub fn tell(&self, probes: &mut Probes) {
        for shard in self.life.iter().flat_map(|life| &life.shards) {
            probes.add_shard(&shard.stats(), self.options.shard.buckets);
        }
    }

    /// How long a new life waits before it serves, ns of its clock.
    pub fn waits_ns() -> u64 {
        (RIGHT_MS + RIGHT_MARGIN_MS) * MS
    }

    /// Lets go of some session, as when its connection breaks.
    pub fn lose_any_session(&mut self, draw: u64) {
        if let Some(life) = &mut self.life
            && !life.sessions.is_empty()
        {
            life.end((draw % life.sessions.len() as u64) as usize, &self.world, &self.clock);
        }
    }

    /// The client of this session has gone.
    pub fn end_session(&mut self, number: u64) {
        if let Some(life) = &mut self.life
            && let Some(at) = life.sessions.iter().position(|session| session.number == number)
        {
            life.end(at, &self.world, &self.clock);
        }
    }

    /// Grants a session to a client with this clock.
    pub fn connect(&mut self, client: &HostClock) -> Option<Parts> {
        let life = self.life.as_mut()?;
        self.sessions += 1;
        let (session, parts) =
            Session::grant(&self.world, life, &self.options, self.sessions, client);
        life.sessions.push(session);
        Some(parts)
    }

    /// What a RESP thread knows of the present life, whose reads take so long.
    pub fn resp_host(&self, read_ns: u64) -> Option<SimHost> {
        let life = self.life.as_ref()?;
        let shards = life.shards.iter().zip(&life.journals).zip(&life.jobs);
        let shards = shards.map(|((shard, journal), jobs)| {
            let words = shard.owner().words().clone();
            let memory = BesideMemory::new(&self.world, words, journal.clone(), read_ns);
            ShardBeside { memory, inbox: jobs.inbox() }
        });
        let hash_seed = self.options.shard.hash_seed;
        let (clock, shards) = (self.clock.clone(), shards.collect());
        Some(SimHost { clock, hash_seed, shards, counts: Default::default() })
    }

    /// Takes jobs and serves every ring once. Whether there was anything to do.
    fn turn(&mut self) -> bool {
        let Some(life) = &mut self.life else { return false };
        let now = now(&self.clock, life.began_ns);
        let mut worked = false;
        for (jobs, shard) in life.jobs.iter_mut().zip(&mut life.shards) {
            worked |= jobs.turn(shard, now);
        }
        for session in &mut life.sessions {
            for (ring, shard) in session.rings.iter_mut().zip(&mut life.shards) {
                match ring.turn(shard, now) {
                    Ok(frames) => worked |= frames > 0,
                    Err(error) => {
                        // A lost link, or half a frame that came before it was.
                        let is_lost =
                            matches!(error, SessionError::Link(_) | SessionError::TornForever);
                        self.violations.extend(Some(error).filter(|_| !is_lost));
                        session.violated.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        while let Some(at) =
            life.sessions.iter().position(|session| session.violated.load(Ordering::Relaxed))
        {
            life.end(at, &self.world, &self.clock);
        }
        worked
    }

    fn has_work(&self) -> bool {
        if self.life.iter().flat_map(|life| &life.jobs).any(ShardJobs::has_work) {
            return true;
        }
        let sessions = self.life.iter().flat_map(|life| &life.sessions);
        sessions.flat_map(|session| &session.rings).any(RingSession::has_work)
    }

    /// What is due every few milliseconds.
    fn tick(&mut self) {
        let Some(life) = &mut self.life else { return };
        let now = now(&self.clock, life.began_ns);
        for shard in &mut life.shards {
            shard.tick(now);
        }
        for session in &mut life.sessions {
            session.beat(life.number, self.options.shard.epoch, now.unix_ms);
        }
        if self.options.audits && self.world.draw(|random| random.below(AUDIT_TICKS)) == 0 {
            self.audit("while it served");
        }
    }

    fn audit(&mut self, when: &str) {
        let shards = self.life.iter().flat_map(|life| &life.shards);
        let misfits = shards.filter_map(|shard| shard.audit().err());
        self.misfits.extend(misfits.map(|misfit| format!("{when}: {misfit}")));
    }

    /// Ends this life in order: all sessions end, all keys are removed, all
    /// leases run out. Nothing may be held by anybody after that.
    pub fn close(&mut self) {
        let Some(life) = &mut self.life else { return };
        while !life.sessions.is_empty() {
            life.end(0, &self.world, &self.clock);
        }
        self.audit("after all sessions");
        let Some(life) = &mut self.life else { return };
        let mut now = now(&self.clock, life.began_ns);
        for shard in &mut life.shards {
            shard.execute(&Command::Flush, KeyHash(0), now);
            now.since_start_s += 2 * LEASE_MAX_S;
            shard.tick(now);
            let stats = shard.stats();
            let SlotStats { used_bytes, quarantine_bytes, .. } = stats.slots;
            if used_bytes + quarantine_bytes + stats.keys + stats.pinned + stats.ask_only > 0 {
                self.misfits.push(format!("left after FLUSHALL: {stats:?}"));
            }
        }
        self.audit("after FLUSHALL");
    }

    fn set_waiting(&self, task: Option<u64>) {
        for session in self.life.iter().flat_map(|life| &life.sessions) {
            session.target.set_waiting(task);
        }
        for jobs in self.life.iter().flat_map(|life| &life.jobs) {
            jobs.set_waiting(task);
        }
    }

    /// The task that serves, for ever.
    pub fn run(node: &Rc<RefCell<Self>>) {
        let world = node.borrow().world.clone();
        let faults = Rc::clone(&node.borrow().faults);
        let task = crate::tasks::Coroutines.current().expect("it runs as a task");
        let mut next_tick_ns = 0;
        loop {
            if world.now_ns() >= next_tick_ns {
                next_tick_ns = world.now_ns() + HEARTBEAT_MS * MS;
                node.borrow_mut().tick();
            }
            if faults.strikes(Fault::ServerStall) {
                faults.pause(&world, task, 1..=400 * MS);
            }
            if node.borrow_mut().turn() {
                // What the work takes.
                let takes_ns = world.draw(|random| random.within(&(200..=3_000)));
                world.suspend_until(task, world.now_ns() + takes_ns);
                continue;
            }
            if node.borrow().has_work() {
                world.suspend_until(task, world.now_ns() + 1_000);
                continue;
            }
            node.borrow().set_waiting(Some(task));
            world.suspend_until(task, next_tick_ns);
            node.borrow().set_waiting(None);
        }
    }
}

impl Life {
    /// Gives up a session and what its rings hold of the shards.
    fn end(&mut self, at: usize, world: &SimWorld, clock: &HostClock) {
        let now = now(clock, self.began_ns);
        let mut session = self.sessions.remove(at);
        for (ring, shard) in session.rings.iter_mut().zip(&mut self.shards) {
            ring.abandon(shard, now);
        }
        session.lose(world);
    }
}

fn now(clock: &HostClock, began_ns: u64) -> Now {
    let now_ns = clock.now_ns();
    Now { unix_ms: now_ns / MS, since_start_s: (now_ns - began_ns) / (1_000 * MS) }
}
