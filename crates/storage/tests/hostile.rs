//! Directories that hold anything: files of any bytes under the names that are looked for, and files
//! that were written and damaged. Nothing panics or takes much memory, and what is read was written.

use crate::support::{IDENTITY, Server, entries, look};
use remora_storage::sim::SimVolume;
use remora_storage::{
    Directory, Identity, Manifest, Promise, ShardSnapshot, SnapshotWriter, StorageError, Volume,
    VolumeFile, copy_data, find, find_snapshot, read_snapshot,
};
use remora_testing::Random;

const NAMES: [&str; 7] = [
    "identity",
    "manifest",
    "log-0000000000000001",
    "log-0000000000000002",
    "log-9999999999999999",
    "snapshot-0000000000000001/shard-0",
    "snapshot-0000000000000001/shard-1",
];

/// Everything that reads a directory.
fn read_all(volume: &SimVolume) -> Result<(), StorageError> {
    let identity = Identity::read(volume, "here").map(|read| read.unwrap_or(IDENTITY));
    let manifest = Manifest::read(volume);
    if let Ok(Some(manifest)) = &manifest {
        let _ = manifest.check_lengths(volume).and_then(|()| manifest.check_bytes(volume));
    }
    let _ = copy_data(volume, &IDENTITY, &SimVolume::default());
    let snapshot = find_snapshot(volume, &IDENTITY)?;
    let (mut epoch, mut covered) = (0, Vec::new());
    if let Some(at) = &snapshot {
        (epoch, covered) = (at.epoch, at.covered());
        for shard in 0..at.shards.len() {
            read_snapshot(volume, &IDENTITY, (at.number, shard), |piece| {
                assert!(piece.iter().all(|&byte| byte == shard as u8), "it was written");
                Ok::<(), StorageError>(())
            })?;
        }
    }
    let found = find(volume, &IDENTITY, (epoch, &covered))?;
    entries(volume, &found)?;
    identity.and(manifest).map(drop)
}

/// Two incarnations, a snapshot of the second, an identity and a manifest.
fn written() -> SimVolume {
    let (mut random, volume) = (Random::new(9), SimVolume::default());
    IDENTITY.write(&volume).unwrap();
    let mut synced = [0; 2];
    for _ in 0..2 {
        let mut server = Server::begin(&volume, &look(&volume).unwrap(), 2, Promise::Synced);
        for _ in 0..20 {
            server.append(random.below(2) as usize, &mut random);
            server.write(&mut random);
            server.sync();
        }
        synced = [0, 1].map(|shard| server.commit.synced(shard));
    }
    let mut writer = SnapshotWriter::begin(volume.clone(), IDENTITY, (1, 2, 2)).unwrap();
    for (shard, sequence) in synced.into_iter().enumerate() {
        writer.write(shard, &[shard as u8; 3000]).unwrap();
        let ended = ShardSnapshot { sequence, operations: 1, ..ShardSnapshot::default() };
        writer.end_shard(shard, ended).unwrap();
    }
    writer.finish().unwrap();
    let files = copy_data(&volume, &IDENTITY, &SimVolume::default()).unwrap();
    let (version, content) = ("1".into(), Some((1, "00".into())));
    let manifest = Manifest { version, cluster: IDENTITY.cluster, taken_ms: 1, content, files };
    manifest.write(&volume).unwrap();
    volume
}

fn contents(volume: &SimVolume, name: &str) -> Vec<u8> {
    let file = volume.open(name).unwrap();
    let mut bytes = vec![0; file.bytes().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn put(volume: &SimVolume, name: &str, bytes: &[u8]) {
    volume.create(name).unwrap().append(&[bytes]).unwrap();
}

#[test]
fn any_bytes_under_any_name_are_refused_or_read() {
    let whole = written();
    read_all(&whole).unwrap();
    let pieces: Vec<Vec<u8>> = whole.all().iter().map(|name| contents(&whole, name)).collect();
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let volume = SimVolume::default();
        for name in NAMES {
            // Noise, or a part of another file.
            let mut bytes = match random.below(3) {
                0 => continue,
                1 => (0..random.below(9000)).map(|_| random.below(256) as u8).collect(),
                _ => pieces[random.below(pieces.len() as u64) as usize].clone(),
            };
            bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
            put(&volume, name, &bytes);
        }
        let _ = read_all(&volume);
    }
}

#[test]
fn damage_anywhere_leaves_only_what_was_written() {
    let whole = written();
    let names = whole.all();
    let mut refused = 0;
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let volume = whole.after_kill();
        for _ in 0..1 + random.below(3) {
            let name = &names[random.below(names.len() as u64) as usize];
            let mut bytes = contents(&volume, name);
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => bytes.truncate(at),
                1 => bytes.extend((0..random.below(200)).map(|_| random.below(256) as u8)),
                // Numbers that overflow.
                2 => bytes.iter_mut().skip(at & !7).take(8).for_each(|byte| *byte = 255),
                _ => bytes[at] ^= 1 << random.below(8),
            }
            put(&volume, name, &bytes);
        }
        refused += u64::from(read_all(&volume).is_err());
    }
    assert!(refused > 1500, "{refused}");
}

/// A hole takes no disk, so a file can be longer than memory.
#[test]
fn a_hole_at_the_end_of_a_segment_takes_no_memory() {
    let root = tempfile::tempdir().unwrap();
    let volume = Directory::at(root.path()).unwrap();
    let whole = written();
    for name in whole.all().into_iter().filter(|name| name.starts_with("log-")) {
        put_real(&volume, &name, &contents(&whole, &name));
    }
    let last = look(&whole).unwrap().incarnations[1].segments.last().unwrap().clone();
    let path = root.path().join(&last.name);
    // As long as an address space of which a part is in use.
    let bytes = 2 << 30;
    std::fs::File::options().write(true).open(&path).unwrap().set_len(bytes).unwrap();
    let before = peak_kib();
    let found = find(&volume, &IDENTITY, (0, &[])).unwrap();
    let notice = &found.notices[0];
    assert_eq!((notice.offset, notice.bytes), (last.bytes, bytes - last.bytes));
    let took = peak_kib() - before;
    assert!(took < 256 << 10, "{took} KiB");
}

fn put_real(volume: &Directory, name: &str, bytes: &[u8]) {
    volume.create(name).unwrap().append(&[bytes]).unwrap();
}

/// The most memory that this process ever had, KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
