//! What a primary knows of its leadership: its lease, and which replicas have every acknowledged entry.
//!
//! ```text
//!   replica   Behind --> Joining --> admitted, waited for --> InSync --> recorded
//!                ^                                                           |
//!                '---- recorded without it <---- silent, or lags <-----------'
//! ```
//! Invariants:
//! * an entry is acknowledged once every instance of [`Required::wait_for`] has stored it. That names
//!   all that any topology has in sync which is recorded or may be: a replica is waited for from
//!   *before* the primary asks to record it, until it is recorded *without* it;
//! * the lease needs the word of the same, but of those that are not asked to be recorded yet;
//! * a replica that left the set comes back slowly: each time it has to wait longer.

use crate::lease::{FENCE_WAIT_NS, LeaseAsk, PrimaryLease, READERS_WAIT_NS, Stopwatch};
use crate::topology::{Group, Instance, Topology};
use remora_layout::limits::{
    HAND_OVER_TIMEOUT_MS, RETURN_BACKOFF_MAX_MS, RETURN_BACKOFF_MS, SILENT_REPLICA_MS,
};
use std::collections::BTreeMap;

const NS_PER_MS: u64 = 1_000_000;

/// How a replica stands, by the word of all shards of the primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaStanding {
    /// It does not follow, or lags in some shard.
    Behind,
    /// It keeps up in all shards, and may lack some of what is acknowledged.
    Joining,
    /// It has stored all that is acknowledged, and each further acknowledgement waits for it. The
    /// shards say so only of one that [`Required::wait_for`] names, after it did.
    InSync,
}

/// What an acknowledgement needs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Required {
    /// Every one of these has stored the entry. Sorted.
    pub wait_for: Vec<Instance>,
    /// Those among them that count as replicas: they are recorded, and stay so. There must be as many
    /// as `min_replicas`.
    pub counted: Vec<Instance>,
}

/// Where the leadership is.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The epoch is recorded. The member applies what it has, brings it to the set, and waits.
    Taking { is_ready: bool, wait_ns: u64 },
    /// It serves, while the lease holds.
    Serving,
    /// It serves and echoes no clocks, so that the read leases end.
    EndingReads { since: Option<Stopwatch> },
    /// It takes no changes. What is in flight is acknowledged.
    Draining { since: Stopwatch },
}

#[derive(Clone, Debug)]
struct Replica {
    standing: Option<ReplicaStanding>,
    is_admitted: bool,
    /// Since its last word.
    silent: Stopwatch,
    /// Since it left the set, and how often it did.
    away: Stopwatch,
    departures: u32,
}

impl Replica {
    fn new(now_ns: u64) -> Self {
        let now = Stopwatch::begin(now_ns);
        Self { standing: None, is_admitted: false, silent: now, away: now, departures: 0 }
    }

    fn is_silent(&self) -> bool {
        self.silent.has_passed(SILENT_REPLICA_MS * NS_PER_MS)
    }

    /// Whether it has been away for long enough.
    fn may_return(&self) -> bool {
        let Some(doublings) = self.departures.checked_sub(1) else { return true };
        let longest = RETURN_BACKOFF_MAX_MS / RETURN_BACKOFF_MS;
        let times = 1u64.checked_shl(doublings).unwrap_or(longest).min(longest);
        self.away.has_passed(times * RETURN_BACKOFF_MS * NS_PER_MS)
    }
}

/// What the stage of a leadership has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The member serves from now on.
    Serve,
    /// It takes no changes from now on.
    StopChanges,
    /// The hand-over took too long: it serves as before.
    ServeAgain,
}

/// See the module's text. Times are ns of the primary's monotonic clock.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    me: Instance,
    pub epoch: u64,
    stage: Stage,
    pub lease: PrimaryLease,
    min_replicas: usize,
    recorded: Vec<Instance>,
    /// What was asked to be recorded, and may be: more than one set, if an answer did not come.
    proposed: Vec<Vec<Instance>>,
    /// The answer to one of them did not come.
    is_unsure: bool,
    replicas: BTreeMap<Instance, Replica>,
    /// Since the member withdrew its ring of the epoch before; `None` until it has.
    fence: Option<Stopwatch>,
    /// What the server was told last.
    required: Option<Required>,
}

impl Leadership {
    /// An instance leads this group, and had withdrawn its ring when `fence` began.
    pub fn new(me: Instance, group: &Group, fence: Option<Stopwatch>, now_ns: u64) -> Self {
        let wait_ns = if group.epoch > 1 { FENCE_WAIT_NS } else { 0 };
        let mut new = Self {
            me,
            epoch: group.epoch,
            stage: Stage::Taking { is_ready: false, wait_ns },
            lease: PrimaryLease::new(group.epoch, now_ns),
            min_replicas: group.min_replicas.into(),
            recorded: Vec::new(),
            proposed: Vec::new(),
            is_unsure: false,
            replicas: BTreeMap::new(),
            fence,
            required: None,
        };
        new.recorded(group, now_ns);
        new
    }

