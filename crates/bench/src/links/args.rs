//! Flags of `remora bench links`.

use super::item::Form;
use crate::bounds::{MAX_CLIENTS, MAX_OPS, within};
use clap::{Args, ValueEnum};
use remora_command_line::{Address, Policy, Transport, show_by_name, usage};
use remora_layout::limits::{MAX_COMMAND_ITEMS, MAX_IN_FLIGHT, MAX_SHARDS};
use std::path::PathBuf;

/// Rounds of a run.
const MAX_ROUNDS: usize = 1_000;

/// How items are fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LinksPath {
    /// By message.
    Ask,
    /// By READs, as far as they decide.
    Read,
    /// As the policy says.
    Choose,
    /// The graph as sets, by pipelined SMEMBERS over RESP: of Redis, or of Remora.
    Resp,
}
show_by_name!(LinksPath);

impl LinksPath {
    /// The same for sessions.
    pub fn of_sessions(self) -> remora_client_core::Path {
        match self {
            Self::Ask => remora_client_core::Path::Ask,
            Self::Read => remora_client_core::Path::Read,
            Self::Choose | Self::Resp => remora_client_core::Path::Choose,
        }
    }
}

/// Flags of `remora bench links`.
#[derive(Clone, Debug, Args)]
pub struct LinksArgs {
    /// A graph: lines "from to", plain or .xz. Searched breadth first.
    #[arg(long, value_name = "FILE", requires = "bfs")]
    pub graph: Option<PathBuf>,
    /// Where the search begins.
    #[arg(long, value_name = "SOURCE", requires = "graph")]
    pub bfs: Option<u32>,
    /// Reviews: lines of a user and the products that it reviewed, plain or .xz. Builds pages of
    /// products.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["graph", "map"])]
    pub pages: Option<PathBuf>,
    /// A map: OpenStreetMap's PBF. Finds the road of noisy positions.
    #[arg(long, value_name = "FILE", conflicts_with = "graph")]
    pub map: Option<PathBuf>,
    /// How items are fetched.
    #[arg(long, value_enum, default_value_t = LinksPath::Read)]
    pub path: LinksPath,
    /// How --path choose is decided.
    #[arg(long, value_enum, default_value_t = Policy::Cost)]
    pub policy: Policy,
    /// Keys instead of links: each hop is a get.
    #[arg(long)]
    pub keys: bool,
    /// What carries requests and READs.
    #[arg(long, value_enum, default_value_t = Transport::Shm)]
    pub transport: Transport,
    /// Items that are fetched together at most; over RESP, requests that are sent together.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub batch: usize,
    /// Threads that search together, or that build pages or match positions beside each other.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub clients: usize,
    /// Pages, or positions, of all clients together.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub ops: usize,
    /// Searches the graph so often; all but the last are timed for themselves only.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub rounds: usize,
    /// Before each round, this share of the users is written anew: links to them are stale then.
    #[arg(long, value_name = "F", default_value_t = 0.0)]
    pub updates: f64,
    /// Leaves out the warm-up, in which everything is done once before the clock starts.
    #[arg(long)]
    pub cold: bool,
    /// Runs the same with keys that are asked for afterwards, on a server of its own, and reports the
    /// ratios.
    #[arg(long, conflicts_with_all = ["keys", "server"])]
    pub baseline: bool,
    /// Shards of the server that the bench starts.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub shards: usize,
    /// Seed of what is drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// A running server, by its socket or HOST:PORT; without it the bench starts one.
    #[arg(long, value_name = "ADDR")]
    pub server: Option<Address>,
    /// The data are there: an earlier run has loaded them into the server, in the same form.
    #[arg(long, requires = "server")]
    pub loaded: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub json: bool,
}

