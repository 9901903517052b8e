//! The elected watcher: it promotes a member of the in-sync set when a primary is gone (HydraDB 5.1,
//! H32: the leader of SWAT, the Status Watcher and reAct Team). Each member has one; the first
//! candidate at the coordinator acts.
//!
//! ```text
//!   primary gone ---------------------------.
//!   no primary yet -------------------------+--> Gathering --> Proposing --> told
//!   promote, drain --> HandingOver ---------'    Withdraw to    compare-     the new
//!                      the primary releases      the in-sync    and-set      primary
//!                      its epoch                 set
//! ```
//! Invariants:
//! * it proposes an instance only if that instance has withdrawn the old primary's ring for the next
//!   epoch, is in the recorded in-sync set of the epoch that ends, and is present;
//! * if no memory of the set is left, it proposes the server of the recorded primary, started again, if its
//!   disk has every acknowledged change (`by_disk.rs`);
//! * without such an instance it waits, and says why. It never takes one that may lack something;
//! * it decides by a topology and members that it has read since its session was connected last, and
//!   each decision is recorded only if that topology is the newest and its term lasts;
//! * whatever it forgets when it dies, the next watcher finds in the topology. What it did without an
//!   end is undone by the members: a primary drops a replica that has withdrawn its ring, and such a
//!   replica takes part again once it is out of the set.

use crate::by_disk::{NotByDisk, restarted_primary, successor_by_disk};
use crate::coordinator::{self, Outcome, Proposal, Refused, SessionState, Standing, Term};
use crate::lease::Stopwatch;
use crate::led_epoch::LedEpoch;
use crate::message::{Message, Position, can_follow, rank};
use crate::topology::change::{self, Promotion};
use crate::topology::{Group, GroupId, Instance, Member, MemberId, Topology};
use remora_layout::limits::{
    FAILOVER_BACKOFF_MAX_MS, FAILOVER_BACKOFF_MS, FAILOVER_HELD_BACKOFFS, FAILOVERS_AT_ONCE,
    HAND_OVER_TIMEOUT_MS, RELEASED_TIMEOUT_MS, WAIT_IS_SAID_MS, WITHDRAW_AGAIN_MS, WITHDRAW_ALL_MS,
    WITHDRAW_SILENT_AGAIN_MS,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

const NS_PER_MS: u64 = 1_000_000;
/// A hand-over that takes longer is given up: the primary has led on by then, or let its instance end.
const HAND_OVER_ENDS_MS: u64 = HAND_OVER_TIMEOUT_MS + RELEASED_TIMEOUT_MS;

/// What a watcher hears.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// Time has passed; at least every heartbeat.
    Tick,
    /// From the coordinator, but for its answers.
    Coordinator(coordinator::Event),
    /// What has become of [`Action::Stand`].
    Stood(Outcome),
    /// What has become of [`Action::Propose`].
    Proposed(Outcome),
    /// An instance has sent this.
    Message(Instance, Message),
    /// An operator wants this member to lead its group. Nothing happens at a server that is not the
    /// watcher.
    Promote(MemberId),
}

/// What the server does for its watcher.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Become a candidate; answered by [`Event::Stood`].
    Stand,
    /// Propose a topology; answered by [`Event::Proposed`].
    Propose(Proposal),
    /// Send a message to an instance. It may be lost.
    Send(Instance, Message),
    /// For the log.
    Say(Notice),
}

/// Why a group gets another primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It has had none.
    First,
    /// The primary is not present any more.
    Gone(Instance),
    /// The primary is being drained.
    Drained(Instance),
    /// An operator wants this member.
    Asked(MemberId),
}

impl Display for Stage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HandingOver => "its primary ends read leases, and what is in flight",
            Self::Gathering => "its in-sync set withdraws the log rings of the primary",
            Self::Proposing => "the next epoch is being recorded",
        })
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => write!(f, "it has had no primary"),
            Self::Gone(primary) => write!(f, "its primary {primary} is gone"),
            Self::Drained(primary) => write!(f, "its primary {primary} is being drained"),
            Self::Asked(member) => write!(f, "an operator wants {member} to lead"),
        }
    }
}

