//! Made-up machines: the parsed lists, and the placement of shards.

use super::*;
use std::fs;

/// A directory like the kernel's, which is removed at the end.
struct Machine(tempfile::TempDir);

impl Machine {
    /// Nodes by number: their cpulist and distances.
    fn new(online: &str, has_memory: &str, nodes: &[(u32, &str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let machine = Self(directory);
        machine.write("online", online);
        machine.write("has_memory", has_memory);
        for (number, cores, distance) in nodes {
            fs::create_dir(machine.0.path().join(format!("node{number}"))).unwrap();
            machine.write(&format!("node{number}/cpulist"), cores);
            machine.write(&format!("node{number}/distance"), distance);
        }
        machine
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), format!("{text}\n")).unwrap();
    }

    fn read(&self, cores: &str, memory: Option<&str>) -> Topology {
        let memory = memory.map(|list| parse_list(list).unwrap());
        let memory = memory.map(|set| set.into_iter().map(|node| node as u32).collect());
        Topology::read(self.0.path(), &parse_list(cores).unwrap(), memory.as_ref())
    }
}

/// Core and node of each shard; -1 for none.
fn places(topology: &Topology, shards: usize) -> Vec<(i64, i64)> {
    let number = |core: Option<usize>| core.map_or(-1, |core| core as i64);
    let node = |node: Option<u32>| node.map_or(-1, i64::from);
    let places = topology.places(shards, true);
    places.into_iter().map(|place| (number(place.core), node(place.node))).collect()
}

