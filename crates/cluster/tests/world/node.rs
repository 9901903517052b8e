//! One server of the world: its coordinator, its member, its watcher, and a log of one shard.

use crate::world::oracle::{Entry, Oracle};
use crate::world::replication::{Links, Memory, Ring, Shipped};
use remora_cluster::ReplicaStanding;
use remora_cluster::Required;
use remora_cluster::coordinator::{self, Coordinator, Proposal, RequestId};
use remora_cluster::led_epoch::{LedEpoch, LedEpochRecorder};
use remora_cluster::member::{self, Member};
use remora_cluster::memory::{MemoryCoordinator, MemoryEnsemble};
use remora_cluster::message::Message;
use remora_cluster::topology::change::Joining;
use remora_cluster::topology::{GroupId, Instance, MemberId, Topology};
use remora_cluster::watcher::{self, Watcher};
use remora_layout::limits::HEARTBEAT_MS;
use remora_testing::Random;
use std::collections::{BTreeMap, VecDeque};

pub const SESSION_MS: u64 = 400;
/// The longest read lease of a client on a slow clock, ms of the world.
const READ_LEASE_WORLD_MS: u64 = 200;
/// A recorded replica without a link lags after this, ms.
const LINK_MS: u64 = 600;

/// What one server sends another.
#[derive(Clone, Debug)]
pub enum Packet {
    Control(Message),
    Shipped(Shipped),
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub struct Sent {
    pub from: Instance,
    pub to: Instance,
    pub packet: Packet,
}

/// A clock that drifts and jumps.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base_ns: u64,
    since_ms: u64,
    percent: u64,
}

impl Clock {
    pub fn new(random: &mut Random) -> Self {
        Self {
            base_ns: random.within(3_600..7_200u64) * 1_000_000_000,
            since_ms: 0,
            percent: random.within(91..110u64),
        }
    }

    pub fn read_ns(&self, now_ms: u64) -> u64 {
        self.base_ns + (now_ms - self.since_ms) * self.percent * 10_000
    }

    /// By so many ms, forward or back.
    pub fn jump(&mut self, now_ms: u64, by_ms: i64) {
        self.base_ns = self.read_ns(now_ms).saturating_add_signed(by_ms * 1_000_000);
        self.since_ms = now_ms;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Enter(Instance),
    MemberProposes,
    Stand,
    WatcherProposes,
    Nothing,
}

/// What a server does as a primary.
#[derive(Default)]
struct Leads {
    epoch: u64,
    links: Links,
    required: Required,
    takes_changes: bool,
    echoes: bool,
    /// The clock until which the threads that serve may do so, as the thread of the cluster wrote it last.
    word_ns: u64,
    has_served: bool,
    /// It has served with its lease.
    has_begun: bool,
    drains: bool,
    is_ready: bool,
    /// What the disk is to say of this epoch, until it does.
    records: Option<LedEpochRecorder>,
    /// The end of the log that was acknowledged.
    acknowledged: u64,
    since_ms: u64,
}

/// The disk of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disk {
    /// There is none: a process that ends takes everything with it.
    None,
    /// Acknowledgements do not wait for it.
    Everysec,
    /// Acknowledgements of a primary wait until it has the entry.
    Fsync,
}

/// What was copied, and is not whole yet.
struct Copying {
    due_ms: u64,
    ring: Ring,
    log: Vec<Entry>,
    commit: u64,
}

/// A process.
pub struct Process {
    pub coordinator: MemoryCoordinator,
    pub member: Member,
    watcher: Watcher,
    asked: BTreeMap<RequestId, Asked>,
    leads: Option<Leads>,
    follows: Option<(Instance, u64)>,
    asked_ms: u64,
    copying: Option<Copying>,
    inbox: VecDeque<Sent>,
}

/// A server: its process may be gone, its memory is what readers still see.
pub struct Node {
    pub id: MemberId,
    pub group: GroupId,
    pub name: String,
    pub disk: Disk,
    pub clock: Clock,
    pub process: Option<Process>,
    pub paused_until_ms: u64,
    pub restarts_ms: u64,
    /// What was received cannot be applied before this.
    pub cannot_apply_until_ms: u64,
    /// It is to copy its primary anew, as soon as it may.
    pub must_copy: bool,
    /// It may stand still in the middle of a turn.
    pub stalls: bool,
    has_stalled: bool,
    pub memory: Memory,
    /// What the directory says of the last epoch that it has led.
    pub led: Option<LedEpoch>,
    /// The next process finds no disk. Readers may look into the memory of this one until then.
    pub loses_disk: bool,
    /// Readers take what they read for fresh until then, in the world's time.
    pub readers_until_ms: u64,
    latest_ms: u64,
    links: u64,
    ticked_ms: u64,
}

