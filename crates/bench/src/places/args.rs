//! Flags of `remora bench places`, and the combinations that they exclude.

use super::scale::Scale;
use super::scheme::{
    ConcurrencyLimit, Connections, PlacesPath, Preset, ReadIssue, Scheme, SearchOptions,
};
use crate::bounds::{MAX_CLIENTS, MAX_OPS, within};
use clap::{Args, ValueEnum};
use remora_command_line::{
    Address, PacketArgs, Policy, Transport, TreeKind, Wake, show_by_name, usage,
};
use remora_layout::limits::{MAX_NODE_ENTRIES, MIN_NODE_ENTRIES, NODE_ENTRIES};
use std::path::PathBuf;

/// Objects that the paper's trees hold (W1).
const DEFAULT_RECORDS: usize = 2_000_000;
/// Searches of each client (W5).
const DEFAULT_OPS: usize = 10_000;
/// Scale of the requests where no flag names one.
const DEFAULT_SCALE: Scale = Scale::Uniform(1e-5);
/// Objects of a run: twenty times those of the paper's largest tree (W7).
const MAX_RECORDS: usize = 1_000_000_000;
/// Bytes of a cache of inner nodes without `--cache-bytes`.
const DEFAULT_CACHE_BYTES: usize = 1 << 20;
/// Largest cache of inner nodes, for each client.
const MAX_CACHE_BYTES: usize = 1 << 30;

/// How objects come into the tree before the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Load {
    /// One after the other, as the paper's.
    #[default]
    Insert,
    /// All at once.
    Bulk,
}
show_by_name!(Load);

/// Flags of `remora bench places`.
#[derive(Clone, Debug, Args)]
pub struct PlacesArgs {
    /// How the tree is written.
    #[arg(long, value_enum, default_value_t = TreeKind::RStar)]
    pub tree: TreeKind,
    /// Entries that a node has room for.
    #[arg(long, value_name = "N", default_value_t = NODE_ENTRIES)]
    pub capacity: usize,
    /// Objects to generate, uniform in the unit square with edges in (0, 1e-4]
    /// [default: 2000000].
    #[arg(long, value_name = "N", conflicts_with = "data")]
    pub records: Option<usize>,
    /// Size of windows and of inserted rectangles, in parts of the space: a
    /// number F (edges in (0, F]), power (squares whose edge has the density
    /// t^-0.99 on (1e-5, 1e-2]), or results (with --data: windows that hit 50 to
    /// 150 objects) [default: 0.00001; with --data results].
    #[arg(long, value_name = "F|power|results")]
    pub scale: Option<Scale>,
    /// Share of inserts, 0 to 1; their positions follow the paper's reflected
    /// power law.
    #[arg(long, value_name = "F", default_value_t = 0.0)]
    pub inserts: f64,
    /// Requests of all clients together [default: 10000 for each client].
    #[arg(long, value_name = "N")]
    pub ops: Option<usize>,
    /// Client threads, each with a session of its own; over RESP with a connection.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub clients: usize,
    /// How windows are searched; inserts go by message, or by RESP [default: read].
    #[arg(long, value_enum)]
    pub path: Option<PlacesPath>,
    /// Whether nodes are read one at a time or all at once [default: multi].
    #[arg(long, value_enum)]
    pub issue: Option<ReadIssue>,
    /// How --path choose is decided [default: cost].
    #[arg(long, value_enum)]
    pub policy: Option<Policy>,
    /// How many clients walk the tree at a time by READs: off (all), auto, or a
    /// number. Over shared memory all do [default: auto].
    #[arg(long, value_name = "off|auto|K")]
    pub coordination: Option<ConcurrencyLimit>,
    /// Whether the clients share one connection, or each has its own [default:
    /// shared].
    #[arg(long, value_enum)]
    pub connections: Option<Connections>,
    /// A preset of --path, --policy, --issue, --coordination, --connections,
    /// --transport, --wake and --cache-bytes, each of which may still be named:
    /// tcp (asking over TCP), fast-messaging (asking, polling), offload (reading,
    /// one node at a time), catfish (events, all nodes at once, three walks at a
    /// time, the paper's rule), all four with connections of the clients' own and
    /// without a cache; or remora (all defaults, choosing).
    #[arg(long, value_name = "SCHEME")]
    pub scheme: Option<Scheme>,
    /// What carries requests and READs; a named one that cannot be had is an
    /// error [default: shm].
    #[arg(long, value_enum)]
    pub transport: Option<Transport>,
    /// Of its packets over RDMA.
    #[command(flatten)]
    pub packets: PacketArgs,
    /// How the shard and sessions wait [default: hybrid]. With poll and two
    /// cores or more they are pinned, as in bench keys.
    #[arg(long, value_enum)]
    pub wake: Option<Wake>,
    /// Bytes of each client's cache of inner nodes; 0: none [default: 1048576].
    #[arg(long, value_name = "N")]
    pub cache_bytes: Option<usize>,
    /// Objects from a file of little-endian int32 quadruples (xmin, ymin, xmax,
    /// ymax), plain or .xz. An object's id is its row number, from 0.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Windows from a CSV whose header begins with xmin,ymin,xmax,ymax, as
    /// int32; they are searched in turn.
    #[arg(long, value_name = "CSV")]
    pub windows: Option<PathBuf>,
    /// Measures nothing: searches each window once and prints a line
    /// hits,sum_ids,xor_ids for it. The last line of standard error is a JSON
    /// object of counts.
    #[arg(long, requires = "windows", conflicts_with_all = ["json", "ops", "clients", "inserts", "scale"])]
    pub print_sums: bool,
    /// How objects come into the tree: one after the other (a file's in the
    /// paper's order: regions at random, inside them rows), or all at once.
    #[arg(long, value_enum, default_value_t = Load::Insert)]
    pub load: Load,
    /// Leaves out the warming up, in which every part of the tree is searched.
    #[arg(long)]
    pub cold: bool,
    /// Seed of objects and requests.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// A running server: path of its Unix socket, or HOST:PORT of its RESP
    /// port. Without it the bench starts a server process of its own.
    #[arg(long, value_name = "ADDR")]
    pub server: Option<Address>,
    /// Prints one JSON object.
    #[arg(long)]
    pub json: bool,
}

