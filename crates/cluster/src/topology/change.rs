//! The changes of a topology: each makes the next version of one, or says why it may not.
//!
//! | Change | Author |
//! | --- | --- |
//! | [`join`] | the member itself, with each start |
//! | [`set_in_sync`] | the primary of that epoch: it alone knows which instances have every entry |
//! | [`take_back`] | the primary that has released its epoch, if no other member takes the next one |
//! | [`promote`] | the watcher, after it has withdrawn the log rings of the old primary |
//! | [`promote_restarted`] | the watcher, where the directory of the primary has every acknowledged entry |
//! | [`promote_with_loss`] | an operator, where nothing is left that has every acknowledged entry |
//! | [`drain`], [`undrain`], [`leave`] | an operator |
//!
//! Groups and slots are those with which the cluster was made: no change moves keys.
//!
//! Invariant: behind each of them but [`promote_with_loss`] every instance of the in-sync set, and
//! the primary, has every entry that was acknowledged before. So an instance enters the set by the
//! word of the primary only, and a promotion takes its primary and its set out of the recorded set, or takes the
//! server of the recorded primary, by the word of its disk.
//!
//! Two changes of one version exclude each other: the coordinator records the first of them. The
//! author of the other begins anew with the topology that was recorded.

use super::{
    Group, GroupId, GroupRole, Instance, Invalid, Member, MemberId, MemberState, Topology,
};
use remora_layout::limits::MAX_EPOCH;

/// Why a change may not be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no such group.
    #[error("there is no group {0}")]
    NoGroup(GroupId),
    /// There is no such member.
    #[error("there is no member {0}")]
    NoMember(MemberId),
    /// The instance is not the one of its member that joined last.
    #[error("{0} is not the process of its member that joined last")]
    NotJoined(Instance),
    /// The member is of another group.
    #[error("member {0} is not of group {1}")]
    OtherGroup(MemberId, GroupId),
    /// The epoch of the group is another one.
    #[error("the epoch of group {group} is {epoch}")]
    OtherEpoch {
        /// The group.
        group: GroupId,
        /// Its epoch.
        epoch: u64,
    },
    /// Only the primary of the group may do it.
    #[error("{0} is not the primary of its group")]
    NotPrimary(Instance),
    /// The instance is not in the recorded in-sync set: acknowledged entries could be lost.
    #[error("{0} is not in the recorded in-sync set: it may lack acknowledged entries")]
    NotInSync(Instance),
    /// The instance is no later process of the server that the record has as the primary.
    #[error("{0} is no later process of the primary of its group")]
    NotItsServer(Instance),
    /// The member is being drained, or was replaced.
    #[error("member {0} is being drained, or was replaced")]
    MayNotLead(MemberId),
    /// The instance leads already.
    #[error("{0} is the primary already")]
    LeadsAlready(Instance),
    /// The record of its group names the member: it may have the only copy of something.
    #[error("member {0} is the primary or in the in-sync set of its group: drain it first")]
    HasRole(MemberId),
    /// No other member of its group could take its part.
    #[error("member {0} is the only one of its group that may lead")]
    LastMember(MemberId),
    /// Epochs end at a bound.
    #[error("group {0} has had its last epoch")]
    LastEpoch(GroupId),
    /// What would be there breaks an invariant.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// A server that joins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joining {
    /// The process.
    pub instance: Instance,
    /// The group whose keys it is to hold.
    pub group: GroupId,
    /// See [`Member::fabric_address`].
    pub fabric_address: String,
    /// See [`Member::resp_address`].
    pub resp_address: String,
}

