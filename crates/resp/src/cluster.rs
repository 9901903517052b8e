//! What a server of a cluster knows of it, for replies to Redis clients: plain data, and which server
//! a key belongs to.

use crate::error::CommandError;
use remora_layout::slot::SLOTS;
use std::fmt::{self, Display, Formatter};

/// The id of a server as Redis clients see it: 40 hexadecimal digits. A server that was started again
/// has another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeId {
    /// The id of the member.
    pub member: u64,
    /// The incarnation of its process.
    pub incarnation: u64,
}

impl Display for NodeId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:024x}", self.member, self.incarnation)
    }
}

/// One server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeFacts {
    /// Its id.
    pub id: NodeId,
    /// The host at which Redis clients reach it, as announced.
    pub host: String,
    /// Its port there.
    pub port: u16,
    /// The coordinator's record names it as the primary of its group.
    pub is_primary: bool,
    /// Its membership is there.
    pub is_healthy: bool,
    /// The sum of the sequences of its shards.
    pub offset: u64,
}

impl NodeFacts {
    fn is_like(&self, other: &Self) -> bool {
        self.id == other.id
            && (&self.host, self.port) == (&other.host, other.port)
            && (self.is_primary, self.is_healthy) == (other.is_primary, other.is_healthy)
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// The servers that hold the same keys: a shard of Redis Cluster, a master and its replicas of
/// Sentinel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupFacts {
    /// The name by which Sentinel's clients ask.
    pub name: String,
    /// Counts its primaries.
    pub epoch: u64,
    /// Its servers; at most one is the primary.
    pub nodes: Vec<NodeFacts>,
}

impl GroupFacts {
    /// The recorded primary, whether it is healthy or not.
    pub fn primary(&self) -> Option<&NodeFacts> {
        self.nodes.iter().find(|node| node.is_primary)
    }

    /// The primary that requests can be sent to.
    pub fn leader(&self) -> Option<&NodeFacts> {
        self.primary().filter(|node| node.is_healthy)
    }

    /// The server that a map of the slots names first: the recorded primary, even if it is gone, as in
    /// Redis. If that process is no member any more, it is another server of the group, which answers
    /// `CLUSTERDOWN` until there is a primary and `MOVED` from then on: some clients never ask again for
    /// slots that a map leaves out. `None`: the group has no server.
    pub fn named_first(&self) -> Option<&NodeFacts> {
        let healthy = || self.nodes.iter().find(|node| node.is_healthy);
        self.primary().or_else(healthy).or(self.nodes.first())
    }

    /// All but the primary.
    pub fn replicas(&self) -> impl Iterator<Item = &NodeFacts> {
        self.nodes.iter().filter(|node| !node.is_primary)
    }

    /// The server with this id.
    pub fn node(&self, id: NodeId) -> Option<&NodeFacts> {
        self.nodes.iter().find(|node| node.id == id)
    }
}

/// Consecutive slots of one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotRun {
    /// The first slot.
    pub first: u16,
    /// The last slot.
    pub last: u16,
    /// The index of the group in [`ClusterFacts::groups`].
    pub group: usize,
}

/// See the module's text. The default knows no server: every slot is unserved.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterFacts {
    /// This server.
    pub own: NodeId,
    /// Counts the changes of the cluster.
    pub epoch: u64,
    /// This server reaches the coordinator: a primary that is gone is replaced.
    pub has_coordinator: bool,
    /// If this server is the primary of its group: it takes changes. Not while it prepares to lead, nor
    /// while it hands its part over.
    pub takes_changes: bool,
    /// The groups.
    pub groups: Vec<GroupFacts>,
    /// The slots that groups have, in order and without overlap.
    pub slots: Vec<SlotRun>,
}

/// What a server may do with a request on its own, whatever the record says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// It is no replica.
    pub leads: bool,
    /// The request only reads, its connection has said READONLY, and this server answers reads.
    pub may_read: bool,
    /// The request changes something.
    pub changes: bool,
}

impl ClusterFacts {
    /// The group that has a slot.
    pub fn group_of(&self, slot: u16) -> Option<&GroupFacts> {
        let at = self.slots.partition_point(|run| run.last < slot);
        let run = self.slots.get(at).filter(|run| run.first <= slot)?;
        self.groups.get(run.group)
    }

