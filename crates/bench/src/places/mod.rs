//! `remora bench places`: windows in a tree of rectangles, by the workloads and
//! schemes of Catfish (W1 to W7, C26).

mod args;
mod input;
mod order;
mod report;
pub mod resp;
pub mod run;
pub mod scale;
mod scheme;
pub mod session;
mod sums;
pub mod target;
pub mod workload;

use crate::pinning;
use crate::run::{Outcome, side_by_side};
use crate::transport_report::TransportReport;
use anyhow::{Context, ensure};
use args::Load;
pub use args::PlacesArgs;
use remora_client_core::{Client, Options, PointerCacheKind, Rect};
use remora_command_line::{Address, ProcessCpu, ServerPlan, ServerProcess, connect, note};
use report::{Loaded, PlacesReport};
use resp::RespPlaces;
use run::Found;
use scale::Scale;
use scheme::{Connections, PlacesPath, SearchOptions};
use session::SessionPlaces;
use std::io::BufWriter;
use std::time::Duration;
use sums::{SumCounts, print_sums};
use target::Places;
use workload::{UNIT, Windows, Workload};

/// Windows that are found by their results: more do not differ.
const LISTED_WINDOWS: usize = 1000;
/// Memory of the server for each object, bytes: nodes of a tree that is filled by splits, and the
/// index from ids to objects. Unused memory is not touched.
const OBJECT_BYTES: u64 = 256;
/// How long a reply may take: building a tree of 50 M objects is one request.
const TIMEOUT: Duration = Duration::from_secs(900);
/// Free memory beside.
const SPARE_BYTES: u64 = 512 << 20;

/// Objects and windows of a run.
struct Input {
    /// From a file; none: generated.
    data: Option<Vec<Rect>>,
    /// From a file.
    windows: Option<Vec<Rect>>,
    /// The area of the objects.
    space: Rect,
}

impl Input {
    fn read(args: &PlacesArgs) -> anyhow::Result<Self> {
        let windows = args.windows.as_deref().map(input::read_windows).transpose()?;
        let data = args.data.as_deref().map(input::read_data).transpose()?;
        let all = data.iter().flatten().copied().reduce(|all, rect| all.union(&rect));
        Ok(Self { data, windows, space: all.unwrap_or(UNIT) })
    }

    fn count(&self, args: &PlacesArgs) -> u64 {
        self.data.as_ref().map_or(args.records(), Vec::len) as u64
    }

    /// The objects in the order in which they come into the tree.
    fn objects<'a>(&'a self, args: &PlacesArgs) -> Box<dyn Iterator<Item = (u64, Rect)> + 'a> {
        let Some(data) = &self.data else {
            return Box::new(workload::objects(args.seed, args.records() as u64));
        };
        let order = match args.load {
            Load::Insert => order::by_regions(data, args.seed),
            Load::Bulk => (0..data.len() as u32).collect(),
        };
        Box::new(order.into_iter().map(|row| (u64::from(row), data[row as usize])))
    }
}

/// Runs the bench.
pub fn run(args: &PlacesArgs) -> anyhow::Result<()> {
    args.check()?;
    let input = Input::read(args)?;
    let search = args.search_options();
    let (server, address) = match &args.server {
        Some(address) => (None, address.clone()),
        None => {
            let server = ServerProcess::start(&own_server(args, &input))?;
            let address = if search.transport.is_remote() || search.path == PlacesPath::Resp {
                // The server reports its other addresses.
                Address::Resp(server.resp_address().to_string())
            } else {
                Address::Socket(server.socket_path().to_path_buf())
            };
            (Some(server), address)
        }
    };
    let done = with_server(args, &input, &address)
        .inspect_err(|_| server.iter().for_each(ServerProcess::note_log))?;
    server.map_or(Ok(()), ServerProcess::stop)?;
    match done {
        Done::Sums(counts) => note(&serde_json::to_string(&counts)?),
        Done::Run(report) => {
            report.print(args.json, &mut std::io::stdout().lock())?;
            report.verify()?;
        }
    }
    Ok(())
}

/// The server that the bench starts. A tree lies in one shard.
fn own_server(args: &PlacesArgs, input: &Input) -> ServerPlan {
    let SearchOptions { transport, wake, .. } = args.search_options();
    let most = input.count(args) + (args.ops() as f64 * args.inserts) as u64;
    ServerPlan {
        shards: 1,
        wake,
        pin: pinning::is_wanted(wake),
        over_tcp: transport.is_remote(),
        max_memory_bytes: most * OBJECT_BYTES + SPARE_BYTES,
        ..ServerPlan::with_room(0, 0, 0)
    }
}

/// The outcome.
enum Done {
    Sums(SumCounts),
    Run(Box<PlacesReport>),
}