/// A member joins, or joins again with another instance or other addresses. A draining member goes
/// on draining. The record of the group keeps its former instance, if it named that: what it has is
/// not decided here.
///
/// A member with another id at one of these addresses is replaced.
///
/// # Errors
/// [`Refusal::HasRole`] if its group changes while the record of the former one names it.
pub fn join(topology: &Topology, joining: Joining) -> Result<Topology, Refusal> {
    let Joining { instance, group, fabric_address, resp_address } = joining;
    expect_group(topology, group)?;
    let id = instance.member;
    let state = match topology.member(id) {
        Some(of) if of.group != group && is_named(topology, of) => {
            return Err(Refusal::HasRole(id));
        }
        Some(of) if of.state == MemberState::Draining => MemberState::Draining,
        Some(of) if of.instance() == instance && of.state == MemberState::Serving => of.state,
        _ => MemberState::Joining,
    };
    let incarnation = instance.incarnation;
    let member = Member { id, incarnation, group, state, fabric_address, resp_address };
    let mut next = topology.clone();
    for other in &mut next.members {
        let is_at_it = other.fabric_address == member.fabric_address
            || other.resp_address == member.resp_address;
        if is_at_it && other.id != id {
            other.state = MemberState::Replaced;
        }
    }
    match next.members.binary_search_by_key(&id, |of| of.id) {
        Ok(at) => next.members[at] = member,
        Err(at) => next.members.insert(at, member),
    }
    finish(next)
}

/// A member leaves for good.
///
/// # Errors
/// [`Refusal::HasRole`] if the record of its group names any instance of it.
pub fn leave(topology: &Topology, id: MemberId) -> Result<Topology, Refusal> {
    let member = topology.member(id).ok_or(Refusal::NoMember(id))?;
    if is_named(topology, member) {
        return Err(Refusal::HasRole(id));
    }
    let mut next = topology.clone();
    next.members.retain(|of| of.id != id);
    finish(next)
}

/// The in-sync set of a group becomes this one.
///
/// The primary that asks promises: each instance has every entry that it, and the primaries before
/// it, have acknowledged. It acknowledges nothing by a smaller set before that is recorded, and
/// waits for each instance of a larger one from before it asks.
///
/// # Errors
/// [`Refusal::NotPrimary`] and [`Refusal::OtherEpoch`] if the author does not lead in that epoch;
/// [`Refusal::NotJoined`] and [`Refusal::MayNotLead`] for an instance that is new in the set.
pub fn set_in_sync(
    topology: &Topology,
    group: GroupId,
    (author, epoch): (Instance, u64),
    mut in_sync: Vec<Instance>,
) -> Result<Topology, Refusal> {
    let of = expect_epoch(topology, group, epoch)?;
    if of.primary != Some(author) {
        return Err(Refusal::NotPrimary(author));
    }
    for &instance in in_sync.iter().filter(|new| !of.in_sync.contains(new)) {
        expect_candidate(topology, group, instance)?;
    }
    in_sync.sort();
    let mut next = topology.clone();
    in_sync.iter().for_each(|of| begin_serving(&mut next, *of));
    group_mut(&mut next, group).in_sync = in_sync;
    finish(next)
}

/// The primary of an epoch leads the next one, too: it has released that epoch, and no other
/// member took the next. What it was asked for the epoch that ends holds no more. The in-sync set stays, and so may the
/// primary if it is being drained.
///
/// # Errors
/// [`Refusal::NotPrimary`] and [`Refusal::OtherEpoch`] if the author does not lead in that epoch.
pub fn take_back(
    topology: &Topology,
    group: GroupId,
    (author, epoch): (Instance, u64),
) -> Result<Topology, Refusal> {
    let of = expect_epoch(topology, group, epoch)?;
    if of.primary != Some(author) {
        return Err(Refusal::NotPrimary(author));
    }
    if epoch >= MAX_EPOCH {
        return Err(Refusal::LastEpoch(group));
    }
    let mut next = topology.clone();
    group_mut(&mut next, group).epoch = epoch + 1;
    finish(next)
}

/// What the watcher makes of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Promotion {
    /// The group.
    pub group: GroupId,
    /// The epoch that ends; the next one is 1 more.
    pub epoch: u64,
    /// The primary of the next epoch.
    pub to: Instance,
    /// The in-sync set of the next epoch, without it: those of the recorded set for which it is to
    /// wait.
    pub in_sync: Vec<Instance>,
}

