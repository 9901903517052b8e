//! An example service: couriers near me. A server process, thousands of
//! couriers that ride about, and customers that ask by every path for the nearest
//! free ones.
//!
//! `dispatch.rs` is the service, an example of the client library. The rest
//! measures it and checks its answers.

#![forbid(unsafe_code)]

mod city;
mod dispatch;
mod ways;

use anyhow::{Context, anyhow};
use city::{City, EDGE};
use clap::Parser;
use dispatch::Reports;
use remora_client_core::{Client, Options};
use remora_command_line::{ProcessCpu, ServerPlan, ServerProcess, exit_code, usage};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use ways::{Row, Way, spent_during};

const WAYS: [&str; 4] = ["resp", "ask", "read", "choose"];
/// Answers that each way has to give correctly, when no courier moves.
const CHECKED: u64 = 200;
/// Fewer could all be busy.
const LEAST_COURIERS: usize = 100;
const MOST_COURIERS: usize = 1_000_000;
/// Bytes that a courier takes in a tree, generously.
const COURIER_BYTES: usize = 512;
/// Couriers' reports come in this many portions a second.
const PORTIONS: u32 = 100;
const SEED: u64 = 7;

/// Runs an example service: thousands of couriers move, and customers search
/// for the nearest free ones by every path.
#[derive(Debug, Parser)]
#[command(name = "couriers", version)]
struct CouriersArgs {
    /// Couriers, each of whom tells where he is once a second.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    couriers: usize,
    /// Seconds that all ways get together.
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// The binary remora, which is the server [default: the one beside this program].
    #[arg(long, value_name = "PATH")]
    server_binary: Option<PathBuf>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// The result. The fields' names are a contract.
#[derive(Debug, Serialize)]
struct Report {
    couriers: usize,
    /// Couriers that were free at the end.
    free: usize,
    /// One row for each way.
    rows: Vec<Row>,
    /// Answers of each way that were compared with where the couriers were.
    checked: u64,
}

fn main() -> ExitCode {
    match run(&CouriersArgs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "couriers: {error:#}");
            exit_code(&error)
        }
    }
}

/// Runs the service for a while, and measures it.
fn run(args: &CouriersArgs) -> anyhow::Result<()> {
    if !(LEAST_COURIERS..=MOST_COURIERS).contains(&args.couriers) {
        return Err(usage(format!(
            "--couriers: {} is not in {LEAST_COURIERS}..={MOST_COURIERS}",
            args.couriers
        )));
    }
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) {
        return Err(usage("--seconds: more than 0, at most 3600"));
    }
    let remora = match &args.server_binary {
        Some(path) => path.clone(),
        None => {
            std::env::current_exe().context("cannot find this program")?.with_file_name("remora")
        }
    };
    let plan = ServerPlan::with_room(args.couriers, 0, COURIER_BYTES);
    let server = ServerProcess::start_of(&remora, &plan)?;
    let report = serve(args, &server).inspect_err(|_| server.note_log())?;
    server.stop()?;
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
        return Ok(());
    }
    for line in lines(&report) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn serve(args: &CouriersArgs, server: &ServerProcess) -> anyhow::Result<Report> {
    let client = Client::connect(server.socket_path(), &Options::default())?;
    dispatch::make_trees(&mut client.session()?, EDGE)?;
    let mut city = City::new(args.couriers, SEED);
    let mut reports = Reports::open(&client)?;
    for (id, courier) in city.couriers.iter().enumerate() {
        reports.report(id as u64, courier.at, courier.is_free, false)?;
    }
    let (resp, cpu) = (server.resp_address().to_string(), ProcessCpu::of(server.pid()));
    // One more share shows what the movements alone cost the server.
    let share = Duration::from_secs_f64(args.seconds / (WAYS.len() + 1) as f64);
    let (is_over, moves) = (AtomicBool::new(false), AtomicU64::new(0));
    let rows = std::thread::scope(|threads| {
        let moving = threads.spawn(|| ride(&mut city, &mut reports, &is_over, &moves));
        let rows = measure(&client, &resp, cpu, share, &moves);
        is_over.store(true, Ordering::Relaxed);
        moving.join().map_err(|_| anyhow!("the couriers' thread has panicked"))??;
        rows
    })?;
    // No courier moves any more: each question has one correct answer.
    for way in WAYS {
        let checked = Way::open(way, &client, &resp)?.check(&city, CHECKED, SEED);
        checked.with_context(|| format!("the way \"{way}\" found others than there are"))?;
    }
    let free = city.couriers.iter().filter(|courier| courier.is_free).count();
    Ok(Report { couriers: args.couriers, free, rows, checked: CHECKED })
}

