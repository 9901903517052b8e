//! A seed's choice of replicas.

use crate::faults::Fault;
use crate::swarm::Swarm;
use remora_engine::Durability;
use remora_fabric::sim::Random;

/// Most replicas of a world.
pub const MAX_REPLICAS: usize = 3;
/// Mixed into the seed: replicas change nothing else that is drawn.
const SALT: u64 = 0x7265_706c_6963_6173;
/// Operations of a world with replicas at most: each change is carried out several times.
const MOST_OPERATIONS: u64 = 500;
/// Longest values of such a world.
const MOST_VALUE_BYTES: u64 = 8_000;
/// Bytes of each arena: a replica takes room in another order, and may have fewer shards.
const ARENA_BYTES: usize = 8 << 20;

/// The replicas of a world.
#[derive(Clone, Debug)]
pub struct ReplicaSwarm {
    /// The shards of each.
    pub shards: Vec<usize>,
    /// How many of them have to have an entry before it is acknowledged.
    pub min_replicas: usize,
    /// Longest time of a replica's turn, ns.
    pub turn_ns: u64,
    /// Drift of each one's clock, ppm.
    pub gains_ppm: Vec<i64>,
}

impl Swarm {
    /// The same world with replicas, so many at most.
    #[must_use]
    pub fn with_replicas(mut self, seed: u64, with_faults: bool, most: usize) -> Self {
        let mut random = Random::new(seed ^ SALT);
        let mut one_of = |of: [u64; 4]| of[random.below(4) as usize];
        let replicas = one_of([1, 2, 2, 3]) as usize;
        let is_even = one_of([0, 0, 1, 1]) == 1;
        let own = self.node.shards as u64;
        let shards = (0..replicas)
            .map(|_| if is_even { own } else { one_of([1, 2, 3, own]) } as usize)
            .take(most.max(1));
        let shards: Vec<_> = shards.collect();
        let replicas = shards.len();
        let min_replicas = (one_of([0, 1, 1, 2]) as usize).min(replicas);
        let turn_ns = one_of([3_000, 3_000, 30_000, 1_000_000]);
        let gains_ppm =
            (0..replicas).map(|_| one_of([0, 50_000, 150_000, 200_000]) as i64 - 100_000).collect();
        if with_faults {
            self.faults.insert(Fault::ReplicaStall, one_of([0, 1_000, 3_000, 10_000]) as u32);
            self.faults.insert(Fault::ReplicaCrash, one_of([0, 300, 1_000, 3_000]) as u32);
            self.faults.insert(Fault::ServerCrash, one_of([0, 300, 1_000, 3_000]) as u32);
        }
        self.operations = self.operations.min(MOST_OPERATIONS);
        self.lengths.most_bytes = self.lengths.most_bytes.min(MOST_VALUE_BYTES);
        self.node.disk = None;
        self.node.arena_bytes = self.node.arena_bytes.max(ARENA_BYTES);
        self.node.min_replicas = min_replicas;
        self.node.shard.durability = match min_replicas {
            0 => Durability::Memory,
            _ => Durability::Told,
        };
        self.replicas = Some(ReplicaSwarm { shards, min_replicas, turn_ns, gains_ppm });
        self
    }
}