/// An instance of the recorded in-sync set becomes primary, under the next epoch. The former primary
/// may be in the set behind it only if it has handed its epoch over: otherwise it may have changes
/// that the new one lacks.
///
/// In a group that has had no primary, any member may become one: nothing was acknowledged there.
///
/// # Errors
/// [`Refusal::OtherEpoch`] if the epoch ended meanwhile, and [`Refusal::NotInSync`] for an instance
/// that the recorded set does not have.
pub fn promote(topology: &Topology, promotion: Promotion) -> Result<Topology, Refusal> {
    let Promotion { group, epoch, to, in_sync } = &promotion;
    let of = expect_epoch(topology, *group, *epoch)?;
    if of.primary == Some(*to) {
        return Err(Refusal::LeadsAlready(*to));
    }
    for instance in [to].into_iter().chain(in_sync) {
        let is_first = of.epoch == 0 && instance == to;
        if !is_first && !of.has_all_acknowledged(*instance) {
            return Err(Refusal::NotInSync(*instance));
        }
    }
    begin_epoch(topology, promotion)
}

/// A later process of the server of the recorded primary leads the next epoch. The watcher has heard that
/// the directory of this server has every change that the recorded primary has acknowledged; see
/// [`LedEpoch`](crate::led_epoch::LedEpoch). The in-sync set of the next epoch is empty: no memory has
/// survived, and no other disk has to have everything.
///
/// # Errors
/// [`Refusal::OtherEpoch`] if the epoch ended meanwhile, [`Refusal::NotItsServer`] for any other
/// instance, and those of an instance that may not lead.
pub fn promote_restarted(
    topology: &Topology,
    group: GroupId,
    epoch: u64,
    to: Instance,
) -> Result<Topology, Refusal> {
    let of = expect_epoch(topology, group, epoch)?;
    let is_restarted = |primary: Instance| primary.member == to.member && primary != to;
    if !of.primary.is_some_and(is_restarted) {
        return Err(Refusal::NotItsServer(to));
    }
    begin_epoch(topology, Promotion { group, epoch, to, in_sync: Vec::new() })
}

/// An operator makes any member of a group its primary, and accepts that acknowledged entries may be
/// lost. The in-sync set of the next epoch is empty.
///
/// # Errors
/// As [`promote`], but for [`Refusal::NotInSync`].
pub fn promote_with_loss(
    topology: &Topology,
    group: GroupId,
    epoch: u64,
    to: Instance,
) -> Result<Topology, Refusal> {
    let of = expect_epoch(topology, group, epoch)?;
    if of.primary == Some(to) {
        return Err(Refusal::LeadsAlready(to));
    }
    begin_epoch(topology, Promotion { group, epoch, to, in_sync: Vec::new() })
}

fn begin_epoch(topology: &Topology, promotion: Promotion) -> Result<Topology, Refusal> {
    let Promotion { group, epoch, to, mut in_sync } = promotion;
    expect_successor(topology, group, to)?;
    if epoch >= MAX_EPOCH {
        return Err(Refusal::LastEpoch(group));
    }
    in_sync.retain(|of| *of != to);
    in_sync.sort();
    let mut next = topology.clone();
    begin_serving(&mut next, to);
    let of = group_mut(&mut next, group);
    (of.epoch, of.primary, of.in_sync) = (epoch + 1, Some(to), in_sync);
    finish(next)
}

/// A member is to be taken away: it leads no more, and leaves the in-sync set, as soon as others can
/// take its part. Then it may [`leave`]. It leads once more only if the primary is gone, and no other
/// member of the set is left.
///
/// # Errors
/// [`Refusal::LastMember`] if no other member of its group may lead.
pub fn drain(topology: &Topology, id: MemberId) -> Result<Topology, Refusal> {
    let group = topology.member(id).ok_or(Refusal::NoMember(id))?.group;
    if !topology.members_of(group).any(|of| of.id != id && of.may_lead()) {
        return Err(Refusal::LastMember(id));
    }
    with_state(topology, id, MemberState::Draining)
}

