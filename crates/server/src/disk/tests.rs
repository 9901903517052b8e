//! What a directory says of its data, and snapshots whose streams are not what their ends say.

use super::content::Content;
use super::loaded::Loaded;
use crate::start_error::StartError;
use remora_storage::sim::SimVolume;
use remora_storage::{
    Directory, GroupCommit, Identity, Promise, Run, ShardSnapshot, SnapshotWriter, StorageError,
    Volume,
};

const IDENTITY: Identity = Identity { cluster: 7, secret: 9 };
const SEGMENT_BYTES: u64 = 1 << 20;

fn begin<V: Volume>(volume: &V) -> (Content<V>, GroupCommit<V>) {
    let content = Content::take(volume.clone(), IDENTITY).unwrap();
    let commit = content.begin_log(vec![1], (Promise::Synced, SEGMENT_BYTES), 0).unwrap();
    (content, commit)
}

fn snapshot<V: Volume>(volume: &V, epoch: u64, stream: &[u8], ended: ShardSnapshot) {
    let mut writer = SnapshotWriter::begin(volume.clone(), IDENTITY, (1, epoch, 1)).unwrap();
    writer.write(0, stream).unwrap();
    writer.end_shard(0, ended).unwrap();
    writer.finish().unwrap();
}

/// An incarnation that writes nothing tells neither a time nor a size; the snapshot and the incarnations before do.
#[test]
fn an_idle_incarnation_forgets_neither_time_nor_size() {
    let volume = SimVolume::default();
    let (fresh, mut commit) = begin(&volume);
    assert_eq!((fresh.time_ms(), fresh.snapshot_time_ms(), fresh.used_bytes()), (0, None, 0));
    let run = Run {
        first: 1,
        last: 1,
        ends_entry: true,
        used_bytes: 5000,
        frames: vec![1; 64],
        ..Run::default()
    };
    commit.write(vec![run], 1_000, 0).unwrap();
    commit.sync_now(0).unwrap();
    let (second, _) = begin(&volume);
    assert_eq!((second.time_ms(), second.used_bytes()), (1_000, 5000));
    let (third, _) = begin(&volume);
    assert_eq!((third.time_ms(), third.used_bytes()), (1_000, 5000));
    // An idle server writes a snapshot an hour later.
    let ended = ShardSnapshot { time_ms: 3_601_000, used_bytes: 4000, ..ShardSnapshot::default() };
    snapshot(&volume, 3, &[], ended);
    let (fourth, _) = begin(&volume);
    assert_eq!((fourth.time_ms(), fourth.used_bytes()), (3_601_000, 4000));
    assert_eq!(fourth.snapshot_time_ms(), Some(3_601_000));
}

/// A checksum says that the bytes are those that were written, not that they are whole operations.
#[test]
fn a_snapshot_with_other_operations_than_its_end_says_is_refused() {
    let half = 40_u32.to_le_bytes();
    for (stream, operations, is_whole) in
        [(&[][..], 0, true), (&[][..], 3, false), (&half[..], 0, false)]
    {
        let directory = tempfile::tempdir().unwrap();
        let volume = Directory::at(directory.path()).unwrap();
        IDENTITY.write(&volume).unwrap();
        drop(begin(&volume));
        snapshot(&volume, 1, stream, ShardSnapshot { operations, ..ShardSnapshot::default() });
        match Loaded::of(directory.path(), None, &|_| {}) {
            Ok(loaded) => assert!(is_whole && loaded.keys == 0),
            Err(StartError::Storage(StorageError::Corrupt { name, reason, .. })) => {
                assert!(!is_whole && name == "snapshot-0000000000000001/shard-0", "{name}");
                assert!(reason.contains(&format!("says {operations}")), "{reason}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