/// What a node's turn needs.
pub struct Turn<'a> {
    pub now_ms: u64,
    pub random: &'a mut Random,
    pub oracle: &'a mut Oracle,
    pub min_replicas: usize,
    pub sent: Vec<Sent>,
    pub values: &'a mut u64,
    pub log: &'a mut Vec<String>,
    pub traces: bool,
}

impl Node {
    pub fn new(id: u64, group: GroupId, random: &mut Random) -> Self {
        Self {
            id: MemberId(id),
            group,
            name: format!("node{id}"),
            disk: random.pick(&[Disk::None, Disk::Everysec, Disk::Fsync]),
            clock: Clock::new(random),
            process: None,
            paused_until_ms: 0,
            restarts_ms: 0,
            cannot_apply_until_ms: 0,
            must_copy: false,
            stalls: false,
            has_stalled: false,
            memory: Memory::default(),
            led: None,
            loses_disk: false,
            readers_until_ms: 0,
            latest_ms: 0,
            links: 0,
            ticked_ms: 0,
        }
    }

    pub fn instance(&self) -> Option<Instance> {
        self.process.as_ref().map(|of| of.member.instance())
    }

    pub fn start(&mut self, ensemble: &MemoryEnsemble, turn: &mut Turn) {
        if self.disk == Disk::None || std::mem::take(&mut self.loses_disk) {
            self.lose_disk(turn.random);
        }
        // A restart loses some of what was not synced, and knows no commit position.
        self.memory = self.memory.restarted(turn.random.below(8));
        self.readers_until_ms = 0;
        let coordinator = ensemble.connect(SESSION_MS);
        ensemble.delay(coordinator.link(), turn.random.within(1..4), turn.random.within(1..6));
        let instance = Instance { member: self.id, incarnation: turn.random.bits() | 1 };
        let joining = Joining {
            instance,
            group: self.group,
            fabric_address: format!("{}:1", self.name),
            resp_address: format!("{}:2", self.name),
        };
        self.process = Some(Process {
            coordinator,
            member: Member::new(joining),
            watcher: Watcher::new(),
            asked: BTreeMap::new(),
            leads: None,
            follows: None,
            asked_ms: 0,
            copying: None,
            inbox: VecDeque::new(),
        });
    }

    /// Nothing is left: the next process is a server with another id, at the same address.
    fn lose_disk(&mut self, random: &mut Random) {
        self.id = MemberId(1_000 + random.below(1u64 << 40));
        (self.memory, self.led) = (Memory::default(), None);
    }

    pub fn crash(&mut self, restarts_ms: u64) {
        self.process = None;
        self.memory.ring = None;
        self.restarts_ms = restarts_ms;
        self.paused_until_ms = 0;
    }

    /// The rest of a copy that is under way does not come.
    pub fn lose_copy(&mut self) {
        self.process.iter_mut().for_each(|of| of.copying = None);
    }

    pub fn is_running(&self, now_ms: u64) -> bool {
        self.process.is_some() && now_ms >= self.paused_until_ms
    }

    pub fn serves(&mut self, now_ms: u64) -> bool {
        let clock_ns = self.clock.read_ns(now_ms);
        let Some(process) = self.process.as_mut() else { return false };
        let Some(leads) = &process.leads else { return false };
        leads.takes_changes && process.member.serves(leads.epoch, clock_ns)
    }

    pub fn promote(&mut self, now_ms: u64, member: MemberId, turn: &mut Turn) {
        let clock_ns = self.clock.read_ns(now_ms);
        if let Some(process) = &mut self.process {
            let actions = process.watcher.handle(clock_ns, watcher::Event::Promote(member));
            self.watch(actions, turn);
        }
    }

    /// A packet has crossed the network. WRITEs need no process that runs.
    pub fn arrive(&mut self, sent: Sent, turn: &mut Turn) {
        let Some(process) = self.process.as_mut() else { return };
        if process.member.instance() != sent.to {
            return;
        }
        if let Packet::Shipped(Shipped::Append { link, before, ref entries, .. }) = sent.packet
            && let Some(last) = self.memory.write(sent.from, (link, before), entries)
        {
            let packet = Packet::Shipped(Shipped::Stored { link, last });
            turn.sent.push(Sent { from: sent.to, to: sent.from, packet });
        }
        process.inbox.push_back(sent);
    }

