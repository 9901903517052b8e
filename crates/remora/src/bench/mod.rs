//! `remora bench`: measures ways to the same records.

mod address;
mod args;
mod choice;
mod data;
mod drive;
mod eviction;
#[cfg(test)]
pub mod fields;
mod geo;
mod meter;
mod pinning;
mod places;
mod report;
mod run;
mod target;
mod trace;
mod variants;
mod workload;

use crate::cpu::ProcessCpu;
use crate::serve::{default_shards, raise_descriptor_limit};
use crate::server_process::{ServerPlan, ServerProcess};
pub use address::Address;
use args::{BenchPath, KeysArgs, PointerCache};
pub use choice::BenchPolicy;
use clap::Subcommand;
use data::Numbered;
pub use data::Records;
pub use drive::{Shape, load};
use eviction::EvictionArgs;
use geo::GeoArgs;
pub use places::{
    Op as SearchOp, Places as TreePlaces, PlacesArgs, RespPlaces, SessionPlaces, Tree,
    drive as drive_searches,
};
use remora_client_core::Options;
#[cfg(test)]
pub use report::tests::outcome as outcome_for_tests;
use report::{Carried, KeysReport};
pub use run::{Figures, Outcome, Plan, run as run_plan};
use std::io::Write;
use std::time::{Duration, Instant};
use target::{LocalTarget, Target};
pub use target::{RespTarget, SessionTarget};
use trace::Trace;
use workload::{Dist, Scatter};
pub use workload::{Source, Workload};

const DEFAULT_OPS: usize = 1_000_000;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// GET and SET on keys.
    Keys(Box<KeysArgs>),
    /// Windows in a tree of rectangles, and inserts.
    Places(Box<PlacesArgs>),
    /// Boxes of points over RESP, by the commands that Redis has too.
    Geo(GeoArgs),
    /// Hit ratios of eviction policies on a trace; no server is started.
    Eviction(Box<EvictionArgs>),
    /// The server of `keys` for messages and shard models that are compared.
    #[command(hide = true)]
    VariantServer(variants::VariantServerArgs),
}

/// Runs a bench.
pub fn run(command: BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Keys(mut args) => {
            variants::normalize(&mut args);
            args.check()?;
            keys(*args)
        }
        BenchCommand::Places(args) => places::run(&args),
        BenchCommand::Geo(args) => geo::run(&args),
        BenchCommand::VariantServer(args) => variants::run_server(args),
        BenchCommand::Eviction(args) => eviction::run(&args),
    }
}

fn keys(mut args: KeysArgs) -> anyhow::Result<()> {
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
    let ((outcome, carried), known_shards) = if args.path == BenchPath::Local {
        ((measure_local(&args, &records, &workload)?, Carried::by("local")), None)
    } else if variants::is_variant(&args) {
        ((measure_variant(&args, &records, &workload, shards)?, Carried::by("shm")), Some(shards))
    } else if let Some(address) = &args.server {
        (measure(&args, &records, &workload, shards, address)?, None)
    } else {
        let server = ServerProcess::start(&own_server(&args, shards))?;
        let address = match args.path {
            BenchPath::Resp => Address::Resp(server.resp_address().to_string()),
            // It tells its other addresses.
            _ if args.transport.is_far() => Address::Resp(server.resp_address().to_string()),
            _ => Address::Socket(server.socket_path().to_path_buf()),
        };
        let measured = measure(&args, &records, &workload, shards, &address)
            .inspect_err(|_| server.note_log())?;
        server.stop()?;
        (measured, Some(shards))
    };
    let report = KeysReport::new(&args, carried, workload.ops, known_shards, &outcome);
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
        over_tcp: args.transport.is_far(),
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
    // No server, no server's time.
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
    let server =
        ServerProcess::start_with(&variants::server_args(args, &own_server(args, shards)))?;
    let cores = pinning::client_cores(args.wake, shards * args.shard_model.threads());
    let plan = Plan {
        records,
        workload,
        shape: args.shape(),
        warms_up: !args.cold,
        server_cpu: ProcessCpu::of(server.pid()),
        cores: &cores,
    };
    let outcome = load_and_run(&plan, || variants::open(server.socket_path(), args))
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
) -> anyhow::Result<(Outcome, Carried)> {
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
            return Ok((load_and_run(&plan, || RespTarget::open(peer))?, Carried::by("tcp")));
        }
    };
    let options = options(args)?;
    let server = address.of_sessions(args.transport)?;
    // Who loads keeps no pointers: none of them is known before a client has
    // learnt it, in a cache of its own or in the shared table.
    let keeps_none =
        Options { pointer_cache: remora_client_core::PointerCacheKind::Off, ..options.clone() };
    let loader = SessionTarget::connect(server.clone(), &keeps_none)?;
    load_records(&plan, SessionTarget::open(&loader, path)?)?;
    drop(loader);
    // All clients are threads of this process: one connection, one ring pair
    // for each shard.
    let client = SessionTarget::connect(server, &options)?;
    let outcome = run_plan(&plan, || SessionTarget::open(&client, path))?;
    let carried = Carried::of(&client, args.clients);
    Ok((outcome, carried))
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

/// A note for whoever watches; never on standard output.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
