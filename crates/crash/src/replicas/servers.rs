//! The servers of a run: a primary and its replicas, what happens to them, and how they come back.

use super::node::{Home, Link, Memory, Node, Position, Promises, Start};
use super::plan::{Backlog, Disturbance, Fault, Plan, Recovery};
use crate::load::Round;
use crate::network::{FABRIC_PORT, Network, OneWay};
use anyhow::{Context, bail};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use remora_command_line::{Wake, note};
use rustix::process::Signal;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const MOST_SHARDS: usize = 3;
/// Of a shard of the first primary.
const ARENA_BYTES: u64 = 64 << 20;
/// A replica that needs more than this for another number of shards has as many as its primary.
const MOST_BYTES: u64 = 1 << 30;
const RESP_PORT: u16 = 7379;
/// Changes are acknowledged again by then once nothing is wrong any more.
const RESUME_LIMIT: Duration = Duration::from_secs(20);
/// Replicas have all that their primary has by then, copies included.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(40);
/// Replicas know by then that their primary is dead, also behind a link that was cut.
const LINK_DOWN_LIMIT: Duration = Duration::from_secs(20);
/// A replica begins its copy by then.
const COPY_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// See the module's text.
#[derive(Debug)]
pub struct Servers {
    nodes: Vec<Node>,
    primary: usize,
    promises: Promises,
    /// How each of them follows, if it does.
    links: Vec<Link>,
    /// Those that were dead when another server was promoted: what their disks have is of the former
    /// primary.
    former: Vec<bool>,
    network: Option<Network>,
    rng: ChaCha8Rng,
}

