//! What one member of a cluster does: which primary it follows, whether it leads, and which members its
//! leadership waits for. Events and time come in, actions go out.
//!
//! ```text
//!            the topology names another            the topology names this instance
//!   Follows <------------------------- Holds ----------------------------------> Leads
//!      |                                 ^                                         |
//!      '--- a watcher asks to withdraw --+---- an epoch above, or handed over -----'
//! ```
//! Invariants:
//! * it takes part in no epoch below that for which it has withdrawn its ring: it takes no entries of
//!   such a primary, and confirms no lease of it;
//! * it leads an epoch only if the recorded topology names this instance, and takes it once: to release
//!   it is to wait for the next epoch. A process that was started again is another instance: it
//!   resumes nothing by itself;
//! * an instance that the record names keeps its data, whatever it cannot do. A primary that cannot
//!   lead, or is cut off, *steps aside*: it ends its presence, so that a watcher may choose another
//!   one, and leads on if none is chosen. One that has released its epoch asks to record the next one
//!   with itself as the primary, if no other member takes it;
//! * it serves only behind the wait for the leases of the epoch before, counted from its own
//!   withdrawal, with all that it had received applied, and while its own lease holds;
//! * the coordinator's session decides nothing here: a primary whose session is lost leads on while
//!   its in-sync set confirms it, as no other member can be promoted meanwhile.
//!
//! The server carries the actions out in their order, and answers where it says so. It calls
//! [`Member::handle`] with [`Event::Tick`] at least every heartbeat.

use crate::coordinator::{self, Outcome, Refused, SessionState};
use crate::leadership::{Leadership, ReplicaStanding, Required, Step};
use crate::lease::{LEASE_TERM_NS, LeaseAsk, Stopwatch};
use crate::led_epoch::LedEpoch;
use crate::message::{Message, Position};
use crate::topology::change::{self, Joining};
use crate::topology::{self, Group, GroupId, Instance, MemberId, MemberState, Topology};
use remora_layout::limits::{
    CUT_OFF_MS, ENTER_AGAIN_MS, LEAD_AGAIN_MS, PROPOSE_AGAIN_DOUBLINGS, PROPOSE_AGAIN_MS,
    REFRESH_MS, RELEASED_TIMEOUT_MS,
};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

const NS_PER_MS: u64 = 1_000_000;

/// What a member hears.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// From the coordinator, but for its answers.
    Coordinator(coordinator::Event),
    /// What has become of [`Action::Propose`].
    Proposed(Outcome),
    /// What has become of [`Action::Enter`] of this instance.
    Entered(Instance, Outcome),
    /// Another instance has sent this to this instance.
    Message(Instance, Message),
    /// [`Action::Withdraw`] has happened: no entry of a primary below this epoch enters the memory of
    /// this member any more, and its log ends so.
    Withdrawn {
        /// The epoch of the action.
        epoch: u64,
        /// By shard, what was received, applied or not; `None` if the member has a part of a copy
        /// only, and could not lead.
        positions: Option<Vec<Position>>,
        /// What the directory says of the last epoch that a process of this server has led.
        led: Option<LedEpoch>,
    },
    /// What [`Action::Prepare`] of this epoch asked for has happened: all that was received is applied,
    /// and every instance of [`Required::wait_for`] has stored it. Until then no server knows which of it
    /// was acknowledged, so that no read could be answered.
    Ready(u64),
    /// [`Action::StopChanges`] of this epoch has happened: every change is acknowledged that was
    /// taken, and the log ends so.
    Drained {
        /// The epoch of the action.
        epoch: u64,
        /// By shard.
        positions: Vec<Position>,
    },
    /// How a replica stands, at a primary.
    Replica(Instance, ReplicaStanding),
    /// What was received is applied, for [`Action::Prepare`] of this epoch.
    Applied(u64),
    /// What was received cannot be applied, for [`Action::Prepare`] of this epoch; the reason is for
    /// people. It is there still, and another [`Action::Prepare`] tries again.
    CannotLead(u64, String),
}

