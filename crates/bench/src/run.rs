//! A run: its clients side by side, the clock around them.

use crate::costs::Costs;
use crate::drive::{Shape, drive, warm_up};
use crate::meter::{Meter, Tally};
use crate::records::Records;
use crate::targets::target::Target;
use crate::workload::{Op, Workload};
use anyhow::{Context, anyhow, bail};
use core_affinity::CoreId;
use hdrhistogram::Histogram;
use remora_command_line::ProcessCpu;
use serde::Serialize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The parameters of a run.
#[derive(Debug)]
pub struct Plan<'a, R> {
    /// The loaded records.
    pub records: &'a R,
    /// The operations.
    pub workload: &'a Workload,
    /// How they are issued.
    pub shape: Shape,
    /// Whether every record is looked up before the clock starts.
    pub warms_up: bool,
    /// The server's CPU clock.
    pub server_cpu: Option<ProcessCpu>,
    /// Cores that the clients are pinned to, in turn; none: not pinned.
    pub cores: &'a [CoreId],
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Latencies, ns.
    pub latency_ns: Histogram<u64>,
    /// Operations, and the errors among them.
    pub tally: Tally,
    /// The costs.
    pub costs: Costs,
    /// From the first client's start to the last one's end.
    pub elapsed: Duration,
    /// CPU time of the server in the timed part.
    pub server_cpu: Option<Duration>,
}

/// The result of one client.
#[derive(Debug)]
pub struct Share {
    /// Its clock and counters.
    pub meter: Meter,
    /// When it ended.
    pub ended: Instant,
    /// The costs of its operations.
    pub costs: Costs,
}

/// Runs all clients, each on a thread with a target of its own from `open`.
pub fn run<R: Records, T: Target>(
    plan: &Plan<'_, R>,
    open: impl Fn() -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Outcome> {
    let prepare = |client| {
        let ops = plan.workload.of_client(client)?;
        let mut target = open()?;
        if plan.warms_up {
            warm_up(&mut target, plan.records)?;
        }
        anyhow::Ok((target, ops))
    };
    let work = |(mut target, ops): (T, Vec<Op>)| {
        let before = target.costs();
        let meter = drive(&mut target, plan.records, &ops, plan.shape)?;
        let ended = Instant::now();
        anyhow::Ok(Share { meter, ended, costs: target.costs() - before })
    };
    let (shares, server_cpu) =
        side_by_side(plan.workload.clients, plan.cores, plan.server_cpu, &prepare, &work)?;
    Outcome::of(shares, server_cpu)
}

/// Runs clients, each on a thread of its own: all prepare, then all work. Returns each client's
/// result, and the server's CPU time while they worked. If one cannot prepare, none works.
pub fn side_by_side<P, R: Send>(
    clients: usize,
    cores: &[CoreId],
    server_cpu: Option<ProcessCpu>,
    prepare: &(impl Fn(usize) -> anyhow::Result<P> + Sync),
    work: &(impl Fn(P) -> anyhow::Result<R> + Sync),
) -> anyhow::Result<(Vec<R>, Option<Duration>)> {
    // All threads meet three times: when all are ready, when the server's CPU
    // time has been read, and when all have ended.
    let gate = Barrier::new(clients + 1);
    let has_failed = AtomicBool::new(false);
    let (results, server_cpu) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|client| {
                let (gate, has_failed) = (&gate, &has_failed);
                let core = cores.get(client % cores.len().max(1));
                scope.spawn(move || one_client(client, core, gate, has_failed, prepare, work))
            })
            .collect();
        gate.wait();
        let before = server_cpu.and_then(ProcessCpu::spent);
        gate.wait();
        gate.wait();
        let after = server_cpu.and_then(ProcessCpu::spent);
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        (results, after.zip(before).map(|(after, before)| after.saturating_sub(before)))
    });
    let mut brought = Vec::with_capacity(clients);
    let mut gave_up = None;
    for result in results {
        match result.map_err(|_| anyhow!("a client thread panicked"))? {
            Ok(share) => brought.extend(share),
            Err(error) => {
                gave_up.get_or_insert(error);
            }
        }
    }
    match gave_up {
        Some(error) => Err(error),
        None => Ok((brought, server_cpu)),
    }
}

