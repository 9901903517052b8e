//! A primary has its data directory say that it leads: see [`remora_cluster::led_epoch`].
//!
//! Invariant: where the shards' logs end when the epoch begins is taken from reports that they made after
//! they had applied all that was received: such a report goes by a requirement that was sent later.

use crate::acknowledging::ShardReport;
use crate::disk::Disk;
use remora_cluster::led_epoch::{LedEpoch, LedEpochRecorder};
use remora_layout::limits::LED_EPOCH_AGAIN_MS;
use remora_storage::Promise;
use std::sync::atomic::Ordering;

/// See the module's text.
pub struct Recording {
    led: LedEpoch,
    requirement: u64,
    recorder: Option<LedEpochRecorder>,
    is_ordered: bool,
    /// It is not ordered before this, ns.
    again_ns: u64,
}

impl Recording {
    /// A process leads an epoch, and its shards have applied all that was received before they get the
    /// requirement with this number.
    pub fn new((incarnation, epoch): (u64, u64), requirement: u64, disk: &Disk) -> Self {
        let is_durable = disk.promise == Promise::Synced;
        let led = LedEpoch { incarnation, epoch, is_durable };
        Self { led, requirement, recorder: None, is_ordered: false, again_ns: 0 }
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.led.epoch
    }

    /// What is to be written now. Once it was given, it is not given again before [`Recording::failed`].
    pub fn due(&mut self, reports: &[ShardReport], disk: &Disk, now_ns: u64) -> Option<LedEpoch> {
        if self.recorder.is_none() && reports.iter().all(|of| of.requirement >= self.requirement) {
            let ends = reports.iter().map(|of| of.last).collect();
            self.recorder = Some(LedEpochRecorder::new(self.led, ends));
        }
        if self.is_ordered || now_ns < self.again_ns {
            return None;
        }
        let synced: Vec<_> = disk.synced.iter().map(|of| of.load(Ordering::Acquire)).collect();
        let due = self.recorder.as_ref()?.due(&synced)?;
        self.is_ordered = true;
        Some(due)
    }

    /// The disk has refused it.
    pub fn failed(&mut self, now_ns: u64) {
        (self.is_ordered, self.again_ns) = (false, now_ns + LED_EPOCH_AGAIN_MS * 1_000_000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn report(requirement: u64, last: u64) -> ShardReport {
        ShardReport { requirement, last, ..ShardReport::default() }
    }

    fn disk(promise: Promise) -> (tempfile::TempDir, Disk) {
        let directory = tempfile::tempdir().unwrap();
        let volume = remora_storage::Directory::at(directory.path()).unwrap();
        let path = PathBuf::from(directory.path());
        (directory, Disk::new((path, volume), promise, vec![1, 1]))
    }

    #[test]
    fn it_waits_for_the_shards_and_for_the_disk() {
        let (_directory, disk) = disk(Promise::Synced);
        let mut of = Recording::new((7, 3), 5, &disk);
        let before = [report(5, 10), report(4, 0)];
        disk.synced[0].store(10, Ordering::Relaxed);
        assert_eq!(of.due(&before, &disk, 0), None, "a shard may not have applied all");
        assert_eq!(of.due(&[report(5, 10), report(6, 20)], &disk, 0), None);
        // What comes later is another matter.
        disk.synced[1].store(20, Ordering::Relaxed);
        let led = LedEpoch { incarnation: 7, epoch: 3, is_durable: true };
        assert_eq!(of.due(&[report(6, 99), report(6, 99)], &disk, 0), Some(led));
        assert_eq!(of.due(&[report(6, 99), report(6, 99)], &disk, 0), None, "it is under way");
        of.failed(1);
        assert_eq!(of.due(&before, &disk, 2), None, "not at once");
        assert_eq!(of.due(&before, &disk, u64::MAX), Some(led));
    }

    #[test]
    fn another_durability_says_so() {
        for promise in [Promise::Memory, Promise::Written] {
            let (_directory, disk) = disk(promise);
            let mut of = Recording::new((7, 3), 0, &disk);
            let led = LedEpoch { incarnation: 7, epoch: 3, is_durable: false };
            assert_eq!(of.due(&[report(0, 10), report(0, 10)], &disk, 0), Some(led));
        }
    }
}
