//! Copies of a directory that is written meanwhile, and what is refused of them.

use crate::support::IDENTITY;
use remora_storage::{
    Directory, FileSum, LogStart, LogWriter, Manifest, Run, ShardSnapshot, SnapshotWriter,
    StorageError, Volume, WriterOptions, copy_data, find, find_snapshot, read_snapshot,
};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SHARDS: usize = 2;

/// Writes a snapshot whose streams are its number, over and over.
fn snapshot(volume: &Directory, number: u64) {
    let mut writer = SnapshotWriter::begin(volume.clone(), IDENTITY, (number, 1, SHARDS)).unwrap();
    for shard in 0..SHARDS {
        writer.write(shard, &[number as u8; 3000]).unwrap();
        let ended = ShardSnapshot { sequence: number, operations: 1, ..ShardSnapshot::default() };
        writer.end_shard(shard, ended).unwrap();
    }
    writer.finish().unwrap();
}

/// A directory with a snapshot and a segment.
fn written(path: &Path) -> Directory {
    let volume = Directory::at(path).unwrap();
    IDENTITY.write(&volume).unwrap();
    let (cluster, secret) = (IDENTITY.cluster, IDENTITY.secret);
    let options = WriterOptions { cluster, secret, epoch: 1, segment_bytes: 1 << 20 };
    let start = LogStart { number: 1, first: vec![1; SHARDS], ..LogStart::default() };
    let mut writer = LogWriter::begin(volume.clone(), options, start).unwrap();
    let run = Run { first: 1, last: 9, ends_entry: true, frames: vec![7; 64], ..Run::default() };
    let runs = (0..SHARDS as u16).map(|shard| Run { shard, ..run.clone() }).collect();
    writer.write(runs, 1).unwrap();
    snapshot(&volume, 1);
    volume
}

/// A directory in which the next snapshot is written as a file is opened.
#[derive(Clone)]
struct Racing {
    volume: Directory,
    opens: Arc<AtomicUsize>,
    at: usize,
}

impl Volume for Racing {
    type File = <Directory as Volume>::File;

    fn names(&self, of: &str) -> io::Result<Vec<String>> {
        self.volume.names(of)
    }
    fn open(&self, name: &str) -> io::Result<Self::File> {
        if self.opens.fetch_add(1, Ordering::Relaxed) == self.at {
            snapshot(&self.volume, 2);
        }
        self.volume.open(name)
    }
    fn create(&self, name: &str) -> io::Result<Self::File> {
        self.volume.create(name)
    }
    fn make_subdirectory(&self, name: &str) -> io::Result<()> {
        self.volume.make_subdirectory(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.volume.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.volume.remove(name)
    }
    fn sync_names(&self, of: &str) -> io::Result<()> {
        self.volume.sync_names(of)
    }
    fn is_same(&self) -> io::Result<()> {
        self.volume.is_same()
    }
    fn is_named(&self, name: &str, file: &Self::File) -> io::Result<()> {
        self.volume.is_named(name, file)
    }
}

#[test]
fn a_snapshot_that_is_replaced_at_any_moment_is_copied_whole() {
    let mut old = 0;
    for at in 0..16 {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (volume, copy) = (written(from.path()), Directory::at(to.path()).unwrap());
        let racing = Racing { volume, opens: Arc::default(), at };
        let files = copy_data(&racing, &IDENTITY, &copy).unwrap();
        assert_eq!(files.len(), SHARDS + 1, "{files:?}");
        let found = find_snapshot(&copy, &IDENTITY).unwrap().unwrap();
        let now = find_snapshot(&racing.volume, &IDENTITY).unwrap().unwrap();
        let was_late = racing.opens.load(Ordering::Relaxed) <= at;
        assert_eq!(found.number, if was_late { 1 } else { now.number }, "at {at}");
        old += usize::from(found.number == 1);
        let name = format!("snapshot-{:016}", found.number);
        assert_eq!(copy.names(&name).unwrap().len(), SHARDS);
        for shard in 0..SHARDS {
            let mut stream = Vec::new();
            let read = read_snapshot(&copy, &IDENTITY, (found.number, shard), |piece| {
                stream.extend_from_slice(piece);
                Ok::<(), StorageError>(())
            });
            read.unwrap();
            assert_eq!(stream, [found.number as u8; 3000]);
        }
        let log = find(&copy, &IDENTITY, (1, &found.covered())).unwrap();
        assert_eq!((log.incarnations[0].last[0], log.notices.len()), (9, 0));
    }
    assert!((1..16).contains(&old), "{old}");
}

#[test]
fn a_torn_end_is_cut_and_what_changes_later_is_refused() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (volume, copy) = (written(from.path()), Directory::at(to.path()).unwrap());
    let segment = "log-0000000000000001";
    let mut bytes = std::fs::read(from.path().join(segment)).unwrap();
    let whole = bytes.len() as u64;
    bytes.extend([9; 100]);
    std::fs::write(from.path().join(segment), &bytes).unwrap();
    let files = copy_data(&volume, &IDENTITY, &copy).unwrap();
    let of_log = files.iter().find(|file| file.name == segment).unwrap();
    assert_eq!(of_log.bytes, whole);

    let content = Some((3, "00ff".to_owned()));
    let manifest =
        Manifest { version: "1.2".into(), cluster: IDENTITY.cluster, taken_ms: 5, content, files };
    assert_eq!(Manifest::read(&copy).unwrap(), None);
    manifest.write(&copy).unwrap();
    assert_eq!(Manifest::read(&copy).unwrap().as_ref(), Some(&manifest));
    let check = || {
        manifest.check_lengths(&copy)?;
        manifest.check_bytes(&copy)
    };
    check().unwrap();
    let refused = |name: &str, offset: u64, reason: &str| {
        let text = check().unwrap_err().to_string();
        assert!(text.starts_with(&format!("corrupt {name} offset={offset} ")), "{text}");
        assert!(text.contains(reason), "{text}");
    };
    for FileSum { name, bytes, .. } in &manifest.files {
        let path = to.path().join(name);
        let good = std::fs::read(&path).unwrap();
        let mut changed = good.clone();
        changed[good.len() / 2] ^= 1;
        std::fs::write(&path, &changed).unwrap();
        refused(name, 0, "has changed");
        std::fs::write(&path, &good[..good.len() - 1]).unwrap();
        refused(name, bytes - 1, "the manifest says");
        std::fs::remove_file(&path).unwrap();
        refused(name, 0, "is missing");
        std::fs::write(&path, &good).unwrap();
    }
    std::fs::write(to.path().join("log-0000000000000002"), "x").unwrap();
    refused("log-0000000000000002", 0, "does not have this file");

    let text = std::fs::read_to_string(to.path().join("manifest")).unwrap();
    for changed in [text.replace("keys 3", "keys 4"), text[..text.len() - 9].to_owned()] {
        std::fs::write(to.path().join("manifest"), changed).unwrap();
        assert!(Manifest::read(&copy).unwrap_err().to_string().contains("its check is wrong"));
    }
}
