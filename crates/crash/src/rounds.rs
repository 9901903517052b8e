//! The rounds: a server starts on the same directory, is checked, loaded, and ended in some way.

use crate::args::{CrashArgs, Durability};
use crate::history::Promise;
use crate::layer::{Fault, Layer};
use crate::load::{By, Round, ServerAddress, read_keys};
use crate::small_disk::{self, SmallDisk};
use crate::totals::Totals;
use crate::types::KeyType;
use crate::workload::Workload;
use anyhow::Context;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use remora_command_line::{ServerPlan, ServerProcess, Wake, note};
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const READERS: usize = 2;
const MAX_MEMORY_BYTES: u64 = 768 << 20;
const MOST_SHARDS: usize = 4;
/// `everysec` promises a power cut's survival to what is older than this.
const EVERYSEC: Duration = Duration::from_secs(2);
/// A server whose disk is good again writes by then.
const RESUME_LIMIT: Duration = Duration::from_secs(10);
/// One round of so many has a disk that the server fills, unless nothing is promised.
const SMALL_DISK_EVERY: u64 = 8;
const SMALL_DISK_AT: u64 = 4;
/// What such a disk has left when the server begins to fill it, bytes at most.
const MOST_LEFT: u64 = 1 << 20;
/// A snapshot follows on the last one after so many bytes of the log, in half of the rounds.
const SNAPSHOT_LOG_BYTES: u64 = 1 << 20;

/// How a round ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Kill,
    PowerCut,
    Clean,
    /// The power is cut once the server has ended.
    CleanThenCut,
}

impl fmt::Display for End {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Kill => "kill -9",
            Self::PowerCut => "power cut",
            Self::Clean => "clean end",
            Self::CleanThenCut => "clean end, then a power cut",
        })
    }
}

/// What a round does.
#[derive(Clone, Copy, Debug)]
struct Plan {
    load: Duration,
    disk: PlannedDisk,
    end: End,
    shards: usize,
    /// The server writes snapshots all the time.
    snapshots: bool,
}

/// What a round's disk does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlannedDisk {
    Good,
    /// The layer lets it be bad for a while.
    Bad(Fault),
    /// It is a small one, and full once the server has written so many bytes more.
    Small(u64),
}

impl fmt::Display for PlannedDisk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => Ok(()),
            Self::Bad(fault) => write!(out, ", {fault:?}"),
            Self::Small(_) => out.write_str(", a small disk was full"),
        }
    }
}

impl Plan {
    fn draw(args: &CrashArgs, rng: &mut ChaCha8Rng) -> Self {
        let end = match rng.random_range(0..8) {
            0..3 => End::Kill,
            3..6 => End::PowerCut,
            6 => End::Clean,
            _ => End::CleanThenCut,
        };
        let mut load =
            Duration::from_secs_f64(args.seconds_per_round * rng.random_range(0.05..1.0));
        // Else nothing of this round would be promised.
        if args.durability == Durability::Everysec && end == End::PowerCut && rng.random() {
            load += EVERYSEC;
        }
        let disk = match rng.random_range(0..16) {
            _ if args.durability == Durability::Memory => PlannedDisk::Good,
            0 => PlannedDisk::Bad(Fault::Full),
            1 => PlannedDisk::Bad(Fault::Write),
            2 => PlannedDisk::Bad(Fault::Sync),
            3 => PlannedDisk::Bad(Fault::Slow(rng.random_range(20..300))),
            _ => PlannedDisk::Good,
        };
        let shards = rng.random_range(1..=MOST_SHARDS);
        Self { load, disk, end, shards, snapshots: rng.random() }
    }

    /// The same on a small disk, where no snapshot makes room. The power of a tmpfs cannot be cut: it
    /// ends by `kill -9`.
    fn on_small_disk(self, rng: &mut ChaCha8Rng) -> Self {
        let disk = PlannedDisk::Small(rng.random_range(0..MOST_LEFT));
        Self { disk, end: End::Kill, snapshots: false, ..self }
    }
}

/// A run: what lives through all rounds.
pub struct Run<'a> {
    args: &'a CrashArgs,
    seed: u64,
    rng: ChaCha8Rng,
    data: PathBuf,
    layer: Layer,
    work: Workload,
    /// The tmpfs of this round.
    small_disk: Option<SmallDisk>,
    /// Why no small disk can be mounted.
    pub no_small_disks: Option<String>,
    /// What the end of the last round promises.
    promise: Promise,
    /// What has been counted so far.
    pub totals: Totals,
}

impl<'a> Run<'a> {
    /// A run over `data`, an empty directory that the layer watches.
    pub fn new(
        args: &'a CrashArgs,
        types: &[&'static dyn KeyType],
        seed: u64,
        data: PathBuf,
        layer: Layer,
    ) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let work = Workload::draw(types, &mut rng);
        let (promise, totals) = (Promise::Nothing, Totals::default());
        let (small_disk, no_small_disks) = (None, None);
        Self { args, seed, rng, data, layer, work, small_disk, no_small_disks, promise, totals }
    }

