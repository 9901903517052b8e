//! `remora bench geo`: boxes of points over RESP, at a server that is there:
//! ours or another one that knows GEOADD and GEOSEARCH. What is loaded and
//! searched is the same for all: the centres of the rectangles of `bench
//! places`, whose unit square lies at the equator, one degree a side.

use crate::bounds::{MAX_CLIENTS, within};
use crate::costs::Costs;
use crate::meter::Meter;
use crate::places::run::{Found, warm_up};
use crate::places::scale::Scale;
use crate::places::target::Places;
use crate::places::workload::{Op, UNIT, Windows, Workload, objects};
use crate::run::{Figures, Outcome, Share, side_by_side};
use anyhow::bail;
use clap::{Args, ValueEnum};
use remora_client_core::Rect;
use remora_command_line::{Address, Connection, ProcessCpu, show_by_name, unavailable, usage};
use remora_resp::Value;
use serde::Serialize;
use std::io::Write;
use std::time::Instant;

/// The key of points that GEOADD keeps, and Tile38's.
const KEY: &[u8] = b"bench:geo";
/// The key of the tree: of another type, so another key.
const TREE: &[u8] = b"bench:geo:tree";
/// The reply to a PING.
const PINGED: &[u8] = &[b'x'; 56];
/// Points, or searches, sent before replies are taken.
const BATCH: usize = 500;
/// Kilometres of a degree on Redis's sphere.
const DEGREE_KM: f64 = 6372.797560856 * std::f64::consts::PI / 180.0;
const MAX_RECORDS: usize = 100_000_000;
const MAX_OPS: usize = 1_000_000_000;

/// By which commands points are kept and found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum By {
    /// GEOADD, and GEOSEARCH with BYBOX.
    #[default]
    Geosearch,
    /// RTREE.ADDPOINT and RTREE.SEARCH: of ours only.
    Rtree,
    /// SET ... POINT and INTERSECTS ... BOUNDS: of Tile38 only.
    Tile38,
    /// PING with as many bytes as a few names: what any request costs. There are
    /// no points.
    Ping,
}
show_by_name!(By);

/// Flags of `remora bench geo`.
#[derive(Clone, Debug, Args)]
pub struct GeoArgs {
    /// Where the server listens for RESP: HOST:PORT.
    #[arg(long, value_name = "HOST:PORT")]
    pub server: String,
    /// The server's process, for its CPU time [default: as its INFO says].
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<u32>,
    /// By which commands.
    #[arg(long, value_enum, default_value_t = By::Geosearch)]
    pub by: By,
    /// Points.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub records: usize,
    /// Connections, each with a thread of its own.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub clients: usize,
    /// Searches of all clients together.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub ops: usize,
    /// Searches that a client sends before it takes their replies. Above 1 the
    /// latencies are those of so many together.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub pipeline: usize,
    /// Edges of the boxes are in (0, F], in degrees.
    #[arg(long, value_name = "F", default_value_t = 1e-5)]
    pub scale: f64,
    /// Seed of the points and of the boxes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The points are there: an earlier run with --keep has loaded them.
    #[arg(long)]
    pub loaded: bool,
    /// Leaves the points there.
    #[arg(long)]
    pub keep: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub json: bool,
}

impl GeoArgs {
    fn check(&self) -> anyhow::Result<()> {
        within("--records", self.records, 1, MAX_RECORDS)?;
        within("--clients", self.clients, 1, MAX_CLIENTS)?;
        within("--ops", self.ops, 1, MAX_OPS)?;
        within("--pipeline", self.pipeline, 1, BATCH)?;
        if !(self.scale > 0.0 && self.scale <= 1.0) {
            return Err(usage(format!("--scale is above 0 and at most 1, not {}", self.scale)));
        }
        Ok(())
    }
}

/// One run, with all parameters needed to repeat it.
#[derive(Clone, Debug, Serialize)]
struct GeoReport {
    #[serde(flatten)]
    figures: Figures,
    results_per_op: f64,
    command: String,
}

/// A connection and the count of its requests.
struct Points {
    connection: Connection,
    by: By,
    asked: u64,
}

impl Points {
    fn open(args: &GeoArgs) -> anyhow::Result<Self> {
        let connection = Connection::connect(&args.server)
            .map_err(|error| unavailable(format!("RESP over tcp: {error:#}")))?;
        Ok(Self { connection, by: args.by, asked: 0 })
    }

    fn push(&mut self, parts: &[&[u8]]) {
        self.connection.push_header(parts.len());
        parts.iter().for_each(|part| self.connection.push_part(part));
    }

