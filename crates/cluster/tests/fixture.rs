//! A cluster of one group, for tests of single machines.

use remora_cluster::message::Position;
use remora_cluster::topology::change::{self, Joining, Promotion};
use remora_cluster::topology::{GroupId, Instance, MemberId, Topology};

pub const GROUP: GroupId = GroupId(1);
pub const MS: u64 = 1_000_000;

/// The first process of this member.
pub fn instance(number: u64) -> Instance {
    Instance { member: MemberId(number), incarnation: 1 }
}

pub fn joining(instance: Instance) -> Joining {
    let number = instance.member.0;
    let (fabric_address, resp_address) = (format!("host{number}:1"), format!("host{number}:2"));
    Joining { instance, group: GROUP, fabric_address, resp_address }
}

/// Members 1, 2 and 3 have joined. Member 1 leads epoch 1, and these are in sync.
pub fn led_by_1(in_sync: &[u64]) -> Topology {
    let mut topology = Topology::new(7, vec![(GROUP, "g".into(), 1)]).unwrap();
    for number in 1..=3 {
        topology = change::join(&topology, joining(instance(number))).unwrap();
    }
    let first = Promotion { group: GROUP, epoch: 0, to: instance(1), in_sync: Vec::new() };
    topology = change::promote(&topology, first).unwrap();
    with_set(&topology, in_sync)
}

/// The primary has recorded this set.
pub fn with_set(topology: &Topology, in_sync: &[u64]) -> Topology {
    let group = topology.group(GROUP).unwrap();
    let author = (group.primary.unwrap(), group.epoch);
    let set = in_sync.iter().map(|of| instance(*of)).collect();
    change::set_in_sync(topology, GROUP, author, set).unwrap()
}

/// A watcher has promoted this one.
pub fn promoted(topology: &Topology, to: u64, in_sync: &[u64]) -> Topology {
    let epoch = topology.group(GROUP).unwrap().epoch;
    let in_sync = in_sync.iter().map(|of| instance(*of)).collect();
    let promotion = Promotion { group: GROUP, epoch, to: instance(to), in_sync };
    change::promote(topology, promotion).unwrap()
}

/// A log of one shard that ends so, all of it applied.
pub fn ends(epoch: u64, sequence: u64) -> Vec<Position> {
    vec![Position { epoch, sequence, applied: sequence }]
}