impl Servers {
    /// A primary and its replicas, all of them empty, below a directory.
    pub fn start(
        replicas: usize,
        promises: Promises,
        (network, directory): (Option<Network>, &Path),
        rng: ChaCha8Rng,
    ) -> anyhow::Result<Self> {
        let nodes = (0..=replicas)
            .map(|number| {
                let directory = directory.join(format!("server-{number}"));
                std::fs::create_dir(&directory)?;
                let home = match &network {
                    Some(network) => Home {
                        launcher: network.launcher(number),
                        host: Network::host(number),
                        port: RESP_PORT,
                        fabric_port: FABRIC_PORT,
                        directory,
                    },
                    None => Home {
                        launcher: Vec::new(),
                        host: "127.0.0.1".into(),
                        port: free_port()?,
                        fabric_port: free_port()?,
                        directory,
                    },
                };
                Ok(Node::new(home))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let (links, former) = (vec![Link::Tcp; nodes.len()], vec![false; nodes.len()]);
        let mut servers = Self { nodes, primary: 0, promises, links, former, network, rng };
        servers.start_primary()?;
        servers.bring_back()?;
        Ok(servers)
    }

    /// The number of the primary.
    pub fn primary(&self) -> usize {
        self.primary
    }

    /// The primary.
    pub fn of_primary(&self) -> &Node {
        &self.nodes[self.primary]
    }

    /// The numbers of the replicas.
    pub fn replicas(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|number| *number != self.primary).collect()
    }

    /// Replicas whose links can be cut.
    pub fn over_tcp(&self) -> Vec<usize> {
        let is_over_tcp = |number: &usize| self.links[*number] == Link::Tcp;
        let mut replicas = self.replicas();
        replicas.retain(|number| self.network.is_some() && is_over_tcp(number));
        replicas
    }

    /// Whether links can be cut.
    pub fn has_network(&self) -> bool {
        self.network.is_some()
    }

    /// A server.
    pub fn node(&self, number: usize) -> &Node {
        &self.nodes[number]
    }

    fn draw_start(&mut self, memory: Memory) -> Start {
        let wake = if self.rng.random_bool(0.2) { Wake::Hybrid } else { Wake::Event };
        Start { memory, wake, backlog: Backlog::draw(&mut self.rng) }
    }

    fn start_primary(&mut self) -> anyhow::Result<()> {
        let primary = self.primary;
        // One that comes back has as much as its replicas have room for.
        let memory = self.nodes[primary].memory().unwrap_or(Memory {
            shards: self.rng.random_range(1..=MOST_SHARDS),
            arena_bytes: ARENA_BYTES,
        });
        let start = self.draw_start(memory);
        self.nodes[primary]
            .start(self.promises, start, None)
            .with_context(|| format!("starting server {primary} as the primary"))
    }

    /// The address by which a replica follows from now on.
    fn draw_address(&mut self, replica: usize) -> String {
        self.links[replica] = if self.rng.random_bool(0.7) { Link::Tcp } else { Link::Shm };
        self.of_primary().address(self.links[replica])
    }

    fn start_replica(&mut self, replica: usize) -> anyhow::Result<()> {
        let of = self.of_primary().memory()?;
        let shards = if self.rng.random_bool(0.7) {
            of.shards
        } else {
            self.rng.random_range(1..=MOST_SHARDS)
        };
        let other = Memory::of_replica(of, shards);
        let memory = if other.bytes() <= MOST_BYTES { other } else { of };
        let start = self.draw_start(memory);
        let address = self.draw_address(replica);
        self.nodes[replica]
            .start(self.promises, start, Some(address))
            .with_context(|| format!("starting server {replica} as a replica"))
    }

    /// Starts all that are dead as replicas. Half of them have lost their disk. One whose disk has data
    /// of a former primary keeps them until `RESYNC` lets it copy the new one.
    pub fn bring_back(&mut self) -> anyhow::Result<()> {
        for replica in self.replicas() {
            if !self.nodes[replica].is_alive() {
                if self.rng.random() {
                    self.nodes[replica].wipe()?;
                }
                self.start_replica(replica)?;
                if std::mem::take(&mut self.former[replica]) {
                    self.nodes[replica].resync()?;
                }
            }
        }
        Ok(())
    }

    /// Does what a round plans, while it is loaded. Afterwards the primary is dead, or it serves.
    pub fn suffer(&mut self, plan: &Plan, round: &Round<'_>) -> anyhow::Result<()> {
        let kills_primary = plan.kills_primary(self.primary);
        // Too few replicas may be there at any moment, and the primary may be silent.
        round.may_refuse.store(true, Ordering::Relaxed);
        match &plan.fault {
            Fault::Kill(of) => {
                if kills_primary {
                    round.is_ending.store(true, Ordering::Relaxed);
                }
                // None of them sees the others die for long.
                of.iter().try_for_each(|server| self.nodes[*server].signal(Signal::KILL))?;
                of.iter().try_for_each(|server| self.nodes[*server].kill())?;
                if !kills_primary {
                    std::thread::sleep(plan.lasts);
                    self.bring_back()?;
                }
            }
            Fault::Stop(of) => {
                of.iter().try_for_each(|server| self.nodes[*server].signal(Signal::STOP))?;
                std::thread::sleep(plan.lasts);
                if kills_primary {
                    self.kill_primary(round)?;
                }
                of.iter().try_for_each(|server| self.nodes[*server].signal(Signal::CONT))?;
            }
            Fault::Cut(ways) => {
                let network = self.network.as_mut().context("no links to cut")?;
                network.cut(ways)?;
                std::thread::sleep(plan.lasts);
                if kills_primary {
                    self.kill_primary(round)?;
                }
            }
            Fault::Copy(replica, how) => self.disturb_copy(*replica, *how, plan, round)?,
        }
        if !kills_primary {
            self.heal()?;
            round.waits_for_changes(RESUME_LIMIT, &format!("the fault: {plan}"));
        }
        Ok(())
    }

    /// All links are whole again.
    pub fn heal(&mut self) -> anyhow::Result<()> {
        self.network.as_mut().map_or(Ok(()), Network::heal)
    }

    fn kill_primary(&mut self, round: &Round<'_>) -> anyhow::Result<()> {
        round.is_ending.store(true, Ordering::Relaxed);
        self.nodes[self.primary].kill()
    }

    /// A replica comes back empty, and something happens while it copies.
    fn disturb_copy(
        &mut self,
        replica: usize,
        how: Disturbance,
        plan: &Plan,
        round: &Round<'_>,
    ) -> anyhow::Result<()> {
        self.nodes[replica].kill()?;
        self.nodes[replica].wipe()?;
        self.start_replica(replica)?;
        let began = Instant::now();
        while self.nodes[replica].info()?.number("master_sync_in_progress") == 0 {
            if began.elapsed() > COPY_LIMIT {
                // It was too short to be seen.
                break;
            }
            std::thread::sleep(PAUSE / 5);
        }
        match how {
            Disturbance::Kill => {
                self.nodes[replica].kill()?;
                self.start_replica(replica)
            }
            Disturbance::Stop => {
                self.nodes[replica].signal(Signal::STOP)?;
                std::thread::sleep(plan.lasts);
                self.nodes[replica].signal(Signal::CONT)
            }
            Disturbance::Cut => {
                let network = self.network.as_mut().context("no links to cut")?;
                let (from, to) = (self.primary, replica);
                network.cut(&[OneWay { from, to }, OneWay { from: to, to: from }])?;
                std::thread::sleep(plan.lasts);
                network.heal()
            }
            Disturbance::KillPrimary => self.kill_primary(round),
        }
    }

    /// Waits until each living replica knows that the primary is dead: then its positions count what
    /// lies in its rings, too.
    fn wait_for_rest(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let is_alive = |replica: &usize| self.nodes[*replica].is_alive();
        for replica in self.replicas().into_iter().filter(is_alive) {
            while self.nodes[replica].info()?.text("master_link_status") != "down" {
                if began.elapsed() > LINK_DOWN_LIMIT {
                    bail!(
                        "replica {replica} has a link to a dead primary after {LINK_DOWN_LIMIT:?}"
                    );
                }
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// How far each living replica has come that holds no part of a copy.
    fn candidates(&self) -> anyhow::Result<Vec<(Position, usize)>> {
        self.wait_for_rest()?;
        let mut candidates = Vec::new();
        for replica in self.replicas() {
            if self.nodes[replica].is_alive() {
                candidates
                    .extend(self.nodes[replica].position()?.map(|position| (position, replica)));
            }
        }
        Ok(candidates)
    }

    /// Living replicas that may be promoted.
    pub fn promotable(&self) -> anyhow::Result<usize> {
        Ok(self.candidates()?.len())
    }

    /// Goes on after the primary's death. Returns what it did.
    pub fn go_on(&mut self, how: Recovery) -> anyhow::Result<String> {
        let words = match how {
            Recovery::Promotion => self.promote()?,
            Recovery::Restart => {
                self.start_primary()?;
                format!("server {} began again", self.primary)
            }
        };
        let of = self.of_primary().memory()?;
        for replica in self.replicas() {
            let own = self.nodes[replica].memory()?;
            if own.arena_bytes < Memory::of_replica(of, own.shards).arena_bytes {
                // It has less memory than it needs now: it begins again, with more.
                self.nodes[replica].kill()?;
            } else if self.nodes[replica].is_alive() {
                let address = self.draw_address(replica);
                self.nodes[replica]
                    .follow(&address)
                    .with_context(|| format!("server {replica} is to follow"))?;
            }
            self.former[replica] = how == Recovery::Promotion && !self.nodes[replica].is_alive();
        }
        Ok(words)
    }

    fn promote(&mut self) -> anyhow::Result<String> {
        let candidates = self.candidates()?;
        let Some((position, best)) = candidates.into_iter().max() else {
            bail!("no replica can be promoted");
        };
        self.nodes[best].promote().with_context(|| format!("promoting server {best}"))?;
        self.primary = best;
        Ok(format!("server {best} was promoted at {position}"))
    }

    /// Waits until all replicas have and show what the primary has, which nothing changes. Otherwise
    /// tells why.
    pub fn catch_up(&self) -> anyhow::Result<Option<String>> {
        let began = Instant::now();
        let wanted = self.of_primary().info()?.number("master_repl_offset");
        for replica in self.replicas() {
            loop {
                let info = self.nodes[replica].info()?;
                let is_whole = info.text("master_link_status") == "up"
                    && info.number("master_sync_in_progress") == 0;
                // Readers are answered once it knows its primary's clock, a moment after its start.
                let is_shown = !info.text("replica_lag_us").is_empty();
                if is_whole && is_shown && info.number("slave_repl_offset") >= wanted {
                    break;
                }
                if began.elapsed() > CATCH_UP_LIMIT {
                    return Ok(Some(format!(
                        "replica {replica} has not caught up in {CATCH_UP_LIMIT:?}: link {}, at {} of {wanted}, lag {} us, {}",
                        info.text("master_link_status"),
                        info.text("slave_repl_offset"),
                        info.text("replica_lag_us"),
                        info.text("master_trouble"),
                    )));
                }
                std::thread::sleep(PAUSE);
            }
        }
        while self.of_primary().info()?.number("in_sync_replicas") < self.replicas().len() as u64 {
            if began.elapsed() > CATCH_UP_LIMIT {
                return Ok(Some(format!("not all replicas are in sync after {CATCH_UP_LIMIT:?}")));
            }
            std::thread::sleep(PAUSE);
        }
        let digest = self.of_primary().digest()?;
        for replica in self.replicas() {
            let own = self.nodes[replica].digest()?;
            if own != digest {
                return Ok(Some(format!(
                    "replica {replica} holds something else than primary {}: {own}, not {digest}",
                    self.primary
                )));
            }
        }
        Ok(None)
    }

    /// Ends all of them well.
    pub fn terminate(&mut self) -> anyhow::Result<()> {
        self.nodes.iter_mut().try_for_each(Node::terminate)
    }

    /// Shows the last lines of all logs.
    pub fn note_logs(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            note(&format!("server {number}:"));
            node.note_log();
        }
    }
}

/// A port that no process has.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
