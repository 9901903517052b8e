//! `remora bench ranges`: keys and ranges of an ordered tree, with the nodes that a client keeps
//! (Fat-B+Tree V; rows F12 to F14, F22, F37, F38).

mod args;
mod report;
mod run;

use crate::pinning;
use crate::run::{Outcome, side_by_side};
use crate::transport_report::TransportReport;
pub use args::RangesArgs;
use remora_client_core::{Options, PointerCacheKind};
use remora_command_line::{Address, ProcessCpu, ServerPlan, ServerProcess, connect, note};
use report::RangesReport;
use run::{Found, Lookups, Reader};

/// Free memory of the bench's server beside the tree.
const SPARE_BYTES: u64 = 512 << 20;
/// Bytes of a half-full node for each of its entries, beside keys and values, at most.
const ENTRY_BYTES: u64 = 160;

/// Runs the bench.
pub fn run(args: &RangesArgs) -> anyhow::Result<()> {
    args.check()?;
    let (server, address) = match &args.server {
        Some(address) => (None, address.clone()),
        None => {
            let server = ServerProcess::start(&own_server(args))?;
            let address = if args.transport.is_remote() {
                // The server reports its other addresses.
                Address::Resp(server.resp_address().to_string())
            } else {
                Address::Socket(server.socket_path().to_path_buf())
            };
            (Some(server), address)
        }
    };
    let measured =
        measure(args, &address).inspect_err(|_| server.iter().for_each(ServerProcess::note_log))?;
    server.map_or(Ok(()), ServerProcess::stop)?;
    let (report, outcome) = measured;
    report.print(args.json, &mut std::io::stdout().lock())?;
    outcome.verify()
}

/// The server that the bench starts. A tree lies in one shard.
fn own_server(args: &RangesArgs) -> ServerPlan {
    let entry = (2 * (args.key_bytes + args.value_bytes)) as u64 + ENTRY_BYTES;
    ServerPlan {
        shards: 1,
        wake: args.wake,
        pin: pinning::is_wanted(args.wake),
        over_tcp: args.transport.is_remote(),
        max_memory_bytes: args.records as u64 * entry + SPARE_BYTES,
        ..ServerPlan::with_room(0, 0, 0)
    }
}

/// Loads the tree into a running server, and measures.
fn measure(args: &RangesArgs, address: &Address) -> anyhow::Result<(RangesReport, Outcome)> {
    let options = Options {
        transport: args.transport.wanted(),
        rdma_packets: args.packets.packets()?,
        wake: args.wake.into(),
        pointer_cache: PointerCacheKind::Off,
        policy: args.policy.into(),
        ..Options::default()
    };
    let client = connect(address.of_sessions(args.transport)?, &options)?;
    let took = run::load(&client, args)?;
    let server_cpu = address.pid().and_then(ProcessCpu::of);
    if server_cpu.is_none() {
        note("the server's process cannot be seen from here: no CPU time");
    }
    let is_own = args.server.is_none();
    let cores = if is_own { pinning::client_cores(args.wake, 1) } else { Vec::new() };
    let lookups = Lookups::of(args);
    let (brought, spent) = side_by_side(
        args.clients,
        &cores,
        server_cpu,
        &|number| Reader::prepare(&client, args, &lookups, number),
        &Reader::drive,
    )?;
    let (mut shares, mut found) = (Vec::new(), Found::default());
    for (share, of_client) in brought {
        shares.push(share);
        found += of_client;
    }
    let outcome = Outcome::of(shares, spent)?;
    let transport = TransportReport::of(&client, 1, args.clients);
    let info = run::info(&client)?;
    if !is_own {
        // Its users do not want the tree.
        run::unload(&client)?;
    }
    Ok((RangesReport::new(args, transport, (&info, took), &outcome, &found), outcome))
}
