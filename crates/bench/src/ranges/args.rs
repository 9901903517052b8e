//! Flags of `remora bench ranges`, and the combinations that they exclude.

use crate::bounds::{MAX_CLIENTS, MAX_OPS, within};
use crate::workload::{Dist, MAX_RECORDS};
use clap::{Args, ValueEnum};
use remora_client_core::{
    CachePolicy, FatRootLimits, KeyForm, OrderedCache, OrderedSettings, Path,
};
use remora_command_line::{Address, PacketArgs, Policy, Transport, Wake, show_by_name, usage};
use remora_layout::limits::{
    MAX_FAN_OUT, MAX_ORDERED_KEY_BYTES, MAX_ORDERED_VALUE_BYTES, MIN_FAN_OUT,
};

/// Bytes of an integer key, and of the number in a value.
pub const NUMBER_BYTES: usize = 8;
/// Fewest bytes of a byte string as a key.
const MIN_KEY_BYTES: usize = NUMBER_BYTES + 1;
/// Keys of one range.
const MAX_RANGE: usize = 1 << 20;
/// Leaves at a time.
const MAX_PARALLEL: usize = 256;
/// Bytes of a client's cache.
const MAX_CACHE_BYTES: usize = 1 << 34;

/// How keys and ranges are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum RangesPath {
    /// By message.
    Ask,
    /// By READs of the server's memory.
    Read,
    /// By what is expected to be faster.
    Choose,
    /// Through an index in the network.
    Network,
}

/// Which inner nodes a client keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum KeptBy {
    /// None.
    None,
    /// The first ones read; higher levels come first.
    Levels,
    /// The most visited: the fat root and its layers.
    Greedy,
}

/// The order in which records come into the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LoadOrder {
    /// By key: nodes are 90 % full.
    Ascending,
    /// Against it: nodes are half full, as those of the paper's trees.
    Descending,
    /// Scattered.
    Random,
}

show_by_name!(RangesPath, KeptBy, LoadOrder);

/// Flags of `remora bench ranges`.
#[derive(Clone, Debug, Args)]
pub struct RangesArgs {
    /// How keys and ranges are looked up; writes go by message.
    #[arg(long, value_enum, default_value_t = RangesPath::Choose)]
    pub path: RangesPath,
    /// How --path choose is decided.
    #[arg(long, value_enum, default_value_t = Policy::Cost)]
    pub policy: Policy,
    /// What carries requests and READs; a named one that cannot be had is an error.
    #[arg(long, value_enum, default_value_t = Transport::Shm)]
    pub transport: Transport,
    /// Of its packets over RDMA.
    #[command(flatten)]
    pub packets: PacketArgs,
    /// Records to load.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub records: usize,
    /// The order in which they are loaded.
    #[arg(long, value_enum, default_value_t = LoadOrder::Ascending)]
    pub load: LoadOrder,
    /// Bytes of a key: with 8 the tree has integers, with more byte strings of digits.
    #[arg(long, value_name = "N", default_value_t = NUMBER_BYTES)]
    pub key_bytes: usize,
    /// Bytes of a value; the first eight are the record's number.
    #[arg(long, value_name = "N", default_value_t = NUMBER_BYTES)]
    pub value_bytes: usize,
    /// Entries of a node, at most.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub fanout: usize,
    /// Which inner nodes each client keeps.
    #[arg(long, value_enum, default_value_t = KeptBy::Greedy)]
    pub cache_policy: KeptBy,
    /// Bytes of inner nodes that each client keeps, at most.
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    pub cache_bytes: usize,
    /// Ranges that the fat root tells apart, at most (greedy).
    #[arg(long, value_name = "N", default_value_t = FatRootLimits::PUBLISHED.ranges)]
    pub ranges: usize,
    /// Levels that are merged into the fat root, at most; 0: no limit (greedy).
    #[arg(long, value_name = "N", default_value_t = FatRootLimits::PUBLISHED.depth)]
    pub root_depth: usize,
    /// Layers of nodes below the fat root (greedy).
    #[arg(long, value_name = "N", default_value_t = FatRootLimits::PUBLISHED.layers)]
    pub layers: usize,
    /// Nodes of each layer, at most (greedy).
    #[arg(long, value_name = "N", default_value_t = FatRootLimits::PUBLISHED.layer_nodes)]
    pub layer_nodes: usize,
    /// Keys of each range; 0: single keys are looked up.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub range_len: usize,
    /// Leaves of a range that are read at a time, at most; 0: as many as the session thinks best.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub parallel: usize,
    /// uniform or zipf:EXPONENT (ranks scattered over the keys): what the clients look up while they
    /// learn which nodes are worth keeping, and in the timed part.
    #[arg(long, value_name = "DIST", default_value = "zipf:0.99")]
    pub dist: Dist,
    /// Another distribution for the timed part, in which other records are popular. The kept nodes
    /// stay those that were learnt, unless --adapt is given.
    #[arg(long, value_name = "DIST")]
    pub query_dist: Option<Dist>,
    /// Share of the lookups that are of --query-dist, 0 to 1; the others are of --dist.
    #[arg(long, value_name = "F", default_value_t = 1.0, requires = "query_dist")]
    pub changed: f64,
    /// Learns on in the timed part, also with --query-dist.
    #[arg(long)]
    pub adapt: bool,
    /// Lookups of each client by which it learns, before the timed part.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub learn: usize,
    /// Share of reads, 0 to 1; the rest sets records to the values they have.
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    pub reads: f64,
    /// Operations of all clients together.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub ops: usize,
    /// Client threads, each with a session of its own.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub clients: usize,
    /// How the shard and the sessions wait.
    #[arg(long, value_enum, default_value_t = Wake::Hybrid)]
    pub wake: Wake,
    /// Seed of the operations.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// A running server: path of its Unix socket, or HOST:PORT of its RESP port. Without it the bench
    /// starts a server process of its own.
    #[arg(long, value_name = "ADDR")]
    pub server: Option<Address>,
    /// Prints one JSON object.
    #[arg(long)]
    pub json: bool,
}