impl PlacesArgs {
    /// Refuses contradictory flags.
    pub fn check(&self) -> anyhow::Result<()> {
        self.packets.packets()?;
        within("--capacity", self.capacity, MIN_NODE_ENTRIES, MAX_NODE_ENTRIES)?;
        within("--records", self.records(), 1, MAX_RECORDS)?;
        within("--clients", self.clients, 1, MAX_CLIENTS)?;
        within("--ops", self.ops(), 1, MAX_OPS)?;
        within("--cache-bytes", self.search_options().cache_bytes, 0, MAX_CACHE_BYTES)?;
        if !(0.0..=1.0).contains(&self.inserts) {
            return Err(usage(format!("--inserts: {} is not in 0..=1", self.inserts)));
        }
        if self.scale() == Scale::Results {
            if self.data.is_none() {
                return Err(usage("--scale results needs --data"));
            }
            if self.inserts > 0.0 {
                return Err(usage("--inserts needs a --scale for its rectangles: F or power"));
            }
        }
        Ok(())
    }

    /// How windows are searched.
    pub fn search_options(&self) -> SearchOptions {
        let Preset { path, policy, issue, coordination, transport, wake, connections, cache_bytes } =
            self.scheme.map(Scheme::preset).unwrap_or_default();
        SearchOptions {
            path: self.path.or(path).unwrap_or_default(),
            policy: self.policy.or(policy).unwrap_or_default(),
            issue: self.issue.or(issue).unwrap_or_default(),
            coordination: self.coordination.or(coordination).unwrap_or_default(),
            transport: self.transport.or(transport).unwrap_or(Transport::Shm),
            wake: self.wake.or(wake).unwrap_or_default(),
            connections: self.connections.or(connections).unwrap_or_default(),
            cache_bytes: self.cache_bytes.or(cache_bytes).unwrap_or(DEFAULT_CACHE_BYTES),
        }
    }

    /// Objects to generate.
    pub fn records(&self) -> usize {
        self.records.unwrap_or(DEFAULT_RECORDS)
    }

    /// Requests of all clients.
    pub fn ops(&self) -> usize {
        self.ops.unwrap_or(DEFAULT_OPS * self.clients)
    }

    /// Scale of the requests.
    pub fn scale(&self) -> Scale {
        let of_data = self.data.is_some() && self.windows.is_none();
        self.scale.unwrap_or(if of_data { Scale::Results } else { DEFAULT_SCALE })
    }

