//! Whole clusters from a seed: members with logs, a coordinator, a network and clocks with faults.
//!
//! A world runs in steps of 1 ms of true time. It checks with each acknowledgement and each read
//! ([`oracle`]): one primary acknowledges in an epoch, no acknowledged entry is lost, no read is
//! stale. When the faults end each group has to come back by itself.

mod failing_over;
mod node;
mod oracle;
mod replication;
mod scale;
mod scenes;
mod tail;

use node::{Node, Packet, Sent, Turn};
use oracle::Oracle;
use remora_cluster::coordinator::{Coordinator, Event, Outcome, Proposal, SessionState};
use remora_cluster::memory::MemoryEnsemble;
use remora_cluster::topology::{GroupId, Instance, MemberId, MemberState, Topology, change};
use remora_testing::Random;
use replication::Shipped;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The faults end after this, ms of the world.
const FAULTS_MS: u64 = 30_000;
/// A group may lose all that has everything in the last part of it, ms.
const GONE_MS: u64 = 4_000;
/// And the groups have to be whole again this much later, ms: replicas that left come back slowly.
const RECOVERS_MS: u64 = 90_000;

/// What a world has come to.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum {
    pub failovers: u64,
    pub acknowledged: u64,
    pub reads: u64,
    /// Groups of which faults took all that had everything: nobody may be promoted there.
    pub gone: u64,
    /// Epochs whose primary was promoted by the word of its disk.
    pub by_disk: u64,
    pub faults: u64,
    pub recovery_ms: u64,
}

/// See the module's text.
pub struct World {
    random: Random,
    now_ms: u64,
    ensemble: MemoryEnsemble,
    nodes: Vec<Node>,
    oracles: BTreeMap<GroupId, Oracle>,
    min_replicas: u8,
    /// By the time at which they arrive.
    network: BTreeMap<u64, VecDeque<(usize, Sent)>>,
    /// What is not carried, from one node to another, until this time.
    cuts: BTreeMap<(usize, usize), u64>,
    coordinator_cuts: BTreeMap<usize, u64>,
    quorum_lost_until_ms: u64,
    next_fault_ms: u64,
    values: u64,
    faults: u64,
    /// Messages between servers, but for logs.
    messages: u64,
    /// Where instances were found last.
    found: BTreeMap<Instance, usize>,
    by_disk: u64,
    /// By group, its epoch, and who had everything in memory, as recorded a moment ago.
    recorded: BTreeMap<GroupId, (u64, Vec<Instance>)>,
    pub trace: Vec<String>,
    traces: bool,
    has_faults: bool,
}

impl World {
    /// With faults, of any shape.
    pub fn new(seed: u64, traces: bool) -> Self {
        let mut random = Random::new(seed);
        let shape = (random.within(1..3u32), random.within(2..5u64));
        let min_replicas = if random.one_in(4) { 0 } else { 1 };
        let mut world = Self::shaped(random, shape, min_replicas);
        world.nodes.iter_mut().for_each(|of| of.stalls = true);
        Self { has_faults: true, traces, ..world }
    }

    /// Without faults: so many groups, each with so many members.
    pub fn shaped(mut random: Random, (groups, each): (u32, u64), min_replicas: u8) -> Self {
        let named = |id| (GroupId(id), format!("g{id}"), min_replicas);
        let topology = Topology::new(7, (1..=groups).map(named).collect()).unwrap();
        let ensemble = MemoryEnsemble::new();
        let mut first = ensemble.connect(node::SESSION_MS);
        for now_ms in 0..200 {
            ensemble.advance(now_ms);
            if now_ms == 100 {
                first.create(now_ms, &topology);
            }
            while first.poll(now_ms).is_some() {}
        }
        assert!(ensemble.topology().is_some());
        let ids = (1..=groups).flat_map(|group| (0..each).map(move |at| (group, at)));
        let node =
            |(group, at)| Node::new(u64::from(group) * 100 + at, GroupId(group), &mut random);
        let nodes: Vec<_> = ids.map(node).collect();
        let oracles = (1..=groups).map(|id| (GroupId(id), Oracle::default())).collect();
        let mut world = Self {
            random,
            now_ms: 200,
            ensemble,
            nodes,
            oracles,
            min_replicas,
            network: BTreeMap::new(),
            cuts: BTreeMap::new(),
            coordinator_cuts: BTreeMap::new(),
            quorum_lost_until_ms: 0,
            next_fault_ms: 3_000,
            values: 0,
            faults: 0,
            messages: 0,
            found: BTreeMap::new(),
            by_disk: 0,
            recorded: BTreeMap::new(),
            trace: Vec::new(),
            traces: false,
            has_faults: false,
        };
        for at in 0..world.nodes.len() {
            let ensemble = world.ensemble.clone();
            world.with(at, |node, turn| node.start(&ensemble, turn));
        }
        world
    }

