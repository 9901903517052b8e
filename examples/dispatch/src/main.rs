//! An example: a dispatcher asks for the five nearest free couriers, their profiles and their zones. With
//! Remora that is one plan and one round trip, by any Redis client; with Redis three pipelined trips. Both are
//! measured in one run, in turns, and their answers are checked.

#![forbid(unsafe_code)]

mod ask;
mod redis;
mod world;

use anyhow::Context;
use ask::Way;
use clap::Parser;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use redis::Redis;
use remora_command_line::{Connection, ProcessCpu, ServerPlan, ServerProcess, exit_code, usage};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use world::World;

const COURIERS: std::ops::RangeInclusive<usize> = 100..=1_000_000;
/// Questions of one way, before the other way's turn comes.
const IN_A_ROW: usize = 50;
/// Bytes that a courier takes with its profile, generously.
const COURIER_BYTES: usize = 1024;
const SEED: u64 = 24;

/// Asks for the nearest free couriers, their profiles and zones: by one plan, and
/// by three pipelined trips to redis-server, if that is on the PATH.
#[derive(Debug, Parser)]
#[command(name = "dispatch", version)]
struct DispatchArgs {
    /// Couriers.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    couriers: usize,
    /// Questions by each way.
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    questions: usize,
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
    /// Remora, and Redis if it was there.
    rows: Vec<Row>,
}

/// What the questions by one way came to. The fields' names are a contract.
#[derive(Debug, Serialize)]
struct Row {
    server: &'static str,
    /// Questions; each answer was checked.
    questions: usize,
    requests_per_question: f64,
    round_trips_per_question: f64,
    bytes_per_question: f64,
    /// Median latency, us.
    p50_us: f64,
    /// 99th percentile, us.
    p99_us: f64,
    /// CPU time of the server for each question, us; none if its process cannot be seen.
    server_cpu_us_per_question: Option<f64>,
}

/// A way while it is measured.
struct Measured {
    server: &'static str,
    way: Way,
    cpu: Option<ProcessCpu>,
    requests: usize,
    trips: u64,
    bytes: u64,
    latencies: Vec<Duration>,
    spent: Option<Duration>,
}

fn main() -> ExitCode {
    match run(&DispatchArgs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "dispatch: {error:#}");
            exit_code(&error)
        }
    }
}

fn run(args: &DispatchArgs) -> anyhow::Result<()> {
    if !COURIERS.contains(&args.couriers) {
        return Err(usage(format!("--couriers: {} is not in {COURIERS:?}", args.couriers)));
    }
    if args.questions == 0 {
        return Err(usage("--questions: at least 1"));
    }
    let remora = match &args.server_binary {
        Some(path) => path.clone(),
        None => {
            std::env::current_exe().context("cannot find this program")?.with_file_name("remora")
        }
    };
    let plan = ServerPlan::with_room(args.couriers, 0, COURIER_BYTES);
    let server = ServerProcess::start_of(&remora, &plan)?;
    let report = measure(args, &server).inspect_err(|_| server.note_log())?;
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

fn measure(args: &DispatchArgs, server: &ServerProcess) -> anyhow::Result<Report> {
    let world = World::new(args.couriers, SEED);
    let remora = Connection::connect(&server.resp_address().to_string())?;
    let mut all = vec![Measured::new("remora", Way::Plan(remora), server.pid())];
    let redis = Redis::start()?;
    if let Some(redis) = &redis {
        all.push(Measured::new("redis", Way::Trips(redis.connect()?), redis.pid()));
    }
    for measured in &mut all {
        measured.way.write(&world)?;
    }
    let mut left = args.questions;
    let mut part = 0;
    while left > 0 {
        let count = left.min(IN_A_ROW);
        for measured in &mut all {
            // The same questions for each.
            measured.ask(&world, (count, SEED + part))?;
        }
        (left, part) = (left - count, part + 1);
    }
    Ok(Report { couriers: args.couriers, rows: all.into_iter().map(Measured::row).collect() })
}

impl Measured {
    fn new(server: &'static str, way: Way, pid: u32) -> Self {
        Self {
            server,
            way,
            cpu: ProcessCpu::of(pid),
            requests: 0,
            trips: 0,
            bytes: 0,
            latencies: Vec::new(),
            spent: Some(Duration::ZERO),
        }
    }

    fn ask(&mut self, world: &World, (count, seed): (usize, u64)) -> anyhow::Result<()> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let before = self.cpu.and_then(ProcessCpu::spent);
        let mut answers = Vec::with_capacity(count);
        let connection = self.way.connection();
        let (trips, bytes) = (connection.flushes(), connection.bytes());
        for _ in 0..count {
            let from = world::place(&mut random);
            let begun = Instant::now();
            let (rows, requests) = self.way.ask(from)?;
            self.latencies.push(begun.elapsed());
            self.requests += requests;
            answers.push((from, rows));
        }
        let after = self.cpu.and_then(ProcessCpu::spent);
        let spent = after.zip(before).map(|(after, before)| after - before);
        self.spent = self.spent.zip(spent).map(|(all, spent)| all + spent);
        let connection = self.way.connection();
        self.trips += connection.flushes() - trips;
        self.bytes += connection.bytes() - bytes;
        for (from, rows) in answers {
            ask::check(world, from, &rows).with_context(|| format!("{} answers", self.server))?;
        }
        Ok(())
    }

    fn row(mut self) -> Row {
        self.latencies.sort();
        let count = self.latencies.len();
        let each = |sum: f64| sum / count as f64;
        let us = |duration: Duration| duration.as_secs_f64() * 1e6;
        Row {
            server: self.server,
            questions: count,
            requests_per_question: each(self.requests as f64),
            round_trips_per_question: each(self.trips as f64),
            bytes_per_question: each(self.bytes as f64),
            p50_us: us(self.latencies[count / 2]),
            p99_us: us(self.latencies[count * 99 / 100]),
            server_cpu_us_per_question: self.spent.map(|spent| each(us(spent))),
        }
    }
}

fn lines(report: &Report) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{} couriers; each question: the {} nearest free ones, their profiles and zones",
            report.couriers,
            ask::WANTED
        ),
        format!(
            "{:<8} {:>9} {:>9} {:>6} {:>9} {:>9} {:>9} {:>14}",
            "server",
            "questions",
            "requests",
            "trips",
            "bytes",
            "p50 us",
            "p99 us",
            "server CPU us"
        ),
    ];
    for row in &report.rows {
        let cpu = row.server_cpu_us_per_question;
        lines.push(format!(
            "{:<8} {:>9} {:>9.1} {:>6.1} {:>9.0} {:>9.1} {:>9.1} {:>14}",
            row.server,
            row.questions,
            row.requests_per_question,
            row.round_trips_per_question,
            row.bytes_per_question,
            row.p50_us,
            row.p99_us,
            cpu.map_or("-".to_owned(), |cpu| format!("{cpu:.1}"))
        ));
    }
    if report.rows.len() == 1 {
        lines.push("redis-server is not on the PATH: nothing to compare with".into());
    }
    lines
}
