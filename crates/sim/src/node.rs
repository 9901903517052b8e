//! A simulated server: the production shards and rings of one incarnation after another, driven by
//! one task. This file replaces the production control thread: it grants sessions and writes
//! heartbeats in few lines, in the same formats.
//!
//! Invariant, as in production: a new incarnation serves no client before every read lease of its
//! predecessor has lapsed; a session that breaks the protocol is withdrawn.

mod evicted;
mod primary;
mod processes;
mod resp;
mod ring_clients;
pub(crate) mod session;
mod time;

pub use evicted::Removed;
pub use ring_clients::Process;
pub use time::NodeTime;

use crate::clock::HostClock;
use crate::disk::{Disk, DiskSwarm, Turn};
use crate::faults::{Fault, Faults};
use crate::probes::{Probe, Probes};
use crate::replicas::Oracle;
use crate::resp::ShardJobs;
use evicted::Follower;
use remora_arena::{Mapping, Owner, SlotStats, Words};
use remora_client_core::Parts;
use remora_engine::{Eviction, Shard, ShardOptions};
use remora_fabric::sim::{SimJournal, SimWorld, Tasks};
use remora_layout::hash::KeyHash;
use remora_layout::lag::Lag;
use remora_layout::limits::{
    CACHE_LINE_BYTES, HEARTBEAT_MS, LEASE_MAX_S, MAX_REGIONS, READ_LEASE_MARGIN_MS, READ_LEASE_MS,
};
use remora_layout::slot::SlotTable;
use remora_protocol::Command;
use remora_replica::AskFor;
use remora_server::TurnView;
use remora_server::acknowledging::Acknowledging;
use remora_server::disk::Content;
use remora_server::ring_session::SessionError;
use remora_storage::sim::SimVolume;
use ring_clients::NodeRings;
use session::{Granting, Session, is_lost};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

const MS: u64 = 1_000_000;

/// Mean number of ticks between two audits of memory.
const AUDIT_TICKS: u64 = 16;
/// Time for which completions of what goes to replicas are looked for, after the last work; later
/// ones are seen with the ticks, ns.
const POLLS_NS: u64 = 300_000;
/// Time between two such looks, ns.
const POLL_NS: u64 = 5_000;
/// Longest life of a process whose disk hangs, ns: some calls time out meanwhile.
const LIVES_ON_NS: [u64; 3] = [50 * MS, 2_000 * MS, 8_000 * MS];

/// How a server is made.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Shards.
    pub shards: usize,
    /// Bytes of each shard's arena.
    pub arena_bytes: usize,
    /// The options of each shard; region, incarnation and epoch are filled in.
    pub shard: ShardOptions,
    /// Drift of the server's clock, ppm.
    pub clock_gains_ppm: i64,
    /// Lines of the table of pointers that its clients share; 0: there is none.
    pub pointer_lines: usize,
    /// Whether its memory is audited while it serves: nothing is uploaded then.
    pub audits: bool,
    /// Percentage of turns in which a shard releases memory, as if there were that much more of it:
    /// memory without a root stays for longer.
    pub release_percent: u64,
    /// Percentage of ticks in which a shard sweeps for expired keys, as if its table were that much
    /// larger.
    pub sweep_percent: u64,
    /// How changes become durable; `None`: they are at once, and lost with the
    /// process.
    pub disk: Option<DiskSwarm>,
    /// Replicas that have to have a change before it is acknowledged.
    pub min_replicas: usize,
    /// When a replica is asked for an acknowledgement, and counts as one that has a change.
    pub replica_acks: AskFor,
}