/// What the server does. The order counts.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Ask the coordinator to make this instance present; answered by [`Event::Entered`].
    Enter(Instance),
    /// Ask the coordinator to end the presence of this session.
    Leave,
    /// Have the newest topology delivered: let the coordinator renew by this version, and drop the
    /// answer. A member may read at a server of the coordinator that lags.
    Refresh(u64),
    /// Propose a topology to the coordinator; answered by [`Event::Proposed`].
    Propose(Topology),
    /// Send a message to another instance. It may be lost.
    Send(Instance, Message),
    /// Neither take changes nor answer reads nor echo clocks, and follow no primary. What is in flight is
    /// `unknown` to its client.
    Hold,
    /// Withdraw the ring of any primary below this epoch, and answer by [`Event::Withdrawn`].
    Withdraw(u64),
    /// Follow this primary. Its address is in the topology.
    Follow(Instance),
    /// Begin this epoch: apply all that was received, let replicas follow, take no changes yet;
    /// answered by [`Event::Applied`] and then [`Event::Ready`], or by [`Event::CannotLead`].
    Prepare(u64),
    /// Take changes and answer reads in this epoch, whenever the lease holds.
    Serve(u64),
    /// What an acknowledgement needs from now on.
    Require(Required),
    /// Serve, and renew no client's read lease: neither by heartbeats nor by replies.
    StopEchoes(u64),
    /// Take no changes; answered by [`Event::Drained`].
    StopChanges(u64),
    /// The cluster has forgotten this instance: end its presence, and its candidacy as the watcher. Nothing
    /// follows.
    Retire,
    /// For the log: a transition with its reason.
    Say(Notice),
}

/// A transition, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// It follows a primary.
    Follows(Instance, u64),
    /// A watcher has asked it to withdraw the rings below this epoch.
    Withdraws(u64),
    /// It was promoted, and waits until it may serve.
    Takes(u64),
    /// It serves.
    Serves(u64),
    /// Its epoch is over: another one has begun.
    Deposed(u64, u64),
    /// It has handed its epoch over.
    HandedOver(u64),
    /// A hand-over took too long: it leads on.
    LeadsOn(u64),
    /// The lease of this epoch has lapsed: nothing is acknowledged, and no read is answered.
    LeaseLapsed(u64),
    /// The lease holds again.
    LeaseHolds(u64),
    /// It asks to record this in-sync set.
    ChangesSet(Vec<Instance>, Vec<Instance>),
    /// It is cut off from its replicas, which can go on without it: it steps aside.
    CutOff(u64),
    /// It steps aside, as it cannot lead.
    CannotLead(u64, String),
    /// It stepped aside, and no other member was promoted: it leads on.
    IsBack(u64),
    /// It released an epoch, and no other has begun: it asks to lead the next one.
    NotTaken(u64),
    /// Another session has the presence of this member.
    IsPresentElsewhere,
    /// A server that is present has an address of this one: this one does not join.
    AddressInUse(MemberId, String),
    /// The cluster has forgotten this server while it ran.
    Removed,
    /// The cluster refuses this server; why.
    NotAdmitted(change::Refusal),
}

impl Display for Notice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Follows(primary, epoch) => {
                write!(f, "following {primary}, which leads epoch {epoch}")
            }
            Self::Withdraws(epoch) => {
                write!(f, "a watcher asks: the log ring of every epoch below {epoch} is withdrawn")
            }
            Self::Takes(epoch) => write!(
                f,
                "this server is promoted to lead epoch {epoch}, and waits until the leases of the epoch before have ended"
            ),
            Self::Serves(epoch) => write!(f, "this server leads epoch {epoch}, and serves"),
            Self::Deposed(epoch, next) => {
                write!(f, "this server leads epoch {epoch} no more: epoch {next} has begun")
            }
            Self::HandedOver(epoch) => write!(f, "this server has handed epoch {epoch} over"),
            Self::LeadsOn(epoch) => {
                write!(f, "the hand-over of epoch {epoch} took too long: this server leads on")
            }
            Self::LeaseLapsed(epoch) => write!(
                f,
                "the lease of epoch {epoch} has lapsed, as not all of the in-sync set answers: nothing is acknowledged until it does, or the coordinator has recorded a smaller set"
            ),
            Self::LeaseHolds(epoch) => write!(f, "the lease of epoch {epoch} holds"),
            Self::ChangesSet(from, to) => {
                let text = |of: &[Instance]| {
                    of.iter().map(|of| of.member.to_string()).collect::<Vec<_>>().join(" ")
                };
                write!(f, "the in-sync set is to be [{}], and was [{}]", text(to), text(from))
            }
            Self::CutOff(epoch) => write!(
                f,
                "this server leaves epoch {epoch} to its replicas, of which it reaches too few: they could go on without it. Its data stay"
            ),
            Self::CannotLead(epoch, why) => write!(
                f,
                "this server cannot lead epoch {epoch} now, so that another one may. Its data stay, and it tries again: {why}"
            ),
            Self::IsBack(epoch) => {
                write!(f, "no other server was promoted: this server leads epoch {epoch} on")
            }
            Self::NotTaken(epoch) => write!(
                f,
                "this server has released epoch {epoch}, and no other epoch has begun: it asks to lead the next one. Its data stay"
            ),
            Self::IsPresentElsewhere => write!(
                f,
                "another process, or a session before this one, is present at the coordinator as this server: trying again"
            ),
            Self::AddressInUse(member, address) => write!(
                f,
                "this server does not join: server {member} is at {address}, too, and is present. If that was a process before this one, it joins once the session of that has ended; else give each server an address of its own (--bind, --announce)"
            ),
            Self::Removed => write!(
                f,
                "the cluster has forgotten this server: it takes no part any more. Start it again to let it join again"
            ),
            Self::NotAdmitted(why) => write!(f, "the cluster does not admit this server: {why}"),
        }
    }
}

