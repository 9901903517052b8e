//! Snapshots that the disk refuses leave nothing behind.

use crate::support::IDENTITY;
use remora_storage::sim::{DiskFault, SimVolume};
use remora_storage::{ShardSnapshot, SnapshotWriter};
use std::io;

const SHARDS: usize = 2;

fn write(volume: &SimVolume, number: u64) -> io::Result<Vec<u64>> {
    let mut writer = SnapshotWriter::begin(volume.clone(), IDENTITY, (number, 1, SHARDS))?;
    for shard in 0..SHARDS {
        let ended = ShardSnapshot { sequence: number, ..ShardSnapshot::default() };
        if let Err(error) = writer.end_shard(shard, ended) {
            writer.give_up();
            return Err(error);
        }
    }
    writer.finish()
}

#[test]
fn a_snapshot_that_fails_at_its_beginning_or_its_end_leaves_no_directory() {
    let volume = SimVolume::default();
    write(&volume, 1).unwrap();
    let before = volume.all();
    for (number, fault) in [(2, DiskFault::Write), (3, DiskFault::Sync)] {
        volume.set_fault(fault);
        assert!(write(&volume, number).is_err());
        volume.set_fault(DiskFault::None);
        assert_eq!(volume.all(), before, "{fault:?}");
    }
    // The names cannot be synced, after all files were.
    let mut writer = SnapshotWriter::begin(volume.clone(), IDENTITY, (4, 1, SHARDS)).unwrap();
    for shard in 0..SHARDS {
        writer.end_shard(shard, ShardSnapshot::default()).unwrap();
    }
    volume.set_fault(DiskFault::Sync);
    assert!(writer.finish().is_err());
    assert_eq!(volume.all(), before);
    volume.set_fault(DiskFault::None);
    assert_eq!(write(&volume, 5).unwrap(), [5, 5]);
}
