//! A run: its clients side by side, the clock around them.

use super::data::Records;
use super::drive::{Shape, drive, warm_up};
use super::meter::{Meter, Tally};
use super::target::{Costs, Target};
use super::workload::Workload;
use crate::cpu::ProcessCpu;
use anyhow::{Context, anyhow, bail};
use core_affinity::CoreId;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is to be run.
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

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Latencies, ns.
    pub latency_ns: Histogram<u64>,
    /// Operations, and what was wrong with them.
    pub tally: Tally,
    /// What they cost.
    pub costs: Costs,
    /// From the first client's start to the last one's end.
    pub elapsed: Duration,
    /// CPU time of the server in the timed part.
    pub server_cpu: Option<Duration>,
}

/// What one client brings home.
struct Share {
    meter: Meter,
    ended: Instant,
    costs: Costs,
}

/// Runs all clients, each on a thread with a target of its own from `open`.
pub fn run<R: Records, T: Target>(
    plan: &Plan<'_, R>,
    open: impl Fn() -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Outcome> {
    let clients = plan.workload.clients;
    // Everybody meets three times: when all are ready, when the server's CPU
    // time has been read, and when all have ended.
    let gate = Barrier::new(clients + 1);
    let has_failed = AtomicBool::new(false);
    let (shares, server_cpu) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|client| {
                let (gate, has_failed, open) = (&gate, &has_failed, &open);
                scope.spawn(move || one_client(plan, client, gate, has_failed, open))
            })
            .collect();
        gate.wait();
        let before = plan.server_cpu.and_then(ProcessCpu::spent);
        gate.wait();
        gate.wait();
        let after = plan.server_cpu.and_then(ProcessCpu::spent);
        let shares: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        (shares, after.zip(before).map(|(after, before)| after.saturating_sub(before)))
    });
    let mut whole: Option<(Share, Instant)> = None;
    let mut gave_up = None;
    for share in shares {
        let share = match share.map_err(|_| anyhow!("a client thread panicked"))? {
            Ok(Some(share)) => share,
            Ok(None) => continue,
            Err(error) => {
                gave_up.get_or_insert(error);
                continue;
            }
        };
        whole = Some(match whole {
            None => {
                let began = share.meter.began;
                (share, began)
            }
            Some((mut sum, began)) => {
                sum.meter.latency_ns.add(&share.meter.latency_ns)?;
                sum.meter.tally.add(share.meter.tally);
                sum.costs += share.costs;
                sum.ended = sum.ended.max(share.ended);
                (sum, began.min(share.meter.began))
            }
        });
    }
    if let Some(error) = gave_up {
        return Err(error);
    }
    let (sum, began) = whole.context("no client ran")?;
    Ok(Outcome {
        latency_ns: sum.meter.latency_ns,
        tally: sum.meter.tally,
        costs: sum.costs,
        elapsed: sum.ended - began,
        server_cpu,
    })
}

/// One client's thread. `None`: it did not begin, because another had failed.
/// It passes every gate, whatever happens, so that nobody waits for it.
fn one_client<R: Records, T: Target>(
    plan: &Plan<'_, R>,
    client: usize,
    gate: &Barrier,
    has_failed: &AtomicBool,
    open: &(impl Fn() -> anyhow::Result<T> + Sync),
) -> anyhow::Result<Option<Share>> {
    if let Some(core) = plan.cores.get(client % plan.cores.len().max(1)) {
        core_affinity::set_for_current(*core);
    }
    let prepare = || {
        let ops = plan.workload.of_client(client)?;
        let mut target = open()?;
        if plan.warms_up {
            warm_up(&mut target, plan.records)?;
        }
        anyhow::Ok((target, ops))
    };
    let prepared = without_panic(prepare);
    if prepared.is_err() {
        has_failed.store(true, Ordering::SeqCst);
    }
    gate.wait();
    gate.wait();
    let result = match prepared {
        Ok(_) if has_failed.load(Ordering::SeqCst) => Ok(None),
        Ok((mut target, ops)) => {
            let before = target.costs();
            let result = without_panic(|| drive(&mut target, plan.records, &ops, plan.shape));
            let ended = Instant::now();
            result.map(|meter| Some(Share { meter, ended, costs: target.costs() - before }))
        }
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
