//! An example: a leaderboard. Players win and lose points; looks at the board show the best ten, the
//! rank of a player, and how many players have at least as many points as he has.
//!
//! `board.rs` is the leaderboard, by any Redis client and by Remora's own. The rest measures both, and
//! checks their answers.

#![forbid(unsafe_code)]

mod board;
mod players;

use anyhow::{Context, ensure};
use board::{Board, TOP};
use clap::Parser;
use players::Players;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use remora_client::{Address, Client, Options};
use remora_command_line::{ProcessCpu, ServerPlan, ServerProcess, exit_code, usage};
use serde::Serialize;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const PLAYERS: RangeInclusive<usize> = TOP..=1_000_000;
/// Looks of each way that are compared with the players.
const CHECKED: usize = 50;
/// Bytes that a player takes on the board, generously.
const PLAYER_BYTES: usize = 256;
const SEED: u64 = 10;

/// Runs a leaderboard on a sorted set, by RESP and by Remora's client.
#[derive(Debug, Parser)]
#[command(name = "leaderboard", version)]
struct LeaderboardArgs {
    /// Players.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    players: usize,
    /// Matches by each way, and looks of each kind.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    matches: usize,
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
    players: usize,
    /// One row for each way and each kind of call.
    rows: Vec<Row>,
    /// Looks of each way that were compared with the players.
    checked: usize,
}

/// What the calls of one kind by one way came to. The fields' names are a contract.
#[derive(Debug, Serialize)]
struct Row {
    /// `resp` or `client`.
    way: &'static str,
    /// `match`, `top`, `rank` or `count`.
    call: &'static str,
    calls: usize,
    /// Median latency, us.
    p50_us: f64,
    /// 99th percentile, us.
    p99_us: f64,
    round_trips_per_call: f64,
    /// CPU time of the server for each call, us; none if its process cannot be seen.
    server_cpu_us_per_call: Option<f64>,
}

fn main() -> ExitCode {
    match run(&LeaderboardArgs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "leaderboard: {error:#}");
            exit_code(&error)
        }
    }
}

fn run(args: &LeaderboardArgs) -> anyhow::Result<()> {
    if !PLAYERS.contains(&args.players) {
        return Err(usage(format!("--players: {} is not in {PLAYERS:?}", args.players)));
    }
    if args.matches == 0 {
        return Err(usage("--matches: at least 1"));
    }
    let remora = match &args.server_binary {
        Some(path) => path.clone(),
        None => {
            std::env::current_exe().context("cannot find this program")?.with_file_name("remora")
        }
    };
    let plan = ServerPlan::with_room(args.players, 0, PLAYER_BYTES);
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

fn measure(args: &LeaderboardArgs, server: &ServerProcess) -> anyhow::Result<Report> {
    let client = Client::connect(&Address::unix(server.socket_path()), &Options::default())?;
    let ways = [
        ("resp", Board::by_resp(&server.resp_address().to_string())?),
        ("client", Board::by_session(&client)?),
    ];
    let (mut players, mut rng) = (Players::new(args.players), ChaCha8Rng::seed_from_u64(SEED));
    let cpu = ProcessCpu::of(server.pid());
    let mut rows = Vec::new();
    for (way, mut board) in ways {
        let mut measured = |call, one: &mut dyn FnMut(&mut Board) -> anyhow::Result<()>| {
            rows.push(row((way, call), args.matches, cpu, &mut board, one)?);
            anyhow::Ok(())
        };
        measured("match", &mut |board| {
            let player = players.draw(&mut rng);
            let (won, points) = players.play(player, &mut rng);
            let told = board.add_points(&Players::name(player), won)?;
            ensure!(told == points, "{way}: player {player} has {points} points, not {told}");
            Ok(())
        })?;
        measured("top", &mut |board| {
            let best = board.top()?;
            ensure!(
                best.is_sorted_by(|a, b| a.points >= b.points),
                "{way}: not the best: {best:?}"
            );
            Ok(())
        })?;
        measured("rank", &mut |board| {
            board.rank(&Players::name(players.draw(&mut rng))).map(drop)
        })?;
        measured("count", &mut |board| {
            let points = players.points(players.draw(&mut rng)).unwrap_or(0.0);
            board.count_from(points).map(drop)
        })?;
        check(&mut board, &players, &mut rng).with_context(|| format!("by {way}"))?;
    }
    Ok(Report { players: args.players, rows, checked: CHECKED })
}

/// Measures so many calls.
fn row(
    (way, call): (&'static str, &'static str),
    calls: usize,
    cpu: Option<ProcessCpu>,
    board: &mut Board,
    one: &mut dyn FnMut(&mut Board) -> anyhow::Result<()>,
) -> anyhow::Result<Row> {
    let (spent, trips) = (cpu.and_then(ProcessCpu::spent), board.round_trips());
    let mut latencies: Vec<Duration> = Vec::with_capacity(calls);
    for _ in 0..calls {
        let began = Instant::now();
        one(board)?;
        latencies.push(began.elapsed());
    }
    let spent = cpu.and_then(ProcessCpu::spent).zip(spent).map(|(after, before)| after - before);
    latencies.sort();
    let us = |duration: Duration| duration.as_secs_f64() * 1e6;
    Ok(Row {
        way,
        call,
        calls,
        p50_us: us(latencies[calls / 2]),
        p99_us: us(latencies[calls * 99 / 100]),
        round_trips_per_call: (board.round_trips() - trips) as f64 / calls as f64,
        server_cpu_us_per_call: spent.map(|spent| us(spent) / calls as f64),
    })
}

/// Compares looks at the board with the players.
fn check(board: &mut Board, players: &Players, rng: &mut ChaCha8Rng) -> anyhow::Result<()> {
    let (best, wanted) = (board.top()?, players.top(TOP));
    ensure!(best == wanted, "the best are {wanted:?}, not {best:?}");
    for _ in 0..CHECKED {
        let player = players.draw(rng);
        let (rank, wanted) = (board.rank(&Players::name(player))?, players.rank(player));
        ensure!(rank == wanted, "the rank of player {player} is {wanted:?}, not {rank:?}");
        let points = players.points(player).unwrap_or(0.0);
        let (count, wanted) = (board.count_from(points)?, players.count_from(points));
        ensure!(count == wanted, "{wanted} players have {points} points or more, not {count}");
    }
    Ok(())
}

fn lines(report: &Report) -> Vec<String> {
    let mut lines = vec![
        format!("{} players on one sorted set", report.players),
        format!(
            "{:<8} {:<8} {:>9} {:>9} {:>9} {:>9} {:>14}",
            "way", "call", "calls", "p50 us", "p99 us", "trips", "server CPU us"
        ),
    ];
    for row in &report.rows {
        let cpu = row.server_cpu_us_per_call;
        lines.push(format!(
            "{:<8} {:<8} {:>9} {:>9.1} {:>9.1} {:>9.2} {:>14}",
            row.way,
            row.call,
            row.calls,
            row.p50_us,
            row.p99_us,
            row.round_trips_per_call,
            cpu.map_or("-".to_owned(), |cpu| format!("{cpu:.1}"))
        ));
    }
    lines.push(format!("{} looks by each way were as they should be", report.checked));
    lines
}
