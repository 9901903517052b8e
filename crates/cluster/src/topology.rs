//! The topology of a cluster: its members, its groups, and which group has which slots (HydraDB 5.1).
//!
//! ```text
//!   slot 0 .. 16,383  --->  group  --->  primary, in-sync set  --->  members, their addresses
//! ```
//! A *group* is a set of servers that hold the same keys, and is what fails over: it has one epoch
//! and one primary. A *member* is one server; it belongs to one group. An *instance* of a member is
//! one process: a member that was started again is another instance, and may have lost what it had.
//!
//! Invariants, which [`Topology::validate`] checks and every change keeps:
//! * ids are not 0; members, groups and runs of slots are sorted, each is there once;
//! * the primary and the in-sync set of a group are members of that group, each at most once, and
//!   the primary is not in the set;
//! * no two members have the same address, but for those that are *replaced*;
//! * all is within the bounds of `limits.rs`, so that the encoding fits one node of ZooKeeper.
//!
//! Meaning of the in-sync set: each instance in it, and the primary, has every entry that any primary
//! of the group has acknowledged. So one of them may become primary, and no other.

pub mod change;
mod encoding;

pub use encoding::DecodeError;

use remora_layout::limits::{
    MAX_COUNTED_REPLICAS, MAX_EPOCH, MAX_GROUP_NAME_BYTES, MAX_GROUPS, MAX_MEMBER_ADDRESS_BYTES,
    MAX_MEMBERS, MAX_MIN_REPLICAS,
};
use remora_layout::slot::SLOTS;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

/// The id of a server: random, drawn once and kept with its data. Not 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(pub u64);

impl Display for MemberId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The id of a group. Not 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u32);

impl Display for GroupId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One process of a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instance {
    /// The server.
    pub member: MemberId,
    /// Drawn at random when the process starts.
    pub incarnation: u64,
}

impl Display for Instance {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} (incarnation {:016x})", self.member, self.incarnation)
    }
}

/// What a member does, and what it may become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// This instance has not had all acknowledged entries yet.
    Joining,
    /// This instance is or was in the in-sync set, or is or was primary.
    Serving,
    /// An operator takes it away: it enters no in-sync set, and becomes primary only if no other member is
    /// left that has every acknowledged entry.
    Draining,
    /// A member with another id has its address now, as a server draws a new id if it has lost its
    /// data. It stays only while the record of its group names it.
    Replaced,
}

/// One server of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// See [`MemberId`].
    pub id: MemberId,
    /// The incarnation of the instance that joined last.
    pub incarnation: u64,
    /// The group whose keys it holds.
    pub group: GroupId,
    /// See [`MemberState`].
    pub state: MemberState,
    /// Where Remora's clients and other members connect.
    pub fabric_address: String,
    /// Where Redis clients connect, as announced to them.
    pub resp_address: String,
}

impl Member {
    /// The instance that joined last.
    pub fn instance(&self) -> Instance {
        Instance { member: self.id, incarnation: self.incarnation }
    }

    /// Whether it may enter an in-sync set, or become primary while others may, too.
    pub fn may_lead(&self) -> bool {
        matches!(self.state, MemberState::Joining | MemberState::Serving)
    }
}

/// A set of servers that hold the same keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// See [`GroupId`].
    pub id: GroupId,
    /// Of ASCII letters, digits, `-`, `_` and `.`: Sentinel's clients ask by it.
    pub name: String,
    /// Counts the primaries: each promotion adds 1. 0 before the first.
    pub epoch: u64,
    /// The instance that leads in this epoch; none before the first.
    pub primary: Option<Instance>,
    /// The recorded in-sync set, sorted, without the primary.
    pub in_sync: Vec<Instance>,
    /// Members of the in-sync set that an acknowledgement needs, the primary not counted.
    pub min_replicas: u8,
}

impl Group {
    /// Whether an instance has every acknowledged entry, by the record.
    pub fn has_all_acknowledged(&self, instance: Instance) -> bool {
        self.primary == Some(instance) || self.in_sync.contains(&instance)
    }
}

/// Consecutive slots of one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotRun {
    /// The first slot.
    pub first: u16,
    /// Slots, 1 to 16,384.
    pub slots: u16,
    /// The group that has them.
    pub group: GroupId,
}

/// What a server is in its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupRole {
    /// It leads.
    Primary,
    /// It is in the recorded in-sync set.
    InSync,
    /// Neither: acknowledgements do not wait for it.
    Behind,
}

/// See the module's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Drawn at random when the cluster is made, not 0: members do not mistake another cluster for
    /// theirs.
    pub cluster: u64,
    /// Counts the changes, from 1.
    pub version: u64,
    members: Vec<Member>,
    groups: Vec<Group>,
    slots: Vec<SlotRun>,
}

