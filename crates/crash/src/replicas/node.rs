//! One server of a run with replicas: its process, and what the run says to it.

use super::plan::Backlog;
use crate::args::Durability;
use crate::load::ServerAddress;
use crate::types::ask;
use anyhow::{Context, bail};
use remora_command_line::{Connection, ServerProcess, Wake};
use remora_resp::Value;
use rustix::process::Signal;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

/// How a replica reaches its primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// Over the network, which can be cut.
    Tcp,
    /// Shared memory: nothing cuts it.
    Shm,
}

/// What stays the same for all servers of a run.
#[derive(Clone, Copy, Debug)]
pub struct Promises {
    /// Replicas without which nothing is acknowledged.
    pub min_replicas: u32,
    /// Of each server's own disk; `memory`: none has one.
    pub durability: Durability,
}

/// What a start draws anew.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// What it has for data.
    pub memory: Memory,
    /// How its shards wait.
    pub wake: Wake,
    /// What it keeps for replicas, while it is a primary.
    pub backlog: Backlog,
}

/// What a server has for data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Shards.
    pub shards: usize,
    /// Bytes of each.
    pub arena_bytes: u64,
}

impl Memory {
    /// The least that a replica of this primary needs, with so many shards: a shard needs as much as
    /// all shards of the primary that it shares slots with.
    pub fn of_replica(primary: Self, shards: usize) -> Self {
        let shared = match (shards, primary.shards) {
            (own, of) if own % of == 0 => 1,
            (1, of) => of as u64,
            // Of two and three, which is as many as there are.
            _ => 2,
        };
        Self { shards, arena_bytes: shared * primary.arena_bytes }
    }

    /// All of it.
    pub fn bytes(self) -> u64 {
        self.shards as u64 * self.arena_bytes
    }
}

/// Where a server listens.
#[derive(Clone, Debug)]
pub struct Home {
    /// What begins its process: the way into its namespace, or nothing.
    pub launcher: Vec<String>,
    /// Its host.
    pub host: String,
    /// Its RESP port, the same after each start.
    pub port: u16,
    /// The port of its fabric address.
    pub fabric_port: u16,
    /// Its own directory: socket and data.
    pub directory: PathBuf,
}

/// See the module's text.
#[derive(Debug)]
pub struct Node {
    home: Home,
    process: Option<ServerProcess>,
    /// Of its last start.
    memory: Option<Memory>,
}

/// How far a server has come: of all replicas the greatest has all that was acknowledged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    /// The epoch of the primary that it follows.
    pub epoch: u64,
    /// The sum of the last sequences that it has, over the shards of the primary.
    pub sequence: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "epoch {}, sequence {}", self.epoch, self.sequence)
    }
}

/// The fields of a section of INFO.
pub struct Info(HashMap<String, String>);

impl Info {
    /// A field; empty if there is none.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A field that is a number; 0 if there is none.
    pub fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }
}

impl Node {
    /// One that does not run yet.
    pub fn new(home: Home) -> Self {
        Self { home, process: None, memory: None }
    }

    /// Where it is.
    pub fn place(&self) -> anyhow::Result<ServerAddress> {
        let resp = format!("{}:{}", self.home.host, self.home.port);
        Ok(ServerAddress { resp: resp.parse()?, socket: self.socket(), fabric: None })
    }

    fn socket(&self) -> PathBuf {
        self.home.directory.join("socket")
    }

    /// Its address for a replica.
    pub fn address(&self, by: Link) -> String {
        match by {
            Link::Tcp => format!("{}:{}", self.home.host, self.home.fabric_port),
            Link::Shm => self.socket().display().to_string(),
        }
    }

    /// What it has for data.
    pub fn memory(&self) -> anyhow::Result<Memory> {
        self.memory.context("it was never started")
    }

    /// Whether its process is there.
    pub fn is_alive(&self) -> bool {
        self.process.is_some()
    }