    /// The command that repeats the run, every default written out.
    pub fn command(&self) -> String {
        let SearchOptions {
            path,
            policy,
            issue,
            coordination,
            transport,
            wake,
            connections,
            cache_bytes,
        } = self.search_options();
        let mut command = format!(
            "remora bench places --tree {} --capacity {} --inserts {} --ops {} --clients {} \
             --path {path} --policy {policy} --issue {issue} --coordination {coordination} \
             --transport {transport} --wake {wake} --connections {connections} \
             --cache-bytes {cache_bytes} --load {} --scale {} --seed {}",
            self.tree,
            self.capacity,
            self.inserts,
            self.ops(),
            self.clients,
            self.load,
            self.scale(),
            self.seed,
        );
        match &self.data {
            Some(path) => command += &format!(" --data {}", path.display()),
            None => command += &format!(" --records {}", self.records()),
        }
        if let Some(path) = &self.windows {
            command += &format!(" --windows {}", path.display());
        }
        command += &self.packets.command();
        if let Some(address) = &self.server {
            command += &format!(" --server {address}");
        }
        if self.cold {
            command += " --cold";
        }
        if self.json {
            command += " --json";
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        places: PlacesArgs,
    }

    fn try_parse(flags: &str) -> Result<PlacesArgs, String> {
        let words = std::iter::once("places").chain(flags.split_whitespace());
        match Flags::try_parse_from(words) {
            Ok(flags) => Ok(flags.places),
            Err(error) => Err(error.to_string()),
        }
    }

    fn parse(flags: &str) -> PlacesArgs {
        try_parse(flags).unwrap_or_else(|error| panic!("{flags}: {error}"))
    }

    #[test]
    fn schemes_are_presets_of_other_flags() {
        let options = |flags| parse(flags).search_options();
        let plain = SearchOptions {
            path: PlacesPath::Read,
            policy: Policy::Cost,
            issue: ReadIssue::Multi,
            coordination: ConcurrencyLimit::Auto,
            transport: Transport::Shm,
            wake: Wake::Hybrid,
            connections: Connections::Shared,
            cache_bytes: 1 << 20,
        };
        assert_eq!(options(""), plain);
        let remora = SearchOptions { path: PlacesPath::Choose, ..plain };
        assert_eq!(options("--scheme remora"), remora);
        // The paper's clients: a connection each, and no nodes kept.
        let papers = SearchOptions { connections: Connections::Own, cache_bytes: 0, ..plain };
        let plain = SearchOptions { coordination: ConcurrencyLimit::Off, ..papers };
        let tcp = SearchOptions { path: PlacesPath::Ask, transport: Transport::Tcp, ..plain };
        assert_eq!(options("--scheme tcp"), tcp);
        let polled = SearchOptions { path: PlacesPath::Ask, wake: Wake::Poll, ..plain };
        assert_eq!(options("--scheme fast-messaging"), polled);
        let offload = SearchOptions { issue: ReadIssue::Single, ..plain };
        assert_eq!(options("--scheme offload"), offload);
        let (policy, wake) = (Policy::CatfishKeep, Wake::Event);
        let coordination = ConcurrencyLimit::AtMost(3);
        let catfish =
            SearchOptions { path: PlacesPath::Choose, policy, wake, coordination, ..papers };
        assert_eq!(options("--scheme catfish"), catfish);
        // A flag that is given takes precedence.
        let literal = SearchOptions { policy: Policy::CatfishLiteral, ..catfish };
        assert_eq!(options("--scheme catfish --policy catfish-literal"), literal);
        let far = SearchOptions { transport: Transport::Verbs, wake: Wake::Event, ..offload };
        assert_eq!(options("--scheme offload --transport verbs --wake event"), far);
        let kept = SearchOptions { connections: Connections::Shared, cache_bytes: 5, ..offload };
        assert_eq!(options("--scheme offload --connections shared --cache-bytes 5"), kept);
    }

    #[test]
    fn nonsense_is_refused() {
        for flags in [
            "--capacity 3",
            "--capacity 1025",
            "--records 0",
            "--clients 0",
            "--clients 257",
            "--ops 0",
            "--inserts 1.5",
            "--inserts NaN",
            "--scale results",
            "--data f --inserts 0.1",
        ] {
            assert!(parse(flags).check().is_err(), "{flags}");
        }
        for flags in [
            "--policy best",
            "--coordination 0",
            "--scheme best",
            "--shards 2",
            "--print-sums",
            "--print-sums --windows w --json",
            "--print-sums --windows w --clients 2",
            "--data f --records 5",
            "--scale 2",
        ] {
            assert!(try_parse(flags).is_err(), "{flags}");
        }
        parse("--print-sums --data f --windows w").check().unwrap();
    }

    #[test]
    fn the_command_repeats_the_run() {
        for flags in [
            "--json",
            "--scheme tcp --clients 3 --inserts 0.1 --scale power --records 77 --cold",
            "--scheme fast-messaging --tree hilbert --capacity 100 --scale 0.01 --load bulk",
            "--data a.i32 --windows w.csv --server /tmp/s --seed 9 --cache-bytes 0 --path resp",
            "--data a.i32 --tree guttman --issue single --coordination 5",
            "--scheme catfish --coordination off",
            "--scheme remora --policy pointer",
        ] {
            let once = parse(flags);
            let again = once.command();
            let again = parse(again.strip_prefix("remora bench places ").unwrap());
            assert_eq!(again.command(), once.command());
            assert_eq!(again.search_options(), once.search_options());
            assert_eq!((again.ops(), again.records()), (once.ops(), once.records()));
        }
    }
}
