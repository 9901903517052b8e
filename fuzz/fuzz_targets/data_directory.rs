//! A data directory: files of any bytes under the names that are looked for, and
//! files that were written and damaged. Nothing panics, and every entry and every
//! byte of a snapshot that comes out went in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_log::{Log, LogKey, LogOptions, outline};
use remora_storage::sim::SimVolume;
use remora_storage::{
    Identity, LogStart, LogWriter, Manifest, Replayed, Run, ShardSnapshot, SnapshotWriter,
    StorageError, Volume, VolumeFile, WriterOptions, copy_data, find, find_snapshot, read_snapshot,
    replay,
};
use std::sync::OnceLock;

const IDENTITY: Identity = Identity { cluster: 0xc1, secret: 0x5ec };
const NAMES: [&str; 7] = [
    "identity",
    "manifest",
    "log-0000000000000001",
    "log-0000000000000002",
    "log-9999999999999999",
    "snapshot-0000000000000001/shard-0",
    "snapshot-0000000000000001/shard-1",
];
/// Every operation and every byte of the snapshot.
const WRITTEN: u8 = 0x77;

type Files = Vec<(String, Vec<u8>)>;

fn contents(volume: &SimVolume) -> Files {
    let read = |name: String| {
        let file = volume.open(&name).expect("it is there");
        let mut bytes = vec![0; file.bytes().expect("it has a length") as usize];
        file.read_at(0, &mut bytes).expect("it can be read");
        (name, bytes)
    };
    volume.all().into_iter().map(read).collect()
}

fn put(volume: &SimVolume, name: &str, bytes: &[u8]) {
    let file = volume.create(name).expect("the disk works");
    file.append(&[bytes]).expect("the disk works");
}

/// A directory with a life of several segments, a snapshot in the middle, and a manifest.
fn written() -> &'static Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(|| {
        let volume = SimVolume::default();
        IDENTITY.write(&volume).expect("the disk works");
        let (cluster, secret) = (IDENTITY.cluster, IDENTITY.secret);
        let options = WriterOptions { cluster, secret, epoch: 1, segment_bytes: 5000 };
        let start = LogStart { number: 1, first: vec![1], ..LogStart::default() };
        let mut writer = LogWriter::begin(volume.clone(), options, start).expect("it begins");
        let key = LogKey::new(secret, 0);
        let mut log = Log::new(LogOptions { piece_bytes: 100, ..LogOptions::new(key, 0, 1) });
        let mut cursor = log.oldest_cursor();
        for bytes in [1, 40, 300, 900, 20, 700, 3] {
            log.append([&vec![WRITTEN; bytes], &[], &[]]);
            let mut frames = Vec::new();
            log.read(&mut cursor, usize::MAX, &mut frames).expect("it was not yet dropped");
            let of = outline(&frames).expect("there are some");
            let run = Run {
                first: of.first,
                last: of.last,
                ends_entry: of.ends_entry,
                has_parts: of.has_parts,
                frames,
                ..Run::default()
            };
            writer.write(vec![run], 1).expect("the disk works");
            let sync = writer.begin_sync().expect("something was written");
            writer.end_sync(&sync, sync.run()).expect("the disk works");
            writer.begin_segment_if_due().expect("the disk works");
        }
        let mut snapshot =
            SnapshotWriter::begin(volume.clone(), IDENTITY, (1, 1, 1)).expect("it begins");
        snapshot.write(0, &[WRITTEN; 500]).expect("the disk works");
        let ended = ShardSnapshot { sequence: 4, operations: 1, ..ShardSnapshot::default() };
        snapshot.end_shard(0, ended).expect("the disk works");
        snapshot.finish().expect("the disk works");
        let files = copy_data(&volume, &IDENTITY, &SimVolume::default()).expect("it is whole");
        let (version, content) = ("1".into(), Some((1, "00".into())));
        let manifest = Manifest { version, cluster, taken_ms: 1, content, files };
        manifest.write(&volume).expect("the disk works");
        contents(&volume)
    })
}

fn read_all(volume: &SimVolume) -> Result<(), StorageError> {
    let _ = Identity::read(volume, "here");
    if let Ok(Some(manifest)) = Manifest::read(volume) {
        let _ = manifest.check_lengths(volume).and_then(|()| manifest.check_bytes(volume));
    }
    let _ = copy_data(volume, &IDENTITY, &SimVolume::default());
    let snapshot = find_snapshot(volume, &IDENTITY)?;
    let covered = snapshot.as_ref().map(|at| (at.epoch, at.covered())).unwrap_or_default();
    if let Some(at) = snapshot {
        for shard in 0..at.shards.len() {
            read_snapshot(volume, &IDENTITY, (at.number, shard), |piece| {
                assert!(piece.iter().all(|&byte| byte == WRITTEN), "it was written");
                Ok::<(), StorageError>(())
            })?;
        }
    }
    let found = find(volume, &IDENTITY, (covered.0, &covered.1))?;
    replay(
        volume,
        &IDENTITY,
        &found,
        |_| true,
        |replayed| {
            if let Replayed::Entry(_, _, entry) = replayed {
                assert!(entry.operation.iter().all(|&byte| byte == WRITTEN), "it was written");
            }
            Ok::<(), StorageError>(())
        },
    )
}

fuzz_target!(|input: (Vec<(u8, Vec<u8>)>, Vec<(u8, u16, u8)>, Option<(u8, u16)>)| {
    let (foreign, damage, cut) = input;
    let mut files = written().clone();
    for (at, with, value) in damage {
        let at = usize::from(at) % files.len();
        let bytes = &mut files[at].1;
        let place = usize::from(with) % bytes.len().max(1);
        bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= value);
    }
    if let Some((at, to)) = cut {
        let at = usize::from(at) % files.len();
        files[at].1.truncate(to.into());
    }
    let volume = SimVolume::default();
    files.iter().for_each(|(name, bytes)| put(&volume, name, bytes));
    for (at, bytes) in &foreign {
        put(&volume, NAMES[usize::from(*at) % NAMES.len()], bytes);
    }
    let whole = read_all(&volume);
    assert!(whole.is_ok() || files != *written() || !foreign.is_empty(), "{whole:?}");
});