    /// Whether some of its rounds are to have a small disk. With `memory` a full disk stops nothing.
    pub fn wants_small_disks(&self) -> bool {
        self.args.durability != Durability::Memory && self.args.rounds >= SMALL_DISK_AT
    }

    /// What the next round does.
    fn plan(&mut self, round: u64) -> Plan {
        let plan = Plan::draw(self.args, &mut self.rng);
        let is_small = self.wants_small_disks()
            && self.no_small_disks.is_none()
            && round % SMALL_DISK_EVERY == SMALL_DISK_AT;
        if is_small { plan.on_small_disk(&mut self.rng) } else { plan }
    }

    /// All rounds, and a last look.
    pub fn run(&mut self) -> anyhow::Result<()> {
        for round in 1..=self.args.rounds {
            let plan = self.plan(round);
            let seed = self.seed;
            let context = || format!("round {round}, seed {seed}");
            if let PlannedDisk::Small(_) = plan.disk {
                self.small_disk = Some(SmallDisk::over(&self.data).with_context(context)?);
                self.totals.small_disks += 1;
            }
            let server = self.start(&plan).with_context(context)?;
            self.check(&server, round).with_context(context)?;
            let acknowledged = self.load(server, &plan).with_context(context)?;
            self.totals.rounds += 1;
            self.totals.acknowledged += acknowledged;
            note(&format!(
                "round {round}: {} shard(s), {acknowledged} acknowledged in {:.2} s{}{}, {}",
                plan.shards,
                plan.load.as_secs_f64(),
                if plan.snapshots { ", snapshots" } else { "" },
                plan.disk,
                plan.end
            ));
        }
        let disk = PlannedDisk::Good;
        let (load, end) = (Duration::ZERO, End::Clean);
        let plan = Plan { load, disk, end, shards: 1, snapshots: false };
        let seed = self.seed;
        let context = || format!("after the last round, seed {seed}");
        let server = self.start(&plan).with_context(context)?;
        self.check(&server, self.args.rounds + 1).with_context(context)?;
        server.terminate().with_context(context)?;
        self.check_restored(&plan).with_context(context)
    }

    /// A backup of the directory, and what is restored from it, hold the same.
    fn check_restored(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let [backup, restored] = ["backup", "restored"].map(|name| self.data.with_file_name(name));
        let command = |words: &[&OsStr]| {
            let output = Command::new(std::env::current_exe()?).args(words).output()?;
            let err = String::from_utf8_lossy(&output.stderr);
            anyhow::ensure!(output.status.success(), "{}: {err}", words[0].display());
            Ok(())
        };
        let word = OsStr::new;
        command(&[
            word("backup"),
            word("--data-dir"),
            self.data.as_os_str(),
            word("--to"),
            backup.as_os_str(),
        ])?;
        command(&[word("restore"), backup.as_os_str(), word("--data-dir"), restored.as_os_str()])?;
        if self.args.durability != Durability::Memory {
            self.promise = Promise::All;
        }
        self.data = restored;
        let server = ServerProcess::start_in(&self.serve_args(plan), &[])?;
        self.check(&server, self.args.rounds + 2)?;
        server.terminate()
    }

    fn serve_args(&self, plan: &Plan) -> Vec<String> {
        let serve = ServerPlan {
            port: 0,
            shards: plan.shards,
            max_memory_bytes: MAX_MEMORY_BYTES,
            buckets: 0,
            wake: Wake::Hybrid,
            pin: false,
            over_tcp: false,
            lease_min_ms: 1000,
            // Its own flags follow.
            durability: None,
            speaks_mongo: false,
        };
        let mut args = serve.serve_args();
        args.push(format!("--data-dir={}", self.data.display()));
        args.push(format!("--durability={}", self.args.durability));
        if plan.snapshots {
            args.push(format!("--snapshot-log-bytes={SNAPSHOT_LOG_BYTES}"));
        }
        args
    }

    fn start(&self, plan: &Plan) -> anyhow::Result<ServerProcess> {
        self.layer.set_fault(None)?;
        let args = self.serve_args(plan);
        match self.small_disk {
            Some(_) => ServerProcess::start_in(&args, &[]),
            None => ServerProcess::start_in(&args, &self.layer.environment()),
        }
    }

    /// Looks at all keys and judges what they hold.
    fn check(&mut self, server: &ServerProcess, round: u64) -> anyhow::Result<()> {
        let at = format!("round {round}, seed {}", self.seed);
        self.work.judge(&place(server), self.promise, &mut self.totals, &at)
    }