    /// The group is recorded so.
    pub fn recorded(&mut self, group: &Group, now_ns: u64) {
        for &gone in self.recorded.iter().filter(|of| !group.in_sync.contains(of)) {
            if let Some(replica) = self.replicas.get_mut(&gone) {
                // One that was silent may keep up, and its standing is not sent again. Nothing waits for it now.
                if replica.standing == Some(ReplicaStanding::InSync) {
                    replica.standing = Some(ReplicaStanding::Joining);
                }
                replica.is_admitted = false;
                let is_long_ago = replica.away.has_passed(RETURN_BACKOFF_MAX_MS * NS_PER_MS);
                replica.departures = if is_long_ago { 1 } else { replica.departures + 1 };
                replica.away = Stopwatch::begin(now_ns);
            }
        }
        for &instance in &group.in_sync {
            self.replicas.entry(instance).or_insert_with(|| Replica::new(now_ns)).is_admitted =
                true;
        }
        self.recorded.clone_from(&group.in_sync);
        self.set_grantors();
    }

    /// It is not known whether what was proposed is recorded.
    pub fn be_unsure(&mut self) {
        self.is_unsure = !self.proposed.is_empty();
    }

    /// What was proposed is recorded, or will never be.
    pub fn end_proposal(&mut self) {
        self.proposed.clear();
        self.is_unsure = false;
        for (instance, replica) in &mut self.replicas {
            let lags = replica.standing == Some(ReplicaStanding::Behind);
            replica.is_admitted &= self.recorded.contains(instance) || !lags;
        }
        self.set_grantors();
    }

    /// The shards say how a replica stands.
    pub fn set_standing(&mut self, instance: Instance, standing: ReplicaStanding, now_ns: u64) {
        let is_needed = self.is_needed(&instance);
        let replica = self.replicas.entry(instance).or_insert_with(|| Replica::new(now_ns));
        replica.standing = Some(standing);
        if standing == ReplicaStanding::Behind && !is_needed {
            replica.is_admitted = false;
        }
        self.set_grantors();
    }

    /// A member has confirmed the lease.
    pub fn confirm(&mut self, from: Instance, ask: LeaseAsk, now_ns: u64) {
        self.lease.confirm(from, ask, now_ns);
        if let Some(replica) = self.replicas.get_mut(&from)
            && self.lease.is_confirmed_by(from, now_ns)
        {
            replica.silent = Stopwatch::begin(now_ns);
        }
    }

    /// All that this member has received is applied, and stored by those that it waits for.
    pub fn be_ready(&mut self) {
        if let Stage::Taking { is_ready, .. } = &mut self.stage {
            *is_ready = true;
        }
    }

    /// The member has withdrawn its ring just now.
    pub fn withdrawn(&mut self, now_ns: u64) {
        self.fence.get_or_insert(Stopwatch::begin(now_ns));
    }

    /// The primary of the epoch before has released it.
    pub fn need_not_wait(&mut self) {
        if let Stage::Taking { wait_ns, .. } = &mut self.stage {
            *wait_ns = 0;
        }
    }

    /// It is to be handed over. Whether it serves, so that it can be.
    pub fn hand_over(&mut self) -> bool {
        let serves = matches!(self.stage, Stage::Serving);
        if serves {
            // It counts from the next event on: the server ends the echoes first.
            self.stage = Stage::EndingReads { since: None };
        }
        serves
    }

    /// Whether it takes no changes any more, as it is handed over.
    pub fn is_draining(&self) -> bool {
        matches!(self.stage, Stage::Draining { .. })
    }

    /// Whether the member may acknowledge, and answer reads, at this time.
    pub fn serves(&mut self, now_ns: u64) -> bool {
        !self.is_taking() && self.lease.holds(now_ns)
    }

    /// Whether it has not begun to serve.
    pub fn is_taking(&self) -> bool {
        matches!(self.stage, Stage::Taking { .. })
    }

