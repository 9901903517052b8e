//! `remora bench keys`: GET and SET on keys, by every path.

mod args;
mod report;

use crate::drive::load;
use crate::pinning;
use crate::records::{Numbered, Records};
use crate::run::{Outcome, Plan, run as run_plan};
use crate::targets::local::LocalTarget;
use crate::targets::resp::RespTarget;
use crate::targets::session::SessionTarget;
use crate::targets::target::Target;
use crate::trace::Trace;
use crate::transport_report::TransportReport;
use crate::variants;
use crate::workload::{Dist, Scatter, Source, Workload};
pub use args::KeysArgs;
use args::{BenchPath, PointerCache};
use remora_client_core::Options;
use remora_command_line::serving::raise_descriptor_limit;
use remora_command_line::shards::default_shards;
use remora_command_line::{Address, ProcessCpu, ServerPlan, ServerProcess, connect, note};
use report::KeysReport;
use std::time::{Duration, Instant};

const DEFAULT_OPS: usize = 1_000_000;

/// Runs the bench.
pub fn run(mut args: KeysArgs) -> anyhow::Result<()> {
    args.normalize();
    args.check()?;
    let source = match &args.dist {
        Dist::File(path) => {
            let Trace { keys, requests } = Trace::read(path, "--dist", args.trace_key_bytes)?;
            args.records = keys;
            args.ops.get_or_insert(requests.len());
            Source::Trace(requests)
        }
        Dist::Zipf(exponent) => Source::Zipf(*exponent, Some(Scatter::over(args.records as u32))),
        Dist::Uniform => Source::Uniform,
    };
    let records = Numbered::new(0..args.records as u32, args.key_bytes, args.value_bytes)?;
    let workload = Workload {
        source,
        records: args.records as u32,
        ops: args.ops.unwrap_or(DEFAULT_OPS),
        clients: args.clients,
        reads: args.reads,
        seed: args.seed,
    };
    let shards = args.shards.unwrap_or_else(|| default_shards(u64::MAX));
    let ((outcome, transport), known_shards) = if args.path == BenchPath::Local {
        ((measure_local(&args, &records, &workload)?, TransportReport::by("local")), None)
    } else if args.is_variant() {
        (
            (measure_variant(&args, &records, &workload, shards)?, TransportReport::by("shm")),
            Some(shards),
        )
    } else if let Some(address) = &args.server {
        (measure(&args, &records, &workload, shards, address)?, None)
    } else {
        let server = ServerProcess::start(&own_server(&args, shards))?;
        let address = match args.path {
            BenchPath::Resp => Address::Resp(server.resp_address().to_string()),
            // The server reports its other addresses.
            _ if args.transport.is_remote() => Address::Resp(server.resp_address().to_string()),
            _ => Address::Socket(server.socket_path().to_path_buf()),
        };
        let measured = measure(&args, &records, &workload, shards, &address)
            .inspect_err(|_| server.note_log())?;
        server.stop()?;
        (measured, Some(shards))
    };
    let report = KeysReport::new(&args, transport, workload.ops, known_shards, &outcome);
    report.print(args.json, &mut std::io::stdout().lock())?;
    outcome.verify()
}

/// The server that the bench starts.
fn own_server(args: &KeysArgs, shards: usize) -> ServerPlan {
    ServerPlan {
        shards,
        wake: args.wake,
        pin: pinning::is_wanted(args.wake),
        lease_min_ms: args.lease_ms,
        over_tcp: args.transport.is_remote(),
        ..ServerPlan::with_room(args.records, args.key_bytes, args.value_bytes)
    }
}

fn measure_local(
    args: &KeysArgs,
    records: &Numbered,
    workload: &Workload,
) -> anyhow::Result<Outcome> {
    let map = LocalTarget::load(records)?;
    // The same core as a client beside a server would have.
    let cores =
        pinning::client_cores(args.wake, args.shards.unwrap_or_else(|| default_shards(u64::MAX)));
    let plan = Plan {
        records,
        workload,
        shape: args.shape(),
        warms_up: !args.cold,
        server_cpu: None,
        cores: &cores,
    };
    let outcome = run_plan(&plan, || Ok(LocalTarget::open(&map)))?;
    // Without a server there is no server time.
    Ok(Outcome { server_cpu: Some(Duration::ZERO), ..outcome })
}

