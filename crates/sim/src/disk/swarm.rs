//! A seed's choice of disks.

use remora_fabric::sim::Random;
use remora_storage::Promise;
use std::ops::RangeInclusive;

const MS: u64 = 1_000_000;
/// Mixed into the seed: whether changes are durable late changes nothing else.
const SALT: u64 = 0x6469_736b_5f6f_6666;
/// Mixed into the seed: the other choices.
const KIND_SALT: u64 = 0x6469_736b_5f6b_696e;
/// Longest values of worlds with disks.
const MOST_VALUE_BYTES: u64 = 2_000;

/// Longest sync of a disk that has no fault, ns: what is written behind the end of a segment waits for
/// two of them, and clients wait 5 s.
pub(super) const SLOWEST_NS: u64 = 2_000 * MS;

/// The disk of a server, and what is written to it.
#[derive(Clone, Debug)]
pub struct DiskSwarm {
    /// Time of a write or a sync, ns.
    pub flush_ns: RangeInclusive<u64>,
    /// When a change is durable.
    pub promise: Promise,
    /// How much longer a sync takes without a waiting client.
    pub slow_syncs: u64,
    /// Whether groups are written while a sync is under way that changes wait for.
    pub writes_beside: bool,
    /// Bytes of a run at most: an entry may be torn between two.
    pub run_bytes: usize,
    /// Bytes of a segment after which the next one begins.
    pub segment_bytes: u64,
    /// Longest time between the end of a snapshot and the next one, ns; 0: there are none.
    pub snapshot_every_ns: u64,
    /// Keys, parts and buckets of a turn of a snapshot.
    pub snapshot_keys: usize,
    /// Longest time between two turns of a snapshot, ns.
    pub snapshot_pace_ns: u64,
    /// Whether a restart may be one with another number of shards.
    pub reshards: bool,
}

impl DiskSwarm {
    /// Disks in one world of three, of those with short values.
    pub fn of(seed: u64, most_value_bytes: u64) -> Option<Self> {
        let mut random = Random::new(seed ^ SALT);
        let most_ns = [20_000, MS, 30 * MS][random.below(3) as usize];
        let has_disks = random.below(3) == 0 && most_value_bytes <= MOST_VALUE_BYTES;
        has_disks.then(|| Self::of_kind(&mut Random::new(seed ^ KIND_SALT), most_ns))
    }

    /// How long a change may wait for a disk that has no fault, ns: what is written behind the end of a
    /// segment waits for two syncs.
    pub fn longest_wait_ns(&self) -> u64 {
        let sync_ns = match self.promise {
            Promise::Written => (self.flush_ns.end() * self.slow_syncs).min(SLOWEST_NS),
            Promise::Memory | Promise::Synced => *self.flush_ns.end(),
        };
        2 * sync_ns
    }

    fn of_kind(random: &mut Random, most_ns: u64) -> Self {
        let mut one_of = |of: [u64; 4]| of[random.below(4) as usize];
        Self {
            flush_ns: 1_000..=most_ns,
            promise: match one_of([0, 0, 1, 1]) {
                0 => Promise::Written,
                _ => Promise::Synced,
            },
            slow_syncs: one_of([1, 1, 20, 300]),
            writes_beside: one_of([0, 0, 1, 1]) == 1,
            run_bytes: one_of([1, 300, 5_000, 1 << 20]) as usize,
            segment_bytes: one_of([5 << 10, 20 << 10, 100 << 10, 1 << 20]),
            snapshot_every_ns: one_of([0, 20 * MS, 300 * MS, 3_000 * MS]),
            snapshot_keys: one_of([1, 8, 60, 256]) as usize,
            snapshot_pace_ns: one_of([1_000, 20_000, MS, 10 * MS]),
            reshards: one_of([0, 0, 1, 1]) == 1,
        }
    }

    /// A disk that is quick and has nothing but the log.
    pub fn quick() -> Self {
        Self {
            flush_ns: 1_000..=20_000,
            promise: Promise::Synced,
            slow_syncs: 1,
            writes_beside: true,
            run_bytes: 1 << 20,
            segment_bytes: 1 << 20,
            snapshot_every_ns: 0,
            snapshot_keys: 256,
            snapshot_pace_ns: 1_000,
            reshards: false,
        }
    }
}
