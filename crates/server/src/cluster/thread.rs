//! The thread of the cluster.

use super::facts::{Known, facts_of};
use super::offsets::Offsets;
use super::orders::{Orders, Purpose};
use super::peers::Peers;
use super::recording::Recording;
use super::settings::ClusterSettings;
use super::standings::standing_of;
use super::state::Watching;
use crate::acknowledging::{Requirement, ShardReport};
use crate::following::{Order, OrderAnswer};
use crate::inbox::Message as ToShard;
use crate::shared::Shared;
use remora_cluster::coordinator::{self, Coordinator, Outcome, RequestId};
use remora_cluster::member::{self, Member};
use remora_cluster::message::{Message, Position};
use remora_cluster::topology::change::Joining;
use remora_cluster::topology::{Instance, Topology};
use remora_cluster::watcher::{self, Watcher};
use remora_cluster::wire::{Envelope, Letter};
use remora_cluster::{ReplicaStanding, Required};
use remora_fabric::{Address, vital_thread};
use remora_layout::limits::{
    CLUSTER_MAIL, COORDINATOR_CONNECT_AGAIN_MS, HEARTBEAT_MS, IN_SYNC_TIMEOUT_MS,
};
use remora_replica::{Membership, RecordedSet};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two turns, if nothing comes.
const TURN: Duration = Duration::from_millis(HEARTBEAT_MS / 2);
/// Between two ticks of the state machines, ns.
const TICK_NS: u64 = HEARTBEAT_MS * 1_000_000;
/// The greatest age of the offsets in facts for Redis clients, ns.
const SHOW_AGAIN_NS: u64 = 1_000_000_000;
/// Between two tries to open a session at the coordinator.
const CONNECT_AGAIN: Duration = Duration::from_millis(COORDINATOR_CONNECT_AGAIN_MS);

/// The thread, as its owner has it.
pub struct ClusterThread {
    thread: JoinHandle<()>,
}

impl ClusterThread {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(shared: Arc<Shared>, settings: ClusterSettings) -> io::Result<Self> {
        let mail = shared.cluster.take_mails().expect("there is one such thread");
        Ok(Self { thread: vital_thread::spawn("cluster", move || run(&shared, settings, &mail))? })
    }

    /// Waits for its end: the server is stopping.
    pub fn join(self) {
        vital_thread::join(self.thread);
    }
}

fn run(shared: &Arc<Shared>, settings: ClusterSettings, mail: &Receiver<Envelope>) {
    let mut is_told = false;
    let coordinator = loop {
        match (settings.connect)() {
            Ok(coordinator) => break coordinator,
            Err(why) => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!("no session at {}, trying again: {why}", settings.coordinator);
                }
            }
        }
        if !rest(shared, CONNECT_AGAIN) {
            return;
        }
    };
    Worker::new(Arc::clone(shared), settings, coordinator).run(mail);
}

/// Sleeps for so long. Whether the server goes on.
fn rest(shared: &Shared, most: Duration) -> bool {
    let turns = most.as_millis().div_ceil(TURN.as_millis());
    (0..turns).all(|_| {
        std::thread::sleep(TURN);
        !shared.is_stopping()
    })
}

/// What the coordinator was asked for.
#[derive(Clone, Copy)]
enum Asked {
    Enter(Instance),
    MemberProposes,
    Stand,
    WatcherProposes,
}

