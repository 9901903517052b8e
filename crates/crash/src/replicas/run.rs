//! The rounds of a run with replicas.

use super::node::Promises;
use super::plan::{self, Deck, Fault, Plan, Recovery};
use super::reads::ReplicaReader;
use super::servers::Servers;
use crate::args::{CrashArgs, Durability};
use crate::history::Promise;
use crate::load::{By, Round, read_keys};
use crate::network::{self, Network};
use crate::totals::Totals;
use crate::types::{KeyType, ask};
use crate::workload::Workload;
use anyhow::{Context, bail};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use remora_command_line::{note, usage};
use remora_resp::Value;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Readers at the primary.
const READERS: usize = 2;
/// Strings that never change, so that a copy takes its time.
const BALLAST: usize = 20_000;
const BALLAST_BYTES: usize = 1000;
/// Of them, those that are sent together.
const BALLAST_PIPELINE: usize = 500;

/// Runs the command with replicas.
///
/// # Errors
/// Something was lost or stale, or a server did what it should not; a part did not run.
pub fn run(args: &CrashArgs, types: &[&'static dyn KeyType]) -> anyhow::Result<()> {
    let mut no_links = None;
    if !args.in_network_namespace && !args.without_links {
        no_links = Some(network::enter(network::FLAG)?);
    }
    let seed = args.seed.unwrap_or_else(rand::random);
    note(&format!("seed {seed}"));
    let base = tempfile::Builder::new().prefix("remora-crash-").tempdir()?;
    let path = base.path().canonicalize().context("finding the temporary directory")?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let replicas = args.replicas as usize;
    let network = args.in_network_namespace.then(|| Network::build(replicas + 1)).transpose()?;
    let promises = Promises { min_replicas: args.min_replicas(), durability: args.durability };
    if promises.min_replicas == 0 && args.durability == Durability::Memory {
        note(
            "min_replicas 0 and no disk: nothing is promised to survive a primary; what is gone counts as unpromised",
        );
    }
    let work = Workload::draw(types, &mut rng);
    let servers =
        Servers::start(replicas, promises, (network, &path), ChaCha8Rng::from_rng(&mut rng))?;
    let mut run = Run {
        args,
        promises,
        seed,
        rng,
        servers,
        work,
        deck: Deck::default(),
        totals: Totals::default(),
        replica_reads: 0,
        cuts: 0,
        cuts_not_run: 0,
    };
    let ended = run.run();
    let is_good = ended.is_ok() && run.totals.are_good();
    if !is_good {
        run.servers.note_logs();
        note(&format!("the servers' directories stay: {}", base.keep().display()));
    }
    run.print(no_links.as_deref())?;
    ended?;
    run.totals.verdict(seed)?;
    match (run.cuts_not_run, no_links) {
        (1.., Some(reason)) => Err(usage(format!(
            "{} round(s) without the cut of links that they were to have: {reason}; \
             --without-links leaves cuts out",
            run.cuts_not_run
        ))),
        _ => Ok(()),
    }
}

/// What lives through all rounds.
struct Run<'a> {
    args: &'a CrashArgs,
    promises: Promises,
    seed: u64,
    rng: ChaCha8Rng,
    servers: Servers,
    work: Workload,
    deck: Deck,
    totals: Totals,
    /// Reads at replicas.
    replica_reads: u64,
    /// Rounds in which links were cut.
    cuts: u64,
    /// Rounds that were to cut links, where none can be cut.
    cuts_not_run: u64,
}