impl RangesArgs {
    /// Refuses contradictory flags.
    pub fn check(&self) -> anyhow::Result<()> {
        self.packets.packets()?;
        if self.path == RangesPath::Network {
            return Err(usage("--path network: this build has no index in the network"));
        }
        within("--records", self.records, 1, MAX_RECORDS)?;
        within("--ops", self.ops, 1, MAX_OPS)?;
        within("--learn", self.learn, 0, MAX_OPS)?;
        within("--clients", self.clients, 1, MAX_CLIENTS)?;
        within("--fanout", self.fanout, MIN_FAN_OUT, MAX_FAN_OUT)?;
        within("--value-bytes", self.value_bytes, NUMBER_BYTES, MAX_ORDERED_VALUE_BYTES)?;
        within("--range-len", self.range_len, 0, MAX_RANGE)?;
        within("--parallel", self.parallel, 0, MAX_PARALLEL)?;
        let most = 10u64.saturating_pow(self.key_bytes.min(19) as u32);
        if self.key_bytes > NUMBER_BYTES && self.records as u64 > most {
            return Err(usage(format!(
                "--key-bytes: {} have no room for the digits of all records",
                self.key_bytes
            )));
        }
        within("--cache-bytes", self.cache_bytes, 0, MAX_CACHE_BYTES)?;
        if self.key_bytes != NUMBER_BYTES
            && !(MIN_KEY_BYTES..=MAX_ORDERED_KEY_BYTES).contains(&self.key_bytes)
        {
            let (given, least, most) = (self.key_bytes, MIN_KEY_BYTES, MAX_ORDERED_KEY_BYTES);
            return Err(usage(format!(
                "--key-bytes: {given} is neither 8 nor in {least}..={most}"
            )));
        }
        for (flag, share) in [("--reads", self.reads), ("--changed", self.changed)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(usage(format!("{flag}: {share} is not in 0..=1")));
            }
        }
        let is_file = |dist: &Dist| matches!(dist, Dist::File(_));
        if is_file(&self.dist) || self.query_dist.as_ref().is_some_and(is_file) {
            return Err(usage("--dist, --query-dist: uniform or zipf:EXPONENT"));
        }
        Ok(())
    }

    /// The tree's settings.
    pub fn settings(&self) -> OrderedSettings {
        let keys = match self.key_bytes {
            NUMBER_BYTES => KeyForm::Integers,
            _ => KeyForm::Bytes,
        };
        let (fan_out, key_bytes, value_bytes) = (self.fanout, self.key_bytes, self.value_bytes);
        OrderedSettings { fan_out, key_bytes, value_bytes, ..OrderedSettings::of(keys) }
    }

    /// How a client keeps nodes.
    pub fn cache(&self) -> OrderedCache {
        let unlimited = |limit| if limit == 0 { usize::MAX } else { limit };
        let limits = FatRootLimits {
            ranges: self.ranges,
            depth: unlimited(self.root_depth),
            layers: self.layers,
            layer_nodes: self.layer_nodes,
            nodes: usize::MAX,
        };
        let policy = match self.cache_policy {
            KeptBy::None | KeptBy::Levels => CachePolicy::Levels,
            KeptBy::Greedy => CachePolicy::Greedy(limits),
        };
        let bytes = if self.cache_policy == KeptBy::None { 0 } else { self.cache_bytes };
        OrderedCache { bytes, policy }
    }

    /// How a session looks up.
    pub fn session_path(&self) -> Path {
        match self.path {
            RangesPath::Ask => Path::Ask,
            RangesPath::Read => Path::Read,
            RangesPath::Choose | RangesPath::Network => Path::Choose,
        }
    }

    /// Whether the kept nodes follow what is looked up in the timed part.
    pub fn adapts(&self) -> bool {
        self.adapt || self.query_dist.is_none()
    }

    /// The command that repeats the run, every default written out.
    pub fn command(&self) -> String {
        let mut command = format!(
            "remora bench ranges --path {} --policy {} --transport {} --records {} --load {} \
             --key-bytes {} --value-bytes {} --fanout {} --cache-policy {} --cache-bytes {} --ranges {} \
             --root-depth {} --layers {} --layer-nodes {} --range-len {} --parallel {} --dist {}",
            self.path,
            self.policy,
            self.transport,
            self.records,
            self.load,
            self.key_bytes,
            self.value_bytes,
            self.fanout,
            self.cache_policy,
            self.cache_bytes,
            self.ranges,
            self.root_depth,
            self.layers,
            self.layer_nodes,
            self.range_len,
            self.parallel,
            self.dist,
        );
        command += &self.packets.command();
        if let Some(dist) = &self.query_dist {
            command += &format!(" --query-dist {dist} --changed {}", self.changed);
        }
        let Self { learn, reads, ops, clients, wake, seed, .. } = self;
        command += &format!(
            " --learn {learn} --reads {reads} --ops {ops} --clients {clients} --wake {wake} --seed {seed}"
        );
        if let Some(address) = &self.server {
            command += &format!(" --server {address}");
        }
        for (is_set, flag) in [(self.adapt, " --adapt"), (self.json, " --json")] {
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
        ranges: RangesArgs,
    }

    fn parse(flags: &str) -> RangesArgs {
        let words = std::iter::once("ranges").chain(flags.split_whitespace());
        Flags::try_parse_from(words).unwrap_or_else(|error| panic!("{flags}: {error}")).ranges
    }

    #[test]
    fn the_papers_settings_are_the_defaults() {
        let args = parse("");
        args.check().unwrap();
        assert_eq!(args.cache().policy, CachePolicy::Greedy(FatRootLimits::PUBLISHED));
        assert_eq!((args.fanout, args.settings().keys), (16, KeyForm::Integers));
        assert!(args.adapts() && !parse("--query-dist uniform").adapts());
    }

    #[test]
    fn the_command_repeats_the_run() {
        let flags = "--path read --query-dist zipf:0.99 --changed 0.5 --adapt --root-depth 0 --load descending \
                     --key-bytes 20 --value-bytes 64 --cache-policy levels --range-len 100 --parallel 10 --json";
        let command = parse(flags).command();
        let again = parse(command.strip_prefix("remora bench ranges").unwrap());
        assert_eq!(again.command(), command);
        again.check().unwrap();
    }

    #[test]
    fn flags_out_of_their_range_are_refused() {
        for flags in [
            "--path network",
            "--records 0",
            "--fanout 3",
            "--fanout 257",
            "--value-bytes 7",
            "--value-bytes 1025",
            "--key-bytes 7",
            "--key-bytes 1025",
            "--reads 1.1",
            "--dist file:x",
            "--query-dist uniform --changed 2",
            "--clients 0",
            "--parallel 257",
        ] {
            assert!(parse(flags).check().is_err(), "{flags}");
        }
    }
}
