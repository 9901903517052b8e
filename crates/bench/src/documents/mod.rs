//! `remora bench documents`: insert, find, update, delete, and query by an indexed field, by the native client
//! and by MongoDB's wire protocol (RDMA_Mongo 5, row M31).
//!
//! Invariant: every reply is checked, and after changes each document that was to change and the number of
//! all documents are, too. A refusal, a missing document or a wrong byte fails the run.

mod args;
mod contents;
mod mongo;
mod native;
mod report;
mod store;
#[cfg(test)]
mod tests;
mod work;

use crate::run::{Outcome, side_by_side};
use crate::transport_report::TransportReport;
use anyhow::{Context, bail};
pub use args::DocumentsArgs;
use args::{Op, mongo_address};
use contents::Contents;
use mongo::Mongo;
use native::{Native, NativeCatalog};
use remora_client::Path;
use remora_client_core::{Options, PointerCacheKind};
use remora_command_line::serving::raise_descriptor_limit;
use remora_command_line::{Address, ProcessCpu, ServerPlan, ServerProcess, connect, note};
use report::DocumentsReport;
use std::net::SocketAddr;
use store::{Catalog, Store, load};
use work::{Errors, Plan, Worker, verify};

/// Bytes of a document beside its value, and of its entries in two indexes, at most.
const DOCUMENT_BYTES: usize = 400;

/// Runs the bench.
pub fn run(args: &DocumentsArgs) -> anyhow::Result<()> {
    args.check()?;
    // Each connection takes some descriptors.
    raise_descriptor_limit();
    let server = match &args.server {
        Some(_) => None,
        None => Some(ServerProcess::start(&own_server(args))?),
    };
    let measured = match &server {
        Some(server) => measure_own(args, server).inspect_err(|_| server.note_log()),
        None => measure_running(args),
    };
    server.map_or(Ok(()), ServerProcess::stop)?;
    let (outcome, transport, errors) = measured?;
    let report = DocumentsReport::new(args, transport, &outcome, &errors);
    report.print(args.json, &mut std::io::stdout().lock())?;
    if let Some(why) = errors.first {
        bail!("of {} operations, the server refused {}: {why}", outcome.tally.ops, errors.count);
    }
    outcome.verify()
}

/// The server that the bench starts. A collection lies in one shard.
fn own_server(args: &DocumentsArgs) -> ServerPlan {
    let inserted = if args.op == Op::Insert { args.ops } else { 0 };
    ServerPlan {
        shards: 1,
        wake: args.wake,
        over_tcp: args.is_over_tcp(),
        speaks_mongo: args.is_mongo(),
        ..ServerPlan::with_room(args.records + inserted, 0, args.value_bytes + DOCUMENT_BYTES)
    }
}

type Measured = (Outcome, TransportReport, Errors);

fn measure_own(args: &DocumentsArgs, server: &ServerProcess) -> anyhow::Result<Measured> {
    let cpu = ProcessCpu::of(server.pid());
    if args.is_mongo() {
        let address = server.mongo_address().context("the server names no port of MongoDB")?;
        return over_mongo(args, address, cpu);
    }
    let address = match args.is_over_tcp() {
        // The server reports its other addresses.
        true => Address::Resp(server.resp_address().to_string()),
        false => Address::Socket(server.socket_path().to_path_buf()),
    };
    natively(args, &address, cpu)
}

fn measure_running(args: &DocumentsArgs) -> anyhow::Result<Measured> {
    let address = args.server.as_ref().context("a server is named")?;
    let pid = if args.is_mongo() { args.server_pid } else { address.pid() };
    let cpu = pid.and_then(ProcessCpu::of);
    if cpu.is_none() {
        note("the server's process cannot be seen from here: no CPU time");
    }
    match args.is_mongo() {
        true => over_mongo(args, mongo_address(address)?, cpu),
        false => natively(args, address, cpu),
    }
}

fn natively(
    args: &DocumentsArgs,
    address: &Address,
    cpu: Option<ProcessCpu>,
) -> anyhow::Result<Measured> {
    let address = address.of_sessions(args.transport)?;
    let inner = Options {
        transport: args.transport.wanted(),
        wake: args.wake.into(),
        pointer_cache: PointerCacheKind::Off,
        timeout: native::TIMEOUT,
        ..Options::default()
    };
    let client = connect(address.clone(), &inner)?;
    let options = native::options(args);
    let path = args.session_path().context("it is not MongoDB's protocol")?;
    let open = |path| Native::connect(&address, &options, path);
    let mut catalog = NativeCatalog::open(&client)?;
    let (outcome, errors) = measure(args, cpu, &mut catalog, &|| open(path), || open(Path::Ask))?;
    let connections = args.connections;
    Ok((outcome, TransportReport::of(&client, connections, connections), errors))
}

fn over_mongo(
    args: &DocumentsArgs,
    address: SocketAddr,
    cpu: Option<ProcessCpu>,
) -> anyhow::Result<Measured> {
    let open = || Mongo::connect(address);
    let (outcome, errors) = measure(args, cpu, &mut open()?, &open, open)?;
    Ok((outcome, TransportReport::by("tcp"), errors))
}

/// Loads the documents, measures, and looks at the result by a connection that only asks.
fn measure<S: Store>(
    args: &DocumentsArgs,
    cpu: Option<ProcessCpu>,
    catalog: &mut impl Catalog,
    open: &(impl Fn() -> anyhow::Result<S> + Sync),
    open_asking: impl Fn() -> anyhow::Result<S>,
) -> anyhow::Result<(Outcome, Errors)> {
    let inserted = if args.op == Op::Insert { args.ops } else { 0 };
    let plan = Plan {
        op: args.op,
        contents: Contents::new(args.records + inserted, args.value_bytes),
        records: args.records as u32,
        ops: args.ops,
        connections: args.connections,
        seed: args.seed,
        warms_up: !args.cold,
    };
    let mut asking = open_asking()?;
    catalog.remove()?;
    catalog.make_index()?;
    load(&mut asking, &plan.contents, plan.records)?;
    let prepare = |connection| Worker::prepare(plan, open()?, connection);
    let (done, spent) = side_by_side(plan.connections, &[], cpu, &prepare, &Worker::measure)?;
    let (mut shares, mut errors) = (Vec::new(), Errors::default());
    for (share, of_connection) in done {
        shares.push(share);
        errors.merge(of_connection);
    }
    let mut outcome = Outcome::of(shares, spent)?;
    outcome.tally.add(verify(&plan, &mut asking, catalog)?);
    catalog.remove()?;
    Ok((outcome, errors))
}
