//! `remora bench links`: the applications of Key-Value-Links (KELI 6.2; K19 to K25), by links and in
//! the form with keys, asked and read.
//!
//! Invariant: an application knows the keys at which it begins and no others: it comes to all other
//! items by what stands in items. Every answer is compared with one from memory.

mod args;
mod chunks;
mod fetch;
mod graph;
mod item;
mod load;
mod map;
mod memory;
mod operations;
mod pages;
mod report;
mod resp_sets;
mod search;

use crate::meter::Meter;
use crate::run::{Outcome, Share, side_by_side};
use crate::transport_report::TransportReport;
use crate::workload::share;
use anyhow::{Context, ensure};
pub use args::LinksArgs;
use args::LinksPath;
use fetch::{Fetcher, Hopped};
use graph::{Graph, Levels};
use item::Form;
use load::Loader;
use map::Map;
use memory::Memory;
use operations::{Application, Ready};
use pages::Reviews;
use remora_client_core::{Client, Options, Path};
use remora_command_line::{Address, ProcessCpu, ServerPlan, ServerProcess, connect, note, usage};
use report::{LinksReport, Measured, Round};
use resp_sets::Sets;
use search::Search;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Searches before the clock starts, at most, and the pause between them.
const WARM_UPS: usize = 20;
const MENDING: Duration = Duration::from_secs(1);

/// Runs the bench.
pub fn run(args: &LinksArgs) -> anyhow::Result<()> {
    args.check()?;
    let loaded = Loaded::read(args)?;
    let measured = measure(args, &loaded, args.form(), args.path)?;
    let baseline = match args.baseline {
        true => Some(measure(args, &loaded, Form::Keys, LinksPath::Ask)?),
        false => None,
    };
    let report = LinksReport::new(args, &measured, baseline.as_ref());
    report.print(args.json, &mut std::io::stdout().lock())
}

/// What is loaded and done.
enum Loaded {
    /// A search from a source.
    Search(Graph, u32),
    /// Pages of products.
    Pages(Reviews),
    /// Positions on a map.
    Map(Map),
}

impl Loaded {
    fn read(args: &LinksArgs) -> anyhow::Result<Self> {
        if let Some(path) = &args.pages {
            return Ok(Self::Pages(Reviews::read(path)?));
        }
        if let Some(path) = &args.map {
            return Ok(Self::Map(Map::read(path)?));
        }
        let (Some(path), Some(source)) = (&args.graph, args.bfs) else {
            return Err(usage("--graph FILE goes with --bfs SOURCE"));
        };
        let graph = Graph::read(path)?;
        if graph.position(source).is_none() {
            return Err(usage(format!("--bfs: {source} is no vertex of the graph")));
        }
        note(&format!("{} vertices, {} edges", graph.ids().len(), graph.edges()));
        Ok(Self::Search(graph, source))
    }

    /// Items, and bytes of all of them, about.
    fn size(&self) -> (usize, usize) {
        match self {
            Self::Search(graph, _) => search::size(graph),
            Self::Pages(reviews) => reviews.size(),
            Self::Map(map) => map.size(),
        }
    }

    fn store(&self, loader: &mut Loader) -> anyhow::Result<()> {
        match self {
            Self::Search(graph, _) => search::store(graph, loader),
            Self::Pages(reviews) => reviews.store(loader),
            Self::Map(map) => map.store(loader),
        }
    }
}

/// Loads the data into a server, which the bench starts unless one is named, and measures.
fn measure(
    args: &LinksArgs,
    loaded: &Loaded,
    form: Form,
    path: LinksPath,
) -> anyhow::Result<Measured> {
    let (items, bytes) = loaded.size();
    let server = match &args.server {
        Some(_) => None,
        None => {
            let plan = ServerPlan::with_room(items, 0, bytes / items.max(1));
            let plan =
                ServerPlan { shards: args.shards, over_tcp: args.transport.is_remote(), ..plan };
            Some(ServerProcess::start(&plan)?)
        }
    };
    let address = match (&args.server, &server) {
        (Some(address), _) => address.clone(),
        (None, Some(server)) if path == LinksPath::Resp || args.transport.is_remote() => {
            Address::Resp(server.resp_address().to_string())
        }
        (None, Some(server)) => Address::Socket(server.socket_path().to_path_buf()),
        (None, None) => unreachable!("one of them is there"),
    };
    let measured = match (path, loaded) {
        (LinksPath::Resp, Loaded::Search(graph, source)) => {
            over_resp(args, graph, *source, &address)
        }
        _ => over_sessions(args, loaded, form, path.of_sessions(), &address),
    };
    let measured = measured.inspect_err(|_| server.iter().for_each(ServerProcess::note_log))?;
    server.map_or(Ok(()), ServerProcess::stop)?;
    Ok(measured)
}

