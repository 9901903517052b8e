//! The rounds of a run with a cluster.

use super::failover::{self, Parts};
use super::members::{ClusterPlan, Members};
use super::plan::{Deck, Kind, Plan};
use super::readers::read_from;
use super::round::Round;
use super::writers::Writer;
use crate::args::{CrashArgs, Durability};
use crate::history::Promise;
use crate::load::{By, Key, ServerAddress};
use crate::network::{self, Network};
use crate::state::State;
use crate::totals::Totals;
use crate::types::KeyType;
use crate::workload::{draw_keys, judge, tell};
use anyhow::Context;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use remora_client::{Path, Session};
use remora_command_line::{Connection, note, usage};
use remora_zookeeper::LocalServer;
use rustix::process::Signal;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// Changes are acknowledged again by then, behind the end of a session.
const RESUME_LIMIT: Duration = Duration::from_secs(20);
/// All servers are in sync again by then.
const WHOLE_LIMIT: Duration = Duration::from_secs(60);
/// Load behind a fault.
const AFTERWARDS: Duration = Duration::from_millis(200);
/// What servers received before all connections ended is carried out by then.
const SETTLES: Duration = Duration::from_millis(500);
/// What servers have logged has come by then.
const LOGS_LIMIT: Duration = Duration::from_secs(5);
/// Keys of a round whose losses are printed.
const MOST_TOLD: usize = 8;

/// Runs the command with a cluster.
///
/// # Errors
/// Something was lost or stale, or a server did what it should not; a part did not run.
pub fn run(args: &CrashArgs, types: &[&'static dyn KeyType]) -> anyhow::Result<()> {
    LocalServer::check().map_err(|error| usage(error.to_string()))?;
    let mut no_links = None;
    if !args.in_network_namespace && !args.without_links {
        no_links = Some(network::enter(network::FLAG)?);
    }
    let seed = args.seed.unwrap_or_else(rand::random);
    note(&format!("seed {seed}"));
    let base = tempfile::Builder::new().prefix("remora-crash-").tempdir()?;
    let path = base.path().canonicalize().context("finding the temporary directory")?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let servers = args.replicas() as usize + 1;
    // One more, for ZooKeeper.
    let network = args.in_network_namespace.then(|| Network::build(servers + 1)).transpose()?;
    let settings = ClusterPlan {
        min_replicas: args.min_replicas(),
        durability: args.durability,
        session_ms: args.session_ms,
        over_tcp: network.as_ref().map(|_| rng.random_range(0..2)),
        groups: 1,
    };
    let deck = deck_of(args, network.is_some())?;
    let (keys, owned) = draw_keys(types);
    let writers = owned.into_iter().map(|(by, own)| Writer::new(by, own, rng.random())).collect();
    let members = Members::start(servers, settings, (network, &path))?;
    let mut run = Run {
        args,
        settings,
        seed,
        rng,
        members,
        keys,
        writers,
        deck,
        totals: Totals::default(),
        unknown: 0,
        reads: 0,
        failovers: Vec::new(),
    };
    let ended = run.run();
    let is_good = ended.is_ok() && run.totals.are_good();
    if !is_good {
        run.members.note_state();
        note(&format!("the servers' directories stay: {}", base.keep().display()));
    }
    run.print(no_links.as_deref())?;
    ended?;
    run.totals.verdict(seed)?;
    match no_links {
        Some(reason) => {
            Err(usage(format!("no links were cut: {reason}; --without-links leaves cuts out")))
        }
        None => Ok(()),
    }
}

/// The faults that a run may have.
fn deck_of(args: &CrashArgs, can_cut: bool) -> anyhow::Result<Deck> {
    let has_fsync = args.durability == Durability::Fsync;
    match args.faults.iter().find(|kind| kind.needs_fsync() && !has_fsync) {
        None => Ok(Deck::new(&args.faults, can_cut, has_fsync)),
        Some(kind) => Err(usage(format!(
            "--faults={kind} needs --durability fsync: else what was acknowledged may be on no disk"
        ))),
    }
}

/// What lives through all rounds.
struct Run<'a> {
    args: &'a CrashArgs,
    settings: ClusterPlan,
    seed: u64,
    rng: ChaCha8Rng,
    members: Members,
    keys: Vec<Key>,
    writers: Vec<Writer>,
    deck: Deck,
    totals: Totals,
    /// Changes whose reply was lost.
    unknown: u64,
    /// Answers to readers.
    reads: u64,
    /// Of each primary that was killed: how long it took, and why.
    failovers: Vec<Parts>,
}

