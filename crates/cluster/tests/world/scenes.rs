//! One thing happens, and everything else is well: how long nothing is acknowledged.

use super::node::SESSION_MS;
use super::{GroupId, World};
use remora_cluster::lease::READERS_WAIT_NS;
use remora_cluster::topology::Instance;
use remora_layout::limits::HEARTBEAT_MS;
use remora_testing::Random;

const GROUP: GroupId = GroupId(1);
/// Two turns of servers, some messages of the coordinator and of members.
const STEPS_MS: u64 = 60;

/// Three members that are whole, some time after they were.
fn whole(seed: u64) -> World {
    let mut world = World::shaped(Random::new(seed), (1, 3), 1);
    for _ in 0..2_000 {
        world.step();
    }
    assert!(world.are_whole());
    for _ in 0..seed % 100 {
        world.step();
    }
    world
}

impl World {
    fn steps(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.step());
    }

    fn recorded(&self) -> (Instance, Vec<Instance>) {
        let topology = self.ensemble.topology().unwrap();
        let group = topology.group(GROUP).unwrap();
        (group.primary.unwrap(), group.in_sync.clone())
    }

    /// The longest time without an acknowledgement, ms, in the next `ms`.
    fn pause_in(&mut self, ms: u64) -> u64 {
        self.oracles.get_mut(&GROUP).unwrap().pause_ms = 0;
        self.steps(ms);
        self.oracles[&GROUP].pause_ms
    }
}

#[test]
fn a_primary_that_dies_is_replaced_within_half_a_second_of_its_session() {
    let mut pauses = Vec::new();
    for seed in 0..20 {
        let mut world = whole(seed);
        let at = world.primary_of(GROUP).unwrap();
        let restarts_ms = world.now_ms + 1_500;
        world.nodes[at].crash(restarts_ms);
        pauses.push(world.pause_in(3_000));
        assert!(world.are_whole(), "its server is back, as a replica");
    }
    pauses.sort_unstable();
    println!("a primary dies: median {} ms, worst {} ms", pauses[10], pauses[19]);
    assert!(pauses.iter().all(|pause| *pause <= SESSION_MS + 500), "{pauses:?}");
}

#[test]
fn a_hand_over_stops_changes_for_some_heartbeats_only() {
    let mut pauses = Vec::new();
    for seed in 0..20 {
        let mut world = whole(seed);
        let (before, in_sync) = world.recorded();
        let to = in_sync[seed as usize % 2];
        let now_ms = world.now_ms;
        for at in 0..world.nodes.len() {
            world.with(at, |node, turn| node.promote(now_ms, to.member, turn));
        }
        pauses.push(world.pause_in(READERS_WAIT_NS / 1_000_000 + 500));
        let (after, in_sync) = world.recorded();
        assert_eq!((after, in_sync.len()), (to, 2));
        assert!(in_sync.contains(&before), "the primary of before stays in sync");
        assert!(world.are_whole());
    }
    pauses.sort_unstable();
    println!("a hand-over: median {} ms, worst {} ms", pauses[10], pauses[19]);
    assert!(pauses.iter().all(|pause| *pause <= 3 * HEARTBEAT_MS + STEPS_MS), "{pauses:?}");
}

#[test]
fn a_coordinator_without_its_quorum_stops_nothing() {
    let mut world = whole(1);
    world.ensemble.set_quorum(false);
    assert!(world.pause_in(5_000) <= SESSION_MS / 2, "changes come at random");
    world.ensemble.set_quorum(true);
    assert!(world.pause_in(2_000) <= SESSION_MS / 2);
    assert_eq!(world.oracles[&GROUP].epochs, 1, "nobody was promoted");
}

#[test]
fn a_member_that_is_drained_leads_no_more_and_leaves_the_set() {
    let mut world = whole(2);
    let (before, _) = world.recorded();
    world.drain(before.member);
    world.steps(3_000);
    let (after, in_sync) = world.recorded();
    assert!(after != before && !in_sync.contains(&before) && in_sync.len() == 1);
    assert_eq!(world.oracles[&GROUP].epochs, 2);
}

#[test]
fn servers_that_cannot_apply_what_they_have_keep_it_until_one_of_them_can() {
    for seed in 0..10 {
        let mut world = whole(seed);
        let primary = world.primary_of(GROUP).unwrap();
        let until_ms = world.now_ms + 6_000;
        world.nodes.iter_mut().for_each(|of| of.cannot_apply_until_ms = until_ms);
        world.nodes[primary].crash(until_ms);
        world.steps(5_000);
        let (next, in_sync) = world.recorded();
        let epochs = world.oracles[&GROUP].epochs;
        assert!(in_sync.is_empty() && epochs == 1, "each of the two was promoted, in vain");
        // The one that is left of the record leads once it can. It has everything.
        world.steps(4_000);
        assert_eq!(world.recorded().0, next);
        assert!(world.are_whole());
    }
}

#[test]
fn a_hand_over_that_loses_its_quorum_leaves_a_primary_with_everything() {
    for seed in 0..10 {
        let mut world = whole(seed);
        let at = world.primary_of(GROUP).unwrap();
        let (before, in_sync) = world.recorded();
        let now_ms = world.now_ms;
        for node in 0..world.nodes.len() {
            world.with(node, |node, turn| node.promote(now_ms, in_sync[0].member, turn));
        }
        world.steps(20);
        world.ensemble.set_quorum(false);
        world.steps(3_000);
        // All others die with what they had in memory.
        let restarts_ms = world.now_ms + 8_000;
        for node in (0..world.nodes.len()).filter(|of| *of != at) {
            world.nodes[node].crash(restarts_ms);
        }
        world.ensemble.set_quorum(true);
        world.steps(6_000);
        assert_eq!(world.recorded().0, before, "nobody else has everything");
        assert!(world.nodes[at].serves(world.now_ms));
        world.steps(8_000);
        assert!(world.are_whole());
    }
}

#[test]
fn replicas_clear_nothing_while_the_record_counts_on_them() {
    for seed in 0..20 {
        let mut world = whole(seed);
        let at = world.primary_of(GROUP).unwrap();
        world.ensemble.set_quorum(false);
        world.steps(20);
        let (other, replica) = ((at + 1) % 3, (at + 2) % 3);
        let restarts_ms = world.now_ms + 20_000;
        world.nodes[other].crash(restarts_ms);
        world.must_copy(replica);
        // The primary dies before a copy of it could have come whole.
        world.steps(10 + 5 * seed);
        world.nodes[at].crash(restarts_ms);
        world.nodes[replica].lose_copy();
        world.ensemble.set_quorum(true);
        world.steps(5_000);
        assert_eq!(world.primary_of(GROUP), Some(replica));
        assert!(world.nodes[replica].serves(world.now_ms), "it has everything");
    }
}

#[test]
fn a_draining_member_leads_if_nobody_else_of_the_set_is_left() {
    let mut world = whole(3);
    let (primary, in_sync) = world.recorded();
    let at = |world: &World, of| world.nodes.iter().position(|node| node.instance() == Some(of));
    let (other, last) = (at(&world, in_sync[0]).unwrap(), in_sync[1]);
    world.nodes[other].crash(u64::MAX);
    world.steps(2_000);
    assert_eq!(world.recorded(), (primary, vec![last]));
    world.drain(last.member);
    world.steps(500);
    assert_eq!(world.recorded(), (primary, vec![last]), "nobody takes its part");
    let leads = at(&world, primary).unwrap();
    world.nodes[leads].crash(u64::MAX);
    world.steps(3_000);
    assert_eq!(world.recorded().0, last);
}
