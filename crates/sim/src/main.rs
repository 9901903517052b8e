//! `remora-sim`: runs worlds and reports which promise a seed breaks.

#![forbid(unsafe_code)]

use clap::Parser;
use remora_sim::compare;
use remora_sim::faults::Fault;
use remora_sim::probes::{Kinds, Probe, Probes};
use remora_sim::replicas::ReplicaCounts;
use remora_sim::run::Outcome;
use remora_sim::shrink::{Less, shrink};
use remora_sim::world::World;
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A world that takes longer is named.
const SLOW: Duration = Duration::from_secs(5);
/// Lines of a trace that a failure shows.
const SHOWN_LINES: usize = 60;

/// Runs deterministic worlds: the production code over simulated memory,
/// network and time.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The world to run.
    #[arg(long, conflicts_with = "seeds", required_unless_present = "seeds")]
    seed: Option<u64>,
    /// Worlds to run, A..B, B excluded.
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    seeds: Option<Range<u64>>,
    /// Stops after so many minutes.
    #[arg(long, value_name = "M", requires = "seeds")]
    minutes: Option<f64>,
    /// Stops after the first world that breaks a promise.
    #[arg(long, requires = "seeds")]
    until_broken: bool,
    /// Prints every call.
    #[arg(long)]
    trace: bool,
    /// Makes a world that breaks a promise as small as it can, and shows it.
    #[arg(long)]
    shrink: bool,
    /// Nothing goes wrong but what the fabric's contract allows at any time.
    #[arg(long)]
    no_faults: bool,
    /// Begins so many operations only.
    #[arg(long, value_name = "N")]
    ops: Option<u64>,
    /// So many clients only.
    #[arg(long, value_name = "N")]
    clients: Option<u32>,
    /// So many RESP clients only.
    #[arg(long, value_name = "N")]
    resp_clients: Option<u32>,
    /// Leaves out a kind of fault; may be given several times.
    #[arg(long, value_name = "FAULT", value_parser = parse_fault)]
    without: Vec<Fault>,
    /// Tears no operation of the fabric.
    #[arg(long)]
    untorn: bool,
    /// Worlds of a primary and replicas, N at most.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "3")]
    replicas: Option<usize>,
    /// Worlds with clients that use lists and sets.
    #[arg(long)]
    lists: bool,
    /// Worlds with links.
    #[arg(long)]
    links: bool,
    /// Worlds with ordered trees.
    #[arg(long)]
    ordered: bool,
    /// Worlds with sorted sets.
    #[arg(long)]
    sorted: bool,
    /// Worlds with collections of documents.
    #[arg(long)]
    collections: bool,
    /// A rare path that no world reached is a failure.
    #[arg(long)]
    all_probes: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    Compare(compare::Args),
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let parse = |number: &str| number.parse().map_err(|_| format!("{number} is not a seed"));
    let (from, to) = text.split_once("..").ok_or("seeds are given as A..B")?;
    let seeds = parse(from)?..parse(to)?;
    if seeds.is_empty() { Err("there is no seed in that range".to_owned()) } else { Ok(seeds) }
}

fn parse_fault(name: &str) -> Result<Fault, String> {
    Fault::of_name(name).ok_or_else(|| {
        let names: Vec<&str> = Fault::ALL.into_iter().map(Fault::name).collect();
        format!("there are: {}", names.join(", "))
    })
}

#[derive(Default)]
struct Totals {
    seeds: u64,
    operations: u64,
    faults: BTreeMap<Fault, u64>,
    virtual_ns: u64,
    violations: u64,
    undecided: u64,
    keys: u64,
    looks: u64,
    probes: Probes,
    replicas: ReplicaCounts,
}

impl Totals {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.operations += outcome.operations;
        for (&fault, &times) in &outcome.faults {
            *self.faults.entry(fault).or_default() += times;
        }
        self.virtual_ns += outcome.virtual_ns;
        self.violations += outcome.violations.len() as u64;
        self.undecided += outcome.undecided;
        self.keys += outcome.keys;
        self.looks += outcome.looks;
        self.probes.add_all(&outcome.probes);
        self.replicas += outcome.replicas;
    }
}