    /// The process runs for a moment: the threads that serve, then that of the cluster.
    pub fn turn(&mut self, turn: &mut Turn) {
        let clock_ns = self.clock.read_ns(turn.now_ms);
        self.lead(clock_ns, turn);
        self.has_stalled = false;
        self.run_cluster(clock_ns, turn);
        self.renew(clock_ns);
    }

    /// The word is written anew, unless the thread stands still.
    fn renew(&mut self, clock_ns: u64) {
        if let Some(process) = self.process.as_mut().filter(|_| !self.has_stalled)
            && let Some(leads) = &mut process.leads
        {
            leads.word_ns = process.member.serves_until_ns(clock_ns);
        }
    }

    fn run_cluster(&mut self, clock_ns: u64, turn: &mut Turn) {
        self.latest_ms = self.latest_ms.max(clock_ns / 1_000_000);
        loop {
            let Some(process) = self.process.as_mut() else { return };
            let Some(event) = process.coordinator.poll(self.latest_ms) else { break };
            self.hear_coordinator(event, clock_ns, turn);
        }
        while let Some(sent) = self.process.as_mut().and_then(|of| of.inbox.pop_front()) {
            self.hear(sent, clock_ns, turn);
        }
        if turn.now_ms >= self.ticked_ms + HEARTBEAT_MS {
            self.ticked_ms = turn.now_ms;
            self.member(member::Event::Tick, clock_ns, turn);
            let Some(process) = self.process.as_mut() else { return };
            let actions = process.watcher.handle(clock_ns, watcher::Event::Tick);
            self.watch(actions, turn);
            self.echo(clock_ns, turn);
        }
        self.end_copy(turn);
        self.sync(turn);
        self.ask_to_follow(turn);
    }

    fn hear_coordinator(&mut self, event: coordinator::Event, clock_ns: u64, turn: &mut Turn) {
        let Some(process) = self.process.as_mut() else { return };
        let coordinator::Event::Answer(id, outcome) = event else {
            let actions =
                process.watcher.handle(clock_ns, watcher::Event::Coordinator(event.clone()));
            self.watch(actions, turn);
            return self.member(member::Event::Coordinator(event), clock_ns, turn);
        };
        match process.asked.remove(&id) {
            Some(Asked::Enter(of)) => {
                self.member(member::Event::Entered(of, outcome), clock_ns, turn);
            }
            Some(Asked::MemberProposes) => {
                self.member(member::Event::Proposed(outcome), clock_ns, turn);
            }
            Some(Asked::Stand) => {
                self.watcher_hears(watcher::Event::Stood(outcome), clock_ns, turn)
            }
            Some(Asked::WatcherProposes) => {
                self.watcher_hears(watcher::Event::Proposed(outcome), clock_ns, turn);
            }
            Some(Asked::Nothing) | None => {}
        }
    }

    fn watcher_hears(&mut self, event: watcher::Event, clock_ns: u64, turn: &mut Turn) {
        let Some(process) = self.process.as_mut() else { return };
        let actions = process.watcher.handle(clock_ns, event);
        self.watch(actions, turn);
    }

    fn hear(&mut self, sent: Sent, clock_ns: u64, turn: &mut Turn) {
        let from = sent.from;
        match sent.packet {
            Packet::Control(message) => {
                self.watcher_hears(watcher::Event::Message(from, message.clone()), clock_ns, turn);
                self.member(member::Event::Message(from, message), clock_ns, turn);
            }
            Packet::Shipped(shipped) => self.hear_shipped(from, shipped, turn),
        }
    }