impl LinksArgs {
    /// Refuses what makes no sense.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.graph.is_none() && self.pages.is_none() && self.map.is_none() {
            return Err(usage("name what to load: --graph FILE, --pages FILE or --map FILE"));
        }
        within("--batch", self.batch, 1, MAX_IN_FLIGHT.min(MAX_COMMAND_ITEMS))?;
        within("--clients", self.clients, 1, MAX_CLIENTS)?;
        within("--ops", self.ops, 1, MAX_OPS)?;
        within("--rounds", self.rounds, 1, MAX_ROUNDS)?;
        within("--shards", self.shards, 1, MAX_SHARDS)?;
        if !(0.0..=1.0).contains(&self.updates) {
            return Err(usage(format!("--updates is from 0 to 1, not {}", self.updates)));
        }
        if self.graph.is_none() && (self.rounds > 1 || self.updates > 0.0) {
            return Err(usage("--rounds and --updates go with --graph"));
        }
        let is_resp = self.path == LinksPath::Resp;
        if is_resp && (self.graph.is_none() || self.keys || self.clients > 1 || self.updates > 0.0)
        {
            return Err(usage("--path resp searches a graph by one client, without --keys"));
        }
        Ok(())
    }

    /// How items are stored.
    pub fn form(&self) -> Form {
        if self.keys { Form::Keys } else { Form::Links }
    }

    /// The command that repeats the run, every default written out.
    pub fn command(&self) -> String {
        let mut command = String::from("remora bench links");
        let files = [("graph", &self.graph), ("pages", &self.pages), ("map", &self.map)];
        for (flag, file) in files {
            command.extend(file.as_ref().map(|file| format!(" --{flag} {}", file.display())));
        }
        command.extend(self.bfs.map(|source| format!(" --bfs {source}")));
        let Self { path, policy, transport, batch, clients, seed, .. } = self;
        command += &format!(
            " --path {path} --policy {policy} --transport {transport} --batch {batch} --clients {clients}"
        );
        match self.graph {
            Some(_) => command += &format!(" --rounds {} --updates {}", self.rounds, self.updates),
            None => command += &format!(" --ops {}", self.ops),
        }
        command += &format!(" --seed {seed}");
        match &self.server {
            Some(address) => command += &format!(" --server {address}"),
            None => command += &format!(" --shards {}", self.shards),
        }
        for (is_set, flag) in [
            (self.keys, " --keys"),
            (self.cold, " --cold"),
            (self.baseline, " --baseline"),
            (self.loaded, " --loaded"),
        ] {
            if is_set {
                command += flag;
            }
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
        links: LinksArgs,
    }

    fn parse(flags: &str) -> Result<LinksArgs, clap::Error> {
        let words = std::iter::once("links").chain(flags.split_whitespace());
        Ok(Flags::try_parse_from(words)?.links)
    }

    #[test]
    fn the_command_repeats_the_run() {
        for flags in [
            "--graph g.xz --bfs 7 --path ask --keys --cold --rounds 3 --updates 0.1 --clients 2",
            "--pages p --path choose --transport tcp --ops 50 --seed 9 --batch 8 --baseline",
            "--map m.pbf --server 127.0.0.1:7379 --loaded",
        ] {
            let args = parse(flags).unwrap();
            args.check().unwrap();
            let command = args.command();
            let again = parse(command.strip_prefix("remora bench links").unwrap()).unwrap();
            assert_eq!(again.command(), command);
        }
    }

    #[test]
    fn flags_that_make_no_sense_are_refused() {
        for flags in [
            "--graph g",
            "--map m --loaded",
            "--bfs 1",
            "--graph g --bfs 1 --pages p",
            "--pages p --map m",
        ] {
            assert!(parse(flags).is_err(), "{flags}");
        }
        for flags in [
            "",
            "--pages p --path resp",
            "--graph g --bfs 1 --path resp --clients 2",
            "--graph g --bfs 1 --batch 0",
            "--pages p --updates 0.5",
            "--graph g --bfs 1 --updates 1.5",
        ] {
            assert!(parse(flags).unwrap().check().is_err(), "{flags}");
        }
    }
}