/// A member is not taken away after all.
///
/// # Errors
/// [`Refusal::NoMember`] if it has left.
pub fn undrain(topology: &Topology, id: MemberId) -> Result<Topology, Refusal> {
    let member = topology.member(id).ok_or(Refusal::NoMember(id))?;
    let state = match member.state {
        MemberState::Draining if topology.role(member.instance()).is_some_and(has_role) => {
            MemberState::Serving
        }
        MemberState::Draining => MemberState::Joining,
        state => state,
    };
    with_state(topology, id, state)
}

/// The next version, if it is valid. Replaced members that no record names are gone from it.
fn finish(mut next: Topology) -> Result<Topology, Refusal> {
    let (before, mut kept) = (next.clone(), std::mem::take(&mut next.members));
    kept.retain(|of| of.state != MemberState::Replaced || is_named(&before, of));
    next.members = kept;
    next.version += 1;
    next.validate()?;
    Ok(next)
}

fn expect_group(topology: &Topology, id: GroupId) -> Result<&Group, Refusal> {
    topology.group(id).ok_or(Refusal::NoGroup(id))
}

fn expect_epoch(topology: &Topology, id: GroupId, epoch: u64) -> Result<&Group, Refusal> {
    let group = expect_group(topology, id)?;
    if group.epoch != epoch {
        return Err(Refusal::OtherEpoch { group: id, epoch: group.epoch });
    }
    Ok(group)
}

/// The instance joined last of its member, which is of this group and may lead.
fn expect_candidate(
    topology: &Topology,
    group: GroupId,
    instance: Instance,
) -> Result<(), Refusal> {
    let id = instance.member;
    let member = topology.member(id).ok_or(Refusal::NoMember(id))?;
    match () {
        () if member.group != group => Err(Refusal::OtherGroup(id, group)),
        () if member.instance() != instance => Err(Refusal::NotJoined(instance)),
        () if !member.may_lead() => Err(Refusal::MayNotLead(id)),
        () => Ok(()),
    }
}

/// A candidate, or one of the recorded set that is being drained: it has every acknowledged entry, and the
/// watcher takes it if no other one of the set is left.
fn expect_successor(
    topology: &Topology,
    group: GroupId,
    instance: Instance,
) -> Result<(), Refusal> {
    let drains =
        topology.member(instance.member).is_some_and(|of| of.state == MemberState::Draining);
    let is_in_sync = topology.role(instance) == Some(GroupRole::InSync);
    match expect_candidate(topology, group, instance) {
        Err(Refusal::MayNotLead(_)) if drains && is_in_sync => Ok(()),
        checked => checked,
    }
}

fn has_role(role: GroupRole) -> bool {
    role != GroupRole::Behind
}

/// Whether the record of its group names any instance of a member.
fn is_named(topology: &Topology, member: &Member) -> bool {
    topology.group(member.group).is_some_and(|group| {
        group.primary.iter().chain(&group.in_sync).any(|of| of.member == member.id)
    })
}

fn with_state(topology: &Topology, id: MemberId, state: MemberState) -> Result<Topology, Refusal> {
    let mut next = topology.clone();
    next.members.iter_mut().filter(|of| of.id == id).for_each(|of| of.state = state);
    finish(next)
}

/// The instance has every acknowledged entry: if it is the one that joined last, it serves.
fn begin_serving(topology: &mut Topology, instance: Instance) {
    let is_it = |of: &&mut Member| of.instance() == instance && of.state == MemberState::Joining;
    topology.members.iter_mut().filter(is_it).for_each(|of| of.state = MemberState::Serving);
}

/// A group that is there.
fn group_mut(topology: &mut Topology, id: GroupId) -> &mut Group {
    topology.groups.iter_mut().find(|of| of.id == id).expect("the caller has looked")
}
