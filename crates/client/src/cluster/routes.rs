//! Where a key's primary is, by a topology.

use remora_client_core::Address;
use remora_cluster::topology::{GroupId, Instance, MemberState, Topology};
use remora_layout::slot::slot_of;

/// The primary of a group, in one epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lead {
    pub group: GroupId,
    pub epoch: u64,
    pub primary: Instance,
    pub address: Address,
}

impl Lead {
    /// Whether it is of the same epoch and the same instance.
    pub fn is_as(&self, other: &Self) -> bool {
        (self.group, self.epoch, self.primary) == (other.group, other.epoch, other.primary)
    }
}

/// Whether what a server tells replaces what the client knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// It does.
    Newer,
    /// The client knows it, or a later one.
    Known,
    /// It is of another cluster.
    OtherCluster,
}

/// See the module's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Routes {
    topology: Topology,
}

impl Routes {
    /// By this topology.
    pub fn new(topology: Topology) -> Self {
        Self { topology }
    }

    /// The version of the topology.
    pub fn version(&self) -> u64 {
        self.topology.version
    }

    /// What a topology that a server tells is to this client.
    pub fn news(&self, told: &Topology) -> News {
        match () {
            () if told.cluster != self.topology.cluster => News::OtherCluster,
            () if told.version > self.topology.version => News::Newer,
            () => News::Known,
        }
    }

    /// The group of a key's slot.
    pub fn group_of(&self, key: &[u8]) -> Option<GroupId> {
        self.topology.group_of_slot(slot_of(key)).map(|of| of.id)
    }

    /// The primary of a group; `None` before the first one.
    pub fn lead(&self, id: GroupId) -> Option<Lead> {
        let group = self.topology.group(id)?;
        let primary = group.primary?;
        let address = self.topology.member(primary.member)?.fabric_address.parse().ok()?;
        Some(Lead { group: id, epoch: group.epoch, primary, address })
    }

    /// Where servers of the cluster may answer, in the order of their ids.
    pub fn addresses(&self) -> Vec<Address> {
        let members = self.topology.members().iter();
        let present = members.filter(|of| of.state != MemberState::Replaced);
        present.filter_map(|of| of.fabric_address.parse().ok()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use remora_cluster::topology::MemberId;
    use remora_cluster::topology::change::{Joining, Promotion, join, promote, promote_with_loss};

    /// A cluster of two groups; the second has no primary yet.
    pub fn topology() -> Topology {
        let groups = vec![(GroupId(1), "a".to_owned(), 0), (GroupId(2), "b".to_owned(), 0)];
        let mut topology = Topology::new(7, groups).expect("it is valid");
        for member in [11, 12] {
            let joining = Joining {
                instance: instance(member),
                group: GroupId(1),
                fabric_address: format!("127.0.0.1:{}", 1000 + member),
                resp_address: format!("127.0.0.1:{}", 2000 + member),
            };
            topology = join(&topology, joining).expect("it may join");
        }
        topology
    }

    /// The group `a` has its next epoch, under this member.
    pub fn led_by(topology: &Topology, member: u64, in_sync: &[u64]) -> Topology {
        let epoch = topology.group(GroupId(1)).expect("it is there").epoch;
        let in_sync = in_sync.iter().map(|of| instance(*of)).collect();
        let promotion = Promotion { group: GroupId(1), epoch, to: instance(member), in_sync };
        promote(topology, promotion).expect("it may lead")
    }

    pub fn instance(member: u64) -> Instance {
        Instance { member: MemberId(member), incarnation: member + 100 }
    }

    #[test]
    fn a_key_goes_by_its_slot_to_the_primary_of_its_group() {
        let routes = Routes::new(led_by(&topology(), 11, &[]));
        // The slots are halves: 0 to 8,191 and 8,192 to 16,383.
        for number in 0..500 {
            let key = format!("key:{number}");
            let group = GroupId(1 + u32::from(slot_of(key.as_bytes()) >= 8192));
            assert_eq!(routes.group_of(key.as_bytes()), Some(group));
        }
        let tagged = |key: &[u8]| routes.group_of(key);
        assert_eq!(tagged(b"a{tag}"), tagged(b"b{tag}"));
        let lead = routes.lead(GroupId(1)).expect("it has a primary");
        assert_eq!((lead.epoch, lead.primary), (1, instance(11)));
        assert_eq!(lead.address.to_string(), "127.0.0.1:1011");
        assert_eq!(routes.lead(GroupId(2)), None, "it has none");
        assert_eq!(routes.addresses().len(), 2);
    }

    #[test]
    fn another_epoch_is_another_lead_even_of_the_same_instance() {
        let first = led_by(&topology(), 11, &[]);
        let lead = |of: &Topology| Routes::new(of.clone()).lead(GroupId(1)).expect("it is led");
        let again = promote_with_loss(&first, GroupId(1), 1, instance(12)).expect("it may");
        let again = promote_with_loss(&again, GroupId(1), 2, instance(11)).expect("it may");
        assert!(lead(&first).is_as(&lead(&first)));
        assert_eq!(lead(&first).primary, lead(&again).primary);
        assert!(!lead(&first).is_as(&lead(&again)));
    }

    #[test]
    fn only_a_greater_version_of_the_same_cluster_is_news() {
        let old = topology();
        let new = led_by(&old, 11, &[]);
        let routes = Routes::new(new.clone());
        assert_eq!(routes.news(&old), News::Known);
        assert_eq!(routes.news(&new), News::Known);
        assert_eq!(Routes::new(old).news(&new), News::Newer);
        let mut other = new;
        (other.cluster, other.version) = (8, 1000);
        assert_eq!(routes.news(&other), News::OtherCluster);
    }
}