#[test]
fn one_node() {
    let topology = Machine::new("0", "0", &[(0, "0-3", "10")]).read("0-3", Some("0"));
    assert_eq!((topology.nodes(), topology.has_several()), (1, false));
    assert_eq!(places(&topology, 3), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(places(&topology, 5), [(-1, 0); 5], "more shards than cores");
    let unpinned = topology.places(2, false);
    assert_eq!(unpinned, [ShardPlacement { core: None, node: Some(0) }; 2]);
}

#[test]
fn two_nodes_take_turns() {
    let machine =
        Machine::new("0-1", "0-1", &[(0, "0-3,8-11", "10 21"), (1, "4-7,12-15", "21 10")]);
    let topology = machine.read("0-15", None);
    assert_eq!(topology.nodes(), 2);
    assert_eq!(places(&topology, 5), [(0, 0), (4, 1), (1, 0), (5, 1), (2, 0)]);
    assert_eq!(topology.places(2, false), [ShardPlacement::default(); 2]);
    assert_eq!(places(&topology, 17), [(-1, -1); 17]);
    let all = places(&topology, 16);
    let cores: BTreeSet<i64> = all.iter().map(|(core, _)| *core).collect();
    assert_eq!(cores.len(), 16, "no core is given twice");
    assert!(all.iter().all(|(core, node)| (*core / 4 % 2) == *node), "{all:?}");
}

#[test]
fn siblings_come_last() {
    let machine = Machine::new("0", "0", &[(0, "0-7", "10")]);
    let pairs = tempfile::tempdir().unwrap();
    for cpu in 0..8 {
        let topology = pairs.path().join(format!("cpu{cpu}/topology"));
        fs::create_dir_all(&topology).unwrap();
        let first = cpu / 2 * 2;
        fs::write(topology.join("thread_siblings_list"), format!("{first}-{}", first + 1)).unwrap();
    }
    let cores = Cores::read(pairs.path(), parse_list("0-7").unwrap());
    let topology = machine.read("0-7", None).with_siblings(&cores);
    let cores: Vec<i64> = places(&topology, 6).into_iter().map(|(core, _)| core).collect();
    assert_eq!(cores, [0, 2, 4, 6, 1, 3]);
}

#[test]
fn uneven_nodes_are_filled_up() {
    let machine = Machine::new(
        "0-3",
        "0-3",
        &[
            (0, "0", "10 12 20 22"),
            (1, "1-3", "12 10 22 24"),
            (2, "4-5", "20 22 10 12"),
            (3, "6-7", "22 24 12 10"),
        ],
    );
    let topology = machine.read("0-7", Some("0-3"));
    let expected = [(0, 0), (1, 1), (4, 2), (6, 3), (2, 1), (5, 2), (7, 3), (3, 1)];
    assert_eq!(places(&topology, 8), expected);
}

#[test]
fn a_node_without_memory_takes_the_nearest() {
    let machine = Machine::new(
        "0-2",
        "0,2",
        &[(0, "0-1", "10 30 40"), (1, "2-3", "30 10 15"), (2, "4-5", "40 15 10")],
    );
    let topology = machine.read("0-5", None);
    assert_eq!(topology.nodes(), 3);
    // Nodes with memory of their own come first.
    let expected = [(0, 0), (4, 2), (1, 0), (5, 2), (2, 2), (3, 2)];
    assert_eq!(places(&topology, 6), expected);
    machine.write("node1/distance", "not numbers");
    assert_eq!(places(&machine.read("2-3", None), 1), [(2, 0)], "without distances the first");
}

#[test]
fn a_node_of_memory_alone_counts_and_takes_no_shard() {
    let machine = Machine::new("0-1", "0-1", &[(0, "0-1", "10 20"), (1, "", "20 10")]);
    let topology = machine.read("0-1", None);
    assert_eq!(topology.nodes(), 2);
    assert_eq!(places(&topology, 2), [(0, 0), (1, 0)]);
}

#[test]
fn cores_that_are_offline_or_not_allowed_are_left_out() {
    let machine = Machine::new("0-1", "0-1", &[(0, "0,2-3", "10 20"), (1, "4-7", "20 10")]);
    // The kernel's mask may name cores that no node lists: they are offline.
    let topology = machine.read("1-2,5,7-9", None);
    assert_eq!(places(&topology, 3), [(2, 0), (5, 1), (7, 1)]);
    assert_eq!(places(&topology, 4), [(-1, -1); 4]);
    let one = machine.read("4-7", Some("1"));
    assert_eq!((one.nodes(), places(&one, 1)), (1, vec![(4, 1)]));
    assert_eq!(one.places(1, false), [ShardPlacement { core: None, node: Some(1) }]);
}

#[test]
fn memory_that_is_not_allowed_is_not_asked_for() {
    let machine = Machine::new("0-1", "0-1", &[(0, "0-1", "10 20"), (1, "2-3", "20 10")]);
    let topology = machine.read("0-3", Some("1"));
    assert_eq!(places(&topology, 4), [(2, 1), (3, 1), (0, 1), (1, 1)]);
    let none = machine.read("0-3", Some("7"));
    assert_eq!(places(&none, 1), [(0, -1)]);
}

#[test]
fn no_directory_or_nonsense_is_one_node() {
    let nowhere = Path::new("/nonexistent");
    let cores = BTreeSet::from([2, 5]);
    let topology = Topology::read(nowhere, &cores, None);
    assert_eq!((topology.nodes(), places(&topology, 2)), (1, vec![(2, 0), (5, 0)]));
    for nonsense in ["x", "3-1", "0-99999999", "0,,1", "-"] {
        assert_eq!(parse_list(nonsense), None, "{nonsense}");
        let machine = Machine::new(nonsense, nonsense, &[(0, nonsense, nonsense)]);
        assert_eq!(machine.read("2,5", None), topology);
    }
    assert_eq!(Topology::read(nowhere, &BTreeSet::new(), None).places(1, true)[0].core, None);
}

#[test]
fn lists_are_read() {
    assert_eq!(parse_list("0-2,5,7-7\n"), Some(BTreeSet::from([0, 1, 2, 5, 7])));
    assert_eq!(parse_list("\n"), Some(BTreeSet::new()));
    let status = "Name:\tx\nMems_allowed:\t3\nMems_allowed_list:\t0-1\n";
    assert_eq!(allowed_memory(status), Some(BTreeSet::from([0, 1])));
    assert_eq!(allowed_memory(""), None);
}

#[test]
fn this_machine_has_a_place_for_one_shard() {
    let topology = Topology::of_this_process();
    assert!(topology.nodes() >= 1);
    assert_eq!(topology.places(1, true).len(), 1);
}