/// What a watcher does, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// This server is the watcher.
    Leads(Term),
    /// It is the watcher no more.
    LeadsNoMore(Term),
    /// A group is to get another primary.
    Begins(GroupId, Reason),
    /// The primary is there again, before any member had withdrawn its ring.
    IsBack(GroupId),
    /// No instance can be promoted: of the recorded in-sync set, these are not present, or have not
    /// answered. And why the server of the primary is not promoted by its disk, if there was a primary.
    Waits(GroupId, Vec<Instance>, Option<NotByDisk>),
    /// No memory of the recorded set is left. The disk of this instance, whose server led last, has every
    /// acknowledged change.
    HasAllOnDisk(GroupId, Instance),
    /// It has promoted this instance, for this epoch.
    Promoted(GroupId, Instance, u64),
    /// A promotion that an operator asked for is refused; why.
    Refused(GroupId, &'static str),
}

impl Display for Notice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leads(term) => {
                write!(f, "this server is the watcher of the cluster, in term {term}")
            }
            Self::LeadsNoMore(term) => {
                write!(f, "this server is the watcher no more; its term was {term}")
            }
            Self::Begins(group, reason) => {
                write!(f, "group {group} is to get another primary: {reason}")
            }
            Self::IsBack(group) => write!(f, "the primary of group {group} is there again"),
            Self::Waits(group, missing, not_by_disk) => {
                let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
                let missing = missing.join(", ");
                write!(
                    f,
                    "group {group} has no primary, and no member can be promoted: only an instance of its recorded in-sync set has every acknowledged entry. Waiting for one of [{missing}]"
                )?;
                match not_by_disk {
                    Some(why) => write!(
                        f,
                        "; {why}. If none can come back, an operator decides: remora cluster promote SERVER --accept-loss"
                    ),
                    None => Ok(()),
                }
            }
            Self::HasAllOnDisk(group, instance) => write!(
                f,
                "all servers of group {group} that had every acknowledged entry in memory are gone; the disk of {instance}, which led last, has all of them"
            ),
            Self::Promoted(group, to, epoch) => {
                write!(f, "{to} leads group {group} now, in epoch {epoch}")
            }
            Self::Refused(group, why) => write!(f, "group {group} keeps its primary: {why}"),
        }
    }
}

/// How far a failover is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The primary ends its clients' read leases, and what is in flight.
    HandingOver,
    /// The in-sync set withdraws the rings of the old primary.
    Gathering,
    /// The next epoch is being recorded.
    Proposing,
}

/// What an instance has answered.
#[derive(Clone, Debug)]
struct Answer {
    positions: Vec<Position>,
    led: Option<LedEpoch>,
}

#[derive(Clone, Debug)]
struct Failover {
    reason: Reason,
    /// The epoch that ends.
    epoch: u64,
    stage: Stage,
    /// Since this stage began, and since members were asked last.
    since: Stopwatch,
    asked: Option<Stopwatch>,
    /// What it waits for, once it has said so.
    waits: Option<Notice>,
    /// The instances that have withdrawn the ring, and how their logs end.
    answers: BTreeMap<Instance, Answer>,
    /// The primary that has released its epoch, and how its log ends.
    released: Option<(Instance, Vec<Position>)>,
}

impl Failover {
    fn new(reason: Reason, epoch: u64, stage: Stage, now_ns: u64) -> Self {
        Self {
            reason,
            epoch,
            stage,
            since: Stopwatch::begin(now_ns),
            asked: None,
            waits: None,
            answers: BTreeMap::new(),
            released: None,
        }
    }

    fn enter(&mut self, stage: Stage, now_ns: u64) {
        (self.stage, self.since, self.asked) = (stage, Stopwatch::begin(now_ns), None);
    }