    /// Time has passed. What follows of it.
    pub fn tick(&mut self, now_ns: u64) -> Option<Step> {
        if let Some(fence) = &mut self.fence {
            fence.tick(now_ns);
        }
        for replica in self.replicas.values_mut() {
            replica.silent.tick(now_ns);
            replica.away.tick(now_ns);
        }
        let (stage, step) = match self.stage {
            Stage::Taking { is_ready: true, wait_ns }
                if self.fence.is_some_and(|fence| fence.has_passed(wait_ns)) =>
            {
                (Stage::Serving, Step::Serve)
            }
            Stage::Taking { .. } | Stage::Serving => return None,
            Stage::EndingReads { since } => {
                let mut since = since.unwrap_or(Stopwatch::begin(now_ns));
                since.tick(now_ns);
                if !since.has_passed(READERS_WAIT_NS) {
                    self.stage = Stage::EndingReads { since: Some(since) };
                    return None;
                }
                (Stage::Draining { since: Stopwatch::begin(now_ns) }, Step::StopChanges)
            }
            Stage::Draining { mut since } => {
                since.tick(now_ns);
                if !since.has_passed(HAND_OVER_TIMEOUT_MS * NS_PER_MS) {
                    self.stage = Stage::Draining { since };
                    return None;
                }
                (Stage::Serving, Step::ServeAgain)
            }
        };
        self.stage = stage;
        Some(step)
    }

    /// Lets replicas in that keep up, as far as they may enter the set by this topology.
    pub fn admit(&mut self, topology: &Topology) {
        let (recorded, proposed) = (&self.recorded, self.proposed.iter().flatten());
        let needed: Vec<_> = recorded.iter().chain(proposed).copied().collect();
        let has_joined = |of: &Instance| topology.role(*of).is_some();
        self.replicas.retain(|instance, _| needed.contains(instance) || has_joined(instance));
        for (instance, replica) in &mut self.replicas {
            let keeps_up = replica.standing.is_some_and(|of| of != ReplicaStanding::Behind);
            let may_enter = topology
                .member(instance.member)
                .is_some_and(|of| of.instance() == *instance && of.may_lead());
            replica.is_admitted |= keeps_up && may_enter && replica.may_return();
        }
        self.set_grantors();
    }

    /// What an acknowledgement needs, if that is not what was told before.
    pub fn changed_requirement(&mut self) -> Option<Required> {
        let stays = |of: &&Instance| self.proposed.iter().all(|set| set.contains(of));
        let counted = self.recorded.iter().filter(stays).copied().collect();
        let required = Required { wait_for: self.waited_for().collect(), counted };
        if self.required.as_ref() == Some(&required) {
            return None;
        }
        self.required = Some(required.clone());
        Some(required)
    }

    /// The set that should be recorded, if it is another one, or it is not known which one is.
    pub fn wanted_set(&self, topology: &Topology, now_ns: u64) -> Option<Vec<Instance>> {
        if matches!(self.stage, Stage::Draining { .. }) {
            return None;
        }
        let is_in =
            |(instance, replica): &(&Instance, &Replica)| match self.recorded.contains(instance) {
                true => replica.standing != Some(ReplicaStanding::Behind) && !replica.is_silent(),
                false => {
                    replica.is_admitted
                        && replica.standing == Some(ReplicaStanding::InSync)
                        && self.lease.is_confirmed_by(**instance, now_ns)
                }
            };
        let mut set: Vec<_> = self.replicas.iter().filter(is_in).map(|(of, _)| *of).collect();
        // A member that is taken away leaves as soon as there are enough others.
        let stays = |of: &Instance| topology.member(of.member).is_none_or(|of| of.may_lead());
        if set.iter().filter(|of| stays(of)).count() >= self.min_replicas {
            set.retain(stays);
        }
        (set != self.recorded || self.is_unsure).then_some(set)
    }

    /// Whether the primary is cut off from its replicas, which could go on without it: others that
    /// could lead are present at the coordinator, enough of them for one to lead the others.
    pub fn is_cut_off(&self, wanted: &[Instance], live: &[Instance]) -> bool {
        let others = self.recorded.iter().filter(|of| live.contains(of)).count();
        wanted.len() < self.min_replicas && others > self.min_replicas
    }

    /// It is proposed to record this set.
    pub fn propose(&mut self, set: Vec<Instance>) {
        if !self.proposed.contains(&set) {
            self.proposed.push(set);
        }
        self.set_grantors();
    }

    /// Instances that entries wait for, sorted.
    fn waited_for(&self) -> impl Iterator<Item = Instance> + '_ {
        let admitted = self.replicas.iter().filter(|(_, replica)| replica.is_admitted);
        // Those that are recorded or proposed are admitted, and stay so.
        admitted.map(|(instance, _)| *instance)
    }

    fn is_needed(&self, instance: &Instance) -> bool {
        let is_proposed = self.proposed.iter().any(|set| set.contains(instance));
        is_proposed || self.recorded.contains(instance)
    }

    fn set_grantors(&mut self) {
        let asked: Vec<_> = self.waited_for().map(|of| (of, self.is_needed(&of))).collect();
        debug_assert!(asked.iter().all(|(of, _)| *of != self.me));
        self.lease.set_grantors(asked);
    }
}
