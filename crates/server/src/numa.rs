//! Placement of shards' threads and arenas (HydraDB 4.1.2, H5).
//!
//! A machine with several NUMA nodes has as many memory controllers: shards are spread over the
//! nodes, each runs on a core of its node, and its arena's pages come from there. Placement is a
//! pure function of the kernel's lists and of the process's permissions.

use crate::cores::{Cores, parse_list};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Where Linux lists its nodes.
const NODES: &str = "/sys/devices/system/node";

/// One node, as far as this process may use it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Node {
    number: u32,
    /// Its cores: of each physical one the first, then the others.
    cores: Vec<usize>,
    /// The nearest node with memory: the node itself, unless it has none.
    memory: Option<u32>,
}

/// The nodes that have something for this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Nodes with cores, by number.
    nodes: Vec<Node>,
    /// Numbers of all nodes with cores or memory.
    numbers: BTreeSet<u32>,
}

/// The place of a shard's thread and of its arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardPlacement {
    /// Its core; `None` leaves it to the kernel.
    pub core: Option<usize>,
    /// The node of its arena; `None` leaves it to the kernel.
    pub node: Option<u32>,
}

impl Topology {
    /// The kernel's lists for this process.
    pub fn of_this_process() -> Self {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        let cores: BTreeSet<usize> = cores.into_iter().map(|core| core.id).collect();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let topology = Self::read(Path::new(NODES), &cores, allowed_memory(&status).as_ref());
        topology.with_siblings(&Cores::of_this_process())
    }

    /// Shards take hardware threads of one core only when each core has a shard.
    fn with_siblings(mut self, cores: &Cores) -> Self {
        for node in &mut self.nodes {
            node.cores.sort_by_key(|cpu| (cores.rank(*cpu), *cpu));
        }
        self
    }

    /// Reads a directory laid out as `/sys/devices/system/node`, and keeps the part that a process
    /// with these cores and nodes of memory (`None`: all) may use. Without such a directory the
    /// machine is one node, number 0.
    fn read(directory: &Path, cores: &BTreeSet<usize>, memory: Option<&BTreeSet<u32>>) -> Self {
        let text = |name: &str| std::fs::read_to_string(directory.join(name)).ok();
        let list = |name: &str| text(name).and_then(|text| parse_list(&text));
        let online = list("online").unwrap_or_default();
        let with_memory: BTreeSet<u32> = list("has_memory")
            .unwrap_or_else(|| online.clone())
            .into_iter()
            .filter(|node| memory.is_none_or(|allowed| allowed.contains(&(*node as u32))))
            .map(|node| node as u32)
            .collect();
        let mut nodes = Vec::new();
        for &number in &online {
            let listed = list(&format!("node{number}/cpulist")).unwrap_or_default();
            let usable: Vec<usize> = listed.intersection(cores).copied().collect();
            if usable.is_empty() {
                continue;
            }
            let distances = text(&format!("node{number}/distance")).unwrap_or_default();
            let memory = nearest(number as u32, &with_memory, &online, &distances);
            nodes.push(Node { number: number as u32, cores: usable, memory });
        }
        if nodes.is_empty() {
            let cores = cores.iter().copied().collect();
            let node = Node { number: 0, cores, memory: Some(0) };
            return Self { nodes: vec![node], numbers: BTreeSet::from([0]) };
        }
        let numbers = nodes.iter().map(|node| node.number).chain(with_memory).collect();
        Self { nodes, numbers }
    }

    /// Nodes with cores or memory for this process.
    pub fn nodes(&self) -> usize {
        self.numbers.len()
    }

    /// Whether it makes a difference where memory lies.
    pub fn has_several(&self) -> bool {
        self.nodes() > 1
    }

    /// A place for each shard: a core of its own (H2), spread over the nodes as evenly as their
    /// cores allow. Without enough cores, or without `pin`, the kernel places the threads; on one
    /// node their memory is on that node all the same.
    pub fn places(&self, shards: usize, pin: bool) -> Vec<ShardPlacement> {
        let only = self.numbers.first().copied().filter(|_| !self.has_several());
        let cores: usize = self.nodes.iter().map(|node| node.cores.len()).sum();
        if !pin || shards > cores {
            return vec![ShardPlacement { core: None, node: only }; shards];
        }
        let mut taken: BTreeMap<u32, usize> = BTreeMap::new();
        let mut places = Vec::with_capacity(shards);
        for _ in 0..shards {
            // The node with free cores that has the fewest shards; a node with memory of its own
            // comes before one without.
            let node = self
                .nodes
                .iter()
                .filter(|node| taken.get(&node.number).copied().unwrap_or(0) < node.cores.len())
                .min_by_key(|node| {
                    let far = node.memory != Some(node.number);
                    (far, taken.get(&node.number).copied().unwrap_or(0), node.number)
                })
                .expect("there are as many cores as shards");
            let at = taken.entry(node.number).or_default();
            places.push(ShardPlacement { core: Some(node.cores[*at]), node: node.memory });
            *at += 1;
        }
        places
    }
}

/// The node with memory that is nearest to `number`. `distances` has one
/// number for each node that is online, in order.
fn nearest(
    number: u32,
    with_memory: &BTreeSet<u32>,
    online: &BTreeSet<usize>,
    distances: &str,
) -> Option<u32> {
    if with_memory.contains(&number) {
        return Some(number);
    }
    let distances = distances.split_whitespace().map(|text| text.parse::<u32>().ok());
    let near = online.iter().zip(distances).filter_map(|(&node, distance)| {
        let node = node as u32;
        with_memory.contains(&node).then_some((distance?, node))
    });
    near.min().map(|(_, node)| node).or_else(|| with_memory.first().copied())
}

/// Nodes whose memory a process may take, from its `/proc/PID/status`: a control group may exclude
/// some.
fn allowed_memory(status: &str) -> Option<BTreeSet<u32>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"))?;
    Some(parse_list(list)?.into_iter().map(|node| node as u32).collect())
}

/// Says in the log how shards were placed.
pub fn tell(topology: &Topology, places: &[ShardPlacement]) {
    if !topology.has_several() {
        tracing::info!("one NUMA node: all shards and arenas are on it");
        return;
    }
    for (shard, place) in places.iter().enumerate() {
        match *place {
            ShardPlacement { core: Some(core), node: Some(node) } => {
                tracing::info!(shard, core, node, "placed by NUMA node");
            }
            _ => tracing::warn!(shard, "not placed: pin is off, or there are not enough cores"),
        }
    }
}

#[cfg(test)]
mod tests;
