//! `remora demo`: real places in a server process, looked up and searched by
//! this process in three ways; and a server that is killed and has them all again.

mod failover;
mod html;
mod map;
mod places;
mod restart;
mod search;
mod table;

use anyhow::{Context, ensure};
use clap::Args;
use places::{EXAMPLE_KEY, Places};
use remora_bench::{
    Outcome, Plan, Records, RespTarget, SessionTarget, Shape, Source, Workload, load, run_plan,
};
use remora_client_core::{Client, Options, Path};
use remora_command_line::{
    Connection, DEFAULT_PORT, ProcessCpu, ServerPlan, ServerProcess, connect, note, usage,
};
use std::io::Write;
use std::path::{Path as FilePath, PathBuf};
use std::time::{Duration, Instant};
use table::{Report, Restart, Row, WAYS};

/// Time that each way gets.
const TIMED: Duration = Duration::from_secs(1);
/// Nine out of ten lookups go to a small part of the places, by population.
const EXPONENT: f64 = 0.99;
const READS: f64 = 0.95;
const SEED: u64 = 1;
/// Longer than the demo runs, so that no lease ends within it.
const LEASE: Duration = Duration::from_secs(60);

/// Flags of `remora demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    /// Keeps the loaded server, on port 7379, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// Shows a failover: ZooKeeper and three servers, of which the primary is killed under load. It
    /// needs ZooKeeper installed.
    #[arg(long, conflicts_with_all = ["keep", "map"])]
    cluster: bool,
    /// Writes a map of the places as an HTML file: windows, what was found in
    /// them, by which way, and what it cost. Without it no file is left.
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
}

/// Operations that are drawn, and repeated until the time is up: several for
/// each place.
const DRAWN_OPS: usize = 1_000_000;

/// Runs the demo.
pub fn run(args: DemoArgs) -> anyhow::Result<()> {
    if args.cluster {
        return failover::run(args.json);
    }
    let parent = args.map.as_ref().and_then(|file| file.parent());
    if parent.is_some_and(|parent| *parent != *"" && !parent.is_dir()) {
        return Err(usage("--map: its directory is not there"));
    }
    let places = Places::load()?;
    let (key_bytes, value_bytes) = places.longest();
    let server = ServerProcess::start(&ServerPlan {
        port: if args.keep { DEFAULT_PORT } else { 0 },
        lease_min_ms: LEASE.as_millis() as u64,
        ..ServerPlan::with_room(places.count(), key_bytes, value_bytes)
    })?;
    let mut report = compare(&places, &server, args.json).inspect_err(|_| server.note_log())?;
    report.restart = restart::restart(&places).context("a server that keeps the places")?;
    if let Some(file) = &args.map {
        write_map(file, &places, &server).inspect_err(|_| server.note_log())?;
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else {
        report.print_ending(&mut out, args.keep)?;
    }
    drop(out);
    if let Some(file) = &args.map {
        say(args.json, &format!("\nA map of it, for a browser: {}", file.display()))?;
    }
    if args.keep {
        note("The server is kept until Ctrl-C.");
        server.wait();
    } else {
        server.stop()?;
    }
    Ok(())
}

/// Loads the places, measures each way, and prints rows as they come.
fn compare(places: &Places, server: &ServerProcess, quiet: bool) -> anyhow::Result<Report> {
    let options = Options { lease: Some(LEASE), ..Options::default() };
    let socket = server.socket_path();
    let resp = server.resp_address().to_string();
    let began = Instant::now();
    let client = connect(socket, &options)?;
    load(&mut SessionTarget::open(&client, Path::Ask)?, places, |_| {})?;
    let mut report = Report {
        records: places.count(),
        server_pid: server.pid(),
        client_pid: std::process::id(),
        rows: Vec::new(),
        searches: Vec::new(),
        results_per_search: 0.0,
        nearest: Vec::new(),
        example_key: EXAMPLE_KEY,
        example_value: String::new(),
        restart: Restart::default(),
    };
    let say = |text: &str| say(quiet, text);
    say(&format!("loaded {} places", report.records))?;
    say(&format!(
        "in {:.2} s, into server process {}; this client is process {}",
        began.elapsed().as_secs_f64(),
        report.server_pid,
        report.client_pid
    ))?;
    say(&format!(
        "{:.0} % lookups, {:.0} % updates, one client, {TIMED:?} each; the more people, the more popular\n",
        100.0 * READS,
        100.0 * (1.0 - READS)
    ))?;
    say(table::HEADER)?;
    report.rows = look_up(places, server, &client, |row| say(&row.to_string()))?;
    say(
        "\nthe same places as points of a tree; who is within a quarter of a degree of a place?\n",
    )?;
    say(table::SEARCH_HEADER)?;
    let server_cpu = ProcessCpu::of(server.pid());
    let searched = search::search(places, &client, &resp, server_cpu, |row| say(&row.to_string()))?;
    (report.searches, report.nearest) = (searched.rows, searched.nearest);
    report.results_per_search = searched.results_per_op;
    let value = Connection::connect(&resp)?.get(EXAMPLE_KEY.as_bytes())?;
    report.example_value = String::from_utf8(value.context("Paris is gone")?)?;
    ensure!(report.example_value.starts_with("Paris|FR|"), "that is not Paris");
    Ok(report)
}

/// Looks places up by each way, and gives a row for each.
fn look_up(
    places: &Places,
    server: &ServerProcess,
    client: &Client,
    mut say: impl FnMut(&Row) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Row>> {
    let workload = Workload {
        source: Source::Zipf(EXPONENT, None),
        records: places.count() as u32,
        ops: DRAWN_OPS,
        clients: 1,
        reads: READS,
        seed: SEED,
    };
    let resp = server.resp_address().to_string();
    let mut rows = Vec::new();
    for way in WAYS {
        let plan = Plan {
            records: places,
            workload: &workload,
            shape: Shape { limit: Some(TIMED), ..Shape::PLAIN },
            warms_up: true,
            server_cpu: ProcessCpu::of(server.pid()),
            cores: &[],
        };
        let outcome: Outcome = match way {
            "resp" => run_plan(&plan, || RespTarget::open(&resp)),
            "ask" => run_plan(&plan, || SessionTarget::open(client, Path::Ask)),
            _ => run_plan(&plan, || SessionTarget::open(client, Path::Read)),
        }
        .with_context(|| format!("the way \"{way}\""))?;
        outcome.verify().with_context(|| format!("the way \"{way}\""))?;
        let row = Row { path: way, figures: outcome.figures() };
        say(&row)?;
        rows.push(row);
    }
    Ok(rows)
}

/// Searches the windows of the map, and writes it.
fn write_map(file: &FilePath, places: &Places, server: &ServerProcess) -> anyhow::Result<()> {
    let client = connect(server.socket_path(), &Options::default())?;
    let windows = map::search(places, &client, &server.resp_address().to_string())?;
    let page = html::page(places, &windows)?;
    std::fs::write(file, page).with_context(|| format!("writing {}", file.display()))
}

/// Says a line on standard output, or beside it.
fn say(quiet: bool, text: &str) -> anyhow::Result<()> {
    if quiet {
        note(text);
    } else {
        writeln!(std::io::stdout(), "{text}")?;
    }
    Ok(())
}
