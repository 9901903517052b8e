//! Flags of `remora bench keys`, and the combinations that they exclude.

use crate::bounds::{MAX_CLIENTS, MAX_OPS, within};
use crate::drive::Shape;
use crate::targets::local::{KEY_BYTES, VALUE_BYTES};
use crate::trace::MAX_WIDTH;
use crate::variants::form::{Form, Messages, ShardModel, message_bytes};
use crate::workload::{Dist, MAX_RECORDS};
use clap::{Args, ValueEnum};
use remora_command_line::{Address, PacketArgs, Policy, Transport, Wake, show_by_name, usage};
use remora_layout::limits::{
    MAX_IN_FLIGHT, MAX_INLINE_BYTES, MAX_KEY_BYTES, MAX_SHARDS, MAX_VALUE_BYTES,
};
use std::time::Duration;

/// Shortest run for a time, in seconds.
const MIN_SECONDS: f64 = 0.001;
/// Longest run for a time, in seconds.
const MAX_SECONDS: f64 = 86_400.0;
/// Keys of one batch: bounded as requests in flight are.
const MAX_BATCH: usize = MAX_IN_FLIGHT;

/// How values are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum BenchPath {
    /// By message over the rings.
    Ask,
    /// By READs of the server's memory.
    Read,
    /// By RESP over TCP.
    Resp,
    /// A cached pointer is read; without one the server is asked.
    Choose,
    /// In a `HashMap<[u8; 16], Box<[u8; 32]>>` of this process, to compare with.
    Local,
}

/// Whether a session keeps pointers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PointerCache {
    /// No: each read begins at the bucket.
    Off,
    /// Yes, each session its own.
    Private,
    /// Yes, one table for all sessions of this machine.
    Shared,
}

show_by_name!(BenchPath, PointerCache);

/// Flags of `remora bench keys`.
#[derive(Clone, Debug, Args)]
pub struct KeysArgs {
    /// How values are looked up; writes go by message, or by RESP.
    #[arg(long, value_enum, default_value_t = BenchPath::Choose)]
    pub path: BenchPath,
    /// How --path choose is decided.
    #[arg(long, value_enum, default_value_t = Policy::Cost)]
    pub policy: Policy,
    /// What carries requests and READs; a named one that cannot be had is an error.
    #[arg(long, value_enum, default_value_t = Transport::Shm)]
    pub transport: Transport,
    /// Of its packets over RDMA.
    #[command(flatten)]
    pub packets: PacketArgs,
    /// Records to load; a file of keys brings its own number.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub records: usize,
    /// Operations of all clients together [default: 1000000, or the file's length].
    #[arg(long, value_name = "N")]
    pub ops: Option<usize>,
    /// Runs so long, in seconds, and not once through the operations: they
    /// begin again when they end.
    #[arg(long, value_name = "F")]
    pub seconds: Option<f64>,
    /// Share of reads, 0 to 1; the rest sets records to the values they have.
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    pub reads: f64,
    /// uniform, zipf:EXPONENT (ranks scattered over the keys by a fixed
    /// permutation) or file:PATH (a trace: keys of a fixed width, plain or .xz).
    /// A trace is replayed in its order. Its distinct keys are numbered in
    /// order of appearance, and all of them are loaded first.
    #[arg(long, value_name = "DIST", default_value = "uniform")]
    pub dist: Dist,
    /// Width of a trace's keys, in bytes. Their byte order does not matter, as
    /// they are only told apart.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub trace_key_bytes: usize,
    /// Bytes of a key: "key:" and digits.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub key_bytes: usize,
    /// Bytes of a value; the first eight are the record's number.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub value_bytes: usize,
    /// Client threads, each with a session or connection of its own.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub clients: usize,
    /// Requests that each client keeps outstanding (ask and resp).
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub pipeline: usize,
    /// Keys looked up at once: a batch of READs, or an MGET.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub batch: usize,
    /// Shards of the server [default: as of serve by the cores, whatever its memory].
    #[arg(long, value_name = "N", conflicts_with = "server")]
    pub shards: Option<usize>,
    /// How shards and sessions wait. With poll and two cores or more, shards
    /// are pinned from core 0 up and the clients to the cores after them.
    #[arg(long, value_enum, default_value_t = Wake::Hybrid)]
    pub wake: Wake,
    /// Whether sessions cache pointers to records.
    #[arg(long, value_enum, default_value_t = PointerCache::Private)]
    pub pointer_cache: PointerCache,
    /// What carries messages. sendrecv and indicator (which polls, and sleeps
    /// 100 ns now and then, whatever --wake says) are for comparison: they are
    /// served by a small server of the bench's own, and only asked.
    #[arg(long, value_enum, default_value_t = Messages::Ring)]
    pub messages: Messages,
    /// Threads of a shard: one that does all, or two that dispatch and two that
    /// execute, in the bench's own server.
    #[arg(long, value_enum, default_value_t = ShardModel::Single)]
    pub shard_model: ShardModel,
    /// Serves the other forms' counterpart, ring and single, from the bench's
    /// own server and client too: only what is compared differs then.
    #[arg(long)]
    pub like_for_like: bool,
    /// Shortest lease, in ms; the default outlasts any run.
    #[arg(long, value_name = "N", default_value_t = 600_000)]
    pub lease_ms: u64,
    /// Leaves out the warming up, in which every record is looked up once.
    #[arg(long)]
    pub cold: bool,
    /// Seed of the operations.
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

impl KeysArgs {
    /// How operations are issued.
    pub fn shape(&self) -> Shape {
        let limit = self.seconds.map(Duration::from_secs_f64);
        Shape { batch: self.batch, pipeline: self.pipeline, limit }
    }