/// Measures other messages or another shard model, in a server of their own.
fn measure_variant(
    args: &KeysArgs,
    records: &Numbered,
    workload: &Workload,
    shards: usize,
) -> anyhow::Result<Outcome> {
    // Each client has a connection of its own, of some descriptors.
    raise_descriptor_limit();
    let server = ServerProcess::start_with(&args.form().server_args(&own_server(args, shards)))?;
    let cores = pinning::client_cores(args.wake, shards * args.shard_model.threads());
    let plan = Plan {
        records,
        workload,
        shape: args.shape(),
        warms_up: !args.cold,
        server_cpu: ProcessCpu::of(server.pid()),
        cores: &cores,
    };
    let outcome =
        load_and_run(&plan, || variants::open(server.socket_path(), args.form(), args.wake))
            .inspect_err(|_| server.note_log())?;
    server.stop()?;
    Ok(outcome)
}

/// Loads the records into a running server and measures.
fn measure(
    args: &KeysArgs,
    records: &Numbered,
    workload: &Workload,
    shards: usize,
    address: &Address,
) -> anyhow::Result<(Outcome, TransportReport)> {
    let server_cpu = address.pid().and_then(ProcessCpu::of);
    if server_cpu.is_none() {
        note("the server's process cannot be seen from here: no CPU time");
    }
    let cores =
        if args.server.is_none() { pinning::client_cores(args.wake, shards) } else { Vec::new() };
    let plan = Plan {
        records,
        workload,
        shape: args.shape(),
        warms_up: !args.cold,
        server_cpu,
        cores: &cores,
    };
    let path = match args.path {
        BenchPath::Ask => remora_client_core::Path::Ask,
        BenchPath::Read => remora_client_core::Path::Read,
        BenchPath::Choose | BenchPath::Local => remora_client_core::Path::Choose,
        BenchPath::Resp => {
            let peer = address.resp()?;
            return Ok((
                load_and_run(&plan, || RespTarget::open(peer))?,
                TransportReport::by("tcp"),
            ));
        }
    };
    let options = options(args)?;
    let server = address.of_sessions(args.transport)?;
    // The loading clients keep no pointers: a measured client learns each pointer itself, in a
    // cache of its own or in the shared table.
    let keeps_none =
        Options { pointer_cache: remora_client_core::PointerCacheKind::Off, ..options.clone() };
    let loader = connect(server.clone(), &keeps_none)?;
    load_records(&plan, SessionTarget::open(&loader, path)?)?;
    drop(loader);
    // All clients are threads of this process: one connection, one ring pair
    // for each shard.
    let client = connect(server, &options)?;
    let outcome = run_plan(&plan, || SessionTarget::open(&client, path))?;
    let transport = TransportReport::of(&client, 1, args.clients);
    Ok((outcome, transport))
}

fn load_and_run<T: Target>(
    plan: &Plan<'_, Numbered>,
    open: impl Fn() -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Outcome> {
    load_records(plan, open()?)?;
    run_plan(plan, open)
}

fn load_records<T: Target>(plan: &Plan<'_, Numbered>, mut target: T) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut noted = began;
    let count = plan.records.count();
    load(&mut target, plan.records, |done| {
        if noted.elapsed() > Duration::from_secs(1) {
            noted = Instant::now();
            note(&format!("loading: {done} of {count} records"));
        }
    })?;
    note(&format!("loaded {count} records in {:.2} s", began.elapsed().as_secs_f64()));
    Ok(())
}

fn options(args: &KeysArgs) -> anyhow::Result<Options> {
    let defaults = Options::default();
    Ok(Options {
        transport: args.transport.wanted(),
        rdma_packets: args.packets.packets()?,
        wake: args.wake.into(),
        pointer_cache: match args.pointer_cache {
            PointerCache::Off => remora_client_core::PointerCacheKind::Off,
            PointerCache::Private => remora_client_core::PointerCacheKind::Private,
            PointerCache::Shared => remora_client_core::PointerCacheKind::Shared,
        },
        // Twice the records: none is pushed out by another.
        pointer_cache_entries: defaults.pointer_cache_entries.max(2 * args.records),
        lease: Some(Duration::from_millis(args.lease_ms)),
        policy: args.policy.into(),
        ..defaults
    })
}