/// Loads the tree into a running server, and measures or prints sums.
fn with_server(args: &PlacesArgs, input: &Input, address: &Address) -> anyhow::Result<Done> {
    let search = args.search_options();
    let concurrency_limit = match search.connections {
        Connections::Shared => search.coordination.into(),
        Connections::Own => search.coordination.over_connections(),
    };
    let options = Options {
        transport: search.transport.wanted(),
        rdma_packets: args.packets.packets()?,
        wake: search.wake.into(),
        pointer_cache: PointerCacheKind::Off,
        timeout: TIMEOUT,
        policy: search.policy.into(),
        concurrency_limit,
        ..Options::default()
    };
    let connect = || connect(address.of_sessions(search.transport)?, &options);
    let client = connect()?;
    let (count, objects) = (input.count(args), input.objects(args));
    let took = session::load(&client, args, &input.space, objects, count)?;
    let bench = Bench { args, input, client: &client, address, took };
    let done = if search.path == PlacesPath::Resp {
        let peer = address.resp()?;
        bench.run(|| RespPlaces::open(peer, session::TREE))
    } else {
        let (path, read) = search.of_session();
        bench.run(|| match search.connections {
            Connections::Shared => SessionPlaces::open(&client, session::TREE, path, read),
            Connections::Own => SessionPlaces::open(&connect()?, session::TREE, path, read),
        })
    };
    if args.server.is_some() {
        // Its users do not want the tree.
        client.session()?.drop_tree(session::TREE)?;
    }
    done
}

/// A loaded tree.
struct Bench<'a> {
    args: &'a PlacesArgs,
    input: &'a Input,
    client: &'a Client,
    address: &'a Address,
    took: Duration,
}

impl Bench<'_> {
    fn run<P: Places>(&self, open: impl Fn() -> anyhow::Result<P> + Sync) -> anyhow::Result<Done> {
        if !self.args.print_sums {
            return self.measure(open);
        }
        let windows = self.input.windows.as_deref().context("--print-sums without --windows")?;
        let mut out = BufWriter::new(std::io::stdout().lock());
        Ok(Done::Sums(print_sums(&mut open()?, windows, &mut out)?))
    }

    fn measure<P: Places>(
        &self,
        open: impl Fn() -> anyhow::Result<P> + Sync,
    ) -> anyhow::Result<Done> {
        let args = self.args;
        let workload = self.workload(&mut open()?)?;
        let server_cpu = self.address.pid().and_then(ProcessCpu::of);
        if server_cpu.is_none() {
            note("the server's process cannot be seen from here: no CPU time");
        }
        let is_own = args.server.is_none();
        let cores =
            if is_own { pinning::client_cores(args.search_options().wake, 1) } else { Vec::new() };
        let before = session::loaded(self.client, self.took)?;
        let prepare = |client| {
            let mut target = open()?;
            if !args.cold {
                run::warm_up(&mut target, &self.input.space, client, args.clients)?;
            }
            anyhow::Ok((target, workload.of_client(client)))
        };
        let (brought, spent) =
            side_by_side(args.clients, &cores, server_cpu, &prepare, &|(mut target, ops)| {
                run::drive(&mut target, ops)
            })?;
        let (mut shares, mut found) = (Vec::new(), Found::default());
        found.nodes_visited = Some(0);
        for (share, of_client) in brought {
            shares.push(share);
            found += of_client;
        }
        let outcome = Outcome::of(shares, spent)?;
        let height = session::loaded(self.client, self.took)?.height;
        let transport = match args.search_options().path {
            PlacesPath::Resp => TransportReport::by("tcp"),
            PlacesPath::Ask | PlacesPath::Read | PlacesPath::Choose => {
                // The loader's connection does not count.
                let connections = match args.search_options().connections {
                    Connections::Shared => 1,
                    Connections::Own => args.clients,
                };
                TransportReport::of(self.client, connections, args.clients)
            }
        };
        let report =
            PlacesReport::new(args, transport, Loaded { height, ..before }, &outcome, found);
        Ok(Done::Run(Box::new(report)))
    }

    fn workload(&self, target: &mut impl Places) -> anyhow::Result<Workload> {
        let (args, input) = (self.args, self.input);
        let windows = match (&input.windows, &input.data) {
            (Some(windows), _) => {
                ensure!(!windows.is_empty(), "--windows holds no window");
                Windows::Listed(windows.clone())
            }
            (None, Some(data)) if args.scale() == Scale::Results => {
                Windows::Listed(run::windows_by_results(target, data, LISTED_WINDOWS, args.seed)?)
            }
            (None, _) => Windows::Drawn,
        };
        Ok(Workload {
            space: input.space,
            scale: args.scale(),
            windows,
            inserts: args.inserts,
            ops: args.ops(),
            clients: args.clients,
            records: input.count(args),
            seed: args.seed,
        })
    }
}