/// Measures by sessions.
fn over_sessions(
    args: &LinksArgs,
    loaded: &Loaded,
    form: Form,
    path: Path,
    address: &Address,
) -> anyhow::Result<Measured> {
    let (cpu, memory) = (address.pid().and_then(ProcessCpu::of), Memory::of(address.pid()));
    let (items, _) = loaded.size();
    let defaults = Options::default();
    let options = Options {
        transport: args.transport.wanted(),
        policy: args.policy.into(),
        pointer_cache_entries: defaults.pointer_cache_entries.max(2 * items),
        ..defaults
    };
    let client = connect(address.of_sessions(args.transport)?, &options)?;
    if !args.loaded {
        let mut loader = Loader::open(&client, form)?;
        loaded.store(&mut loader)?;
        loader.finish()?;
    }
    let run = Run { args, client: &client, form, path, cpu };
    let (outcome, hopped, levels, rounds) = match loaded {
        Loaded::Search(graph, source) => run.search(graph, *source)?,
        Loaded::Pages(reviews) => run.operate(reviews)?,
        Loaded::Map(map) => run.operate(map)?,
    };
    let TransportReport { name, is_software_rdma, .. } =
        TransportReport::of(&client, 1, args.clients);
    Ok(Measured {
        outcome,
        hopped,
        levels,
        rounds,
        loaded_bytes: memory.grown(),
        transport: name,
        is_software_rdma,
    })
}

/// A run by sessions.
struct Run<'r> {
    args: &'r LinksArgs,
    client: &'r Client,
    form: Form,
    path: Path,
    cpu: Option<ProcessCpu>,
}

/// The result of a run: times and costs, hops, a search's levels, and each of its rounds.
type Ran = (Outcome, Hopped, Option<Levels>, Vec<Round>);

