//! The ways to the nearest free couriers, and what searches by them cost.

use crate::city::{City, EDGE, distance, place};
use crate::dispatch::{Customers, FREE};
use anyhow::{Context, bail, ensure};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use remora_client_core::{Client, Path, ServedBy};
use remora_command_line::{Connection, ProcessCpu};
use remora_resp::Value;
use serde::Serialize;
use std::time::{Duration, Instant};

/// How many couriers a customer is shown.
const WANTED: usize = 5;
/// Distances are compared to this part of a metre: over RESP they come as text.
const PRECISION: f64 = 1e-6;

/// One way.
pub enum Way {
    /// As any Redis client does.
    Resp(Box<Connection>),
    /// By the client library.
    Session(Box<Customers>),
}

/// What the searches by one way came to. The fields' names are a contract.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `resp`, `ask`, `read` or `choose`.
    pub path: &'static str,
    /// Searches.
    pub searches: u64,
    /// Searches a second.
    pub searches_per_s: f64,
    /// Median latency, us.
    pub p50_us: f64,
    /// 99th percentile, us.
    pub p99_us: f64,
    /// Dependent trips for each search.
    pub round_trips_per_op: f64,
    /// Searches that were answered by the server.
    pub asked: u64,
    /// Searches that the client did itself in the server's memory.
    pub read: u64,
    /// CPU time of the server for each search, us: that of the movements,
    /// measured before without searches, is taken off. None if the server's
    /// process cannot be seen from here.
    pub server_cpu_us_per_op: Option<f64>,
    /// Movements a second that went on meanwhile.
    pub moves_per_s: f64,
}

impl Way {
    /// Opens a way by its name.
    pub fn open(name: &str, client: &Client, resp: &str) -> anyhow::Result<Self> {
        let path = match name {
            "resp" => return Ok(Self::Resp(Box::new(Connection::connect(resp)?))),
            "ask" => Path::Ask,
            "read" => Path::Read,
            _ => Path::Choose,
        };
        Ok(Self::Session(Box::new(Customers::open(client, path)?)))
    }

    /// Distances of the nearest free couriers; round trips, and whether the
    /// client read them itself.
    fn search(&mut self, at: (f64, f64)) -> anyhow::Result<(Vec<f64>, u64, bool)> {
        match self {
            Self::Resp(connection) => {
                let [x, y] = [at.0, at.1].map(|coordinate| format!("{coordinate:?}"));
                let wanted = WANTED.to_string();
                connection.push(&[
                    b"RTREE.NEAREST",
                    FREE,
                    x.as_bytes(),
                    y.as_bytes(),
                    wanted.as_bytes(),
                    b"WITHDIST",
                ]);
                connection.flush()?;
                Ok((distances(&connection.reply()?)?, 1, false))
            }
            Self::Session(customers) => {
                let found = customers.nearest(at, WANTED)?;
                let far = found
                    .objects
                    .iter()
                    .map(|courier| distance((courier.rect.min_x, courier.rect.min_y), at));
                let is_read = matches!(found.served_by, ServedBy::Read | ServedBy::ReadAfter(_));
                Ok((far.collect(), found.counts.round_trips, is_read))
            }
        }
    }

    /// Searches for so long, for customers at random places.
    pub fn run(&mut self, path: &'static str, limit: Duration, seed: u64) -> anyhow::Result<Row> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut latencies = Vec::new();
        let (mut round_trips, mut read) = (0, 0);
        let began = Instant::now();
        // One search at least, however short the time.
        while latencies.is_empty() || began.elapsed() < limit {
            let at = place(&mut rng);
            let asked = Instant::now();
            let (far, trips, is_read) = self.search(at)?;
            latencies.push(asked.elapsed().as_secs_f64() * 1e6);
            ensure!(far.len() == WANTED && far.is_sorted(), "{path}: not the nearest: {far:?}");
            round_trips += trips;
            read += u64::from(is_read);
        }
        let took = began.elapsed().as_secs_f64();
        latencies.sort_by(f64::total_cmp);
        let searches = latencies.len() as u64;
        Ok(Row {
            path,
            searches,
            searches_per_s: searches as f64 / took,
            p50_us: latencies[latencies.len() / 2],
            p99_us: latencies[latencies.len() * 99 / 100],
            round_trips_per_op: round_trips as f64 / searches as f64,
            asked: searches - read,
            read,
            server_cpu_us_per_op: None,
            moves_per_s: 0.0,
        })
    }

    /// Compares so many answers with the city, in which no courier moves now.
    pub fn check(&mut self, city: &City, customers: u64, seed: u64) -> anyhow::Result<()> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for customer in 0..customers {
            // Some stand outside.
            let (x, y) = place(&mut rng);
            let at = if customer % 10 == 0 { (x - EDGE, y) } else { (x, y) };
            let (found, ..) = self.search(at)?;
            let wanted = city.nearest(at, WANTED);
            let same = found.len() == wanted.len()
                && found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < PRECISION);
            ensure!(same, "at {at:?} couriers were found {found:?} m away, but are {wanted:?}");
        }
        Ok(())
    }
}

/// CPU that a process spends while `run` runs.
pub fn spent_during<T>(
    cpu: Option<ProcessCpu>,
    run: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Option<Duration>)> {
    let before = cpu.and_then(ProcessCpu::spent);
    let done = run()?;
    let after = cpu.and_then(ProcessCpu::spent);
    Ok((done, before.zip(after).map(|(before, after)| after - before)))
}

/// The distances in a reply of ids and distances.
fn distances(reply: &Value<'_>) -> anyhow::Result<Vec<f64>> {
    let Value::Array(couriers) = reply else { bail!("unexpected reply: {reply:?}") };
    let distance = |courier: &Value<'_>| match courier {
        Value::Array(parts) => match parts[..] {
            [_, Value::Bulk(text)] => Ok(std::str::from_utf8(text)?.parse()?),
            _ => bail!("no distance: {parts:?}"),
        },
        other => bail!("no courier: {other:?}"),
    };
    couriers.iter().map(distance).collect::<anyhow::Result<_>>().context("RTREE.NEAREST")
}
