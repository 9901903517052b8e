//! An example: a rate limiter with a sliding window, on sorted sets. Threads make requests of a few
//! callers as fast as they can; afterwards each window of each caller is looked at.
//!
//! `limiter.rs` is the limiter, by any Redis client and by Remora's own. The rest measures both, and
//! checks what they permitted.

#![forbid(unsafe_code)]

mod limiter;

use anyhow::{Context, anyhow, ensure};
use clap::Parser;
use limiter::{Asked, Limit, Limiter};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use remora_client::{Address, Client, Options};
use remora_command_line::{ProcessCpu, ServerPlan, ServerProcess, exit_code, usage};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const THREADS: RangeInclusive<usize> = 1..=64;
const CALLERS: RangeInclusive<usize> = 1..=100_000;
/// Bytes that a caller's requests take, generously.
const CALLER_BYTES: usize = 64 << 10;
/// Requests of the part without threads, whose answers are known.
const CHECKED: u64 = 2_000;
const SEED: u64 = 31;

/// Runs a rate limiter on sorted sets, by RESP and by Remora's client.
#[derive(Debug, Parser)]
#[command(name = "rate-limiter", version)]
struct LimiterArgs {
    /// Callers whose requests are limited.
    #[arg(long, value_name = "N", default_value_t = 20)]
    callers: usize,
    /// Threads that make requests.
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Requests of a caller in any window, at most.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,
    /// Length of a window, ms.
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    window_ms: u64,
    /// Seconds that each way gets.
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// The binary remora, which is the server [default: the one beside this program].
    #[arg(long, value_name = "PATH")]
    server_binary: Option<PathBuf>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

impl LimiterArgs {
    fn check(&self) -> anyhow::Result<()> {
        if !THREADS.contains(&self.threads) {
            return Err(usage(format!("--threads: {} is not in {THREADS:?}", self.threads)));
        }
        if !CALLERS.contains(&self.callers) {
            return Err(usage(format!("--callers: {} is not in {CALLERS:?}", self.callers)));
        }
        if self.limit == 0 || self.window_ms == 0 {
            return Err(usage("--limit and --window-ms: at least 1"));
        }
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return Err(usage("--seconds: more than 0, at most 3600"));
        }
        Ok(())
    }

    fn limit(&self) -> Limit {
        Limit { requests: self.limit, window: Duration::from_millis(self.window_ms) }
    }
}

/// The result. The fields' names are a contract.
#[derive(Debug, Serialize)]
struct Report {
    callers: usize,
    threads: usize,
    limit: u64,
    window_ms: u64,
    /// One row for each way.
    rows: Vec<Row>,
    /// Answers of each way that were compared with the right ones.
    checked: u64,
}

/// What the requests by one way came to. The fields' names are a contract.
#[derive(Debug, Serialize)]
struct Row {
    /// `resp` or `client`.
    way: &'static str,
    requests: usize,
    permitted: usize,
    /// The most that a caller was permitted in any window; windows are shorter by the longest latency.
    most_in_a_window: usize,
    /// Median latency, us.
    p50_us: f64,
    /// 99th percentile, us.
    p99_us: f64,
    /// CPU time of the server for each request, us; none if its process cannot be seen.
    server_cpu_us_per_request: Option<f64>,
}

/// A request, as the thread saw it that made it.
struct Made {
    caller: usize,
    at_ms: u64,
    is_permitted: bool,
    took: Duration,
}

fn main() -> ExitCode {
    match run(&LimiterArgs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "rate-limiter: {error:#}");
            exit_code(&error)
        }
    }
}

