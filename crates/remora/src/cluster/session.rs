//! A session at the coordinator, for one command.

use super::args::Where;
use super::server::deliver;
use anyhow::{Context, bail};
use remora_cluster::coordinator::{Coordinator, Event, Outcome, Proposal, Refused, RequestId};
use remora_cluster::topology::change::Refusal;
use remora_cluster::topology::{Instance, MemberId, Topology};
use remora_cluster::wire::{Envelope, Letter};
use remora_command_line::{coordinator_tls, usage};
use remora_zookeeper::{ZookeeperAddress, ZookeeperCoordinator};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SESSION_MS: u64 = 6000;
const TURN: Duration = Duration::from_millis(5);
/// Turns of one look at what has changed.
const LOOK_TURNS: u32 = 20;
/// Others may change the topology at the same time.
const CHANGE_TRIES: usize = 20;

/// See the module's text.
pub struct CoordinatorSession {
    coordinator: ZookeeperCoordinator,
    cluster: String,
    began: Instant,
    timeout: Duration,
    /// What was said of the topology last; `None` before.
    topology: Option<Option<Arc<Topology>>>,
    members: Option<Vec<Instance>>,
}

impl CoordinatorSession {
    /// Opens one, and waits until the coordinator has said what there is.
    pub fn open(at: &Where) -> anyhow::Result<Self> {
        let address: ZookeeperAddress =
            at.cluster.parse().map_err(|error| usage(format!("--cluster: {error}")))?;
        let tls = coordinator_tls();
        if address.is_encrypted() && tls.is_none() {
            return Err(usage(
                "--cluster: name the file of the authority of ZooKeeper's certificates in REMORA_COORDINATOR_TLS_CA",
            ));
        }
        let coordinator = ZookeeperCoordinator::connect(address, tls, SESSION_MS)?;
        let mut session = Self {
            coordinator,
            cluster: at.cluster.clone(),
            began: Instant::now(),
            timeout: Duration::from_secs(at.timeout_s),
            topology: None,
            members: None,
        };
        session.poll_until(|of| (of.topology.is_some() && of.members.is_some()).then_some(()))?;
        Ok(session)
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64 + 1
    }

    /// Takes events, until there is something, or so much time has passed. Answers of requests are given to
    /// `answered`.
    fn poll_for<T>(
        &mut self,
        most: Duration,
        mut answered: impl FnMut(RequestId, Outcome) -> Option<T>,
        mut find: impl FnMut(&Self) -> Option<T>,
    ) -> anyhow::Result<Option<T>> {
        let until = Instant::now() + most;
        loop {
            while let Some(event) = self.coordinator.poll(self.now_ms()) {
                match event {
                    Event::Topology(topology) => self.topology = Some(Some(topology)),
                    Event::NoTopology => self.topology = Some(None),
                    Event::UnreadableTopology(error) => {
                        bail!("the topology at {} cannot be read: {error}", self.cluster)
                    }
                    Event::Members(members) => self.members = Some(members),
                    Event::Answer(id, outcome) => {
                        if let Some(found) = answered(id, outcome) {
                            return Ok(Some(found));
                        }
                    }
                    Event::Session(_) | Event::Standing(_) => {}
                }
            }
            if let Some(found) = find(self) {
                return Ok(Some(found));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            std::thread::sleep(TURN);
        }
    }

    /// As [`Self::poll_for`], for as long as the timeout.
    ///
    /// # Errors
    /// There is nothing by then.
    fn poll<T>(
        &mut self,
        answered: impl FnMut(RequestId, Outcome) -> Option<T>,
        find: impl FnMut(&Self) -> Option<T>,
    ) -> anyhow::Result<T> {
        let found = self.poll_for(self.timeout, answered, find)?;
        let (cluster, timeout) = (&self.cluster, self.timeout);
        let why = || match self.coordinator.refusal() {
            Some(refusal) => format!("there is no session at {cluster}: {refusal}"),
            None => format!(
                "{cluster} has not answered, or not done it, within {timeout:?}: is ZooKeeper up, and has it a quorum?"
            ),
        };
        found.with_context(why)
    }

    fn poll_until<T>(&mut self, find: impl FnMut(&Self) -> Option<T>) -> anyhow::Result<T> {
        self.poll(|_, _| None, find)
    }

    fn answer(&mut self, request: RequestId) -> anyhow::Result<Outcome> {
        self.poll(|id, outcome| (id == request).then_some(outcome), |_| None)
    }

    /// The topology.
    ///
    /// # Errors
    /// There is none.
    pub fn topology(&mut self) -> anyhow::Result<Arc<Topology>> {
        let none =
            || format!("there is no cluster at {}: remora cluster init makes one", self.cluster);
        self.topology.clone().flatten().with_context(none)
    }

    /// The instances that are present.
    pub fn members(&self) -> &[Instance] {
        self.members.as_deref().unwrap_or_default()
    }

    /// Makes the cluster.
    pub fn create(&mut self, topology: &Topology) -> anyhow::Result<()> {
        let request = self.coordinator.create(self.now_ms(), topology);
        match self.answer(request)? {
            Outcome::Done => Ok(()),
            Outcome::Refused(Refused::HasTopology) => bail!("another one was made meanwhile"),
            other => bail!("the coordinator has not made it: {other:?}"),
        }
    }

    /// Records a change of the topology, of whichever is the newest.
    pub fn change(
        &mut self,
        change: impl Fn(&Topology) -> Result<Topology, Refusal>,
    ) -> anyhow::Result<()> {
        for _ in 0..CHANGE_TRIES {
            let topology = change(&*self.topology()?)?;
            let proposal = Proposal { topology, term: None };
            let request = self.coordinator.propose(self.now_ms(), &proposal);
            match self.answer(request)? {
                Outcome::Done => return Ok(()),
                Outcome::Refused(Refused::Outdated) => {}
                other => bail!("the coordinator has not recorded it: {other:?}"),
            }
        }
        bail!("others change the cluster all the time: try again")
    }

    /// How long a command waits.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Waits so long until the topology is so. Whether it is.
    pub fn is_so_within(
        &mut self,
        most: Duration,
        is_so: impl Fn(&Topology) -> bool,
    ) -> anyhow::Result<bool> {
        let find = |of: &Self| of.topology.iter().flatten().any(|of| is_so(of)).then_some(());
        Ok(self.poll_for(most, |_, _| None, find)?.is_some())
    }

    /// Takes what the coordinator has said meanwhile, and rests for a moment.
    pub fn look(&mut self) -> anyhow::Result<()> {
        let mut turns = 0;
        self.poll_until(|_| {
            turns += 1;
            (turns > LOOK_TURNS).then_some(())
        })
    }

    /// Asks the watcher, whichever server that is, to make a member the primary of its group.
    pub fn ask_watcher_to_promote(&mut self, member: MemberId) -> anyhow::Result<()> {
        let topology = self.topology()?;
        let from = Instance { member, incarnation: 1 };
        let mut asked = 0;
        for to in self.members().to_vec() {
            let Some(server) = topology.member(to.member) else { continue };
            let letter = Letter::Promote(member);
            let envelope = Envelope { cluster: topology.cluster, from, to, letter }.encode();
            asked += usize::from(deliver(&server.resp_address, &envelope).is_ok());
        }
        if asked == 0 { bail!("no server of the cluster can be reached from here") } else { Ok(()) }
    }
}