struct Worker {
    shared: Arc<Shared>,
    settings: ClusterSettings,
    coordinator: Box<dyn Coordinator + Send>,
    asked: HashMap<RequestId, Asked>,
    /// Once the topology has the group of this server.
    member: Option<Member>,
    /// `None` once this server watches this cluster no more: the cluster has forgotten it, or another cluster
    /// has its place at the coordinator.
    watcher: Option<Watcher>,
    /// What the coordinator has said before there was a member: the last of each kind.
    before: [Option<coordinator::Event>; 2],
    topology: Option<Arc<Topology>>,
    /// The instances that are present.
    live: Vec<Instance>,
    is_connected: bool,
    orders: Orders,
    peers: Peers,
    /// Messages of this server to itself.
    own: VecDeque<Message>,
    required: Required,
    requirement: Requirement,
    standings: BTreeMap<Instance, ReplicaStanding>,
    /// When it began to lead; 0 while it does not.
    led_since_ns: u64,
    ticked_ns: u64,
    /// When the facts for Redis clients were published last.
    shown_ns: u64,
    /// The epoch in which it serves.
    serves: Option<u64>,
    /// The epoch whose beginning is applied, and not stored yet by all that it waits for.
    prepared: Option<u64>,
    /// The epoch whose changes are to be acknowledged, and no more taken.
    drains: Option<u64>,
    /// What the data directory is to say of the epoch that it leads, until it does.
    recording: Option<Recording>,
    group_is_missed: bool,
}

impl Worker {
    fn new(
        shared: Arc<Shared>,
        settings: ClusterSettings,
        coordinator: Box<dyn Coordinator + Send>,
    ) -> Self {
        let messages = Arc::clone(&shared.cluster.messages);
        let login = (shared.config.peer_login.clone(), shared.config.peer_tls.clone());
        let requirement = Requirement { membership: Membership::Unknown, ..Requirement::default() };
        Self {
            shared,
            settings,
            coordinator,
            asked: HashMap::new(),
            member: None,
            watcher: Some(Watcher::new()),
            before: [None, None],
            topology: None,
            live: Vec::new(),
            is_connected: false,
            orders: Orders::default(),
            peers: Peers::new(messages, login),
            own: VecDeque::new(),
            required: Required::default(),
            requirement,
            standings: BTreeMap::new(),
            led_since_ns: 0,
            ticked_ns: 0,
            shown_ns: 0,
            serves: None,
            prepared: None,
            drains: None,
            recording: None,
            group_is_missed: false,
        }
    }

    fn now_ns(&self) -> u64 {
        self.shared.view.now_ns()
    }

    fn now_ms(&self) -> u64 {
        self.now_ns() / 1_000_000
    }