    fn hear_shipped(&mut self, from: Instance, shipped: Shipped, turn: &mut Turn) {
        let Some(process) = self.process.as_mut() else { return };
        let me = process.member.instance();
        match shipped {
            Shipped::Follow { epoch, link, applied, shape } => {
                let Some(leads) = process.leads.as_mut().filter(|of| of.epoch == epoch) else {
                    return;
                };
                let at = (&self.memory, turn.now_ms);
                if let Some(answer) = leads.links.follow(from, (link, applied), &shape, at) {
                    turn.sent.push(Sent { from: me, to: from, packet: Packet::Shipped(answer) });
                }
            }
            Shipped::GoesOn { link, shared } => {
                if let Some((primary, epoch)) = process.follows
                    && primary == from
                    && link == self.links
                    && self.memory.ring.is_none()
                {
                    self.memory.go_on(Ring { primary, epoch, link }, shared);
                    self.memory.is_part = false;
                    let packet = Packet::Shipped(Shipped::Stored { link, last: shared });
                    turn.sent.push(Sent { from: me, to: from, packet });
                }
            }
            Shipped::Copy { link, log, commit } => {
                if let Some((primary, epoch)) = process.follows
                    && primary == from
                    && link == self.links
                    && self.memory.ring.is_none()
                    && process.member.may_clear()
                {
                    // What readers have seen goes: their leases have ended, a server waits for that.
                    self.readers_until_ms = 0;
                    self.must_copy = false;
                    self.memory = Memory { is_part: true, ..Memory::default() };
                    let due_ms = turn.now_ms + turn.random.within(5..60u64);
                    let ring = Ring { primary, epoch, link };
                    process.copying = Some(Copying { due_ms, ring, log, commit });
                }
            }
            Shipped::Append { link, commit, .. } => {
                if self.memory.ring.is_some_and(|ring| ring.link == link && ring.primary == from) {
                    self.memory.commit_up_to(commit);
                }
            }
            Shipped::Stored { link, last } => {
                if let Some(leads) = &mut process.leads {
                    leads.links.stored(from, (link, last), turn.now_ms);
                }
            }
        }
    }

    fn end_copy(&mut self, turn: &mut Turn) {
        let Some(process) = self.process.as_mut() else { return };
        let Some(copying) = process.copying.take_if(|of| of.due_ms <= turn.now_ms) else { return };
        let (ring, last) = (copying.ring, copying.log.len() as u64);
        self.memory.copied(ring, copying.log, copying.commit);
        let packet = Packet::Shipped(Shipped::Stored { link: ring.link, last });
        turn.sent.push(Sent { from: process.member.instance(), to: ring.primary, packet });
    }

    /// Asks the primary for its log, again if no answer comes.
    fn ask_to_follow(&mut self, turn: &mut Turn) {
        let Some(process) = self.process.as_mut() else { return };
        let Some((primary, epoch)) = process.follows else { return };
        let is_done = self.memory.ring.is_some() || process.copying.is_some();
        if is_done || turn.now_ms < process.asked_ms + 30 {
            return;
        }
        process.asked_ms = turn.now_ms;
        self.links += 1;
        // Without its place in the log it is copied.
        let applied = if self.must_copy { u64::MAX } else { self.memory.applied };
        let (link, shape) = (self.links, self.memory.shape());
        let packet = Packet::Shipped(Shipped::Follow { epoch, link, applied, shape });
        turn.sent.push(Sent { from: process.member.instance(), to: primary, packet });
    }

    fn member(&mut self, event: member::Event, clock_ns: u64, turn: &mut Turn) {
        let Some(process) = self.process.as_mut() else { return };
        let actions = process.member.handle(clock_ns, event);
        for action in actions {
            self.act(action, clock_ns, turn);
        }
    }

    fn act(&mut self, action: member::Action, clock_ns: u64, turn: &mut Turn) {
        let Some(process) = self.process.as_mut() else { return };
        let me = process.member.instance();
        let local_ms = self.latest_ms;
        match action {
            member::Action::Enter(of) => {
                let id = process.coordinator.enter(local_ms, of);
                process.asked.insert(id, Asked::Enter(of));
            }
            member::Action::Leave => {
                let id = process.coordinator.leave(local_ms);
                process.asked.insert(id, Asked::Nothing);
            }
            member::Action::Retire => {
                process.coordinator.leave(local_ms);
                process.coordinator.step_down(local_ms);
            }
            member::Action::Refresh(version) => {
                let id = process.coordinator.renew(local_ms, version);
                process.asked.insert(id, Asked::Nothing);
            }
            member::Action::Propose(topology) => self.propose(topology, clock_ns, turn),
            member::Action::Send(to, message) => {
                turn.sent.push(Sent { from: me, to, packet: Packet::Control(message) });
            }
            member::Action::Hold => {
                (process.leads, process.follows, process.copying) = (None, None, None);
            }
            member::Action::Withdraw(epoch) => self.withdraw(epoch, clock_ns, turn),
            member::Action::Follow(primary) => {
                self.memory.ring = None;
                process.leads = None;
                process.copying = None;
                process.follows = match process.member.part(clock_ns) {
                    member::Part::Follows(of, epoch) if of == primary => Some((of, epoch)),
                    part => unreachable!("it follows {primary}, and is {part:?}"),
                };
                process.asked_ms = 0;
            }
            member::Action::Prepare(epoch) => self.prepare(epoch, clock_ns, turn),
            member::Action::Serve(epoch) => self.serve(epoch),
            member::Action::Require(required) => {
                if let Some(leads) = &mut process.leads {
                    leads.required = required;
                }
            }
            member::Action::StopEchoes(_) => {
                process.leads.iter_mut().for_each(|of| of.echoes = false)
            }
            member::Action::StopChanges(_) => {
                process
                    .leads
                    .iter_mut()
                    .for_each(|of| (of.takes_changes, of.drains) = (false, true));
            }
            member::Action::Say(notice) => self.say(&notice.to_string(), turn),
        }
    }