impl Run<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        for round in 1..=self.args.rounds {
            let seed = self.seed;
            self.round(round).with_context(|| format!("round {round}, seed {seed}"))?;
        }
        self.members.terminate()
    }

    fn session(&self) -> Duration {
        Duration::from_millis(self.settings.session_ms)
    }

    fn round(&mut self, round: u64) -> anyhow::Result<()> {
        let at = format!("round {round}, seed {}", self.seed);
        let before = self.members.wait_until_whole(WHOLE_LIMIT)?;
        let primary = before.primary.context("no primary")?;
        let kind = self.deck.draw(&mut self.rng).context("no fault can be had here")?;
        let times = (self.args.seconds_per_round, self.session());
        let plan = Plan::draw(kind, (primary, &before.in_sync), times, &mut self.rng);
        let began = Instant::now();
        let acknowledged = self.load(&plan)?;
        let after = self.members.wait_until_whole(WHOLE_LIMIT)?;
        std::thread::sleep(SETTLES);
        self.judge(&at)?;
        self.totals.rounds += 1;
        self.totals.failovers += after.epoch - before.epoch;
        self.totals.acknowledged += acknowledged;
        let leads = match after.epoch - before.epoch {
            0 => String::new(),
            _ => format!(", server {} leads epoch {}", after.primary.unwrap_or(0), after.epoch),
        };
        note(&format!(
            "round {round}: {plan}{leads}, {acknowledged} acknowledged, {:.1} s",
            began.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    /// Loads the servers until the fault is over and changes are taken again. Returns how many changes
    /// were acknowledged.
    fn load(&mut self, plan: &Plan) -> anyhow::Result<u64> {
        let places: Vec<ServerAddress> = self.members.places()?;
        let round = Round::new(&self.keys, &places);
        let readers: Vec<(usize, By, u64)> = (0..places.len())
            .flat_map(|server| [(server, By::Resp), (server, By::Client)])
            .map(|(server, by)| (server, by, self.rng.random()))
            .collect();
        let (writers, members) = (&mut self.writers, &mut self.members);
        let limit = RESUME_LIMIT + Duration::from_millis(self.settings.session_ms);
        let suffered = std::thread::scope(|scope| {
            let round = &round;
            for writer in writers {
                scope.spawn(|| writer.run(round));
            }
            for (server, by, seed) in readers {
                scope.spawn(move || read_from(server, by, seed, round));
            }
            std::thread::sleep(plan.load);
            let suffered = suffer(members, plan, round, limit);
            std::thread::sleep(AFTERWARDS);
            // The threads end, whatever failed here.
            round.stops.store(true, Ordering::Relaxed);
            suffered
        });
        self.failovers.extend(suffered?);
        self.unknown += round.unknown.into_inner();
        self.reads += round.reads.into_inner();
        self.totals.stale += round.stale.into_inner();
        self.totals.lost += round.lost.into_inner();
        for problem in round.problems.into_inner().expect("no thread panicked with it") {
            self.totals.problems += 1;
            note(&format!("seed {}: {problem}", self.seed));
        }
        Ok(round.acknowledged.into_inner())
    }

    /// Looks at all keys, and judges what they hold: all that was acknowledged or seen.
    fn judge(&mut self, at: &str) -> anyhow::Result<()> {
        let (mut primary, mut told) = (reach_primary(&self.members)?, 0);
        for writer in &mut self.writers {
            let sent: Vec<(usize, State)> =
                writer.states().map(|(key, state)| (key, state.clone())).collect();
            for (number, last_sent) in sent {
                let key = &self.keys[number];
                let began = Instant::now();
                let (found, verdict) = loop {
                    let by = (&mut primary.0, &mut primary.1);
                    match judge(key, by, Promise::All, &mut self.totals) {
                        Ok(judged) => break judged,
                        Err(error) if began.elapsed() > WHOLE_LIMIT => return Err(error),
                        // Its lease has lapsed for a moment, or another one leads.
                        Err(_) => primary = reach_primary(&self.members)?,
                    }
                };
                if let Some(verdict) = verdict.filter(|_| told < MOST_TOLD) {
                    told += 1;
                    let words = tell(verdict, &last_sent, &found);
                    note(&format!("{at}: key {}: {words}", key.name.escape_ascii()));
                }
                writer.settle(number, found);
            }
        }
        Ok(())
    }

    /// What was counted, for people or as JSON.
    fn print(&self, no_links: Option<&str>) -> anyhow::Result<()> {
        let totals = &self.totals;
        let parts = failover::summary(&self.failovers);
        let mut out = std::io::stdout().lock();
        if !self.args.json {
            note(&format!(
                "min_replicas {}, sessions of {} ms: {} change(s) whose reply was lost, {} reads",
                self.settings.min_replicas, self.settings.session_ms, self.unknown, self.reads
            ));
            if !self.failovers.is_empty() {
                note(&format!("{} kills of a primary, median and worst:", self.failovers.len()));
                for (name, median, worst) in parts {
                    note(&format!("  {name:13} {median:8.1} {worst:8.1}"));
                }
            }
            writeln!(out, "{totals}")?;
            return Ok(());
        }
        let of =
            |(name, median, worst)| (name, serde_json::json!({ "median": median, "worst": worst }));
        let mut parts: std::collections::BTreeMap<&str, serde_json::Value> =
            parts.into_iter().map(of).collect();
        parts.insert("kills", self.failovers.len().into());
        let fields = serde_json::json!({
            "durability": self.args.durability.to_string(),
            "replicas": self.members.count() - 1,
            "min_replicas": self.settings.min_replicas,
            "session_ms": self.settings.session_ms,
            "seed": self.seed,
            "rounds": totals.rounds,
            "failovers": totals.failovers,
            "acknowledged": totals.acknowledged,
            "unknown": self.unknown,
            "lost": totals.lost,
            "stale": totals.stale,
            "problems": totals.problems,
            "reads": self.reads,
            "links_reason": no_links,
            "failover": parts,
        });
        writeln!(out, "{fields}")?;
        Ok(())
    }
}

/// The parts of a failover. The last log lines of the servers may be a moment behind.
fn take_apart(members: &Members, killed: SystemTime, came: SystemTime) -> Option<Parts> {
    let began = Instant::now();
    loop {
        let parts = failover::parts(killed, came, &members.logs());
        if parts.is_some() || began.elapsed() > LOGS_LIMIT {
            return parts;
        }
        std::thread::sleep(SETTLES);
    }
}

/// Connections to the server that leads. Another one may lead at any moment, on a busy machine.
fn reach_primary(members: &Members) -> anyhow::Result<(Connection, Session)> {
    let began = Instant::now();
    loop {
        let status = members.wait_until_whole(WHOLE_LIMIT)?;
        let place = &members.places()?[status.primary.context("no primary")?];
        let connect = || anyhow::Ok((place.resp()?, place.session(Path::Read)?));
        match connect() {
            Err(_) if began.elapsed() < WHOLE_LIMIT => std::thread::sleep(SETTLES),
            reached => return reached,
        }
    }
}

/// All servers die, and come back. Without the one that led nothing may be acknowledged.
fn kill_group(
    members: &mut Members,
    plan: &Plan,
    round: &Round<'_>,
    limit: Duration,
) -> anyhow::Result<()> {
    let all = 0..members.count();
    // All at once, and then each is waited for.
    all.clone().try_for_each(|number| members.signal(number, Signal::KILL))?;
    all.clone().try_for_each(|number| members.kill(number))?;
    round.await_change(usize::MAX);
    all.filter(|number| *number != plan.server).try_for_each(|number| members.begin(number))?;
    std::thread::sleep(plan.lasts);
    members.begin(plan.server)?;
    round.wait_for_change(limit, &format!("the fault: {plan}"));
    Ok(())
}

/// The fault of a round, and how it ends: afterwards all servers and ZooKeeper are there, and changes
/// are acknowledged. How long a failover took, if a primary was killed.
fn suffer(
    members: &mut Members,
    plan: &Plan,
    round: &Round<'_>,
    limit: Duration,
) -> anyhow::Result<Option<Parts>> {
    let (server, what) = (plan.server, format!("the fault: {plan}"));
    let mut parts = None;
    match plan.kind {
        Kind::KillPrimary => {
            let killed = SystemTime::now();
            members.kill(server)?;
            round.await_change(server);
            if let Some(came) = round.wait_for_change(limit, &what) {
                parts = take_apart(members, killed, came);
                if parts.is_none() {
                    round.problem(format!("the logs do not show the failover behind {what}"));
                }
            }
            members.begin(server)?;
        }
        Kind::RestartPrimary => {
            members.kill(server)?;
            round.await_change(server);
            members.begin(server)?;
            round.wait_for_change(limit, &what);
        }
        Kind::KillGroup => kill_group(members, plan, round, limit)?,
        Kind::KillReplica => {
            members.kill(server)?;
            std::thread::sleep(plan.lasts);
            members.begin(server)?;
        }
        Kind::StopPrimary | Kind::StopReplica => {
            members.signal(server, Signal::STOP)?;
            round.await_change(server);
            std::thread::sleep(plan.lasts);
            if plan.needs_failover() {
                round.wait_for_change(limit, &what);
            }
            members.signal(server, Signal::CONT)?;
        }
        Kind::KillCoordinator => {
            members.coordinator.kill();
            std::thread::sleep(plan.lasts);
            members.coordinator.resume()?;
        }
        Kind::StopCoordinator => {
            members.coordinator.pause()?;
            std::thread::sleep(plan.lasts);
            members.coordinator.go_on()?;
        }
        Kind::CutCoordinator | Kind::CutReplicas | Kind::CutReplica => {
            let network = members.network.as_mut().context("no links to cut")?;
            network.cut(&plan.ways)?;
            std::thread::sleep(plan.lasts);
            network.heal()?;
        }
    }
    round.await_change(usize::MAX);
    round.wait_for_change(limit, &what);
    Ok(parts)
}
