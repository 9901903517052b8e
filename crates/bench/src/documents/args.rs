//! Flags of `remora bench documents`.

use crate::bounds::{MAX_OPS, within};
use clap::{Args, ValueEnum};
use remora_client::Path;
use remora_command_line::{Address, Policy, Transport, Wake, show_by_name, usage};
use std::net::{SocketAddr, ToSocketAddrs};

/// Documents that are loaded, at most.
const MAX_RECORDS: usize = 100_000_000;
/// Connections, each with a thread of its own: sessions that one server takes.
const MAX_CONNECTIONS: usize = remora_layout::limits::MAX_SESSIONS;
/// Bytes of a document's value, at most: a request with it fits a message.
const MAX_VALUE_BYTES: usize = 64 << 10;

/// What is done with documents (RDMA_Mongo 5, row M31).
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Op {
    /// A new document is added.
    Insert,
    /// A document is found by its `_id`.
    Find,
    /// A number in a document, which is named by its `_id`, is raised.
    Update,
    /// A document, which is named by its `_id`, is removed.
    Delete,
    /// A document is found by an indexed field.
    Query,
}

impl Op {
    /// Whether it changes documents.
    pub fn is_change(self) -> bool {
        !matches!(self, Self::Find | Self::Query)
    }
}

/// By which path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DocumentsPath {
    /// A message over the rings, or over TCP.
    Ask,
    /// READs of the server's memory, as far as the client has any for the operation.
    Read,
    /// As the session chooses.
    Choose,
    /// MongoDB's wire protocol over TCP.
    Mongo,
}

show_by_name!(Op, DocumentsPath);

/// Flags of `remora bench documents`.
#[derive(Clone, Debug, Args)]
pub struct DocumentsArgs {
    /// What is done.
    #[arg(long, value_enum, default_value_t = Op::Find)]
    pub op: Op,
    /// By which path. Changes go by message whatever it says.
    #[arg(long, value_enum, default_value_t = DocumentsPath::Choose)]
    pub path: DocumentsPath,
    /// How --path choose is decided.
    #[arg(long, value_enum, default_value_t = Policy::Cost)]
    pub policy: Policy,
    /// What carries requests and READs; a named one that cannot be had is an error. MongoDB's protocol is
    /// on TCP always.
    #[arg(long, value_enum, default_value_t = Transport::Shm)]
    pub transport: Transport,
    /// Connections, each with a thread of its own.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub connections: usize,
    /// Documents to load.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub records: usize,
    /// Bytes of a document's value, beside its `_id` and two numbers.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub value_bytes: usize,
    /// Operations of all connections together. With delete at most as many as there are documents.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub ops: usize,
    /// Counts the first look at each document, too: nothing is found before.
    #[arg(long)]
    pub cold: bool,
    /// How the shard and the sessions wait.
    #[arg(long, value_enum, default_value_t = Wake::Hybrid)]
    pub wake: Wake,
    /// Seed of the operations.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// A running server: path of its Unix socket, or HOST:PORT of its RESP port; with --path mongo HOST:PORT
    /// of its port for MongoDB's protocol. Without it the bench starts a server process of its own. The
    /// collection `bench.documents` there is removed.
    #[arg(long, value_name = "ADDR")]
    pub server: Option<Address>,
    /// The process of a server that --path mongo names, for its CPU time.
    #[arg(long, value_name = "PID", requires = "server")]
    pub server_pid: Option<u32>,
    /// Prints one JSON object.
    #[arg(long)]
    pub json: bool,
}

impl DocumentsArgs {
    /// Refuses contradictory flags.
    pub fn check(&self) -> anyhow::Result<()> {
        within("--records", self.records, 1, MAX_RECORDS)?;
        within("--ops", self.ops, 1, MAX_OPS)?;
        within("--connections", self.connections, 1, MAX_CONNECTIONS)?;
        within("--value-bytes", self.value_bytes, 0, MAX_VALUE_BYTES)?;
        if self.op == Op::Delete && self.ops > self.records {
            let (ops, records) = (self.ops, self.records);
            return Err(usage(format!(
                "--op delete removes each document once: --ops {ops} needs as many --records, not {records}"
            )));
        }
        if self.server_pid.is_some() && self.path != DocumentsPath::Mongo {
            return Err(usage(
                "--server-pid goes with --path mongo: other servers name their process",
            ));
        }
        Ok(())
    }