    /// Loads the server until its end. Returns how many changes were acknowledged.
    fn load(&mut self, server: ServerProcess, plan: &Plan) -> anyhow::Result<u64> {
        let round = Round {
            keys: &self.work.keys,
            place: place(&server),
            is_ending: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            // A small disk may be full at any moment.
            may_refuse: AtomicBool::new(self.small_disk.is_some()),
            acknowledged: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            problems: Mutex::default(),
        };
        if let Some(disk) = &self.small_disk {
            small_disk::prepare(&round.place, disk)?;
        }
        let seeds: [u64; READERS] = self.rng.random();
        let (writers, layer, small_disk) = (&mut self.work.writers, &self.layer, &self.small_disk);
        let durability = self.args.durability;
        let ended: anyhow::Result<_> = std::thread::scope(|scope| {
            for writer in writers {
                scope.spawn(|| writer.run(&round));
            }
            for (at, seed) in seeds.into_iter().enumerate() {
                let (by, round) = (if at % 2 == 0 { By::Resp } else { By::Client }, &round);
                scope.spawn(move || read_keys(by, round, seed));
            }
            std::thread::sleep(plan.load);
            let bad = match (plan.disk, small_disk) {
                (PlannedDisk::Bad(fault), _) => Some(bad_disk(&round, layer, fault, durability)),
                (PlannedDisk::Small(left), Some(disk)) => {
                    let began = Instant::now();
                    let ended = small_disk::fill_up(&round, disk, left, RESUME_LIMIT);
                    Some(ended.map(|()| began))
                }
                _ => None,
            };
            let late = longest_sync(&round.place).unwrap_or_default();
            // The threads end with the server, whatever failed here.
            round.is_ending.store(true, Ordering::Relaxed);
            let cut_at = Instant::now();
            match plan.end {
                End::Clean | End::CleanThenCut => server.terminate()?,
                End::Kill | End::PowerCut => server.kill()?,
            }
            Ok((bad.transpose()?, cut_at, late))
        });
        let (bad_since, cut_at, late) = ended?;
        self.promise = match (durability, plan.end, bad_since) {
            (Durability::Memory, ..) => Promise::Nothing,
            (Durability::Everysec, End::PowerCut, began) => {
                // A sync that takes long delays the next one.
                Promise::Until(began.unwrap_or(cut_at) - EVERYSEC - late)
            }
            _ => Promise::All,
        };
        self.totals.stale += round.stale.into_inner();
        for problem in round.problems.into_inner().expect("no thread panicked with it") {
            self.totals.problems += 1;
            note(&format!("seed {}: {problem}", self.seed));
        }
        let acknowledged = round.acknowledged.into_inner();
        self.end_of_disk(plan)?;
        Ok(acknowledged)
    }

    /// What the end of a round does to the directory.
    fn end_of_disk(&mut self, plan: &Plan) -> anyhow::Result<()> {
        if let Some(disk) = self.small_disk.take() {
            disk.end()?;
            return self.layer.begin_anew();
        }
        self.layer.follow()?;
        match plan.end {
            End::PowerCut => self.layer.cut(&mut self.rng),
            End::Clean => self.layer.check_seen(),
            End::CleanThenCut => {
                self.layer.check_seen()?;
                self.layer.cut(&mut self.rng)
            }
            End::Kill => self.layer.add_unnoted(),
        }
    }

    /// Whether the layer saw syncs, without which its cuts would prove nothing.
    pub fn saw_syncs(&self) -> bool {
        self.layer.syncs() > 0
    }
}

fn place(server: &ServerProcess) -> ServerAddress {
    let (resp, socket) = (server.resp_address(), server.socket_path().to_owned());
    ServerAddress { resp, socket, fabric: None }
}

/// The longest sync of the server so far, as it says itself.
fn longest_sync(place: &ServerAddress) -> Option<Duration> {
    let text = place.info("persistence").ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, ms) = fields.find(|(name, _)| *name == "log_longest_sync_ms")?;
    Some(Duration::from_secs_f64(ms.trim().parse::<f64>().ok()? / 1000.0))
}

/// A disk that is bad for a while. The server has to stop acknowledging, and to go on afterwards.
/// Returns when it began.
fn bad_disk(
    round: &Round<'_>,
    layer: &Layer,
    fault: Fault,
    durability: Durability,
) -> anyhow::Result<Instant> {
    /// Replies to what was synced before are on their way for less than this.
    const BEGINS: Duration = Duration::from_millis(200);
    const LASTS: Duration = Duration::from_millis(300);
    let failed_before = layer.failures()?;
    let has_failed = || Ok::<_, anyhow::Error>(layer.failures()? > failed_before);
    round.may_refuse.store(true, Ordering::Relaxed);
    let began = Instant::now();
    layer.set_fault(Some(fault))?;
    while !has_failed()? && began.elapsed() < LASTS {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(BEGINS);
    let (has_failed, before) = (has_failed()?, round.acknowledged.load(Ordering::Relaxed));
    std::thread::sleep(LASTS);
    let during = round.acknowledged.load(Ordering::Relaxed) - before;
    if durability == Durability::Fsync && has_failed && during > 0 {
        round.problem(format!("{during} changes acknowledged while the disk was bad ({fault:?})"));
    }
    layer.set_fault(None)?;
    round.waits_for_changes(RESUME_LIMIT, &format!("the disk was good again ({fault:?})"));
    std::thread::sleep(BEGINS);
    Ok(began)
}
