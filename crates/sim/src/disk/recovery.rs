//! A restart from a simulated disk, by the production code, and what has to be there.

use super::snapshots::Snapshots;
use super::{Disk, IDENTITY, Lived, MS, Running};
use crate::faults::{Fault, Faults};
use crate::probes::Probe;
use remora_engine::Shard;
use remora_fabric::sim::{SimJournal, SimWorld};
use remora_layout::slot::SlotTable;
use remora_server::disk::{Content, RunSource, recover_shard};
use remora_storage::Incarnation;
use remora_storage::sim::{DiskFault, SimVolume};

/// Calls that a start makes before it serves, at most.
const CALLS_OF_START: u64 = 16;

impl Disk {
    /// What the next incarnation finds. Before, a process may have died while it started.
    pub fn look(&mut self, (world, faults): (&SimWorld, &Faults)) -> Content<SimVolume> {
        if self.lived.is_some() && faults.strikes(Fault::StartCrash) {
            let content = self.content();
            let calls = world.draw(|random| random.below(CALLS_OF_START));
            self.volume.set_fault_in(calls, DiskFault::Gone);
            // It dies during the call that fails, or right after its start.
            let _ = content.begin_log(vec![1], (self.swarm.promise, 1), 0);
            self.leave((world, faults));
        }
        let content = self.content();
        self.compare(&content);
        content
    }

    fn content(&self) -> Content<SimVolume> {
        let content = Content::take(self.volume.clone(), IDENTITY);
        content.unwrap_or_else(|error| panic!("a crash has left what cannot be read: {error}"))
    }

    /// What was durable has to be there, and no more than was written.
    fn compare(&mut self, content: &Content<SimVolume>) {
        let torn = content.found.notices.len() as u64;
        self.probes.add(Probe::TornTail, torn);
        self.probes.add(Probe::SnapshotLoaded, content.snapshot.is_some() as u64);
        let Some(Lived { epoch, durable, last }) = self.lived.take() else { return };
        let incarnation =
            content.found.incarnations.iter().find(|incarnation| incarnation.epoch == epoch);
        let none = vec![0; last.len()];
        let found = incarnation.map_or(&none, |incarnation| &incarnation.last);
        for (shard, &found) in found.iter().enumerate() {
            let (durable, last) = (durable[shard], last[shard]);
            if !(durable..=last).contains(&found) {
                self.broken.push(format!(
                    "shard {shard} of epoch {epoch}: {found} is there, {durable} was durable, {last} the last"
                ));
            }
            self.lost += last.saturating_sub(found);
        }
        self.kept.clone_from(found);
    }

    /// The fresh shards of an incarnation take in what was found, and its log begins.
    pub fn restart(
        &mut self,
        content: &Content<SimVolume>,
        shards: &mut [Shard<SimJournal>],
        world: &SimWorld,
    ) {
        let slots = SlotTable::even(shards.len());
        let with_entries = |incarnation: &&Incarnation| {
            incarnation.first.iter().zip(&incarnation.last).any(|(first, last)| first <= last)
        };
        let mut incarnations = content.found.incarnations.iter().filter(with_entries);
        let has_other = incarnations.any(|incarnation| incarnation.first.len() != shards.len());
        self.probes.add(Probe::ShardsChanged, has_other as u64);
        let mut first = Vec::new();
        for (number, shard) in shards.iter_mut().enumerate() {
            let recovered = recover_shard(content, (number, shard), &slots, &mut |_| Ok(()));
            first.push(recovered.unwrap_or_else(|stopped| panic!("no restart: {stopped:?}")));
        }
        for (number, shard) in shards.iter_mut().enumerate() {
            shard.set_history(content.history(number, &first, self.swarm.promise));
        }
        let settings = (self.swarm.promise, self.swarm.segment_bytes);
        let commit = content.begin_log(first.clone(), settings, world.now_ns() / MS);
        let commit = commit.expect("the disk works");
        let sources = shards.iter_mut().zip(&first).enumerate();
        let sources =
            sources.map(|(number, (shard, first))| RunSource::new(shard, (number, *first)));
        self.running = Some(Running {
            epoch: content.epoch(),
            sources: sources.collect(),
            snapshots: Snapshots::behind(content, world, &self.swarm),
            write: None,
            sync: None,
            told: first.iter().map(|first| (first - 1, true)).collect(),
            is_failing: false,
            commit,
        });
    }
}