    /// This server's group.
    pub fn own_group(&self) -> Option<&GroupFacts> {
        self.groups.iter().find(|group| group.node(self.own).is_some())
    }

    /// The group with this name.
    pub fn named(&self, name: &[u8]) -> Option<&GroupFacts> {
        self.groups.iter().find(|group| group.name.as_bytes() == name)
    }

    /// This server, as the others see it.
    pub fn own_node(&self) -> Option<&NodeFacts> {
        self.own_group()?.node(self.own)
    }

    /// All servers.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeFacts> {
        self.groups.iter().flat_map(|group| &group.nodes)
    }

    /// The slots of a group, by its index.
    pub fn slots_of(&self, group: usize) -> impl Iterator<Item = &SlotRun> {
        self.slots.iter().filter(move |run| run.group == group)
    }

    /// Whether the same is known but for offsets: then there is nothing to announce.
    pub fn is_like(&self, other: &Self) -> bool {
        let group = |(one, other): (&GroupFacts, &GroupFacts)| {
            let nodes = || one.nodes.iter().zip(&other.nodes);
            one.name == other.name
                && one.epoch == other.epoch
                && one.nodes.len() == other.nodes.len()
                && nodes().all(|(one, other)| one.is_like(other))
        };
        self.own == other.own
            && self.slots == other.slots
            && self.groups.len() == other.groups.len()
            && self.groups.iter().zip(&other.groups).all(group)
    }

    /// Slots that some group has, and those of them that a healthy primary serves.
    pub fn counts(&self) -> SlotCounts {
        let mut counts = SlotCounts { assigned: 0, served: 0 };
        for run in &self.slots {
            let slots = usize::from(run.last - run.first) + 1;
            counts.assigned += slots;
            let leader = self.groups.get(run.group).and_then(GroupFacts::leader);
            counts.served += if leader.is_some() { slots } else { 0 };
        }
        counts
    }

    /// Whether every slot is served, and would be again if a primary went.
    pub fn is_ok(&self) -> bool {
        self.has_coordinator && self.counts().served == SLOTS
    }

    /// Why this server does not carry out a request about a key of this slot; `None` if it does.
    ///
    /// A server that is recorded as the primary and is a replica, or the other way round, is changing
    /// its role: clients are sent nowhere, or to the recorded one.
    pub fn refusal(&self, slot: u16, standing: Standing) -> Option<CommandError> {
        let group = self.group_of(slot);
        let own = group.and_then(|group| group.node(self.own));
        let takes = standing.leads && (self.takes_changes || !standing.changes);
        let leads = takes && own.is_some_and(|node| node.is_primary);
        if leads || (standing.may_read && own.is_some()) {
            return None;
        }
        let leader = group.and_then(GroupFacts::leader).filter(|node| node.id != self.own);
        Some(match leader {
            Some(node) => CommandError::Moved { slot, address: node.address() },
            None => CommandError::NotServed,
        })
    }
}

