//! Directories of the file system that are moved, replaced or emptied while a log is written there.

use crate::support::IDENTITY;
use remora_storage::{
    Directory, GroupCommit, LogStart, LogWriter, Promise, Run, ShardSnapshot, SnapshotWriter,
    StorageError, WriterOptions, find,
};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

struct Fixture {
    root: tempfile::TempDir,
    commit: GroupCommit<Directory>,
    volume: Directory,
    next: u64,
}

impl Fixture {
    fn new(promise: Promise) -> Self {
        let root = tempfile::tempdir().unwrap();
        let volume = Directory::at(&root.path().join("some/where/data")).unwrap();
        IDENTITY.write(&volume).unwrap();
        let (cluster, secret) = (IDENTITY.cluster, IDENTITY.secret);
        let options = WriterOptions { cluster, secret, epoch: 1, segment_bytes: 200 };
        let start = LogStart { number: 1, first: vec![1], ..LogStart::default() };
        let writer = LogWriter::begin(volume.clone(), options, start).unwrap();
        let commit = GroupCommit::new(writer, promise, 1, 0);
        let mut fixture = Self { root, commit, volume, next: 1 };
        // Several segments.
        (0..5).for_each(|_| assert!(fixture.write_and_sync().is_ok()));
        assert!(fixture.commit.writer().number() > 2);
        fixture
    }

    fn path(&self) -> PathBuf {
        self.volume.path().to_path_buf()
    }

    fn aside(&self) -> PathBuf {
        self.root.path().join("aside")
    }

    fn write(&mut self) {
        let run = Run {
            first: self.next,
            last: self.next,
            ends_entry: true,
            frames: vec![7; 128],
            ..Run::default()
        };
        self.next += 1;
        self.commit.write(vec![run], 1, 0).unwrap();
    }

    fn write_and_sync(&mut self) -> io::Result<()> {
        self.write();
        self.commit.sync_now(0)
    }

    fn last(&self) -> u64 {
        find(&Directory::existing(&self.path()).unwrap(), &IDENTITY, (0, &[])).unwrap().incarnations
            [0]
        .last[0]
    }

    /// Nothing counts until `back` was called, and then everything.
    fn stops_until(&mut self, says: &str, back: impl FnOnce(&Path, &Path)) {
        let synced = self.commit.synced(0);
        let text = self.write_and_sync().unwrap_err().to_string();
        assert!(text.contains(says), "{text}");
        assert!(!self.commit.wants_runs());
        for _ in 0..3 {
            assert!(self.commit.mend(1, 0).unwrap_err().to_string().contains(says));
        }
        assert_eq!((self.commit.synced(0), self.commit.durable(0)), (synced, synced));
        back(&self.path(), &self.aside());
        self.commit.mend(1, 0).unwrap();
        assert_eq!(self.commit.durable(0), synced + 1);
        self.write_and_sync().unwrap();
        assert_eq!((self.commit.durable(0), self.last()), (synced + 2, synced + 2));
    }
}

#[test]
fn a_directory_that_moves_takes_nothing_until_it_is_back() {
    let mut fixture = Fixture::new(Promise::Synced);
    fs::rename(fixture.path(), fixture.aside()).unwrap();
    fixture.stops_until("data is gone", |path, aside| fs::rename(aside, path).unwrap());
    // Another one at its path, even a copy of it.
    fs::rename(fixture.path(), fixture.aside()).unwrap();
    fs::create_dir(fixture.path()).unwrap();
    fixture.stops_until("another directory", |path, aside| {
        assert_eq!(fs::read_dir(path).unwrap().count(), 0, "nothing was made in it");
        fs::remove_dir(path).unwrap();
        fs::rename(aside, path).unwrap();
    });
}

#[test]
fn a_file_that_is_gone_stops_the_log_until_it_is_back() {
    let mut fixture = Fixture::new(Promise::Synced);
    let present = format!("log-{:016}", fixture.commit.writer().number());
    for name in [present.as_str(), "log-0000000000000001"] {
        fs::rename(fixture.path().join(name), fixture.aside()).unwrap();
        if name != present {
            let text = fixture.commit.look(0).unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
            assert!(!fixture.commit.wants_runs());
            assert!(fixture.commit.mend(1, 0).is_err());
            fs::rename(fixture.aside(), fixture.path().join(name)).unwrap();
            fixture.commit.mend(1, 0).unwrap();
            continue;
        }
        let name = name.to_owned();
        fixture.stops_until("is gone", |path, aside| fs::rename(aside, path.join(name)).unwrap());
    }
    let lock = fixture.volume.lock().unwrap();
    fixture.commit.look(0).unwrap();
    fs::rename(fixture.path().join("lock"), fixture.aside()).unwrap();
    fixture.stops_until("data/lock is gone", |path, aside| {
        fs::rename(aside, path.join("lock")).unwrap();
    });
    drop(lock);
}

/// With weaker promises nothing waits for a sync: the look finds it, also while nothing is written.
#[test]
fn a_look_finds_a_directory_that_is_gone() {
    for promise in [Promise::Written, Promise::Memory] {
        let mut fixture = Fixture::new(promise);
        fixture.commit.look(0).unwrap();
        assert!(fixture.commit.looks_at_ms() <= 1000);
        fs::remove_dir_all(fixture.path()).unwrap();
        assert!(fixture.commit.look(600).unwrap_err().to_string().contains("data is gone"));
        assert!(!fixture.commit.wants_runs() && fixture.commit.writer().has_failed());
        assert!(fixture.commit.mend(1, 0).is_err());
    }
}

#[test]
fn no_snapshot_counts_in_a_directory_that_has_moved() {
    let fixture = Fixture::new(Promise::Synced);
    let begin = |number| SnapshotWriter::begin(fixture.volume.clone(), IDENTITY, (number, 1, 1));
    let mut writer = begin(1).unwrap();
    writer.end_shard(0, ShardSnapshot { sequence: 1, ..ShardSnapshot::default() }).unwrap();
    fs::rename(fixture.path(), fixture.aside()).unwrap();
    fs::create_dir(fixture.path()).unwrap();
    assert!(writer.finish().unwrap_err().to_string().contains("another directory"));
    assert!(begin(2).is_err());
    assert_eq!(fs::read_dir(fixture.path()).unwrap().count(), 0);
}

#[test]
fn a_lock_names_its_holder() {
    let fixture = Fixture::new(Promise::Synced);
    let _lock = fixture.volume.lock().unwrap();
    let error = Directory::existing(&fixture.path()).unwrap().lock().unwrap_err();
    assert!(matches!(error, StorageError::Locked { .. }));
    let text = error.to_string();
    assert!(text.contains(&format!("in use by process {}", std::process::id())), "{text}");
}

/// The cause comes once, with `source`; the text names the directory and what helps.
#[test]
fn an_error_of_the_disk_says_where_and_what_to_do() {
    let cause = || io::Error::from_raw_os_error(30);
    let error = StorageError::io("take", "the lock", cause()).in_directory(Path::new("/data"));
    let text = error.to_string();
    assert!(text.starts_with("cannot take the lock in /data; mount the file system"), "{text}");
    assert!(!text.contains(&cause().to_string()), "{text}");
    let told = std::error::Error::source(&error).map(ToString::to_string);
    assert_eq!(told, Some(cause().to_string()));
    // A file that has a path names its place.
    let made = StorageError::io("make", "/data", cause()).in_directory(Path::new("/data"));
    assert!(made.to_string().starts_with("cannot make /data; mount"), "{made}");
}