struct Incarnation {
    number: u64,
    began_ns: u64,
    shards: Vec<Shard<SimJournal>>,
    journals: Vec<SimJournal>,
    /// Until when each shard is at one long step, virtual ns.
    busy_until_ns: Vec<u64>,
    jobs: Vec<ShardJobs>,
    sessions: Vec<Session>,
    /// Client processes over shared memory, if there are any.
    rings: Option<NodeRings>,
    /// One for each shard, if keys may be evicted.
    followers: Vec<Follower>,
    /// The pointers that clients share.
    pointers: Option<(Words, u64)>,
    /// One for each shard, if there are replicas.
    acknowledging: Vec<Acknowledging>,
    /// What replicas wrote and no honest one does.
    violations: Vec<SessionError>,
}

/// A server.
pub struct Node {
    world: SimWorld,
    time: NodeTime,
    options: NodeOptions,
    faults: Rc<Faults>,
    /// `None` while it is down.
    incarnation: Option<Incarnation>,
    incarnations: u64,
    sessions: u64,
    /// Sessions that were ended because the client broke the protocol: none
    /// may be, all clients are honest.
    pub violations: Vec<SessionError>,
    /// Mismatches found by audits of memory.
    pub misfits: Vec<String>,
    /// The utilisation in heartbeats, parts per million.
    told_ppm: u32,
    /// Keys that were removed, where some are evicted.
    pub removed: Vec<Removed>,
    disk: Option<Disk>,
    /// When the process dies, as its disk hangs, virtual ns.
    dies_ns: Option<u64>,
    /// Turns in which replies were held back.
    held: u64,
    /// Reads the logs, if there are replicas.
    pub oracle: Option<Rc<RefCell<Oracle>>>,
}

impl Node {
    /// A server that is down.
    pub fn new(world: &SimWorld, options: NodeOptions, faults: Rc<Faults>) -> Self {
        let time = NodeTime::new(world, options.clock_gains_ppm);
        let world = world.clone();
        let (incarnation, incarnations, sessions) = (None, 0, 0);
        let (violations, misfits) = (Vec::new(), Vec::new());
        let (disk, dies_ns, held) = (options.disk.clone().map(Disk::new), None, 0);
        Self {
            world,
            time,
            options,
            faults,
            incarnation,
            incarnations,
            sessions,
            violations,
            misfits,
            told_ppm: 0,
            removed: Vec::new(),
            disk,
            dies_ns,
            held,
            oracle: None,
        }
    }

    /// The number of the present incarnation, or of the last.
    pub fn incarnation(&self) -> u64 {
        self.incarnations
    }

    /// The server's clock, ms.
    pub fn unix_ms(&self) -> u64 {
        self.time.unix_ms()
    }

    /// When its clock shows this time, in virtual ns.
    pub fn virtual_ns(&self, unix_ms: u64) -> u64 {
        self.time.virtual_ns(unix_ms)
    }

    /// Virtual ns until its monotonic clock has advanced by this much.
    pub fn clock_takes_ns(&self, ns: u64) -> u64 {
        let shows_ns = self.time.monotonic_ns() + ns;
        self.time.virtual_ns_of_monotonic(shows_ns).saturating_sub(self.world.now_ns()) + 1
    }

    /// The shard of a key.
    pub fn shard_of(&self, key: &[u8]) -> usize {
        SlotTable::even(self.options.shards).shard_of(key)
    }

    /// Its shards, of the incarnation that serves or of the next one.
    pub const fn shard_count(&self) -> usize {
        self.options.shards
    }

    /// Whether a new incarnation begins with the durable changes.
    pub fn has_disks(&self) -> bool {
        self.options.disk.is_some()
    }

    /// Whether the disk of the present incarnation hangs: its process is to die.
    pub fn is_to_die(&self) -> bool {
        self.dies_ns.is_some()
    }

    /// Whether the time for that has come.
    pub fn dies_now(&self) -> bool {
        self.dies_ns.is_some_and(|dies_ns| dies_ns <= self.world.now_ns())
    }

    /// Since when nothing becomes durable, virtual ns; `None` while the disk works.
    fn failed_ns(&self) -> Option<u64> {
        self.disk.as_ref().and_then(Disk::failed_ns)
    }