#[derive(Clone, Debug)]
enum Role {
    Holds,
    Follows {
        primary: Instance,
        epoch: u64,
    },
    Leads(Box<Leadership>),
    /// It has released this epoch, and waits for the next.
    Released {
        epoch: u64,
        since: Stopwatch,
        /// It has said that no other server takes it.
        has_said: bool,
    },
    /// The cluster has forgotten it: no event changes that.
    Retired,
}

/// A primary that is not present, so that a watcher may choose another one. It proposes nothing: those that
/// could be chosen stay in the set.
#[derive(Clone, Copy, Debug)]
enum Aside {
    /// It cannot apply what it has received, since it has tried last; `None`: it is trying.
    CannotApply(Option<Stopwatch>),
    /// It is cut off from its replicas, since then.
    CutOff(Stopwatch),
}

/// What the member is, for status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// It has no part in the present epoch.
    Holds,
    /// It follows this primary in this epoch.
    Follows(Instance, u64),
    /// It leads this epoch, and does not serve yet, or its lease has lapsed.
    Waits(u64),
    /// It leads this epoch, and serves.
    Serves(u64),
}

/// See the module's text. Times are ns of a monotonic clock.
#[derive(Clone, Debug)]
pub struct Member {
    me: Instance,
    joining: Joining,
    topology: Option<Arc<Topology>>,
    live: Vec<Instance>,
    session: SessionState,
    /// Whether the coordinator has to be asked for a presence, and since when it was not.
    must_enter: bool,
    entered: Option<Stopwatch>,
    /// It leads, and steps aside for another one.
    aside: Option<Aside>,
    is_present_elsewhere: bool,
    /// A topology had this instance, so that one without its member has forgotten it.
    was_in: bool,
    /// Why it does not join, as it was said last.
    not_joining: Option<Notice>,
    role: Role,
    /// It takes part in no epoch below this one.
    fenced: u64,
    /// Since it has withdrawn the rings below that, if a watcher has asked for it,
    fence: Option<Stopwatch>,
    /// by a topology of this version.
    fence_version: u64,
    /// Proposals in a row that were not recorded, and since when the last one was not.
    refusals: u32,
    refused: Option<Stopwatch>,
    /// The version of the last proposal, and whether its answer has not come.
    proposed: u64,
    in_flight: bool,
    /// Some proposal of that version may be recorded, and its answer will not come. What a member reads
    /// may be old, so that only a topology of that version, or a later one, tells.
    is_unsure: bool,
    watcher: Option<Instance>,
    lease_held: bool,
    /// Since the lease of this leadership lapsed.
    lapsed: Option<Stopwatch>,
    /// An epoch that this instance may begin at once: that before it was released.
    released: u64,
    refreshed: Option<Stopwatch>,
    /// Begun with this event.
    now: Stopwatch,
    actions: Vec<Action>,
}

impl Member {
    /// An instance that was just started, and takes no part yet.
    pub fn new(joining: Joining) -> Self {
        Self {
            me: joining.instance,
            joining,
            topology: None,
            live: Vec::new(),
            session: SessionState::Suspended,
            must_enter: true,
            entered: None,
            aside: None,
            is_present_elsewhere: false,
            was_in: false,
            not_joining: None,
            role: Role::Holds,
            fenced: 0,
            fence: None,
            fence_version: 0,
            refusals: 0,
            refused: None,
            proposed: 0,
            in_flight: false,
            is_unsure: false,
            watcher: None,
            lease_held: true,
            lapsed: None,
            released: 0,
            refreshed: None,
            now: Stopwatch::begin(0),
            actions: Vec::new(),
        }
    }

    /// This instance.
    pub fn instance(&self) -> Instance {
        self.me
    }

    /// The newest topology that it knows.
    pub fn topology(&self) -> Option<&Arc<Topology>> {
        self.topology.as_ref()
    }

    /// The group whose keys it holds.
    pub fn group(&self) -> GroupId {
        self.joining.group
    }

    /// Whether its data may be cleared, to copy another server: the newest topology that it knows does not
    /// say that this instance has every acknowledged entry. Else it may have to lead, and the others may
    /// have lost what it has.
    pub fn may_clear(&self) -> bool {
        let group = self.topology.as_ref().and_then(|of| of.group(self.joining.group));
        group.is_none_or(|of| !of.has_all_acknowledged(self.me))
    }