fn main() -> ExitCode {
    let mut args = Args::parse();
    if let Some(Command::Compare(compare)) = args.command.take() {
        return compare.run();
    }
    let seeds = args.seeds.clone().unwrap_or_else(|| {
        let seed = args.seed.expect("one of them is given");
        seed..seed.saturating_add(1)
    });
    let began = Instant::now();
    let time = args.minutes.map(|minutes| Duration::from_secs_f64(minutes.max(0.0) * 60.0));
    let mut totals = Totals::default();
    for seed in seeds {
        let is_broken = args.until_broken && totals.violations > 0;
        if is_broken || time.is_some_and(|time| began.elapsed() >= time) {
            break;
        }
        let seed_began = Instant::now();
        totals.add(&run(&args, seed));
        if seed_began.elapsed() > SLOW {
            eprintln!("seed {seed} took {} s", seed_began.elapsed().as_secs());
        }
    }
    let Args { lists, links, ordered, sorted, collections, .. } = args;
    let kinds = Kinds { lists, links, ordered, sorted, collections };
    let missed = totals.probes.missed(kinds);
    if args.seeds.is_some() && !missed.is_empty() {
        println!("never reached: {missed:?}");
    }
    if totals.undecided > 0 {
        let Totals { undecided, keys, .. } = totals;
        println!("not judged, as their calls overlap in too many ways: {undecided} of {keys} keys");
    }
    let all = Probe::expected(kinds).count();
    let hit = all - missed.len();
    if args.seeds.is_some() {
        let kinds = totals.faults.iter().map(|(fault, times)| format!(" {}={times}", fault.name()));
        println!("faults:{}", kinds.collect::<String>());
        println!("virtual_s={} looks_at_trees={}", totals.virtual_ns / 1_000_000_000, totals.looks);
    }
    if args.replicas.is_some() {
        println!("{:?}", totals.replicas);
    }
    let faults: u64 = totals.faults.values().sum();
    let Totals { seeds, operations, violations, .. } = totals;
    println!(
        "seeds={seeds} ops={operations} faults={faults} probes={hit}/{all} violations={violations}"
    );
    let fails = violations > 0 || (args.all_probes && !missed.is_empty());
    if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs one world and reports what it broke.
fn run(args: &Args, seed: u64) -> Outcome {
    let mut less = Less {
        operations: args.ops,
        clients: args.clients,
        resp_clients: args.resp_clients,
        without: args.without.clone(),
        untorn: args.untorn,
        replicas: args.replicas,
        lists: args.lists,
        links: args.links,
        ordered: args.ordered,
        sorted: args.sorted,
        collections: args.collections,
    };
    let with_faults = !args.no_faults;
    let outcome = World::run(less.of(seed, with_faults), args.trace);
    if args.seed.is_some() {
        let virtual_ms = outcome.virtual_ns / 1_000_000;
        println!("hash={:016x} virtual_ms={virtual_ms} faults={:?}", outcome.hash, outcome.faults);
    }
    outcome.trace.iter().for_each(|line| println!("{line}"));
    let Some(first) = outcome.violations.first() else { return outcome };
    for violation in &outcome.violations {
        println!("seed {seed} broke a promise: {violation}");
    }
    if args.shrink {
        less = shrink(seed, with_faults, &less, first.promise);
        let small = World::run(less.of(seed, with_faults), true);
        println!("the smallest world found that breaks it, its last calls:");
        let from = small.trace.len().saturating_sub(SHOWN_LINES);
        small.trace[from..].iter().for_each(|line| println!("{line}"));
        for violation in &small.violations {
            println!("it broke: {violation}");
        }
    }
    let faults = if args.no_faults { " --no-faults" } else { "" };
    let more = if args.shrink { "--trace" } else { "--shrink" };
    println!("to repeat it: remora-sim --seed {seed}{faults}{less} {more}");
    outcome
}