    /// Whether the disk had failed at that time, and does not work yet.
    pub fn had_failed(&self, at_ns: u64) -> bool {
        self.failed_ns().is_some_and(|failed_ns| failed_ns <= at_ns)
    }

    /// Whether replies wait for a disk that had failed at that time.
    pub fn holds_for_failed(&self, at_ns: u64) -> bool {
        let sessions = self.incarnation.iter().flat_map(|incarnation| &incarnation.sessions);
        let mut rings = sessions.flat_map(|session| &session.rings);
        self.had_failed(at_ns) && rings.any(|ring| ring.held_replies() > 0)
    }

    /// Whether the disk refused something, so that changes could be refused.
    pub fn had_trouble(&self) -> bool {
        self.disk.as_ref().is_some_and(Disk::had_trouble)
    }

    /// The disk hangs; the process lives on.
    pub fn hang_disk(&mut self) {
        self.disk.iter_mut().for_each(|disk| disk.hang(&self.world));
    }

    /// Begins an incarnation with empty memory, or with the disk's content.
    pub fn start(&mut self) {
        assert!(self.incarnation.is_none());
        self.incarnations += 1;
        let content = self.look_at_disk();
        let mut journals = Vec::new();
        let shards = (0..self.options.shards).map(|number| {
            let journal = SimJournal::new();
            journals.push(journal.clone());
            let owner = Owner::heap(self.options.arena_bytes, journal);
            let incarnation = self.incarnations;
            // Unlike the numbers by which links address arenas, and those of any
            // other incarnation.
            let region = MAX_REGIONS as u32 * incarnation as u32 + number as u32;
            let log_shard = number as u32;
            let options = ShardOptions { region, incarnation, log_shard, ..self.options.shard };
            Shard::new(owner, options)
        });
        let mut shards: Vec<_> = shards.collect();
        if let (Some(disk), Some(content)) = (&mut self.disk, &content) {
            disk.restart(content, &mut shards, &self.world);
        }
        let of = (self.incarnations, self.time.monotonic_ns());
        self.begin_incarnation(of, shards, journals);
    }

    /// These shards begin to serve.
    fn begin_incarnation(
        &mut self,
        (number, began_ns): (u64, u64),
        mut shards: Vec<Shard<SimJournal>>,
        journals: Vec<SimJournal>,
    ) {
        let eviction = self.options.shard.eviction;
        let jobs = ShardJobs::of_server(&self.world, self.options.shards, eviction);
        let lines = self.options.pointer_lines;
        let pointers = (lines > 0).then(|| {
            (Words::new(Mapping::heap(lines * CACHE_LINE_BYTES)), self.options.shard.hash_seed | 1)
        });
        let (sessions, busy_until_ns) = (Vec::new(), vec![0; self.options.shards]);
        let evicts = self.options.shard.eviction != Eviction::None;
        let followers = vec![Follower::default(); if evicts { self.options.shards } else { 0 }];
        let (min_replicas, has_disk) = (self.options.min_replicas, self.disk.is_some());
        let replicated = shards.iter_mut().filter(|_| self.oracle.is_some());
        let acknowledging =
            replicated.map(|shard| Acknowledging::new(shard, (min_replicas, false), has_disk));
        let acknowledging = acknowledging.collect();
        self.incarnation = Some(Incarnation {
            number,
            began_ns,
            shards,
            journals,
            busy_until_ns,
            jobs,
            sessions,
            rings: None,
            followers,
            pointers,
            acknowledging,
            violations: Vec::new(),
        });
    }

    /// What the disk holds, if there is one. The new incarnation has an epoch of its own, and may
    /// have another number of shards.
    fn look_at_disk(&mut self) -> Option<Content<SimVolume>> {
        let (disk, swarm) = (self.disk.as_mut()?, self.options.disk.as_ref()?);
        let content = disk.look((&self.world, &self.faults));
        self.options.shard.epoch = content.epoch();
        if self.incarnations > 1 && swarm.reshards && self.world.draw(|random| random.below(2)) == 0
        {
            self.options.shards = 1 + self.world.draw(|random| random.below(3)) as usize;
        }
        Some(content)
    }