fn run(args: &LimiterArgs) -> anyhow::Result<()> {
    args.check()?;
    let remora = match &args.server_binary {
        Some(path) => path.clone(),
        None => {
            std::env::current_exe().context("cannot find this program")?.with_file_name("remora")
        }
    };
    let plan = ServerPlan::with_room(args.callers, 0, CALLER_BYTES);
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

fn measure(args: &LimiterArgs, server: &ServerProcess) -> anyhow::Result<Report> {
    let client = Client::connect(&Address::unix(server.socket_path()), &Options::default())?;
    let (resp, cpu) = (server.resp_address().to_string(), ProcessCpu::of(server.pid()));
    let mut rows = Vec::new();
    for way in ["resp", "client"] {
        let open = || match way {
            "resp" => Limiter::by_resp(&resp),
            _ => Limiter::by_session(&client),
        };
        check(&mut open()?, way, args.limit())?;
        let spent = cpu.and_then(ProcessCpu::spent);
        let made = run_threads(args, way, &open)?;
        let after = cpu.and_then(ProcessCpu::spent);
        let spent = after.zip(spent).map(|(after, before)| after - before);
        rows.push(row(args.limit(), way, made, spent)?);
    }
    let LimiterArgs { callers, threads, limit, window_ms, .. } = *args;
    Ok(Report { callers, threads, limit, window_ms, rows, checked: CHECKED })
}

/// Requests one after the other, at times that are made up: each answer is known.
fn check(limiter: &mut Limiter, way: &str, limit: Limit) -> anyhow::Result<()> {
    let window_ms = limit.window_ms();
    let (mut rng, mut at_ms) = (ChaCha8Rng::seed_from_u64(SEED), 0);
    let mut permitted: VecDeque<u64> = VecDeque::new();
    let caller = format!("checked:{way}");
    for number in 0..CHECKED {
        // A bit more often than is permitted.
        at_ms += rng.random_range(0..=(2 * window_ms / limit.requests).max(1) * 3 / 4);
        while permitted.front().is_some_and(|&came_ms| came_ms + window_ms <= at_ms) {
            permitted.pop_front();
        }
        let wanted = (permitted.len() as u64) < limit.requests;
        let asked = Asked { caller: &caller, request: &number.to_string(), at_ms };
        let is_permitted = limiter.permit(limit, asked)?;
        ensure!(is_permitted == wanted, "{way}: request {number} is permitted: {is_permitted}");
        permitted.extend(wanted.then_some(at_ms));
    }
    Ok(())
}

/// Threads make requests as fast as they can.
fn run_threads(
    args: &LimiterArgs,
    way: &str,
    open: &(impl Fn() -> anyhow::Result<Limiter> + Sync),
) -> anyhow::Result<Vec<Made>> {
    let (began, length) = (Instant::now(), Duration::from_secs_f64(args.seconds));
    let run = |thread: usize| {
        let mut limiter = open()?;
        let mut rng = ChaCha8Rng::seed_from_u64(SEED + thread as u64);
        let mut all = Vec::new();
        // One request at least, however short the time.
        while all.is_empty() || began.elapsed() < length {
            let caller = rng.random_range(0..args.callers);
            let asked = Instant::now();
            let at_ms = asked.duration_since(began).as_millis() as u64;
            let (name, request) = (format!("{way}:{caller}"), format!("{thread}:{}", all.len()));
            let request = Asked { caller: &name, request: &request, at_ms };
            let is_permitted = limiter.permit(args.limit(), request)?;
            all.push(Made { caller, at_ms, is_permitted, took: asked.elapsed() });
        }
        anyhow::Ok(all)
    };
    let run = &run;
    std::thread::scope(|threads| {
        let running: Vec<_> =
            (0..args.threads).map(|thread| threads.spawn(move || run(thread))).collect();
        let mut all = Vec::new();
        for thread in running {
            all.extend(thread.join().map_err(|_| anyhow!("a thread has panicked"))??);
        }
        Ok(all)
    })
}

fn row(
    limit: Limit,
    way: &'static str,
    made: Vec<Made>,
    spent: Option<Duration>,
) -> anyhow::Result<Row> {
    let mut permitted: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for one in made.iter().filter(|one| one.is_permitted) {
        permitted.entry(one.caller).or_default().push(one.at_ms);
    }
    let mut latencies: Vec<Duration> = made.iter().map(|one| one.took).collect();
    latencies.sort();
    // A request may come so much later than another one of a later time; and times are rounded.
    let late_ms = latencies.last().map_or(0, |took| took.as_millis() as u64) + 2;
    let window_ms = limit.window_ms().saturating_sub(late_ms);
    let most = permitted.values_mut().map(|times| most_in_a_window(times, window_ms)).max();
    let most = most.unwrap_or_default();
    ensure!(most as u64 <= limit.requests, "{way}: {most} requests of a caller in one window");
    let us = |duration: Duration| duration.as_secs_f64() * 1e6;
    Ok(Row {
        way,
        requests: made.len(),
        permitted: permitted.values().map(Vec::len).sum(),
        most_in_a_window: most,
        p50_us: us(latencies[latencies.len() / 2]),
        p99_us: us(latencies[latencies.len() * 99 / 100]),
        server_cpu_us_per_request: spent.map(|spent| us(spent) / made.len() as f64),
    })
}

/// The most of these times that lie in one window.
fn most_in_a_window(times_ms: &mut [u64], window_ms: u64) -> usize {
    times_ms.sort_unstable();
    let ends = times_ms.iter().enumerate();
    let counts =
        ends.map(|(at, &end)| at + 1 - times_ms.partition_point(|&time| time + window_ms <= end));
    counts.max().unwrap_or_default()
}

fn lines(report: &Report) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{} callers, {} threads; each caller: {} requests in any {} ms",
            report.callers, report.threads, report.limit, report.window_ms
        ),
        format!(
            "{:<8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>14}",
            "way", "requests", "permitted", "most", "p50 us", "p99 us", "server CPU us"
        ),
    ];
    for row in &report.rows {
        let cpu = row.server_cpu_us_per_request;
        lines.push(format!(
            "{:<8} {:>9} {:>9} {:>9} {:>9.1} {:>9.1} {:>14}",
            row.way,
            row.requests,
            row.permitted,
            row.most_in_a_window,
            row.p50_us,
            row.p99_us,
            cpu.map_or("-".to_owned(), |cpu| format!("{cpu:.1}"))
        ));
    }
    lines.push(format!("{} answers by each way were as they should be", report.checked));
    lines
}