    /// Whether it is time to ask, once or again.
    fn must_ask(&mut self, now_ns: u64) -> bool {
        // One that has been silent for long is asked less often: many groups may wait at once.
        let again_ms = match self.has_lasted(WAIT_IS_SAID_MS) {
            true => WITHDRAW_SILENT_AGAIN_MS,
            false => WITHDRAW_AGAIN_MS,
        };
        let again_ns = again_ms * NS_PER_MS;
        let must = self.asked.is_none_or(|asked| asked.has_passed(again_ns));
        if must {
            self.asked = Some(Stopwatch::begin(now_ns));
        }
        must
    }

    fn has_lasted(&self, ms: u64) -> bool {
        self.since.has_passed(ms * NS_PER_MS)
    }

    /// Of those that have answered the one that has received most; of equal ones that which is wanted.
    fn choose(&self, candidates: &[Instance]) -> Option<Instance> {
        let is_wanted = |of: &Instance| self.reason == Reason::Asked(of.member);
        let answered = candidates.iter().filter_map(|of| Some((*of, self.answers.get(of)?)));
        let best =
            answered.max_by_key(|(of, its)| (rank(&its.positions), is_wanted(of), Reverse(*of)));
        best.map(|(of, _)| of)
    }

    /// The instances that the new primary is to wait for: those that have withdrawn the ring too, and a
    /// primary that has handed over. None of them needs a copy.
    fn next_set(&self, group: &Group, to: Instance, live: &[Instance]) -> Vec<Instance> {
        let Some(Answer { positions: received, .. }) = self.answers.get(&to) else {
            return Vec::new();
        };
        let answer = |of: &Instance| Some((*of, &self.answers.get(of)?.positions));
        let in_sync = group.in_sync.iter().filter_map(answer);
        let released = self.released.iter().map(|(of, positions)| (*of, positions));
        let fits = |(of, positions): &(Instance, &Vec<Position>)| {
            *of != to && live.contains(of) && can_follow(positions, received)
        };
        in_sync.chain(released).filter(fits).map(|(of, _)| of).collect()
    }
}

/// When a group has failed over.
#[derive(Clone, Copy, Debug)]
struct Before {
    since: Stopwatch,
    times: u32,
}

impl Before {
    /// The wait before the next failover, ms.
    fn backoff_ms(&self) -> u64 {
        let Some(doublings) = self.times.checked_sub(2) else { return 0 };
        let longest = FAILOVER_BACKOFF_MAX_MS / FAILOVER_BACKOFF_MS;
        let times = 1u64.checked_shl(doublings).unwrap_or(longest).min(longest);
        times * FAILOVER_BACKOFF_MS
    }

    /// Whether the group may fail over again.
    fn has_backed_off(&self) -> bool {
        self.since.has_passed(self.backoff_ms() * NS_PER_MS)
    }

    /// Whether the primary that was promoted then has led for so long that its end is no sign of a group
    /// that cannot keep one.
    fn has_held(&self) -> bool {
        let wait_ms = self.backoff_ms().max(FAILOVER_BACKOFF_MS);
        self.since.has_passed(FAILOVER_HELD_BACKOFFS * wait_ms * NS_PER_MS)
    }

    fn is_long_ago(&self) -> bool {
        self.since.has_passed(FAILOVER_HELD_BACKOFFS * FAILOVER_BACKOFF_MAX_MS * NS_PER_MS)
    }
}

#[derive(Clone, Debug)]
struct Proposed {
    promotion: Promotion,
    /// The primary of the epoch that ends has released it.
    is_released: bool,
}

/// See the module's text. Times are ns of a monotonic clock.
#[derive(Clone, Debug)]
pub struct Watcher {
    session: SessionState,
    standing: Standing,
    /// Whether the coordinator was asked to stand, and has not answered.
    is_standing: bool,
    /// As they were read since the session was connected last.
    topology: Option<Arc<Topology>>,
    live: Option<Vec<Instance>>,
    failovers: BTreeMap<GroupId, Failover>,
    before: BTreeMap<GroupId, Before>,
    /// By group, the last promotion that an operator asked for and that was refused, and why.
    refused: BTreeMap<GroupId, (MemberId, &'static str)>,
    /// The promotion that was proposed.
    proposed: Option<Proposed>,
    actions: Vec<Action>,
}

impl Default for Watcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Watcher {
    /// One that is no candidate yet.
    pub fn new() -> Self {
        Self {
            session: SessionState::Suspended,
            standing: Standing::Out,
            is_standing: false,
            topology: None,
            live: None,
            failovers: BTreeMap::new(),
            before: BTreeMap::new(),
            refused: BTreeMap::new(),
            proposed: None,
            actions: Vec::new(),
        }
    }