    /// Adds a point; the caller takes the reply.
    fn push_point(&mut self, id: u64, rect: &Rect) {
        let (x, y) = rect.centre();
        let (id, x, y) = (id.to_string(), x.to_string(), y.to_string());
        let (id, x, y) = (id.as_bytes(), x.as_bytes(), y.as_bytes());
        match self.by {
            By::Geosearch => self.push(&[b"GEOADD", KEY, x, y, id]),
            By::Rtree => self.push(&[b"RTREE.ADDPOINT", TREE, id, x, y]),
            By::Tile38 => self.push(&[b"SET", KEY, id, b"POINT", y, x]),
            By::Ping => self.push(&[b"PING"]),
        }
    }

    fn load(&mut self, args: &GeoArgs) -> anyhow::Result<()> {
        if self.by == By::Ping {
            return Ok(());
        }
        self.drop_all()?;
        let mut objects = objects(args.seed, args.records as u64).peekable();
        while objects.peek().is_some() {
            let mut sent = 0;
            for (id, rect) in objects.by_ref().take(BATCH) {
                self.push_point(id, &rect);
                sent += 1;
            }
            self.connection.flush()?;
            for _ in 0..sent {
                number_or_ok(&self.connection.reply()?)?;
            }
        }
        Ok(())
    }

    fn drop_all(&mut self) -> anyhow::Result<()> {
        let command: [&[u8]; 2] = match self.by {
            By::Geosearch => [b"DEL", KEY],
            By::Rtree => [b"RTREE.DROP", TREE],
            By::Tile38 => [b"DROP", KEY],
            By::Ping => return Ok(()),
        };
        self.push(&command);
        self.connection.flush()?;
        number(&self.connection.reply()?).map(drop)
    }

    /// Asks for the points in a box; the caller takes the reply.
    fn push_search(&mut self, window: &Rect) {
        match self.by {
            By::Geosearch => {
                let (x, y) = window.centre();
                let kilometres = |degrees: f64| (degrees * DEGREE_KM).to_string();
                let (width, height) = (window.max_x - window.min_x, window.max_y - window.min_y);
                let numbers = [x.to_string(), y.to_string(), kilometres(width), kilometres(height)];
                let [x, y, width, height] = numbers.each_ref().map(String::as_bytes);
                self.push(&[
                    b"GEOSEARCH",
                    KEY,
                    b"FROMLONLAT",
                    x,
                    y,
                    b"BYBOX",
                    width,
                    height,
                    b"km",
                ]);
            }
            By::Rtree => {
                let numbers = [window.min_x, window.min_y, window.max_x, window.max_y];
                let numbers = numbers.map(|number| number.to_string());
                let [min_x, min_y, max_x, max_y] = numbers.each_ref().map(String::as_bytes);
                self.push(&[b"RTREE.SEARCH", TREE, min_x, min_y, max_x, max_y]);
            }
            By::Ping => self.push(&[b"PING", PINGED]),
            By::Tile38 => {
                let numbers = [window.min_y, window.min_x, window.max_y, window.max_x];
                let numbers = numbers.map(|number| number.to_string());
                let [south, west, north, east] = numbers.each_ref().map(String::as_bytes);
                // Without a limit it gives the first hundred.
                self.push(&[
                    b"INTERSECTS",
                    KEY,
                    b"LIMIT",
                    b"1000000000",
                    b"IDS",
                    b"BOUNDS",
                    south,
                    west,
                    north,
                    east,
                ]);
            }
        }
        self.asked += 1;
    }

    /// How many points a search found; none where that is not looked for.
    fn take_found(&mut self) -> anyhow::Result<usize> {
        let by = self.by;
        let reply = self.connection.reply()?;
        match (by, objects_of(by, &reply)) {
            (_, Some(found)) => Ok(found.len()),
            (By::Ping, None) if matches!(reply, Value::Bulk(_)) => Ok(0),
            (_, None) => number(&reply).map(|_| 0),
        }
    }

    /// Searches, so many at a time, and measures them.
    fn drive(
        &mut self,
        ops: impl Iterator<Item = Op>,
        pipeline: usize,
    ) -> anyhow::Result<(Share, Found)> {
        let before = self.costs();
        let (mut ops, mut found) = (ops.peekable(), Found::default());
        let mut meter = Meter::start(1, None)?;
        while ops.peek().is_some() {
            let windows = ops.by_ref().take(pipeline).filter_map(|op| match op {
                Op::Search(window) => Some(window),
                Op::Insert(..) => None,
            });
            let windows: Vec<Rect> = windows.collect();
            meter.measure(windows.len() as u64, |_| {
                windows.iter().for_each(|window| self.push_search(window));
                self.connection.flush()?;
                for _ in &windows {
                    found.searches += 1;
                    found.results += self.take_found()? as u64;
                }
                Ok(())
            })?;
        }
        let ended = Instant::now();
        Ok((Share { meter, ended, costs: self.costs() - before }, found))
    }
}