    /// What it is at this time.
    pub fn part(&mut self, now_ns: u64) -> Part {
        match &mut self.role {
            Role::Follows { primary, epoch } => Part::Follows(*primary, *epoch),
            Role::Leads(of) => match of.serves(now_ns) {
                true => Part::Serves(of.epoch),
                false => Part::Waits(of.epoch),
            },
            Role::Holds | Role::Released { .. } | Role::Retired => Part::Holds,
        }
    }

    /// Whether it may acknowledge changes, answer reads and echo clocks at this time, in this epoch.
    /// Look at it *behind* what it is to protect: see [`crate::lease`].
    pub fn serves(&mut self, epoch: u64, now_ns: u64) -> bool {
        match &mut self.role {
            Role::Leads(of) => of.epoch == epoch && of.serves(now_ns),
            _ => false,
        }
    }

    /// Until when [`Member::serves`] says so, if nothing happens meanwhile; 0 if it does not. For
    /// threads that compare a number with their clock: it is at most a lease's term away, also if no
    /// member has to confirm the lease. That may change before the thread that writes the number runs again.
    pub fn serves_until_ns(&mut self, now_ns: u64) -> u64 {
        match &mut self.role {
            Role::Leads(of) => match of.serves(now_ns) {
                true => of.lease.until_ns().min(now_ns.saturating_add(LEASE_TERM_NS)),
                false => 0,
            },
            _ => 0,
        }
    }

    /// Takes an event, at this time. What the server is to do.
    pub fn handle(&mut self, now_ns: u64, event: Event) -> Vec<Action> {
        if matches!(self.role, Role::Retired) {
            return Vec::new();
        }
        self.now = Stopwatch::begin(now_ns);
        let clocks = [
            &mut self.fence,
            &mut self.entered,
            &mut self.refused,
            &mut self.refreshed,
            &mut self.lapsed,
        ];
        clocks.into_iter().flatten().for_each(|clock| clock.tick(now_ns));
        match event {
            Event::Tick => self.tick(now_ns),
            Event::Coordinator(event) => self.hear_coordinator(event, now_ns),
            Event::Proposed(outcome) => {
                self.proposed(outcome, now_ns);
                self.propose_at_once(now_ns);
            }
            Event::Entered(of, outcome) if of == self.me => self.entered(outcome),
            Event::Entered(..) => {}
            Event::Message(from, message) => self.hear(from, message, now_ns),
            Event::Withdrawn { epoch, positions, led } => {
                self.withdrawn((epoch, positions, led), now_ns);
            }
            Event::Ready(epoch) => {
                if let Role::Leads(of) = &mut self.role
                    && of.epoch == epoch
                {
                    of.be_ready();
                }
            }
            Event::Drained { epoch, positions } => self.drained(epoch, positions, now_ns),
            Event::Replica(instance, standing) => {
                if let Role::Leads(of) = &mut self.role {
                    of.set_standing(instance, standing, now_ns);
                }
            }
            Event::Applied(epoch) => self.applied(epoch),
            Event::CannotLead(epoch, why) => self.cannot_lead((epoch, why), now_ns),
        }
        self.require();
        std::mem::take(&mut self.actions)
    }

    fn hear_coordinator(&mut self, event: coordinator::Event, now_ns: u64) {
        match event {
            coordinator::Event::Session(state) => {
                self.session = state;
                if state != SessionState::Suspended {
                    (self.must_enter, self.entered) = (true, None);
                }
            }
            coordinator::Event::Topology(topology) => self.hear_topology(topology, now_ns),
            coordinator::Event::Members(live) => {
                let is_present = live.contains(&self.me);
                self.must_enter |= !is_present;
                self.live = live;
            }
            // A watcher's business, or the server's.
            coordinator::Event::NoTopology
            | coordinator::Event::UnreadableTopology(_)
            | coordinator::Event::Standing(_)
            | coordinator::Event::Answer(..) => {}
        }
    }

    fn proposed(&mut self, outcome: Outcome, now_ns: u64) {
        self.in_flight = false;
        match outcome {
            Outcome::Unknown => {
                self.is_unsure = true;
                if let Role::Leads(of) = &mut self.role {
                    of.be_unsure();
                }
            }
            // The topology that was recorded, this one or another, was delivered before.
            Outcome::Done => (self.refusals, self.refused) = (0, None),
            Outcome::Refused(_) | Outcome::NotSent => {
                self.refusals = self.refusals.saturating_add(1);
                self.refused = Some(Stopwatch::begin(now_ns));
            }
        }
        if !self.is_unsure {
            self.end_proposal();
        }
    }

    fn end_proposal(&mut self) {
        self.is_unsure = false;
        if let Role::Leads(of) = &mut self.role {
            of.end_proposal();
        }
    }