    /// Promises of the disk that were broken.
    pub fn take_broken(&mut self) -> Vec<String> {
        self.disk.as_mut().map_or_else(Vec::new, |disk| std::mem::take(&mut disk.broken))
    }

    /// Looks which keys were evicted.
    fn note_removed(&mut self) {
        let Some(incarnation) = &mut self.incarnation else { return };
        for (follower, shard) in incarnation.followers.iter_mut().zip(&incarnation.shards) {
            follower.look(shard, self.world.now_ns(), &mut self.removed);
        }
    }

    /// The process ends, as by kill -9. Calling the returned function removes the links of its
    /// clients; until then they can read its memory, as a client of the same host reads memory that
    /// it has mapped.
    pub fn crash(&mut self) -> impl FnOnce() + use<> {
        self.show_logs();
        if let Some(incarnation) = &self.incarnation {
            let of_world = (&self.world, &*self.faults);
            self.disk.iter_mut().for_each(|disk| disk.crash(&incarnation.shards, of_world));
        }
        self.dies_ns = None;
        let sessions =
            self.incarnation.take().map_or(Vec::new(), |incarnation| incarnation.sessions);
        let world = self.world.clone();
        move || sessions.into_iter().for_each(|session| session.lose(&world))
    }

    /// Keeps a shard busy with one long step: it serves no client for this time, while the other
    /// shards continue, and so do heartbeats.
    pub fn occupy_shard(&mut self, shard: usize, for_ns: u64) {
        if let Some(incarnation) = &mut self.incarnation {
            incarnation.busy_until_ns[shard] = self.world.now_ns() + for_ns;
        }
    }

    /// Heartbeats say from now on that the server is so busy: parts per million.
    pub fn tell_utilisation(&mut self, ppm: u32) {
        self.told_ppm = ppm;
    }

    /// As [`Node::occupy_shard`], of any shard, for up to some seconds.
    fn occupy_any_shard(&mut self) {
        let (shard, for_ns) = self.world.draw(|random| {
            let longest = [500 * MS, 2_000 * MS, 7_000 * MS][random.below(3) as usize];
            (random.below(self.options.shards as u64), 1 + random.below(longest))
        });
        self.occupy_shard(shard as usize, for_ns);
    }

    /// Adds the probes of this incarnation's shards, if there is one.
    pub fn tell(&mut self, probes: &mut Probes) {
        for shard in self.incarnation.iter().flat_map(|incarnation| &incarnation.shards) {
            probes.add_shard(&shard.stats(), self.options.shard.buckets);
        }
        probes.add(Probe::ReplyHeld, std::mem::take(&mut self.held));
        self.disk.iter_mut().for_each(|disk| disk.tell_probes(probes));
    }

    /// How long a new incarnation waits before it serves, ns of its clock.
    pub fn waits_ns() -> u64 {
        (READ_LEASE_MS + READ_LEASE_MARGIN_MS) * MS
    }

    /// Lets go of some session, as when its connection breaks.
    pub fn lose_any_session(&mut self, draw: u64) {
        if let Some(incarnation) = &mut self.incarnation
            && !incarnation.sessions.is_empty()
        {
            incarnation.end(
                (draw % incarnation.sessions.len() as u64) as usize,
                &self.world,
                &self.time,
            );
        }
    }

    /// Ends the session of a client that has gone.
    pub fn end_session(&mut self, number: u64) {
        if let Some(incarnation) = &mut self.incarnation
            && let Some(at) =
                incarnation.sessions.iter().position(|session| session.number == number)
        {
            incarnation.end(at, &self.world, &self.time);
        }
    }