fn number(reply: &Value<'_>) -> anyhow::Result<i64> {
    match reply {
        Value::Integer(number) => Ok(*number),
        Value::Error(text) => bail!("the server says: {}", String::from_utf8_lossy(text)),
        other => bail!("unexpected reply: {other:?}"),
    }
}

/// The reply to a change: a number, or OK.
fn number_or_ok(reply: &Value<'_>) -> anyhow::Result<i64> {
    match reply {
        Value::Simple(_) => Ok(1),
        other => number(other),
    }
}

/// The objects of a search's reply; Tile38 puts a cursor before them.
fn objects_of<'r, 'v>(by: By, reply: &'r Value<'v>) -> Option<&'r [Value<'v>]> {
    match (by, reply) {
        (By::Tile38, Value::Array(parts)) => match &parts[..] {
            [Value::Integer(_), Value::Array(found)] => Some(found),
            _ => None,
        },
        (_, Value::Array(found)) => Some(found),
        _ => None,
    }
}

impl Places for Points {
    fn search(
        &mut self,
        window: &Rect,
        see: &mut dyn FnMut(u64, Option<&Rect>),
    ) -> anyhow::Result<Option<u64>> {
        self.push_search(window);
        self.connection.flush()?;
        // It does not compare the names and numbers: they cost the same.
        (0..self.take_found()?).for_each(|at| see(at as u64, None));
        Ok(None)
    }

    fn put(&mut self, id: u64, rect: Rect) -> anyhow::Result<bool> {
        self.push_point(id, &rect);
        self.connection.flush()?;
        Ok(number_or_ok(&self.connection.reply()?)? == 1)
    }

    fn costs(&self) -> Costs {
        Costs {
            round_trips: self.connection.flushes(),
            bytes: self.connection.bytes(),
            asked: self.asked,
            ..Costs::default()
        }
    }
}

/// Runs the bench.
pub fn run(args: &GeoArgs) -> anyhow::Result<()> {
    args.check()?;
    let mut points = Points::open(args)?;
    if !args.loaded {
        points.load(args)?;
    }
    let address = Address::Resp(args.server.clone());
    let pid = args.server_pid.or_else(|| address.pid());
    let server_cpu = pid.and_then(ProcessCpu::of);
    let workload = Workload {
        space: UNIT,
        scale: Scale::Uniform(args.scale),
        windows: Windows::Drawn,
        inserts: 0.0,
        ops: args.ops,
        clients: args.clients,
        records: args.records as u64,
        seed: args.seed,
    };
    let prepare = |client| {
        let mut points = Points::open(args)?;
        warm_up(&mut points, &UNIT, client, args.clients)?;
        anyhow::Ok((points, workload.of_client(client)))
    };
    let work = |(mut points, ops): (Points, _)| points.drive(ops, args.pipeline);
    let (brought, spent) = side_by_side(args.clients, &[], server_cpu, &prepare, &work)?;
    let (shares, found): (Vec<_>, Vec<_>) = brought.into_iter().unzip();
    let results: u64 = found.iter().map(|found| found.results).sum();
    let report = GeoReport {
        figures: Outcome::of(shares, spent)?.figures(),
        results_per_op: results as f64 / args.ops as f64,
        command: command(args),
    };
    if !args.keep {
        points.drop_all()?;
    }
    print(&report, args.json, &mut std::io::stdout().lock())
}

/// The command that repeats the run.
fn command(args: &GeoArgs) -> String {
    let GeoArgs { server, by, records, clients, ops, pipeline, scale, seed, .. } = args;
    format!(
        "remora bench geo --server {server} --by {by} --records {records} --clients {clients} \
         --ops {ops} --pipeline {pipeline} --scale {scale} --seed {seed}"
    )
}

fn print(report: &GeoReport, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    if json {
        writeln!(out, "{}", serde_json::to_string(report)?)?;
        return Ok(());
    }
    let Figures { ops_per_s, p50_us, p99_us, server_cpu_us_per_op, .. } = report.figures;
    writeln!(out, "{ops_per_s:.0} searches/s, p50 {p50_us:.1} us, p99 {p99_us:.1} us")?;
    writeln!(out, "{:.4} points a search", report.results_per_op)?;
    if let Some(cpu) = server_cpu_us_per_op {
        writeln!(out, "{cpu:.2} us of the server's CPU a search")?;
    }
    writeln!(out, "{}", report.command)?;
    Ok(())
}