    /// Runs to its end. What it has come to.
    pub fn run(&mut self) -> Sum {
        while self.now_ms < FAULTS_MS {
            self.step();
            if self.now_ms >= self.next_fault_ms {
                self.next_fault_ms = self.now_ms + self.random.within(200..2_500u64);
                self.fault();
            }
        }
        self.heal();
        let (healed_ms, mut whole_ms) = (self.now_ms, None);
        while self.now_ms < healed_ms + RECOVERS_MS {
            self.step();
            let is_whole = self.now_ms.is_multiple_of(50) && self.are_whole();
            if is_whole && *whole_ms.get_or_insert(self.now_ms) + 300 < self.now_ms {
                break;
            }
        }
        let Some(whole_ms) = whole_ms else {
            panic!("not all groups came back by themselves");
        };
        let sum = |of: fn(&Oracle) -> u64| self.oracles.values().map(of).sum();
        Sum {
            failovers: sum(|of| of.epochs.saturating_sub(1)),
            acknowledged: sum(|of| of.acknowledged),
            reads: sum(|of| of.reads),
            gone: self.oracles.keys().filter(|id| self.is_gone(**id)).count() as u64,
            by_disk: self.by_disk,
            faults: self.faults,
            recovery_ms: whole_ms - healed_ms,
        }
    }

    fn with(&mut self, at: usize, does: impl FnOnce(&mut Node, &mut Turn)) {
        let node = &mut self.nodes[at];
        let oracle = self.oracles.get_mut(&node.group).unwrap();
        let mut turn = Turn {
            now_ms: self.now_ms,
            random: &mut self.random,
            oracle,
            min_replicas: self.min_replicas.into(),
            sent: Vec::new(),
            values: &mut self.values,
            log: &mut self.trace,
            traces: self.traces,
        };
        does(node, &mut turn);
        let sent = turn.sent;
        for sent in sent {
            self.send(at, sent);
        }
    }

    fn send(&mut self, from: usize, sent: Sent) {
        let is_control = matches!(sent.packet, Packet::Control(_));
        self.messages += u64::from(is_control);
        // Replication keeps its order, and loses nothing but with a cut; control messages may be lost,
        // late, or come twice.
        let delay_ms = match &sent.packet {
            Packet::Shipped(Shipped::Copy { .. }) => self.random.within(2..30),
            Packet::Shipped(_) => 1,
            Packet::Control(_) if self.has_faults && self.random.one_in(50) => {
                let most_ms = if self.random.one_in(8) { 20_000 } else { 400 };
                self.random.within(5..most_ms)
            }
            Packet::Control(_) => self.random.within(1..4),
        };
        let is_unreliable = is_control && self.has_faults;
        if is_unreliable && self.random.one_in(100) {
            return;
        }
        if is_unreliable && self.random.one_in(100) {
            self.network.entry(self.now_ms + 7).or_default().push_back((from, sent.clone()));
        }
        self.network.entry(self.now_ms + delay_ms).or_default().push_back((from, sent));
    }

