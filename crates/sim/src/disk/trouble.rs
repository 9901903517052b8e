//! What goes wrong with a disk for a while: it begins at the call that suffers it, or a few calls
//! later, and goes away again.

use crate::faults::{Fault, Faults};
use remora_fabric::sim::SimWorld;
use remora_storage::sim::{DiskFault, SimVolume};

const MS: u64 = 1_000_000;
/// Longest time of it, ns.
const LONGEST_NS: [u64; 4] = [MS, 50 * MS, 500 * MS, 5_000 * MS];
/// Calls until it begins, if it begins later: as many as a new segment or a snapshot may take.
const CALLS: u64 = 24;

type Kinds = [(Fault, DiskFault)];

/// What may begin at a write.
pub const OF_WRITES: [(Fault, DiskFault); 3] = [
    (Fault::DiskWrite, DiskFault::Write),
    (Fault::DiskFull, DiskFault::Full),
    (Fault::DiskGone, DiskFault::Gone),
];
/// At a sync.
pub const OF_SYNCS: [(Fault, DiskFault); 1] = [(Fault::DiskSync, DiskFault::Sync)];
/// At a turn of a snapshot.
pub const OF_SNAPSHOTS: [(Fault, DiskFault); 2] =
    [(Fault::DiskFull, DiskFault::Full), (Fault::DiskSync, DiskFault::Sync)];

/// The trouble of a disk.
#[derive(Default)]
pub struct Trouble(Option<u64>);

impl Trouble {
    /// Lets something go wrong, perhaps.
    pub fn may_strike(
        &mut self,
        volume: &SimVolume,
        kinds: &Kinds,
        (world, faults): (&SimWorld, &Faults),
    ) {
        if self.0.is_some() {
            return;
        }
        for &(fault, kind) in kinds {
            if !faults.strikes(fault) {
                continue;
            }
            let (calls, for_ns) = world.draw(|random| {
                let longest = LONGEST_NS[random.below(4) as usize];
                (random.below(2) * random.below(CALLS), random.within(&(1..=longest)))
            });
            volume.set_fault_in(calls, kind);
            self.0 = Some(world.now_ns() + for_ns);
            return;
        }
    }

    /// Until when it lasts, virtual ns.
    pub fn until_ns(&self) -> Option<u64> {
        self.0
    }

    /// The cause goes away, if it is time.
    pub fn end_if_due(&mut self, volume: &SimVolume, (world, faults): (&SimWorld, &Faults)) {
        let is_over = |until_ns: &mut u64| *until_ns <= world.now_ns() || faults.are_stopped();
        if self.0.take_if(is_over).is_some() {
            volume.set_fault(DiskFault::None);
        }
    }
}
