//! Many members at one coordinator: what starting all of them costs, and failovers of one group and of
//! many at once, in counts and in the world's time (docs/scale.md). Links have delays here, and no
//! bandwidth.

use super::{GroupId, World};
use remora_cluster::memory::Counts;
use remora_layout::limits::HEARTBEAT_MS;
use remora_testing::Random;

/// Members of each group.
const EACH: u64 = 3;
/// Longest time until all groups are whole, ms.
const LIMIT_MS: u64 = 300_000;

/// What something has cost.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Until all groups were whole, ms of the world.
    ms: u64,
    /// Messages between servers, logs left out.
    messages: u64,
    /// Changes of the topology.
    changes: u64,
    coordinator: Counts,
}

impl World {
    fn cost(&mut self, of: impl FnOnce(&mut Self)) -> Cost {
        let version = |world: &Self| world.ensemble.topology().map_or(0, |of| of.version);
        let before = (self.now_ms, self.messages, version(self), self.ensemble.counts());
        of(self);
        let counts = self.ensemble.counts().since(before.3);
        Cost {
            ms: self.now_ms - before.0,
            messages: self.messages - before.1,
            changes: version(self) - before.2,
            coordinator: counts,
        }
    }

    fn steps_until_whole(&mut self) {
        let began_ms = self.now_ms;
        loop {
            (0..50).for_each(|_| self.step());
            if self.are_whole() {
                return;
            }
            assert!(self.now_ms < began_ms + LIMIT_MS, "not whole after {LIMIT_MS} ms");
        }
    }

    /// The primaries of the first groups die at once, and are started again 1.5 s later.
    fn kill_primaries(&mut self, groups: u32) -> Cost {
        self.cost(|world| {
            for group in 1..=groups {
                let at = world.primary_of(GroupId(group)).unwrap();
                let restarts_ms = world.now_ms + 1_500;
                world.nodes[at].crash(restarts_ms);
            }
            world.steps_until_whole();
        })
    }
}

/// So many groups start at once, rest for a second, lose one primary, and then so many at once: what each
/// of these costs.
fn run(groups: u32, at_once: u32) -> [Cost; 4] {
    let mut world = World::shaped(Random::new(1), (groups, EACH), 1);
    let start = world.cost(World::steps_until_whole);
    println!("start: {start:?}");
    let rest = world.cost(|world| (0..1_000).for_each(|_| world.step()));
    println!("one second at rest: {rest:?}");
    let one = world.kill_primaries(1);
    println!("one primary dies: {one:?}");
    let many = world.kill_primaries(at_once);
    println!("{at_once} primaries die at once: {many:?}");
    let bytes = world.ensemble.topology().unwrap().encode().len();
    println!("{} members, a topology of {bytes} bytes", u64::from(groups) * EACH);
    [start, rest, one, many]
}

impl Cost {
    /// Of the reads of the topology that all members would make of all changes, so many percent were made.
    fn read_percent(&self, members: u64) -> u64 {
        self.coordinator.topologies * 100 / (self.changes * members)
    }
}

/// `REMORA_SCALE_GROUPS=333` has 999 members.
fn groups() -> u32 {
    std::env::var("REMORA_SCALE_GROUPS").map_or(40, |text| text.parse().expect("a number"))
}

#[test]
fn members_that_start_at_once_and_groups_that_fail_over_at_once_are_no_herd() {
    let (groups, at_once) = (groups(), groups() * 3 / 10);
    let [start, rest, one, many] = run(groups, at_once);
    let [groups, at_once] = [groups, at_once].map(u64::from);
    let members = groups * EACH;
    // Each joins, each group gets a primary and, one after the other, two replicas.
    assert!((members + groups..=members + 4 * groups).contains(&start.changes), "{start:?}");
    // Members that propose at the same time draw longer and longer pauses: ten for each change with 300
    // members, sixteen with 999.
    assert!(start.coordinator.proposals <= 20 * start.changes, "a herd of proposals: {start:?}");
    assert!(start.read_percent(members) <= 70, "all members read each change: {start:?}");
    assert!(start.coordinator.lists <= 5 * members, "all read each list: {start:?}");
    assert_eq!((rest.changes, rest.coordinator.proposals), (0, 0), "{rest:?}");
    let pings = rest.coordinator.requests - rest.coordinator.topologies;
    assert!(pings <= 8 * members, "pings, three in a session: {rest:?}");
    let leases = 2 * (EACH - 1) * 1_000 / HEARTBEAT_MS;
    assert!(rest.messages <= leases * groups, "leases: {rest:?}");
    // Promoted, out of the set or in it again.
    assert!(one.changes <= 5 && one.coordinator.proposals <= 10, "{one:?}");
    assert!(one.coordinator.topologies <= 5 * members, "{one:?}");
    assert!(one.messages <= rest.messages * one.ms / 1_000 + 200, "others take part: {one:?}");
    assert!(many.changes <= 5 * at_once, "{many:?}");
    assert!(many.coordinator.proposals <= 20 * many.changes, "a herd of proposals: {many:?}");
    assert!(many.read_percent(members) <= 70, "all members read each change: {many:?}");
}