    /// What was refused was made of a topology that was old, and the newest one came with the refusal: the
    /// next proposal is made of that before there is a newer one.
    fn propose_at_once(&mut self, now_ns: u64) {
        if !self.is_refused_once() {
            return;
        }
        self.join();
        if matches!(self.role, Role::Leads(_)) {
            self.change_set(now_ns);
        }
    }

    /// Whether the last proposal was refused, and the one before it was not made just before.
    const fn is_refused_once(&self) -> bool {
        !self.refusals.is_multiple_of(2)
    }

    /// Whether it may propose again. Many members propose at once when all were started, and one of
    /// them is recorded: the others come again at times that differ, and are further apart each time.
    /// Each time they propose twice: see [`Member::propose_at_once`].
    fn has_backed_off(&self) -> bool {
        if self.is_refused_once() {
            return true;
        }
        let longest = PROPOSE_AGAIN_MS << (self.refusals / 2).min(PROPOSE_AGAIN_DOUBLINGS);
        let mixed =
            (self.me.incarnation ^ u64::from(self.refusals)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let wait_ns = (mixed >> 32) % (longest * NS_PER_MS);
        self.refused.is_none_or(|since| since.has_passed(wait_ns))
    }

    fn entered(&mut self, outcome: Outcome) {
        self.must_enter = outcome != Outcome::Done;
        let is_elsewhere = outcome == Outcome::Refused(Refused::IsPresent);
        if is_elsewhere && !std::mem::replace(&mut self.is_present_elsewhere, is_elsewhere) {
            self.say(Notice::IsPresentElsewhere);
        }
    }

    fn hear_topology(&mut self, topology: Arc<Topology>, now_ns: u64) {
        let before = self.topology.as_ref();
        if before.is_some_and(|of| of.version > topology.version || of.cluster != topology.cluster)
        {
            return;
        }
        // What was proposed is recorded by now, or never will be.
        let is_decided = topology.version >= self.proposed;
        self.topology = Some(Arc::clone(&topology));
        if self.is_forgotten(&topology) {
            return self.retire();
        }
        if let Some(group) = topology.group(self.joining.group) {
            self.take_part(&topology, group, now_ns);
        }
        if is_decided {
            self.end_proposal();
        }
    }

    /// Whether it was in the cluster, and is not any more.
    fn is_forgotten(&mut self, topology: &Topology) -> bool {
        let found = topology.member(self.me.member);
        self.was_in |= found.is_some_and(|of| of.instance() == self.me);
        self.was_in && found.is_none()
    }

    /// An operator has removed it, or a server at its address that has another id. It does not join again by
    /// itself: that would undo what was decided.
    fn retire(&mut self) {
        self.give_up();
        self.role = Role::Retired;
        self.actions.push(Action::Retire);
        self.say(Notice::Removed);
    }

    /// Takes the part that the topology gives to this instance.
    fn take_part(&mut self, topology: &Topology, group: &Group, now_ns: u64) {
        let is_out = topology.version > self.fence_version && !group.has_all_acknowledged(self.me);
        if group.epoch + 1 == self.fenced && is_out {
            // It was to be withdrawn for an election, and cannot be elected any more.
            (self.fenced, self.fence) = (group.epoch, None);
        }
        let own_epoch = match &self.role {
            Role::Leads(of) => of.epoch,
            Role::Follows { epoch, .. } | Role::Released { epoch, .. } => *epoch,
            Role::Holds | Role::Retired => 0,
        };
        let is_new = group.epoch > own_epoch;
        if is_new && matches!(self.role, Role::Leads(_)) {
            self.give_up();
            self.say(Notice::Deposed(own_epoch, group.epoch));
        }
        let Some(primary) = group.primary.filter(|_| group.epoch >= self.fenced) else { return };
        match &mut self.role {
            Role::Leads(of) if primary == self.me => of.recorded(group, now_ns),
            _ if !is_new => {}
            // A process of this server before this one: a watcher chooses another.
            _ if primary != self.me && primary.member == self.me.member => {}
            _ if primary != self.me => self.follow(primary, group.epoch),
            _ => self.take(group, now_ns),
        }
    }

    fn follow(&mut self, primary: Instance, epoch: u64) {
        (self.fenced, self.fence) = (epoch, None);
        self.role = Role::Follows { primary, epoch };
        self.actions.push(Action::Follow(primary));
        self.say(Notice::Follows(primary, epoch));
    }

    /// This instance is promoted.
    fn take(&mut self, group: &Group, now_ns: u64) {
        if self.fenced != group.epoch || self.fence.is_none() {
            // No watcher has asked it to withdraw: it does so now, and waits from then on.
            self.actions.push(Action::Withdraw(group.epoch));
            (self.fenced, self.fence) = (group.epoch, None);
        }
        self.role = Role::Leads(Box::new(Leadership::new(self.me, group, self.fence, now_ns)));
        (self.lease_held, self.lapsed) = (true, None);
        self.actions.push(Action::Prepare(group.epoch));
        self.use_release();
        self.say(Notice::Takes(group.epoch));
    }

    /// Leads no more.
    fn give_up(&mut self) {
        self.end_aside();
        self.role = Role::Holds;
        self.actions.push(Action::Hold);
    }

    fn hear(&mut self, from: Instance, message: Message, now_ns: u64) {
        match message {
            Message::Withdraw { group, epoch, version } if group == self.joining.group => {
                self.withdraw(from, epoch, version);
            }
            Message::HandOver { group, epoch } if group == self.joining.group => {
                self.hand_over(from, epoch);
            }
            Message::Begun { group, epoch, is_released } if group == self.joining.group => {
                self.begun(epoch, is_released);
            }
            Message::AskLease(ask) => {
                self.know_epoch(ask.epoch);
                self.confirm_lease(from, ask);
            }
            Message::ConfirmLease(ask) => {
                if let Role::Leads(of) = &mut self.role {
                    of.confirm(from, ask, now_ns);
                }
            }
            // To watchers, to another group, or nothing.
            Message::Withdraw { .. }
            | Message::HandOver { .. }
            | Message::Begun { .. }
            | Message::Withdrawn { .. }
            | Message::Released { .. } => {}
        }
    }

    /// A watcher says that this instance was promoted.
    fn begun(&mut self, epoch: u64, is_released: bool) {
        self.released = self.released.max(if is_released { epoch } else { 0 });
        self.know_epoch(epoch);
        self.use_release();
    }

    /// The primary of the epoch before has released it: there is nothing to wait out.
    fn use_release(&mut self) {
        if let Role::Leads(of) = &mut self.role
            && of.epoch == self.released
        {
            of.need_not_wait();
        }
    }

    /// There is such an epoch: has the topology delivered that says so.
    fn know_epoch(&mut self, epoch: u64) {
        let Some(topology) = &self.topology else { return };
        let known = topology.group(self.joining.group).map_or(0, |of| of.epoch);
        let is_due = self.refreshed.is_none_or(|at| at.has_passed(REFRESH_MS * NS_PER_MS));
        if epoch > known && is_due && self.session == SessionState::Connected {
            self.refreshed = Some(self.now);
            self.actions.push(Action::Refresh(topology.version));
        }
    }

    fn confirm_lease(&mut self, from: Instance, ask: LeaseAsk) {
        let is_its = matches!(self.role, Role::Follows { primary, epoch } if primary == from && epoch == ask.epoch);
        if is_its && ask.epoch >= self.fenced {
            self.actions.push(Action::Send(from, Message::ConfirmLease(ask)));
        }
    }

    /// A watcher asks to withdraw the rings below this epoch.
    fn withdraw(&mut self, watcher: Instance, epoch: u64, version: u64) {
        let group = self.topology.as_ref().and_then(|of| of.group(self.joining.group));
        // By that topology it cannot be promoted any more, if it could before; and no later one comes that
        // would let it take part again.
        let is_out = group.is_some_and(|of| !of.has_all_acknowledged(self.me) && of.epoch > 0)
            && self.topology.as_ref().is_some_and(|of| of.version > version);
        let has_begun = group.is_some_and(|of| of.epoch >= epoch);
        let is_old = has_begun || is_out || epoch < self.fenced;
        // Watchers ask those that could be promoted. A primary goes by the topology.
        if is_old || !matches!(self.role, Role::Holds | Role::Follows { .. }) {
            return;
        }
        if epoch > self.fenced {
            if matches!(self.role, Role::Follows { .. }) {
                self.role = Role::Holds;
                self.actions.push(Action::Hold);
            }
            (self.fenced, self.fence) = (epoch, None);
            self.say(Notice::Withdraws(epoch));
        }
        self.fence_version = self.fence_version.max(version);
        self.watcher = Some(watcher);
        self.actions.push(Action::Withdraw(epoch));
    }

    fn withdrawn(
        &mut self,
        (epoch, positions, led): (u64, Option<Vec<Position>>, Option<LedEpoch>),
        now_ns: u64,
    ) {
        if epoch != self.fenced {
            return;
        }
        match &mut self.role {
            Role::Leads(of) if of.epoch == epoch => return of.withdrawn(now_ns),
            Role::Holds => {}
            _ => return,
        }
        self.fence.get_or_insert(Stopwatch::begin(now_ns));
        if let (Some(watcher), Some(positions)) = (self.watcher, positions) {
            let group = self.joining.group;
            let message = Message::Withdrawn { group, epoch, positions, led };
            self.actions.push(Action::Send(watcher, message));
        }
    }

    fn hand_over(&mut self, watcher: Instance, epoch: u64) {
        if let Role::Leads(of) = &mut self.role
            && of.epoch == epoch
            && of.hand_over()
        {
            self.watcher = Some(watcher);
            self.actions.push(Action::StopEchoes(epoch));
        }
    }

    /// All is acknowledged: the epoch is released.
    fn drained(&mut self, epoch: u64, positions: Vec<Position>, now_ns: u64) {
        let is_it = matches!(&self.role, Role::Leads(of) if of.epoch == epoch && of.is_draining());
        if !is_it {
            return;
        }
        self.give_up();
        self.role = Role::Released { epoch, since: Stopwatch::begin(now_ns), has_said: false };
        self.say(Notice::HandedOver(epoch));
        if let Some(watcher) = self.watcher {
            let group = self.joining.group;
            self.actions.push(Action::Send(watcher, Message::Released { group, epoch, positions }));
        }
    }

    fn leads(&self, epoch: u64) -> bool {
        matches!(&self.role, Role::Leads(of) if of.epoch == epoch)
    }

    fn applied(&mut self, epoch: u64) {
        if self.leads(epoch) && matches!(self.aside, Some(Aside::CannotApply(_))) {
            self.end_aside();
            self.say(Notice::IsBack(epoch));
        }
    }

    fn cannot_lead(&mut self, (epoch, why): (u64, String), now_ns: u64) {
        if self.leads(epoch) {
            if !matches!(self.aside, Some(Aside::CannotApply(_))) {
                self.say(Notice::CannotLead(epoch, why));
            }
            self.step_aside(Aside::CannotApply(Some(Stopwatch::begin(now_ns))));
        }
    }

    fn step_aside(&mut self, aside: Aside) {
        if self.aside.replace(aside).is_none() {
            self.actions.push(Action::Leave);
        }
    }

    fn end_aside(&mut self) {
        if self.aside.take().is_some() {
            (self.must_enter, self.entered, self.lapsed) = (true, None, None);
        }
    }

    /// While it has stepped aside: tries again, or comes back.
    fn stay_aside(&mut self, now_ns: u64) {
        let Role::Leads(of) = &mut self.role else { return };
        let (epoch, holds) = (of.epoch, of.lease.holds(now_ns));
        match &mut self.aside {
            Some(Aside::CannotApply(failed)) => {
                failed.iter_mut().for_each(|at| at.tick(now_ns));
                if failed.take_if(|at| at.has_passed(LEAD_AGAIN_MS * NS_PER_MS)).is_some() {
                    self.actions.push(Action::Prepare(epoch));
                }
            }
            Some(Aside::CutOff(since)) => {
                since.tick(now_ns);
                // A member that a watcher has asked confirms no lease any more.
                if holds || since.has_passed(RELEASED_TIMEOUT_MS * NS_PER_MS) {
                    self.end_aside();
                    self.say(Notice::IsBack(epoch));
                }
            }
            None => {}
        }
    }

    /// No other member takes the epoch after the one that it has released. It has every acknowledged entry, so that it may lead the
    /// next one: either that is recorded, or the promotion of another one.
    fn take_back(&mut self, epoch: u64) {
        let Some(topology) = self.topology.clone() else { return };
        if let Role::Released { has_said, .. } = &mut self.role
            && !std::mem::replace(has_said, true)
        {
            self.say(Notice::NotTaken(epoch));
        }
        let author = (self.me, epoch);
        if self.may_propose()
            && let Ok(next) = change::take_back(&topology, self.joining.group, author)
        {
            // The primary of the epoch before is this one, which has released it.
            self.released = self.released.max(epoch + 1);
            self.propose(next);
        }
    }

    fn tick(&mut self, now_ns: u64) {
        self.be_present(now_ns);
        self.join();
        match &mut self.role {
            Role::Leads(_) => self.lead(now_ns),
            Role::Released { epoch, since, .. } => {
                since.tick(now_ns);
                if since.has_passed(RELEASED_TIMEOUT_MS * NS_PER_MS) {
                    let epoch = *epoch;
                    self.take_back(epoch);
                }
            }
            // It may be elected, and the message lost.
            Role::Holds => self.know_epoch(self.fenced),
            Role::Follows { .. } | Role::Retired => {}
        }
    }

    /// Asks for its presence, or for the end of it while it has stepped aside.
    fn be_present(&mut self, now_ns: u64) {
        let is_due = self.entered.is_none_or(|at| at.has_passed(ENTER_AGAIN_MS * NS_PER_MS));
        if self.session != SessionState::Connected || !is_due {
            return;
        }
        let is_aside = self.aside.is_some();
        let action = match () {
            () if is_aside && self.live.contains(&self.me) => Action::Leave,
            () if !is_aside && self.must_enter => Action::Enter(self.me),
            () => return,
        };
        self.entered = Some(Stopwatch::begin(now_ns));
        self.actions.push(action);
    }

    /// Joins the cluster, if the topology does not have this instance, at its addresses.
    fn join(&mut self) {
        let Some(topology) = self.topology.clone() else { return };
        let has_joined = topology.member(self.me.member).is_some_and(|of| {
            of.incarnation == self.me.incarnation
                && of.fabric_address == self.joining.fabric_address
                && of.resp_address == self.joining.resp_address
        });
        // While another process is present as this server, it is not known which of them stays.
        if has_joined || self.must_enter || !self.may_propose() {
            return;
        }
        let why = match self.address_in_use(&topology) {
            Some(notice) => notice,
            None => match change::join(&topology, self.joining.clone()) {
                Ok(next) => return self.propose(next),
                Err(refusal) => Notice::NotAdmitted(refusal),
            },
        };
        if self.not_joining.as_ref() != Some(&why) {
            self.not_joining = Some(why.clone());
            self.say(why);
        }
    }

    /// A member that is present has an address of this one. Each of them would replace the other, again and
    /// again.
    fn address_in_use(&self, topology: &Topology) -> Option<Notice> {
        let Joining { fabric_address, resp_address, .. } = &self.joining;
        let is_other = |of: &&topology::Member| {
            of.id != self.me.member
                && of.state != MemberState::Replaced
                && self.live.contains(&of.instance())
        };
        topology.members().iter().filter(is_other).find_map(|of| {
            let shared = match () {
                () if of.resp_address == *resp_address => resp_address,
                () if of.fabric_address == *fabric_address => fabric_address,
                () => return None,
            };
            Some(Notice::AddressInUse(of.id, shared.clone()))
        })
    }

    fn may_propose(&self) -> bool {
        let is_free = !self.in_flight && self.session == SessionState::Connected;
        is_free && self.has_backed_off()
    }

    fn propose(&mut self, next: Topology) {
        (self.proposed, self.in_flight) = (next.version, true);
        self.actions.push(Action::Propose(next));
    }

    fn lead(&mut self, now_ns: u64) {
        let Role::Leads(of) = &mut self.role else { return };
        let epoch = of.epoch;
        let ask = of.lease.ask(now_ns);
        let asks = of.lease.asked().map(|to| Action::Send(to, Message::AskLease(ask)));
        self.actions.extend(asks);
        match of.tick(now_ns) {
            Some(Step::Serve) => {
                self.actions.push(Action::Serve(epoch));
                self.say(Notice::Serves(epoch));
            }
            Some(Step::StopChanges) => self.actions.push(Action::StopChanges(epoch)),
            Some(Step::ServeAgain) => {
                self.actions.push(Action::Serve(epoch));
                self.say(Notice::LeadsOn(epoch));
            }
            None => {}
        }
        self.watch_lease(epoch, now_ns);
        match self.aside {
            Some(_) => self.stay_aside(now_ns),
            None => self.change_set(now_ns),
        }
    }

    fn watch_lease(&mut self, epoch: u64, now_ns: u64) {
        let Role::Leads(of) = &mut self.role else { return };
        let holds = of.lease.holds(now_ns);
        self.lapsed = if holds { None } else { self.lapsed.or(Some(self.now)) };
        if holds != self.lease_held && !of.is_taking() {
            self.lease_held = holds;
            self.say(if holds { Notice::LeaseHolds(epoch) } else { Notice::LeaseLapsed(epoch) });
        }
    }

    /// Asks to record another in-sync set, if there is a reason to.
    fn change_set(&mut self, now_ns: u64) {
        let Some(topology) = self.topology.clone() else { return };
        let may_propose = self.may_propose();
        let Role::Leads(of) = &mut self.role else { return };
        of.admit(&topology);
        let Some(set) = of.wanted_set(&topology, now_ns) else { return };
        let has_lapsed = self.lapsed.is_some_and(|at| at.has_passed(CUT_OFF_MS * NS_PER_MS));
        if has_lapsed && of.is_cut_off(&set, &self.live) {
            let epoch = of.epoch;
            self.say(Notice::CutOff(epoch));
            return self.step_aside(Aside::CutOff(Stopwatch::begin(now_ns)));
        }
        let (author, group) = ((self.me, of.epoch), self.joining.group);
        if may_propose && let Ok(next) = change::set_in_sync(&topology, group, author, set.clone())
        {
            of.propose(set.clone());
            let before = topology.group(group).map(|of| of.in_sync.clone()).unwrap_or_default();
            self.say(Notice::ChangesSet(before, set));
            self.propose(next);
        }
    }

    fn require(&mut self) {
        if let Role::Leads(of) = &mut self.role
            && let Some(required) = of.changed_requirement()
        {
            self.actions.push(Action::Require(required));
        }
    }

    fn say(&mut self, notice: Notice) {
        self.actions.push(Action::Say(notice));
    }
}
