//! ZooKeeper and the servers of groups: their processes, and what `remora cluster` says of them.

use crate::args::Durability;
use crate::load::ServerAddress;
use crate::network::{FABRIC_PORT, Network};
use anyhow::{Context, bail};
use remora_command_line::{ServerProcess, note, usage};
use remora_zookeeper::{LocalServer, LocalServerPlan};
use rustix::process::Signal;
use serde_json::Value;
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const SHARDS: usize = 2;
const MEMORY_BYTES: u64 = 128 << 20;
const RESP_PORT: u16 = 7379;
const COORDINATOR_PORT: u16 = 2181;
/// ZooKeeper's tick, ms: its shortest session is two of them.
const TICK_MS: u64 = 100;
/// Each change of a role has its line, and no session does.
const LOG: &str = "--log=info,remora_server::control=warn";
/// A ZooKeeper that was just started may be slow.
const INIT_LIMIT: &str = "--timeout-s=60";
/// Between two looks at the cluster.
const PAUSE: Duration = Duration::from_millis(100);

/// The settings of all servers of a run.
#[derive(Clone, Copy, Debug)]
pub struct ClusterPlan {
    /// Replicas without which nothing is acknowledged.
    pub min_replicas: u32,
    /// Of each server's own disk; `memory`: none has one.
    pub durability: Durability,
    /// The session of each server at ZooKeeper, ms.
    pub session_ms: u64,
    /// Servers with such a number, even (0) or odd (1), follow and give sessions over TCP only, so that
    /// a cut link is cut for their logs, too. The others share memory.
    pub over_tcp: Option<usize>,
    /// Groups, of as many servers each. They divide the slots equally, in their order.
    pub groups: usize,
}

impl ClusterPlan {
    /// Of servers without disks.
    pub fn in_memory(min_replicas: u32, session_ms: u64) -> Self {
        Self { min_replicas, durability: Durability::Memory, session_ms, over_tcp: None, groups: 1 }
    }
}

/// What the topology says of a group, by the numbers of servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The group's epoch.
    pub epoch: u64,
    /// The primary, if it is present.
    pub primary: Option<usize>,
    /// Members of the in-sync set that are present.
    pub in_sync: Vec<usize>,
}

struct Member {
    /// What begins its process: the way into its namespace, or nothing.
    launcher: Vec<String>,
    host: String,
    port: u16,
    fabric_port: u16,
    directory: PathBuf,
    is_over_tcp: bool,
    process: Option<ServerProcess>,
}

impl Member {
    fn place(&self) -> anyhow::Result<ServerAddress> {
        let at = |port: u16| format!("{}:{port}", self.host).parse();
        let fabric = self.is_over_tcp.then(|| at(self.fabric_port)).transpose()?;
        Ok(ServerAddress { resp: at(self.port)?, socket: self.directory.join("socket"), fabric })
    }
}

/// See the module's text.
pub struct Members {
    /// ZooKeeper. In the network it is the server behind the last one.
    pub coordinator: LocalServer,
    /// Links that can be cut.
    pub network: Option<Network>,
    members: Vec<Member>,
    settings: ClusterPlan,
}

impl Members {
    /// Starts ZooKeeper, makes a cluster, and starts so many servers of each group, below a directory.
    /// Servers are numbered group by group.
    pub fn start(
        servers: usize,
        settings: ClusterPlan,
        (network, directory): (Option<Network>, &Path),
    ) -> anyhow::Result<Self> {
        let plan = match &network {
            Some(network) => LocalServerPlan {
                host: Network::host(servers),
                port: COORDINATOR_PORT,
                launcher: network.launcher(servers),
                tick_ms: TICK_MS,
                ..LocalServerPlan::default()
            },
            None => LocalServerPlan { tick_ms: TICK_MS, ..LocalServerPlan::default() },
        };
        let coordinator = LocalServer::start(plan).map_err(|error| usage(error.to_string()))?;
        let servers = servers * settings.groups;
        let member = |number: usize| {
            let directory = directory.join(format!("server-{number}"));
            std::fs::create_dir(&directory)?;
            let (is_over_tcp, process) = (settings.over_tcp == Some(number % 2), None);
            Ok(match &network {
                Some(network) => Member {
                    launcher: network.launcher(number),
                    host: Network::host(number),
                    port: RESP_PORT,
                    fabric_port: FABRIC_PORT,
                    directory,
                    is_over_tcp,
                    process,
                },
                None => Member {
                    launcher: Vec::new(),
                    host: "127.0.0.1".into(),
                    port: free_port()?,
                    fabric_port: free_port()?,
                    directory,
                    is_over_tcp,
                    process,
                },
            })
        };
        let members = (0..servers).map(member).collect::<anyhow::Result<Vec<_>>>()?;
        let mut all = Self { coordinator, network, members, settings };
        let mut flags = vec![format!("--min-replicas={}", settings.min_replicas)];
        flags.extend((0..settings.groups).map(|group| format!("--group={}", group_name(group))));
        let flags = flags.iter().map(String::as_str).chain([INIT_LIMIT, "--yes"]);
        all.command("init", &flags.collect::<Vec<_>>())?;
        (0..servers).try_for_each(|number| all.begin(number))?;
        Ok(all)
    }

    fn address(&self) -> String {
        format!("zk://{}/crash", self.coordinator.address())
    }

