//! The disk of a simulated server: production code over a simulated volume. Here is what a world
//! adds: the time of writes and syncs, what goes wrong with them, and what a crash leaves.
//!
//! Invariant: what a shard was told to be durable is there after every crash that the durability
//! promises to survive, and all that is there was written ([`Disk::broken`]). Whether anybody saw
//! more, the checkers of the history judge.

mod recovery;
mod snapshots;
mod swarm;
mod trouble;

pub use swarm::DiskSwarm;
use swarm::SLOWEST_NS;

use crate::faults::{Fault, Faults};
use crate::probes::{Probe, Probes};
use remora_engine::{Now, Shard};
use remora_fabric::sim::{SimJournal, SimWorld};
use remora_server::acknowledging::Acknowledging;
use remora_server::disk::RunSource;
use remora_storage::sim::{DiskFault, SimFile, SimVolume};
use remora_storage::{GroupCommit, Identity, Promise, Run, Sync};
use snapshots::Snapshots;
use std::io;
use trouble::Trouble;

const MS: u64 = 1_000_000;
/// Which data these are.
pub const IDENTITY: Identity = Identity { cluster: 0x1e55, secret: 0x5ec3e7 };

/// The shards, and what each waits for, if there are replicas.
pub type OfShards<'a> = (&'a mut [Shard<SimJournal>], &'a mut [Acknowledging]);

/// The time of a turn.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    /// The world.
    pub world: &'a SimWorld,
    /// Its faults.
    pub faults: &'a Faults,
    /// Shards that are not at one long step.
    pub is_free: &'a [bool],
    /// The shards' time.
    pub now: Now,
    /// The clock as heartbeats tell it.
    pub unix_ms: u64,
}

/// See the module's text.
pub struct Disk {
    swarm: DiskSwarm,
    volume: SimVolume,
    running: Option<Running>,
    /// What the last process knew at its end.
    lived: Option<Lived>,
    /// By shard, the last entry of the process before that was found.
    kept: Vec<u64>,
    trouble: Trouble,
    /// Since when nothing becomes durable, virtual ns.
    failed_ns: Option<u64>,
    /// It hangs for good.
    hangs: bool,
    /// It refused something once.
    had_trouble: bool,
    /// Promises that were broken.
    pub broken: Vec<String>,
    /// Changes that were lost.
    pub lost: u64,
    probes: Probes,
}

/// The log of one incarnation.
struct Running {
    epoch: u64,
    commit: GroupCommit<SimVolume>,
    sources: Vec<RunSource>,
    snapshots: Snapshots,
    /// A write under way: when it is done.
    write: Option<(u64, Vec<Run>)>,
    sync: Option<UnderWay>,
    /// By shard, what it was told: the last durable sequence, and whether changes are kept.
    told: Vec<(u64, bool)>,
    is_failing: bool,
}

/// What a process knew at its end.
struct Lived {
    /// Its epoch.
    epoch: u64,
    /// By shard, the last sequence that was told to be durable.
    durable: Vec<u64>,
    /// By shard, the last sequence.
    last: Vec<u64>,
}

/// A sync under way.
struct UnderWay {
    due_ns: u64,
    sync: Sync<SimFile>,
    /// What it came to, if that was decided at its beginning.
    result: Option<io::Result<()>>,
}

impl Disk {
    /// An empty disk.
    pub fn new(swarm: DiskSwarm) -> Self {
        Self {
            swarm,
            volume: SimVolume::default(),
            running: None,
            lived: None,
            kept: Vec::new(),
            trouble: Trouble::default(),
            failed_ns: None,
            hangs: false,
            had_trouble: false,
            broken: Vec::new(),
            lost: 0,
            probes: Probes::default(),
        }
    }

    /// Lets everything happen that is due. Whether there was something.
    pub fn turn(&mut self, (shards, acknowledging): OfShards<'_>, of: Turn<'_>) -> bool {
        if self.hangs || self.running.is_none() {
            return false;
        }
        self.trouble.end_if_due(&self.volume, (of.world, of.faults));
        let mut worked = self.end_sync(of);
        worked |= self.end_write(of);
        worked |= self.begin_write(shards, of);
        worked |= self.begin_sync(of);
        if self.hangs {
            return worked;
        }
        worked |= self.mend(of);
        worked |= self.tell((shards, acknowledging), of.is_free);
        worked | self.take_snapshot(shards, of)
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("the process lives")
    }

    /// How long a write or a sync takes, ns. `None`: for ever.
    fn takes_ns(&mut self, of: Turn<'_>) -> Option<u64> {
        let Turn { world, faults, .. } = of;
        if faults.strikes(Fault::DiskFailed) {
            self.hang(world);
            return None;
        }
        let longest = match faults.strikes(Fault::DiskStall) {
            true => world.draw(|random| [5, 500, 7_000][random.below(3) as usize]) * MS,
            false => *self.swarm.flush_ns.end(),
        };
        let takes = *self.swarm.flush_ns.start()..=longest;
        Some(world.draw(|random| random.within(&takes)))
    }