    fn propose(&mut self, topology: Topology, clock_ns: u64, turn: &mut Turn) {
        let Some(process) = self.process.as_mut() else { return };
        if let Some(leads) = &mut process.leads {
            leads.word_ns = process.member.serves_until_ns(clock_ns);
        }
        // The request is on its way, and the whole process stands still.
        if self.stalls && turn.random.one_in(40) {
            self.has_stalled = true;
            self.paused_until_ms = turn.now_ms + turn.random.within(20..3_000u64);
        }
        let proposal = Proposal { topology, term: None };
        let id = process.coordinator.propose(self.latest_ms, &proposal);
        process.asked.insert(id, Asked::MemberProposes);
    }

    fn withdraw(&mut self, epoch: u64, clock_ns: u64, turn: &mut Turn) {
        if self.memory.ring.is_some_and(|ring| ring.epoch < epoch) {
            self.memory.ring = None;
        }
        let (positions, led) = (self.memory.positions(), self.led);
        self.member(member::Event::Withdrawn { epoch, positions, led }, clock_ns, turn);
    }

    /// Applies what was received, to lead.
    fn prepare(&mut self, epoch: u64, clock_ns: u64, turn: &mut Turn) {
        let Some(process) = self.process.as_mut() else { return };
        if turn.now_ms < self.cannot_apply_until_ms {
            // It has applied some of it.
            let (applied, last) = (self.memory.applied, self.memory.last());
            self.memory.applied = turn.random.within(applied..last + 1);
            let why = "there is no memory".to_owned();
            return self.member(member::Event::CannotLead(epoch, why), clock_ns, turn);
        }
        process.follows = None;
        self.memory.applied = self.memory.last();
        self.memory.is_ring_left = self.memory.ring.is_some();
        let incarnation = process.member.instance().incarnation;
        let led = LedEpoch { incarnation, epoch, is_durable: self.disk == Disk::Fsync };
        let records = Some(LedEpochRecorder::new(led, vec![self.memory.last()]));
        process.leads = Some(Leads { epoch, since_ms: turn.now_ms, records, ..Leads::default() });
        self.member(member::Event::Applied(epoch), clock_ns, turn);
    }

    fn say(&self, text: &str, turn: &mut Turn) {
        if turn.traces {
            turn.log.push(format!("{:>7} {}: {text}", turn.now_ms, self.name));
        }
    }

    fn serve(&mut self, epoch: u64) {
        let Some(process) = self.process.as_mut() else { return };
        let Some(leads) = process.leads.as_mut().filter(|of| of.epoch == epoch) else { return };
        (leads.takes_changes, leads.echoes, leads.drains) = (true, true, false);
        leads.has_served = true;
    }

    fn watch(&mut self, actions: Vec<watcher::Action>, turn: &mut Turn) {
        let local_ms = self.latest_ms;
        for action in actions {
            let Some(process) = self.process.as_mut() else { return };
            match action {
                watcher::Action::Stand => {
                    let id = process.coordinator.stand(local_ms);
                    process.asked.insert(id, Asked::Stand);
                }
                watcher::Action::Propose(proposal) => {
                    let id = process.coordinator.propose(local_ms, &proposal);
                    process.asked.insert(id, Asked::WatcherProposes);
                }
                watcher::Action::Send(to, message) => {
                    let from = process.member.instance();
                    turn.sent.push(Sent { from, to, packet: Packet::Control(message) });
                }
                watcher::Action::Say(notice) => self.say(&notice.to_string(), turn),
            }
        }
    }