impl Run<'_> {
    fn fetcher(&self) -> anyhow::Result<Fetcher> {
        Fetcher::open(self.client, self.form, self.path)
    }

    /// Does an application's operations, all clients beside each other.
    fn operate<A: Application>(&self, application: &A) -> anyhow::Result<Ran> {
        let Self { args, cpu, .. } = self;
        let prepare = |client| {
            let (_, ops) = share(args.ops, args.clients, client);
            let seed = args.seed + client as u64;
            Ready::new(application, self.fetcher()?, seed, ops, args.cold)
        };
        let work = |ready: Ready<A>| ready.run(application);
        let ran = side_by_side(args.clients, &[], *cpu, &prepare, &work)?;
        let (outcome, hopped) = sum(ran)?;
        Ok((outcome, hopped, None, Vec::new()))
    }

    /// Searches the graph in rounds; the last one's costs count. A client keeps its session, and what
    /// this has learned, from the warm-up to the last round.
    fn search(&self, graph: &Graph, source: u32) -> anyhow::Result<Ran> {
        let known = graph.search(graph.position(source).expect("checked when it was read"));
        let mut fetchers = Vec::new();
        for _ in 0..self.args.clients {
            let mut fetcher = self.fetcher()?;
            // Once is enough, but for links that had no hint when they were set: an owner mends only
            // so many in a second. Those of an item that was asked for have none that this session knows.
            let mut before = u64::MAX;
            for _ in 0..if self.args.cold { 0 } else { WARM_UPS } {
                let mut meter = Meter::start(1, None)?;
                Search::new(graph, source, 1, self.args.batch).run(&mut fetcher, &mut meter)?;
                let links = fetcher.take_unmended();
                if links == 0 || links >= before {
                    break;
                }
                before = links;
                note(&format!("warming up: {links} links without a good hint"));
                std::thread::sleep(MENDING);
            }
            fetchers.push(fetcher);
        }
        let mut rounds = Vec::new();
        loop {
            self.update(graph, rounds.len())?;
            let search = Search::new(graph, source, self.args.clients, self.args.batch);
            let (outcome, hopped) = self.search_once(&search, &mut fetchers)?;
            let levels = search.levels();
            ensure!(levels == known, "the search came to {levels}, not to {known}");
            rounds.push(Round::of(&outcome));
            if rounds.len() == self.args.rounds {
                return Ok((outcome, hopped, Some(levels), rounds));
            }
        }
    }

    /// All clients do one search together.
    fn search_once(
        &self,
        search: &Search,
        fetchers: &mut Vec<Fetcher>,
    ) -> anyhow::Result<(Outcome, Hopped)> {
        let idle = Mutex::new(std::mem::take(fetchers));
        let idle = || idle.lock().unwrap_or_else(PoisonError::into_inner);
        let prepare = |_| idle().pop().context("a session for each client");
        let work = |mut fetcher: Fetcher| {
            let (before, hops_before) = (fetcher.costs(), fetcher.hopped());
            let mut meter = Meter::start(1, None)?;
            search.run(&mut fetcher, &mut meter)?;
            let ended = Instant::now();
            let (costs, hopped) = (fetcher.costs() - before, fetcher.hopped() - hops_before);
            idle().push(fetcher);
            anyhow::Ok((Share { meter, ended, costs }, hopped))
        };
        let ran = side_by_side(self.args.clients, &[], self.cpu, &prepare, &work)?;
        fetchers.append(&mut idle());
        sum(ran)
    }

    /// Writes a share of the users anew, so that their records move.
    fn update(&self, graph: &Graph, round: usize) -> anyhow::Result<()> {
        let share = self.args.updates;
        if share == 0.0 {
            return Ok(());
        }
        let mut loader = Loader::open(self.client, self.form)?;
        search::update(graph, share, self.args.seed + round as u64, &mut loader)?;
        loader.finish()
    }
}

/// The sum of all clients' results, and the server's CPU time.
fn sum(
    (shares, spent): (Vec<(Share, Hopped)>, Option<Duration>),
) -> anyhow::Result<(Outcome, Hopped)> {
    let mut hopped = Hopped::default();
    shares.iter().for_each(|(_, hops)| hopped += *hops);
    let outcome = Outcome::of(shares.into_iter().map(|(share, _)| share), spent)?;
    Ok((outcome, hopped))
}

/// Measures a graph of sets over RESP, at any server that knows SADD and SMEMBERS.
fn over_resp(
    args: &LinksArgs,
    graph: &Graph,
    source: u32,
    address: &Address,
) -> anyhow::Result<Measured> {
    let (cpu, memory) = (address.pid().and_then(ProcessCpu::of), Memory::of(address.pid()));
    let known = graph.search(graph.position(source).expect("checked when it was read"));
    let mut sets = Sets::open(address.resp()?)?;
    if !args.loaded {
        sets.store(graph)?;
    }
    let mut rounds = Vec::new();
    loop {
        let (before, spent_before) = (sets.costs(), cpu.and_then(ProcessCpu::spent));
        let mut meter = Meter::start(1, None)?;
        let levels = sets.search(graph, source, args.batch, &mut meter)?;
        let ended = Instant::now();
        let spent = cpu.and_then(ProcessCpu::spent).zip(spent_before);
        let spent = spent.map(|(after, before)| after.saturating_sub(before));
        ensure!(levels == known, "the search came to {levels}, not to {known}");
        let costs = sets.costs() - before;
        let outcome = Outcome::of([Share { meter, ended, costs }], spent)?;
        rounds.push(Round::of(&outcome));
        if rounds.len() == args.rounds {
            let hopped = Hopped { lookups: outcome.tally.ops, chases: 0 };
            let (levels, loaded_bytes) = (Some(levels), memory.grown());
            let (transport, is_software_rdma) = ("tcp", false);
            return Ok(Measured {
                outcome,
                hopped,
                levels,
                rounds,
                loaded_bytes,
                transport,
                is_software_rdma,
            });
        }
    }
}