    /// Takes what the shards have, as a group to be written.
    fn begin_write(&mut self, shards: &mut [Shard<SimJournal>], of: Turn<'_>) -> bool {
        let (swarm, running) = (self.swarm.clone(), self.running());
        // With the weaker promise another thread syncs.
        let writes_beside = swarm.writes_beside || swarm.promise == Promise::Written;
        let is_busy = running.write.is_some() || (running.sync.is_some() && !writes_beside);
        if is_busy || !running.commit.wants_runs() {
            return false;
        }
        let mut runs = Vec::new();
        let of_shards = running.sources.iter_mut().zip(shards).zip(of.is_free);
        for ((source, shard), _) in of_shards.filter(|(_, is_free)| **is_free) {
            // Some of what there is, if runs are short.
            for _ in 0..8 {
                let taken = source.next_run(shard, swarm.run_bytes, Vec::new());
                runs.extend(taken.expect("the log is held"));
                if source.has_taken_all(shard) {
                    break;
                }
            }
        }
        if runs.is_empty() {
            return false;
        }
        let Some(takes_ns) = self.takes_ns(of) else { return true };
        self.trouble.may_strike(&self.volume, &trouble::OF_WRITES, (of.world, of.faults));
        self.running().write = Some((of.world.now_ns() + takes_ns, runs));
        true
    }

    fn end_write(&mut self, of: Turn<'_>) -> bool {
        let now_ns = of.world.now_ns();
        let Some((_, runs)) = self.running().write.take_if(|(due_ns, _)| *due_ns <= now_ns) else {
            return false;
        };
        let written = self.running().commit.write(runs, of.unix_ms, now_ns / MS);
        self.note(&written, of.world);
        true
    }

    fn begin_sync(&mut self, of: Turn<'_>) -> bool {
        let (world, running) = (of.world, self.running.as_mut().expect("the process lives"));
        let is_beside = self.swarm.promise == Promise::Written;
        if running.write.is_some() && !self.swarm.writes_beside && !is_beside {
            return false;
        }
        let Some(sync) = running.commit.sync_due(world.now_ns() / MS) else { return false };
        let Some(takes_ns) = self.takes_ns(of) else { return true };
        self.trouble.may_strike(&self.volume, &trouble::OF_SYNCS, (world, of.faults));
        // What is written meanwhile may be on the disk by then, or not.
        let is_early = world.draw(|random| random.below(2)) == 0;
        let slow_ns = (takes_ns * self.swarm.slow_syncs).min(SLOWEST_NS);
        let takes_ns = if is_beside { slow_ns } else { takes_ns };
        let (due_ns, result) = (world.now_ns() + takes_ns, is_early.then(|| sync.run()));
        self.running().sync = Some(UnderWay { due_ns, sync, result });
        true
    }

    fn end_sync(&mut self, of: Turn<'_>) -> bool {
        let now_ns = of.world.now_ns();
        let running = self.running();
        let Some(done) = running.sync.take_if(|sync| sync.due_ns <= now_ns) else { return false };
        let result = done.result.unwrap_or_else(|| done.sync.run());
        let segment = running.commit.writer().number();
        let ended = running.commit.end_sync(&done.sync, result, now_ns / MS);
        let has_gone_on = ended.is_ok() && running.commit.writer().number() > segment;
        self.probes.add(Probe::SegmentBegun, has_gone_on as u64);
        self.note(&ended, of.world);
        true
    }

    fn mend(&mut self, of: Turn<'_>) -> bool {
        let now_ms = of.world.now_ns() / MS;
        let running = self.running();
        if running.write.is_some() || !running.commit.mend_due(now_ms) {
            return false;
        }
        let mended = running.commit.mend(of.unix_ms, now_ms);
        self.note(&mended, of.world);
        true
    }

    /// The disk refuses, or works.
    fn note(&mut self, result: &io::Result<()>, world: &SimWorld) {
        let running = self.running.as_mut().expect("the process lives");
        if result.is_err() {
            if !running.is_failing {
                self.probes.add(Probe::DiskRefused, 1);
            }
            (running.is_failing, self.had_trouble) = (true, true);
            self.failed_ns = self.failed_ns.or(Some(world.now_ns()));
        } else if running.is_failing && !running.commit.writer().has_failed() {
            running.is_failing = false;
            self.failed_ns = None;
            self.probes.add(Probe::DiskMended, 1);
        }
    }