    /// Its term, if it is the watcher.
    pub fn term(&self) -> Option<Term> {
        match self.standing {
            Standing::Leads(term) if self.session == SessionState::Connected => Some(term),
            _ => None,
        }
    }

    /// The failovers under way.
    pub fn failovers(&self) -> impl Iterator<Item = (GroupId, Reason, Stage)> + '_ {
        self.failovers.iter().map(|(group, of)| (*group, of.reason, of.stage))
    }

    /// The last promotions that operators have asked for, and that were refused: which member was to lead, and why it
    /// does not.
    pub fn refusals(&self) -> impl Iterator<Item = (GroupId, MemberId, &'static str)> + '_ {
        self.refused.iter().map(|(group, (member, why))| (*group, *member, *why))
    }

    /// What groups without a primary wait for, if they have waited for long.
    pub fn waits(&self) -> impl Iterator<Item = (GroupId, &Notice)> {
        self.failovers.iter().filter_map(|(group, of)| Some((*group, of.waits.as_ref()?)))
    }

    /// Takes an event, at this time. What the server is to do.
    pub fn handle(&mut self, now_ns: u64, event: Event) -> Vec<Action> {
        match event {
            Event::Tick => self.tick(now_ns),
            Event::Coordinator(event) => self.hear_coordinator(event),
            Event::Stood(_) => self.is_standing = false,
            Event::Proposed(outcome) => self.proposed(outcome, now_ns),
            Event::Message(from, message) => self.hear(from, message, now_ns),
            Event::Promote(member) => self.ask_for(member, now_ns),
        }
        if self.term().is_some() {
            self.go_on(now_ns);
        }
        std::mem::take(&mut self.actions)
    }

    fn hear_coordinator(&mut self, event: coordinator::Event) {
        let before = self.term();
        match event {
            coordinator::Event::Session(state) => {
                self.session = state;
                if state != SessionState::Connected {
                    self.forget();
                }
            }
            coordinator::Event::Standing(standing) => self.standing = standing,
            coordinator::Event::Topology(topology) => {
                let is_it = |id: &GroupId, of: &mut Failover| {
                    topology.group(*id).is_some_and(|group| group.epoch == of.epoch)
                };
                self.failovers.retain(is_it);
                self.topology = Some(topology);
                self.forget_strangers();
            }
            coordinator::Event::Members(live) => {
                self.live = Some(live);
                // A member that is present again is asked at once.
                self.failovers.values_mut().for_each(|of| of.asked = None);
            }
            coordinator::Event::NoTopology | coordinator::Event::UnreadableTopology(_) => {
                self.topology = None;
            }
            coordinator::Event::Answer(..) => {}
        }
        let now = self.term();
        if before != now {
            before.into_iter().for_each(|term| self.say(Notice::LeadsNoMore(term)));
            now.into_iter().for_each(|term| self.say(Notice::Leads(term)));
            self.failovers.clear();
            self.refused.clear();
        }
    }

    /// What it knows may be old: the session was interrupted.
    fn forget(&mut self) {
        (self.topology, self.live, self.proposed) = (None, None, None);
        self.failovers.clear();
        (self.standing, self.is_standing) = (Standing::Out, false);
    }

    fn proposed(&mut self, outcome: Outcome, now_ns: u64) {
        let Some(proposed) = self.proposed.take() else { return };
        let id = proposed.promotion.group;
        match outcome {
            Outcome::Done => self.promoted(proposed, now_ns),
            // The session was interrupted: all was forgotten, or will be.
            Outcome::Unknown => {}
            Outcome::Refused(Refused::NotWatcher) => self.standing = Standing::Waits,
            Outcome::Refused(_) | Outcome::NotSent => {}
        }
        // If the epoch lasts it is decided anew, by the topology that was recorded instead.
        if let Some(failover) = self.failovers.get_mut(&id) {
            failover.enter(Stage::Gathering, now_ns);
        }
    }

    fn promoted(&mut self, Proposed { promotion, is_released }: Proposed, now_ns: u64) {
        let (id, epoch) = (promotion.group, promotion.epoch + 1);
        self.say(Notice::Promoted(id, promotion.to, epoch));
        self.note(id, true, now_ns);
        self.send(promotion.to, Message::Begun { group: id, epoch, is_released });
    }

    /// The group has failed over just now, or has tried to. The next failover backs off for longer, unless
    /// the primary before this one has led for long.
    fn note(&mut self, id: GroupId, is_promoted: bool, now_ns: u64) {
        let before = self.before.get(&id).filter(|of| !of.is_long_ago());
        let times = before.map_or(1, |of| match is_promoted && of.has_held() {
            true => of.times.saturating_sub(1).max(1),
            false => of.times.saturating_add(1),
        });
        self.before.insert(id, Before { since: Stopwatch::begin(now_ns), times });
    }

    /// Of members that have left nothing is kept.
    fn forget_strangers(&mut self) {
        let Some(topology) = &self.topology else { return };
        for (id, of) in &mut self.failovers {
            of.answers.retain(|from, _| has_in_group(topology, *id, *from));
        }
    }

    fn hear(&mut self, from: Instance, message: Message, now_ns: u64) {
        // Else any process could fill the memory.
        if let Message::Withdrawn { group, .. } = &message
            && !self.topology.as_ref().is_some_and(|of| has_in_group(of, *group, from))
        {
            return;
        }
        match message {
            Message::Withdrawn { group, epoch, positions, led } => {
                if let Some(of) = self.failovers.get_mut(&group)
                    && epoch == of.epoch + 1
                {
                    of.answers.insert(from, Answer { positions, led });
                }
            }
            Message::Released { group, epoch, positions } => {
                if let Some(of) = self.failovers.get_mut(&group)
                    && (of.epoch, of.stage) == (epoch, Stage::HandingOver)
                {
                    of.released = Some((from, positions));
                    of.enter(Stage::Gathering, now_ns);
                }
            }
            // To members.
            Message::Withdraw { .. }
            | Message::HandOver { .. }
            | Message::Begun { .. }
            | Message::AskLease(_)
            | Message::ConfirmLease(_) => {}
        }
    }

    /// An operator wants this member to lead.
    fn ask_for(&mut self, member: MemberId, now_ns: u64) {
        let (Some(topology), Some(live)) = (self.topology.clone(), &self.live) else { return };
        let group = topology.member(member).and_then(|of| topology.group(of.group));
        let Some(group) = group.filter(|_| self.term().is_some()) else { return };
        let is_eligible = topology.eligible(group, live).any(|of| of.member == member);
        let under_way = self.failovers.get(&group.id).map(|of| of.reason);
        if under_way == Some(Reason::Asked(member)) {
            // Asked again: it is being done.
            return;
        }
        let why = match () {
            () if under_way.is_some() => "a failover is under way",
            () if group.primary.is_some_and(|of| of.member == member) => "it is that member",
            () if !is_eligible => "that member is not in the recorded in-sync set, or not present",
            () => {
                let reason = Reason::Asked(member);
                return self.begin(group, reason, Stage::HandingOver, now_ns);
            }
        };
        self.refuse(group.id, member, why);
    }

    fn refuse(&mut self, group: GroupId, member: MemberId, why: &'static str) {
        // A command asks again and again: the log has it once.
        if self.refused.insert(group, (member, why)) != Some((member, why)) {
            self.say(Notice::Refused(group, why));
        }
    }

    fn tick(&mut self, now_ns: u64) {
        for of in self.failovers.values_mut() {
            of.since.tick(now_ns);
            of.asked.iter_mut().for_each(|asked| asked.tick(now_ns));
        }
        self.before.values_mut().for_each(|of| of.since.tick(now_ns));
        self.before.retain(|_, of| !of.is_long_ago());
        if self.session == SessionState::Connected
            && self.standing == Standing::Out
            && !self.is_standing
        {
            self.is_standing = true;
            self.actions.push(Action::Stand);
        }
    }

    /// Looks at all groups, and goes on with those that are failing over.
    fn go_on(&mut self, now_ns: u64) {
        let (Some(topology), Some(live)) = (self.topology.clone(), self.live.clone()) else {
            return;
        };
        for group in topology.groups() {
            match self.failovers.contains_key(&group.id) {
                true => self.go_on_with(&topology, group, &live, now_ns),
                false => self.look_at(&topology, group, &live, now_ns),
            }
        }
    }

    /// Begins, if the group needs another primary.
    fn look_at(&mut self, topology: &Topology, group: &Group, live: &[Instance], now_ns: u64) {
        let has_time = self.before.get(&group.id).is_none_or(Before::has_backed_off);
        // Failovers that wait for a member delay no others.
        let busy = self.failovers.values().filter(|of| of.waits.is_none()).count();
        if busy >= FAILOVERS_AT_ONCE || !has_time {
            return;
        }
        let Some(primary) = group.primary else {
            let mut candidates = candidates(topology, group, live);
            if candidates.next().is_some() {
                self.begin(group, Reason::First, Stage::Gathering, now_ns);
            }
            return;
        };
        let may_lead = |of: Instance| topology.member(of.member).is_some_and(Member::may_lead);
        let drains = !may_lead(primary);
        if !live.contains(&primary) {
            self.begin(group, Reason::Gone(primary), Stage::Gathering, now_ns);
        } else if drains && topology.eligible(group, live).any(may_lead) {
            self.begin(group, Reason::Drained(primary), Stage::HandingOver, now_ns);
        }
    }

    fn begin(&mut self, group: &Group, reason: Reason, stage: Stage, now_ns: u64) {
        self.refused.remove(&group.id);
        self.say(Notice::Begins(group.id, reason));
        self.failovers.insert(group.id, Failover::new(reason, group.epoch, stage, now_ns));
    }

    fn go_on_with(&mut self, topology: &Topology, group: &Group, live: &[Instance], now_ns: u64) {
        let Some(of) = self.failovers.get_mut(&group.id) else { return };
        let is_there = group.primary.is_some_and(|primary| live.contains(&primary));
        match of.stage {
            Stage::HandingOver if !is_there => of.enter(Stage::Gathering, now_ns),
            Stage::HandingOver if of.has_lasted(HAND_OVER_ENDS_MS) => {
                let (reason, why) = (of.reason, "it did not release its epoch in time");
                self.failovers.remove(&group.id);
                self.note(group.id, false, now_ns);
                match reason {
                    Reason::Asked(member) => self.refuse(group.id, member, why),
                    _ => self.say(Notice::Refused(group.id, why)),
                }
            }
            Stage::HandingOver => {
                if let Some(primary) = group.primary
                    && of.must_ask(now_ns)
                {
                    let message = Message::HandOver { group: group.id, epoch: group.epoch };
                    self.send(primary, message);
                }
            }
            Stage::Gathering if is_there && of.answers.is_empty() && of.released.is_none() => {
                self.failovers.remove(&group.id);
                self.say(Notice::IsBack(group.id));
            }
            Stage::Gathering => self.gather(topology, group, live, now_ns),
            Stage::Proposing => {}
        }
    }

    /// Asks the instances that have not answered, and decides.
    fn gather(&mut self, topology: &Topology, group: &Group, live: &[Instance], now_ns: u64) {
        let Some(of) = self.failovers.get_mut(&group.id) else { return };
        let candidates: Vec<_> = candidates(topology, group, live).collect();
        let asked = group.in_sync.iter().chain(candidates.iter().filter(|_| group.epoch == 0));
        let missing: Vec<_> = asked.filter(|it| !of.answers.contains_key(it)).copied().collect();
        let must_ask = of.must_ask(now_ns);
        let is_late = of.has_lasted(WITHDRAW_ALL_MS);
        let may_decide = is_late || candidates.iter().all(|it| of.answers.contains_key(it));
        if let Some(to) = of.choose(&candidates).filter(|_| may_decide) {
            return self.propose(topology, group, (to, live), now_ns);
        }
        let told = |it: &Instance| of.answers.get(it).map(|answer| answer.led);
        let restarted = restarted_primary(topology, group, live).filter(|it| told(it).is_none());
        let not_by_disk = match successor_by_disk(topology, group, live, told) {
            Ok(to) if may_decide => return self.propose_restarted(topology, group, to, now_ns),
            Ok(_) => None,
            Err(why) => why,
        };
        if of.has_lasted(WAIT_IS_SAID_MS) {
            let waits = Notice::Waits(group.id, missing.clone(), not_by_disk);
            if of.waits.replace(waits.clone()).as_ref() != Some(&waits) {
                self.say(waits);
            }
        }
        // One that is not present could not be promoted, and is asked once it is.
        let may_ask = |to: &Instance| must_ask && live.contains(to);
        for to in missing.into_iter().chain(restarted).filter(may_ask) {
            let (epoch, version) = (group.epoch + 1, topology.version);
            self.send(to, Message::Withdraw { group: group.id, epoch, version });
        }
    }

    /// Proposes the next epoch, unless another proposal is under way.
    fn propose(
        &mut self,
        topology: &Topology,
        group: &Group,
        (to, live): (Instance, &[Instance]),
        now_ns: u64,
    ) {
        let Some(of) = self.failovers.get_mut(&group.id) else { return };
        if self.proposed.is_some() {
            return;
        }
        let promotion = Promotion {
            group: group.id,
            epoch: of.epoch,
            to,
            in_sync: of.next_set(group, to, live),
        };
        let is_released = of.released.is_some();
        match change::promote(topology, promotion.clone()) {
            Ok(next) => self.propose_next(next, Proposed { promotion, is_released }, now_ns),
            // Its member was started again, or is to be drained: one that is left is chosen next.
            Err(_) => {
                of.answers.remove(&to);
            }
        }
    }

    /// Proposes that the server of the recorded primary, started again, leads with what its disk has.
    fn propose_restarted(&mut self, topology: &Topology, group: &Group, to: Instance, now_ns: u64) {
        if self.proposed.is_some() {
            return;
        }
        let (id, epoch) = (group.id, group.epoch);
        let Ok(next) = change::promote_restarted(topology, id, epoch, to) else { return };
        self.say(Notice::HasAllOnDisk(id, to));
        let promotion = Promotion { group: id, epoch, to, in_sync: Vec::new() };
        self.propose_next(next, Proposed { promotion, is_released: false }, now_ns);
    }

    fn propose_next(&mut self, topology: Topology, proposed: Proposed, now_ns: u64) {
        if let Some(of) = self.failovers.get_mut(&proposed.promotion.group) {
            of.enter(Stage::Proposing, now_ns);
        }
        self.proposed = Some(proposed);
        let term = self.term();
        self.actions.push(Action::Propose(Proposal { topology, term }));
    }

    fn send(&mut self, to: Instance, message: Message) {
        self.actions.push(Action::Send(to, message));
    }

    fn say(&mut self, notice: Notice) {
        self.actions.push(Action::Say(notice));
    }
}

/// Whether the topology has an instance in a group.
fn has_in_group(topology: &Topology, id: GroupId, instance: Instance) -> bool {
    let is_named = topology.group(id).is_some_and(|of| of.has_all_acknowledged(instance));
    let member = topology.member(instance.member);
    is_named || member.is_some_and(|of| of.group == id && of.instance() == instance)
}

/// The instances that could be promoted.
fn candidates<'a>(
    topology: &'a Topology,
    group: &'a Group,
    live: &'a [Instance],
) -> impl Iterator<Item = Instance> + 'a {
    // In a group that has had no primary nothing was acknowledged.
    let first = topology.members_of(group.id).filter(move |_| group.epoch == 0);
    let first = first.filter(|of| of.may_lead()).map(Member::instance);
    topology.eligible(group, live).chain(first.filter(|of| live.contains(of)))
}