    fn run(mut self, mail: &Receiver<Envelope>) {
        // Bounded by the life of the server.
        while !self.shared.is_stopping() {
            self.turn();
            match mail.recv_timeout(TURN) {
                Ok(envelope) => {
                    self.take(envelope);
                    // Bounded: what comes meanwhile waits for the next turn.
                    for _ in 0..CLUSTER_MAIL {
                        let Ok(envelope) = mail.try_recv() else { break };
                        self.take(envelope);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        let now_ms = self.now_ms();
        self.coordinator.leave(now_ms);
        self.coordinator.step_down(now_ms);
        while self.coordinator.poll(now_ms).is_some() {}
    }

    fn turn(&mut self) {
        while let Some(event) = self.coordinator.poll(self.now_ms()) {
            self.hear(event);
        }
        while let Some((purpose, answer)) = self.orders.turn(&self.shared.roles) {
            self.ordered(purpose, answer);
        }
        // Not with each message: a lease would be asked for as often as it is confirmed.
        let now_ns = self.now_ns();
        if now_ns.saturating_sub(self.ticked_ns) >= TICK_NS {
            self.ticked_ns = now_ns;
            self.look_at_shards();
            self.tell_member(member::Event::Tick);
            self.tell_watcher(watcher::Event::Tick);
            if let Some(topology) = &self.topology {
                let watcher = self.watcher.as_ref();
                let watching = watcher.map(|of| Watching::of(of, topology)).unwrap_or_default();
                self.shared.cluster.set_watching(watching);
            }
            if now_ns.saturating_sub(self.shown_ns) >= SHOW_AGAIN_NS {
                self.show();
            }
        }
        while let Some(message) = self.own.pop_front() {
            self.take_message(self.me(), message);
        }
        self.renew();
    }

    fn me(&self) -> Instance {
        Instance { member: self.shared.cluster.member, incarnation: self.shared.incarnation }
    }

    /// The lease as it is now. It may be shorter than before: a replica more has to confirm it.
    fn renew(&mut self) {
        let now_ns = self.now_ns();
        if let (Some(_), Some(member)) = (self.serves, &mut self.member) {
            self.shared.view.lease(member.serves_until_ns(now_ns));
        }
    }

    fn hear(&mut self, event: coordinator::Event) {
        use coordinator::Event;
        match &event {
            Event::Answer(id, outcome) => {
                if let Some(asked) = self.asked.remove(id) {
                    self.answered(asked, *outcome);
                }
                return;
            }
            Event::Topology(topology) if self.is_of_another_cluster(topology) => return,
            Event::Topology(topology) => {
                self.topology = Some(Arc::clone(topology));
                let group = topology.group_named(&self.settings.group).map(|of| of.id);
                self.shared.cluster.set_topology(topology, group);
                self.begin(topology);
            }
            Event::NoTopology => {
                tracing::warn!(
                    "there is no cluster at {}: `remora cluster init` makes one",
                    self.settings.coordinator
                );
            }
            Event::UnreadableTopology(error) => {
                tracing::error!("the topology of the cluster cannot be read: {error}");
            }
            Event::Session(state) => {
                self.is_connected = *state == coordinator::SessionState::Connected;
                tracing::info!("the session at {} is {state:?}", self.settings.coordinator);
            }
            Event::Members(live) => self.live.clone_from(live),
            Event::Standing(_) => {}
        }
        self.show();
        if self.member.is_none() {
            match &event {
                Event::Session(_) => self.before[0] = Some(event.clone()),
                Event::Members(_) => self.before[1] = Some(event.clone()),
                _ => {}
            }
        }
        self.tell_member(member::Event::Coordinator(event.clone()));
        self.tell_watcher(watcher::Event::Coordinator(event));
    }

    /// Whether a cluster was made anew at this place, without this server. It stays with the one that it knows,
    /// says so, and leaves the other one to watchers of that.
    fn is_of_another_cluster(&mut self, topology: &Topology) -> bool {
        let own = self.topology.as_ref().map(|of| of.cluster);
        let is_other = own.is_some_and(|own| own != topology.cluster);
        if is_other && self.watcher.is_some() {
            self.end_watch();
            tracing::error!(
                "another cluster was made at {}: this server belongs to the one before, and follows its record no more. Start it again to let it join the new one",
                self.settings.coordinator
            );
        }
        is_other
    }

    /// This server is no candidate for the watcher any more.
    fn end_watch(&mut self) {
        self.watcher = None;
        self.coordinator.step_down(self.now_ms());
    }

    /// Publishes the facts for Redis clients.
    fn show(&mut self) {
        self.shown_ns = self.now_ns();
        let Some(topology) = &self.topology else { return };
        let (own, live) = (self.me(), &self.live[..]);
        let offsets = &Offsets::of(&self.shared);
        let (has_coordinator, takes_changes) = (self.is_connected, self.requirement.takes_changes);
        let known = Known { live, own, offsets, has_coordinator, takes_changes };
        self.shared.set_cluster_facts(facts_of(topology, &known));
    }

    /// This server becomes a member, once its group is known.
    fn begin(&mut self, topology: &Topology) {
        if self.member.is_some() {
            return;
        }
        let Some(group) = topology.group_named(&self.settings.group) else {
            if !std::mem::replace(&mut self.group_is_missed, true) {
                let name = &self.settings.group;
                tracing::warn!(
                    "the cluster has no group {name}: `remora cluster status` lists them"
                );
            }
            return;
        };
        let shared = &self.shared;
        let ClusterSettings { announced_resp, announced_host, .. } = &self.settings;
        let resp_address = announced_resp.clone().unwrap_or(shared.resp_address.to_string());
        let fabric = shared.fabric_address.map(|address| match announced_host {
            Some(host) => format!("{host}:{}", address.port()),
            None => address.to_string(),
        });
        let fabric_address = fabric.unwrap_or_default();
        let joining =
            Joining { instance: self.me(), group: group.id, fabric_address, resp_address };
        self.member = Some(Member::new(joining));
        for event in std::mem::take(&mut self.before).into_iter().flatten() {
            self.tell_member(member::Event::Coordinator(event));
        }
    }

    fn answered(&mut self, asked: Asked, outcome: Outcome) {
        match asked {
            Asked::Enter(instance) => {
                self.tell_member(member::Event::Entered(instance, outcome));
            }
            Asked::MemberProposes => self.tell_member(member::Event::Proposed(outcome)),
            Asked::Stand => self.tell_watcher(watcher::Event::Stood(outcome)),
            Asked::WatcherProposes => self.tell_watcher(watcher::Event::Proposed(outcome)),
        }
    }

    fn take(&mut self, envelope: Envelope) {
        let cluster = self.topology.as_ref().map(|of| of.cluster);
        if cluster != Some(envelope.cluster) || envelope.to != self.me() {
            return;
        }
        match envelope.letter {
            Letter::Message(message) => self.take_message(envelope.from, message),
            Letter::Promote(member) => self.tell_watcher(watcher::Event::Promote(member)),
        }
    }

    fn take_message(&mut self, from: Instance, message: Message) {
        match message {
            Message::Withdrawn { .. } | Message::Released { .. } => {
                self.tell_watcher(watcher::Event::Message(from, message));
            }
            _ => self.tell_member(member::Event::Message(from, message)),
        }
        self.renew();
    }

    fn tell_watcher(&mut self, event: watcher::Event) {
        let now_ns = self.now_ns();
        let Some(watcher) = &mut self.watcher else { return };
        for action in watcher.handle(now_ns, event) {
            match action {
                watcher::Action::Stand => {
                    let id = self.coordinator.stand(now_ns / 1_000_000);
                    self.asked.insert(id, Asked::Stand);
                }
                watcher::Action::Propose(proposal) => {
                    let id = self.coordinator.propose(now_ns / 1_000_000, &proposal);
                    self.asked.insert(id, Asked::WatcherProposes);
                }
                watcher::Action::Send(to, message) => self.send(to, message),
                watcher::Action::Say(notice) => tracing::info!("{notice}"),
            }
        }
    }

    fn tell_member(&mut self, event: member::Event) {
        let now_ns = self.now_ns();
        let Some(member) = &mut self.member else { return };
        for action in member.handle(now_ns, event) {
            self.carry_out(action);
        }
    }

    fn carry_out(&mut self, action: member::Action) {
        use member::Action;
        let now_ms = self.now_ms();
        match action {
            Action::Enter(instance) => {
                let id = self.coordinator.enter(now_ms, instance);
                self.asked.insert(id, Asked::Enter(instance));
            }
            Action::Leave => _ = self.coordinator.leave(now_ms),
            Action::Retire => {
                self.coordinator.leave(now_ms);
                self.end_watch();
            }
            // The answer says nothing new.
            Action::Refresh(version) => _ = self.coordinator.renew(now_ms, version),
            Action::Propose(topology) => {
                // It may be recorded while this thread stands still.
                self.renew();
                let proposal = coordinator::Proposal { topology, term: None };
                let id = self.coordinator.propose(now_ms, &proposal);
                self.asked.insert(id, Asked::MemberProposes);
            }
            Action::Send(to, message) => self.send(to, message),
            Action::Hold => {
                self.end_serving();
                self.orders.push(Order::Hold, Purpose::Hold);
            }
            Action::Withdraw(epoch) => {
                self.orders.push(Order::Hold, Purpose::Withdraw(epoch));
            }
            Action::Follow(primary) => self.follow(primary),
            Action::Prepare(epoch) => self.orders.push(Order::Lead, Purpose::Prepare(epoch)),
            Action::Serve(epoch) => {
                (self.serves, self.drains) = (Some(epoch), None);
                self.shared.view.echo(true);
                self.shared.view.take_changes(true);
                self.renew();
                self.require(true);
            }
            Action::Require(required) => {
                self.required = required;
                let takes_changes = self.requirement.takes_changes;
                self.require(takes_changes);
            }
            Action::StopEchoes(_) => self.shared.view.echo(false),
            Action::StopChanges(epoch) => {
                self.drains = Some(epoch);
                self.shared.view.take_changes(false);
                self.require(false);
            }
            Action::Say(notice) => tracing::info!("{notice}"),
        }
    }

    fn end_serving(&mut self) {
        (self.serves, self.prepared, self.drains) = (None, None, None);
        self.shared.view.end_lease();
    }

    fn follow(&mut self, primary: Instance) {
        let member = self.topology.as_ref().and_then(|of| of.member(primary.member));
        let address = member.and_then(|of| of.fabric_address.parse::<Address>().ok());
        match address {
            Some(address) => {
                let order = Order::Follow(address, primary.incarnation);
                self.orders.push(order, Purpose::Follow);
            }
            None => tracing::error!("the topology has no address of {primary}"),
        }
    }

    fn send(&mut self, to: Instance, message: Message) {
        if to == self.me() {
            return self.own.push_back(message);
        }
        let Some(topology) = &self.topology else { return };
        let Some(member) = topology.member(to.member) else { return };
        let (cluster, from) = (topology.cluster, self.me());
        let envelope = Envelope { cluster, from, to, letter: Letter::Message(message) };
        self.peers.send(&member.resp_address, envelope.encode());
    }

    /// Tells the shards what an acknowledgement needs from now on.
    fn require(&mut self, takes_changes: bool) {
        let Required { wait_for, counted } = &self.required;
        let is_counted = |of: &&Instance| counted.contains(of);
        let members = counted.iter().map(|of| of.incarnation).collect();
        let proposed = wait_for.iter().filter(|of| !is_counted(of)).map(|of| of.incarnation);
        let set = RecordedSet { members, proposed: proposed.collect() };
        let number = self.requirement.number + 1;
        let group = self.member.as_ref().map(Member::group);
        let group = group.and_then(|id| self.topology.as_ref()?.group(id));
        let min_replicas = group.map_or(0, |of| of.min_replicas.into());
        let membership = Membership::Recorded(set);
        self.requirement = Requirement { number, membership, min_replicas, takes_changes };
        let requirement = Arc::new(self.requirement.clone());
        // Redis clients try again by themselves after what the facts make of a change, and not after a
        // shard's refusal.
        if !takes_changes {
            self.show();
        }
        for shard in &self.shared.shards {
            shard.inbox.push(ToShard::Requirement(Arc::clone(&requirement)));
        }
        if takes_changes {
            self.show();
        }
    }

    fn ordered(&mut self, purpose: Purpose, answer: OrderAnswer) {
        let event = match (purpose, answer) {
            (Purpose::Hold | Purpose::Follow, Ok(_)) => return,
            (Purpose::Hold | Purpose::Follow, Err(why)) => {
                return tracing::warn!("the role of this server is not changed: {why}");
            }
            (Purpose::Withdraw(epoch), Ok(positions)) => {
                let led = self.shared.disk.as_ref().and_then(|disk| disk.led.said());
                member::Event::Withdrawn { epoch, positions, led }
            }
            (Purpose::Withdraw(epoch), Err(why)) => {
                tracing::warn!("the ring is not withdrawn for epoch {epoch}: {why}");
                return self.orders.push(Order::Hold, purpose);
            }
            (Purpose::Prepare(epoch), Ok(_)) => {
                tracing::info!("epoch {epoch}: all that was received is applied");
                self.applied_all(epoch);
                member::Event::Applied(epoch)
            }
            (Purpose::Prepare(epoch), Err(why)) => member::Event::CannotLead(epoch, why),
            (Purpose::Record(epoch), recorded) => return self.recorded(epoch, recorded),
        };
        self.tell_member(event);
    }

    /// The shards have applied all that was received, and this server leads.
    fn applied_all(&mut self, epoch: u64) {
        self.prepared = Some(epoch);
        // The shards' reports with this number come after that.
        self.require(self.requirement.takes_changes);
        let (of, number) = ((self.shared.incarnation, epoch), self.requirement.number);
        self.recording = self.shared.disk.as_ref().map(|disk| Recording::new(of, number, disk));
    }

    /// Has the data directory say that this server leads, once it has all with which the epoch began.
    fn record(&mut self, reports: &[ShardReport]) {
        let now_ns = self.now_ns();
        if let (Some(recording), Some(disk)) = (&mut self.recording, &self.shared.disk)
            && let Some(led) = recording.due(reports, disk, now_ns)
        {
            self.orders.push(Order::Record(led), Purpose::Record(led.epoch));
        }
    }

    fn recorded(&mut self, epoch: u64, recorded: OrderAnswer) {
        let now_ns = self.now_ns();
        let Some(recording) = self.recording.as_mut().filter(|of| of.epoch() == epoch) else {
            return;
        };
        match recorded {
            Ok(_) => {
                self.recording = None;
                tracing::info!("epoch {epoch}: the data directory says that this server leads it");
            }
            Err(why) => {
                recording.failed(now_ns);
                tracing::warn!(
                    "epoch {epoch}: the data directory does not say that this server leads it: {why}"
                );
            }
        }
    }

    /// How the replicas stand, and whether all is acknowledged.
    fn look_at_shards(&mut self) {
        let leads = self.member.as_mut().is_some_and(|member| {
            let now_ns = self.shared.view.now_ns();
            matches!(member.part(now_ns), member::Part::Waits(_) | member::Part::Serves(_))
        });
        if !leads {
            self.led_since_ns = 0;
            self.recording = None;
            self.standings.clear();
            return;
        }
        let now_ns = self.now_ns();
        if self.led_since_ns == 0 {
            self.led_since_ns = now_ns;
        }
        // Replicas of the primary before need some time to find this one.
        let is_new = now_ns - self.led_since_ns < IN_SYNC_TIMEOUT_MS * 1_000_000;
        let report = |shard: &crate::shared::ShardHandle| {
            shard.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        let reports: Vec<ShardReport> = self.shared.shards.iter().map(report).collect();
        self.record(&reports);
        for replica in self.replicas() {
            let standing = standing_of(&reports, self.requirement.number, replica);
            let is_first = !self.standings.contains_key(&replica);
            if standing == ReplicaStanding::Behind && is_first && is_new {
                continue;
            }
            self.standings.insert(replica, standing);
            // Also what it was told before: it forgets what it knows of one that leaves the set.
            self.tell_member(member::Event::Replica(replica, standing));
        }
        // What was received beyond the commit position may have been acknowledged, or not: no client reads it
        // before each that could be promoted has it.
        let is_in_sync = |of: &Instance| self.standings.get(of) == Some(&ReplicaStanding::InSync);
        if let Some(epoch) = self.prepared
            && self.required.wait_for.iter().all(is_in_sync)
            && reports.iter().all(|of| of.requirement == self.requirement.number)
        {
            self.prepared = None;
            tracing::info!("epoch {epoch}: each replica that could be promoted has all of it");
            self.tell_member(member::Event::Ready(epoch));
        }
        let is_drained =
            |of: &ShardReport| of.requirement == self.requirement.number && of.durable >= of.last;
        if let Some(epoch) = self.drains.filter(|_| reports.iter().all(is_drained)) {
            self.drains = None;
            let position = |of: &ShardReport| {
                let (epoch, sequence) = (of.epoch, of.last);
                Position { epoch, sequence, applied: sequence }
            };
            let positions = reports.iter().map(position).collect();
            self.tell_member(member::Event::Drained { epoch, positions });
        }
    }

    /// The other members of the group, as they have joined, and those of the recorded set.
    fn replicas(&self) -> Vec<Instance> {
        let (Some(topology), Some(member)) = (&self.topology, &self.member) else {
            return Vec::new();
        };
        let group = member.group();
        let joined = topology.members_of(group).map(|of| of.instance());
        let recorded = topology.group(group).into_iter().flat_map(|of| of.in_sync.iter().copied());
        let mut all: Vec<_> = joined.chain(recorded).filter(|of| *of != self.me()).collect();
        all.sort();
        all.dedup();
        all
    }
}