    fn step(&mut self) {
        self.now_ms += 1;
        self.ensemble.advance(self.now_ms);
        self.end_faults();
        if self.now_ms.is_multiple_of(10) {
            self.note_promotions();
        }
        while let Some(entry) = self.network.first_entry()
            && *entry.key() <= self.now_ms
        {
            for (from, sent) in entry.remove() {
                let Some(to) = self.find(sent.to) else { continue };
                if !self.cuts.contains_key(&(from, to)) {
                    self.with(to, |node, turn| node.arrive(sent, turn));
                }
            }
        }
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            if node.process.is_none() && self.now_ms >= node.restarts_ms {
                let ensemble = self.ensemble.clone();
                self.with(at, |node, turn| node.start(&ensemble, turn));
            }
            // Nodes run at different moments.
            if (self.now_ms + at as u64).is_multiple_of(2) && self.nodes[at].is_running(self.now_ms)
            {
                self.with(at, Node::turn);
            }
            let node = &self.nodes[at];
            node.read_one_sided(self.now_ms, self.oracles.get_mut(&node.group).unwrap());
        }
    }

    /// The server that runs this instance.
    fn find(&mut self, instance: Instance) -> Option<usize> {
        let is_it = |of: &Node| of.instance() == Some(instance);
        let before = self.found.get(&instance).copied();
        let at = before.filter(|at| is_it(&self.nodes[*at]));
        let at = at.or_else(|| self.nodes.iter().position(is_it))?;
        self.found.insert(instance, at);
        Some(at)
    }

    fn end_faults(&mut self) {
        let now_ms = self.now_ms;
        self.cuts.retain(|_, until_ms| *until_ms > now_ms);
        let ended: Vec<_> = self
            .coordinator_cuts
            .iter()
            .filter(|(_, until)| **until <= now_ms)
            .map(|(at, _)| *at)
            .collect();
        for at in ended {
            self.coordinator_cuts.remove(&at);
            self.cut_coordinator(at, false, false);
        }
        if self.quorum_lost_until_ms != 0 && now_ms >= self.quorum_lost_until_ms {
            self.quorum_lost_until_ms = 0;
            self.ensemble.set_quorum(true);
        }
    }

    /// Counts the epochs whose primary comes out of no memory of the epoch before.
    fn note_promotions(&mut self) {
        let Some(topology) = self.ensemble.topology() else { return };
        for group in topology.groups() {
            let with_all: Vec<_> = group.primary.iter().chain(&group.in_sync).copied().collect();
            let (epoch, before) = self.recorded.entry(group.id).or_default();
            let is_other = |of: Instance| !before.is_empty() && !before.contains(&of);
            if group.epoch != *epoch && group.primary.is_some_and(is_other) {
                self.by_disk += 1;
            }
            (*epoch, *before) = (group.epoch, with_all);
        }
    }

    fn cut_coordinator(&self, at: usize, to: bool, from: bool) {
        if let Some(process) = &self.nodes[at].process {
            self.ensemble.cut(process.coordinator.link(), to, from);
        }
    }

    fn heal(&mut self) {
        self.say("all faults end");
        self.cuts.clear();
        for at in 0..self.nodes.len() {
            self.cut_coordinator(at, false, false);
            if let Some(process) = &self.nodes[at].process {
                self.ensemble.lag(process.coordinator.link(), false);
            }
            let node = &mut self.nodes[at];
            (node.paused_until_ms, node.cannot_apply_until_ms, node.stalls) = (0, 0, false);
            node.restarts_ms = node.restarts_ms.min(self.now_ms + 100);
        }
        self.coordinator_cuts.clear();
        self.quorum_lost_until_ms = self.now_ms;
    }

    /// Adds to the trace how all stands.
    pub fn say_state(&mut self) {
        let (members, watcher) = (self.ensemble.members(), self.ensemble.watcher());
        self.say(&format!("present: {members:?}, watcher: {watcher:?}"));
        if let Some(topology) = self.ensemble.topology() {
            for group in topology.groups() {
                self.say(&format!("recorded: {group:?}"));
            }
            for member in topology.members() {
                self.say(&format!("member: {member:?}"));
            }
        }
        let now_ms = self.now_ms;
        for at in 0..self.nodes.len() {
            let clock_ns = self.nodes[at].clock.read_ns(now_ms);
            let memory = self.nodes[at].memory.last();
            let part = self.nodes[at].process.as_mut().map(|of| of.member.part(clock_ns));
            self.say(&format!("{} has {memory} entries: {part:?}", self.nodes[at].name));
        }
    }

    fn say(&mut self, text: &str) {
        if self.traces {
            self.trace.push(format!("{:>7} FAULT {text}", self.now_ms));
        }
    }

    /// Instances that run, whatever the coordinator thinks.
    fn running(&self) -> BTreeSet<Instance> {
        self.nodes.iter().filter_map(Node::instance).collect()
    }

    /// Whether nothing is left that the record says has everything: no instance, and no disk.
    fn is_gone(&self, id: GroupId) -> bool {
        let Some(topology) = self.ensemble.topology() else { return false };
        let group = topology.group(id).unwrap();
        let running = self.running();
        group.primary.is_some()
            && !group.primary.iter().chain(&group.in_sync).any(|of| running.contains(of))
            && !self.is_on_disk(id)
    }

    /// Whether the recorded primary has everything on its disk, and the disk says so.
    fn is_on_disk(&self, id: GroupId) -> bool {
        let topology = self.ensemble.topology();
        let Some(group) = topology.as_ref().and_then(|of| of.group(id)) else { return false };
        let Some(primary) = group.primary else { return false };
        let led = self.nodes.iter().find(|of| of.id == primary.member).and_then(|of| of.led);
        led.is_some_and(|led| {
            led.is_durable && (led.incarnation, led.epoch) == (primary.incarnation, group.epoch)
        })
    }

    /// Whether each group has a primary that serves, and all its members in sync.
    fn are_whole(&mut self) -> bool {
        let Some(topology) = self.ensemble.topology() else { return false };
        let groups: Vec<_> = self.oracles.keys().copied().collect();
        groups.into_iter().all(|id| {
            let group = topology.group(id).unwrap();
            let now_ms = self.now_ms;
            let of_group = self.nodes.iter_mut().filter(|of| of.group == id);
            let (mut members, mut serves) = (0, false);
            for node in of_group {
                members += 1;
                serves |= node.instance() == group.primary && node.serves(now_ms);
            }
            (serves && group.in_sync.len() + 1 == members) || self.is_gone(id)
        })
    }

    fn primary_of(&mut self, id: GroupId) -> Option<usize> {
        let primary = self.ensemble.topology()?.group(id)?.primary?;
        self.nodes.iter().position(|of| of.instance() == Some(primary))
    }

    /// Whether a process may die: what was acknowledged is in another memory, which the record names, or on
    /// the primary's disk.
    fn may_crash(&self, at: usize) -> bool {
        if self.is_on_disk(self.nodes[at].group) {
            return true;
        }
        let Some(topology) = self.ensemble.topology() else { return true };
        let Some(group) = topology.group(self.nodes[at].group) else { return true };
        let mut running = self.running();
        if let Some(instance) = self.nodes[at].instance() {
            running.remove(&instance);
        }
        group.primary.is_none() || group.in_sync.iter().any(|of| running.contains(of))
    }

    fn fault(&mut self) {
        self.faults += 1;
        let group = GroupId(1 + self.random.below(self.oracles.len()) as u32);
        let any = self.random.below(self.nodes.len());
        let primary = self.primary_of(group).unwrap_or(any);
        let at = if self.random.one_in(2) { primary } else { any };
        let is_long = self.random.one_in(13);
        let for_ms = self.random.within(20..if is_long { 4_000 } else { 620 });
        let until_ms = self.now_ms + for_ms;
        if self.random.one_in(5) {
            return self.fault_of_data(group, until_ms);
        }
        match self.random.below(17) {
            0..5 => self.crash(at, until_ms),
            5..7 => {
                self.say(&format!("{} stands still for {for_ms} ms", self.nodes[at].name));
                self.nodes[at].paused_until_ms = until_ms;
            }
            7 => {
                let by_ms = self.random.below(4_000u64) as i64 - 2_000;
                self.say(&format!("the clock of {} jumps by {by_ms} ms", self.nodes[at].name));
                let now_ms = self.now_ms;
                self.nodes[at].clock.jump(now_ms, by_ms);
            }
            8..10 => self.cut(at, any, until_ms),
            10 => self.isolate(at, until_ms),
            11 => {
                let (to, from) = self.random.pick(&[(true, true), (true, false), (false, true)]);
                self.say(&format!(
                    "{} and the coordinator are cut for {for_ms} ms: {to} {from}",
                    self.nodes[at].name
                ));
                self.cut_coordinator(at, to, from);
                self.coordinator_cuts.insert(at, until_ms);
            }
            12 => {
                self.lose_quorum(until_ms);
            }
            13 => {
                let lags = self.random.one_in(2);
                if let Some(process) = &self.nodes[at].process {
                    self.ensemble.lag(process.coordinator.link(), lags);
                }
            }
            14 => self.promote(group),
            15 => self.crash_group(group),
            _ => self.crash_watcher(until_ms),
        }
    }

    /// A server that has everything cannot use it for a while, or would like to copy another one.
    fn fault_of_data(&mut self, group: GroupId, until_ms: u64) {
        let of_group = self.nodes.iter().enumerate().filter(|(_, of)| of.group == group);
        let of_group: Vec<_> = of_group.map(|(at, _)| at).collect();
        match self.random.below(4) {
            0 => {
                self.promote(group);
                self.lose_quorum(until_ms);
            }
            1 => {
                let at = self.random.pick(&of_group);
                self.must_copy(at);
            }
            _ => {
                let many = self.random.one_in(2);
                for at in of_group {
                    if many || self.random.one_in(2) {
                        self.say(&format!("{} cannot apply", self.nodes[at].name));
                        self.nodes[at].cannot_apply_until_ms = until_ms + 2_000;
                    }
                }
            }
        }
    }

    /// A replica is to copy its primary anew. Its link ends.
    fn must_copy(&mut self, at: usize) {
        self.say(&format!("{} is to copy its primary", self.nodes[at].name));
        self.nodes[at].must_copy = true;
        self.nodes[at].memory.ring = None;
    }

    fn lose_quorum(&mut self, until_ms: u64) {
        self.say(&format!("the coordinator has no quorum until {until_ms}"));
        self.ensemble.set_quorum(false);
        self.quorum_lost_until_ms = until_ms;
    }

    fn crash(&mut self, at: usize, until_ms: u64) {
        if self.may_crash(at) {
            self.say(&format!("{} dies", self.nodes[at].name));
            self.nodes[at].crash(until_ms);
        }
    }

    /// All processes of a group die at one moment. What was acknowledged is on a disk, but at the end of the
    /// faults: a group that is gone has no failover any more.
    fn crash_group(&mut self, group: GroupId) {
        let is_late = self.now_ms > FAULTS_MS - GONE_MS;
        if !self.is_on_disk(group) && !is_late {
            return;
        }
        self.say(&format!("all processes of group {group} die"));
        let of_group: Vec<_> =
            (0..self.nodes.len()).filter(|at| self.nodes[*at].group == group).collect();
        for &at in &of_group {
            // Some come back with the end of the faults.
            let away_ms = if self.random.one_in(4) { u64::MAX / 2 } else { 4_000 };
            let restarts_ms = self.now_ms + self.random.within(20..away_ms);
            self.nodes[at].crash(restarts_ms);
        }
        let lost = self.random.pick(&of_group);
        let topology = self.ensemble.topology();
        let primary = topology.as_ref().and_then(|of| of.group(group)?.primary);
        let has_led = primary.is_some_and(|of| of.member == self.nodes[lost].id);
        if self.random.one_in(3) && (is_late || !has_led) {
            self.say(&format!("{} has lost its disk", self.nodes[lost].name));
            self.nodes[lost].loses_disk = true;
        }
    }

    fn cut(&mut self, at: usize, other: usize, until_ms: u64) {
        let both = self.random.one_in(2);
        self.say(&format!(
            "{} and {} are cut, in both directions: {both}",
            self.nodes[at].name, self.nodes[other].name
        ));
        self.cuts.insert((at, other), until_ms);
        if both {
            self.cuts.insert((other, at), until_ms);
        }
    }

    fn isolate(&mut self, at: usize, until_ms: u64) {
        self.say(&format!("{} is cut from all other members", self.nodes[at].name));
        for other in 0..self.nodes.len() {
            self.cuts.insert((at, other), until_ms);
            self.cuts.insert((other, at), until_ms);
        }
    }

    /// An operator drains a member.
    fn drain(&mut self, member: MemberId) {
        let mut session = self.ensemble.connect(node::SESSION_MS);
        let mut asked = None;
        for _ in 0..200 {
            self.step();
            let topology = self.ensemble.topology().unwrap();
            let is_drained =
                topology.member(member).is_none_or(|of| of.state == MemberState::Draining);
            if asked.is_none()
                && !is_drained
                && session.poll(self.now_ms) == Some(Event::Session(SessionState::Connected))
            {
                let topology = change::drain(&topology, member).unwrap();
                asked = Some(session.propose(self.now_ms, &Proposal { topology, term: None }));
            }
            while let Some(event) = session.poll(self.now_ms) {
                if matches!(event, Event::Answer(_, outcome) if outcome != Outcome::Done) {
                    asked = None;
                }
            }
        }
        assert!(asked.is_some());
    }

    /// An operator wants some replica to lead.
    fn promote(&mut self, group: GroupId) {
        let Some(topology) = self.ensemble.topology() else { return };
        let in_sync = topology.group(group).unwrap().in_sync.clone();
        if in_sync.is_empty() {
            return;
        }
        let member = self.random.pick(&in_sync).member;
        self.say(&format!("an operator wants {member} to lead"));
        let now_ms = self.now_ms;
        for at in 0..self.nodes.len() {
            if self.nodes[at].is_running(now_ms) {
                self.with(at, |node, turn| node.promote(now_ms, member, turn));
            }
        }
    }

    fn crash_watcher(&mut self, until_ms: u64) {
        let Some((_, Some(link))) = self.ensemble.watcher() else { return };
        let is_it = |of: &Node| of.process.as_ref().is_some_and(|of| of.coordinator.link() == link);
        if let Some(at) = self.nodes.iter().position(is_it) {
            self.crash(at, until_ms);
        }
    }
}