impl Run<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        for round in 1..=self.args.rounds {
            let seed = self.seed;
            self.round(round).with_context(|| format!("round {round}, seed {seed}"))?;
        }
        self.servers.terminate()
    }

    fn round(&mut self, round: u64) -> anyhow::Result<()> {
        let at = format!("round {round}, seed {}", self.seed);
        self.compare(&at)?;
        self.fill().context("filling the primary")?;
        let primary = self.servers.primary();
        let plan = self.plan(round);
        let before = Instant::now();
        let (acknowledged, promise, words) = self.load(&plan)?;
        self.servers.heal()?;
        self.servers.bring_back()?;
        self.work.judge(&self.servers.of_primary().place()?, promise, &mut self.totals, &at)?;
        self.compare(&at)?;
        self.totals.rounds += 1;
        self.totals.acknowledged += acknowledged;
        note(&format!(
            "round {round}: primary {primary}, {acknowledged} acknowledged, {plan}{words}, {:.1} s",
            before.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    /// What the next round does. A cut that cannot be is counted, and another kind takes its place.
    fn plan(&mut self, round: u64) -> Plan {
        loop {
            let kind = self.deck.draw(&mut self.rng);
            let primary = self.servers.primary();
            let (replicas, over_tcp) = (self.servers.replicas(), self.servers.over_tcp());
            let servers = (primary, &replicas[..]);
            let seconds = self.args.seconds_per_round;
            match Plan::draw(kind, servers, &over_tcp, seconds, &mut self.rng) {
                Some(plan) => {
                    self.cuts += u64::from(matches!(plan.fault, Fault::Cut(_)));
                    return plan;
                }
                None if self.servers.has_network() => {
                    // All replicas are at shared memory now.
                }
                None => {
                    self.cuts_not_run += 1;
                    if !self.args.without_links {
                        note(&format!(
                            "round {round}: {kind:?} DID NOT RUN: no network namespaces"
                        ));
                    }
                }
            }
        }
    }

    /// Loads the servers until the fault is over. Returns how many changes were acknowledged, what
    /// has to be there now, and in words how it went on.
    fn load(&mut self, plan: &Plan) -> anyhow::Result<(u64, Promise, String)> {
        let servers = &mut self.servers;
        let round = Round {
            keys: &self.work.keys,
            place: servers.of_primary().place()?,
            is_ending: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            may_refuse: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            problems: Mutex::default(),
        };
        let (ends, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        let readers = (servers.replicas().into_iter().enumerate())
            .map(|(at, number)| {
                let by = if at % 2 == 0 { By::Resp } else { By::Client };
                let place = servers.node(number).place()?;
                let (ends, reads) = (&ends, &reads);
                Ok(ReplicaReader { number, place, by, seed: self.rng.random(), ends, reads })
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let seeds: [u64; READERS] = self.rng.random();
        let (writers, promises) = (&mut self.work.writers, self.promises);
        let ended: anyhow::Result<_> = std::thread::scope(|scope| {
            let round = &round;
            for writer in writers {
                scope.spawn(|| writer.run(round));
            }
            for (at, seed) in seeds.into_iter().enumerate() {
                let by = if at % 2 == 0 { By::Resp } else { By::Client };
                scope.spawn(move || read_keys(by, round, seed));
            }
            for reader in &readers {
                scope.spawn(|| reader.run(round));
            }
            std::thread::sleep(plan.load);
            let went_on = suffer(servers, plan, (round, &ends), promises);
            // The threads end, whatever failed here.
            round.stops.store(true, Ordering::Relaxed);
            ends.store(true, Ordering::Relaxed);
            went_on
        });
        let (promise, failovers, words) = ended?;
        self.totals.failovers += failovers;
        self.replica_reads += reads.into_inner();
        self.totals.stale += round.stale.into_inner();
        for problem in round.problems.into_inner().expect("no thread panicked with it") {
            self.totals.problems += 1;
            note(&format!("seed {}: {problem}", self.seed));
        }
        Ok((round.acknowledged.into_inner(), promise, words))
    }

    /// All servers hold the same, or that is a problem.
    fn compare(&mut self, at: &str) -> anyhow::Result<()> {
        if let Some(why) = self.servers.catch_up()? {
            self.totals.problems += 1;
            note(&format!("{at}: {why}"));
            bail!("{why}");
        }
        Ok(())
    }

    /// The primary has the ballast.
    fn fill(&mut self) -> anyhow::Result<()> {
        let mut resp = self.servers.of_primary().resp()?;
        let last = format!("ballast:{}", BALLAST - 1);
        if ask(&mut resp, &[b"EXISTS", last.as_bytes()])? == Value::Integer(1) {
            return Ok(());
        }
        let value = vec![b'b'; BALLAST_BYTES];
        for from in (0..BALLAST).step_by(BALLAST_PIPELINE) {
            for number in from..from + BALLAST_PIPELINE {
                resp.push(&[b"SET", format!("ballast:{number}").as_bytes(), &value]);
            }
            resp.flush()?;
            for _ in 0..BALLAST_PIPELINE {
                if let Value::Error(text) = resp.reply()? {
                    bail!("the server says: {}", String::from_utf8_lossy(text));
                }
            }
        }
        Ok(())
    }

    /// What was counted, for people or as JSON.
    fn print(&self, no_links: Option<&str>) -> anyhow::Result<()> {
        let totals = &self.totals;
        let mut out = std::io::stdout().lock();
        if !self.args.json {
            note(&format!(
                "{} replica(s), min_replicas {}: {} reads at replicas, links cut in {} round(s), not cut in {}; \
                 {} acknowledged change(s) gone where nothing was promised",
                self.args.replicas,
                self.promises.min_replicas,
                self.replica_reads,
                self.cuts,
                self.cuts_not_run,
                totals.unpromised
            ));
            writeln!(out, "{totals}")?;
            return Ok(());
        }
        let fields = serde_json::json!({
            "durability": self.args.durability.to_string(),
            "replicas": self.args.replicas,
            "min_replicas": self.promises.min_replicas,
            "seed": self.seed,
            "rounds": totals.rounds,
            "failovers": totals.failovers,
            "acknowledged": totals.acknowledged,
            "lost": totals.lost,
            "unpromised": totals.unpromised,
            "stale": totals.stale,
            "problems": totals.problems,
            "replica_reads": self.replica_reads,
            "links_cut": self.cuts,
            "links_did_not_run": self.cuts_not_run,
            "links_reason": no_links,
        });
        writeln!(out, "{fields}")?;
        Ok(())
    }
}

/// The fault of a round, and how it goes on: what is promised, failovers, and words.
fn suffer(
    servers: &mut Servers,
    plan: &Plan,
    (round, ends): (&Round<'_>, &AtomicBool),
    promises: Promises,
) -> anyhow::Result<(Promise, u64, String)> {
    let primary = servers.primary();
    servers.suffer(plan, round)?;
    if !plan.kills_primary(primary) {
        return Ok((Promise::All, 0, String::new()));
    }
    let lost = plan.replicas_lost(primary);
    let (recovery, promise) = plan::after_primary(
        (promises.min_replicas, promises.durability),
        (lost, servers.promotable()?),
    );
    if promise != Promise::All {
        // What replicas show may go back from here on.
        ends.store(true, Ordering::Relaxed);
    }
    let words = servers.go_on(recovery)?;
    let failovers = u64::from(recovery == Recovery::Promotion);
    let words =
        format!(": {words}{}", if promise == Promise::All { "" } else { ", nothing promised" });
    Ok((promise, failovers, words))
}