    /// The path of a session; `None`: MongoDB's protocol.
    pub fn session_path(&self) -> Option<Path> {
        match self.path {
            DocumentsPath::Ask => Some(Path::Ask),
            DocumentsPath::Read => Some(Path::Read),
            DocumentsPath::Choose => Some(Path::Choose),
            DocumentsPath::Mongo => None,
        }
    }

    /// Whether it is MongoDB's protocol.
    pub fn is_mongo(&self) -> bool {
        self.path == DocumentsPath::Mongo
    }

    /// Whether a running server listens to clients on TCP.
    pub fn is_over_tcp(&self) -> bool {
        !self.is_mongo() && self.transport.is_remote()
    }

    /// The command that repeats the run, every default written out.
    pub fn command(&self) -> String {
        let Self { op, path, policy, transport, connections, records, value_bytes, ops, .. } = self;
        let mut command = format!(
            "remora bench documents --op {op} --path {path} --policy {policy} --transport {transport} \
             --connections {connections} --records {records} --value-bytes {value_bytes} --ops {ops} \
             --wake {} --seed {}",
            self.wake, self.seed
        );
        if let Some(address) = &self.server {
            command += &format!(" --server {address}");
        }
        if let Some(pid) = self.server_pid {
            command += &format!(" --server-pid {pid}");
        }
        for (is_set, flag) in [(self.cold, " --cold"), (self.json, " --json")] {
            if is_set {
                command += flag;
            }
        }
        command
    }
}

/// The address of a server's port for MongoDB's protocol.
pub fn mongo_address(server: &Address) -> anyhow::Result<SocketAddr> {
    let wanted = || usage(format!("--server: {server} is no HOST:PORT of MongoDB's protocol"));
    let Address::Resp(text) = server else { return Err(wanted()) };
    text.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(wanted)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        documents: DocumentsArgs,
    }

    /// These flags, parsed.
    pub fn parse(flags: &str) -> DocumentsArgs {
        let words = std::iter::once("documents").chain(flags.split_whitespace());
        Flags::try_parse_from(words).unwrap_or_else(|error| panic!("{flags}: {error}")).documents
    }

    #[test]
    fn the_contracts_defaults_hold() {
        let args = parse("");
        args.check().unwrap();
        assert_eq!((args.connections, args.seed, args.policy), (1, 1, Policy::Cost));
        assert_eq!(args.transport, Transport::Shm);
    }

    #[test]
    fn the_command_repeats_the_run() {
        let flags = "--op delete --path mongo --connections 7 --records 900 --ops 300 --value-bytes 9 --cold \
                     --wake event --seed 5 --server 127.0.0.1:27017 --server-pid 12 --json";
        let command = parse(flags).command();
        let again = parse(command.strip_prefix("remora bench documents").unwrap());
        assert_eq!(again.command(), command);
        again.check().unwrap();
    }

    #[test]
    fn flags_out_of_their_range_are_refused() {
        for flags in [
            "--records 0",
            "--ops 0",
            "--connections 0",
            "--connections 1025",
            "--value-bytes 65537",
            "--op delete --records 10 --ops 11",
            "--server x:1 --server-pid 1",
        ] {
            assert!(parse(flags).check().is_err(), "{flags}");
        }
    }

    #[test]
    fn a_path_is_no_address_of_mongodbs_protocol() {
        let parse = |text: &str| mongo_address(&text.parse().unwrap());
        assert_eq!(parse("127.0.0.1:27017").unwrap().port(), 27017);
        assert!(parse("/run/remora.sock").is_err() && parse("127.0.0.1").is_err());
    }
}