/// An invariant that a topology breaks.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Invalid {
    /// The id of the cluster, the version, or another id is 0.
    #[error("an id or a version is 0")]
    ZeroId,
    /// Members, groups, an in-sync set or runs of slots are not in order, or one is there twice.
    #[error("the {0} are not sorted, or one is there twice")]
    Unsorted(&'static str),
    /// There are more than the bound.
    #[error("too many {0}")]
    TooMany(&'static str),
    /// A group, or a member of one, that is not there.
    #[error("the {0} names a group or a member that is not there")]
    Dangling(&'static str),
    /// The primary of a group is in its in-sync set, or a group without an epoch has either.
    #[error("the roles of group {0} contradict each other")]
    Roles(GroupId),
    /// A name is empty, too long, has other characters than it may, or is there twice.
    #[error("the name of group {0} is not valid, or another group has it")]
    Name(GroupId),
    /// An address is empty, too long, or not printable ASCII without spaces.
    #[error("an address of member {0} is not valid")]
    Address(MemberId),
    /// Two members have the same address.
    #[error("another member has an address of member {0}")]
    AddressInUse(MemberId),
    /// A run of slots is empty, ends behind the last slot or overlaps the one before, or two runs
    /// of one group are adjacent.
    #[error("the table of slots is not valid")]
    Slots,
    /// The epoch, or the number of replicas that acknowledgements need, is beyond its bound.
    #[error("the epoch or min_replicas of group {0} is beyond its bound")]
    Number(GroupId),
}

impl Topology {
    /// A new cluster without members: version 1, the slots in equal ranges over the groups.
    ///
    /// # Errors
    /// [`Invalid`] if an id is 0, a name is not valid or two groups are alike.
    pub fn new(cluster: u64, mut groups: Vec<(GroupId, String, u8)>) -> Result<Self, Invalid> {
        groups.sort();
        let slots = even_slots(&groups.iter().map(|(id, ..)| *id).collect::<Vec<_>>());
        let group = |(id, name, min_replicas)| Group {
            id,
            name,
            epoch: 0,
            primary: None,
            in_sync: Vec::new(),
            min_replicas,
        };
        let groups = groups.into_iter().map(group).collect();
        let topology = Self { cluster, version: 1, members: Vec::new(), groups, slots };
        topology.validate()?;
        Ok(topology)
    }

    /// All members, by id.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// All groups, by id.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The slots that groups have, in order. Slots between them have no group.
    pub fn slots(&self) -> &[SlotRun] {
        &self.slots
    }

    /// The member with this id.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        let at = self.members.binary_search_by_key(&id, |of| of.id).ok()?;
        Some(&self.members[at])
    }

    /// The group with this id.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        let at = self.groups.binary_search_by_key(&id, |of| of.id).ok()?;
        Some(&self.groups[at])
    }

    /// The group with this name.
    pub fn group_named(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|of| of.name == name)
    }

    /// The members of a group, by id.
    pub fn members_of(&self, group: GroupId) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |of| of.group == group)
    }

    /// The group that has a slot.
    pub fn group_of_slot(&self, slot: u16) -> Option<&Group> {
        let after = self.slots.partition_point(|run| run.first <= slot);
        let run = self.slots[..after].last()?;
        if slot - run.first < run.slots { self.group(run.group) } else { None }
    }

    /// What an instance is in its group; `None` if it is not the one that joined last.
    pub fn role(&self, instance: Instance) -> Option<GroupRole> {
        let member = self.member(instance.member)?;
        let group = self.group(member.group)?;
        Some(match () {
            () if member.incarnation != instance.incarnation => return None,
            () if group.primary == Some(instance) => GroupRole::Primary,
            () if group.in_sync.contains(&instance) => GroupRole::InSync,
            () => GroupRole::Behind,
        })
    }

    /// Those of the recorded in-sync set of a group that are alive, and have not been started again since:
    /// one of them may become primary. Those that are draining are the last choice: they are meant only if
    /// there is no other. `live` are the members present at the coordinator.
    pub fn eligible<'a>(
        &'a self,
        group: &'a Group,
        live: &'a [Instance],
    ) -> impl Iterator<Item = Instance> + 'a {
        let is = |of: &Instance, state: fn(&Member) -> bool| {
            live.contains(of) && self.member(of.member).is_some_and(state)
        };
        let may_lead = move |of: &Instance| is(of, Member::may_lead);
        let has_other = group.in_sync.iter().any(may_lead);
        let is_last = move |of: &Instance| {
            !has_other && is(of, |member| member.state == MemberState::Draining)
        };
        group.in_sync.iter().copied().filter(move |of| may_lead(of) || is_last(of))
    }

    /// Checks the invariants of the module's text.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.cluster == 0 || self.version == 0 {
            return Err(Invalid::ZeroId);
        }
        self.validate_groups()?;
        self.validate_members()?;
        self.groups.iter().try_for_each(|group| self.validate_roles(group))?;
        self.validate_slots()
    }

    fn validate_groups(&self) -> Result<(), Invalid> {
        bounded(self.groups.len(), MAX_GROUPS, "groups")?;
        sorted(self.groups.iter().map(|of| of.id), "groups")?;
        let mut names = BTreeSet::new();
        for group in &self.groups {
            if group.id.0 == 0 {
                return Err(Invalid::ZeroId);
            }
            if !is_name(&group.name) || !names.insert(group.name.as_str()) {
                return Err(Invalid::Name(group.id));
            }
            if group.epoch > MAX_EPOCH || usize::from(group.min_replicas) > MAX_MIN_REPLICAS {
                return Err(Invalid::Number(group.id));
            }
        }
        Ok(())
    }

    fn validate_members(&self) -> Result<(), Invalid> {
        bounded(self.members.len(), MAX_MEMBERS, "members")?;
        sorted(self.members.iter().map(|of| of.id), "members")?;
        let (mut fabric, mut resp) = (BTreeSet::new(), BTreeSet::new());
        for member in &self.members {
            if member.id.0 == 0 || member.incarnation == 0 {
                return Err(Invalid::ZeroId);
            }
            if self.group(member.group).is_none() {
                return Err(Invalid::Dangling("members"));
            }
            if !is_address(&member.fabric_address) || !is_address(&member.resp_address) {
                return Err(Invalid::Address(member.id));
            }
            if member.state == MemberState::Replaced {
                continue;
            }
            if !fabric.insert(&member.fabric_address) || !resp.insert(&member.resp_address) {
                return Err(Invalid::AddressInUse(member.id));
            }
        }
        Ok(())
    }

    fn validate_roles(&self, group: &Group) -> Result<(), Invalid> {
        bounded(group.in_sync.len(), MAX_COUNTED_REPLICAS, "members of an in-sync set")?;
        sorted(group.in_sync.iter().map(|of| of.member), "members of an in-sync set")?;
        for instance in group.primary.iter().chain(&group.in_sync) {
            if instance.incarnation == 0 {
                return Err(Invalid::ZeroId);
            }
            if self.member(instance.member).is_none_or(|of| of.group != group.id) {
                return Err(Invalid::Dangling("group"));
            }
        }
        let leads =
            |of: &Instance| group.primary.is_some_and(|primary| primary.member == of.member);
        let has_begun = group.epoch > 0;
        if group.in_sync.iter().any(leads) || has_begun != group.primary.is_some() {
            return Err(Invalid::Roles(group.id));
        }
        if !has_begun && !group.in_sync.is_empty() {
            return Err(Invalid::Roles(group.id));
        }
        Ok(())
    }

    fn validate_slots(&self) -> Result<(), Invalid> {
        let mut before: Option<SlotRun> = None;
        for run in &self.slots {
            let (first, slots) = (usize::from(run.first), usize::from(run.slots));
            let end = before.map_or(0, |of| usize::from(of.first) + usize::from(of.slots));
            let continues = before.is_some_and(|of| of.group == run.group && end == first);
            if slots == 0 || first < end || first + slots > SLOTS || continues {
                return Err(Invalid::Slots);
            }
            if self.group(run.group).is_none() {
                return Err(Invalid::Dangling("table of slots"));
            }
            before = Some(*run);
        }
        Ok(())
    }
}

/// Equal ranges of slots, in order.
fn even_slots(groups: &[GroupId]) -> Vec<SlotRun> {
    let first = |at: usize| at * SLOTS / groups.len();
    let run = |(at, &group)| SlotRun {
        first: first(at) as u16,
        slots: (first(at + 1) - first(at)) as u16,
        group,
    };
    groups.iter().take(MAX_GROUPS).enumerate().map(run).collect()
}

fn bounded(count: usize, most: usize, what: &'static str) -> Result<(), Invalid> {
    if count > most { Err(Invalid::TooMany(what)) } else { Ok(()) }
}

/// Whether each is greater than the one before.
fn sorted<T: PartialOrd>(
    mut of: impl Iterator<Item = T>,
    what: &'static str,
) -> Result<(), Invalid> {
    let Some(mut before) = of.next() else { return Ok(()) };
    for next in of {
        if next <= before {
            return Err(Invalid::Unsorted(what));
        }
        before = next;
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_GROUP_NAME_BYTES).contains(&name.len()) && name.bytes().all(may_be)
}

fn is_address(address: &str) -> bool {
    (1..=MAX_MEMBER_ADDRESS_BYTES).contains(&address.len())
        && address.bytes().all(|byte| byte.is_ascii_graphic())
}