/// One client's thread. `None`: it did not begin, because another had failed. It passes every gate,
/// whatever happens, so that no thread waits for it.
fn one_client<P, R>(
    client: usize,
    core: Option<&CoreId>,
    gate: &Barrier,
    has_failed: &AtomicBool,
    prepare: &impl Fn(usize) -> anyhow::Result<P>,
    work: &impl Fn(P) -> anyhow::Result<R>,
) -> anyhow::Result<Option<R>> {
    if let Some(core) = core {
        core_affinity::set_for_current(*core);
    }
    let prepared = without_panic(|| prepare(client));
    if prepared.is_err() {
        has_failed.store(true, Ordering::SeqCst);
    }
    gate.wait();
    gate.wait();
    let result = match prepared {
        Ok(_) if has_failed.load(Ordering::SeqCst) => Ok(None),
        Ok(prepared) => without_panic(|| work(prepared)).map(Some),
        Err(error) => Err(error),
    };
    gate.wait();
    result
}

/// A panic becomes an error: a thread that dies would leave the others
/// waiting at a gate.
fn without_panic<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| bail!("a client thread panicked"))
}

/// The figures of a run, as every report has them.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// Operations a second.
    pub ops_per_s: f64,
    /// Median latency, us.
    pub p50_us: f64,
    /// 99th percentile, us.
    pub p99_us: f64,
    /// 99.9th percentile, us.
    pub p999_us: f64,
    /// Dependent trips for each operation.
    pub round_trips_per_op: f64,
    /// Bytes that crossed for each operation.
    pub bytes_per_op: f64,
    /// CPU time of the server for each operation, us; none if the server's
    /// process cannot be seen from here.
    pub server_cpu_us_per_op: Option<f64>,
}

impl Outcome {
    /// The sum of all clients' results.
    pub fn of(
        shares: impl IntoIterator<Item = Share>,
        server_cpu: Option<Duration>,
    ) -> anyhow::Result<Self> {
        let mut shares = shares.into_iter();
        let first = shares.next().context("no client ran")?;
        let (mut began, mut ended) = (first.meter.began, first.ended);
        let Meter { mut latency_ns, mut tally, .. } = first.meter;
        let mut costs = first.costs;
        for share in shares {
            latency_ns.add(&share.meter.latency_ns)?;
            tally.add(share.meter.tally);
            costs += share.costs;
            began = began.min(share.meter.began);
            ended = ended.max(share.ended);
        }
        Ok(Self { latency_ns, tally, costs, elapsed: ended - began, server_cpu })
    }

    /// The figures.
    pub fn figures(&self) -> Figures {
        let ops = self.tally.ops.max(1) as f64;
        let us = |quantile| self.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
        Figures {
            ops_per_s: self.tally.ops as f64 / self.elapsed.as_secs_f64().max(1e-9),
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
            round_trips_per_op: self.costs.round_trips as f64 / ops,
            bytes_per_op: self.costs.bytes as f64 / ops,
            server_cpu_us_per_op: self.server_cpu.map(|spent| spent.as_secs_f64() * 1e6 / ops),
        }
    }

    /// An error if a loaded key was missing or had another value.
    pub fn verify(&self) -> anyhow::Result<()> {
        let Tally { ops, missing, wrong } = self.tally;
        if missing + wrong > 0 {
            bail!("of {ops} operations, {missing} found no value and {wrong} a wrong one");
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A made-up outcome.
    pub fn outcome() -> Outcome {
        let mut latency_ns = Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
        latency_ns.record_n(2_000, 10).unwrap();
        Outcome {
            latency_ns,
            tally: Tally { ops: 10, missing: 0, wrong: 0 },
            costs: Costs { round_trips: 10, bytes: 640, read: 10, hits: 10, ..Costs::default() },
            elapsed: Duration::from_millis(1),
            server_cpu: Some(Duration::from_micros(5)),
        }
    }

    #[test]
    fn a_missing_key_fails_the_run() {
        let mut outcome = outcome();
        outcome.verify().unwrap();
        outcome.tally.missing = 1;
        assert!(outcome.verify().is_err());
    }
}