/// Every courier rides, and says where he is, once a second, until it is over.
fn ride(
    city: &mut City,
    reports: &mut Reports,
    is_over: &AtomicBool,
    moves: &AtomicU64,
) -> anyhow::Result<()> {
    let portion = city.couriers.len().div_ceil(PORTIONS as usize);
    let mut next = Instant::now();
    let mut at = 0;
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..portion {
            let has_changed = city.ride(at);
            let courier = city.couriers[at];
            reports.report(at as u64, courier.at, courier.is_free, has_changed)?;
            at = (at + 1) % city.couriers.len();
        }
        moves.fetch_add(portion as u64, Ordering::Relaxed);
        // A courier that is late does not try to catch up.
        next = (next + Duration::from_secs(1) / PORTIONS).max(Instant::now());
        std::thread::sleep(next - Instant::now());
    }
    Ok(())
}

/// Searches by each way for its share of the time, while couriers move.
fn measure(
    client: &Client,
    resp: &str,
    cpu: Option<ProcessCpu>,
    share: Duration,
    moves: &AtomicU64,
) -> anyhow::Result<Vec<Row>> {
    let moved = |since: u64| (moves.load(Ordering::Relaxed) - since) as f64;
    let count = moves.load(Ordering::Relaxed);
    let (_, spent) = spent_during(cpu, || {
        std::thread::sleep(share);
        Ok(())
    })?;
    let us_per_move = spent.map(|spent| spent.as_secs_f64() * 1e6 / moved(count).max(1.0));
    let mut rows = Vec::new();
    for path in WAYS {
        let mut way = Way::open(path, client, resp)?;
        let count = moves.load(Ordering::Relaxed);
        let began = Instant::now();
        let (mut row, spent) = spent_during(cpu, || way.run(path, share, SEED))?;
        row.moves_per_s = moved(count) / began.elapsed().as_secs_f64();
        row.server_cpu_us_per_op = spent.zip(us_per_move).map(|(spent, per_move)| {
            let searching = spent.as_secs_f64() * 1e6 - per_move * moved(count);
            searching.max(0.0) / row.searches as f64
        });
        rows.push(row);
    }
    Ok(rows)
}

/// The report for people.
fn lines(report: &Report) -> Vec<String> {
    let Report { couriers, free, rows, checked } = report;
    let mut lines = vec![
        format!("{couriers} couriers, {free} of them free; who are the five nearest free ones?\n"),
        "path    searches/s   p50 us   p99 us  round trips   asked    read  server CPU us  moves/s"
            .into(),
    ];
    lines.extend(rows.iter().map(|row| {
        format!(
            "{:<7}{:>11.0}{:>9.1}{:>9.1}{:>13.2}{:>8}{:>8}{:>15.2}{:>9.0}",
            row.path,
            row.searches_per_s,
            row.p50_us,
            row.p99_us,
            row.round_trips_per_op,
            row.asked,
            row.read,
            row.server_cpu_us_per_op.unwrap_or(f64::NAN),
            row.moves_per_s,
        )
    }));
    lines.push(format!(
        "\nWhen all stood still, {checked} answers of each way were what they had to be.\n\
         The server's CPU is that for a search; what the movements take is taken off.\n\
         The service is examples/couriers/src/dispatch.rs."
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_under_their_header() {
        let row = Row {
            path: "choose",
            searches: 9,
            searches_per_s: 123_456.0,
            p50_us: 1.0,
            p99_us: 2.0,
            round_trips_per_op: 1.0,
            asked: 4,
            read: 5,
            server_cpu_us_per_op: Some(0.5),
            moves_per_s: 10_000.0,
        };
        let lines = lines(&Report { couriers: 10, free: 5, rows: vec![row], checked: 3 });
        assert_eq!(lines[1].len(), lines[2].len(), "{lines:#?}");
    }
}