    /// Tells the shards that are free. Whether there was something new.
    fn tell(&mut self, (shards, acknowledging): OfShards<'_>, is_free: &[bool]) -> bool {
        let running = self.running.as_mut().expect("the process lives");
        let mut has_told = false;
        for (number, shard) in shards.iter_mut().enumerate().filter(|(at, _)| is_free[*at]) {
            let (durable, keeps) = &mut running.told[number];
            if *keeps == running.is_failing {
                *keeps = !running.is_failing;
                shard.set_keeps(*keeps);
                has_told = true;
            }
            let now_durable = running.commit.durable(number);
            if now_durable > *durable {
                *durable = now_durable;
                match acknowledging.get_mut(number) {
                    Some(acknowledging) => acknowledging.set_kept(shard, now_durable),
                    None => shard.set_durable(now_durable),
                }
                has_told = true;
            }
        }
        has_told
    }

    fn take_snapshot(&mut self, shards: &mut [Shard<SimJournal>], of: Turn<'_>) -> bool {
        let running = self.running.as_mut().expect("the process lives");
        if let Some(covered) = running.snapshots.take_covered() {
            // What cannot be removed stays.
            let dropped = running.commit.drop_covered(&covered).unwrap_or(0);
            self.probes.add(Probe::SegmentDropped, dropped as u64);
        }
        if running.snapshots.due_ns() <= of.world.now_ns() && !of.faults.are_stopped() {
            self.trouble.may_strike(&self.volume, &trouble::OF_SNAPSHOTS, (of.world, of.faults));
        }
        let commit = &running.commit;
        let synced = |shard| commit.synced(shard);
        let of_world = (of.world, &self.swarm, &mut self.probes);
        running.snapshots.turn(shards, (of.is_free, of.now, of.unix_ms), synced, of_world)
    }

    /// It hangs: nothing becomes durable until the process dies.
    pub fn hang(&mut self, world: &SimWorld) {
        self.hangs = true;
        self.failed_ns = self.failed_ns.or(Some(world.now_ns()));
    }

    /// Whether it does.
    pub fn hangs(&self) -> bool {
        self.hangs
    }

    /// Since when nothing becomes durable, virtual ns; `None` while it works.
    pub fn failed_ns(&self) -> Option<u64> {
        self.failed_ns
    }

    /// Whether it refused something once.
    pub fn had_trouble(&self) -> bool {
        self.had_trouble
    }

    /// By shard, the last entry of the process before that was found; none at the first start.
    pub fn kept(&self) -> &[u64] {
        &self.kept
    }

    /// When something is due next, virtual ns.
    pub fn due_ns(&self) -> u64 {
        let Some(running) = self.running.as_ref().filter(|_| !self.hangs) else { return u64::MAX };
        let write_ns = running.write.as_ref().map(|(due_ns, _)| *due_ns);
        let sync_ns = running.sync.as_ref().map(|sync| sync.due_ns);
        let idle_ns = running.commit.idle_until_ms().map(|until_ms| until_ms * MS);
        let idle_ns = idle_ns.filter(|_| write_ns.is_none() && sync_ns.is_none());
        let all = [write_ns, sync_ns, idle_ns, self.trouble.until_ns()];
        let soonest = all.into_iter().flatten().min().unwrap_or(u64::MAX);
        soonest.min(running.snapshots.due_ns())
    }

    /// The process dies; now and then the power is cut.
    pub fn crash(&mut self, shards: &[Shard<SimJournal>], (world, faults): (&SimWorld, &Faults)) {
        let Some(mut running) = self.running.take() else { return };
        let in_snapshot = running.snapshots.is_under_way();
        self.probes.add(Probe::SnapshotInterrupted, in_snapshot as u64);
        if let Some((_, runs)) = running.write.take() {
            // None of a write that is under way, half of it, or all.
            let how_much = world.draw(|random| random.below(3));
            if how_much == 1 && self.volume.fault() == DiskFault::None {
                self.volume.set_fault(DiskFault::Write);
            }
            if how_much > 0 {
                let _ = running.commit.write(runs, 0, 0);
            }
        }
        self.lived = Some(Lived {
            epoch: running.epoch,
            durable: running.told.iter().map(|&(durable, _)| durable).collect(),
            last: shards.iter().map(Shard::last_sequence).collect(),
        });
        self.leave((world, faults));
        (self.trouble, self.failed_ns, self.hangs) = (Trouble::default(), None, false);
    }

    /// The volume as the next process finds it.
    fn leave(&mut self, (world, faults): (&SimWorld, &Faults)) {
        let survives_power_cut = self.swarm.promise == Promise::Synced;
        self.volume = match survives_power_cut && faults.strikes(Fault::PowerCut) {
            true => world.draw(|random| self.volume.after_power_cut(&mut |of| random.below(of))),
            false => self.volume.after_kill(),
        };
    }

    /// Moves what happened to `probes`.
    pub fn tell_probes(&mut self, probes: &mut Probes) {
        probes.add_all(&std::mem::take(&mut self.probes));
        probes.add(Probe::ChangeLost, std::mem::take(&mut self.lost));
    }
}