    /// Refuses contradictory flags, and a transport that this machine lacks.
    pub fn check(&self) -> anyhow::Result<()> {
        self.check_form()?;
        self.packets.packets()?;
        within("--records", self.records, 1, MAX_RECORDS)?;
        within("--ops", self.ops.unwrap_or(1), 1, MAX_OPS)?;
        within("--trace-key-bytes", self.trace_key_bytes, 1, MAX_WIDTH)?;
        within("--key-bytes", self.key_bytes, 1, MAX_KEY_BYTES)?;
        within("--value-bytes", self.value_bytes, 0, MAX_VALUE_BYTES)?;
        within("--clients", self.clients, 1, MAX_CLIENTS)?;
        within("--pipeline", self.pipeline, 1, MAX_IN_FLIGHT)?;
        within("--batch", self.batch, 1, MAX_BATCH)?;
        if let Some(seconds) =
            self.seconds.filter(|given| !(MIN_SECONDS..=MAX_SECONDS).contains(given))
        {
            return Err(usage(format!(
                "--seconds: {seconds} is not in {MIN_SECONDS}..={MAX_SECONDS}"
            )));
        }
        if !(0.0..=1.0).contains(&self.reads) {
            return Err(usage(format!("--reads: {} is not in 0..=1", self.reads)));
        }
        let has_pipeline = matches!(self.path, BenchPath::Ask | BenchPath::Resp);
        if self.pipeline > 1 && !has_pipeline {
            let path = self.path;
            return Err(usage(format!("--path {path} has no --pipeline; --batch is its way")));
        }
        if self.pipeline > 1 && self.batch > 1 {
            return Err(usage("--pipeline and --batch exclude each other"));
        }
        if self.path == BenchPath::Local {
            if (self.key_bytes, self.value_bytes) != (KEY_BYTES, VALUE_BYTES) {
                return Err(usage("--path local has keys of 16 bytes and values of 32"));
            }
            if self.reads < 1.0 || self.server.is_some() {
                return Err(usage("--path local is only read, and has no server"));
            }
        }
        Ok(())
    }

    /// Whether the run goes to the bench's own server instead of the product's.
    pub fn is_variant(&self) -> bool {
        self.like_for_like
            || self.messages != Messages::Ring
            || self.shard_model != ShardModel::Single
    }

    /// The form that a variant's client and server share.
    pub fn form(&self) -> Form {
        let message_bytes = message_bytes(self.key_bytes, self.value_bytes);
        Form { messages: self.messages, shard_model: self.shard_model, message_bytes }
    }

    /// Sets the options that a variant implies: it has no pointer cache, and without one every
    /// choice is to ask.
    pub fn normalize(&mut self) {
        if self.is_variant() {
            self.pointer_cache = PointerCache::Off;
            if self.path == BenchPath::Choose {
                self.path = BenchPath::Ask;
            }
        }
    }

