//! What the topology says, for Redis clients and for INFO.

use super::offsets::Offsets;
use crate::shared::Shared;
use remora_cluster::topology::{Group, Instance, Member, MemberState, Topology};
use remora_resp::cluster::{ClusterFacts, GroupFacts, NodeFacts, NodeId, SlotRun};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a server knows beside the topology.
pub struct Known<'a> {
    /// The instances that are present.
    pub live: &'a [Instance],
    /// This instance.
    pub own: Instance,
    /// How far it and its replicas are.
    pub offsets: &'a Offsets,
    /// It reaches the coordinator.
    pub has_coordinator: bool,
    /// As a primary it takes changes.
    pub takes_changes: bool,
}

/// For replies to Redis clients. A member whose address is none, or that another one has replaced, is
/// left out.
pub fn facts_of(topology: &Topology, known: &Known<'_>) -> ClusterFacts {
    let group = |of: &Group| {
        let members = topology.members_of(of.id);
        let nodes = members.filter_map(|member| node_of(member, of.primary, known)).collect();
        GroupFacts { name: of.name.clone(), epoch: of.epoch, nodes }
    };
    let at = |id| topology.groups().iter().position(|of| of.id == id);
    let slots = topology.slots().iter().filter_map(|run| {
        let last = run.first + (run.slots - 1);
        Some(SlotRun { first: run.first, last, group: at(run.group)? })
    });
    ClusterFacts {
        own: id_of(known.own),
        epoch: topology.version,
        has_coordinator: known.has_coordinator,
        takes_changes: known.takes_changes,
        groups: topology.groups().iter().map(group).collect(),
        slots: slots.collect(),
    }
}

fn id_of(instance: Instance) -> NodeId {
    NodeId { member: instance.member.0, incarnation: instance.incarnation }
}

fn node_of(member: &Member, primary: Option<Instance>, known: &Known<'_>) -> Option<NodeFacts> {
    let (host, port) = member.resp_address.rsplit_once(':')?;
    let (instance, port) = (member.instance(), port.parse().ok()?);
    if member.state == MemberState::Replaced {
        return None;
    }
    Some(NodeFacts {
        id: id_of(instance),
        host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        port,
        is_primary: primary == Some(instance),
        is_healthy: known.live.contains(&instance),
        offset: match instance == known.own {
            true => known.offsets.own,
            false => known.offsets.replicas.get(&instance.incarnation).copied().unwrap_or(0),
        },
    })
}

/// At a primary, entries that each member of its group has not applied yet, as `ID=ENTRIES` with commas; those
/// that do not follow are missing.
fn lag_of(offsets: &Offsets, topology: &Topology, group: &Group) -> String {
    let lag = |of: &Member| {
        let applied = offsets.replicas.get(&of.incarnation)?;
        Some(format!("{}={}", of.id, offsets.own.saturating_sub(*applied)))
    };
    topology.members_of(group.id).filter_map(lag).collect::<Vec<_>>().join(",")
}

fn number(of: &AtomicU64) -> String {
    of.load(Ordering::Relaxed).to_string()
}

/// The lines of INFO cluster, beyond Redis's; none at a server that is in no cluster.
pub fn lines_of(shared: &Shared) -> Vec<(&'static str, String)> {
    let Some(settings) = &shared.config.cluster else { return Vec::new() };
    let own = Instance { member: shared.cluster.member, incarnation: shared.incarnation };
    let mut all = vec![
        ("cluster_coordinator", settings.coordinator.clone()),
        ("cluster_group", settings.group.clone()),
        ("cluster_member", own.member.to_string()),
        ("cluster_topology_version", shared.cluster.version().to_string()),
        ("cluster_messages_delivered", number(&shared.cluster.messages.delivered)),
        ("cluster_messages_dropped", number(&shared.cluster.messages.dropped)),
        ("cluster_messages_refused", number(&shared.cluster.messages.refused)),
    ];
    // At the watcher, else empty.
    let watching = shared.cluster.watching();
    all.extend([
        ("cluster_waits", watching.waits.join(" | ")),
        ("cluster_failovers", watching.failovers.join(" | ")),
        ("cluster_refusals", watching.refusals.join(" | ")),
    ]);
    let led = shared.disk.as_ref().and_then(|disk| disk.led.said()).filter(|of| of.is_durable);
    let led = led.filter(|of| of.incarnation == shared.incarnation);
    // The epoch of which the data directory has all that was acknowledged, while this server leads it.
    all.push(("cluster_durable_epoch", led.map_or(0, |of| of.epoch).to_string()));
    let Some(topology) = shared.cluster.topology() else { return all };
    let Some(group) = topology.group_named(&settings.group) else { return all };
    let primary = group.primary.and_then(|of| topology.member(of.member));
    let in_sync: Vec<_> = group.in_sync.iter().map(|of| of.member.to_string()).collect();
    all.extend([
        ("cluster_epoch", group.epoch.to_string()),
        ("cluster_primary", primary.map_or_else(String::new, |of| of.resp_address.clone())),
        ("cluster_leads", u8::from(group.primary == Some(own)).to_string()),
        ("cluster_serves", u8::from(shared.view.leads_now()).to_string()),
        ("cluster_in_sync", in_sync.join(",")),
        ("cluster_lag", lag_of(&Offsets::of(shared), &topology, group)),
        ("cluster_min_replicas", group.min_replicas.to_string()),
    ]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_cluster::topology::change::{self, Joining, Promotion};
    use remora_cluster::topology::{GroupId, MemberId};
    use std::collections::BTreeMap;

    fn instance(member: u64) -> Instance {
        Instance { member: MemberId(member), incarnation: 6 + member }
    }

    #[test]
    fn roles_health_and_slots_are_those_of_the_record() {
        let groups = vec![(GroupId(1), "a".into(), 1), (GroupId(2), "b".into(), 1)];
        let mut topology = Topology::new(5, groups).unwrap();
        for (member, group, resp) in [(1, 1, "h1:1"), (2, 1, "[::1]:2"), (3, 2, "h3:3")] {
            let joining = Joining {
                instance: instance(member),
                group: GroupId(group),
                fabric_address: format!("h{member}:10"),
                resp_address: resp.into(),
            };
            topology = change::join(&topology, joining).unwrap();
        }
        let (group, to, in_sync) = (GroupId(1), instance(2), Vec::new());
        let promotion = Promotion { group, epoch: 0, to, in_sync };
        let topology = change::promote(&topology, promotion).unwrap();
        let live = [instance(1), instance(2)];
        let known = Known {
            live: &live,
            own: instance(1),
            offsets: &Offsets { own: 9, replicas: BTreeMap::from([(8, 5)]) },
            has_coordinator: true,
            takes_changes: true,
        };
        let facts = facts_of(&topology, &known);
        let primary = facts.groups[0].leader().unwrap();
        assert_eq!((primary.address(), primary.id.member), ("::1:2".into(), 2));
        assert_eq!(facts.own_node().unwrap().offset, 9);
        assert_eq!(primary.offset, 5, "it follows this server");
        assert_eq!(facts.groups[1].nodes[0].offset, 0, "of others nothing is known");
        assert!(facts.groups[1].leader().is_none() && !facts.groups[1].nodes[0].is_healthy);
        assert_eq!((facts.slots[0].first, facts.slots[1].last), (0, 16_383));
        assert_eq!(facts.slots[1].group, 1);
    }
}
