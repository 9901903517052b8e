//! A seed's choice of replicas.

use crate::faults::Fault;
use remora_fabric::sim::Random;
use remora_replica::AskFor;
use remora_server::ReplicaReads;

/// Most replicas of a world.
pub const MAX_REPLICAS: usize = 3;
/// Mixed into the seed: replicas change nothing else that is drawn.
const SALT: u64 = 0x7265_706c_6963_6173;
/// The same of when they acknowledge.
const ACKS_SALT: u64 = 0x7265_706c_6163_6b73;
/// The same of orders to copy anew.
const RESYNC_SALT: u64 = 0x7265_706c_7379_6e63;
/// The same of their readers.
const READS_SALT: u64 = 0x7265_706c_7265_6164;

/// The replicas of a world.
#[derive(Clone, Debug)]
pub struct ReplicaSwarm {
    /// The shards of each.
    pub shards: Vec<usize>,
    /// How many of them have to have an entry before it is acknowledged.
    pub min_replicas: usize,
    /// When they are asked for an acknowledgement, and count as having an entry.
    pub acks: AskFor,
    /// Whether they answer reads.
    pub reads: ReplicaReads,
    /// Drift of each reader's machine, ppm.
    pub reader_gains_ppm: Vec<i64>,
    /// The oldest that each reader wants results to be, ms; 0: of any age.
    pub reader_lags_ms: Vec<u64>,
    /// By how much each replica's monotonic clock gains on its primary's, ppm.
    pub clock_gains_ppm: Vec<i64>,
    /// Longest time of a replica's turn, ns.
    pub turn_ns: u64,
    /// Drift of each one's clock, ppm.
    pub gains_ppm: Vec<i64>,
    /// Chances of what may happen to them and their primary, in a million.
    pub faults: [(Fault, u32); 4],
}

impl ReplicaSwarm {
    /// The replicas of a seed, so many at most, of a primary with so many shards.
    pub fn of(seed: u64, own_shards: usize, most: usize) -> Self {
        let mut random = Random::new(seed ^ SALT);
        let mut one_of = |of: [u64; 4]| of[random.below(4) as usize];
        let replicas = one_of([1, 2, 2, 3]) as usize;
        let is_even = one_of([0, 0, 1, 1]) == 1;
        let own = own_shards as u64;
        let shards = (0..replicas)
            .map(|_| if is_even { own } else { one_of([1, 2, 3, own]) } as usize)
            .take(most.max(1));
        let shards: Vec<_> = shards.collect();
        let replicas = shards.len();
        let readers = Readers::of(seed, replicas);
        Self {
            shards,
            min_replicas: (one_of([0, 1, 1, 2]) as usize).min(replicas),
            acks: match Random::new(seed ^ ACKS_SALT).below(3) {
                0 => AskFor::Each,
                _ => AskFor::Some,
            },
            reads: readers.reads,
            reader_gains_ppm: readers.gains_ppm,
            reader_lags_ms: readers.lags_ms,
            clock_gains_ppm: readers.clock_gains_ppm,
            turn_ns: one_of([3_000, 3_000, 30_000, 1_000_000]),
            gains_ppm: (0..replicas)
                .map(|_| one_of([0, 50_000, 150_000, 200_000]) as i64 - 100_000)
                .collect(),
            faults: [
                (Fault::ReplicaStall, one_of([0, 1_000, 3_000, 10_000]) as u32),
                (Fault::ReplicaCrash, one_of([0, 300, 1_000, 3_000]) as u32),
                (Fault::ServerCrash, one_of([0, 300, 1_000, 3_000]) as u32),
                (
                    Fault::ReplicaResync,
                    [0, 0, 1_000][Random::new(seed ^ RESYNC_SALT).below(3) as usize],
                ),
            ],
        }
    }
}

/// A seed's choice of readers.
struct Readers {
    reads: ReplicaReads,
    gains_ppm: Vec<i64>,
    lags_ms: Vec<u64>,
    clock_gains_ppm: Vec<i64>,
}

impl Readers {
    fn of(seed: u64, replicas: usize) -> Self {
        let mut random = Random::new(seed ^ READS_SALT);
        let mut one_of = |of: [i64; 4]| of[random.below(4) as usize];
        let readers = one_of([0, 1, 2, 3]);
        Self {
            reads: match one_of([0, 1, 1, 1]) {
                0 => ReplicaReads::None,
                _ => ReplicaReads::Stale,
            },
            gains_ppm: (0..readers).map(|_| one_of([-100_000, -20_000, 0, 100_000])).collect(),
            lags_ms: (0..readers).map(|_| one_of([0, 0, 30, 300]) as u64).collect(),
            // What a clock may be slewed by is twice as much.
            clock_gains_ppm: (0..replicas).map(|_| one_of([-10_000, 0, 100, 10_000])).collect(),
        }
    }
}