    /// Refuses variants that do not exist.
    fn check_form(&self) -> anyhow::Result<()> {
        if !self.is_variant() {
            return Ok(());
        }
        let what = format!("--messages {} --shard-model {}", self.messages, self.shard_model);
        if self.key_bytes + self.value_bytes > MAX_INLINE_BYTES {
            return Err(usage(format!(
                "--messages, --shard-model: keys and values of {MAX_INLINE_BYTES} bytes at most together"
            )));
        }
        if !matches!(self.transport, Transport::Shm | Transport::Auto) {
            return Err(usage(format!("{what}: over --transport shm only")));
        }
        if self.path != BenchPath::Ask {
            return Err(usage(format!("{what}: nothing but --path ask goes by message")));
        }
        if self.server.is_some() {
            return Err(usage(format!(
                "{what}: in a server of the bench's own, so without --server"
            )));
        }
        if !(1..=MAX_SHARDS).contains(&self.shards.unwrap_or(1)) {
            return Err(usage(format!("--shards: must be 1 to {MAX_SHARDS}")));
        }
        if self.messages == Messages::Indicator {
            if self.pipeline > 1 || self.batch > 1 {
                return Err(usage(
                    "--messages indicator has one request outstanding: no --pipeline, no --batch",
                ));
            }
            if self.wake == Wake::Event {
                return Err(usage("--messages indicator polls: no --wake event"));
            }
        }
        Ok(())
    }

    /// The command that repeats the run, every default written out.
    pub fn command(&self, ops: usize, shards: usize) -> String {
        let mut command = format!(
            "remora bench keys --path {} --policy {} --transport {} --records {} --ops {ops} --reads {} \
             --dist {} --trace-key-bytes {} --key-bytes {} --value-bytes {} --clients {} \
             --pipeline {} --batch {}",
            self.path,
            self.policy,
            self.transport,
            self.records,
            self.reads,
            self.dist,
            self.trace_key_bytes,
            self.key_bytes,
            self.value_bytes,
            self.clients,
            self.pipeline,
            self.batch,
        );
        command += &self.packets.command();
        if let Some(seconds) = self.seconds {
            command += &format!(" --seconds {seconds}");
        }
        match &self.server {
            Some(address) => command += &format!(" --server {address}"),
            None => command += &format!(" --shards {shards}"),
        }
        command += &format!(
            " --wake {} --pointer-cache {} --messages {} --shard-model {} --lease-ms {} --seed {}",
            self.wake,
            self.pointer_cache,
            self.messages,
            self.shard_model,
            self.lease_ms,
            self.seed
        );
        let switches = [
            (self.like_for_like, " --like-for-like"),
            (self.cold, " --cold"),
            (self.json, " --json"),
        ];
        for (is_set, flag) in switches {
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
        keys: KeysArgs,
    }

    fn parse(flags: &str) -> KeysArgs {
        let words = std::iter::once("keys").chain(flags.split_whitespace());
        Flags::try_parse_from(words).unwrap_or_else(|error| panic!("{flags}: {error}")).keys
    }

    #[test]
    fn the_contracts_defaults_hold() {
        let args = parse("");
        assert_eq!((args.clients, args.pipeline, args.batch, args.seed), (1, 1, 1, 1));
        assert_eq!((args.reads, args.transport), (1.0, Transport::Shm));
        args.check().unwrap();
    }

    #[test]
    fn the_command_repeats_the_run() {
        let flags = "--path read --dist zipf:0.99 --clients 3 --batch 16 --seconds 0.5 --cold --seed 9 \
                     --rdma-mtu 2048 --rdma-service-level 3 --json";
        let command = parse(flags).command(50, 2);
        let again = parse(command.strip_prefix("remora bench keys").unwrap());
        assert_eq!(again.command(again.ops.unwrap(), again.shards.unwrap()), command);
        assert!(command.contains("--dist zipf:0.99") && command.contains("--cold"));
        assert!(command.contains("--rdma-service-level 3 --rdma-mtu 2048"));
    }

    #[test]
    fn flags_that_exclude_each_other_are_refused() {
        for flags in [
            "--path read --pipeline 2",
            "--path ask --pipeline 2 --batch 2",
            "--path local --value-bytes 33",
            "--path local --reads 0.5",
            "--reads 1.5",
            "--clients 0",
            "--ops 0",
            "--trace-key-bytes 0",
            "--trace-key-bytes 65",
            "--seconds 0",
            "--seconds nan",
            "--pipeline 100000 --path ask",
            "--messages indicator --pipeline 2 --path ask",
            "--messages indicator --batch 2",
            "--messages indicator --wake event",
            "--messages sendrecv --path read",
            "--shard-model pipelined --path resp",
            "--shard-model pipelined --transport tcp",
            "--like-for-like --server /tmp/s",
            "--messages sendrecv --shards 0",
        ] {
            assert!(parse(flags).check().is_err(), "{flags}");
        }
    }
}