    /// Echoes its readers' clocks: taken first, then the lease is looked at, then echoed.
    fn echo(&mut self, clock_ns: u64, turn: &mut Turn) {
        let Some(process) = self.process.as_mut() else { return };
        let Some(leads) = process.leads.as_ref().filter(|of| of.echoes) else { return };
        let taken_ms = turn.now_ms;
        if clock_ns < leads.word_ns {
            let until_ms = taken_ms + READ_LEASE_WORLD_MS;
            self.readers_until_ms = self.readers_until_ms.max(until_ms);
        }
    }

    /// The disk takes some of what is applied, and with it that this server leads.
    fn sync(&mut self, turn: &mut Turn) {
        if self.disk == Disk::None || !turn.random.one_in(3) {
            return;
        }
        self.memory.synced = turn.random.within(self.memory.synced..self.memory.applied + 1);
        let leads = self.process.as_mut().and_then(|of| of.leads.as_mut());
        if let Some(leads) = leads
            && let Some(led) = leads.records.as_ref().and_then(|of| of.due(&[self.memory.synced]))
        {
            (self.led, leads.records) = (Some(led), None);
        }
    }

    /// Ships the log, acknowledges what every required replica has stored, and serves clients.
    fn lead(&mut self, clock_ns: u64, turn: &mut Turn) {
        let Some(process) = self.process.as_mut() else { return };
        let me = process.member.instance();
        let Some(leads) = process.leads.as_mut() else { return };
        let (epoch, now_ms) = (leads.epoch, turn.now_ms);
        // One that stood still may begin an epoch that is over: without its lease it does nothing in it.
        let holds = leads.has_served && clock_ns < leads.word_ns;
        if holds && !std::mem::replace(&mut leads.has_begun, true) {
            turn.oracle.begin(me, epoch, &self.memory.log);
        }
        let has_enough = leads.required.counted.len() >= turn.min_replicas;
        let waited_for = leads.required.wait_for.clone();
        let stored = waited_for.iter().map(|of| leads.links.has_stored(*of)).min();
        let replicated = stored.unwrap_or(u64::MAX).min(self.memory.last());
        let kept = if self.disk == Disk::Fsync { self.memory.synced } else { u64::MAX };
        let durable = replicated.min(kept);
        if has_enough && holds {
            self.memory.commit = self.memory.commit.max(durable);
            if self.memory.commit > leads.acknowledged {
                leads.acknowledged = self.memory.commit;
                turn.oracle.acknowledge((me, epoch), self.memory.visible(), now_ms);
            }
        }
        let becomes_ready = !leads.is_ready && replicated == self.memory.last();
        if becomes_ready {
            leads.is_ready = true;
            self.memory.found = self.memory.last();
        }
        if leads.is_ready {
            self.memory.commit = self.memory.commit.max(durable.min(self.memory.found));
        }
        for (to, shipped) in leads.links.ship(&self.memory, now_ms) {
            turn.sent.push(Sent { from: me, to, packet: Packet::Shipped(shipped) });
        }
        leads.links.forget_standing(&waited_for);
        let mut standings = leads.links.standings(&self.memory, &waited_for, now_ms);
        if now_ms > leads.since_ms + LINK_MS {
            let lost = waited_for.iter().filter(|of| !leads.links.has(**of));
            standings.extend(lost.map(|of| (*of, ReplicaStanding::Behind)));
        }
        if leads.takes_changes && has_enough && turn.random.one_in(4) {
            *turn.values += 1;
            self.memory.log.push(Entry { epoch, value: *turn.values });
            self.memory.applied = self.memory.last();
        }
        if leads.takes_changes && turn.random.one_in(2) {
            let floor = turn.oracle.floor();
            // Nothing changes between the look at the lease and the read.
            if let Some(log) = self.memory.shown().filter(|_| clock_ns < leads.word_ns) {
                turn.oracle.read(me, floor, log);
            }
        }
        if leads.drains && self.memory.commit == self.memory.last() {
            leads.drains = false;
            let positions = self.memory.positions().unwrap_or_default();
            self.member(member::Event::Drained { epoch, positions }, clock_ns, turn);
        }
        if becomes_ready {
            self.member(member::Event::Ready(epoch), clock_ns, turn);
        }
        for (of, standing) in standings {
            self.member(member::Event::Replica(of, standing), clock_ns, turn);
        }
    }

    /// A reader looks into this server's memory, whatever has become of its process.
    pub fn read_one_sided(&self, now_ms: u64, oracle: &mut Oracle) {
        if now_ms < self.readers_until_ms {
            let by = Instance { member: self.id, incarnation: 0 };
            self.memory.shown().into_iter().for_each(|log| oracle.read(by, oracle.floor(), log));
        }
    }
}