    /// `remora cluster VERB`. What it prints.
    fn command(&self, verb: &str, more: &[&str]) -> anyhow::Result<String> {
        let binary = std::env::current_exe().context("cannot find this binary")?;
        let output = Command::new(binary)
            .args(["cluster", verb, "--cluster", &self.address()])
            .args(more)
            .output()?;
        if !output.status.success() {
            bail!("cluster {verb}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// How many servers there are, of all groups.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// The numbers of the servers of a group.
    pub fn of_group(&self, group: usize) -> Range<usize> {
        let each = self.members.len() / self.settings.groups;
        group * each..(group + 1) * each
    }

    /// The process of a server that is alive.
    pub fn pid(&self, number: usize) -> Option<u32> {
        self.members[number].process.as_ref().map(ServerProcess::pid)
    }

    /// Where they are.
    pub fn places(&self) -> anyhow::Result<Vec<ServerAddress>> {
        self.members.iter().map(Member::place).collect()
    }

    /// Starts a server, if it is dead.
    pub fn begin(&mut self, number: usize) -> anyhow::Result<()> {
        if self.members[number].process.is_some() {
            return Ok(());
        }
        let cluster = self.address();
        let ClusterPlan { durability, session_ms, .. } = self.settings;
        let Member { launcher, host, port, fabric_port, directory, is_over_tcp, .. } =
            &self.members[number];
        let fixed = ["serve", "--owned-by-parent", LOG, "--pin=false", "--buckets=0"];
        let mut args = fixed.map(str::to_owned).to_vec();
        args.extend([
            // A network of the run's own.
            "--protected-mode=false".to_owned(),
            format!("--bind={host}"),
            format!("--port={port}"),
            format!("--fabric-address={host}:{fabric_port}"),
            format!("--socket={}", directory.join("socket").display()),
            format!("--shards={SHARDS}"),
            format!("--max-memory={MEMORY_BYTES}"),
            "--wake=event".to_owned(),
            "--lease-min-ms=1000".to_owned(),
            format!("--cluster={cluster}"),
            format!("--group={}", group_name(number / self.of_group(0).len())),
            format!("--session-ms={session_ms}"),
        ]);
        args.extend(is_over_tcp.then(|| "--transport=tcp".to_owned()));
        if durability != Durability::Memory {
            args.push(format!("--data-dir={}", directory.join("data").display()));
            args.push(format!("--durability={durability}"));
        }
        let process = ServerProcess::start_through(launcher, &args, &[])
            .with_context(|| format!("starting server {number}"))?;
        self.members[number].process = Some(process);
        Ok(())
    }

    /// Ends a server by SIGKILL.
    pub fn kill(&mut self, number: usize) -> anyhow::Result<()> {
        self.members[number].process.take().map_or(Ok(()), ServerProcess::kill)
    }

    /// Whether a server's process was not killed.
    pub fn is_alive(&self, number: usize) -> bool {
        self.members[number].process.is_some()
    }

    /// Sends a server a signal.
    pub fn signal(&self, number: usize, signal: Signal) -> anyhow::Result<()> {
        self.members[number].process.as_ref().context("it is dead")?.signal(signal)
    }

    /// Ends all servers by SIGTERM; each has to end well.
    pub fn terminate(&mut self) -> anyhow::Result<()> {
        let mut processes = self.members.iter_mut().filter_map(|of| of.process.take());
        processes.try_for_each(ServerProcess::terminate)
    }

    /// The ends of the logs of those that are alive.
    pub fn logs(&self) -> Vec<String> {
        self.members.iter().filter_map(|of| Some(of.process.as_ref()?.log())).collect()
    }

    /// Shows what the servers say of their replication, and the last lines of all logs.
    pub fn note_state(&self) {
        for (number, member) in self.members.iter().enumerate() {
            let info = member.place().and_then(|place| place.info("replication"));
            let info = info.unwrap_or_else(|error| format!("{error:#}"));
            note(&format!("server {number} says:\n{}", info.replace('\r', "")));
            member.process.iter().for_each(ServerProcess::note_log);
        }
    }

    /// What the topology says of the first group.
    pub fn status(&self) -> anyhow::Result<Status> {
        self.status_of(0)
    }

    /// What the topology says of a group.
    pub fn status_of(&self, group: usize) -> anyhow::Result<Status> {
        let text = self.command("status", &["--json"])?;
        let fields: Value = serde_json::from_str(&text)?;
        let groups = fields["groups"].as_array().context("a topology without groups")?;
        let group = groups.iter().find(|of| of["name"] == group_name(group).as_str());
        let group = group.context("the group is missing")?;
        let members = group["members"].as_array().context("a group without members")?;
        let places = self.places()?;
        let mut status =
            Status { epoch: group["epoch"].as_u64().unwrap_or(0), primary: None, in_sync: vec![] };
        for member in members.iter().filter(|of| of["present"] == true) {
            let resp = member["resp"].as_str().unwrap_or_default();
            let number = places.iter().position(|of| of.resp.to_string() == resp);
            match (member["role"].as_str(), number) {
                (Some("primary"), number) => status.primary = number,
                (Some("in sync"), Some(number)) => status.in_sync.push(number),
                _ => {}
            }
        }
        Ok(status)
    }

    /// Waits until a primary leads the first group, and all others of it are in sync with it.
    pub fn wait_until_whole(&self, limit: Duration) -> anyhow::Result<Status> {
        self.wait_until_whole_of(0, limit)
    }

    /// The same of a group.
    pub fn wait_until_whole_of(&self, group: usize, limit: Duration) -> anyhow::Result<Status> {
        let began = Instant::now();
        loop {
            let status = self.status_of(group);
            if let Ok(status) = &status
                && status.primary.is_some()
                && status.in_sync.len() + 1 == self.of_group(group).len()
            {
                return Ok(status.clone());
            }
            if began.elapsed() > limit {
                bail!("the group is not whole after {limit:?}: {status:?}");
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// The first group has the name that a server takes by itself.
fn group_name(group: usize) -> String {
    match group {
        0 => "main".to_owned(),
        _ => format!("group{group}"),
    }
}

/// A port that no process has.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