    /// Grants a session to a client with this clock.
    pub fn connect(&mut self, client: &HostClock) -> Option<Parts> {
        let incarnation = self.incarnation.as_mut()?;
        self.sessions += 1;
        let granting = Granting {
            incarnation: incarnation.number,
            shards: &incarnation.shards,
            journals: &incarnation.journals,
            options: &self.options.shard,
            pointers: &incarnation.pointers,
            replica_acks: self.options.replica_acks,
            view: &TurnView::of_primary(),
        };
        let (session, parts) = Session::grant(&self.world, &granting, self.sessions, client);
        incarnation.sessions.push(session);
        Some(parts)
    }

    /// Until when a shard is at one long step, virtual ns.
    pub fn busy_until_ns(&self, shard: usize) -> u64 {
        // A thread of a former incarnation may ask, of one with more shards.
        let busy = self.incarnation.as_ref().and_then(|now| now.busy_until_ns.get(shard));
        busy.copied().unwrap_or(0)
    }

    /// From now on only ticks release the memory of removed objects.
    pub fn release_in_ticks(&mut self) {
        self.options.release_percent = 0;
    }

    /// Takes jobs and serves every ring once. Whether there was anything to do.
    fn turn(&mut self) -> bool {
        let Some(incarnation) = &mut self.incarnation else { return false };
        let now = self.time.now(incarnation.began_ns);
        let is_free = incarnation.free_shards(&self.world);
        let percent = self.options.release_percent;
        let releases = || percent == 100 || self.world.draw(|random| random.below(100)) < percent;
        let mut worked = false;
        if let Some(disk) = &mut self.disk {
            let (world, faults, unix_ms) = (&self.world, &*self.faults, self.time.told_unix_ms());
            let of_turn = Turn { world, faults, is_free: &is_free, now, unix_ms };
            worked |= disk.turn((&mut incarnation.shards, &mut incarnation.acknowledging), of_turn);
            if self.dies_ns.is_none() && disk.hangs() {
                let lives_ns = world.draw(|random| {
                    let longest = LIVES_ON_NS[random.below(3) as usize];
                    random.within(&(1..=longest))
                });
                self.dies_ns = Some(world.now_ns() + lives_ns);
            }
            let rings = incarnation.sessions.iter().flat_map(|session| &session.rings);
            self.held += rings.map(|ring| ring.held_replies()).sum::<usize>().min(1) as u64;
        }
        for ((jobs, shard), _) in incarnation
            .jobs
            .iter_mut()
            .zip(&mut incarnation.shards)
            .zip(&is_free)
            .filter(|(_, free)| **free)
        {
            worked |= jobs.turn(shard, now);
            if shard.wants_release() && !jobs.is_held() && releases() {
                shard.release_some(now);
                worked = true;
            }
        }
        let takes = incarnation.take_commands(&self.world);
        for session in &mut incarnation.sessions {
            let rings = session.rings.iter_mut().zip(&mut incarnation.shards).zip(&takes);
            for ((ring, shard), _) in rings.filter(|(_, takes)| **takes) {
                match ring.turn(shard, now) {
                    Ok(frames) => worked |= frames > 0,
                    Err(error) => {
                        self.violations.extend(Some(error).filter(|of| !is_lost(of)));
                        session.violated.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        worked |= incarnation.feed((now, self.time.monotonic_ns()), &is_free);
        self.violations.append(&mut incarnation.violations);
        if let Some(rings) = &mut incarnation.rings {
            let shards =
                incarnation.shards.iter_mut().enumerate().filter(|(shard, _)| takes[*shard]);
            for (number, shard) in shards {
                let failed = |error| self.violations.push(error);
                worked |= rings.turn(number, (shard, now), self.world.now_ns(), failed);
            }
            rings.wake_signalled(&self.world);
        }
        while let Some(at) =
            incarnation.sessions.iter().position(|session| session.violated.load(Ordering::Relaxed))
        {
            incarnation.end(at, &self.world, &self.time);
        }
        worked
    }

    /// When something of the disk is due, virtual ns.
    fn disk_due_ns(&self) -> u64 {
        self.disk.as_ref().map_or(u64::MAX, Disk::due_ns)
    }

    fn has_work(&self) -> bool {
        let Some(incarnation) = &self.incarnation else { return false };
        let is_free = incarnation.free_shards(&self.world);
        (0..is_free.len()).filter(|&shard| is_free[shard]).any(|shard| {
            let mut sessions = incarnation.sessions.iter();
            let mut has_commands = || {
                incarnation.shards[shard].wants_release()
                    || incarnation.shards[shard].has_waiters_due()
                    || incarnation.rings.as_ref().is_some_and(|rings| rings.has_work(shard))
                    || sessions.any(|session| session.rings[shard].has_work())
            };
            let jobs = &incarnation.jobs[shard];
            jobs.has_work() || (!jobs.is_held() && has_commands())
        })
    }

    /// The work that is due every few milliseconds.
    fn tick(&mut self) {
        let Some(incarnation) = &mut self.incarnation else { return };
        let now = self.time.now(incarnation.began_ns);
        let percent = self.options.sweep_percent;
        let sweeps = || percent == 100 || self.world.draw(|random| random.below(100)) < percent;
        let takes = incarnation.take_commands(&self.world);
        for (shard, _) in incarnation.shards.iter_mut().zip(&takes).filter(|(_, takes)| **takes) {
            if sweeps() {
                shard.tick(now);
            }
        }
        for session in &mut incarnation.sessions {
            for (ring, shard) in session.rings.iter_mut().zip(&mut incarnation.shards) {
                if ring.abandon_stalled(shard, now).is_err() {
                    session.violated.store(true, Ordering::Relaxed);
                }
            }
            let of = (incarnation.number, self.options.shard.epoch);
            session.beat(of, (self.time.told_unix_ms(), Lag::PRIMARY), self.told_ppm);
        }
        if self.options.audits && self.world.draw(|random| random.below(AUDIT_TICKS)) == 0 {
            self.audit("while it served");
        }
        if self.faults.strikes(Fault::WallClock) {
            self.time.set_wall(self.world.draw(|random| {
                let by_ms = [30, 900, 5_000][random.below(3) as usize];
                random.below(2 * by_ms) as i64 - by_ms as i64
            }));
        }
        // After the heartbeats, as in production.
        self.time.follow();
    }

    /// Audits memory, and adds mismatches to `misfits`.
    pub fn audit(&mut self, when: &str) {
        let shards = self.incarnation.iter().flat_map(|of| of.shards.iter().zip(&of.jobs));
        // The key for which a shard is held has a record that is withheld.
        let whole = shards.filter(|(_, jobs)| !jobs.is_held());
        let misfits = whole.filter_map(|(shard, _)| shard.audit().err());
        self.misfits.extend(misfits.map(|misfit| format!("{when}: {misfit}")));
    }

    /// Ends this incarnation in order: all sessions end, all keys are removed, all
    /// leases run out. Nothing may be held by anybody after that.
    pub fn close(&mut self) {
        let Some(incarnation) = &mut self.incarnation else { return };
        while !incarnation.sessions.is_empty() {
            incarnation.end(0, &self.world, &self.time);
        }
        self.audit("after all sessions");
        let Some(incarnation) = &mut self.incarnation else { return };
        let mut now = self.time.now(incarnation.began_ns);
        for shard in &mut incarnation.shards {
            shard.abandon_snapshot();
            shard.set_keeps(true);
            shard.set_has_replicas(true);
            shard.execute(&Command::FlushAll, KeyHash(0), now);
            // Bounded: each turn releases something.
            while shard.wants_release() {
                shard.release_some(now);
            }
            now.since_start_s += 2 * LEASE_MAX_S;
            shard.tick(now);
            let stats = shard.stats();
            let SlotStats { used_bytes, quarantine_bytes, .. } = stats.slots;
            let held = stats.keys + stats.pinned + stats.ask_only + stats.staged_bytes;
            if used_bytes + quarantine_bytes + held > 0 {
                self.misfits.push(format!("left after FLUSHALL: {stats:?}"));
            }
        }
        self.audit("after FLUSHALL");
    }

    fn set_waiting(&mut self, task: Option<u64>) {
        if let Some(incarnation) = &mut self.incarnation
            && let Some(rings) = &mut incarnation.rings
        {
            match task {
                Some(task) => rings.announce(incarnation.shards.len(), task),
                None => rings.awake(),
            }
        }
        for session in self.incarnation.iter().flat_map(|incarnation| &incarnation.sessions) {
            session.target.set_waiting(task);
        }
        for jobs in self.incarnation.iter().flat_map(|incarnation| &incarnation.jobs) {
            jobs.set_waiting(task);
        }
    }

    /// The task that serves, for ever.
    pub fn run(node: &Rc<RefCell<Self>>) {
        let world = node.borrow().world.clone();
        let faults = Rc::clone(&node.borrow().faults);
        let task = crate::tasks::Coroutines.current().expect("it runs as a task");
        let (mut next_tick_ns, mut worked_ns) = (0, 0);
        loop {
            if world.now_ns() >= next_tick_ns {
                next_tick_ns = world.now_ns() + HEARTBEAT_MS * MS;
                node.borrow_mut().tick();
                node.borrow_mut().note_removed();
            }
            if faults.strikes(Fault::ServerStall) {
                faults.pause(&world, task, 1..=400 * MS);
            }
            if faults.strikes(Fault::ShardStall) {
                node.borrow_mut().occupy_any_shard();
            }
            let worked = node.borrow_mut().turn();
            node.borrow().show_logs();
            node.borrow_mut().note_removed();
            if worked {
                worked_ns = world.now_ns();
                // The time of the work.
                let takes_ns = world.draw(|random| random.within(&(200..=3_000)));
                world.suspend_until(task, world.now_ns() + takes_ns);
                continue;
            }
            if node.borrow().has_work() {
                world.suspend_until(task, world.now_ns() + 1_000);
                continue;
            }
            let feeds = node.borrow().incarnation.as_ref().is_some_and(Incarnation::feeds);
            if feeds && world.now_ns() - worked_ns < POLLS_NS {
                world.suspend_until(task, world.now_ns() + POLL_NS);
                continue;
            }
            node.borrow_mut().set_waiting(Some(task));
            if node.borrow().has_work() {
                // The last scan before sleeping has found it.
                node.borrow_mut().set_waiting(None);
                continue;
            }
            // What waits for a shard that is not free is looked at with the tick.
            let due_ns = node.borrow().disk_due_ns();
            let due_ns = if due_ns <= world.now_ns() { u64::MAX } else { due_ns };
            world.suspend_until(task, next_tick_ns.min(due_ns));
            node.borrow_mut().set_waiting(None);
        }
    }
}

impl Incarnation {
    /// The shards that do not execute a long step.
    fn free_shards(&self, world: &SimWorld) -> Vec<bool> {
        self.busy_until_ns.iter().map(|until_ns| *until_ns <= world.now_ns()).collect()
    }

    /// The shards that execute commands now: they are free, and not held for a change of two shards.
    fn take_commands(&self, world: &SimWorld) -> Vec<bool> {
        let is_free = self.free_shards(world);
        is_free.into_iter().zip(&self.jobs).map(|(free, jobs)| free && !jobs.is_held()).collect()
    }

    /// Gives up a session, and frees the shards' memory that its rings hold.
    fn end(&mut self, at: usize, world: &SimWorld, time: &NodeTime) {
        let now = time.now(self.began_ns);
        let mut session = self.sessions.remove(at);
        for (ring, shard) in session.rings.iter_mut().zip(&mut self.shards) {
            ring.abandon(shard, now);
        }
        session.lose(world);
    }
}