    /// Starts it, as a primary or as a replica of this address.
    pub fn start(
        &mut self,
        promises: Promises,
        start: Start,
        primary: Option<String>,
    ) -> anyhow::Result<()> {
        let Home { host, port, fabric_port, .. } = &self.home;
        let mut args: Vec<String> =
            ["serve", "--owned-by-parent", "--log=warn", "--pin=false", "--buckets=0"]
                .map(str::to_owned)
                .to_vec();
        args.extend([
            // A network of the run's own.
            "--protected-mode=false".to_owned(),
            format!("--bind={host}"),
            format!("--port={port}"),
            format!("--fabric-address={host}:{fabric_port}"),
            format!("--socket={}", self.socket().display()),
            format!("--shards={}", start.memory.shards),
            format!("--max-memory={}", start.memory.bytes()),
            format!("--wake={}", start.wake),
            format!("--min-replicas={}", promises.min_replicas),
            "--lease-min-ms=1000".to_owned(),
        ]);
        if promises.durability != Durability::Memory {
            args.push(format!("--data-dir={}", self.data().display()));
            args.push(format!("--durability={}", promises.durability));
        }
        args.extend(start.backlog.flag().map(str::to_owned));
        args.extend(primary.map(|address| format!("--replica-of={address}")));
        self.memory = Some(start.memory);
        let reads = [("REMORA_REPLICA_READS", PathBuf::from("stale"))];
        self.process = Some(ServerProcess::start_through(&self.home.launcher, &args, &reads)?);
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.home.directory.join("data")
    }

    /// Its disk is another one: an empty one.
    pub fn wipe(&self) -> anyhow::Result<()> {
        match std::fs::remove_dir_all(self.data()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context("taking a disk away")
            }
            _ => Ok(()),
        }
    }

    /// Sends its process a signal.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self.process.as_ref().context("it is dead")?.signal(signal)
    }

    /// Ends it by SIGKILL.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.take().map_or(Ok(()), ServerProcess::kill)
    }

    /// Ends it by SIGTERM; it has to end well.
    pub fn terminate(&mut self) -> anyhow::Result<()> {
        self.process.take().map_or(Ok(()), ServerProcess::terminate)
    }

    /// Shows the last lines of its log.
    pub fn note_log(&self) {
        self.process.iter().for_each(ServerProcess::note_log);
    }

    /// A RESP connection.
    pub fn resp(&self) -> anyhow::Result<Connection> {
        self.place()?.resp()
    }

    /// What it says of its replication.
    pub fn info(&self) -> anyhow::Result<Info> {
        let text = self.place()?.info("replication")?;
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.trim().to_owned());
        Ok(Info(fields.map(own).collect()))
    }

    /// How far a replica has come; `None` while it holds a part of a copy.
    pub fn position(&self) -> anyhow::Result<Option<Position>> {
        let info = self.info()?;
        if info.number("master_sync_in_progress") != 0 {
            return Ok(None);
        }
        // 16 digits that name the primary, then its epoch.
        let id = info.text("master_replid");
        let epoch = u64::from_str_radix(id.get(16..).unwrap_or("0"), 16)
            .with_context(|| format!("the epoch of {id}"))?;
        Ok(Some(Position { epoch, sequence: info.number("slave_received_offset") }))
    }

    /// The digest of all that it has.
    pub fn digest(&self) -> anyhow::Result<String> {
        let mut resp = self.resp()?;
        match ask(&mut resp, &[b"DEBUG", b"DIGEST"])? {
            Value::Bulk(text) | Value::Simple(text) => {
                Ok(String::from_utf8_lossy(text).into_owned())
            }
            other => bail!("unexpected reply to DEBUG DIGEST: {other:?}"),
        }
    }

    /// It follows this address from now on.
    pub fn follow(&self, address: &str) -> anyhow::Result<()> {
        self.replica_of(address.as_bytes()).with_context(|| format!("REPLICAOF {address}"))
    }

    /// It is a primary from now on, with all that it has received.
    pub fn promote(&self) -> anyhow::Result<()> {
        let mut resp = self.resp()?;
        ask(&mut resp, &[b"REPLICAOF", b"NO", b"ONE"]).context("REPLICAOF NO ONE")?;
        Ok(())
    }

    /// It copies its primary anew, whatever it has.
    pub fn resync(&self) -> anyhow::Result<()> {
        let mut resp = self.resp()?;
        ask(&mut resp, &[b"RESYNC"]).context("RESYNC")?;
        Ok(())
    }

    fn replica_of(&self, address: &[u8]) -> anyhow::Result<()> {
        let mut resp = self.resp()?;
        ask(&mut resp, &[b"REPLICAOF", address])?;
        Ok(())
    }
}