/// See [`ClusterFacts::counts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotCounts {
    /// Some group has them.
    pub assigned: usize,
    /// Its primary is healthy.
    pub served: usize,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn node(member: u64, port: u16, is_primary: bool) -> NodeFacts {
        let id = NodeId { member, incarnation: 1 };
        NodeFacts { id, host: "127.0.0.1".into(), port, is_primary, is_healthy: true, offset: 42 }
    }

    /// Two groups of two servers, each with half of the slots; this server is the primary of the
    /// first.
    pub(crate) fn facts() -> ClusterFacts {
        let group = |name: &str, epoch, nodes| GroupFacts { name: name.into(), epoch, nodes };
        ClusterFacts {
            own: NodeId { member: 0xa1, incarnation: 1 },
            epoch: 7,
            has_coordinator: true,
            takes_changes: true,
            groups: vec![
                group("one", 3, vec![node(0xa2, 7002, false), node(0xa1, 7001, true)]),
                group("two", 5, vec![node(0xb1, 7003, true), node(0xb2, 7004, false)]),
            ],
            slots: vec![
                SlotRun { first: 0, last: 8191, group: 0 },
                SlotRun { first: 8192, last: 16383, group: 1 },
            ],
        }
    }

    const LEADS: Standing = Standing { leads: true, may_read: false, changes: true };
    const LEADS_READS: Standing = Standing { changes: false, ..LEADS };
    const FOLLOWS: Standing = Standing { leads: false, ..LEADS };
    const MAY_READ: Standing = Standing { leads: false, may_read: true, changes: false };

    fn moved(slot: u16, port: u16) -> Option<CommandError> {
        Some(CommandError::Moved { slot, address: format!("127.0.0.1:{port}") })
    }

    #[test]
    fn a_request_is_carried_out_where_its_slot_is_led_and_sent_there_from_elsewhere() {
        let mut facts = facts();
        assert_eq!(facts.refusal(8191, LEADS), None);
        assert_eq!(facts.refusal(8192, LEADS), moved(8192, 7003));
        assert_eq!(facts.refusal(8192, MAY_READ), moved(8192, 7003), "another group's replica");
        // Recorded as the primary and not one yet: nobody else is.
        assert_eq!(facts.refusal(0, FOLLOWS), Some(CommandError::NotServed));
        assert_eq!(facts.refusal(0, MAY_READ), None);
        facts.own.member = 0xa2;
        assert_eq!(facts.refusal(0, FOLLOWS), moved(0, 7001));
        assert_eq!(facts.refusal(0, LEADS), moved(0, 7001), "another one is recorded");
        assert_eq!(facts.refusal(0, MAY_READ), None);
    }

    #[test]
    fn a_slot_without_a_group_or_a_healthy_primary_is_not_served() {
        let mut facts = facts();
        let not_served = Some(CommandError::NotServed);
        facts.slots[1].first = 9000;
        assert_eq!(facts.refusal(8999, LEADS), not_served);
        assert_eq!(facts.refusal(9000, LEADS), moved(9000, 7003));
        facts.groups[1].nodes[0].is_healthy = false;
        assert_eq!(facts.refusal(9000, LEADS), not_served);
        facts.groups[1].nodes[0].is_primary = false;
        assert_eq!(facts.refusal(9000, LEADS), not_served);
        assert_eq!(facts.counts(), SlotCounts { assigned: 8192 + 7384, served: 8192 });
        assert!(!facts.is_ok());
        // Its own lease says whether a primary may serve, not its membership.
        facts.groups[0].nodes[1].is_healthy = false;
        assert_eq!(facts.refusal(0, LEADS), None);
        assert_eq!(ClusterFacts::default().refusal(0, LEADS), not_served);
    }

    #[test]
    fn a_primary_that_hands_its_part_over_answers_reads_only() {
        let mut facts = facts();
        facts.takes_changes = false;
        assert_eq!(facts.refusal(0, LEADS), Some(CommandError::NotServed));
        assert_eq!(facts.refusal(0, LEADS_READS), None);
        assert_eq!(facts.refusal(8192, LEADS), moved(8192, 7003));
    }

    #[test]
    fn a_map_names_the_recorded_primary_or_another_server() {
        let mut group = facts().groups.swap_remove(0);
        let named = |group: &GroupFacts| group.named_first().map(|node| node.port);
        assert_eq!(named(&group), Some(7001));
        group.nodes[1].is_healthy = false;
        assert_eq!(named(&group), Some(7001), "nobody else leads yet");
        group.nodes[1].is_primary = false;
        assert_eq!(named(&group), Some(7002), "it was started again, and the other one is there");
        group.nodes[0].is_healthy = false;
        assert_eq!(named(&group), Some(7002));
        group.nodes.clear();
        assert_eq!(named(&group), None);
    }

    #[test]
    fn facts_are_alike_whose_offsets_differ_and_nothing_else() {
        let (facts, mut other) = (facts(), facts());
        other.groups[0].nodes[0].offset += 1;
        assert!(other != facts && other.is_like(&facts));
        other.groups[0].nodes[0].is_healthy = false;
        assert!(!other.is_like(&facts));
    }

    #[test]
    fn ids_have_forty_digits() {
        let id = NodeId { member: u64::MAX, incarnation: 0xabc };
        assert_eq!(id.to_string(), "ffffffffffffffff000000000000000000000abc");
    }
}
